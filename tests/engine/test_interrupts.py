"""Ends that come from outside or several at a time: who is reached, which reason decides, and what a call says that was cut."""

import asyncio

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, raising, run_calls, tool_of, types
from treadle import (
    Agent,
    Budget,
    ConfigurationError,
    Done,
    Run,
    Session,
    StopReason,
    ToolContext,
    allow,
    open_session,
    tool,
)
from treadle.budgets import Guards
from treadle.engine.interrupts import Interrupt
from treadle.events import RunFinished, ToolFinished, decode_event, encode_event
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.messages import Usage
from treadle.sessions.explain import events_of_all
from treadle.stops import Stop, merged
from treadle.testing import FakeClock, Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolResult

UNKNOWN = " Its outcome is unknown: it may have taken effect. Check before you repeat it."


async def by_another_handle(run: Run, session: Session, clock: FakeClock) -> None:
    async with open_session(session.journal, id=session.id) as other:
        await other.cancel(by="ada")


ENDS = {
    "by the handle": (lambda run, session, clock: run.cancel(by="bo"), "was interrupted after 0 s (The run was cancelled by bo).", "cancelled"),
    "by nobody": (lambda run, session, clock: run.cancel(), "was interrupted after 0 s (The run was cancelled).", "cancelled"),
    "with a reason": (
        lambda run, session, clock: run.stop(StopReason.TASK_DENIED, "The office is closed."),
        "was interrupted after 0 s (The office is closed).", "cancelled",
    ),
    "by another handle": (by_another_handle, "was interrupted after 0 s (The run was cancelled by ada).", "cancelled"),
    "by the limit of the run": (
        lambda run, session, clock: clock.advance(30),
        "was interrupted after 30 s (The budget max_wall_time_seconds is used up: 30 of 30).", "timeout",
    ),
    "by the limit of the call": (lambda run, session, clock: clock.advance(60), "did not answer within 60 s.", "timeout"),
}  # fmt: skip


@pytest.mark.row("L27", "FAULTS-13")
@pytest.mark.parametrize("depth", [0, 1], ids=["own call", "call of a child"])
@pytest.mark.parametrize("effect", ["unsafe", "read"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_call_that_is_interrupted_says_by_what_and_names_a_limit_only_if_one_ended_it(
    tmp_path, end, effect, depth
):
    entered, clock = Gate(), FakeClock()
    interrupts, words, status = ENDS[end]

    async def pays(arguments: JsonObject, ctx: ToolContext) -> None:
        entered.open()
        await asyncio.Event().wait()

    tools = [act(pays, "pay", effect=effect, timeout=60, retries=0)]
    agent = Agent(ScriptedModel([call("pay"), text("done")]), tools=tools)
    limit = Budget(max_wall_time_seconds=30 if end == "by the limit of the run" else None)
    if depth:
        lead = ScriptedModel([call("help", task="Pay."), text("done")])
        agent = Agent(lead, tools=[agent.as_tool("help", "Help.", effect=effect)], policy=allow("help"))
    async with open_session(SqliteJournal(tmp_path / "j.db"), clock=clock) as session:
        async with agent.stream("go", session=session, budget=limit) as run:
            await entered.wait()
            if (waits := interrupts(run, session, clock)) is not None:
                await waits
        events = await events_of_all(session.journal, session.id)
    (result,) = (event.result for event in events if event.type == "tool.finished" and event.result.name == "pay")

    assert isinstance(result, ToolResult)
    if effect == "unsafe":
        assert (result.status, result.message) == ("outcome_unknown", f"pay {words}{UNKNOWN}")
    else:
        assert result.status == ("cancelled" if depth and end == "by the limit of the run" else status)


async def test_a_cancellation_that_the_body_raises_by_itself_leaves_the_scope():
    scope = Interrupt(FakeClock()).cancel_scope()

    with pytest.raises(asyncio.CancelledError), scope:
        raise asyncio.CancelledError

    assert not scope.has_cut


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def looking():
    return ScriptedModel([[call("look"), call("look")], text("Never said.")])


async def test_a_subscriber_that_stops_the_run_when_no_call_is_open_ends_it_before_the_model_is_asked_again():
    model = looking()
    run = Agent(model, tools=[look]).stream("Look")
    finished = []

    def stop_after_the_second(event):
        if isinstance(event, ToolFinished):
            finished.append(event.call_id)
            if len(finished) == 2:
                run.stop(StopReason.TASK_DENIED, "Enough.")

    run.subscribe(stop_after_the_second)
    result = await run.finish()

    assert (result.reason, result.message, result.completed) == (StopReason.TASK_DENIED, "Enough.", False)
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert len(model.requests) == 1
    last = (await result.session.events())[-1]
    assert isinstance(last, RunFinished)
    assert (last.reason, last.message) == ("task_denied", "Enough.")


async def test_a_run_that_is_stopped_before_it_begins_asks_no_model_and_the_first_reason_stays():
    model = looking()
    run = Agent(model, tools=[look]).stream("Look")
    run.stop(StopReason.TASK_DENIED, "First.")
    run.stop(StopReason.REFUSED, "Second.")

    result = await run.finish()

    assert (result.reason, result.message) == (StopReason.TASK_DENIED, "First.")
    assert model.requests == []


async def test_a_run_that_was_stopped_goes_on_with_resume():
    agent = Agent(looking(), tools=[look])
    run = agent.stream("Look")
    run.stop(StopReason.TASK_DENIED, "Not now.")
    stopped = await run.finish()

    result = await agent.resume(stopped.session)

    assert result.text == "Never said."


@pytest.mark.parametrize("reason", [StopReason.COMPLETED, StopReason.APPROVAL_REQUIRED, StopReason.MODEL_ERROR])
async def test_a_run_cannot_be_stopped_as_what_it_did_not_come_to(reason):
    run = Agent(looking(), tools=[look]).stream("Look")

    with pytest.raises(ConfigurationError, match=reason.value):
        run.stop(reason, "It is done.")


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def reasons(result):
    return [one["reason"] for one in result.report()["signals"]]


@pytest.mark.row("R-STOPS")
async def test_the_done_condition_a_guard_and_a_limit_at_once_are_all_in_the_report():
    agent = Agent(
        ScriptedModel([call("act")]), tools=[act(raising(ValueError("no")))], guards=Guards(failures=1),
        budget=Budget(max_model_turns=1), done_when=lambda session: Done("enough"),
    )  # fmt: skip
    result = await agent.run("go")
    await check_session(result.session)
    [finished] = await types(result, "run.finished")
    explained = await result.session.explain()

    assert [one.reason for one in explained.stopped.signals] == reasons(result)
    assert (result.reason, result.completed, result.stop.output) == ("done_condition_satisfied", True, "enough")
    assert reasons(result) == ["done_condition_satisfied", "repeated_failures", "step_limit_reached"]
    signals = result.report()["signals"]
    assert [one["priority"] for one in signals] == [60, 50, 30]
    assert signals[2]["budget"] == "max_model_turns"
    assert list(msgspec.to_builtins(decode_event(encode_event(finished)).signals)) == signals


@pytest.mark.row("R-STOPS")
async def test_two_guards_at_once_are_both_there():
    broken = [call("act", n="x"), call("act", arguments="{n: 1")]
    guards = Guards(invalid_arguments=1, invalid_json=1)
    result = await run_calls(*broken, tools=[act(Recorder(), parameters=NUMBER)], guards=guards, on_limit="report")

    assert reasons(result) == ["invalid_call_limit", "invalid_call_limit"]
    assert {one["details"]["class"] for one in result.report()["signals"]} == {"invalid_arguments", "invalid_json"}


@pytest.mark.row("L23", "R-STOPS")
async def test_two_budgets_that_are_used_up_in_one_step_are_both_listed():
    model = ScriptedModel([Turn(calls=(call("act"),), usage=Usage(input_tokens=50, output_tokens=5)), text("never")])
    budget = Budget(max_model_turns=1, max_input_tokens=10)
    result = await Agent(model, tools=[act(Recorder())], budget=budget, on_limit="report").run("go")

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
