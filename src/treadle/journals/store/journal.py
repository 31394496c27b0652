"""The journal over any store: what is checked, encoded, compared and decoded is the same for all. Stores nothing itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from treadle.errors import JournalError, check_kind
from treadle.events import AnyEvent
from treadle.fields import checked, checked_but, explained
from treadle.journals.store.appends import append_of, message_of
from treadle.journals.store.approvals import (
    due_items,
    looked_at,
    open_sessions,
    sessions_that_ask,
    waiting_approvals,
)
from treadle.journals.store.backend import Backend, StoredEvents
from treadle.journals.store.blobs import digest_of
from treadle.journals.store.due import DueRow, unknown_row
from treadle.journals.store.faults import not_taken
from treadle.journals.store.following import LOOK_SECONDS, Bells, follow
from treadle.journals.store.listing import check_filter
from treadle.journals.store.resumable import resumable_sessions
from treadle.journals.store.rows import events_of
from treadle.journals.store.sequence import check_session_id, conflict, parent_of
from treadle.journals.store.sums import MessageRow, check_messages
from treadle.ports import DueItem, InboxMessage, Lease, SessionFilter, SessionInfo
from treadle.ports.journals import ALL_SESSIONS
from treadle.state import Approval, inbox_message

__all__ = ["StoreJournal", "opened"]

_B = TypeVar("_B", bound=Backend)
_J = TypeVar("_J", bound="StoreJournal[Any]")


async def opened(journal: _J) -> _J:
    """Open a journal now, and return it.

    Raises:
        JournalError: It cannot be opened. It was closed again.
    """
    try:
        await journal.open()
    except BaseException:  # a task cancelled here must leave no thread behind either
        await journal.close()
        raise
    return journal


class StoreJournal(Generic[_B]):
    """The `Journal` port over the primitives of a store.

    An append whose task is cancelled is stored anyway. After a deferred append has failed, appends of its session
    are refused until `create` names the session again: whoever opens it continues from what is stored.

    Example:
        journal = StoreJournal(MyBackend())
    """

    def __init__(self, backend: _B) -> None:
        self._backend = backend
        self._is_closed = False
        self._bells = Bells()
        self._unlisted: set[str] = set()  # sessions that have surely no row in the index of what waits

    @property
    def location(self) -> str:
        return self._backend.location

    async def open(self) -> None:
        """Open the store now instead of with the first call.

        Raises:
            JournalError: It cannot be opened.
        """
        await self._store.settle()

    @checked
    async def create(self, session_id: str) -> bool:
        check_session_id(session_id)
        self._unlisted.discard(session_id)
        return await self._store.create(session_id)

    @checked
    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        check_session_id(session_id)
        self._unlisted.discard(session_id)
        return await self._store.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        store = self._store
        try:
            store.check(session_id)
            is_unlisted = session_id in self._unlisted
        except TypeError:  # no text
            check_session_id(session_id)
            raise
        append = append_of(session_id, events, state, is_unlisted=is_unlisted)
        if (due := append.due) is not None:
            self._unlisted.discard(session_id)
        await store.append(append, durable=durable)
        if due is not None and due.drops_all and not due.puts:
            self._unlisted.add(session_id)
        if session_id in self._bells:
            self._bells.ring(session_id)

    @explained
    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        store = self._store
        check_session_id(session_id)
        append = await asyncio.to_thread(append_of, session_id, events, state)  # a session may be long
        if events and events[0].seq != 1:
            raise conflict(session_id, 0, events[0].seq)
        await store.adopt(append, parent_of(events), [self._row_of(session_id, message) for message in inbox])

    @checked
    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        await self._store.purge(append_of(session_id, [tombstone], "deleted"), tuple(blobs))

    async def flush(self) -> None:
        store = self._store
        try:
            await store.settle()
        finally:  # an append that failed is reported before a store that is away
            store.report()

    @checked
    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        store, after = self._store, max(after, 0)
        await store.settle()
        return await store.events(session_id, after, partial(_decoded_events, session_id, after))

    @checked
    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        check_filter(where)
        store = self._store
        await store.settle()
        return tuple(await store.sessions(where))

    @checked
    async def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        read = partial(self._read_after, session_id)
        async for event in follow(read, partial(self._changed, session_id), max(after, 0)):
            yield event

    async def _read_after(self, session_id: str, after: int) -> Sequence[AnyEvent]:
        return await self.read(session_id, after=after)

    async def _changed(self, session_id: str, head: int) -> None:
        """Return when the session has an event after this one: told at once by this process, looked for in the store."""
        while await self._store.events(session_id, head, _head_of) <= head:
            await self._bells.wait(session_id, LOOK_SECONDS)
            await self._store.settle()

    async def approvals(self) -> Sequence[Approval]:
        rows = await self._due_rows()
        return await waiting_approvals(self, None if rows is None else sessions_that_ask(rows))

    @checked
    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        rows = await self._due_rows(before)
        if rows is None:  # a store without an index
            rows = await looked_at(self, [unknown_row(one) for one in await open_sessions(self)], self._store.reindex)
        return due_items(rows, before=before, limit=limit)

    async def _due_rows(self, before: float | None = None) -> Sequence[DueRow] | None:
        """Return the index of what waits, or what of it is due; None where the store has none."""
        store = self._store
        await store.settle()
        rows = await store.due(before)
        return None if rows is None else await looked_at(self, rows, store.reindex)

    @checked
    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        return await resumable_sessions(self, now=time.time() if now is None else now)

    @checked
    async def put(self, session_id: str, message: InboxMessage) -> bool:
        return await self._store.put(session_id, self._row_of(session_id, message))

    @checked
    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        return await self._store.inbox(session_id, partial(_decoded_messages, session_id))

    @checked
    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        await self._store.consume(session_id, tuple(message_ids), seq)

    @checked_but("content")
    async def put_blob(self, content: bytes) -> str:
        check_kind("content", content, (bytes, bytearray, memoryview), "bytes")
        store, digest = self._store, await digest_of(content)
        await store.put_blob(digest, bytes(content))
        return digest

    @checked
    async def blob(self, digest: str) -> bytes | None:
        content = await self._store.blob(digest)
        if content is not None and await digest_of(content) != digest:
            raise JournalError(
                f"The journal {self.location} is damaged: the bytes stored as {digest} have changed. Restore it from a backup."
            )
        return content

    async def close(self) -> None:
        """Store what is pending and let go of the store. May be called twice.

        Raises:
            JournalError: A deferred append had failed. The store is closed anyway.
        """
        self._is_closed = True
        self._bells.ring_all()
        await self._backend.close()
        self._backend.report()

    def _row_of(self, session_id: str, message: InboxMessage) -> MessageRow:
        try:
            return message_of(session_id, message)
        except UnicodeEncodeError as exc:
            raise not_taken(self.location, exc) from exc

    @property
    def _store(self) -> _B:
        if self._is_closed:
            raise JournalError("This journal is closed. Open it again.")
        return self._backend


def _head_of(stored: StoredEvents) -> int:
    return stored.session.head


def _decoded_events(session_id: str, after: int, stored: StoredEvents) -> Sequence[AnyEvent]:
    return events_of(session_id, after, stored.session, stored.rows, before=stored.before)


def _decoded_messages(session_id: str, rows: Sequence[MessageRow]) -> Sequence[InboxMessage]:
    check_messages(session_id, rows)
    return tuple(inbox_message(row[0], row[1], msgspec.json.decode(row[2])) for row in rows)
