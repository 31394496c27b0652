"""Streams: responses that break off, stall, contradict themselves, or say nothing."""

from typing import Any

from treadle.conformance.checks import answered, any_of, at_most_requests, not_completed, ran, ran_with, requests
from treadle.conformance.groups.common import PAY, STREAMED, TEXTS, pay
from treadle.conformance.scenario import DIALECTS, Check, DialectName, Scenario
from treadle.testing import ScriptedCall, Turn

__all__ = ["SCENARIOS"]

_CUT = "github.com/strands-agents/harness-sdk/issues/4334: a stream that ends early is taken for a whole answer"
_WHOLE = "The balance is 1200 euros."
_HONEST = (any_of(answered(_WHOLE), not_completed),)
_ASKED_AGAIN = "The request is made again, or the run ends without a success. Half an answer is never the answer."


def _breaks(
    name: str,
    failure: str,
    *,
    dialects: tuple[DialectName, ...] = DIALECTS,
    needs: frozenset[str] = STREAMED,
    options: Any = None,
    **fault: Any,
) -> Scenario:
    """An answer that does not arrive, then a whole one."""
    return Scenario(
        id=f"streams/{name}",
        failure=failure,
        promise=_ASKED_AGAIN,
        source=_CUT,
        severity="wrong",
        needs=needs,
        dialects=dialects,
        options=options or {},
        turns=(Turn(text="The balance is 12", **fault), _WHOLE),
        right=_HONEST,
    )


def _paid_once(
    name: str,
    failure: str,
    broken: Turn,
    *,
    dialects: tuple[DialectName, ...] = DIALECTS,
    source: str = _CUT,
    right: tuple[Check, ...] = (),
) -> Scenario:
    """A call whose response does not end, then the same call in a whole response."""
    return Scenario(
        id=f"streams/{name}",
        failure=failure,
        promise="Nothing runs of a response that is not whole, or it runs once and not again when the response is repeated.",
        source=source,
        severity="harm",
        needs=STREAMED,
        dialects=dialects,
        tools=(PAY,),
        turns=(broken, pay(7, "call_1"), "Paid."),
        right=(ran("pay", 0, 1), any_of(answered("Paid."), not_completed), *right),
    )


def _wrong_finish(name: str, failure: str, finish: str, dialects: tuple[DialectName, ...] = DIALECTS) -> Scenario:
    return Scenario(
        id=f"streams/{name}",
        failure=failure,
        promise="The call runs: that there are calls decides, and not what the response says of its end.",
        source="seed 003, The Tool Use Loop: stop_reason is not reliable, so the loop looks for blocks of calls",
        severity="wrong",
        dialects=dialects,
        tools=(PAY,),
        turns=(Turn(calls=(pay(7),), finish=finish), "Paid."),
        right=(ran_with("pay", {"invoice": 7}), answered("Paid.")),
    )


SCENARIOS = (
    _breaks(
        "ends-early",
        "The connection ends in good order in the middle of a text, without the event that ends it.",
        cut="before-terminal",
    ),
    _breaks("reset", "The connection is reset in the middle of a text.", cut="reset"),
    _breaks("broken-body", "The connection breaks off in the middle of a text.", cut="mid-text"),
    _breaks("error-event", "After a part of the text an event says that the server is overloaded.", error="Overloaded"),
    _breaks(
        "silence",
        "The stream stalls in the middle of a text.",
        cut="mid-text",
        cut_by="stall",
        needs=STREAMED | {"model_timeout"},
        options={"model_timeout": 0.4},
    ),
    _breaks(
        "no-answer",
        "The server accepts the request and says nothing.",
        cut="before-answer",
        cut_by="stall",
        needs=frozenset({"model_timeout"}),
        options={"model_timeout": 0.4},
    ),
    _breaks("hang-up", "The server closes the connection without an answer.", cut="before-answer", needs=frozenset()),
    _paid_once(
        "cut-arguments",
        "The connection ends in the middle of a call's arguments.",
        Turn(calls=(pay(7, note="the first of three"),), cut="mid-arguments", pieces=6),
        dialects=TEXTS,
    ),
    _paid_once(
        "cut-after-call",
        "The connection is reset after a whole call, before the response has ended.",
        Turn(calls=(pay(7),), cut="before-terminal", cut_by="reset"),
    ),
    _paid_once(
        "error-after-call", "An error follows a whole call in the stream.", Turn(calls=(pay(7),), error="Overloaded")
    ),
    Scenario(
        id="streams/output-limit",
        failure="The vendor's limit of output cuts a call off, and the response says so.",
        promise="The call does not run: what is missing of its arguments is unknown.",
        source="Anthropic, Handling stop reasons: with max_tokens a tool use may be incomplete",
        severity="harm",
        dialects=TEXTS,
        tools=(PAY,),
        turns=(
            Turn(calls=(ScriptedCall(name="pay", arguments='{"invoice": 7', id="call_1"),), finish="length"),
            "I stop here.",
        ),
        right=(ran("pay", 0),),
    ),
    _wrong_finish("finish-stop", "A response with a call says that it ended as an answer does.", "stop"),
    _wrong_finish(
        "finish-unknown",
        "A response with a call ends for a reason that nobody knows.",
        "something_new",
        ("chat", "anthropic"),
    ),
    Scenario(
        id="streams/finish-calls",
        failure="A response with a text alone says that it ended because of calls.",
        promise="It is the answer, and nobody is asked again.",
        source="seed 003, The Tool Use Loop: look for blocks of calls",
        severity="wrong",
        dialects=("chat", "anthropic"),
        tools=(PAY,),
        turns=(Turn(text="Nothing to pay.", finish="tool_calls"),),
        right=(requests(1), answered("Nothing to pay.")),
    ),
    Scenario(
        id="streams/empty",
        failure="The response has neither a text nor a call.",
        promise="The model is asked again, or the run ends without a success. Nothing is not an answer.",
        source="seed 004, The agentic loop: no_final_answer_or_tool_call",
        severity="wrong",
        turns=(Turn(text=""), "The answer."),
        right=(any_of(answered("The answer."), not_completed), at_most_requests(10)),
    ),
    Scenario(
        id="streams/filtered",
        failure="The vendor's filter stops the answer in the middle.",
        promise="The run does not claim that the task is done.",
        source="OpenAI: finish_reason content_filter; Anthropic: stop_reason refusal; Gemini: finishReason SAFETY",
        severity="wrong",
        turns=(Turn(text="The balance is", finish="content_filter"),),
        right=(not_completed,),
    ),
    Scenario(
        id="streams/cut-answer",
        failure="The vendor's limit of output cuts the answer off, and the response says so.",
        promise="The model is asked to continue, or the run ends without a success.",
        source="OpenAI: finish_reason length; Anthropic: stop_reason max_tokens",
        severity="wrong",
        turns=(Turn(text="The balance is 12", finish="length"), Turn(text="00 euros.")),
        right=(any_of(answered("00 euros."), not_completed),),
    ),
    Scenario(
        id="streams/comments",
        failure="Comment lines keep the connection alive, and lines end as in Windows.",
        promise="They are no part of the answer.",
        source="HTML, Server-sent events: lines that begin with a colon are ignored; lines end with LF, CR LF or CR",
        severity="wrong",
        needs=STREAMED,
        turns=(Turn(text=_WHOLE, prefix=b": keep-alive\r\n\r\n: keep-alive\r\n\r\n", newline="\r\n"),),
        right=(requests(1), answered(_WHOLE)),
    ),
    Scenario(
        id="streams/no-done",
        failure="The stream ends after its finish reason, without [DONE].",
        promise="The response is whole; it is not asked for again.",
        source="Compatible servers omit [DONE]",
        severity="waste",
        needs=STREAMED,
        dialects=("chat",),
        tools=(PAY,),
        turns=(Turn(calls=(pay(7),), cut="before-done"), "Paid."),
        right=(ran_with("pay", {"invoice": 7}), requests(2), answered("Paid.")),
    ),
)
