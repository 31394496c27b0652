"""The journal in PostgreSQL: what survives, what is refused, what is never shown. With a real server and real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

from journal_events import note, notes
from journal_places import SchemaPlace, nothing, opened
from proxies import CuttingProxy

from postgres_server import PostgresServer, connect
from treadle import open_journal
from treadle.errors import ConfigurationError, JournalError, SessionConflict, SessionHeld
from treadle.events import ContextCompacted, SessionChanged
from treadle.journals.backend import append_of
from treadle.journals.postgres import Acts, PostgresJournal, Transaction, open_postgres
from treadle.state import LeftCancellation

StartChild = Callable[..., Any]
RunChild = Callable[..., list[str]]

SHORT = 0.5
"""A lease for tests that wait for its end, in seconds."""


def shown(exc: BaseException) -> str:
    """Return all that a traceback would show."""
    return "".join(traceback.format_exception(exc))


# --- what a purge costs ----------------------------------------------------------------------------------------------


def test_a_purge_reads_as_many_events_however_many_other_sessions_there_are(postgres: PostgresServer):
    own = [b"%d" % number for number in range(20)]

    def events_read(others: int) -> int:
        url = postgres.new_url()

        async def fill() -> list[str]:
            async with opened(url) as journal:
                named = [await journal.put_blob(content) for content in own]
                await journal.create("s")
                event = ContextCompacted(seq=1, at=1.0, artifacts=tuple(named))
                await journal.append("s", [event], state="completed", durable=True)
                return named

        named = asyncio.run(fill())
        tombstone = SessionChanged(session_id="s", seq=1, at=0.0, status="deleted")
        with connect(url) as connection, connection.transaction(force_rollback=True):
            connection.execute(
                "INSERT INTO event (session_id, epoch, seq, at, type, version, body) "
                "SELECT 'other-' || number, 0, 1, 0, 'tool.finished', 1, "
                """'{"result":{"artifact":"' || md5(number::text) || md5('x' || number) || '"},"rest":"\\u0000"}' """
                "FROM generate_series(1, %s) AS number",
                (others,),
            )
            Acts(Transaction(), 10.0, 1.0).purge(connection, append_of("s", [tombstone], "deleted"), named)()
            assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
            row = connection.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'event'::regclass"
            ).fetchone()
            assert row is not None
            return int(row[0])

    few, many = events_read(2_000), events_read(20_000)
    assert many <= few + 20


# --- what survives ---------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_over_a_crash_of_the_server_and_loses_nothing(server: PostgresServer, url: str):
    names = [f"s{number}" for number in range(5)]
    under_way = asyncio.Event()

    async def live(journal: PostgresJournal, name: str) -> None:
        await journal.create(name)
        for seq in range(1, 301):
            await journal.append(name, [note(seq, name)], state="running", durable=True)
            if seq == 50:
                under_way.set()

    async with opened(url, patience_seconds=60) as journal:
        living = asyncio.gather(*(live(journal, name) for name in names))
        await under_way.wait()
        await asyncio.to_thread(server.crash)
        await asyncio.to_thread(server.restart)
        await living

        for name in names:
            assert await journal.read(name) == tuple(note(seq, name) for seq in range(1, 301))


async def test_a_server_that_stays_away_is_told_and_the_journal_goes_on_when_it_is_back(
    server: PostgresServer, url: str
):
    async with opened(url, patience_seconds=0.1) as journal:
        await journal.create("s")
        await journal.create("other")
        await journal.append("s", notes(1, 1), state="running", durable=True)
        await asyncio.to_thread(server.crash)
        try:
            with pytest.raises(JournalError, match="cannot be reached"):
                await journal.append("s", notes(2, 2), state="running", durable=True)
            with pytest.raises(JournalError, match="cannot be reached"):
                await journal.inbox("s")
            with pytest.raises(JournalError, match="cannot be reached"):
                await open_postgres(url)
            await journal.append("other", notes(1, 1), state="running", durable=False)
            with pytest.raises(JournalError, match="cannot be reached"):
                await journal.flush()
        finally:
            await asyncio.to_thread(server.restart)

        await journal.append("s", notes(2, 2), state="running", durable=True)
        assert await journal.read("s") == notes(1, 2)
        assert await journal.read("other") == ()


async def test_a_commit_whose_answer_was_lost_is_stored_exactly_once(server: PostgresServer, url: str):
    async with CuttingProxy(server.folder) as proxy, opened(proxy.url(url), patience_seconds=60) as journal:
        proxy.cuts_left = 1
        await journal.create("s")
        proxy.cuts_left = 1
        lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
        proxy.cuts_left = 1
        await journal.append("s", notes(1, 2), state="running", durable=True)
        await journal.append("s", notes(3, 3), state="running", durable=False)
        proxy.cuts_left = 1
        await journal.flush()
        proxy.cuts_left = 1
        await journal.adopt("child", notes(1, 2), state="stopped")
        proxy.cuts_left = 1
        assert await journal.put("s", LeftCancellation(id="m")) is True
        assert await journal.put("s", LeftCancellation(id="m")) is False
        await journal.append("s", notes(4, 4), state="running", durable=True)
        await lease.release()
        assert proxy.cuts >= 5  # the deferred append may have been answered before

    assert await SchemaPlace(url).stored() == notes(1, 4)
    assert await SchemaPlace(url).stored("child") == notes(1, 2)


async def test_another_writer_in_the_place_of_a_lost_answer_fences(server: PostgresServer, url: str):
    async with CuttingProxy(server.folder) as proxy, opened(proxy.url(url), patience_seconds=60) as journal:
        await journal.create("s")
        await journal.flush()
        async with opened(url) as other:
            await other.append("s", [note(1, "theirs")], state="running", durable=True)
        proxy.cuts_left = 1
        with pytest.raises(SessionConflict, match="is at event 1"):
            await journal.append("s", [note(1, "ours")], state="running", durable=True)
    assert await SchemaPlace(url).stored() == (note(1, "theirs"),)


async def test_connections_that_the_server_ends_are_made_anew(url: str):
    async with opened(url) as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 1), state="running", durable=True)
        assert await journal.read("s") == notes(1, 1)
        with connect(url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'treadle'"
            )
        await journal.append("s", notes(2, 2), state="running", durable=True)
        assert await journal.read("s") == notes(1, 2)


# --- several writers -------------------------------------------------------------------------------------------------


async def test_several_journals_live_in_one_database(server: PostgresServer):
    async with opened(server.new_url()) as one, opened(server.new_url()) as two:
        await one.create("s")
        assert [len(await one.sessions()), len(await two.sessions())] == [1, 0]


# --- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("SF5")
async def test_a_session_held_by_a_living_process_is_refused_and_says_by_whom(url: str, start_child: StartChild):
    child = start_child("hold", url, 10)
    assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
    async with opened(url, lease_seconds=SHORT) as journal:
        with pytest.raises(SessionHeld, match=rf"is being run by process {child.pid} on .+, since 20"):
            await journal.acquire("s", on_lost=nothing, on_message=nothing)


@pytest.mark.row("SF5")
async def test_a_process_that_slept_past_its_lease_can_write_nothing_any_more(url: str, start_child: StartChild):
    child = start_child("hold", url, SHORT)
    assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
    os.kill(child.pid, signal.SIGSTOP)
    async with opened(url) as journal:
        await journal.create("s")
        await journal.acquire("s", on_lost=nothing, on_message=nothing)
        await journal.append("s", [note(2, "theirs")], state="running", durable=True)
        os.kill(child.pid, signal.SIGCONT)
        said, complaints = await asyncio.to_thread(child.communicate, "continue\n", 60)

    # Its own clock may tell it first, or its renewal, or the server at the append.
    refused, lost = said.splitlines()
    assert "Nothing was written" in refused
    ways = ("was not renewed for 0.5 s", "has taken the session over", "was taken over by another process")
    assert any(way in refused for way in ways), refused
    assert lost == "lost"
    assert child.returncode == 0, complaints
    assert await SchemaPlace(url).stored() == (*notes(1, 1), note(2, "theirs"))


async def test_a_lease_that_has_ended_fences_even_when_nobody_took_over(url: str):
    async with opened(url) as journal:
        await journal.create("s")
        lost = asyncio.Event()
        lease = await journal.acquire("s", on_lost=lost.set, on_message=nothing)
        with connect(url) as connection:
            connection.execute("UPDATE session SET lease_until = clock_timestamp() - interval '1s'")
        with pytest.raises(SessionConflict, match=r"lease on session 's' has expired.*resume the session"):
            await journal.append("s", notes(1, 1), state="running", durable=True)
        await lost.wait()
        await lease.release()
        again = await journal.acquire("s", on_lost=nothing, on_message=nothing)
        await journal.append("s", notes(1, 1), state="running", durable=True)
        await again.release()


async def test_whoever_holds_a_session_hears_of_messages_from_elsewhere(url: str):
    async with opened(url) as journal, opened(url) as other:
        await journal.create("s")
        arrived = asyncio.Event()
        lease = await journal.acquire("s", on_lost=nothing, on_message=arrived.set)
        await other.put("s", LeftCancellation(id="m"))
        await arrived.wait()
        await lease.release()


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/treadle:hunter2@db/agents",
        "postgresql://treadle:hun@ter2@db/agents",
        "postgresql://treadle:hunter2/x@db/agents",
        "postgresql://treadle:hunter2@db:port/agents",
        "postgresql://treadle:hunter2@[::1/agents",
        "postgresql://treadle:hunter2@db/agents?colour=blue",
        "postgresql://treadle:hunter2%@db/agents",
        "postgresql://treadle:hunter2\0@db/agents",
    ],
)
async def test_an_address_that_is_none_is_refused_without_showing_it(url: str):
    with pytest.raises(ConfigurationError, match="not a PostgreSQL URL") as refusal:
        await open_journal(url)
    for secret in ("hun", "ter2"):
        assert secret not in str(refusal.value)


async def test_a_password_is_never_shown(server: PostgresServer):
    wrong = "wr0ng/but s3cret"
    url = server.url("public", password=wrong)
    journal = PostgresJournal(url)
    assert journal.location == f"postgresql://treadle@/postgres?host={server.folder}&options=-csearch_path%3Dpublic"
    with pytest.raises(JournalError, match=r"cannot be reached.*password authentication failed") as refusal:
        await journal.sessions()
    await journal.close()
    for said in (shown(refusal.value), repr(journal), repr(vars(vars(journal)["_backend"])["address"])):
        assert wrong not in said
        assert "s3cret" not in said


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://a:b@db.example:6543/agents", "postgresql://a@db.example:6543/agents"),
        ("postgres://a@one,two:1/x?sslmode=require&sslpassword=p", "postgresql://a@one,two:1/x"),
        ("postgresql://a:b@[::1]:5/x", "postgresql://a@[::1]:5/x"),
        ("postgresql:///x?user=a&password=b", "postgresql://a@/x"),
        ("postgresql://a:b@h/x?options=-csearch_path%3Da%2Cb", "postgresql://a@h/x?options=-csearch_path%3Da%2Cb"),
    ],
)
async def test_a_location_names_the_place_alone(url: str, location: str):
    journal = PostgresJournal(url)
    assert journal.location == location
    await journal.close()


async def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path):
    with pytest.raises(JournalError, match="cannot be reached"):
        await open_journal(f"postgresql://a:hunter2@/x?host={tmp_path}")


def test_a_missing_driver_is_told_with_what_to_install():
    code = (
        "import asyncio, sys; sys.modules['psycopg'] = None; import treadle\n"
        "try: asyncio.run(treadle.open_journal('postgresql://a:hunter2@db/x'))\n"
        "except treadle.ConfigurationError as exc: print(exc)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'psycopg[binary]'" in said.stdout, said.stderr
    assert "hunter2" not in said.stdout


async def test_tables_of_another_program_are_left_alone(url: str):
    with connect(url) as connection:
        connection.execute("CREATE TABLE session (theirs integer)")
        with pytest.raises(JournalError, match="another program"):
            await open_postgres(url)
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        )
        assert tables.fetchall() == [("session",)]


async def test_a_schema_that_is_not_there_is_told(server: PostgresServer):
    with pytest.raises(JournalError, match="names no schema"):
        await open_postgres(server.url("nowhere"))


async def test_a_database_that_lacks_characters_is_refused(server: PostgresServer):
    with server.connect("public") as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(JournalError, match="encoded as LATIN1"):
        await open_postgres(server.url("public").replace("/postgres?", "/latin?"))


@pytest.mark.row("SF4")
async def test_a_role_that_may_not_write_is_told(url: str):
    async with opened(url) as journal:
        await journal.create("s")
    async with opened(f"{url}%20-cdefault_transaction_read_only%3Don") as reader:
        assert [info.id for info in await reader.sessions()] == ["s"]
        with pytest.raises(JournalError, match="does not accept writes"):
            await reader.append("s", notes(1, 1), state="running", durable=True)


@pytest.mark.row("SF4")
async def test_a_role_without_rights_is_told(server: PostgresServer, url: str):
    with connect(url) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
        schema = connection.execute("SELECT current_schema()").fetchone()[0]
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO guest")
    guest = server.url(schema, password="guest").replace("treadle:", "guest:")
    with pytest.raises(JournalError, match="role may not use"):
        await open_postgres(guest)


@pytest.mark.row("SF4")
async def test_a_schema_that_the_role_may_not_use_is_told_apart_from_one_that_is_not_there(
    server: PostgresServer, url: str
):
    with connect(url) as connection:
        connection.execute("CREATE ROLE outsider LOGIN PASSWORD 'outsider'")
        schema = connection.execute("SELECT current_schema()").fetchone()[0]
    outsider = server.url(schema, password="outsider").replace("treadle:", "outsider:")
    with pytest.raises(JournalError, match=r"or none that this role may use.*GRANT USAGE"):
        await open_postgres(outsider)
