"""Identity: which piece of a stream belongs to which call, and which calls are the same."""

from collections.abc import Sequence
from typing import Any

from treadle.conformance.checks import (
    answered,
    any_of,
    every_call_answered,
    never_ran,
    not_completed,
    ran,
    ran_with,
    sent,
)
from treadle.conformance.evidence import Evidence
from treadle.conformance.groups.common import LOOK, PAY, STREAMED, TEXTS, pay, streamed
from treadle.conformance.scenario import DialectName, Scenario
from treadle.testing import ScriptedCall, Turn, call

__all__ = ["SCENARIOS"]

_TWICE = '{"invoice": 7}'
_ONCE = (ran_with("pay", {"invoice": 7}), answered("Paid."))


def _refused(evidence: Evidence) -> str | None:
    """The response contradicts itself: that nothing of it runs, and the run ends without a success, is right too."""
    return not_completed(evidence) or never_ran()(evidence)


def _same_id_twice(dialect: DialectName) -> Sequence[Any]:
    """One call, told at two places of the stream."""
    if dialect == "gemini":
        return (Turn(calls=(pay(7), pay(7))), "Paid.")
    told = [event for at in (0, 1) for event in (("begin", at, "call_1", "pay"), ("text", at, _TWICE), ("end", at))]
    return (streamed(dialect, *told), "Paid.")


def _begun_twice(dialect: DialectName) -> Sequence[Any]:
    """The beginning of one call is repeated, before its arguments come."""
    begin = ("begin", 0, "call_1", "pay")
    return (streamed(dialect, begin, begin, ("text", 0, _TWICE), ("end", 0)), "Paid.")


def _all_at_index_0(dialect: DialectName) -> Sequence[Any]:
    """Two calls with ids of their own, which the server puts at one index."""
    told = [
        event
        for key in "ab"
        for event in (("begin", 0, f"call_{key}", "look"), ("text", 0, f'{{"key": "{key}"}}'), ("end", 0))
    ]
    return (streamed(dialect, *told), "Seen.")


def _name_repeated(dialect: DialectName) -> Sequence[Any]:
    """Every piece of a call has its id and its name again."""
    pieces = ['{"invo', 'ice": ', "7}"]
    told = [event for piece in pieces for event in (("begin", 0, "call_1", "pay"), ("text", 0, piece))]
    return (streamed(dialect, *told, ("end", 0)), "Paid.")


SCENARIOS = (
    Scenario(
        id="identity/told-twice",
        failure="One call comes twice in a response: the same id, name and arguments at two places.",
        promise="It runs once, and the history stays valid; or the response is refused as a whole.",
        source="github.com/mudler/LocalAI/issues/9722: a server streams the same call at several indexes",
        severity="harm",
        needs=STREAMED,
        tools=(PAY,),
        turns=_same_id_twice,
        right=(any_of(ran_with("pay", {"invoice": 7}), _refused), any_of(answered("Paid."), _refused)),
    ),
    Scenario(
        id="identity/begun-twice",
        failure="The event that begins a call comes twice.",
        promise="The call runs once.",
        source="OpenAI, Streaming: a tool call is identified by its index; its id and name may be sent again",
        severity="harm",
        needs=STREAMED,
        dialects=("chat",),
        tools=(PAY,),
        turns=_begun_twice,
        right=_ONCE,
    ),
    Scenario(
        id="identity/name-in-each-piece",
        failure="Each piece of a call repeats its id and its name.",
        promise="The pieces make one call, and the name is not put together from all of them.",
        source="github.com/langchain4j/langchain4j/pull/4544: compatible servers repeat the id in every chunk",
        severity="wrong",
        needs=STREAMED,
        dialects=("chat",),
        tools=(PAY,),
        turns=_name_repeated,
        right=_ONCE,
    ),
    Scenario(
        id="identity/interleaved",
        failure="The pieces of two calls come in turns.",
        promise="Each piece belongs to the call at its index.",
        source="OpenAI, Streaming: assemble the arguments by index",
        severity="harm",
        needs=STREAMED,
        dialects=TEXTS,
        tools=(LOOK, PAY),
        turns=(
            Turn(
                calls=(call("look", key="a long key", id="call_1"), pay(7, "call_2", note="first")),
                interleave=True,
                pieces=6,
            ),
            "Done.",
        ),
        right=(
            ran_with("look", {"key": "a long key"}),
            ran_with("pay", {"invoice": 7, "note": "first"}),
            answered("Done."),
        ),
    ),
    Scenario(
        id="identity/one-index",
        failure="A server puts two calls with different ids at the same index.",
        promise="They are two calls, and both have a result; or the response is refused as a whole. They never become one.",
        source="github.com/NousResearch/hermes-agent/issues/62937: Gemini's compatible endpoint puts parallel calls at one index",
        severity="wrong",
        needs=STREAMED,
        dialects=("chat",),
        tools=(LOOK,),
        turns=_all_at_index_0,
        right=(
            any_of(ran_with("look", {"key": "a"}, {"key": "b"}), ran("look", 0)),
            any_of(answered("Seen."), not_completed),
        ),
    ),
    Scenario(
        id="identity/no-ids",
        failure="A server sends two calls without ids.",
        promise="Both run once, and the history that goes back has ids that pair.",
        source="github.com/continuedev/continue/issues/13225: Ollama streams calls without ids; Gemini before 3 has none",
        severity="wrong",
        dialects=("chat", "gemini"),
        tools=(LOOK,),
        turns=(
            Turn(
                calls=(
                    ScriptedCall(name="look", arguments='{"key": "a"}', id=None),
                    ScriptedCall(name="look", arguments='{"key": "b"}', id=None),
                )
            ),
            "Seen.",
        ),
        right=(ran_with("look", {"key": "a"}, {"key": "b"}), every_call_answered, answered("Seen.")),
    ),
    Scenario(
        id="identity/same-id",
        failure="A server gives two different calls of one response the same id.",
        promise="Both run once, and the history that goes back has ids that pair; or the response is refused as a whole.",
        source="github.com/HKUDS/nanobot/pull/3943: compatible servers give parallel calls one id",
        severity="wrong",
        dialects=("chat",),
        tools=(LOOK,),
        turns=(Turn(calls=(call("look", key="a", id="call_0"), call("look", key="b", id="call_0"))), "Seen."),
        right=(any_of(ran_with("look", {"key": "a"}, {"key": "b"}), _refused), any_of(answered("Seen."), _refused)),
    ),
    Scenario(
        id="identity/same-id-later",
        failure="A server counts the calls of each response from the same id.",
        promise="The call of the second response runs as well, and each has its own result.",
        source="github.com/bug-ops/zeph/pull/5541: Ollama names the first call of every response call_0",
        severity="wrong",
        tools=(LOOK,),
        turns=(call("look", key="a", id="call_0"), call("look", key="b", id="call_0"), "Seen."),
        right=(
            ran_with("look", {"key": "a"}, {"key": "b"}),
            sent(
                "the last request has both results",
                lambda evidence: all(
                    f"key={key}"
                    in "".join(
                        item.text for request in evidence.requests for item in request.items if item.kind == "result"
                    )
                    for key in "ab"
                ),
            ),
            answered("Seen."),
        ),
    ),
    Scenario(
        id="identity/single-bytes",
        failure="The response comes in single bytes, which split characters, lines and events.",
        promise="The calls and the answer are the same as in one piece.",
        source="RFC 9112, section 7.1: chunks end anywhere; HTML, Server-sent events: lines are decoded after that",
        severity="wrong",
        needs=STREAMED,
        tools=(LOOK,),
        turns=(
            Turn(calls=(call("look", key="Grüße 漢字 \U0001f600", id="call_1"),), chunk_size=1),
            Turn(text="Grüße \U0001f600", chunk_size=1),
        ),
        right=(ran_with("look", {"key": "Grüße 漢字 \U0001f600"}), answered("Grüße \U0001f600")),
    ),
)
