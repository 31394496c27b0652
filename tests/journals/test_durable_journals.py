"""What journals in SQLite and in PostgreSQL promise alike: what survives, who may write, what is refused. With real processes."""

import asyncio
import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

from journal_events import note, notes
from journal_places import FilePlace, Place

from treadle.errors import JournalError, SessionConflict
from treadle.events import AnyEvent, BudgetReached, RunFinished
from treadle.state import LeftMessage

StartChild = Callable[..., Any]
RunChild = Callable[..., list[str]]

NOTHING = type(None)


@pytest.fixture
def place(durable_place: Place) -> Place:
    return durable_place


# --- what survives ---------------------------------------------------------------------------------------------------


def test_kill_9_after_a_durable_append_loses_nothing(place: Place, start_child: StartChild):
    acknowledged = 0
    for goal in (1, 40):
        child = start_child("append_for_ever", place.address)
        for _ in range(goal):
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split("\n")[:-1]  # said before it died
        acknowledged = int(rest[-1]) if rest else acknowledged
        child.wait()

        events = asyncio.run(place.stored())

        assert len(events) >= acknowledged
        assert events == notes(1, len(events))


def test_an_unclosed_journal_stores_what_is_queued_when_its_process_ends(place: Place, run_child: RunChild):
    run_child("leave", place.address)
    assert asyncio.run(place.stored()) == notes(1, 200)


async def test_a_journal_that_nobody_reaches_any_more_stores_what_is_queued_and_ends_its_threads(place: Place):
    before = set(threading.enumerate())
    journal = await place.open()
    await journal.create("s")
    if not isinstance(place, FilePlace):  # a lease on a file lasts as long as its process
        await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
    await journal.append("s", notes(1, 2), state="running", durable=False)
    started = set(threading.enumerate()) - before

    del journal
    gc.collect()
    for thread in started:
        await asyncio.to_thread(thread.join, 60)

    assert not any(thread.is_alive() for thread in started)
    assert await place.stored() == notes(1, 2)


def test_one_journal_serves_one_event_loop_after_another(place: Place):
    journal = asyncio.run(place.open())
    asyncio.run(journal.create("s"))
    asyncio.run(journal.append("s", notes(1, 1), state="running", durable=False))
    assert asyncio.run(journal.read("s")) == notes(1, 1)
    asyncio.run(journal.close())


async def test_an_append_whose_task_is_cancelled_is_stored(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        await journal.create("s")
        async with place.one_group(journal):
            waiting = asyncio.create_task(journal.append("s", notes(1, 1), state="running", durable=True))
            await asyncio.sleep(0)  # the append is queued and cannot end
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await journal.read("s") == notes(1, 1)


@pytest.mark.row("SF8")
async def test_a_session_of_ten_thousand_events_is_read_whole(place: Place):
    await place.store(notes(1, 10_000))
    assert await place.stored() == notes(1, 10_000)


# --- several writers -------------------------------------------------------------------------------------------------


async def test_appends_of_one_group_that_follow_are_stored_and_those_that_do_not_fail_alone(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        for name in ("s", "t", "other"):
            await journal.create(name)
        firsts = (1, 2, 9, 3, 4, 4, 5)  # a gap, and a number that comes twice
        async with place.one_group(journal):
            waiting = asyncio.gather(
                journal.append("other", notes(1, 2), state="running", durable=True),
                *(
                    journal.append(session_id, [note(seq)], state=f"after {seq}", durable=True)
                    for seq in firsts
                    for session_id in ("s", "t")
                ),
                return_exceptions=True,
            )
            await asyncio.sleep(0)
        outcomes = await waiting

        expected = [NOTHING, NOTHING, SessionConflict, NOTHING, NOTHING, SessionConflict, NOTHING]
        assert [type(outcome) for outcome in outcomes[1::2]] == expected
        assert [type(outcome) for outcome in outcomes[2::2]] == expected
        infos = {info.id: (info.head, info.run_status) for info in await journal.sessions()}
        assert (infos["s"], infos["t"], infos["other"]) == ((5, "after 5"), (5, "after 5"), (2, "running"))
        assert await journal.read("s") == await journal.read("t") == notes(1, 5)


async def test_what_removes_a_session_in_a_group_removes_all_that_came_before_it(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        await journal.create("s")
        async with place.one_group(journal):
            waiting = asyncio.gather(
                *(journal.append("s", [note(seq)], state="running", durable=True) for seq in (1, 2, 3)),
                journal.purge("s", note(1, "gone")),
                *(journal.append("s", [note(seq)], state="running", durable=True) for seq in (2, 3)),
            )
            await asyncio.sleep(0)
        await waiting
        assert await journal.read("s") == (note(1, "gone"), note(2), note(3))


async def test_what_cannot_be_stored_fails_alone_in_a_group(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        for name in ("s", "other"):
            await journal.create(name)
        is_file = isinstance(place, FilePlace)  # a file takes a zero in a text
        async with place.one_group(journal):
            waiting = asyncio.gather(
                journal.append("other", notes(1, 2), state="running", durable=True),
                journal.put("other", LeftMessage(id="\ud800")),
                journal.consume("other", ["m"], 2**70),
                journal.append("s", [note(2**70, at=1.0)] if is_file else notes(1, 1), state="run\0ning", durable=True),
                journal.append("s", notes(1, 1), state="running", durable=True),
                return_exceptions=True,
            )
            await asyncio.sleep(0)
        outcomes = await waiting

        assert [type(outcome) for outcome in outcomes] == [NOTHING, *[JournalError] * 3, NOTHING]
        assert all("cannot store" in str(outcome) for outcome in outcomes[1:4])
        assert await journal.read("s") == notes(1, 1)
        assert await journal.read("other") == notes(1, 2)


async def test_two_journals_in_one_place_fence_each_other(place: Place):
    async with place.opened() as one, place.opened() as two:
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


async def test_a_session_that_has_changed_hands_takes_no_append_of_its_former_writer(place: Place):
    async with place.opened() as journal:
        await journal.create("s")
        await journal.append("s", notes(1, 1), state="running", durable=True)
        place.run("UPDATE session SET epoch = epoch + 1")

        with pytest.raises(SessionConflict, match="taken over"):
            await journal.append("s", notes(2, 2), state="running", durable=True)
        await journal.create("s")  # opened anew
        await journal.append("s", notes(2, 2), state="running", durable=True)

        assert await journal.read("s") == notes(1, 2)
        assert place.run("SELECT epoch FROM event ORDER BY seq") == [(0,), (1,)]


def test_many_processes_make_and_share_one_place(place: Place, start_child: StartChild):
    children = [start_child("write_session", place.address, f"s{number}", 40) for number in range(3)]
    for child in children:
        _, complaints = child.communicate(timeout=100)
        assert child.returncode == 0, complaints

    async def read() -> list[int]:
        async with place.opened() as journal:
            return [len(await journal.read(f"s{number}")) for number in range(3)]

    assert asyncio.run(read()) == [40] * 3


@pytest.mark.row("N12")
def test_a_fork_uses_the_journal_beside_its_parent_and_has_none_of_its_leases(place: Place, run_child: RunChild):
    said = run_child("fork", place.address)
    assert "is run by the process that this one was forked from" in said[0]
    assert said[1:] == ["held", "child 0", "parent 1 1"]


# --- appends that nobody waits for -----------------------------------------------------------------------------------


async def test_after_a_deferred_append_failed_nothing_follows_until_the_session_is_opened_anew(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        for name in ("s", "other"):
            await journal.create(name)
        async with place.one_group(journal):
            for seq in (1, 5, 2):
                await journal.append("s", notes(seq, seq), state="running", durable=False)

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


async def test_closing_tells_of_a_deferred_append_that_failed(place: Place):
    journal = await place.open()
    await journal.create("s")
    await journal.append("s", notes(2, 2), state="running", durable=False)
    with pytest.raises(JournalError, match="could not be stored"):
        await journal.close()
    await journal.close()


async def test_more_appends_than_may_wait_are_all_stored_in_order(place: Place):
    async with place.opened(busy_seconds=60) as journal:
        await journal.create("s")

        async def append_all() -> None:
            for seq in range(1, 1001):
                await journal.append("s", [note(seq)], state="running", durable=False)

        async with place.one_group(journal):
            appending = asyncio.create_task(append_all())
            await asyncio.sleep(0)
            assert not appending.done()  # it waits for the store instead of filling the memory
        await appending
        assert await journal.read("s") == notes(1, 1000)


# --- what is refused -------------------------------------------------------------------------------------------------

NOT_JSON = [
    RunFinished(seq=2, at=2.0, reason="completed", status="completed", completed=True, output={"a": "\ud800"}),
    RunFinished(seq=2, at=2.0, reason="completed", status="completed", completed=True, output={"a": object()}),
    RunFinished(seq=2, at=2.0, reason="completed", status="completed", completed=True, output={1, object()}),
    BudgetReached(seq=2, at=2.0, budget="b", used=1, limit=float("inf")),
    note(2, at=float("nan")),
]


@pytest.mark.parametrize("bad", NOT_JSON, ids=["surrogate", "object", "set of objects", "infinity", "no time"])
async def test_an_event_that_could_not_be_read_again_is_refused_at_once(place: Place, bad: AnyEvent):
    async with place.opened() as journal:
        await journal.create("s")
        with pytest.raises(JournalError, match="Event 2"):
            await journal.append("s", [note(1), bad], state="running", durable=False)
        with pytest.raises(JournalError, match="lone surrogate"):
            await journal.put("s", LeftMessage(id="m", text="\ud800"))
        assert await journal.read("s") == ()
        await journal.append("s", notes(1, 1), state="running", durable=True)


@pytest.mark.row("SF3")
async def test_a_newer_journal_is_refused_with_what_to_do(place: Place):
    await place.store(notes(1, 1))
    place.run(place.make_newer)
    with pytest.raises(JournalError, match=r"newer Treadle \(schema 7; this one knows 5\)\. Upgrade Treadle; "):
        await place.open()


@pytest.mark.row("SF2")
async def test_a_locked_store_is_told_after_a_bounded_wait_and_the_journal_goes_on(place: Place):
    async with place.opened(busy_seconds=0.05) as journal:
        await journal.create("s")
        with place.locked():
            with pytest.raises(JournalError, match="locked"):
                await journal.append("s", notes(1, 1), state="running", durable=True)
            assert await journal.read("s") == ()  # readers never wait for writers
        await journal.append("s", notes(1, 1), state="running", durable=True)
        assert await journal.read("s") == notes(1, 1)


@pytest.mark.row("Q02")
async def test_events_are_neither_changed_nor_removed_unless_their_session_is_deleted(place: Place):
    await place.store(notes(1, 3))
    statements = ["UPDATE event SET body = '{}'", "DELETE FROM event", "DELETE FROM event WHERE seq = 3"]
    for statement in statements if isinstance(place, FilePlace) else [*statements, "TRUNCATE event"]:
        with pytest.raises(place.refuses, match="append-only"):
            place.run(statement)
    place.run("UPDATE session SET state = 'deleted' WHERE id = 's'", "DELETE FROM event WHERE session_id = 's'")
    assert place.run("SELECT count(*) FROM event") == [(0,)]


@pytest.mark.row("SF3")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ('UPDATE event SET body = \'{"type": "brain.melted", "seq": 2}\' WHERE seq = 2', "newer Treadle wrote it"),
        ("UPDATE event SET body = 'no json' WHERE seq = 2", "Event 2 of session 's' cannot be read"),
        ("UPDATE event SET body = replace(body, '\"seq\":2', '\"seq\":9') WHERE seq = 2", "says that it is number 9"),
        ("DELETE FROM event WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM event WHERE seq = 3", "event 3 is missing"),
        ("DROP TABLE event", "tables of the journal|no such table: event"),
    ],
)
async def test_a_damaged_event_is_told_with_its_number(place: Place, damage: str, complaint: str):
    await place.store(notes(1, 3))
    async with place.opened() as journal:
        place.run(*place.unguard, damage)
        with pytest.raises(JournalError, match=complaint):
            await journal.read("s")


async def test_damaged_bytes_are_told(place: Place):
    async with place.opened() as journal:
        digest = await journal.put_blob(b"kept")
        place.run(place.damage_blobs)
        with pytest.raises(JournalError, match="damaged"):
            await journal.blob(digest)
