"""Timeouts: tools that do not return, and what may be run again, by what they do to the world."""

import re

from treadle.conformance.checks import answered, any_of, not_completed, ran, result_says, told_failure
from treadle.conformance.groups.common import SEED_LOOPS, SEED_PRACTICE
from treadle.conformance.scenario import Scenario, tool
from treadle.testing import Turn, call

__all__ = ["SCENARIOS"]

_LIMIT = frozenset({"tool_timeout"})
_SOON = {"tool_timeout": 0.3}
_FAILURE_5 = f"{SEED_LOOPS}, failure 5: the call times out, and whether it acted is unknown"
_UNKNOWN = re.compile(r"unknown|may have|might have|tim(e|ed)[ -]?out|took too long|no answer", re.IGNORECASE)
_FAILED = any_of(told_failure("call_1"), not_completed)

SCENARIOS = (
    Scenario(
        id="timeouts/write",
        failure="A payment does not return.",
        promise="It is cut off, it is not run again, and the run continues with a result.",
        source=_FAILURE_5,
        severity="harm",
        needs=_LIMIT,
        options=_SOON,
        tools=(tool("pay", "invoice", effect="write", hangs=9),),
        turns=(call("pay", invoice="7", id="call_1"), "I do not know."),
        right=(ran("pay", 1), told_failure("call_1"), answered("I do not know.")),
    ),
    Scenario(
        id="timeouts/unknown-outcome",
        failure="A payment does not return.",
        promise="The model reads that the time is up, or that the outcome is unknown, and not only that it failed.",
        source=_FAILURE_5,
        severity="wrong",
        needs=_LIMIT,
        options=_SOON,
        tools=(tool("pay", "invoice", effect="write", hangs=9),),
        turns=(call("pay", invoice="7", id="call_1"), "I do not know."),
        right=(result_says("call_1", lambda item: _UNKNOWN.search(item.text) is not None),),
    ),
    Scenario(
        id="timeouts/read",
        failure="A read does not return the first time.",
        promise="It may be run again, and gets one result: its value, or that the time is up.",
        source=f"{SEED_LOOPS}: reads may be repeated",
        severity="wrong",
        needs=_LIMIT,
        options=_SOON,
        tools=(tool("look", "key", hangs=1),),
        turns=(call("look", key="a", id="call_1"), "Seen."),
        right=(ran("look", 1, 4), result_says("call_1"), answered("Seen.")),
    ),
    Scenario(
        id="timeouts/sibling",
        failure="One of two calls does not return.",
        promise="The other keeps its result.",
        source=f"{SEED_LOOPS}: a time limit for each tool, and one for the batch",
        severity="wrong",
        needs=_LIMIT,
        options=_SOON,
        tools=(tool("look", "key", returns="found"), tool("fetch", "key", effect="write", hangs=9)),
        turns=(Turn(calls=(call("look", key="a", id="call_1"), call("fetch", key="b", id="call_2"))), "Seen."),
        right=(result_says("call_1", "found"), told_failure("call_2"), ran("fetch", 1), answered("Seen.")),
    ),
    Scenario(
        id="timeouts/lost-connection",
        failure="A payment raises that its connection was reset, as an HTTP client does after it has sent the request.",
        promise="It is not run again by the loop. The model reads that it failed, or the run ends without a success.",
        source=f"{SEED_PRACTICE}: never retry payments automatically",
        severity="harm",
        tools=(
            tool(
                "pay",
                "invoice",
                effect="write",
                fails=1,
                raises="ConnectionResetError",
                error="cannot read: connection reset by peer",
            ),
        ),
        turns=(call("pay", invoice="7", id="call_1"), "I do not know."),
        right=(ran("pay", 1), _FAILED),
    ),
    Scenario(
        id="timeouts/own-timeout",
        failure="A payment raises a TimeoutError of its own.",
        promise="It is not run again by the loop. The model reads that it failed, or the run ends without a success.",
        source=_FAILURE_5,
        severity="harm",
        tools=(
            tool("pay", "invoice", effect="write", fails=1, raises="TimeoutError", error="the bank did not answer"),
        ),
        turns=(call("pay", invoice="7", id="call_1"), "I do not know."),
        right=(ran("pay", 1), _FAILED),
    ),
    Scenario(
        id="timeouts/failing-read",
        failure="A read fails once, and would work the second time.",
        promise="It gets one result: its value after it was run again, or its failure.",
        source=f"{SEED_LOOPS}: retry within the batch what only reads",
        severity="waste",
        tools=(
            tool("look", "key", fails=1, raises="ConnectionResetError", error="cannot read: connection reset by peer"),
        ),
        turns=(call("look", key="a", id="call_1"), "Seen."),
        right=(ran("look", 1, 4), result_says("call_1"), answered("Seen.")),
    ),
)
