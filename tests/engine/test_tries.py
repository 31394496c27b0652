"""Guards count tries, and a try is a response: nobody is stopped for errors that they were not shown."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, raising, read, results, statuses, tool_of, types
from treadle import (
    Agent,
    Budget,
    ConfigurationError,
    Rejected,
    RunResult,
    StopReason,
    Tool,
    ToolOutput,
    deny,
    open_session,
    tool,
)
from treadle.budgets import Guards
from treadle.errors import ToolDefinitionError
from treadle.messages import Media
from treadle.mock.model import ScriptedModel
from treadle.testing import FakeClock, Turn, call, text

N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": True}

NOT_JSON = call("look", arguments='{"n":1,}')

UNFIT = call("look", n="many")


FAILED = call("fail", n=1)


def tools(looks: Any = None) -> list[Tool]:
    return [read(looks or Recorder(), parameters=N), read(raising(Rejected({"no": 1})), "fail")]


async def tried(*responses: Any, guards: Guards | None = None, tools: list[Tool], **words: Any) -> RunResult:
    """Run these responses, then an answer."""
    model = ScriptedModel([*responses, text("Done.")])
    result = await Agent(model, tools=tools, guards=guards or Guards(), **{"on_limit": "report", **words}).run("go")
    await check_session(result.session)
    return result


def counting(start: int = 1) -> Callable[..., Any]:
    """Return a tool function whose every result differs."""
    numbers = itertools.count(start)

    async def run(arguments: Any, ctx: Any) -> int:
        return next(numbers)

    return run


# --- errors
@pytest.mark.row("N05", "F01", "F03", "L14")
@pytest.mark.parametrize("broken", [NOT_JSON, UNFIT, FAILED], ids=["json", "arguments", "failed"])
async def test_one_response_full_of_errors_is_one_try_and_the_model_is_told_of_all(broken):
    model = ScriptedModel([[broken] * 7, text("I see.")])

    result = await Agent(model, tools=tools()).run("go")

    assert (result.reason, len(model.requests)) == ("completed", 2)
    assert [one.is_error for one in model.requests[1].messages[-1].results] == [True] * 7


@pytest.mark.row("N05", "F01", "F03", "L14")
@pytest.mark.parametrize(
    ("broken", "reason", "limit"),
    [(NOT_JSON, "invalid_call_limit", 3), (UNFIT, "invalid_call_limit", 3), (FAILED, "repeated_failures", 5)],
    ids=["json", "arguments", "failed"],
)
async def test_so_many_responses_full_of_errors_end_the_run(broken, reason, limit):
    calls = itertools.count()
    responses = [[self_made(broken, next(calls)), self_made(broken, next(calls))] for _ in range(9)]
    model = ScriptedModel(responses)

    result = await Agent(model, tools=tools(), on_limit="report").run("go")

    assert (result.reason, len(model.requests)) == (reason, limit)
    assert result.report()["details"]["count"] == limit


def self_made(like: Any, number: int) -> Any:
    """Return a call like this one with arguments of its own, so that no call repeats."""
    if like is NOT_JSON:
        return call("look", arguments=f'{{"n":{number},}}')
    return call(like.name, n=f"many {number}" if like is UNFIT else number)


@pytest.mark.row("N05")
@pytest.mark.parametrize("broken", [NOT_JSON, FAILED], ids=["json", "failed"])
async def test_a_resumed_run_begins_anew(broken):
    guards = Guards(failures=2, invalid_json=2)
    model = ScriptedModel([broken, broken, broken, text("At last.")])
    async with open_session("memory:", clock=FakeClock(auto=True)) as session:
        agent = Agent(model, tools=tools(), guards=guards)
        first = await agent.run("go", session=session)
        second = await agent.resume(session)

    assert first.reason in ("invalid_call_limit", "repeated_failures")
    assert second.text == "At last."


# --- repetition
A, B, C, D = (call("look", n=n) for n in range(4))


@pytest.mark.row("N06", "L12")
@pytest.mark.parametrize(
    ("cycle", "runs"),
    [
        ([A], 2), ([[A, B]], 4), ([[A, B], C], 8), ([A, B, C, D], 11),
    ],
)  # fmt: skip
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_cycle_of_up_to_four_responses_with_equal_results_ends_the_run_before_its_third_end(
    cycle, runs, effect
):
    recorder = Recorder()
    tool = tool_of(recorder, "look", parameters=N, effect=effect, permission="allow")

    result = await tried(*cycle * 20, tools=[tool])

    assert result.reason is StopReason.REPEATED_TOOL_CALL
    assert recorder.runs == runs
    assert set(statuses(result)[runs:]) == {"skipped"}
    details = result.report()["details"]
    assert (details["count"], details["responses"], details["results"]) == (3, len(cycle), "equal")


@pytest.mark.row("N06")
async def test_pictures_and_whole_texts_are_results_too():
    numbers = itertools.count()

    async def shoot(arguments: Any, ctx: Any) -> ToolOutput:
        return ToolOutput(data="a picture", media=(Media(media_type="image/png", base64=f"AAA{next(numbers)}"),))

    async def log(arguments: Any, ctx: Any) -> str:
        return "x" * 5000 + str(next(numbers)) + "y" * 5000

    shots = await tried(*[A] * 5, tools=[read(shoot, parameters=N)])
    logs = await tried(*[A] * 5, tools=[read(log, parameters=N, result_limit=100)])

    assert (shots.reason, logs.reason) == ("completed", "completed")


@pytest.mark.row("N06", "L12")
async def test_seven_equal_reads_in_one_response_all_run():
    result = await tried([call("look", n=6)] * 7, tools=[read(counting(), parameters=N)])

    assert result.completed
    assert statuses(result) == ["ok"] * 7


@pytest.mark.row("N06", "L12")
@pytest.mark.parametrize("effect", ["unsafe", "keyed", "idempotent"])
async def test_of_equal_calls_that_act_the_third_in_a_response_is_skipped_and_the_run_goes_on(effect):
    recorder = Recorder()
    pay = tool_of(recorder, "pay", effect=effect, permission="allow")
    batch = [call("pay", n=1), call("pay", n=2), call("pay", n=1), call("pay", n=1), call("pay", n=1), call("pay", n=3)]

    result = await tried(batch, tools=[pay])

    assert result.completed
    assert statuses(result) == ["ok", "ok", "ok", "skipped", "skipped", "ok"]
    told = [one for one in result.messages[2].results if one.is_error]
    assert all("repeated_tool_call" in one.content for one in told)
    assert recorder.runs == 4


@pytest.mark.row("N06", "P03")
async def test_a_denied_call_stays_denied_however_often_it_stands_in_a_response():
    result = await tried([call("rm", n=1)] * 4, tools=[act(Recorder(), "rm")], policy=deny("rm"))

    assert statuses(result) == ["denied"] * 4


@pytest.mark.row("N06")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_polling_tool_goes_on_to_its_limits(effect):
    recorder = Recorder()
    poll = tool_of(recorder, "poll", effect=effect, permission="allow", polling=True)

    alone = await tried(*[call("poll")] * 30, tools=[poll])
    at_once = await tried([call("poll")] * 5, tools=[poll])

    assert (alone.reason, at_once.reason) == ("completed", "completed")
    assert recorder.runs == 35


@pytest.mark.row("N06")
async def test_what_is_called_beside_or_between_polls_counts_by_itself():
    poll = read(counting(), "poll", polling=True)
    beside = await tried(*[[call("poll"), A]] * 9, tools=[poll, *tools()])
    broken = await tried(*[[call("poll"), NOT_JSON]] * 9, tools=[poll, *tools()])
    between = await tried(*[A, call("poll")] * 9, tools=[poll, *tools()])

    for repeated in (beside, broken):
        assert (repeated.reason, repeated.report()["details"]["tool"]) == ("repeated_tool_call", "look")
        assert repeated.steps == 3
    assert between.completed


@pytest.mark.row("N06", "L12")
async def test_a_repetition_is_noticed_before_it_ends_the_run():
    result = await tried(*[[A, B]] * 3, tools=tools())

    noticed = [(event.count, event.call_id) for event in await types(result, "repeat.noticed")]
    assert noticed == [(2, "call_3"), (2, "call_4"), (3, "call_5"), (3, "call_6")]


@pytest.mark.row("N06")
async def test_switched_off_nothing_is_a_repetition():
    recorder = Recorder()

    result = await tried(*[A] * 30, [act_call := call("act", n=1)] * 9, tools=[*tools(recorder), act(recorder)],
                         guards=Guards(repeats=None))  # fmt: skip

    assert (result.completed, act_call.name) == (True, "act")
    assert recorder.runs == 39


@pytest.mark.row("N06", "S07")
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_read_that_would_end_the_run_does_not_start_early(limit):
    recorder = Recorder()

    result = await tried(*[[A, B]] * 5, tools=tools(recorder), guards=Guards(repeats=limit))

    assert result.reason == "repeated_tool_call"
    assert recorder.runs == 2 * (limit - 1)


@pytest.mark.row("N06", "T05")
async def test_polling_is_said_of_a_typed_tool_and_is_true_or_false():
    @tool(effect="read", polling=True)
    async def state() -> str:
        """Say how it stands."""
        return "running"

    assert (await tried(*[call("state")] * 9, tools=[state])).completed
    with pytest.raises(ToolDefinitionError, match=r"polling must be true or false; got 'yes'"):
        read(Recorder(), polling="yes")


@pytest.mark.row("N06", "L26")
async def test_calls_that_were_cut_off_and_never_started_are_no_tries():
    recorder = Recorder()
    cut = Turn(calls=(A,), finish="length")

    result = await tried(cut, cut, A, tools=tools(recorder))

    assert (result.completed, recorder.runs) == (True, 1)


@pytest.mark.row("N06")
async def test_a_response_is_compared_with_its_calls_that_the_budget_does_not_cover():
    other = call("look", n=2)

    responses = (call("lok"), call("lok"), (call("lok"), other))
    result = await tried(*responses, tools=tools(), budget=Budget(max_tool_calls=3), on_limit="summarize")

    assert (result.stop.reason, result.text) == (StopReason.BUDGET_EXCEEDED, "Done.")


ONE, OTHER = call("look", n=1), call("look", n=2)


@pytest.mark.row("N06")
@pytest.mark.parametrize(
    ("first", "repeated", "covered"), [((ONE,), (ONE, ONE), 2), ((ONE, OTHER), (ONE, OTHER), 3)], ids=["one", "two"]
)
async def test_a_call_that_the_budget_does_not_cover_equals_one_that_it_covers(first, repeated, covered):
    budget = Budget(max_tool_calls=covered)

    result = await tried(first, repeated, tools=tools(), guards=Guards(repeats=2), budget=budget)

    assert result.stop.reason is StopReason.REPEATED_TOOL_CALL
    assert statuses(result) == ["ok"] * len(first) + ["skipped", "skipped"]


# --- guards
@pytest.mark.row("L12", "MF6")
async def test_the_third_equal_call_in_a_row_is_not_run_and_ends_the_run():
    recorder = Recorder()
    equal = [call("look", arguments=one) for one in ('{"a":1,"b":2}', '{"b":2,"a":1}', '{"a": 1.0, "b":2}')]
    result = await tried(*equal, tools=[read(recorder)])

    assert (recorder.runs, statuses(result)) == (2, ["ok", "ok", "skipped"])
    report = result.report()
    assert (report["reason"], report["completed"]) == ("repeated_tool_call", False)
    assert (report["details"]["tool"], report["details"]["count"]) == ("look", 3)
    assert [event.count for event in await types(result, "repeat.noticed")] == [2, 3]
    decided, told = await types(result, "call.decided"), results(result)[-1]
    assert (told["code"], result.messages[-1].role) == ("repeated_tool_call", "tool")
    assert told["details"] == [{"tool": "look", "arguments_digest": decided[0].digest, "count": 3}]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_a_guard_is_a_whole_number_of_one_or_more(wrong):
    with pytest.raises(ConfigurationError, match="repeats"):
        Guards(repeats=wrong)
