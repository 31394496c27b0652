"""The time of a batch: what the calls of one response may take together. On a clock that jumps: nothing waits."""

import asyncio

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, on_fake_clock, read, results, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, ConfigurationError, Transient, open_session
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, call, text


async def hanging(arguments, ctx):
    await asyncio.Event().wait()


@pytest.mark.row("S17")
async def test_the_time_of_a_batch_cuts_what_still_runs_and_keeps_what_has_ended():
    async with on_fake_clock() as session:
        result = await run_calls(
            call("look", n=1), call("slow"), call("look", n=2), call("act"), call("look", n=3),
            tools=[read(Recorder()), read(hanging, "slow", timeout=60), act(Recorder())],
            session=session, batch_seconds=5,
        )  # fmt: skip
        await check_session(session)

    assert statuses(result) == ["ok", "timeout", "ok", "skipped", "skipped"]
    started = [event.call_id for event in await types(result, "tool.started")]
    assert started == ["call_1", "call_2", "call_3"]
    assert result.tool_calls[1].duration_seconds == pytest.approx(5, abs=0.5)
    assert [one["code"] for one in results(result)[3:]] == ["batch_deadline", "batch_deadline"]
    assert "5 seconds in total" in results(result)[3]["message"]
    assert result.completed


@pytest.mark.row("S17")
async def test_a_call_that_acts_and_is_cut_by_the_time_of_its_batch_is_of_unknown_outcome():
    async with on_fake_clock() as session:
        result = await run_calls(
            call("act"), call("act2"), tools=[act(hanging), act(Recorder(), "act2")], session=session, batch_seconds=5
        )

    assert statuses(result) == ["outcome_unknown", "skipped"]


@pytest.mark.row("S17")
async def test_each_batch_has_the_whole_time_and_a_tool_has_its_own_limit_within_it():
    clock = FakeClock(auto=True)

    async def work(arguments, ctx):
        worked = asyncio.Event()
        clock.call_later(4, worked.set)
        await worked.wait()
        return "done"

    async with open_session(MemoryJournal(), clock=clock) as session:
        model = ScriptedModel([call("look", n=1), call("look", n=2), call("slow"), text("Done.")])
        tools = [read(work), read(hanging, "slow", timeout=1, retries=0)]
        result = await Agent(model, tools=tools, batch_seconds=5).run("go", session=session)
        ended = await types(result, "tool.finished")

    assert statuses(result) == ["ok", "ok", "timeout"]
    assert ended[-1].result.duration_seconds == pytest.approx(1, abs=0.1)


@pytest.mark.row("S17")
async def test_no_retry_begins_when_the_time_of_the_batch_is_over():
    tried = []

    async def broken(arguments, ctx):
        tried.append(ctx.attempt)
        raise Transient("later", retry_after_seconds=20)

    async with on_fake_clock() as session:
        result = await run_calls(call("look"), tools=[read(broken)], session=session, batch_seconds=5)

    assert (tried, statuses(result)) == ([1], ["failed"])


@pytest.mark.row("S17")
async def test_calls_that_wait_for_a_slot_are_skipped_when_the_time_of_their_batch_is_over():
    async with on_fake_clock() as session:
        result = await run_calls(
            call("slow", n=1), call("slow", n=2), tools=[read(hanging, "slow")], session=session, batch_seconds=5,
            budget=Budget(max_parallel_tool_calls=1),
        )  # fmt: skip

    assert statuses(result) == ["timeout", "skipped"]


@pytest.mark.row("S17")
async def test_the_time_that_a_person_takes_is_not_the_batches():
    clock = FakeClock()
    async with open_session(MemoryJournal(), clock=clock) as session:
        model = ScriptedModel([[call("look"), call("act")], text("Done.")])
        agent = Agent(model, tools=[read(Recorder()), tool_of(Recorder())], batch_seconds=5)
        paused = await agent.run("go", session=session)
        clock.advance(3600)
        await session.answer(paused.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert statuses(result) == ["ok", "ok"]


@pytest.mark.row("S17")
@pytest.mark.parametrize("value", [0, -1, "5", float("nan"), True])
def test_a_time_of_a_batch_that_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(ConfigurationError, match="batch_seconds must be a number of seconds"):
        Agent(ScriptedModel([text("Done.")]), batch_seconds=value)
