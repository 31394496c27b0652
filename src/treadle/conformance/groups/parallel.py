"""Parallel: several calls in one response, each with its own result."""

from treadle.conformance.checks import (
    answered,
    every_call_answered,
    overlapped,
    ran,
    ran_with,
    result_says,
    sent,
    told_failure,
)
from treadle.conformance.evidence import Evidence
from treadle.conformance.groups.common import LOOK, PAY, SEED_LOOPS, pay
from treadle.conformance.scenario import Check, Scenario, tool
from treadle.testing import Turn, call

__all__ = ["SCENARIOS"]

_BATCH = f"{SEED_LOOPS}: all results of a response go back together, in the order of its calls"
_ISOLATED = f"{SEED_LOOPS}: five biographies and one stack trace"
_KEYS = tuple("abcdefgh")
_LOOKS = tuple(call("look", key=key, id=f"call_{key}") for key in _KEYS)
_BROKEN = tool("fetch", "key", effect="write", fails=9, error="cannot connect: no route to host")


def _all_results(*ids: str) -> Check:
    """The request after the response has exactly one result for each call, in the order of the calls."""

    def holds(evidence: Evidence) -> bool:
        items = [item for request in evidence.requests[1:2] for item in request.items]
        found = [item.id for item in items if item.kind == "result"]
        called = [item.id for item in items if item.kind == "call"]
        return found == list(ids) or (len(found) == len(ids) and found == called)

    return sent(f"the second request has the {len(ids)} results, in the order of the calls", holds)


def _own_results(evidence: Evidence) -> bool:
    return all(f"key={key}" in item.text for key in _KEYS for item in evidence.results(f"call_{key}"))


SCENARIOS = (
    Scenario(
        id="parallel/three",
        failure="One response has three calls of two tools.",
        promise="Each runs once, and all results go back together, in the order of the calls.",
        source=_BATCH,
        severity="wrong",
        tools=(LOOK, PAY),
        turns=(
            Turn(calls=(call("look", key="a", id="call_1"), pay(7, "call_2"), call("look", key="b", id="call_3"))),
            "Done.",
        ),
        right=(
            ran_with("look", {"key": "a"}, {"key": "b"}),
            ran_with("pay", {"invoice": 7}),
            _all_results("call_1", "call_2", "call_3"),
            answered("Done."),
        ),
    ),
    Scenario(
        id="parallel/own-result",
        failure="One response calls the same tool eight times.",
        promise="Each call gets the result of its own arguments.",
        source=_BATCH,
        severity="wrong",
        tools=(LOOK,),
        turns=(Turn(calls=_LOOKS), "Done."),
        right=(
            ran_with("look", *({"key": key} for key in _KEYS)),
            sent("each call has the result of its own arguments", _own_results),
            answered("Done."),
        ),
    ),
    Scenario(
        id="parallel/equal-calls",
        failure="One response has the same call twice, with two ids.",
        promise="Both have one result. Both run, or the second is told that it is the same.",
        source=_BATCH,
        severity="wrong",
        tools=(LOOK,),
        turns=(Turn(calls=(call("look", key="a", id="call_1"), call("look", key="a", id="call_2"))), "Done."),
        right=(ran("look", 1, 2), result_says("call_1"), result_says("call_2"), answered("Done.")),
    ),
    Scenario(
        id="parallel/fifty",
        failure="One response has fifty calls.",
        promise="Each has one result.",
        source=_BATCH,
        severity="wrong",
        tools=(LOOK,),
        turns=(Turn(calls=tuple(call("look", key=str(number), id=f"call_{number}") for number in range(50))), "Done."),
        right=(ran("look", 50), _all_results(*(f"call_{number}" for number in range(50))), answered("Done.")),
    ),
    Scenario(
        id="parallel/one-fails",
        failure="One of three calls fails.",
        promise="The other two keep their results.",
        source=_ISOLATED,
        severity="wrong",
        tools=(LOOK, _BROKEN),
        turns=(
            Turn(
                calls=(
                    call("look", key="a", id="call_1"),
                    call("fetch", key="x", id="call_2"),
                    call("look", key="b", id="call_3"),
                )
            ),
            "Done.",
        ),
        right=(
            result_says("call_1", "key=a"),
            told_failure("call_2"),
            result_says("call_3", "key=b"),
            answered("Done."),
        ),
    ),
    Scenario(
        id="parallel/one-invalid",
        failure="One of two calls has arguments that break its schema.",
        promise="The other runs; each has its own result.",
        source=_ISOLATED,
        severity="wrong",
        tools=(LOOK, PAY),
        turns=(Turn(calls=(pay("seven", "call_1"), call("look", key="b", id="call_2"))), "Done."),
        right=(ran("pay", 0), told_failure("call_1"), result_says("call_2", "key=b"), answered("Done.")),
    ),
    Scenario(
        id="parallel/steps",
        failure="Calls in several responses, each with the result of the one before in its history.",
        promise="Every request has every call with its one result.",
        source=f"{SEED_LOOPS}: the results of a step are in the history of the next",
        severity="wrong",
        tools=(LOOK,),
        turns=(
            Turn(calls=(call("look", key="a", id="call_a"), call("look", key="b", id="call_b"))),
            call("look", key="c", id="call_c"),
            Turn(calls=(call("look", key="d", id="call_d"), call("look", key="e", id="call_e"))),
            "Done.",
        ),
        right=(
            ran_with("look", *({"key": key} for key in "abcde")),
            every_call_answered,
            sent(
                "the last request has five calls",
                lambda evidence: (
                    sum(item.kind == "call" for item in evidence.requests[-1].items) >= 5
                    or evidence.dialect == "responses"
                ),
            ),
            answered("Done."),
        ),
    ),
    Scenario(
        id="parallel/writes-apart",
        failure="One response has two calls that change the world.",
        promise="The second begins when the first has ended.",
        source=f"{SEED_LOOPS}: run in parallel what only reads; seed 003: calls that are not safe run alone",
        severity="harm",
        needs=frozenset({"effects"}),
        tools=(tool("send", "to", effect="write", lingers=0.1), tool("remove", "path", effect="write", lingers=0.1)),
        turns=(Turn(calls=(call("send", to="a", id="call_1"), call("remove", path="b", id="call_2"))), "Done."),
        right=(ran("send", 1), ran("remove", 1), overlapped("send", "remove", wanted=False), answered("Done.")),
    ),
    Scenario(
        id="parallel/read-after-write",
        failure="One response changes something and then reads it.",
        promise="The read begins when the change has ended.",
        source="seed 003, The Tool Use Loop: consecutive safe calls run together, others alone, in order",
        severity="wrong",
        needs=frozenset({"effects"}),
        tools=(tool("send", "to", effect="write", lingers=0.1), LOOK),
        turns=(Turn(calls=(call("send", to="a", id="call_1"), call("look", key="b", id="call_2"))), "Done."),
        right=(overlapped("send", "look", wanted=False), answered("Done.")),
    ),
)
