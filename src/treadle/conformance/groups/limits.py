"""Limits: loops without an end, the last answer, and what was used."""

from treadle.conformance.checks import (
    answered,
    any_of,
    at_most_requests,
    never_ran,
    not_completed,
    ran,
    requests,
    sent,
)
from treadle.conformance.evidence import Evidence
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, SEED_PRACTICE, pay
from treadle.conformance.scenario import Check, Scenario
from treadle.messages import Usage
from treadle.testing import ScriptedCall, Turn, call

__all__ = ["SCENARIOS"]

_STEPS = frozenset({"max_steps"})
_USAGE = frozenset({"usage"})
_LIMIT = f"{SEED_LOOPS}: every loop has a cap on its steps; seed 002, Tool Loop Limit Reached"
_COUNTED = f"{SEED_PRACTICE}: budgets of tokens and of cost, from the vendor's usage"
_DIFFERENT = tuple(call("look", key=str(number), id=f"call_{number}") for number in range(40))


def _used(input_tokens: int, output_tokens: int) -> Check:
    def holds(evidence: Evidence) -> bool:
        used = evidence.last.outcome.get("usage") or {}
        return (used.get("input_tokens"), used.get("output_tokens")) == (input_tokens, output_tokens)

    return sent(f"it says that {input_tokens} tokens went in and {output_tokens} came out", holds)


SCENARIOS = (
    Scenario(
        id="limits/endless",
        failure="The model calls tools for ever, each time with other arguments.",
        promise="The run ends at its limit, at most with one more request for a last answer, and does not claim success.",
        source=_LIMIT,
        severity="waste",
        needs=_STEPS,
        options={"max_steps": 3},
        tools=(LOOK,),
        turns=_DIFFERENT,
        right=(at_most_requests(4), ran("look", 2, 3), not_completed),
    ),
    Scenario(
        id="limits/same-call",
        failure="The model makes the same call for ever.",
        promise="The run ends at its limit or before, and does not claim success.",
        source=f"{SEED_LOOPS}: the stuck loop",
        severity="waste",
        needs=_STEPS,
        options={"max_steps": 8},
        tools=(LOOK,),
        turns=(call("look", key="a"),),
        right=(at_most_requests(9), ran("look", 1, 8), not_completed),
    ),
    Scenario(
        id="limits/unknown-for-ever",
        failure="The model calls a tool that does not exist, for ever.",
        promise="The run ends at its limit or before, and does not claim success.",
        source=f"{SEED_LOOPS}: invalid calls are counted",
        severity="waste",
        needs=_STEPS,
        options={"max_steps": 8},
        tools=(LOOK,),
        turns=(call("peek", key="a"),),
        right=(at_most_requests(9), never_ran(), not_completed),
    ),
    Scenario(
        id="limits/invalid-for-ever",
        failure="The model breaks the schema for ever.",
        promise="The run ends at its limit or before, and does not claim success.",
        source=f"{SEED_LOOPS}: at most two or three corrections",
        severity="waste",
        needs=_STEPS,
        options={"max_steps": 8},
        tools=(PAY,),
        turns=(ScriptedCall(name="pay", arguments='{"invoice": "many"}'),),
        right=(at_most_requests(9), never_ran(), not_completed),
    ),
    Scenario(
        id="limits/just-enough",
        failure="The task needs exactly as many steps as there may be.",
        promise="It is done.",
        source=_LIMIT,
        severity="wrong",
        needs=_STEPS,
        options={"max_steps": 3},
        tools=(LOOK,),
        turns=(call("look", key="a", id="call_1"), call("look", key="b", id="call_2"), "Seen."),
        right=(ran("look", 2), requests(3), answered("Seen.")),
    ),
    Scenario(
        id="limits/last-answer",
        failure="At the limit the model is asked for a last answer, if the loop does that, and gives one.",
        promise="The answer is printed, with what it says of the state; or the run ends without one. Every call has its result.",
        source="seed 002, Tool Loop Limit Reached: the last request has the limit in its result, and tool_choice none",
        severity="wrong",
        needs=_STEPS,
        options={"max_steps": 2},
        tools=(LOOK,),
        turns=(
            call("look", key="a", id="call_1"),
            call("look", key="b", id="call_2"),
            "I was stopped after two of five.",
        ),
        right=(ran("look", 1, 2), at_most_requests(3), any_of(not_completed, answered("I was stopped"))),
    ),
    Scenario(
        id="limits/call-in-last-answer",
        failure="The model answers the request for a last answer with a payment.",
        promise="It does not run.",
        source="seed 002, Tool Loop Limit Reached; seed 001: the choice of tools is enforced by the runtime",
        severity="harm",
        needs=_STEPS,
        options={"max_steps": 2},
        tools=(LOOK, PAY),
        turns=(
            call("look", key="a", id="call_1"),
            call("look", key="b", id="call_2"),
            pay(7, "call_3"),
            pay(7, "call_4"),
        ),
        right=(ran("pay", 0), at_most_requests(3), not_completed),
    ),
    Scenario(
        id="limits/usage",
        failure="A run has three responses, each with its usage.",
        promise="The run says what all of them used together.",
        source=_COUNTED,
        severity="wrong",
        needs=_USAGE,
        tools=(LOOK,),
        turns=(
            Turn(calls=(call("look", key="a", id="call_1"),), usage=Usage(input_tokens=100, output_tokens=10)),
            Turn(calls=(call("look", key="b", id="call_2"),), usage=Usage(input_tokens=200, output_tokens=20)),
            Turn(text="Seen.", usage=Usage(input_tokens=400, output_tokens=40)),
        ),
        right=(_used(700, 70), answered("Seen.")),
    ),
    Scenario(
        id="limits/cached-usage",
        failure="A part of the input was read from the vendor's cache.",
        promise="It is counted once, as input.",
        source="OpenAI: cached_tokens are a part of prompt_tokens; Anthropic: input_tokens are without cache_read_input_tokens",
        severity="wrong",
        needs=_USAGE,
        turns=(Turn(text="Seen.", usage=Usage(input_tokens=1_000, cached_input_tokens=800, output_tokens=5)),),
        right=(_used(1_000, 5), answered("Seen.")),
    ),
    Scenario(
        id="limits/reasoning-usage",
        failure="A part of the output was reasoning that nobody sees.",
        promise="It is counted once, as output.",
        source="OpenAI: reasoning_tokens are a part of completion_tokens; Gemini: thoughtsTokenCount is not in candidatesTokenCount",
        severity="wrong",
        needs=_USAGE,
        turns=(Turn(text="Seen.", usage=Usage(input_tokens=100, output_tokens=300, reasoning_tokens=250)),),
        right=(_used(100, 300), answered("Seen.")),
    ),
    Scenario(
        id="limits/no-usage",
        failure="The server sends no usage.",
        promise="The run continues.",
        source="Compatible servers omit usage",
        severity="wrong",
        tools=(LOOK,),
        turns=(Turn(calls=(call("look", key="a", id="call_1"),), usage=None), Turn(text="Seen.", usage=None)),
        right=(ran("look", 1), answered("Seen.")),
    ),
)
