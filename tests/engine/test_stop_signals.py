"""Stop signals: several reasons to end at the same time are all kept, and the one with the highest priority decides."""

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, raising, run_calls, tool_of
from treadle import Agent, Budget, Done, Guards, StopReason, open_session
from treadle.events import RunFinished, decode_event, encode_event
from treadle.journals.memory import MemoryJournal
from treadle.messages import Usage
from treadle.stops import Stop, merged
from treadle.testing import ScriptedCall, ScriptedModel, Turn, call, text

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def reasons(result):
    return [one["reason"] for one in result.report()["signals"]]


@pytest.mark.row("R-STOPS")
async def test_the_done_condition_a_guard_and_a_limit_at_once_are_all_in_the_report():
    model = ScriptedModel([call("act")])
    async with open_session(MemoryJournal(), id="s") as session:
        result = await Agent(
            model,
            tools=[act(raising(ValueError("no")))],
            guards=Guards(failures=1),
            budget=Budget(max_model_turns=1),
            done_when=lambda session: Done("enough"),
        ).run("go", session=session)
        await check_session(session)
        [finished] = [event for event in await session.events() if isinstance(event, RunFinished)]
        explained = await session.explain()

    assert [one.reason for one in explained.stopped.signals] == reasons(result)
    assert (result.reason, result.completed, result.stop.output) == ("done_condition_satisfied", True, "enough")
    assert reasons(result) == ["done_condition_satisfied", "repeated_failures", "step_limit_reached"]
    assert [one["priority"] for one in result.report()["signals"]] == [60, 50, 30]
    assert [one["budget"] for one in result.report()["signals"][2:]] == ["max_model_turns"]
    assert list(msgspec.to_builtins(decode_event(encode_event(finished)).signals)) == result.report()["signals"]


@pytest.mark.row("R-STOPS")
async def test_two_guards_at_once_are_both_there():
    broken = [call("act", n="x"), ScriptedCall(name="act", arguments="{n: 1")]
    result = await Agent(
        ScriptedModel([Turn(calls=tuple(broken))]),
        tools=[act(Recorder(), parameters=NUMBER)],
        guards=Guards(invalid_arguments=1, invalid_json=1),
    ).run("go")

    assert reasons(result) == ["invalid_call_limit", "invalid_call_limit"]
    assert {one["details"]["class"] for one in result.report()["signals"]} == {"invalid_arguments", "invalid_json"}


@pytest.mark.row("L23", "R-STOPS")
async def test_two_budgets_that_are_used_up_in_one_step_are_both_listed():
    model = ScriptedModel([Turn(calls=(call("act"),), usage=Usage(input_tokens=50, output_tokens=5)), text("never")])
    result = await Agent(
        model, tools=[act(Recorder())], budget=Budget(max_model_turns=1, max_input_tokens=10), on_limit="report"
    ).run("go")

    assert {one["budget"] for one in result.report()["signals"]} == {"max_model_turns", "max_input_tokens"}
    assert result.report()["budget"] == result.report()["signals"][0]["budget"] == "max_model_turns"


@pytest.mark.row("R-STOPS")
async def test_a_person_who_cancels_stands_above_what_else_ends_the_run():
    async with open_session(MemoryJournal(), id="s") as session:

        async def cancel(arguments, ctx):
            await session.cancel()
            return "done"

        ending = tool_of(cancel, "act", permission="allow", ends_run=True, interrupt="block", timeout=30.0)
        run = Agent(ScriptedModel([call("act"), text("never")]), tools=[ending]).stream("go", session=session)
        async with run:
            async for event in run:
                if event.type == "tool.started":
                    run.cancel()
        result = run.result
        await check_session(session)

    assert result is not None
    assert (result.reason, reasons(result)) == (StopReason.CANCELLED, ["cancelled", "done_condition_satisfied"])


async def test_a_run_that_ends_for_one_reason_lists_that_one_alone_and_records_no_list():
    result = await run_calls(call("act"), tools=[act(Recorder())])
    [finished] = [event for event in await result.session.events() if isinstance(event, RunFinished)]

    assert reasons(result) == ["completed"]
    assert finished.signals == ()
    assert (await result.session.explain()).stopped.signals == ()


def test_the_highest_priority_decides_the_first_of_equals_and_equal_signals_are_one():
    limit, done = Stop(reason=StopReason.BUDGET_EXCEEDED), Stop(reason=StopReason.DONE_CONDITION_SATISFIED)
    urgent = Stop(reason=StopReason.BUDGET_EXCEEDED, message="time", priority=90)
    other = Stop(reason=StopReason.STEP_LIMIT_REACHED)

    assert merged(None, None) is None
    assert merged(None, limit, limit) == limit
    found = merged(limit, merged(other, done), urgent, limit)
    assert found is not None
    assert [found.reason, *(one.reason for one in found.also)] == [
        "budget_exceeded", "done_condition_satisfied", "budget_exceeded", "step_limit_reached",
    ]  # fmt: skip
    assert found.message == "time"
