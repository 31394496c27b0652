"""The journal around a journal, operation by operation: what waits in memory, what is stored later, what is never stored twice."""

import hashlib
from collections.abc import Sequence

import pytest
from journal_events import note, notes
from tests.journals.switchable import Switchable

from treadle import open_session
from treadle.errors import IntentNotStored, JournalError, SessionConflict
from treadle.events import AnyEvent, JournalDegraded, ToolStarted
from treadle.journals.degrading import DegradingJournal
from treadle.journals.memory import MemoryJournal
from treadle.state import LeftMessage
from treadle.testing import FakeClock, FaultyJournal

MESSAGE = LeftMessage(id="m1", text="Hello")


async def degraded(store: Switchable, *, stored: int) -> DegradingJournal:
    """Return a journal whose next event waits, its store on again and left alone for an hour."""
    journal = DegradingJournal(store, retry_seconds=3600)
    await journal.create("s")
    if stored:
        await journal.append("s", notes(1, stored), state="running", durable=True)
    store.is_off = True
    await journal.append("s", [note(stored + 1)], state="running", durable=True)
    store.is_off = False
    return journal


@pytest.mark.row("Q05")
async def test_what_was_stored_though_its_append_failed_is_not_stored_twice() -> None:
    store = MemoryJournal()
    journal = DegradingJournal(FaultyJournal(store, fail_at=2, when="after"), retry_seconds=0)
    heard = list[JournalDegraded]()
    journal.listen("s", heard.append)
    await journal.create("s")
    await journal.append("s", notes(1, 2), state="running", durable=True)
    await journal.append("s", [note(3)], state="running", durable=True)

    assert await store.read("s") == notes(1, 3)
    assert heard == []


@pytest.mark.row("Q05")
async def test_a_deferred_append_that_fails_late_is_stored_from_memory_at_once() -> None:
    store = MemoryJournal()
    faulty = FaultyJournal(store, fail_at=5)
    journal = DegradingJournal(faulty, retry_seconds=0)
    for name, durable in (("idle", True), ("s", False)):
        await journal.create(name)
        await journal.append(name, notes(1, 2), state="running", durable=durable)
    heard = list[JournalDegraded]()
    journal.listen("s", heard.append)
    await journal.flush()

    assert faulty.has_failed
    assert (await store.read("idle"), await store.read("s")) == (notes(1, 2), notes(1, 2))
    assert heard == []


@pytest.mark.row("Q05")
async def test_a_session_is_read_from_the_store_and_from_memory_as_one() -> None:
    store = Switchable()
    journal = await degraded(store, stored=2)

    assert await store.read("s") == notes(1, 2)
    assert await journal.read("s") == notes(1, 3)
    assert await journal.read("s", after=1) == notes(2, 3)
    assert await journal.read("s", after=2) == notes(3, 3)
    assert await journal.read("s", after=3) == ()


@pytest.mark.row("Q05")
async def test_a_store_that_failed_is_asked_at_once_before_a_call_that_changes_the_world() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    store.is_off = True
    with pytest.raises(IntentNotStored, match="disk is full"):
        await journal.append("s", [ToolStarted(seq=3, tool="pay")], state="running", durable=True)
    assert await journal.read("s", after=1) == notes(2, 2)
    store.is_off = False
    await journal.append("s", [note(3)], state="running", durable=True)
    assert await store.read("s") == notes(1, 1)
    await journal.append("s", [ToolStarted(seq=4, tool="pay")], state="running", durable=True)

    assert [event.seq for event in await store.read("s")] == [1, 2, 3, 4]


@pytest.mark.row("Q05")
async def test_a_blob_that_cannot_be_stored_is_kept_and_stored_with_what_waits() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    store.is_off = True
    digest = await journal.put_blob(b"picture")

    assert digest == hashlib.sha256(b"picture").hexdigest()
    assert (await journal.blob(digest), await store.blob(digest)) == (b"picture", None)
    store.is_off = False
    await journal.flush()
    assert (await journal.blob(digest), await store.blob(digest)) == (b"picture", b"picture")


@pytest.mark.row("Q05")
async def test_messages_taken_while_the_store_was_away_are_gone_from_it_when_it_is_back() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    await journal.put("s", MESSAGE)
    assert await journal.inbox("s") == (MESSAGE,)
    await journal.consume("s", ["m1"], 3)

    assert await journal.inbox("s") == ()
    assert tuple(await store.inbox("s")) == (MESSAGE,)
    await journal.append("s", [note(3)], state="running", durable=True)
    await journal.flush()
    assert tuple(await store.inbox("s")) == ()


@pytest.mark.row("Q05")
async def test_an_inbox_that_cannot_be_read_is_empty_only_for_a_run_in_memory() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    store.is_off = True

    assert await journal.inbox("s") == ()
    with pytest.raises(JournalError, match="disk is full"):
        await journal.inbox("another")


@pytest.mark.row("Q05")
async def test_a_session_that_another_process_went_on_with_is_not_overwritten() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    theirs = note(2, "theirs")
    await store.append("s", [theirs], state="running", durable=True)

    with pytest.raises(SessionConflict, match="written by another process"):
        await journal.flush()
    with pytest.raises(SessionConflict, match="written by another process"):
        await journal.append("s", [ToolStarted(seq=3, tool="pay")], state="running", durable=True)
    assert await store.read("s") == (note(1), theirs)


async def test_lists_are_the_stores_own() -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)

    assert [info.id for info in await journal.sessions()] == ["s"]
    assert await journal.approvals() == await store.approvals()


async def test_a_store_is_closed_though_another_process_has_gone_on_with_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Switchable()
    journal = await degraded(store, stored=1)
    await store.append("s", [note(2, "theirs")], state="running", durable=True)

    with pytest.raises(SessionConflict):
        await journal.close()

    assert "are lost" in caplog.text
    with pytest.raises(JournalError, match="closed"):
        await store.flush()


@pytest.mark.row("H22")
async def test_a_store_that_failed_is_left_alone_by_the_clock_of_the_session() -> None:
    store, clock = Switchable(), FakeClock()
    shared = FaultyJournal(store, fail_at=1000)  # what is nothing but memory would have no memory of its own
    async with open_session(shared, id="s", clock=clock, on_store_failure="degrade") as session:
        store.is_off = True
        await session.journal.append("s", [note(1)], state="running", durable=True)
        store.is_off = False

        clock.advance(0.99)
        await session.journal.append("s", [note(2)], state="running", durable=True)
        assert await store.read("s") == ()

        clock.advance(0.01)
        await session.journal.append("s", [note(3)], state="running", durable=True)
        assert await store.read("s") == notes(1, 3)


@pytest.mark.row("Q05")
async def test_what_waits_of_an_agent_is_stored_before_its_caller_says_how_it_ended() -> None:
    written: list[str] = []

    class Noting(Switchable):
        async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
            await super().append(session_id, events, state=state, durable=durable)
            written.append(session_id)

    store = Noting()
    journal = DegradingJournal(store, retry_seconds=0)
    for session_id in ("caller", "agent"):
        await journal.create(session_id)
    store.is_off = True
    await journal.append("agent", [note(1)], state="completed", durable=True)
    await journal.append("caller", [note(1)], state="running", durable=True)
    store.is_off = False
    await journal.append("caller", [note(2)], state="completed", durable=True)

    assert written == ["agent", "caller"]
    assert (await store.read("agent"), await store.read("caller")) == (notes(1, 1), notes(1, 2))
    assert journal.waiting("agent") == journal.waiting("caller") == 0
