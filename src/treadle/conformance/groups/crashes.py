"""Crashes: the process is killed with SIGKILL in the middle of a run, and started again to continue."""

from treadle.conformance.checks import (
    answered,
    any_of,
    every_call_answered,
    not_completed,
    ran,
    result_says,
    sent,
)
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, pay
from treadle.conformance.scenario import Check, Scenario, resume, start, tool
from treadle.testing import Turn, call

__all__ = ["SCENARIOS"]

_RESUME = frozenset({"resume"})
_ONCE = f"{SEED_LOOPS}: a call has one key for ever; what was done is not done again"
_EITHER = any_of(answered("Done."), not_completed)


def _killed(name: str, failure: str, promise: str, *right: Check, kills: str, effect: str, severity: str) -> Scenario:
    """A tool in whose execution the process is killed, then resumed."""
    return Scenario(
        id=f"crashes/{name}",
        failure=failure,
        promise=promise,
        source="github.com/tetsuo-ai/agenc-core/pull/1326: replaying a call with an effect across a crash pays twice",
        severity="harm" if severity == "harm" else "wrong",
        needs=_RESUME,
        tools=(tool("send", "to", effect="write" if effect == "write" else "read", kills=kills),),
        turns=(call("send", to="a", id="call_1"), "Done."),
        acts=(start(), resume()),
        right=(*right, every_call_answered),
    )


SCENARIOS = (
    _killed(
        "before-effect",
        "Killed when a payment has begun, before it acts.",
        "It is not run again without anybody knowing: its outcome is unknown to the loop.",
        ran("send", 1),
        _EITHER,
        kills="before",
        effect="write",
        severity="harm",
    ),
    _killed(
        "after-effect",
        "Killed when a payment has acted, before its result is known.",
        "It is not run again.",
        ran("send", 1),
        _EITHER,
        kills="after",
        effect="write",
        severity="harm",
    ),
    _killed(
        "in-read",
        "Killed while a read runs.",
        "The run continues: the read is run again, or the model reads that it was cut off.",
        ran("send", 1, 2),
        answered("Done."),
        kills="after",
        effect="read",
        severity="wrong",
    ),
    Scenario(
        id="crashes/tells-the-model",
        failure="Killed when a payment has acted, before its result is known.",
        promise="If the run continues, the model reads one result of the call, which does not say that it was never run.",
        source=_ONCE,
        severity="wrong",
        needs=_RESUME,
        tools=(tool("send", "to", effect="write", kills="after"),),
        turns=(call("send", to="a", id="call_1"), "Done."),
        acts=(start(), resume()),
        right=(ran("send", 1), any_of(not_completed, result_says("call_1"))),
    ),
    Scenario(
        id="crashes/first-request",
        failure="Killed while the first request waits for its answer.",
        promise="The request is made again, and the run ends as if nothing had happened.",
        source=_ONCE,
        severity="wrong",
        needs=_RESUME,
        tools=(PAY,),
        turns=(pay(7), "Done."),
        acts=(start(is_killed_at=1), resume()),
        right=(ran("pay", 1), answered("Done.")),
    ),
    Scenario(
        id="crashes/next-request",
        failure="Killed while the request with a payment's result waits for its answer.",
        promise="The request is made again, with the result. The payment is not.",
        source=_ONCE,
        severity="harm",
        needs=_RESUME,
        tools=(PAY,),
        turns=(pay(7), "Done."),
        acts=(start(is_killed_at=2), resume()),
        right=(ran("pay", 1), result_says("call_1", "pay ran"), answered("Done.")),
    ),
    Scenario(
        id="crashes/siblings",
        failure="Killed in the second of two calls of a response.",
        promise="The first has its result and is not run again; the second is not run again.",
        source=_ONCE,
        severity="harm",
        needs=_RESUME,
        tools=(PAY, tool("send", "to", effect="write", kills="after")),
        turns=(Turn(calls=(pay(7, "call_1"), call("send", to="a", id="call_2"))), "Done."),
        acts=(start(), resume()),
        right=(ran("pay", 1), ran("send", 1), every_call_answered, _EITHER),
    ),
    Scenario(
        id="crashes/twice",
        failure="Killed in a payment, and again when the run continues.",
        promise="The payment is not run again.",
        source=_ONCE,
        severity="harm",
        needs=_RESUME,
        tools=(tool("send", "to", effect="write", kills="after"),),
        turns=(call("send", to="a", id="call_1"), "Done."),
        acts=(start(), resume(is_killed_at=2), resume()),
        right=(ran("send", 1), _EITHER, every_call_answered),
    ),
    Scenario(
        id="crashes/resumed-after-the-end",
        failure="A run is resumed that had ended.",
        promise="Nothing runs again.",
        source=_ONCE,
        severity="harm",
        needs=_RESUME,
        tools=(PAY,),
        turns=(pay(7), "Done.", pay(7, "call_2"), "Done."),
        acts=(start(), resume()),
        right=(ran("pay", 1), sent("the provider is not asked again", lambda evidence: len(evidence.requests) == 2)),
    ),
    Scenario(
        id="crashes/later-step",
        failure="Killed in the third step of a run.",
        promise="The steps before are not repeated: neither their requests nor their calls.",
        source=_ONCE,
        severity="harm",
        needs=_RESUME,
        tools=(PAY, LOOK),
        turns=(pay(7), call("look", key="a", id="call_2"), pay(8, "call_3"), "Done."),
        acts=(start(is_killed_at=3), resume()),
        right=(
            ran("pay", 2),
            ran("look", 1),
            sent("five requests, one of which was killed", lambda evidence: len(evidence.requests) == 5),
            answered("Done."),
        ),
    ),
)
