"""The guards by their values: what repeats, what is trouble and what brings nothing new, response by response."""

from typing import Any

import pytest

from treadle.budgets import Guards
from treadle.engine.rules.tries import NOT_STARTED, Progress, Tries
from treadle.events import CallDecided, ToolStarted
from treadle.messages import ToolCall
from treadle.state import CallState
from treadle.stops import StopReason
from treadle.tools import CallStatus, ToolResult


def ended(
    name: str = "look",
    arguments: str = '{"n":1}',
    content: str = "x",
    status: CallStatus = CallStatus.OK,
    code: str | None = None,
    **more: Any,
) -> CallState:
    call = ToolCall(id="c", name=name, arguments=arguments)
    result = ToolResult(call_id="c", name=name, status=status, content=content, code=code, **more)
    return CallState(call=call, position=0, result=result)


def key(state: CallState) -> str:
    return f"{state.call.name} {state.call.arguments}"


A, B, C = (ended(arguments=f'{{"n":{number}}}') for number in range(3))


def after(*responses: list[CallState], guards: Guards | None = None, polling: Any = ()) -> Tries:
    tries = Tries(guards or Guards(repeats=3, repeats_with_progress=5), polling=polling)
    for response in responses:
        tries.add(response)
    return tries


# --- repetitions
@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ([], [A], None),
        ([[A]], [B], None),
        ([[A]], [A], (2, 1, True, False)),
        ([[A], [A]], [A], (3, 1, True, True)),
        ([[A], [B]], [A], None),
        ([[A], [A], [B]], [A], None),
        ([[A, B]], [B, A], (2, 1, True, False)),
        ([[A, B]], [A], None),
        ([[A], [B], [A], [B], [A]], [B], (3, 2, True, True)),
        ([[A], [B], [A], [B]], [A], None),
        ([[A], [B], [C], [A], [B], [C], [A], [B]], [C], (3, 3, True, True)),
        ([[A], [ended(arguments='{"n":0}', content="y")]], [A], (3, 1, False, False)),
        ([[A], *[[ended(arguments='{"n":0}', content="y")]] * 2], [A], (3, 1, True, True)),
        ([[ended(content=str(number))] for number in range(4)], [ended()], (5, 1, False, True)),
        ([[ended(content=str(number))] for number in range(3)], [ended()], (4, 1, False, False)),
    ],
)
def test_a_response_is_compared_with_those_before_it(before, now, found):
    repetition = after(*before).repetition([key(one) for one in now])

    told = None
    if repetition is not None:
        told = (repetition.count, repetition.period, repetition.has_equal_results, repetition.is_over)
    assert told == found


@pytest.mark.parametrize(
    ("results", "are_equal"),
    [
        ((ended(content='{"a":1,"b":2}'), ended(content='{"b":2,"a":1}')), True),
        ((ended(content='{"a":1}'), ended(content='{"a":2}')), False),
        ((ended(content="1 s", status=CallStatus.TIMEOUT), ended(content="2 s", status=CallStatus.TIMEOUT)), True),
        ((ended(content="1 s", status=CallStatus.FAILED), ended(content="2 s", status=CallStatus.FAILED)), False),
        ((ended(), ended(status=CallStatus.FAILED)), False),
        ((ended(), ended(artifact="d")), False),
    ],
    ids=range(6),
)
def test_results_are_equal_by_what_they_mean(results, are_equal):
    repetition = after(*([one] for one in results)).repetition([key(results[0])])

    assert repetition is not None
    assert repetition.has_equal_results is are_equal


def test_a_call_of_a_polling_tool_repeats_nothing_and_what_comes_after_it_neither():
    poll = ended("poll")
    tries = after([poll], [poll], [poll], polling=["poll"])

    assert tries.key(poll.call, "") == ""
    assert tries.key(A.call, "d") == "d"
    assert tries.repetition([""]) is None
    assert after([A], [A], [poll], polling=["poll"]).repetition([key(A)]) is None


@pytest.mark.parametrize(
    ("limit", "before", "is_over"),
    [(None, [[A]] * 9, False), (1, [], True), (2, [[A]], True), (3, [[A]], False), (3, [[A], [A]], True), (3, [[B], [B]], False)],
)  # fmt: skip
def test_a_call_may_be_the_one_that_ends_the_run(limit, before, is_over):
    tries = after(*before, guards=Guards(repeats=limit, repeats_with_progress=None))

    assert tries.may_be_over(key(A)) is is_over
    assert tries.may_be_over("") is False
    assert tries.most_in_response == limit


# --- trouble
JSON, UNFIT = (ended(status=one) for one in (CallStatus.INVALID_JSON, CallStatus.INVALID_ARGUMENTS))

DENIED, FAILED = (ended(status=one) for one in (CallStatus.DENIED, CallStatus.FAILED))

UNKNOWN = ended(status=CallStatus.UNKNOWN_TOOL)

SKIPPED = ended(status=CallStatus.SKIPPED, code="other")

UNTRIED = ended(status=CallStatus.SKIPPED, code=NOT_STARTED)

LIMITS = Guards(failures=2, invalid_json=2, invalid_arguments=2, denials=2)


@pytest.mark.parametrize(
    ("responses", "guard"),
    [
        ([[JSON]], None),
        ([[JSON], [JSON]], "invalid_json"),
        ([[UNFIT], [UNFIT]], "invalid_arguments"),
        ([[DENIED], [DENIED]], "denials"),
        ([[FAILED], [FAILED]], "failures"),
        ([[JSON], [UNFIT], [JSON]], "invalid_json"),
        ([[JSON], [FAILED], [JSON]], None),
        ([[DENIED], [FAILED], [DENIED]], "denials"),
        *(([[one], [other], [one]], None) for one in (JSON, UNFIT) for other in (DENIED, UNKNOWN)),
        *(([[FAILED], [other], [FAILED]], "failures") for other in (DENIED, JSON, UNFIT)),
        ([[FAILED], [A], [FAILED]], None),
        ([[FAILED], [FAILED, A]], None),
        ([[FAILED], [UNTRIED], [FAILED]], "failures"),
        ([[FAILED], [SKIPPED], [FAILED]], "failures"),
        ([[FAILED, JSON], [FAILED, UNFIT]], "failures"),
    ],
)
def test_responses_that_only_went_wrong_count_in_a_row(responses, guard):
    words = {
        "invalid_json": ("not valid JSON", StopReason.INVALID_CALL_LIMIT),
        "invalid_arguments": ("do not fit the schema", StopReason.INVALID_CALL_LIMIT),
        "denials": ("denied calls", StopReason.REPEATED_FAILURES),
        "failures": ("only failed calls", StopReason.REPEATED_FAILURES),
    }
    stops = after(*responses, guards=LIMITS).stops()

    assert len(stops) == (guard is not None)
    if guard is not None:
        said, reason = words[guard]
        assert said in stops[0].message
        assert stops[0].reason is reason
        assert stops[0].details is not None
        assert (stops[0].details["count"], stops[0].details["limit"], stops[0].details["tool"]) == (2, 2, "look")


def test_a_guard_without_a_limit_stops_nothing():
    guards = Guards(failures=None, invalid_json=None, invalid_arguments=None, denials=None)

    assert after(*([one] for one in (JSON, UNFIT, DENIED, FAILED) * 9), guards=guards).stops() == ()


# --- progress
LONG = "y" * 200


def brought(*responses: CallState, limit: int | None = 5, polling: Any = ()) -> Progress:
    progress = Progress(limit, polling=polling)
    for state in responses:
        progress.add([state])
    return progress


def near(number: int, content: str = "x", **more: Any) -> CallState:
    """A call that only looks different from the others: by its blanks."""
    return ended(arguments='{"n":' + " " * number + "1}", content=content, **more)


@pytest.mark.parametrize(
    ("responses", "count"),
    [
        ([near(0), near(1), near(2)], 2),
        ([near(0), near(0), near(0)], 0),  # in one form only: another guard counts it
        ([near(0), near(1, "y"), near(2)], 0),
        ([near(0), near(1), near(2, "X ")], 2),  # only looks different
        ([near(0), near(1, status=CallStatus.FAILED), near(2, status=CallStatus.FAILED)], 1),
        ([ended(arguments=f'{{"n":{number}}}', content="e", status=CallStatus.FAILED) for number in range(4)], 3),
        ([ended(arguments=f'{{"n":{number}}}', content=LONG) for number in range(4)], 0),
        ([near(0), near(1), ended("other"), near(2)], 1),
        ([near(0), near(1, status=CallStatus.DENIED), near(2)], 1),
        ([near(0), near(1, status=CallStatus.SKIPPED, code="no_progress")], 1),
    ],
    ids=range(10),
)
def test_responses_that_bring_nothing_new_count_in_a_row(responses, count):
    for limit in range(1, 6):
        stop = brought(*responses, limit=limit).stop()

        assert (stop is not None) is (count >= limit)
        if stop is not None:
            assert (stop.reason, stop.asks_closing) == (StopReason.REPEATED_FAILURES, True)
            assert stop.details == {
                "guard": "no_progress",
                "count": count,
                "limit": limit,
                "tool": responses[-1].call.name,
            }


def test_the_model_is_reminded_before_the_end_and_then_nothing_of_the_kind_runs():
    told = [brought(*(near(number) for number in range(count)), limit=5).reminder() for count in range(1, 7)]
    at_end = brought(*(near(number) for number in range(5)), limit=5)

    assert [note is not None for note in told] == [False, False, True, False, False, False]
    assert "the last 3 responses made nearly the same calls" in (told[2] or "")
    assert at_end.is_at_its_end
    assert at_end.is_noteworthy
    assert at_end.is_stale([near(9).call])
    assert not at_end.is_stale([near(9).call, ended("other").call])
    assert not at_end.is_stale([])
    assert not brought(near(0), near(1), limit=5).is_stale([near(9).call])
    assert not brought(near(0), near(1), limit=None).is_stale([near(9).call])
    at_end.forget()
    assert (at_end.is_at_its_end, at_end.is_noteworthy, at_end.stop(), at_end.reminder()) == (False, False, None, None)
    assert not at_end.is_stale([near(9).call])


def test_the_model_is_told_once_that_whatever_it_asks_has_the_same_long_result():
    def told(count: int) -> str | None:
        return brought(*(ended(arguments=f'{{"n":{n}}}', content=LONG) for n in range(count)), limit=3).reminder()

    assert [told(count) is not None for count in range(1, 7)] == [False, False, False, True, False, False]
    assert "the last 4 responses had identical results from look" in (told(4) or "")


def test_a_polling_tool_brings_what_it_brings_and_a_limit_of_none_ends_nothing():
    many = [near(number) for number in range(9)]

    assert brought(*many, limit=2, polling=["look"]).stop() is None
    assert brought(*many, limit=None).stop() is None
    assert brought(*many, limit=None).reminder() is None
    assert Progress(1).is_at_its_end
    assert not Progress(2).is_at_its_end


@pytest.mark.parametrize(
    ("one", "other", "near_enough"),
    [
        (r'{"q":"a b"}', r'{"q":"a\nb"}', True),
        (r'{"q":"ab"}', r'{"q":"A\tB"}', True),
        (r'{"q":"a\\"}', r'{"q":"a"}', False),
        ('{"q":"' + "a" * 4090 + '"}', '{"q":"' + "A" * 4090 + '"}', False),  # too long to be compared so
        ('{"q":"' + "a" * 4088 + '"}', '{"q":"' + "A" * 4088 + '"}', True),
    ],
    ids=range(5),
)
def test_arguments_that_only_look_different_are_nearly_the_same(one, other, near_enough):
    progress = brought(ended(arguments=one), ended(arguments=other), limit=1)

    assert (progress.stop() is not None) is near_enough


def test_the_digest_of_a_call_is_of_its_decision_else_of_its_start_and_empty_without_either():
    made = ToolCall(id="c", name="act", arguments="{}")
    decided = CallDecided(call_id="c", tool="act", decision="allow", rule="", digest="decided")
    started = ToolStarted(call_id="c", tool="act", digest="started")

    found = [
        CallState(call=made, position=0, decision=decision, started=start).digest
        for decision, start in ((decided, started), (None, started), (None, None))
    ]
    assert found == ["decided", "started", ""]
