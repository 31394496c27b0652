"""One PostgreSQL server for many: sessions that share connections, processes that resume one session, a pooler, a crash."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

from journal_events import notes
from journal_places import nothing, opened
from proxies import PoolingProxy

from postgres_server import PostgresServer, connect
from treadle import Agent, open_session
from treadle.errors import JournalError, SessionConflict
from treadle.journals.backend import chained
from treadle.journals.postgres import open_postgres
from treadle.testing import ScriptedModel, text

if TYPE_CHECKING:
    from typing import LiteralString

    import psycopg

StartChild = Callable[..., Any]

SHORT = 2.0
"""A lease, in seconds."""


@pytest.mark.row("ST08")
async def test_a_hundred_sessions_of_one_process_share_at_most_four_connections(url: str):
    async with AsyncExitStack() as stack:
        for number in range(100):
            session = await stack.enter_async_context(open_session(url, id=f"s{number}"))
            await Agent(ScriptedModel([text("Hello.")])).run("Hello", session=session)
        with connect(url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'treadle'"
            ).fetchone()
    assert row is not None
    assert row[0] <= 4


@pytest.mark.row("ST08")
def test_of_many_processes_that_resume_a_dead_session_one_goes_on_and_the_others_are_told(
    url: str, start_child: StartChild
):
    holder = start_child("hold", url, 1.5)
    assert holder.stdout.readline() == "holds\n"
    holder.kill()
    children = [start_child("contend", url, 20) for _ in range(3)]
    said = []
    for child in children:
        said.append(child.stdout.readline().strip())  # the one that continues holds it until it is told to end
    for child in children:
        child.communicate("end\n", timeout=60)
    assert sorted(said) == ["continues", "held", "held"]


@pytest.mark.row("ST08")
@pytest.mark.row("SF5")
async def test_a_renewal_that_arrives_after_the_death_of_its_holder_is_no_sign_of_life(url: str):
    async with opened(url, lease_seconds=SHORT) as journal:
        await journal.create("s")
        with connect(url) as connection:
            connection.execute(
                "UPDATE session SET owner = 'a dead one', lease_until = clock_timestamp() + make_interval(secs => %s)",
                (SHORT,),
            )
            taking = asyncio.create_task(journal.acquire("s", on_lost=nothing, on_message=nothing))
            while not await waits(connection):
                assert not taking.done()
            connection.execute("UPDATE session SET lease_until = lease_until + interval '0.1 s'")
        lease = await taking
        assert lease.epoch == 1
        await lease.release()


@pytest.mark.row("ST08")
@pytest.mark.parametrize("ending", ["owner = NULL", "lease_until = clock_timestamp()"])
async def test_a_lease_that_ends_while_we_are_being_refused_is_taken(url: str, ending: "LiteralString"):
    async with opened(url, lease_seconds=SHORT) as journal:
        await journal.create("s")
        with connect(url) as connection:
            connection.execute(
                "UPDATE session SET owner = 'another', lease_until = clock_timestamp() + interval '1 hour'"
            )
            with connection.transaction():
                connection.execute("SELECT FROM session FOR UPDATE")
                taking = asyncio.create_task(journal.acquire("s", on_lost=nothing, on_message=nothing))
                while not await blocked(connection):  # refused, and about to note itself as the heir
                    assert not taking.done()
                connection.execute(f"UPDATE session SET {ending}")
        lease = await taking
        assert lease.epoch == 1
        await lease.release()


@pytest.mark.row("ST08", "SF10")
async def test_a_session_whose_last_event_is_stored_while_it_is_taken_continues_from_that_event(url: str):
    async with opened(url) as one, opened(url, lease_seconds=60) as other:
        for name, count in (("s", 1), ("like", 2)):
            await one.create(name)
            await one.append(name, notes(1, count), state="running", durable=True)
        with connect(url) as connection:
            before = connection.execute("SELECT sum FROM event WHERE session_id = 's'").fetchone()
            like = connection.execute(
                "SELECT at, type, version, body FROM event WHERE session_id = 'like' AND seq = 2"
            ).fetchone()
            assert before is not None
            assert like is not None
            connection.execute(
                "UPDATE session SET owner = 'gone', lease_until = clock_timestamp() - interval '1 s' WHERE id = 's'"
            )
            with connection.transaction():  # its holder stores its last event, and gives the session back
                connection.execute("UPDATE session SET head = 2, owner = NULL WHERE id = 's'")
                connection.execute(
                    "INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum) VALUES ('s', 0, 2, %s, %s, %s, %s, %s)",
                    (*like, chained("s", before[0], 2, like[3])),
                )
                taking = asyncio.create_task(other.acquire("s", on_lost=nothing, on_message=nothing))
                while not await blocked(connection):
                    assert not taking.done()
        taken = await taking
        await other.append("s", notes(3, 3), state="running", durable=True)
        assert await other.read("s") == notes(1, 3)
        await taken.release()


async def blocked(connection: "psycopg.Connection") -> int:
    """Return how many statements of Treadle wait for a row that another transaction has locked."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'treadle' AND wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    row = await asyncio.to_thread(lambda: connection.execute(waiting).fetchone())
    return 0 if row is None else int(row[0])


@pytest.mark.row("KF3", "SF10")
async def test_under_a_lease_that_is_lost_here_nothing_is_recorded_though_the_server_would_take_it(url: str):
    async with opened(url, lease_seconds=SHORT) as journal:
        await journal.create("s")
        lost = asyncio.Event()
        lease = await journal.acquire("s", on_lost=lost.set, on_message=nothing)
        with connect(url) as connection:
            with connection.transaction():
                connection.execute("SELECT FROM session FOR UPDATE")  # no renewal gets through
                await lost.wait()
                connection.execute("UPDATE session SET lease_until = clock_timestamp() + interval '1 hour'")
            for durable in (True, False):
                with pytest.raises(
                    SessionConflict, match=r"was not renewed for 2 s.*Nothing was written; resume session 's'"
                ):
                    await journal.append("s", notes(1, 1), state="running", durable=durable)
            await journal.flush()
            assert connection.execute("SELECT count(*) FROM event").fetchone() == (0,)
        await lease.release()
        again = await journal.acquire("s", on_lost=nothing, on_message=nothing)
        await journal.append("s", notes(1, 1), state="running", durable=True)
        await again.release()


async def waits(connection: "psycopg.Connection") -> bool:
    """Whether somebody waits for the lease's end."""
    row = await asyncio.to_thread(lambda: connection.execute("SELECT heir FROM session").fetchone())
    return row is not None and row[0] is not None


async def has_beaten(connection: "psycopg.Connection", since: Any) -> bool:
    """Whether the first heartbeat since then is over: its second statement has been answered."""
    words = (
        "SELECT FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'SELECT session_id, max(arrival)%%' "
        "AND query_start > %s"
    )
    return await asyncio.to_thread(lambda: connection.execute(words, since).fetchone()) is not None


@pytest.mark.row("SF10")
@pytest.mark.row("ST08")
async def test_what_the_server_lost_in_a_crash_of_its_own_is_stored_once_more(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
):
    async with opened(url, patience_seconds=60, lease_seconds=3600) as journal:
        await journal.create("s")
        with connect(url) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
            async with asyncio.timeout(30):
                while not await has_beaten(connection, row):  # a heartbeat syncs all that was committed before it
                    await asyncio.sleep(0)
        await journal.append("s", notes(1, 1), state="running", durable=True)
        await asyncio.to_thread(server.hold_back)
        await journal.append("s", notes(2, 9), state="running", durable=False)
        await journal.flush()
        await asyncio.to_thread(server.crash)
        await asyncio.to_thread(server.restart)
        with connect(url) as connection:
            row = connection.execute("SELECT head FROM session WHERE id = 's'").fetchone()
        assert row == (1,)  # the server has confirmed more than it has

        await journal.append("s", notes(10, 10), state="running", durable=True)

        assert await journal.read("s") == notes(1, 10)
        await lease.release()
    assert "lost the last events" in caplog.text


async def test_an_outage_longer_than_the_lease_is_not_reported_as_another_process(server: PostgresServer, url: str):
    async with opened(url, lease_seconds=0.5, patience_seconds=60) as journal:
        await journal.create("s")
        lost = asyncio.Event()
        lease = await journal.acquire("s", on_lost=lost.set, on_message=nothing)
        await asyncio.to_thread(server.crash)
        try:
            await lost.wait()
        finally:
            await asyncio.to_thread(server.restart)
        assert "was not renewed" in lease.loss
        with pytest.raises(SessionConflict, match=r"was not renewed for 0\.5 s, because its journal did not answer"):
            await journal.append("s", notes(1, 1), state="running", durable=True)
        await lease.release()


@pytest.mark.row("SF11")
async def test_a_pooler_in_transaction_mode_changes_nothing(server: PostgresServer, url: str):
    async with PoolingProxy(server, url, backends=3) as pooler, opened(pooler.url(url)) as journal:
        names = [f"s{number}" for number in range(6)]

        async def live(name: str) -> None:
            await journal.create(name)
            lease = await journal.acquire(name, on_lost=nothing, on_message=nothing)
            for seq in range(1, 31):
                await journal.append(name, notes(seq, seq), state="running", durable=seq % 3 == 0)
            await lease.release()

        await asyncio.gather(*(live(name) for name in names))
        for name in names:
            assert await journal.read(name) == notes(1, 30)
    assert pooler.changes > 10


@pytest.mark.row("SF11")
async def test_a_pooler_that_drops_the_search_path_is_found_at_opening(server: PostgresServer, url: str):
    async with PoolingProxy(server, server.url("public"), backends=1) as pooler:
        with pytest.raises(JournalError, match="a pooler between drops the options"):
            await open_postgres(pooler.url(url))
