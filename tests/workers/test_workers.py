"""Tasks that are submitted anywhere, and carried out by whichever worker has their agent."""

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import program
from pipeline_tools import paying
from postgres_server import connect
from treadle import Agent, Budget, ConfigurationError, allow, open_journal, open_session, tool
from treadle.errors import SessionExists, SessionMoved, SessionNotActive, TaskCancelled, UnknownSession, WorkerNameTaken
from treadle.events import RunFinished, TaskSubmitted
from treadle.journals.memory import MemoryJournal
from treadle.journals.postgres import open_postgres
from treadle.journals.sqlite import open_sqlite
from treadle.ports import SessionFilter
from treadle.resolve.journals import SystemClock
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import Tool
from treadle.workers import Worker, follow, list_workers, result, submit
from treadle.workers.worker import SessionRunner

pytestmark = pytest.mark.row("N19")


def clerk(*turns: Any, tools: tuple[Tool, ...] = ()) -> Callable[[], Agent]:
    """Return what makes an agent that answers each task alike."""
    return lambda: Agent(ScriptedModel([*(turns or [text("done")])] * 500), tools=tools)


@asynccontextmanager
async def working(journal: Any, agents: Any = None, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(journal, agents or {"clerk": clerk()}, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)  # sleep: the store of another connection tells nobody


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_submitted_task_is_carried_out_and_its_result_is_waited_for(address: str) -> None:
    async with working(address):
        session_id = await submit(address, "clerk", "Answer ticket 7", tenant="acme", by="ada")
        answer = await result(address, session_id, timeout=60)
    assert (answer.status, answer.text, answer.completed) == ("completed", "done", True)
    async with open_journal(address) as journal, open_session(journal, id=session_id) as session:
        assert session.state.metadata == {"tenant": "acme"}
        assert session.state.run is not None
        assert session.state.run.agent == "clerk"
        assert session.messages[0].text == "Answer ticket 7"


async def test_a_task_waits_until_a_worker_has_its_agent(address: str) -> None:
    other = await submit(address, "nobody", "Do that")
    async with working(address):
        own = await submit(address, "clerk", "Do this")
        await result(address, own, timeout=60)
    async with open_journal(address) as journal:
        statuses = {info.id: info.run_status for info in await journal.sessions()}
        assert statuses == {own: "completed", other: "queued"}
        assert [item.session_id for item in await journal.due()] == [other]
    with pytest.raises(TimeoutError):
        await result(address, other, timeout=0.01)


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_the_same_key_twice_is_one_session_of_a_tenant(address: str) -> None:
    first = await submit(address, "clerk", "Pay invoice 7", key="invoice-7")
    assert await submit(address, "clerk", "Pay invoice 7", key="invoice-7") == first
    assert await submit(address, "clerk", "Pay invoice 7", key="invoice-7", tenant="acme") != first
    async with open_journal(address) as journal:
        assert len(await journal.sessions()) == 2


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_many_workers_share_the_tasks_and_each_is_carried_out_once(address: str) -> None:
    done: Counter[str] = Counter()

    make = paying(done)
    ids = [await submit(address, "clerk", f"invoice {n}") for n in range(30)]
    async with (
        working(address, {"clerk": make}, name="one", concurrency=3),
        working(address, {"clerk": make}, name="two", concurrency=3),
        working(address, {"clerk": make}, name="three", concurrency=3),
    ):
        answers = [await result(address, session_id, timeout=60) for session_id in ids]
    assert {answer.status for answer in answers} == {"completed"}
    assert done == Counter({f"invoice {n}": 1 for n in range(30)})


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_an_answer_given_anywhere_wakes_the_paused_session_on_some_worker(address: str) -> None:
    paid = []

    @tool(effect="unsafe", permission="ask")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    session_id = await submit(address, "clerk", "Pay 7")

    def make() -> Agent:
        return Agent(ScriptedModel([call("pay", amount=7), text("paid")], follows_history=True), tools=[pay])

    agents = {"clerk": make}
    async with working(address, agents), open_journal(address) as journal:
        await until(journal.approvals)
    assert not paid
    async with working(address, agents), open_journal(address) as journal:
        (asked,) = await journal.approvals()
        async with open_session(journal, id=session_id) as session:
            await session.answer(asked.id, "allow")
        assert (await result(journal, session_id, timeout=60)).completed
    assert paid == [7]


async def test_a_task_begins_not_before_its_time() -> None:
    clock, journal = FakeClock(), MemoryJournal()
    session_id = await submit(journal, "clerk", "Later", at=clock.now() + 3600, clock=clock)
    soon = await submit(journal, "clerk", "Now", clock=clock)
    async with working(journal, clock=clock):
        await result(journal, soon, timeout=60)
        async with open_session(journal, id=session_id) as session:
            assert session.state.run is None
        clock.advance(3601)
        assert (await result(journal, session_id, timeout=60)).completed


async def test_a_waiting_task_is_cancelled_before_it_begins(address: str) -> None:
    session_id = await submit(address, "clerk", "Do it")
    async with open_journal(address) as journal, open_session(journal, id=session_id) as session:
        assert session.state.run_status == "queued"
        assert await session.cancel()
        assert not await session.cancel()
        assert await journal.due() == ()
    with pytest.raises(TaskCancelled, match="cancelled before its run started"):
        await result(address, session_id, timeout=60)
    async with working(address):
        other = await submit(address, "clerk", "Do it")
        await result(address, other, timeout=60)
    async with open_journal(address) as journal:
        assert [info.run_status for info in await journal.sessions() if info.id == session_id] == ["active"]


async def test_a_session_whose_task_waits_takes_no_other_run_and_a_fork_has_no_task(address: str) -> None:
    session_id = await submit(address, "clerk", "Do it")
    async with open_journal(address) as journal, open_session(journal, id=session_id) as session:
        with pytest.raises(SessionNotActive, match="waits for a worker"):
            await clerk()().run("Something else", session=session)
        with pytest.raises(SessionNotActive, match="waits for a worker"):
            await session.rewind(1)
        forked = await session.fork()
        assert forked.state.submitted is None
        assert forked.state.run_status == "active"
        assert [item.session_id for item in await journal.due()] == [session_id]


async def test_tenants_take_turns_and_priorities_come_first_within_one() -> None:
    journal, begun = MemoryJournal(), []

    def make() -> Agent:
        def answer(request: Any) -> Any:
            begun.append(request.messages[0].text)
            return text("done")

        return Agent(ScriptedModel([answer]))

    many = [await submit(journal, "clerk", f"many {n}", tenant="many", priority=n) for n in range(20)]
    one = await submit(journal, "clerk", "one", tenant="one")
    async with working(journal, {"clerk": make}, concurrency=1):
        for session_id in [*many, one]:
            await result(journal, session_id, timeout=60)
    assert begun.index("one") <= 1
    assert [task for task in begun if task != "one"] == [f"many {n}" for n in reversed(range(20))]


async def test_a_session_that_kills_its_workers_is_set_aside_and_the_others_go_on(address: str) -> None:
    session_id = await submit(address, "clerk", "Kill")
    async with open_journal(address) as journal:
        for _ in range(4):  # what three processes leave that die at one place, and one that runs nothing else
            await leave_broken(journal, session_id)
        async with working(address):
            await until(lambda: suspended(journal))
            other = await submit(address, "clerk", "Another")
            assert (await result(address, other, timeout=60)).completed
        (info,) = await journal.sessions(SessionFilter(statuses=("suspended",)))
        assert info.id == session_id


async def suspended(journal: Any) -> object:
    return await journal.sessions(SessionFilter(statuses=("suspended",)))


class Waiting:
    """An agent whose one call waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    def __call__(self) -> Agent:
        @tool(effect="read", permission="allow")
        async def wait() -> str:
            """Wait."""
            self.begun.set()
            await self.go_on.wait()
            return "waited"

        return Agent(ScriptedModel([call("wait"), text("done")], follows_history=True), tools=[wait])


async def leave_broken(journal: Any, session_id: str) -> None:
    """Begin or resume the session's run, and leave it as a process leaves it that is killed in a call."""
    waiting = Waiting()
    runner = SessionRunner(journal, {"clerk": waiting}, clock=SystemClock(), tries=3)
    running = asyncio.create_task(runner.run(session_id))
    await asyncio.wait_for(waiting.begun.wait(), 60)
    await runner.hand_over()
    assert await running is None


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_workers_say_that_they_are_there_and_no_two_have_one_name(address: str) -> None:
    async with working(address, name="ada", tenants=["acme"], concurrency=2), open_journal(address) as journal:
        await until(lambda: list_workers(journal))
        (seen,) = await list_workers(journal)
        assert (seen.name, seen.agents, seen.tenants, seen.concurrency) == ("ada", ("clerk",), ("acme",), 2)
        assert await journal.sessions() == ()
        with pytest.raises(
            WorkerNameTaken,
            match=rf"'ada' is already running on this journal \(process {os.getpid()} on [^ ]+\)\. Give",
        ):
            await Worker(address, {"clerk": clerk()}, name="ada").run()
    async with open_journal(address) as journal:
        assert await list_workers(journal) == ()
        (gone,) = await list_workers(journal, all=True)
        assert not gone.is_alive


async def test_a_follower_sees_the_events_from_another_connection_and_goes_on_by_number(address: str) -> None:
    session_id = await submit(address, "clerk", "Do it")
    async with working(address):
        events = [event async for event in follow(address, session_id)]
    assert isinstance(events[0], TaskSubmitted)
    assert isinstance(events[-1], RunFinished)
    rest = [event.seq async for event in follow(address, session_id, after=events[2].seq)]
    assert rest == [event.seq for event in events[3:]]


async def test_a_stopped_worker_lets_a_run_end_by_itself_and_takes_nothing_new(address: str) -> None:
    waiting = Waiting()
    session_id = await submit(address, "clerk", "Do it")
    async with working(address, {"clerk": waiting}) as worker:
        await asyncio.wait_for(waiting.begun.wait(), 60)
        worker.stop()
        other = await submit(address, "clerk", "Not any more")
        waiting.go_on.set()
    async with open_journal(address) as journal:
        assert {info.id: info.run_status for info in await journal.sessions()} == {
            session_id: "completed",
            other: "queued",
        }


async def test_a_budget_that_was_submitted_holds(address: str) -> None:
    @tool(effect="read", permission="allow")
    async def look(n: int) -> str:
        """Look."""
        return str(n)

    agents = {
        "clerk": lambda: Agent(ScriptedModel([lambda request: call("look", n=len(request.messages))]), tools=[look])
    }
    async with working(address, agents):
        session_id = await submit(address, "clerk", "Look on", budget=Budget(max_model_turns=2))
        answer = await result(address, session_id, timeout=60)
    assert answer.status == "stopped"
    assert answer.reason == "step_limit_reached"


async def test_what_cannot_be_submitted_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    for wrong, says in (
        ({"agent": ""}, "the name of an agent"),
        ({"agent": 5}, "agent must be"),
        ({"task": ""}, "needs a task"),
        ({"task": None}, "task must be"),
        ({"priority": "high"}, "priority must be"),
        ({"tenant": 5}, "tenant must be"),
        ({"key": b"x"}, "key must be"),
        ({"key": ""}, "all tasks with it would be one"),
        ({"priority": 10**9}, "whole number up to 999_999_999"),
        ({"at": datetime(2030, 1, 1)}, "The time `at` 2030.* has no time zone"),
        ({"tenant": "acme", "metadata": {"tenant": "globex"}}, "name the tenant 'globex', and tenant= names 'acme'"),
        ({"metadata": {"tenant": 5}}, "name the tenant 5"),
        ({"task": "\ud800"}, "cannot be stored"),
        ({"journal": "memory:"}, "share a journal"),
        ({"journal": 5}, "journal must be"),
    ):
        given: dict[str, Any] = {"journal": file, "agent": "clerk", "task": "Do it", **wrong}
        with pytest.raises(ConfigurationError, match=says.replace("(", r"\(").replace(")", r"\)")):
            await submit(**given)
    assert not file.exists() or not await sessions_of(file)
    with pytest.raises(UnknownSession):
        await result(file, "nobody")
    for wrong, says in (
        ({"agents": {}}, "at least one agent"),
        ({"agents": {"a": 5}}, "a function that makes the agent"),
        ({"agents": [Agent(ScriptedModel([text("x")]))]}, "needs a name"),
        ({"concurrency": 0}, "above 0"),
        ({"tries": True}, "tries must be"),
        ({"drain_seconds": float("nan")}, "drain_seconds must be"),
        ({"tenants": "acme"}, "tenants must be"),
        ({"name": ""}, "printable"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            Worker(file, **{"agents": {"clerk": clerk()}, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="returned"):
        await Worker(file, {"clerk": lambda: 5}).run()  # type: ignore[arg-type,return-value]


async def test_a_tenant_among_the_metadata_is_the_tasks_tenant(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    first = await submit(file, "clerk", "Pay invoice 7", key="invoice-7", metadata={"tenant": "acme"})
    assert await submit(file, "clerk", "Pay invoice 7", key="invoice-7", tenant="acme") == first
    async with open_session(file, id=first) as session:
        assert session.state.submitted is not None
        assert session.state.submitted.tenant == "acme"


async def test_a_worker_without_the_deps_that_a_tool_of_its_agent_needs_does_not_begin(tmp_path: Path) -> None:
    needing = Tool(
        name="find", description="Find.", parameters={"type": "object"}, run=lambda _, ctx: ctx.deps, needs_deps="Db"
    )
    agent = Agent(ScriptedModel([call("find"), text("Done.")]), name="clerk", tools=[needing], policy=allow("find"))
    session_id = await submit(tmp_path / "agent.db", "clerk", "Find it")
    with pytest.raises(ConfigurationError, match=r"needs `ctx\.deps` of the type Db"):
        await Worker(tmp_path / "agent.db", [agent]).run()

    worker = Worker(tmp_path / "agent.db", [agent], deps="a database")
    running = asyncio.create_task(worker.run())
    assert (await result(tmp_path / "agent.db", session_id, timeout=60)).status == "completed"
    worker.stop()
    await running


async def sessions_of(file: Path) -> object:
    async with open_journal(file) as journal:
        return await journal.sessions()


async def test_the_task_of_a_deleted_session_is_not_submitted_again(address: str) -> None:
    session_id = await submit(address, "clerk", "Do it", key="k")
    async with open_journal(address) as journal, open_session(journal, id=session_id) as session:
        await session.delete()
    with pytest.raises(SessionExists):
        await submit(address, "clerk", "Do it", key="k")


STOPPED = """
import asyncio, sys
from treadle import Agent, Worker, tool
from treadle.journals.postgres import open_postgres
from treadle.journals.sqlite import open_sqlite
from treadle.testing import ScriptedModel, call, text

@tool(effect="read", permission="allow")
async def wait() -> str:
    "Wait."
    print("inside", flush=True)
    await asyncio.Event().wait()

async def main():
    journal = await (open_postgres if "://" in sys.argv[1] else open_sqlite)(sys.argv[1], lease_seconds=2.0)
    make = lambda: Agent(ScriptedModel([call("wait"), text("done")], follows_history=True), tools=[wait])
    await Worker(journal, agents={"clerk": make}).run()

asyncio.run(main())
"""


@asynccontextmanager
async def leased(address: str) -> AsyncIterator[Any]:
    """A journal whose leases end soon."""
    journal = await (open_postgres if "://" in address else open_sqlite)(address, lease_seconds=2.0)
    try:
        yield journal
    finally:
        await journal.close()


async def stop_between_writes(process: int, address: str) -> None:
    """Suspend a process. Where it was in the middle of a write, let it end that first: it would keep the store locked, as the docs say."""
    if "://" not in address:
        with closing(sqlite3.connect(address, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            os.kill(process, signal.SIGSTOP)
            connection.execute("ROLLBACK")
        return
    with connect(address) as server:
        while True:
            os.kill(process, signal.SIGSTOP)
            await asyncio.sleep(0.05)  # sleep: the server takes in what it was sent
            if server.execute(BUSY).fetchone() == (0,):
                return
            os.kill(process, signal.SIGCONT)


BUSY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'treadle' AND state <> 'idle' AND datname = current_database()
"""


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_that_is_stopped_in_a_call_is_followed_by_another_when_its_lease_has_ended(
    address: str, tmp_path: Path
) -> None:
    session_id = await submit(address, "clerk", "Wait")
    stopped: Any = program.Forked([program.CODE, STOPPED, address], folder=tmp_path, environment=os.environ)
    with stopped:
        try:
            assert await asyncio.to_thread(stopped.stdout.readline) == b"inside\n"
            await stop_between_writes(stopped.pid, address)
            make = Waiting()
            make.go_on.set()
            async with leased(address) as journal, working(journal, {"clerk": make}):
                assert (await result(address, session_id, timeout=60)).completed
            assert make.begun.is_set()
        finally:
            stopped.kill()


class Reads:
    """A journal that counts the events that are read; everything else is the journal's own."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.count = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        events = await self._journal.read(*args, **options)
        self.count += len(events)
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def test_a_list_of_workers_reads_one_event_of_each_however_often_it_began(address: str) -> None:
    for _ in range(3):
        async with working(address, name="one"), open_journal(address) as journal:
            await until(lambda: list_workers(journal))
    async with open_journal(address) as journal:
        assert len(await journal.read("worker/one")) >= 6
        reads: Any = Reads(journal)
        (info,) = await list_workers(reads, all=True)
        assert (info.name, info.is_alive, info.is_draining, reads.count) == ("one", False, True, 1)


@pytest.mark.parametrize("how", ["move", "delete"])
async def test_nobody_waits_for_the_end_of_a_task_that_cannot_end_here(tmp_path: Path, how: str) -> None:
    place = tmp_path / "j.db"
    session_id = await submit(place, "clerk", "Pay")
    waiting = asyncio.create_task(result(place, session_id))
    async with open_session(place, id=session_id) as session:
        await (session.move("elsewhere") if how == "move" else session.delete())

    for wait in (waiting, result(place, session_id)):
        with pytest.raises(SessionMoved if how == "move" else SessionNotActive, match=f"was {how}d"):
            await wait
