"""Which worker died, and which has only lost its run: a session is set aside for deaths, not for a database that was away."""

import asyncio
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workers.test_workers import Waiting, until, working

import program
from postgres_server import PostgresServer
from treadle import Agent, open_journal, submit
from treadle.events import RunResumed
from treadle.journals.postgres import open_postgres
from treadle.resolve.journals import SystemClock
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.workers import Worker, list_workers, result
from treadle.workers.presence import Presence, WorkerInfo

pytestmark = pytest.mark.row("N19")


class Asking(Waiting):
    """The same, of a model that decides by the history alone: a database that crashes may have lost the last events."""

    def __call__(self) -> Agent:
        def answer(request: Any) -> Any:
            return text("done") if any(message.role == "tool" for message in request.messages) else call("wait")

        return Agent(ScriptedModel([answer]), tools=super().__call__().tools)


async def resumed(address: Any, session_id: str, count: int, clock: FakeClock) -> None:
    """Return when a run was resumed so many times. Time passes meanwhile: a worker asks late who else has lost the journal."""
    async with open_journal(address) as journal:

        async def is_so() -> bool:
            clock.advance(1.0)
            return sum(isinstance(event, RunResumed) for event in await journal.read(session_id)) >= count

        await until(is_so)


async def test_a_database_that_was_away_twice_is_no_death_of_a_worker(
    postgres: PostgresServer, postgres_url: str
) -> None:
    waiting = Asking()
    session_id = await submit(postgres_url, "clerk", "Do it")
    journal = await open_postgres(postgres_url, lease_seconds=1.0, patience_seconds=0.1, busy_seconds=0.5)
    clock = FakeClock()
    worker = Worker(journal, {"clerk": waiting}, tries=1, drain_seconds=0.01, clock=clock)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(waiting.begun.wait(), 60)
    for count in (1, 2):
        postgres.crash()
        await until(lambda: gone(worker))
        postgres.restart()
        await resumed(postgres_url, session_id, count, clock)
    waiting.go_on.set()
    assert (await result(postgres_url, session_id, timeout=60)).completed
    worker.stop()
    await running
    await journal.close()


async def gone(worker: Worker) -> bool:
    """Say whether a worker runs nothing any more: it has lost its session with the journal."""
    return worker._condition().sessions == 0


async def test_a_run_that_was_handed_over_three_times_is_not_set_aside(address: str) -> None:
    session_id = await submit(address, "clerk", "Do it")
    for _ in range(3):
        waiting = Waiting()
        async with working(address, {"clerk": waiting}, drain_seconds=0.01):
            await asyncio.wait_for(waiting.begun.wait(), 60)
    waiting = Waiting()
    waiting.go_on.set()
    async with working(address, {"clerk": waiting}):
        assert (await result(address, session_id, timeout=60)).completed


async def test_a_busy_workers_place_stays_small_and_tells_how_earlier_workers_of_its_name_ended(address: str) -> None:
    async with open_journal(address) as journal:

        def worker(since: float) -> Presence:
            info = WorkerInfo(name="one", host="here", pid=1, agents=("clerk",), concurrency=1, since=since)
            return Presence(journal, SystemClock(), info, on_lost=lambda: None)

        left, killed, now, told, fell = (worker(since) for since in (1.0, 2.0, 3.0, 1.5, 1.7))
        for one, said in (
            (told, {"is_draining": True}),
            (fell, {"host": socket.gethostname(), "boot": "an earlier one"}),
        ):
            await one.take()
            await one.tell(replace(one.info, sessions=("s1",), **said))
            await one.leave()
        await left.take()
        await left.tell(replace(left.info, is_draining=True))
        await left.leave()
        await killed.take()
        await killed.tell(replace(killed.info, sessions=("s1",)))
        await killed.leave()
        await now.take()
        for done in range(1, 601):
            await now.tell(replace(now.info, done=done))
        events = await journal.read("worker/one")
        assert len(events) < 300
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        (seen,) = await list_workers(journal)
        assert (seen.done, seen.is_alive) == (600, True)
        other = Presence(journal, SystemClock(), replace(now.info, name="two"), on_lost=lambda: None)
        # One that was told to end, and killed while it still ran something; and one whose machine was started anew.
        died = [await other.died(each.mark) for each in (left, killed, now, told, fell)]
        assert died == [False, True, False, False, False]
        await now.tell(replace(now.info, is_draining=True))
        await now.leave()
        assert not await other.died(now.mark)


COMPANY = """
import asyncio, os, sys

from treadle import Agent, ToolContext, Worker, open_journal, tool
from treadle.events import RunResumed
from treadle.testing import ScriptedModel, call, text

async def reached(journal, session_id):
    events = await journal.read(session_id)
    ends = [event.type for event in events if event.type in ("tool.started", "run.finished", "run.resumed")]
    return bool(ends) and ends[-1] != "run.resumed"

async def is_alone(journal, session_id):
    resumed = [event for event in await journal.read(session_id) if isinstance(event, RunResumed)]
    return bool(resumed) and resumed[-1].is_alone

def make(kills):
    @tool(effect="read", permission="allow")
    async def act(ctx: ToolContext) -> str:
        "Act."
        async with open_journal(sys.argv[1]) as journal:
            ids = [info.id for info in await journal.sessions()]
            while not await is_alone(journal, ctx.session.id):
                if kills and all([await reached(journal, one) for one in ids]):
                    break
                await asyncio.sleep(0.01)  # sleep: the store of another connection tells nobody
            while not await reached(journal, ctx.session.id):
                await asyncio.sleep(0.01)  # sleep: as above
        if kills:
            os._exit(9)
        return "acted"

    return lambda: Agent(ScriptedModel([call("act"), text("done")], follows_history=True), tools=[act])

async def main():
    worker = Worker(sys.argv[1], {"killer": make(True), "clerk": make(False)}, concurrency=3, tries=2)
    running = asyncio.create_task(worker.run())
    async with open_journal(sys.argv[1]) as journal:
        while not all(info.status == "suspended" or info.run_status == "completed" for info in await journal.sessions()):
            await asyncio.sleep(0.02)  # sleep: as above
    worker.stop()
    await running

asyncio.run(main())
"""


async def test_of_the_sessions_that_a_dead_process_carried_each_is_tried_alone_and_only_the_guilty_is_set_aside(
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "agent.db")
    guilty = await submit(address, "killer", "Kill")
    innocent = [await submit(address, "clerk", f"Work {n}") for n in range(2)]
    codes = []
    while not codes or codes[-1] == 9:
        words = [program.CODE, COMPANY, address]
        run = partial(program.run, words, folder=tmp_path, environment=os.environ, seconds=100)
        codes.append((await asyncio.to_thread(run)).returncode)
    assert codes == [9, 9, 9, 0]
    async with open_journal(address) as journal:
        found = {info.id: (info.run_status, info.own_status) for info in await journal.sessions()}
    assert found == {guilty: ("running", "suspended"), **dict.fromkeys(innocent, ("completed", "active"))}
