"""Cancelling from anywhere: it cuts into a tool and a stream, every open call gets its result, and it proves that it stopped."""

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import DyingJournal, act
from treadle import Agent, Session, Tool, ToolContext, open_journal, open_session
from treadle.errors import JournalError, ToolDefinitionError, UnknownApproval
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, FaultyJournal, Gate, ScriptedModel, Turn, call, text
from treadle.tools import Done, JsonObject


@pytest.fixture(params=["memory:", "sqlite"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Session]:
    place = "memory:" if request.param == "memory:" else tmp_path / "a.db"
    async with open_session(place, id="s") as opened:
        yield opened


def statuses(run: Any) -> list[tuple[str, str]]:
    return [(one.id, one.status) for one in run.tool_calls]


def hanging(entered: Gate, *, effect: Any = "read", name: str = "hang") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        await asyncio.Event().wait()
        return "never"

    return Tool(name=name, description="Hang.", parameters={}, effect=effect, permission="allow", run=run)


@pytest.mark.row("L27", "TF9")
@pytest.mark.parametrize(("effect", "status"), [("read", "cancelled"), ("unsafe", "outcome_unknown")])
async def test_a_cancellation_left_by_anybody_cuts_into_a_running_tool(
    session: Session, effect: str, status: str
) -> None:
    entered = Gate()

    async def quick(arguments: JsonObject, ctx: ToolContext) -> str:
        return "quick"

    tools = [
        Tool(name="quick", description="Quick.", parameters={}, effect="unsafe", permission="allow", run=quick),
        hanging(entered, effect=effect),
        Tool(name="later", description="Later.", parameters={}, effect="unsafe", permission="allow", run=quick),
    ]
    model = ScriptedModel([[call("quick", id="q"), call("hang", id="h"), call("later", id="l")], text("never")])
    running = asyncio.create_task(Agent(model, tools=tools).run("go", session=session))
    await entered.wait()
    await session.cancel()
    done = await running

    assert (done.reason, done.report()["status"]) == ("cancelled", "stopped")
    assert statuses(done) == [("q", "ok"), ("h", status), ("l", "cancelled")]
    await check_session(session)


@pytest.mark.row("L27")
async def test_a_cancellation_left_by_anybody_cuts_into_a_silent_stream(session: Session) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([Turn(text="slow", gate=gate)]))
    async with agent.stream("go", session=session) as run:
        async for event in run:
            if event.type == "model.started":
                await session.cancel()
    assert run.result.reason == "cancelled"
    await check_session(session)


@pytest.mark.row("L27")
async def test_a_cancellation_from_another_process_cuts_into_a_running_tool(tmp_path: Path) -> None:
    other = (
        "import asyncio, sys; from treadle import open_session\n"
        "async def main():\n"
        "    async with open_session(sys.argv[1], id='s') as session: await session.cancel()\n"
        "asyncio.run(main())"
    )
    entered = Gate()
    async with open_session(tmp_path / "a.db", id="s") as session:
        agent = Agent(ScriptedModel([call("hang"), text("never")]), tools=[hanging(entered)])
        running = asyncio.create_task(agent.run("go", session=session))
        await entered.wait()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", other, str(tmp_path / "a.db"))
        assert await child.wait() == 0
        done = await running
        await check_session(session)
    assert done.reason == "cancelled"


@pytest.mark.row("L27", "ST04")
async def test_there_is_nothing_to_cancel_before_a_run_and_after_it_and_the_next_one_is_not_stopped(
    session: Session,
) -> None:
    agent = Agent(ScriptedModel([text("one"), text("two")]))
    assert await session.cancel() is False
    await agent.run("first", session=session)
    assert await session.cancel() is False
    assert (await agent.run("second", session=session)).reason == "completed"
    assert not await session.journal.inbox(session.id)


# --- what is not live


class Acting:
    """A tool that changes the world, and how often it did."""

    def __init__(self) -> None:
        self.runs = 0

    def tool(self, effect: Any = "unsafe", **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> str:
            self.runs += 1
            return "paid"

        words = {"permission": "allow", **words}
        return Tool(name="pay", description="Pay.", parameters={}, effect=effect, run=run, **words)


async def crash(place: Path, effect: str, point: str) -> None:
    """Leave session `s` as a process that was killed: before the call `p` started, or inside it."""
    acting = Acting()
    calls = [call("die", id="d"), call("pay", id="p")] if point == "before" else [call("pay", id="p")]
    tools = [msgspec.structs.replace(acting.tool(), name="die"), acting.tool(effect)]
    place.parent.mkdir(exist_ok=True)
    async with open_journal(place) as journal, open_session(DyingJournal(journal), id="s") as session:
        with pytest.raises(JournalError, match="gone"):
            await Agent(ScriptedModel([calls]), tools=tools).run("go", session=session)


@pytest.mark.row("ST04", "HF2")
@pytest.mark.parametrize(
    ("effect", "point", "status"),
    [
        ("keyed", "before", "skipped"),
        ("unsafe", "before", "skipped"),
        ("keyed", "inside", "outcome_unknown"),
        ("unsafe", "inside", "outcome_unknown"),
    ],
)
async def test_a_crashed_run_that_was_cancelled_does_nothing_more(
    tmp_path: Path, effect: str, point: str, status: str
) -> None:
    await crash(tmp_path / "a.db", effect, point)
    acting = Acting()

    async def look(arguments: JsonObject, ctx: ToolContext) -> str:
        return "x"

    die = Tool(name="die", description="Die.", parameters={}, effect="unsafe", permission="allow", run=look)
    async with open_session(tmp_path / "a.db", id="s") as session:
        assert await session.cancel() is True
    async with open_session(tmp_path / "a.db", id="s") as session:
        model = ScriptedModel([text("never")])
        done = await Agent(model, tools=[die, acting.tool(effect)]).resume(session)
        await check_session(session)
        assert not await session.journal.inbox("s")
    assert (done.reason, acting.runs, model.requests) == ("cancelled", 0, [])
    assert ("p", status) in statuses(done)


@pytest.mark.row("ST04", "HF2")
@pytest.mark.parametrize("answer", [None, "allow"])
async def test_a_paused_run_that_was_cancelled_asks_nobody_and_does_nothing_more(session: Session, answer: Any) -> None:
    acting = Acting()
    model = ScriptedModel([call("pay"), text("never"), text("a new task")])
    agent = Agent(model, tools=[acting.tool(permission="ask")])
    paused = await agent.run("go", session=session)
    [approval] = paused.approvals
    if answer is not None:
        await session.answer(approval.id, answer)
    await session.cancel()

    assert await session.journal.approvals() == session.approvals() == await session.approvals() == ()
    if answer is None:
        with pytest.raises(UnknownApproval, match="cancelled"):
            await session.answer(approval.id, "allow")
    done = await agent.resume(session)
    assert (done.reason, acting.runs, done.approvals) == ("cancelled", 0, ())
    assert await session.journal.approvals() == ()
    await check_session(session)


@pytest.mark.row("ST04")
async def test_a_cancellation_holds_over_a_crash_of_the_run_that_took_it_in(tmp_path: Path) -> None:
    await crash(tmp_path / "a.db", "unsafe", "inside")
    acting = Acting()
    async with open_session(tmp_path / "a.db", id="s") as session:
        await session.cancel()
        for fail_at in range(3, 40):
            store = FaultyJournal(session.journal, fail_at=fail_at, error=RuntimeError("killed"))
            model = ScriptedModel([text("never")])
            with suppress(RuntimeError):
                async with open_session(store, id="s") as dying:
                    await Agent(model, tools=[acting.tool()]).resume(dying)
            await session.refresh()
            assert session.state.run is not None
            assert (acting.runs, model.requests) == (0, [])
            if session.state.run.status == "stopped":
                break
        assert (session.state.run.reason, fail_at > 5) == ("cancelled", True)


@pytest.mark.row("ST04")
async def test_a_cancellation_holds_over_a_crash_of_the_new_task_that_follows_its_run(tmp_path: Path) -> None:
    await crash(tmp_path / "a" / "a.db", "unsafe", "inside")
    acting, cancelled = Acting(), 0
    for fail_at in range(1, 60):
        shutil.copytree(tmp_path / "a", tmp_path / str(fail_at))
        async with open_session(tmp_path / str(fail_at) / "a.db", id="s") as session:
            broken = session.state.run
            assert broken is not None
            await session.cancel()
            store = FaultyJournal(session.journal, fail_at=fail_at, error=RuntimeError("killed"))
            with suppress(RuntimeError):
                async with open_session(store, id="s") as dying:
                    await Agent(ScriptedModel([text("new")]), tools=[acting.tool()]).run("new", session=dying)
            await session.refresh()
            assert session.state.run is not None
            if session.state.run.id != broken.id:
                break
            done = await Agent(ScriptedModel([text("never")]), tools=[acting.tool()]).resume(session)
            assert (done.reason, acting.runs) == ("cancelled", 0)
            cancelled += 1
    assert cancelled > 3


@pytest.mark.row("ST04")
async def test_a_cancelled_run_is_left_behind_by_a_new_task_which_is_not_cancelled(session: Session) -> None:
    acting = Acting()
    agent = Agent(ScriptedModel([call("pay"), text("new")]), tools=[acting.tool(permission="ask")])
    await agent.run("go", session=session)
    await session.cancel()
    done = await agent.run("something else", session=session)
    assert (done.reason, done.text, acting.runs) == ("completed", "new", 0)
    assert not await session.journal.inbox(session.id)


@pytest.mark.row("L27")
async def test_a_run_that_is_cancelled_asks_no_check_about_the_call_that_it_cut_off(session: Session) -> None:
    entered, asked = Gate(), list[str]()

    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        asked.append(ctx.call.id)
        return Done("paid")

    pay = msgspec.structs.replace(hanging(entered, effect="unsafe"), check=check, timeout=30.0)
    running = asyncio.create_task(Agent(ScriptedModel([call("hang", id="h")]), tools=[pay]).run("go", session=session))
    await entered.wait()
    await session.cancel()

    assert (statuses(await running), asked) == ([("h", "outcome_unknown")], [])


class Keeping(MemoryJournal):
    """A journal that removes nothing from inboxes while it is stuck."""

    is_stuck = False

    async def consume(self, session_id: str, message_ids: Sequence[str], at: int) -> None:
        if self.is_stuck:
            raise JournalError("It is stuck.")
        await super().consume(session_id, message_ids, at)


@pytest.mark.row("L27", "TF9")
@pytest.mark.parametrize("is_stuck", [False, True], ids=["removed", "not removed"])
async def test_a_cancelled_run_goes_on_when_it_is_resumed_also_where_its_cancellation_was_not_removed(
    is_stuck: bool,
) -> None:
    entered, journal = Gate(), Keeping()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([call("hang"), text("after all")]), tools=[hanging(entered)])
        running = asyncio.create_task(agent.run("go", session=session))
        await entered.wait()
        journal.is_stuck = is_stuck
        await session.cancel()
        assert (await running).reason == "cancelled"
        assert len(await journal.inbox("s")) == is_stuck
        journal.is_stuck = False

        done = await agent.resume(session)
        await check_session(session)

    assert (done.reason, done.text) == ("completed", "after all")
    assert await journal.inbox("s") == ()


@pytest.mark.row("TF10", "L27")
async def test_cancelling_a_task_twice_loses_no_result(session: Session) -> None:
    entered, stubborn = Gate(), Gate()

    async def hold_on(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stubborn.wait()
            raise
        return "never"

    tool = Tool(name="hold", description="Hold on.", parameters={}, effect="unsafe", permission="allow", run=hold_on)
    model = ScriptedModel([[call("hold", id="a"), call("hold", id="b", n=1)], text("never")])
    running = asyncio.create_task(Agent(model, tools=[tool]).run("go", session=session))
    await entered.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stubborn.open()

    await check_session(session)
    assert session.state.run is not None
    assert session.state.run.status == "stopped"
    assert [(one.id, one.status) for one in session.state.run.calls] == [("a", "outcome_unknown"), ("b", "cancelled")]


@pytest.mark.row("L27", "TF9")
async def test_a_thread_that_cannot_be_stopped_is_told_to_and_its_late_end_is_recorded(session: Session) -> None:
    entered, saw, leave = Gate(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def stuck(arguments: JsonObject, ctx: ToolContext) -> str:
        loop.call_soon_threadsafe(entered.open)
        leave.wait(60)
        if ctx.cancelled:
            saw.set()
        return "late"

    tool = Tool(name="stuck", description="Stuck.", parameters={}, effect="unsafe", permission="allow", run=stuck)
    late = asyncio.Event()

    def hear(event: Any) -> None:
        if event.type == "tool.late":
            late.set()

    agent = Agent(ScriptedModel([call("stuck", id="a"), text("never")]), tools=[tool])
    running = asyncio.create_task(agent.run("go", session=session))
    await entered.wait()
    await session.cancel()
    done = await running
    assert statuses(done) == [("a", "outcome_unknown")]

    session.ledger.subscribers.append(hear)
    leave.set()
    await late.wait()
    assert saw.is_set(), "it was told to stop"
    await check_session(session)


@pytest.mark.row("L27")
async def test_a_child_process_of_a_cancelled_tool_is_gone_when_the_run_has_ended(tmp_path: Path) -> None:
    entered = Gate()
    pids: list[int] = []

    async def spawn(arguments: JsonObject, ctx: ToolContext) -> str:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
        pids.append(child.pid)
        entered.open()
        try:
            await child.wait()
        finally:
            child.kill()
            await child.wait()
        return "never"

    tool = Tool(name="spawn", description="Spawn.", parameters={}, effect="unsafe", permission="allow", run=spawn)
    async with open_session(tmp_path / "a.db", id="s") as session:
        agent = Agent(ScriptedModel([call("spawn"), text("never")]), tools=[tool])
        running = asyncio.create_task(agent.run("go", session=session))
        await entered.wait()
        await session.cancel()
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.row("S22")
async def test_a_tool_that_says_so_is_waited_for_and_what_follows_it_is_cancelled(session: Session) -> None:
    entered, leave = Gate(), Gate()
    told: list[bool] = []

    async def write(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        await leave.wait()
        told.append(ctx.cancelled)
        return "written"

    tool = act(write, "write", interrupt="block")
    model = ScriptedModel([[call("write", id="a"), call("write", id="b", n=1)], text("never")])
    async with Agent(model, tools=[tool]).stream("go", session=session) as run:
        await entered.wait()
        run.cancel()
        await asyncio.sleep(0)
        leave.open()

    assert statuses(run.result) == [("a", "ok"), ("b", "cancelled")]
    assert (run.result.reason, told) == ("cancelled", [True])
    await check_session(session)


@pytest.mark.row("S22")
async def test_a_tool_that_is_waited_for_still_has_its_time_limit() -> None:
    entered, clock = Gate(), FakeClock()
    tool = msgspec.structs.replace(hanging(entered, effect="unsafe"), interrupt="block", timeout=30.0)
    agent = Agent(ScriptedModel([call("hang", id="h"), text("never")]), tools=[tool])
    async with open_session("memory:", clock=clock) as session, agent.stream("go", session=session) as run:
        ended = asyncio.create_task(run.finish())
        await entered.wait()
        begun = clock.monotonic()
        run.cancel()
        while not ended.done():
            clock.advance(1.0)
            await asyncio.sleep(0)
    assert statuses(run.result) == [("h", "outcome_unknown")]
    assert clock.monotonic() - begun >= 30.0


@pytest.mark.row("S22")
@pytest.mark.parametrize("words", [{"interrupt": "never"}, {"interrupt": "block", "timeout": None}])
def test_a_wrong_word_for_interrupts_is_told(words: JsonObject) -> None:
    with pytest.raises(ToolDefinitionError):
        Tool(name="a", description="A.", parameters={}, run=print, **words)
