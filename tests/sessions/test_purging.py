"""What a purge and an expiry remove beside the session itself, and what they keep: forks, and families that wait for a person."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from pipeline_tools import Recorder, act, called_through
from treadle import Agent, ask, open_journal, open_session
from treadle.events import ToolSuspended
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal
from treadle.resolve.archives import check_sessions, expire_sessions
from treadle.testing import FakeClock, ScriptedModel, call, text


async def family(journal: Journal) -> None:
    """Make `top`, whose call is carried out by a child, whose call is carried out by a grandchild; and a fork of `top`."""
    lowest = Agent(ScriptedModel([text("a secret")]))
    async with open_session(journal, id="top") as session:
        await called_through(lowest, "look", "ask", answer=text("a secret"), effect="read").run("go", session=session)
        await session.fork(id="fork")


def address_of(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if store == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if store == "memory" else str(tmp_path / "journal.db")


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_the_sessions_that_carried_out_its_calls_are_purged_with_it(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with open_journal(address_of(store, tmp_path, request)) as journal:
        await family(journal)
        assert len(await journal.sessions()) == 4

        async with open_session(journal, id="top") as session:
            await session.delete(purge=True)
            await session.delete(purge=True)

        left = {info.id: info.head for info in await journal.sessions()}
        assert left.pop("fork") > 1
        assert list(left.values()) == [1, 1, 1]
        for session_id in left:
            assert "secret" not in str(await journal.read(session_id))


async def test_a_session_that_is_only_deleted_keeps_what_its_children_did_and_they_are_deleted_with_it():
    async with open_journal("memory:") as journal:
        await family(journal)
        async with open_session(journal, id="top") as session:
            await session.delete()
        left = await journal.sessions()
        assert min(info.head for info in left) > 1
        assert {info.id for info in left if info.status != "deleted"} == {"fork"}


CHILD = """
import asyncio, os, signal, sys
from treadle import open_session
from treadle.journals.postgres import PostgresJournal
from treadle.journals.sqlite import SqliteJournal

left = int(sys.argv[2])
is_postgres = sys.argv[1].startswith("postgresql:")
base = PostgresJournal if is_postgres else SqliteJournal
options = {"lease_seconds": 1.0} if is_postgres else {}  # so long the dead process holds its session

class Dying(base):
    async def purge(self, *args, **words):
        global left
        await super().purge(*args, **words)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with open_session(Dying(sys.argv[1], **options), id="top") as session:
        await session.delete(purge=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("purged", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_a_purge_that_a_crash_cuts_off_is_ended_by_the_next(
    purged: int, store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = address_of(store, tmp_path, request)
    async with open_journal(address) as journal:
        await family(journal)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, address, str(purged))
    assert await child.wait() == -signal.SIGKILL

    async with open_journal(address) as journal:
        heads = [info.head for info in await journal.sessions()]
        assert heads.count(1) == purged
        async with open_session(journal, id="top", must_exist=True) as session:
            await session.delete(purge=True)
        left = {info.id: info.head for info in await journal.sessions()}
        assert left.pop("fork") > 1
        assert list(left.values()) == [1, 1, 1]
        assert await check_sessions(journal) == ()


# --- families whose agents wait for a person are kept, also where the caller's process died before it knew of that

NOW = 1e12


def lead() -> Agent:
    """An agent whose agent's agent asks a person."""
    tools = [act(Recorder(), "pay", permission=None)]
    last = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=tools, policy=ask("pay"))
    return called_through(last, "clerk", "office")


async def broken_off() -> MemoryJournal:
    """Return a journal in which the caller's process died just before it had recorded that its agent waits."""
    journal, left = MemoryJournal(), MemoryJournal()
    async with open_session(journal, id="s") as session:
        assert (await lead().run("Pay", session=session)).reason == "approval_required"
    for info in await journal.sessions():
        events = [*await journal.read(info.id)]
        if info.id == "s":
            events = events[: next(at for at, one in enumerate(events) if isinstance(one, ToolSuspended))]
        await left.adopt(info.id, events, state="running" if info.id == "s" else info.run_status)
    return left


@pytest.mark.row("ST14")
async def test_a_family_in_which_an_agent_waits_for_a_person_is_kept() -> None:
    journal = await broken_off()

    assert await expire_sessions(journal, before=NOW) == ()


@pytest.mark.row("ST14")
async def test_an_agent_that_has_been_answered_is_kept_while_its_caller_stays() -> None:
    clock = FakeClock()
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=clock) as session:
        paused = await lead().run("Pay", session=session)
        await session.answer(paused.approvals[0].id, "allow")
        before = clock.now() + 60
        clock.shift(120)
        await session.change(metadata={"seen": "yes"})

    assert await expire_sessions(journal, before=before, clock=clock) == ()


@pytest.mark.row("ST14")
@pytest.mark.parametrize("even_open", [False, True], ids=["cancelled", "even open"])
async def test_one_that_was_cancelled_goes_and_an_open_one_where_even_these_go(even_open: bool) -> None:
    journal = await broken_off()
    if not even_open:
        async with open_session(journal, id="s") as session:
            await session.cancel()

    assert "s" in await expire_sessions(journal, before=NOW, even_open=even_open)
