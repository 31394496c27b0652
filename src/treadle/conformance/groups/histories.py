"""Histories: what the next request has of the ones before, after a cancel, a crash, a limit, and at another vendor."""

import itertools

from treadle.conformance.checks import answered, every_call_answered, ran, requests, sent
from treadle.conformance.evidence import Evidence, Item
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, pay
from treadle.conformance.scenario import Check, Scenario, start, tool
from treadle.testing import Turn, call

__all__ = ["SCENARIOS"]

_SESSIONS = frozenset({"sessions"})
_ORPHANS = (
    "github.com/anomalyco/opencode/issues/21326: interrupted calls leave a history that the vendor refuses for ever"
)
_FIRST, _SECOND = "Look the key a up.", "And what was the key?"


def _said(evidence: Evidence) -> list[str]:
    return [item.text for item in evidence.requests[-1].items]


def _remembers(*texts: str) -> Check:
    return sent(
        f"the last request has {', '.join(map(repr, texts))}",
        lambda evidence: all(any(text in said for said in _said(evidence)) for text in texts) or _continues(evidence),
    )


def _continues(evidence: Evidence) -> bool:
    """Whether the server keeps the history, in the dialect that has that."""
    return bool((evidence.requests[-1].body or {}).get("previous_response_id"))


def _grows(evidence: Evidence) -> bool:
    """Whether each request begins with all that the one before said."""
    told: list[list[Item]] = [list(one.items) for one in evidence.requests]
    return all(_continues(evidence) or after[: len(before)] == before for before, after in itertools.pairwise(told))


def _text_before_call(evidence: Evidence) -> bool:
    kinds = [(item.kind, item.text if item.kind == "assistant" else "") for item in evidence.requests[-1].items]
    return _continues(evidence) or (
        ("assistant", "I look it up.") in kinds
        and kinds.index(("assistant", "I look it up.")) < kinds.index(("call", ""))
    )


SCENARIOS = (
    Scenario(
        id="histories/grows",
        failure="A run has three steps.",
        promise="Each request begins with exactly what the one before said, so that the vendor's cache holds.",
        source="seed 003, The Tool Use Loop: messages are appended; vendors cache equal beginnings",
        severity="waste",
        tools=(LOOK,),
        turns=(call("look", key="a", id="call_1"), call("look", key="b", id="call_2"), "Seen."),
        right=(requests(3), sent("each request begins with what the one before said", _grows), answered("Seen.")),
    ),
    Scenario(
        id="histories/text-with-call",
        failure="The model says something before it calls a tool.",
        promise="The next request has the text, before the call.",
        source="seed 003, The Tool Use Loop: text blocks stay in the assistant's message",
        severity="wrong",
        tools=(LOOK,),
        turns=(Turn(text="I look it up.", calls=(call("look", key="a", id="call_1"),)), "Seen."),
        right=(sent("the second request has the text before the call", _text_before_call), answered("Seen.")),
    ),
    Scenario(
        id="histories/reasoning",
        failure="The model reasons before it calls a tool, and the vendor seals the reasoning.",
        promise="The next request has the reasoning as it came, with its seal.",
        source="Anthropic, Extended thinking: pass thinking blocks back with the tool results; Gemini: thought signatures",
        severity="wrong",
        dialects=("responses", "gemini"),
        tools=(LOOK,),
        turns=(Turn(thinking="I have to look.", calls=(call("look", key="a", id="call_1"),)), "Seen."),
        right=(ran("look", 1), answered("Seen.")),
    ),
    Scenario(
        id="histories/next-prompt",
        failure="The person asks again, and another process answers.",
        promise="The model reads what was said before.",
        source=f"{SEED_LOOPS}: the history is the state",
        severity="wrong",
        needs=_SESSIONS,
        turns=("Good morning to you.", "You said good morning."),
        acts=(start("Say good morning."), start("What did you say?")),
        right=(_remembers("Say good morning.", "Good morning to you.", "What did you say?"), answered("You said")),
    ),
    Scenario(
        id="histories/next-prompt-after-calls",
        failure="The person asks again after a run with calls, and another process answers.",
        promise="The history is valid: every call that it has is with its one result.",
        source=f"{SEED_LOOPS}: the history is the state",
        severity="wrong",
        needs=_SESSIONS,
        tools=(LOOK,),
        turns=(
            Turn(calls=(call("look", key="a", id="call_1"), call("look", key="b", id="call_2"))),
            "It is b.",
            "It was a.",
        ),
        acts=(start(_FIRST), start(_SECOND)),
        right=(ran("look", 2), every_call_answered, _remembers(_FIRST, "It is b.", _SECOND), answered("It was a.")),
    ),
    Scenario(
        id="histories/after-cancel",
        failure="The person presses Ctrl-C while a tool runs, and then asks something else.",
        promise="The history is valid: the call that was cut off has a result, or is not in it.",
        source=_ORPHANS,
        severity="wrong",
        needs=_SESSIONS | {"cancel"},
        tools=(tool("wait", "key", effect="write", interrupts=True), LOOK),
        turns=(Turn(calls=(call("look", key="a", id="call_1"), call("wait", key="b", id="call_2"))), "I stopped."),
        acts=(start(_FIRST), start("Leave that.")),
        right=(ran("wait", 1), every_call_answered, _remembers("Leave that."), answered("I stopped.")),
    ),
    Scenario(
        id="histories/after-kill",
        failure="The process is killed while a tool runs, and the person asks something else.",
        promise="The history is valid: the call that was cut off has a result, or is not in it. It is not run again unasked.",
        source="github.com/earendil-works/pi/issues/4189: a crash leaves a call without a result, and every later request fails",
        severity="wrong",
        needs=_SESSIONS,
        tools=(tool("send", "to", effect="write", kills="after"),),
        turns=(call("send", to="a", id="call_1"), "I left it."),
        acts=(start(_FIRST), start("Leave that.")),
        right=(ran("send", 1), every_call_answered, _remembers("Leave that."), answered("I left it.")),
    ),
    Scenario(
        id="histories/after-limit",
        failure="A run ends at its limit, and the person asks something else.",
        promise="The history is valid.",
        source="seed 002, Tool Loop Limit Reached: the conversation continues after the limit",
        severity="wrong",
        needs=_SESSIONS | {"max_steps"},
        options={"max_steps": 1},
        tools=(LOOK,),
        turns=(call("look", key="a", id="call_1"), "I had to stop.", "I left it."),
        acts=(start(_FIRST), start("Leave that.")),
        right=(ran("look", 0, 1), every_call_answered, _remembers("Leave that.")),
    ),
    Scenario(
        id="histories/after-error",
        failure="The provider fails after a payment, and the person asks again.",
        promise="The history is valid and has the payment's result. It is not paid again.",
        source=_ORPHANS,
        severity="harm",
        needs=_SESSIONS,
        tools=(PAY,),
        turns=(pay(7), Turn(status=400), "It was paid."),
        acts=(start("Pay invoice 7."), start("Was it paid?")),
        right=(ran("pay", 1), every_call_answered, answered("It was paid.")),
    ),
    Scenario(
        id="histories/other-vendor",
        failure="The conversation, with calls, continues at another vendor.",
        promise="The other vendor takes the history.",
        source="seed 004, The agentic loop: the history is independent of the provider",
        severity="wrong",
        needs=_SESSIONS | {"handover"},
        tools=(LOOK,),
        turns=(
            Turn(text="I look.", calls=(call("look", key="a", id="call_1"), call("look", key="b", id="call_2"))),
            "It is b.",
            "It was a.",
        ),
        acts=(start(_FIRST), start(_SECOND, is_elsewhere=True)),
        right=(every_call_answered, _remembers(_FIRST, _SECOND), answered("It was a.")),
    ),
    Scenario(
        id="histories/reasoning-elsewhere",
        failure="The conversation has one vendor's sealed reasoning, and continues at another vendor.",
        promise="The other vendor takes the history: it has no seal of the first.",
        source="Anthropic and OpenAI refuse reasoning that they did not seal themselves",
        severity="wrong",
        needs=_SESSIONS | {"handover"},
        tools=(LOOK,),
        turns=(Turn(thinking="I have to look.", calls=(call("look", key="a", id="call_1"),)), "It is a.", "It was a."),
        acts=(start(_FIRST), start(_SECOND, is_elsewhere=True)),
        right=(every_call_answered, answered("It was a.")),
    ),
)
