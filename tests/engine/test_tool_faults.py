"""Faults of tools, people and stores: whatever a tool raises or returns, the call has one result and the journal opens."""

import asyncio
import itertools
import json

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, on_fake_clock, raising, read, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, StopReason, ToolOutput, open_session
from treadle.errors import JournalError, SessionConflict
from treadle.journals.memory import MemoryJournal
from treadle.sessions.session import fold
from treadle.testing import FakeClock, FaultyJournal, FixedRandomness, ScriptedModel, call, text


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Sly(dict):
    def items(self):
        raise RuntimeError("sly")


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.row("TF1")
@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("\ud800"), Exception("x" * 10_000_000), BaseException("base"), SystemExit(3), KeyboardInterrupt(),
        ExceptionGroup("two", [ValueError("a"), TypeError("b")]), BaseExceptionGroup("one", [SystemExit()]),
        asyncio.CancelledError(), GeneratorExit(), StopIteration(), StopAsyncIteration(), Wordless(), RecursionError(), MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_whatever_a_tool_raises_is_one_result(error, is_sync):
    def run(arguments, ctx):
        raise error

    tools = [read(run if is_sync else raising(error), retries=0), read(Recorder(), "other")]
    result = await run_calls(call("look"), call("other"), tools=tools)

    assert statuses(result) == ["failed", "ok"]
    assert len(result.messages[2].results[0].content) < 2000
    await check_session(result.session)


@pytest.mark.row("TF1")
async def test_a_tool_that_tries_to_end_the_process_is_not_tried_again():
    runs = []

    async def run(arguments, ctx):
        runs.append(ctx.attempt)
        raise SystemExit(1)

    result = await run_calls(call("look"), tools=[read(run)])

    assert (runs, statuses(result)) == ([1], ["failed"])


@pytest.mark.row("TF4")
@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), {1, 2}, {1: 2}, object(), CYCLE, "\ud800", {"a": b"bytes"}, 10**5000, Sly(a=1), lambda: 1,
        ToolOutput(display=5), ToolOutput(media=("x",)), ToolOutput(data={1}), ToolOutput(display="\ud800"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
async def test_what_is_no_json_is_an_unexpected_shape(value):
    async def run(arguments, ctx):
        return value

    result = await run_calls(call("look"), tools=[read(run)])

    assert statuses(result) == ["unexpected_result_shape"]
    await check_session(result.session)


@pytest.mark.row("B10", "TF3")
async def test_a_long_result_is_shortened_and_marked_and_the_rest_is_in_the_journal():
    whole = "".join(f"line {n} é\n" for n in range(100_000))

    async def run(arguments, ctx):
        return whole if arguments["n"] == 1 else {"rows": whole, "count": 3}

    result = await run_calls(
        call("look", n=1), call("look", n=2), tools=[read(run)], budget=Budget(max_tool_result_chars=5000)
    )

    first, second = result.messages[2].results
    assert len(first.content) <= 5000
    assert f"of {len(whole)} characters" in first.content
    assert len(second.content) <= 5000
    assert json.loads(second.content)["count"] == 3
    ended = {event.call_id: event.result for event in await types(result, "tool.finished")}  # in whatever order
    assert await result.session.journal.blob(ended[first.call_id].artifact) == whole.encode()


@pytest.mark.row("B10")
@pytest.mark.parametrize("limit", [1, 5, 30, 80, 300])
@pytest.mark.parametrize("value", ["x" * 1000, ["é" * 50] * 50, {"a": "x" * 1000, "b": ["y"] * 100}, {"n": 1, "m": list(range(500))}])  # fmt: skip
async def test_no_limit_is_too_small_to_be_kept(limit, value):
    async def run(arguments, ctx):
        return value

    result = await run_calls(
        call("look"), tools=[read(run)], budget=Budget(max_tool_result_chars=limit, max_model_turns=3)
    )

    told = result.messages[2].results[0].content
    assert len(told) <= limit
    if not isinstance(value, str) and limit >= 30:
        json.loads(told)
    assert "truncated" in told or "…" in told


async def test_a_limits_notice_is_kept_when_the_result_beside_it_is_long():
    async def run(arguments, ctx):
        return list(range(2000))

    result = await run_calls(
        call("look"), tools=[read(run)], budget=Budget(max_tool_result_chars=1000, max_model_turns=1)
    )

    told = content(result)
    assert told["limit_reached"] is True
    assert "limit reached (1)" in told["limit_message"]
    assert len(result.messages[2].results[0].content) <= 1000


@pytest.mark.row("TF9")
async def test_a_cancelled_batch_has_done_cancelled_and_unknown_calls():
    begun = asyncio.Event()

    async def hang(arguments, ctx):
        begun.set()
        await asyncio.Event().wait()

    model = ScriptedModel([[call("look"), call("act", n=1), call("act", n=2), call("look", n=9)]])
    agent = Agent(model, tools=[read(Recorder()), act(hang)])
    async with agent.stream("go") as run:
        await begun.wait()
        run.cancel()

    assert run.result.reason is StopReason.CANCELLED
    assert statuses(run.result) == ["ok", "outcome_unknown", "cancelled", "cancelled"]
    await check_session(run.result.session)


@pytest.mark.row("TF10")
async def test_a_second_cancel_loses_no_result():
    begun, told, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end(arguments, ctx):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
            await release.wait()

    async with open_session(MemoryJournal(), clock=FakeClock()) as session:
        agent = Agent(ScriptedModel([[call("act", n=1), call("act", n=2)]]), tools=[act(slow_to_end)])
        running = asyncio.create_task(agent.run("go", session=session))
        await begun.wait()
        running.cancel()
        await told.wait()
        running.cancel()
        running.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await running

        await check_session(session)
        finished = [event for event in await session.events() if event.type == "tool.finished"]
    assert [event.result.status for event in finished] == ["outcome_unknown", "cancelled"]


@pytest.mark.row("R06")
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
async def test_pauses_between_attempts_grow_with_full_jitter_up_to_their_cap(chance):
    async with open_session(
        MemoryJournal(), clock=FakeClock(auto=True), randomness=FixedRandomness([chance])
    ) as session:
        tools = [read(raising(ConnectionError("no")), timeout=None)]
        result = await run_calls(call("look"), tools=tools, session=session, budget=Budget(max_retries_per_tool_call=8))

    pauses = [event.retry_in_seconds for event in await types(result, "tool.attempt_failed")]
    assert pauses == [min(30.0, 0.5 * 2.0**n) * chance for n in range(1, 9)] + [None]


@pytest.mark.row("V01", "R02")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_at_any_operation_loses_no_result_and_repeats_no_unsafe_call(when):
    for n in itertools.count(1):
        recorder, store = Recorder(), MemoryJournal()
        await store.create("s")
        journal = FaultyJournal(store, fail_at=n, when=when)
        tools = [read(Recorder()), act(recorder), tool_of(recorder, "key", effect="keyed", permission="allow")]
        turns = [[call("look", n=1), call("act", n=2), call("key", n=3)], text("Done.")]
        with_fault = Agent(ScriptedModel(turns), tools=tools)
        try:
            async with open_session(journal, id="s") as session:
                await with_fault.run("go", session=session)
        except (JournalError, SessionConflict):
            pass
        async with open_session(store, id="s") as session:
            if session.state.run is not None and session.state.phase != "completed":
                again = Agent(ScriptedModel([text("Done.")] if session.state.step else turns), tools=tools)
                assert (await again.resume(session)).completed
            await check_session(session)
        assert [word for word in recorder.log if word == ("begin", 2)] in ([], [("begin", 2)])
        if not journal.has_failed:
            return


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_append_that_is_cancelled_half_way_leaves_the_numbers_whole(when):
    class Torn:
        """Cancels whoever appends the start of a tool: before it is stored, or after."""

        def __init__(self, journal):
            self._journal = journal
            self.task = None

        def __getattr__(self, name):
            return getattr(self._journal, name)

        async def append(self, session_id, events, **words):
            if self.task is not None and any(event.type == "model.started" for event in events):
                task, self.task = self.task, None
                if when == "after":
                    await self._journal.append(session_id, events, **words)
                task.cancel()
                await asyncio.sleep(0)  # the cancellation arrives here, and must not tear the append
                if when == "after":
                    return
            await self._journal.append(session_id, events, **words)

    store = MemoryJournal()
    journal = Torn(store)
    async with open_session(journal, id="s") as session:
        task = asyncio.create_task(Agent(ScriptedModel([text("Done.")])).run("go", session=session))
        journal.task = task
        with pytest.raises(asyncio.CancelledError):
            await task
        await check_session(session)
        assert (await Agent(ScriptedModel([text("Done.")])).resume(session)).completed
    assert fold("s", await store.read("s")).phase == "completed"


async def test_a_clock_of_the_run_cuts_a_tool_without_a_limit_of_its_own():
    async def hang(arguments, ctx):
        await asyncio.Event().wait()

    async with on_fake_clock() as session:
        result = await run_calls(
            call("act"), tools=[act(hang, timeout=None)], session=session, budget=Budget(max_wall_time_seconds=7)
        )

    assert result.reason is StopReason.BUDGET_EXCEEDED
    assert statuses(result) == ["outcome_unknown"]
