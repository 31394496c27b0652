"""The journal in PostgreSQL: what survives, what is refused, what is never shown. With a real server and real processes."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

import psycopg
from cutting_proxy import CuttingProxy
from journal_events import note, notes

from postgres_server import PASSWORD, PostgresServer, connect
from treadle import Agent, open_journal, open_session, tool
from treadle.errors import ConfigurationError, JournalError, SessionConflict, SessionHeld
from treadle.events import AnyEvent, ContextCompacted, SessionChanged
from treadle.journals.postgres import PostgresJournal, open_postgres, statements
from treadle.journals.postgres.link import VERSION
from treadle.journals.store import append_of
from treadle.state import LeftCancellation, LeftMessage
from treadle.testing import ScriptedModel, Turn, call, text

StartChild = Callable[..., subprocess.Popen[str]]
RunChild = Callable[..., list[str]]

SHORT = 0.5
"""A lease for tests that wait for its end, in seconds."""


def nothing() -> None:
    """Notice nothing."""


@asynccontextmanager
async def opened(url: str, **words: float) -> AsyncIterator[PostgresJournal]:
    journal = await open_postgres(url, **words)
    try:
        yield journal
    finally:
        await journal.close()


async def stored(url: str, session_id: str = "s") -> tuple[AnyEvent, ...]:
    async with opened(url) as journal:
        return tuple(await journal.read(session_id))


@contextmanager
def locked(url: str, session_id: str) -> Iterator[None]:
    """Keep one session's row, so that the writer waits at it and what follows becomes one group."""
    with connect(url) as connection, connection.transaction():
        connection.execute("SELECT FROM session WHERE id = %s FOR UPDATE", (session_id,))
        yield


@contextmanager
def one_group(url: str) -> Iterator[Callable[[PostgresJournal], "asyncio.Task[None]"]]:
    """Give what starts an append that waits until the end of this; whatever is queued after it becomes one group."""
    with locked(url, "plug"):
        yield lambda journal: asyncio.create_task(journal.append("plug", notes(1, 1), state="running", durable=True))


async def wait_until_locked_out(url: str) -> None:
    """Return once somebody waits for a lock."""
    with connect(url) as connection:
        while connection.execute("SELECT FROM pg_locks WHERE NOT granted").fetchone() is None:
            await asyncio.sleep(0)


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
            statements.purge(connection, append_of("s", [tombstone], "deleted"), named)()
            assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
            row = connection.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'event'::regclass"
            ).fetchone()
            assert row is not None
            return int(row[0])

    few, many = events_read(2_000), events_read(20_000)
    assert many <= few + 20


# --- what survives ---------------------------------------------------------------------------------------------------


def test_kill_9_after_a_durable_append_loses_nothing(url: str, start_child: StartChild):
    acknowledged = 0
    for goal in (1, 7, 40):
        child = start_child("append_for_ever", url)
        assert child.stdout is not None
        for _ in range(goal):
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split("\n")[:-1]  # said before it died
        acknowledged = int(rest[-1]) if rest else acknowledged
        child.wait()

        events = asyncio.run(stored(url))

        assert len(events) >= acknowledged
        assert events == notes(1, len(events))


async def test_what_is_durable_survives_the_crash_of_the_server(server: PostgresServer, url: str):
    async with opened(url, patience_seconds=60) as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 3), state="running", durable=False)
        await journal.append("s", notes(4, 4), state="running", durable=True)
        await asyncio.to_thread(server.crash)
        await asyncio.to_thread(server.restart)

        assert await journal.read("s") == notes(1, 4)
        await journal.append("s", notes(5, 5), state="running", durable=True)

    assert await stored(url) == notes(1, 5)


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
    async with CuttingProxy(server.folder) as proxy, opened(f"{url}&port=5433", patience_seconds=60) as journal:
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

    assert await stored(url) == notes(1, 4)
    assert await stored(url, "child") == notes(1, 2)


async def test_another_writer_in_the_place_of_a_lost_answer_fences(server: PostgresServer, url: str):
    async with CuttingProxy(server.folder) as proxy, opened(f"{url}&port=5433", patience_seconds=60) as journal:
        await journal.create("s")
        await journal.flush()
        async with opened(url) as other:
            await other.append("s", [note(1, "theirs")], state="running", durable=True)
        proxy.cuts_left = 1
        with pytest.raises(SessionConflict, match="is at event 1"):
            await journal.append("s", [note(1, "ours")], state="running", durable=True)
    assert await stored(url) == (note(1, "theirs"),)


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


def test_an_unclosed_journal_stores_what_is_queued_when_its_process_ends(url: str, run_child: RunChild):
    run_child("leave", url)
    assert asyncio.run(stored(url)) == notes(1, 200)


async def test_a_journal_that_nobody_reaches_any_more_stores_what_is_queued_and_ends_its_threads(url: str):
    before = set(threading.enumerate())
    journal = await open_postgres(url)
    await journal.create("s")
    await journal.acquire("s", on_lost=nothing, on_message=nothing)
    await journal.append("s", notes(1, 2), state="running", durable=False)
    started = set(threading.enumerate()) - before

    del journal
    gc.collect()
    for thread in started:
        await asyncio.to_thread(thread.join, 60)

    assert not any(thread.is_alive() for thread in started)
    assert await stored(url) == notes(1, 2)


def test_one_journal_serves_one_event_loop_after_another(url: str):
    journal = PostgresJournal(url)
    asyncio.run(journal.create("s"))
    asyncio.run(journal.append("s", notes(1, 1), state="running", durable=False))
    assert asyncio.run(journal.read("s")) == notes(1, 1)
    asyncio.run(journal.close())


async def test_an_append_whose_task_is_cancelled_is_stored(url: str):
    async with opened(url, busy_seconds=60) as journal:
        await journal.create("s")
        with locked(url, "s"):
            waiting = asyncio.create_task(journal.append("s", notes(1, 1), state="running", durable=True))
            await wait_until_locked_out(url)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await journal.read("s") == notes(1, 1)


@pytest.mark.row("SF8")
async def test_a_session_of_ten_thousand_events_is_read_whole(url: str):
    async with opened(url) as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 10_000), state="completed", durable=True)
    assert await stored(url) == notes(1, 10_000)


# --- several writers -------------------------------------------------------------------------------------------------


async def test_a_fenced_append_fails_alone_in_a_group(url: str):
    async with opened(url, busy_seconds=60) as journal:
        for name in ("plug", "s", "other", "third"):
            await journal.create(name)
        with one_group(url) as plug:
            plugged = plug(journal)
            await wait_until_locked_out(url)
            appends = [("other", notes(1, 2)), ("s", notes(5, 6)), ("third", notes(1, 1)), ("s", notes(1, 1))]
            waiting = asyncio.gather(
                *(journal.append(name, events, state="running", durable=True) for name, events in appends),
                return_exceptions=True,
            )
            await asyncio.sleep(0)  # they are queued
        outcomes = await waiting
        await plugged

        assert [type(outcome) for outcome in outcomes] == [type(None), SessionConflict, type(None), type(None)]
        assert [len(await journal.read(name)) for name in ("s", "other", "third")] == [1, 2, 1]


async def test_what_cannot_be_stored_fails_alone_in_a_group(url: str):
    async with opened(url, busy_seconds=60) as journal:
        for name in ("plug", "s", "other"):
            await journal.create(name)
        with one_group(url) as plug:
            plugged = plug(journal)
            await wait_until_locked_out(url)
            waiting = asyncio.gather(
                journal.append("other", notes(1, 2), state="running", durable=True),
                journal.put("other", LeftMessage(id="a\0b")),
                journal.put("other", LeftMessage(id="\ud800")),
                journal.consume("other", ["m"], 2**70),
                journal.append("s", notes(1, 1), state="run\0ning", durable=True),
                journal.append("s", notes(1, 1), state="running", durable=True),
                return_exceptions=True,
            )
            await asyncio.sleep(0)
        outcomes = await waiting
        await plugged

        assert [type(outcome) for outcome in outcomes] == [type(None), *[JournalError] * 4, type(None)]
        assert all("cannot store this" in str(outcome) for outcome in outcomes[1:5])
        assert await journal.read("s") == notes(1, 1)
        assert await journal.read("other") == notes(1, 2)


async def test_two_journals_on_one_schema_fence_each_other(url: str):
    async with opened(url) as one, opened(url) as two:
        assert (await one.create("s"), await two.create("s")) == (True, False)
        await one.append("s", notes(1, 2), state="running", durable=False)
        await one.flush()

        assert await two.read("s") == notes(1, 2)
        with pytest.raises(SessionConflict):
            await two.append("s", notes(1, 1), state="running", durable=True)
        await two.append("s", notes(3, 3), state="running", durable=True)
        with pytest.raises(SessionConflict, match="is at event 3"):
            await one.append("s", notes(3, 3), state="running", durable=True)
        assert await one.read("s") == notes(1, 3)


def test_many_processes_make_and_share_one_schema(url: str, start_child: StartChild):
    children = [start_child("write_session", url, f"s{number}", 40) for number in range(4)]
    for child in children:
        _, complaints = child.communicate(timeout=100)
        assert child.returncode == 0, complaints

    async def read() -> list[int]:
        async with opened(url) as journal:
            return [len(await journal.read(f"s{number}")) for number in range(4)]

    assert asyncio.run(read()) == [40, 40, 40, 40]


@pytest.mark.row("N12")
def test_a_fork_uses_the_journal_beside_its_parent_and_has_none_of_its_leases(url: str, run_child: RunChild):
    said = run_child("fork", url)
    assert "is run by the process that this one was forked from" in said[0]
    assert said[1:] == ["held", "child 0", "parent 1 1"]


async def test_several_journals_live_in_one_database(server: PostgresServer):
    async with opened(server.new_url()) as one, opened(server.new_url()) as two:
        await one.create("s")
        assert [len(await one.sessions()), len(await two.sessions())] == [1, 0]


# --- appends that nobody waits for -----------------------------------------------------------------------------------


async def test_after_a_deferred_append_failed_nothing_follows_until_the_session_is_opened_anew(url: str):
    async with opened(url, busy_seconds=60) as journal:
        for name in ("plug", "s", "other"):
            await journal.create(name)
        with one_group(url) as plug:
            plugged = plug(journal)
            await wait_until_locked_out(url)
            for seq in (1, 5, 2):
                await journal.append("s", notes(seq, seq), state="running", durable=False)
        await plugged

        with pytest.raises(JournalError, match=r"could not be stored.*is at event 1"):
            await journal.flush()
        await journal.flush()  # told once
        with pytest.raises(SessionConflict, match="is at event 1"):
            await journal.append("s", notes(2, 2), state="running", durable=False)
        await journal.append("other", notes(1, 1), state="running", durable=True)
        assert await journal.read("s") == notes(1, 1)

        await journal.create("s")
        await journal.append("s", notes(2, 2), state="running", durable=True)
        assert await journal.read("s") == notes(1, 2)


async def test_closing_tells_of_a_deferred_append_that_failed(url: str):
    journal = await open_postgres(url)
    await journal.create("s")
    await journal.append("s", notes(2, 2), state="running", durable=False)
    with pytest.raises(JournalError, match="could not be stored"):
        await journal.close()
    await journal.close()


async def test_more_appends_than_may_wait_are_all_stored_in_order(url: str):
    async with opened(url) as journal:
        await journal.create("s")
        for seq in range(1, 1001):
            await journal.append("s", [note(seq)], state="running", durable=False)
        assert await journal.read("s") == notes(1, 1000)


# --- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("SF5")
async def test_a_session_held_by_a_living_process_is_refused_and_says_by_whom(url: str, start_child: StartChild):
    child = start_child("hold", url, 10)
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
    async with opened(url, lease_seconds=SHORT) as journal:
        with pytest.raises(SessionHeld, match=rf"is being run by process {child.pid} on .+, since 20"):
            await journal.acquire("s", on_lost=nothing, on_message=nothing)


@pytest.mark.row("SF5")
async def test_a_killed_holder_is_followed_when_its_lease_has_ended(url: str, start_child: StartChild):
    child = start_child("hold", url, SHORT)
    assert child.stdout is not None
    assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
    child.kill()
    async with opened(url) as journal:
        await journal.create("s")
        lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
        await journal.append("s", notes(2, 2), state="running", durable=True)
        await lease.release()
    assert await stored(url) == notes(1, 2)


@pytest.mark.row("SF5")
async def test_a_process_that_slept_past_its_lease_can_write_nothing_any_more(url: str, start_child: StartChild):
    child = start_child("hold", url, SHORT)
    assert child.stdout is not None
    assert child.stdin is not None
    assert await asyncio.to_thread(child.stdout.readline) == "holds\n"
    os.kill(child.pid, signal.SIGSTOP)
    async with opened(url) as journal:
        await journal.create("s")
        await journal.acquire("s", on_lost=nothing, on_message=nothing)
        await journal.append("s", [note(2, "theirs")], state="running", durable=True)
        os.kill(child.pid, signal.SIGCONT)
        said, complaints = await asyncio.to_thread(child.communicate, "continue\n", 60)

    # Its own clock may tell it first, or the server.
    refused, lost = said.splitlines()
    assert "Nothing was written" in refused
    assert ("was taken over by another process" in refused) or ("was not renewed for 0.5 s" in refused)
    assert lost == "lost"
    assert child.returncode == 0, complaints
    assert await stored(url) == (*notes(1, 1), note(2, "theirs"))


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


async def test_a_server_that_is_away_for_a_lease_loses_it(server: PostgresServer, url: str):
    async with opened(url, lease_seconds=SHORT, patience_seconds=0.0) as journal:
        await journal.create("s")
        lost = asyncio.Event()
        await journal.acquire("s", on_lost=lost.set, on_message=nothing)
        await asyncio.to_thread(server.crash)
        try:
            await lost.wait()
        finally:
            await asyncio.to_thread(server.restart)


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
    for said in (shown(refusal.value), repr(journal), repr(vars(vars(journal)["_backend"])["_address"])):
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


@pytest.mark.row("SF3")
async def test_a_newer_journal_is_refused_with_what_to_do(server: PostgresServer):
    url = server.new_url()
    async with opened(url) as journal:
        await journal.create("s")
    with connect(url) as connection:
        connection.execute("UPDATE treadle_journal SET version = 7")
    with pytest.raises(JournalError, match=rf"newer Treadle \(schema 7; this one knows {VERSION}\)"):
        await open_postgres(url)


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


@pytest.mark.row("SF2")
async def test_a_locked_table_is_told_after_a_bounded_wait_and_the_journal_goes_on(url: str):
    async with opened(url, busy_seconds=0.05) as journal:
        await journal.create("s")
        with locked(url, "s"):
            with pytest.raises(JournalError, match="locked"):
                await journal.append("s", notes(1, 1), state="running", durable=True)
            assert await journal.read("s") == ()  # readers never wait for writers
        await journal.append("s", notes(1, 1), state="running", durable=True)
        assert await journal.read("s") == notes(1, 1)


@pytest.mark.row("Q02")
async def test_events_are_neither_changed_nor_removed_unless_their_session_is_deleted(url: str):
    async with opened(url) as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 3), state="completed", durable=True)
    with connect(url) as connection:
        for statement in ("UPDATE event SET body = '{}'", "DELETE FROM event WHERE seq = 3", "TRUNCATE event"):
            with pytest.raises(psycopg.IntegrityError, match="append-only"):
                connection.execute(statement)
        connection.execute("UPDATE session SET state = 'deleted'")
        assert connection.execute("DELETE FROM event").rowcount == 3


@pytest.mark.row("SF3")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("UPDATE event SET body = 'no json' WHERE seq = 2", "Event 2 of session 's' cannot be read"),
        ("DELETE FROM event WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM event WHERE seq = 3", "event 3 is missing"),
        ("DROP TABLE event", "tables of the journal"),
    ],
)
async def test_damage_is_told(url: str, damage: str, complaint: str):
    async with opened(url) as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 3), state="completed", durable=True)
        with connect(url) as connection:
            connection.execute("DROP FUNCTION event_is_append_only CASCADE")
            connection.execute(damage)
        with pytest.raises(JournalError, match=complaint):
            await journal.read("s")


async def test_damaged_bytes_are_told(url: str):
    async with opened(url) as journal:
        digest = await journal.put_blob(b"kept")
        with connect(url) as connection:
            connection.execute("UPDATE blob SET bytes = 'other'")
        with pytest.raises(JournalError, match="damaged"):
            await journal.blob(digest)


# --- the face --------------------------------------------------------------------------------------------------------


async def test_a_session_is_opened_by_the_address_of_its_journal(url: str):
    async with open_session(url, id="s") as session:
        assert session.id == "s"
    journal = await open_journal(url)
    assert isinstance(journal, PostgresJournal)
    assert PASSWORD not in journal.location
    assert [info.id for info in await journal.sessions()] == ["s"]
    await journal.close()


@pytest.mark.row("Q01", "Q15")
async def test_a_run_is_journaled_and_goes_on_in_another_journal(url: str):
    paid: list[int] = []

    @tool(effect="unsafe")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    def agent(*turns: Turn) -> Agent:
        return Agent(model=ScriptedModel(list(turns)), tools=[pay])

    async with open_session(url, id="s") as session:
        result = await agent(call("pay", amount=3)).run("Pay the rent.", session=session)
        assert (result.reason, paid) == ("approval_required", [])
    async with open_session(url, id="s") as session:
        [approval] = session.approvals()
        await session.answer(approval.id, "allow")
    async with open_session(url, id="s") as session:
        result = await agent(text("Paid.")).resume(session)

    assert (result.reason, result.text, paid) == ("completed", "Paid.", [3])
