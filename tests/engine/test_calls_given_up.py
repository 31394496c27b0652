"""Calls that were given up and run on: who waits for them, what is reported meanwhile, and what is recorded of their late end."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import act, on_fake_clock, read, run_calls, statuses, types
from treadle import Agent, open_session
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, call, text


# --- who waits
@pytest.mark.row("TF11")
@pytest.mark.parametrize("resource", ["a", "b"], ids=["the same", "another"])
async def test_a_call_waits_for_one_that_was_given_up_only_where_both_hold_the_same(resource):
    release, order, releasing = threading.Event(), [], []

    def slow(arguments: Any, ctx: Any) -> str:
        release.wait(30)
        order.append("slow has ended")
        return "late"

    async def quick(arguments: Any, ctx: Any) -> str:
        order.append("quick")
        return "done"

    async def let_go() -> None:
        for _ in range(200):
            await asyncio.sleep(0)  # others have their turns: whoever need not wait has begun by then
        release.set()

    def watch(event: Any) -> None:
        if event.type == "call.decided" and event.tool == "quick":
            releasing.append(asyncio.ensure_future(let_go()))

    tools = [
        act(slow, "slow", timeout=0.01, resources=lambda _: {"a": "write"}),
        act(quick, "quick", resources=lambda _: {resource: "write"}),
    ]
    model = ScriptedModel([call("slow"), call("quick"), text("Done.")])
    result = await Agent(model, tools=tools, subscribers=[watch]).run("go")
    await releasing[0]

    assert statuses(result)[1] == "ok"
    assert order[0] == ("slow has ended" if resource == "a" else "quick")


@pytest.mark.row("TF2", "TF11", "S15")
async def test_an_unsafe_call_that_ignores_its_end_holds_back_the_next_one_until_it_has_ended():
    begun, told, release = asyncio.Event(), asyncio.Event(), asyncio.Event()
    log, clock = [], FakeClock()

    async def stubborn(arguments, ctx):
        log.append(f"+{arguments['n']}")
        if arguments["n"] == 1:
            begun.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    told.set()
        log.append(f"-{arguments['n']}")
        return "late"

    def watch(event):
        if event.type == "call.decided" and event.call_id == "call_2":
            release.set()

    async with open_session("memory:", clock=clock) as session:
        model = ScriptedModel([call("act", n=1), call("act", n=2), text("Done.")])
        agent = Agent(model, tools=[act(stubborn, timeout=5)], subscribers=[watch])
        running = asyncio.create_task(agent.run("go", session=session))
        await begun.wait()
        clock.advance(5)
        await told.wait()
        clock.advance(1)
        result = await running
        late = await types(result, "tool.late")
        await check_session(session)

    assert log == ["+1", "-1", "+2", "-2"]
    assert statuses(result) == ["outcome_unknown", "ok"]
    assert [(event.call_id, event.outcome, event.content) for event in late] == [("call_1", "returned", "'late'")]
    assert "late" not in result.messages[2].results[0].content


async def test_a_call_left_behind_by_one_run_holds_back_the_next_run_of_the_session():
    release, begun, log = threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def stuck(arguments, ctx):
        log.append(f"+{arguments['n']}")
        loop.call_soon_threadsafe(begun.set)
        if arguments["n"] == 1:
            release.wait(30)
        log.append(f"-{arguments['n']}")

    def watch(event):
        if event.type == "call.decided" and event.call_id == "call_2":
            release.set()

    async with Agent(ScriptedModel([call("act", n=1)]), tools=[act(stuck)], subscribers=[watch]).stream("go") as run:
        await begun.wait()
        run.cancel()
    model = ScriptedModel([call("act", n=2, id="call_2"), text("Done.")])
    again = Agent(model, tools=[act(stuck)], subscribers=[watch])

    assert (await again.run("again", session=run.result.session)).completed
    assert log == ["+1", "-1", "+2", "-2"]


@pytest.mark.row("R02", "R10", "F09")
@pytest.mark.parametrize(("effect", "attempts"), [("keyed", 1), ("idempotent", 1), ("read", 3)])
async def test_no_second_attempt_that_acts_runs_beside_one_that_was_given_up(effect, attempts):
    release, running = asyncio.Event(), []

    async def deaf(arguments: Any, ctx: Any) -> str:
        running.append(ctx.attempt)
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    async with on_fake_clock() as session:
        result = await run_calls(
            call("act", n=1), tools=[act(deaf, effect=effect, timeout=5.0, retries=2)], session=session
        )
        release.set()

    assert [one.attempts for one in result.tool_calls] == [attempts]
    assert sorted(running) == list(range(1, attempts + 1))


# --- what is told of them
class Shown:
    """A value that is shown so, or refuses to be."""

    def __init__(self, words: str | BaseException) -> None:
        self.words = words

    def __repr__(self) -> str:
        if isinstance(self.words, BaseException):
            raise self.words
        return self.words


class Leaving(BaseException):
    """An error of somebody's own that `except Exception` does not see."""


@pytest.mark.row("TF11")
@pytest.mark.parametrize(
    ("ends", "outcome", "content"),
    [
        ("too late", "returned", "'too late'"),
        (None, "returned", "None"),
        ({"n": 1}, "returned", "{'n': 1}"),
        ("x" * 1998, "returned", "'" + "x" * 1998 + "'"),
        ("x" * 1999, "returned", "'" + "x" * 1999),
        (Shown("a\ud800b"), "returned", "a?b"),
        *((Shown(error), "returned", "Shown") for error in (RuntimeError("no"), SystemExit(1), Leaving())),
        (ValueError("broken off"), "raised", "ValueError: broken off"),
    ],
    ids=range(10),
)
async def test_a_late_end_is_recorded_as_returned_or_raised_with_what_it_was(ends, outcome, content):
    async def run(arguments: Any, ctx: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if isinstance(ends, ValueError):
                raise ends from None
            return ends

    async with on_fake_clock() as session:
        result = await run_calls(call("look"), tools=[read(run, timeout=5, retries=0)], session=session)
        late = await types(result, "tool.late")

    assert statuses(result) == ["timeout"]
    assert [(event.tool, event.outcome, event.content) for event in late] == [("look", outcome, content)]


@pytest.mark.row("TF11", "E08")
async def test_a_thread_that_was_given_up_and_runs_on_is_in_the_report_and_its_late_end_is_explained():
    begun, release = threading.Event(), threading.Event()
    clock, heard = FakeClock(), asyncio.Event()

    def block(arguments, ctx):
        begun.set()
        release.wait(60)
        return "paid after all"

    class Hearing(MemoryJournal):
        async def append(self, session_id, events, **words):
            await super().append(session_id, events, **words)
            if any(event.type == "tool.late" for event in events):
                heard.set()

    async with open_session(Hearing(), clock=clock) as session:
        agent = Agent(ScriptedModel([call("act"), text("Done.")]), tools=[act(block, timeout=5)])
        running = asyncio.create_task(agent.run("go", session=session))
        await asyncio.to_thread(begun.wait, 60)
        clock.advance(5)
        result = await running
        before = (await session.explain()).tried
        release.set()
        await asyncio.wait_for(heard.wait(), 60)
        after = (await session.explain()).tried

    assert result.report()["running_on"] == ["call_1"]
    assert [one.late for one in before + after] == ["", "returned 'paid after all'"]
