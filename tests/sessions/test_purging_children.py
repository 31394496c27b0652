"""What a purge removes beside the session itself: the sessions that carried out its calls, and no fork."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from treadle import Agent, check_sessions, open_journal, open_session
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text


async def family(journal: Journal) -> None:
    """Make `top`, whose call is carried out by a child, whose call is carried out by a grandchild; and a fork of `top`."""
    lowest = Agent(ScriptedModel([text("secret below")]))
    middle = Agent(
        ScriptedModel([call("look", task="x"), text("secret between")]),
        tools=[lowest.as_tool("look", "Looks.", effect="read")],
    )
    top = Agent(
        ScriptedModel([call("ask", task="x"), text("Done.")]), tools=[middle.as_tool("ask", "Asks.", effect="read")]
    )
    async with open_session(journal, id="top") as session:
        await top.run("go", session=session)
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


async def test_a_session_that_is_only_deleted_keeps_what_its_children_did():
    async with open_journal("memory:") as journal:
        await family(journal)
        async with open_session(journal, id="top") as session:
            await session.delete()
        assert min(info.head for info in await journal.sessions()) > 1


CHILD = """
import asyncio, os, signal, sys
from treadle import open_session
from treadle.journals.postgres import PostgresJournal
from treadle.journals.sqlite import SqliteJournal

left = int(sys.argv[2])
base = PostgresJournal if sys.argv[1].startswith("postgresql:") else SqliteJournal

class Dying(base):
    async def purge(self, *args, **words):
        global left
        await super().purge(*args, **words)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with open_session(Dying(sys.argv[1]), id="top") as session:
        await session.delete(purge=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("purged", [1, 2])
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
