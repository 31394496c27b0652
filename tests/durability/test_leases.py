"""One writer: two or five processes, a dead one, a sleeping one, and clocks that jump."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from crash_child import Job
from crashing import Children, Scene, World, check_whole, stored

from invariants import check_session
from treadle import Agent, Budget, SessionHeld, Tool, ToolContext, open_journal, open_session
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.journals.sqlite_leases import _Counters
from treadle.ports import Journal
from treadle.testing import FakeClock, Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

SHORT = 0.5
"""A lease for tests that wait for its end, in seconds."""


def job(tmp_path: Path, outside: World, name: str = "out", *, lease_seconds: float = SHORT, **words: Any) -> Job:
    journal, out = str(tmp_path / "a.db"), str(tmp_path / name)
    return Job(journal=journal, port=outside.port, out=out, lease_seconds=lease_seconds, **words)


class Held:
    """A child that is inside its first act, in front of a named pipe."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        self.pid = 0

    def started(self, pid: int) -> None:
        self.pid = pid

    async def wait_inside(self) -> int:
        """Return a descriptor of the pipe once a child reads from it; closing that lets the child continue."""
        return await asyncio.get_running_loop().run_in_executor(None, os.open, self.pipe, os.O_WRONLY)


def nothing() -> None:
    """Notice nothing."""


@pytest.mark.row("SF5", "Q07")
@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.soak)])
async def test_of_many_processes_that_resume_one_session_exactly_one_goes_on(
    tmp_path: Path, mothers: tuple[Children, Children], outside: World, count: int
) -> None:
    held = Held(tmp_path)
    with ExitStack() as stack:
        all_mothers = [*mothers, *(stack.enter_context(Children()) for _ in range(count - 2))]
        died = await mothers[0].run(job(tmp_path, outside, point="CP4"))
        assert died.was_killed
        resuming = {
            asyncio.create_task(mother.run(job(tmp_path, outside, f"out{index}", act="resume", gate=str(held.pipe))))
            for index, mother in enumerate(all_mothers)
        }
        pipe = await held.wait_inside()
        ended: set[asyncio.Task[Any]] = set()
        while len(ended) < count - 1:
            done, resuming = await asyncio.wait(resuming, return_when=asyncio.FIRST_COMPLETED)
            ended |= done
        os.close(pipe)
        [winner] = await asyncio.gather(*resuming)

    for one in (task.result() for task in ended):
        assert one.code == 1
        assert one.report["error"].startswith("SessionHeld: ")
        assert " on " in one.report["error"]
        assert "since 20" in one.report["error"]
    assert (winner.code, winner.report["reason"]) == (0, "completed")
    assert outside.requests() == {1: 1, 2: 1}
    await check_whole(tmp_path / "a.db")


@pytest.mark.row("SF5")
async def test_a_dead_holder_is_followed_at_once_however_long_its_lease(scene: Scene) -> None:
    await scene.kill("CP9", lease_seconds=3600.0)
    assert (await scene.run(act="resume", lease_seconds=3600.0)).is_completed


@pytest.mark.row("SF5", "Q07")
async def test_a_process_that_slept_past_its_lease_does_nothing_more(
    tmp_path: Path, mothers: tuple[Children, Children], outside: World
) -> None:
    held, (one, other) = Held(tmp_path), mothers
    sleeping = asyncio.create_task(one.run(job(tmp_path, outside, gate=str(held.pipe)), on_start=held.started))
    pipe = await held.wait_inside()
    os.kill(held.pid, signal.SIGSTOP)
    try:
        ended = await other.run(job(tmp_path, outside, "other", act="again"))
        acts, (events, _) = outside.acts(), await stored(tmp_path / "a.db")
    finally:
        os.kill(held.pid, signal.SIGCONT)
    zombie = await sleeping  # it ends by itself, in front of the pipe that nobody has let it through
    os.close(pipe)

    assert (ended.code, ended.report["reason"]) == (0, "completed")
    assert (zombie.code, zombie.report["error"].partition(":")[0]) == (1, "SessionConflict")
    assert outside.acts() == acts
    assert outside.duplicates() == []
    assert (await stored(tmp_path / "a.db"))[0] == events, "the zombie has written nothing"
    await check_whole(tmp_path / "a.db")


# --- one process


def locks(folder: Path) -> list[Path]:
    """Return the lock files of the journal in a folder; beside them stands what was last seen of each session."""
    return [path for path in (folder / "a.db.locks").iterdir() if path.suffix != ".seen"]


@pytest.mark.row("SF5")
async def test_a_lock_file_whose_process_number_lives_again_holds_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "a.db", lease_seconds=3600.0)
    await journal.create("s")
    lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
    [lock] = locks(tmp_path)
    words = lock.read_bytes()
    await lease.release()
    assert not locks(tmp_path)
    lock.write_bytes(words)  # as a crash leaves it; the number in it is this very process's
    lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
    await lease.release()
    await journal.close()


async def test_a_folder_in_which_no_lock_can_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.db.locks").write_text("a file in its place")
    async with open_session(tmp_path / "a.db", id="s") as session:
        with pytest.raises(JournalError, match="lock"):
            await Agent(ScriptedModel([text("x")])).run("go", session=session)


async def test_the_locks_are_private_and_leave_with_their_runs(tmp_path: Path) -> None:
    modes: list[int] = []

    async def look(arguments: JsonObject, ctx: ToolContext) -> str:
        modes.extend(path.stat().st_mode & 0o777 for path in locks(tmp_path))
        modes.append((tmp_path / "a.db.locks").stat().st_mode & 0o777)
        return "seen"

    tool = Tool(name="look", description="Look.", parameters={}, effect="read", run=look)
    async with open_session(tmp_path / "a.db", id="s") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[tool]).run("go", session=session)
    assert modes == [0o600, 0o700]
    assert not locks(tmp_path)


@pytest.mark.row("Q07")
async def test_a_session_opened_before_another_run_goes_on_from_what_that_one_stored(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([text("one"), text("two")]))
    async with open_session(tmp_path / "a.db", id="s") as early, open_session(tmp_path / "a.db", id="s") as late:
        await agent.run("first", session=late)
        done = await agent.run("second", session=early)
        await check_session(early)
    assert [message.text for message in done.messages] == ["first", "one", "second", "two"]


@pytest.mark.row("Q07", "SF5")
async def test_a_second_run_in_the_same_process_is_refused_by_the_file_too(tmp_path: Path) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([Turn(text="slow", gate=gate)]))
    async with open_session(tmp_path / "a.db", id="s") as one, open_session(tmp_path / "a.db", id="s") as two:
        async with agent.stream("go", session=one) as run:
            async for event in run:
                if event.type == "model.started":
                    with pytest.raises(SessionHeld, match=f"process {os.getpid()} on "):
                        await agent.run("again", session=two)
                    gate.open()
        assert run.result.completed
        assert (await agent.run("again", session=two)).completed


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_a_session_whose_event_loop_was_closed_with_its_run_pending_is_given_back(place: str) -> None:
    async def opened() -> Journal:
        return await open_journal(place)

    async def hold() -> None:
        await journal.create("s")
        await journal.acquire("s", on_lost=nothing, on_message=nothing)

    async def take() -> None:
        while True:
            try:
                lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
            except SessionHeld:
                await asyncio.sleep(0)
                continue
            await lease.release()
            await journal.close()
            return

    journal = asyncio.run(opened())
    asyncio.run(hold())  # the loop is closed, and nobody has released the lease
    asyncio.run(take())


# --- clocks and order


@pytest.mark.row("SF6", "B14")
@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 365 * 86400.0])
async def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_run(tmp_path: Path, jump: float) -> None:
    clock = FakeClock()

    async def leap(arguments: JsonObject, ctx: ToolContext) -> str:
        clock.shift(jump)
        clock.advance(5.0)
        return "leapt"

    tool = Tool(name="leap", description="Leap.", parameters={}, effect="read", run=leap)
    agent = Agent(ScriptedModel([call("leap"), text("done")]), tools=[tool], budget=Budget(max_wall_time_seconds=60))
    async with open_session(tmp_path / "a.db", id="s", clock=clock) as session:
        done = await agent.run("go", session=session)
        assert session.state.run is not None
        assert (done.reason, session.state.run.spent.wall_seconds) == ("completed", 5.0)


class Watched(MemoryJournal):
    """A journal that writes down what was asked of it, in one list with what tools did."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        await super().append(session_id, events, state=state, durable=durable)
        self._log.extend(f"{event.type}{' synced' if durable else ''}" for event in events)


@pytest.mark.row("SF7", "R05")
@pytest.mark.parametrize("effect", ["idempotent", "keyed", "unsafe"])
async def test_the_start_of_an_act_is_synced_before_it_and_its_result_before_anybody_hears_of_it(effect: Any) -> None:
    log: list[str] = []

    async def act(arguments: JsonObject, ctx: ToolContext) -> str:
        log.append("act")
        return "done"

    tool = Tool(name="act", description="Act.", parameters={}, effect=effect, permission="allow", run=act)
    async with open_session(Watched(log), id="s") as session:
        await Agent(ScriptedModel([call("act"), text("done")]), tools=[tool]).run("go", session=session)

    at = log.index("act")
    assert log[at - 1] == "tool.started synced"
    assert log[at + 1 : at + 3] == ["tool.finished synced", "model.started"]


@pytest.mark.row("SF5")
def test_a_counter_stands_still_only_as_long_as_it_was_looked_at(tmp_path: Path) -> None:
    path, counters = tmp_path / "lock", _Counters(2.0)
    path.write_bytes(b"7")
    looks = [(0.0, 0.0), (1.0, 1.0), (2.5, 2.5)]
    assert [counters.look(str(path), now).still_seconds for now, _ in looks] == [still for _, still in looks]
    assert counters.look(str(path), 4.6).still_seconds == 0.0, (
        "more than a lease without a look: we may have slept ourselves"
    )
    assert counters.look(str(path), 6.6).still_seconds == 2.0
    path.write_bytes(b"8")
    assert counters.look(str(path), 7.0).still_seconds == 0.0
    counters.forget(str(path))
    assert counters.look(str(path), 8.0).still_seconds == 0.0
