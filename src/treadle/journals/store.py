"""Store: the journal over a backend: leases, listings, waits and workers. Knows no database."""

import asyncio
import atexit
import os
import shlex
import socket
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from treadle.budgets import Deadline
from treadle.concurrency import bury, watch
from treadle.errors import ConfigurationError, JournalError, SessionHeld, TreadleError, check_kind
from treadle.events import AnyEvent, RunFinished, RunResumed, RunStarted, SessionRewound, TaskSubmitted, TaskWithdrawn
from treadle.fields import checked, checked_but, explained
from treadle.journals.backend import (
    AT_ONCE,
    UNKNOWN,
    Backend,
    DueRow,
    MessageRow,
    SessionRow,
    StoredEvents,
    append_of,
    check_messages,
    check_session_id,
    conflict,
    digest_of,
    due_rows,
    events_of,
    message_of,
    not_taken,
    parent_of,
    unknown_row,
)
from treadle.journals.usage import usage_of
from treadle.ports import (
    DueItem,
    HasInboxes,
    HasOverview,
    InboxMessage,
    Journal,
    Lease,
    SessionFilter,
    SessionInfo,
    UsageRow,
)
from treadle.ports.journals import ALL_SESSIONS, WORKER
from treadle.redaction import redacted_logger
from treadle.state import (
    Approval,
    CallState,
    LeftCompaction,
    LeftMessage,
    LeftMode,
    LeftUnknown,
    SessionState,
    add_up,
    inbox_message,
    is_cancelled,
    unreadable,
)
from treadle.state import waiting_approvals as waiting_of
from treadle.tools import MODES

__all__ = [
    "BEATS_A_LEASE",
    "LEASE_SECONDS",
    "LOOK_SECONDS",
    "SELECT_SUM",
    "Deferred",
    "Holder",
    "HolderLink",
    "Job",
    "Notifications",
    "StoreJournal",
    "TableBackend",
    "TableJournal",
    "Worker",
    "again",
    "broken_off",
    "can_be_taken_in",
    "can_continue",
    "due_items",
    "follow",
    "held",
    "held_of",
    "listed",
    "look_seconds",
    "looked_at",
    "opened",
    "resumable_sessions",
    "sessions_that_ask",
    "waiting_approvals",
    "with_messages",
]


# --- Waiting: what waits in a journal, over all sessions: requests for consent that nobody has answered, and what is
# due. Answers none.

logger = redacted_logger(__name__)

Reindex: TypeAlias = Callable[[str, int, Sequence[DueRow]], Awaitable[None]]
"""Puts rows in place of all of a session's in the index, where its head is still this one."""


async def open_sessions(journal: Journal) -> list[str]:
    """Return the sessions whose run is paused or under way, those that changed last first."""
    return [info.id for info in await journal.sessions() if info.run_status in ("paused", "queued", "running")]


def sessions_that_ask(rows: Iterable[DueRow]) -> list[str]:
    """Return the sessions that may ask a person, by the index."""
    return list(dict.fromkeys(row.session_id for row in rows if row.kind in ("approval", "unknown")))


async def waiting_approvals(journal: Journal, session_ids: Iterable[str] | None = None) -> Sequence[Approval]:
    """Return the requests of these sessions, in their order; None for all sessions whose run is paused or under way.

    An answer that no run has taken in yet counts as one. A session that cannot be read is left out with a warning: it
    never hides the others.
    """
    waiting: list[Approval] = []
    for session_id in await open_sessions(journal) if session_ids is None else session_ids:
        messages = await journal.inbox(session_id)  # first: what a run takes in meanwhile is then in the events too
        state = await _state(journal, session_id)
        if state is not None and state.pending_approvals() and not await _is_withdrawn(journal, state):
            own = waiting_of(state, messages)
            waiting += [one for one in own if one.session_id == session_id]  # a child's are listed with the child
    return tuple(waiting)


def due_items(rows: Iterable[DueRow], *, before: float | None, limit: int | None) -> Sequence[DueItem]:
    """Return what is due until an instant, the earliest first."""
    items = [_item(row, row.at) for row in rows if row.at is not None and _is_due(row, row.at, before)]
    return tuple(sorted(items, key=lambda item: (item.at, item.session_id))[:limit])


def _is_due(row: DueRow, at: float, before: float | None) -> bool:
    return before is None or at <= before or row.key == AT_ONCE


def _item(row: DueRow, at: float) -> DueItem:
    assert row.kind != "unknown"  # it has no time
    if row.kind != "task":
        return DueItem(session_id=row.session_id, kind=row.kind, at=at, call_id=row.call_id)
    priority, _, tenant = row.call_id.partition(" ")
    return DueItem(session_id=row.session_id, kind="task", at=at, priority=int(priority), tenant=tenant)


async def looked_at(journal: Journal, rows: Sequence[DueRow], reindex: Reindex) -> list[DueRow]:
    """Return the index with the sessions of an older journal added up, once for all where the journal can be written."""
    known = [row for row in rows if row.key != UNKNOWN]
    for session_id in [row.session_id for row in rows if row.key == UNKNOWN]:
        events = await _events(journal, session_id)
        if events is None:
            continue
        own = due_rows(session_id, events)
        known = [row for row in known if row.session_id != session_id] + own
        try:
            await reindex(session_id, events[-1].seq if events else 0, own)
        except JournalError as error:  # opened for reading only, say: it is looked at again the next time
            logger.debug("The index of session %s could not be stored: %s", session_id, error)
    return known


async def _events(journal: Journal, session_id: str) -> Sequence[AnyEvent] | None:
    try:
        return await journal.read(session_id)
    except JournalError as error:
        logger.warning("%s", unreadable(session_id, error))
        return None


async def _state(journal: Journal, session_id: str) -> SessionState | None:
    try:
        return add_up(SessionState(session_id), await journal.read(session_id))
    except JournalError as error:
        logger.warning("%s", unreadable(session_id, error))
        return None


async def _is_withdrawn(journal: Journal, state: SessionState) -> bool:
    """Whether a session that carries out a call of another was cancelled with it."""
    while state.caller is not None:
        above = SessionState(state.caller.parent_id)
        messages = await journal.inbox(above.id)
        add_up(above, await journal.read(above.id))
        if is_cancelled(above, messages):
            return True
        state = above
    return False


# --- Following a session: its events as they are stored, by this process or by others. Stores nothing.

LOOK_SECONDS = 0.5
"""How often a store is asked for what other processes have stored: as often as a holder looks for messages."""


_TURNS = (RunFinished, RunStarted, RunResumed, SessionRewound, TaskSubmitted, TaskWithdrawn)
"""Events after which a session's run has ended, or has not."""


class Notifications(dict[str, set[asyncio.Event]]):
    """The followers of sessions on one event loop, which are notified of what is appended here. Holds those that wait only."""

    def ring(self, session_id: str) -> None:
        """Wake whoever follows the session."""
        for bell in self.get(session_id, ()):
            bell.set()

    def ring_all(self) -> None:
        """Wake everybody who follows: the journal was closed."""
        for session_id in self:
            self.ring(session_id)

    async def wait(self, session_id: str, seconds: float | None) -> None:
        """Return when the session's bell rings, or after so many seconds; None for no limit."""
        bell = asyncio.Event()
        self.setdefault(session_id, set()).add(bell)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await bell.wait()
        finally:
            self[session_id].discard(bell)
            if not self[session_id]:
                del self[session_id]


async def follow(
    read: Callable[[int], Awaitable[Sequence[AnyEvent]]], changed: Callable[[int], Awaitable[None]], after: int
) -> AsyncIterator[AnyEvent]:
    """Give the events after a number as they come, until a run has ended, or a task was withdrawn.

    Args:
        read: Returns the events after a number.
        changed: Returns when there may be events after a number.
    """
    while True:
        is_over = False
        for event in await read(after):
            after = event.seq
            if isinstance(event, _TURNS):
                is_over = isinstance(event, RunFinished | TaskWithdrawn)
            yield event
        if is_over:
            return
        await changed(after)


# --- The list of sessions: which of them a filter names, in values and as conditions of a statement. Asks no store.


def check_filter(where: SessionFilter) -> None:
    """Refuse a filter that no list can answer. Raises ConfigurationError: its cursor is of no list, or its limit is below 0."""
    if where.after:
        position(where.after)
    if where.limit is not None and where.limit < 0:
        raise ConfigurationError(
            f"The limit of a list of sessions must be 0 or more, or None for all; got {where.limit}."
        )


@explained
def listed(infos: Iterable[SessionInfo], where: SessionFilter) -> tuple[SessionInfo, ...]:
    """Return the sessions that a filter names, the last changed first, of all in the order in which they were made."""
    check_filter(where)
    numbered = [(info.updated_at, number, info) for number, info in enumerate(infos)]
    if where.after:
        at, session_id = position(where.after)
        seat = next((number for _, number, info in numbered if info.id == session_id), -1)
        numbered = [row for row in numbered if row[:2] < (at, seat)]
    found = [row for row in numbered if where.names(row[2])]
    return tuple(info for _, _, info in sorted(found, key=lambda row: row[:2], reverse=True)[: where.limit])


def conditions(where: SessionFilter, holds_text: str) -> tuple[str, dict[str, Any]]:  # Any: what a statement takes
    """Return the end of a statement over the table of sessions, from `WHERE` on, and its values, whose places are `:name`.

    Args:
        holds_text: The condition on `:text`, in lower case.
    """
    values: dict[str, Any] = {}

    def place(name: str, value: object) -> str:
        values[name] = value
        return f":{name}"

    def is_among(column: str, name: str, wanted: Iterable[str]) -> list[str]:
        places = [place(f"{name}{number}", value) for number, value in enumerate(wanted)]
        return [f"{column} IN ({', '.join(places)})"] if places else []

    kinds = is_among("state", "run_status", where.run_statuses)
    kinds += is_among("status", "status", [one for one in where.statuses if one != "active"])
    kinds += [f"(status = 'active' AND {one})" for one in is_among("state", "of", where.statuses)]
    asked = [f"({' OR '.join(kinds)})"] if kinds else []
    if WORKER not in (*where.run_statuses, *where.statuses):
        asked.append(f"state <> '{WORKER}'")
    if where.without_deleted:
        asked.append("status <> 'deleted'")
    if where.parent_id is not None:
        asked.append(f"parent_id = {place('parent', where.parent_id)}")
    if where.tenant is not None:
        asked.append(f"tenant = {place('tenant', where.tenant)}")
    if where.since is not None:
        asked.append(f"updated_at >= {place('since', where.since)}")
    if where.text:
        values["text"] = where.text.lower()
        asked.append(holds_text)
    if where.after:
        at, session_id = position(where.after)
        seat = f"coalesce((SELECT seat FROM session WHERE id = {place('last', session_id)}), 0)"  # noqa: S608 - a place
        asked.append(f"(updated_at, seat) < ({place('at', at)}, {seat})")
    limit = "" if where.limit is None else f" LIMIT {place('limit', where.limit)}"
    filtered = f"WHERE {' AND '.join(asked)} " if asked else ""
    return f"{filtered}ORDER BY updated_at DESC, seat DESC{limit}", values


def position(cursor: str) -> tuple[float, str]:
    """Return time and id of the line after which a list continues. Raises ConfigurationError: no list has given this cursor."""
    at, _, session_id = cursor.partition(" ")
    try:
        return float(at), session_id
    except ValueError:
        raise ConfigurationError(
            f"{cursor!r:.80} is not a cursor of a list of sessions. Pass the `cursor` of the last listed session."
        ) from None


# --- Resumable: which runs can continue now: those that broke off, and paused ones for which something has arrived, at
# any depth.


async def resumable_sessions(journal: Journal, *, now: float) -> Sequence[str]:
    """Return the sessions whose run can continue now and that nobody holds: those at the top of each family."""
    due = [item.session_id for item in await journal.due(before=now) if item.kind in ("approval", "call")]
    candidates = dict.fromkeys([*await broken_off(journal), *due, *await with_messages(journal)])
    found = dict[str, None]()
    for session_id in candidates:
        try:
            state = await _top(journal, session_id)
            if state.id not in found and await can_continue(journal, state, now=now):
                found[state.id] = None
        except JournalError as error:
            logger.warning("%s", unreadable(session_id, error))
    held = await held_of(journal, found)
    return tuple(one for one in found if one not in held)


async def broken_off(journal: Journal, *, but: Collection[str] = ()) -> list[str]:
    """Return the sessions whose run is under way and that nobody holds: their processes have died, or handed them over."""
    infos = await journal.sessions(SessionFilter(run_statuses=("running",)))
    found = [info.id for info in infos if info.own_status == "active" and info.id not in but]
    held = await held_of(journal, found)
    return [one for one in found if one not in held]


async def with_messages(journal: Journal) -> Iterable[str]:
    """Return the paused sessions in whose inbox a message waits that their run would take in; perhaps others."""
    if isinstance(journal, HasInboxes):
        return await journal.with_messages()
    paused = await journal.sessions(SessionFilter(run_statuses=("paused",)))
    return [info.id for info in paused if any(map(can_be_taken_in, await journal.inbox(info.id)))]


async def can_continue(journal: Journal, state: SessionState, *, now: float) -> bool:
    """Whether a session's run would do anything if it were resumed: it broke off, or something that it waits for has arrived."""
    run = state.run
    if run is None or run.status not in ("running", "paused") or state.own_status != "active":
        return False
    if run.status == "running" or (run.deadline is not None and run.deadline <= now):
        return True
    if any(map(can_be_taken_in, await journal.inbox(state.id))):
        return True
    return not state.unanswered or any(
        [await _call_continues(journal, state, one, now=now) for one in state.unanswered]
    )


def can_be_taken_in(message: InboxMessage) -> bool:
    """Whether a paused run takes a message in at once. A message to the model waits until all calls have their results."""
    if isinstance(message, LeftMode):
        return message.mode in MODES
    return not isinstance(message, LeftMessage | LeftCompaction | LeftUnknown)


async def _call_continues(journal: Journal, state: SessionState, call: CallState, *, now: float) -> bool:
    """Whether an open call of a paused run would continue."""
    if call.resolution is not None:
        return True
    if (waits := call.suspended) is not None:
        is_due = waits.due_at is not None and waits.due_at <= now
        below = state.carried_out.get(call.call.id, ())
        return is_due or any([await _has_news(journal, child_id, now=now) for child_id in below])
    return call.approval is not None and call.approval.answer is None and call.approval.expires_at < now


async def _has_news(journal: Journal, child_id: str, *, now: float) -> bool:
    """Whether a session that carries out a call has something for its caller."""
    state = add_up(SessionState(child_id), await journal.read(child_id))
    if state.status == "suspended" and not state.moved_to:
        return False
    if state.run is not None and state.run.status == "running":
        return child_id not in await held_of(journal, [child_id])
    return state.run is None or state.run.status != "paused" or await can_continue(journal, state, now=now)


async def _top(journal: Journal, session_id: str) -> SessionState:
    """Return the session at the top of those of which this one carries out a call."""
    state = add_up(SessionState(session_id), await journal.read(session_id))
    return state if state.caller is None else await _top(journal, state.root_id)


async def held_of(journal: Journal, session_ids: Collection[str]) -> Collection[str]:
    """Return those of these sessions that a process which seems to live holds; none where the journal does not say."""
    return await journal.held(session_ids) if session_ids and isinstance(journal, HasOverview) else ()


# --- The journal over any store: what is checked, encoded, compared and decoded is the same for all. Stores nothing
# itself.

_B = TypeVar("_B", bound=Backend)
_J = TypeVar("_J", bound="StoreJournal[Any]")


async def opened(journal: _J) -> _J:
    """Open a journal now, and return it. Raises JournalError: it cannot be opened. It was closed again."""
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
        self._notifications = Notifications()
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
        if session_id in self._notifications:
            self._notifications.ring(session_id)

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
        changed = partial(self._changed, session_id)
        async for event in follow(lambda head: self.read(session_id, after=head), changed, max(after, 0)):
            yield event

    async def _changed(self, session_id: str, head: int) -> None:
        """Return when the session has an event after this one: told at once by this process, looked for in the store."""
        while await self._store.events(session_id, head, lambda stored: stored.session.head) <= head:
            await self._notifications.wait(session_id, LOOK_SECONDS)
            await self._store.settle()

    @checked
    async def usage(
        self, by: Sequence[str] = ("tenant", "model", "day"), *, since: Deadline | None = None
    ) -> Sequence[UsageRow]:
        return await usage_of(self, by, since)

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
        self._notifications.ring_all()
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


def _decoded_events(session_id: str, after: int, stored: StoredEvents) -> Sequence[AnyEvent]:
    return events_of(session_id, after, stored.session, stored.rows, before=stored.before)


def _decoded_messages(session_id: str, rows: Sequence[MessageRow]) -> Sequence[InboxMessage]:
    check_messages(session_id, rows)
    return tuple(inbox_message(row[0], row[1], msgspec.json.decode(row[2])) for row in rows)


# --- What stores with tables share: they are asked in the same words, by a thread that reads.

_Connection = TypeVar("_Connection")
_T = TypeVar("_T")

SELECT_SUM = "SELECT sum FROM event WHERE session_id = :id AND seq = :seq"

_INFO = {"id": "id", "run_status": "state", "own_status": "status"} | {
    name: name for name in ("head", "updated_at", "task", "parent_id", "parent_seq", "tenant")
}
"""The fields of a line in the list of sessions, and their columns."""


class TableBackend(Backend, Generic[_Connection]):
    """The reading half of a store with tables."""

    find: ClassVar[str]
    """The function of SQL that returns where a text holds another one; 0 for nowhere."""

    @abstractmethod
    async def ask(self, question: Callable[[_Connection], _T]) -> _T:
        """Return what a question comes to, asked on the thread that reads. Raises JournalError: the store failed."""

    @abstractmethod
    def rows(self, connection: _Connection, statement: str, **values: object) -> list[Any]:  # Any: of any columns
        """Return what a statement finds. The place of a value is `:name`."""

    @abstractmethod
    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions that a process which seems to live holds."""

    async def events(self, session_id: str, after: int, decode: Callable[[StoredEvents], _T]) -> _T:
        def read(connection: _Connection) -> _T:
            named = "SELECT head, task, status, updated_at FROM session WHERE id = :id"
            sessions = self.rows(connection, named, id=session_id)  # first: what it names is stored a moment later
            sums = self.rows(connection, SELECT_SUM, id=session_id, seq=after) if after else []
            events = self.rows(
                connection,
                "SELECT seq, body, sum FROM event WHERE session_id = :id AND seq > :after ORDER BY seq",
                id=session_id,
                after=after,
            )
            session = SessionRow(*sessions[0]) if sessions else SessionRow()
            return decode(StoredEvents(session, sums[0][0] if sums else None, events))

        return await self.ask(read)

    async def sessions(self, where: SessionFilter) -> Sequence[SessionInfo]:
        filtered, values = conditions(where, f"{self.find}(lower(id || ' ' || task), :text) > 0")
        found = await self.found(f"SELECT {', '.join(_INFO.values())} FROM session {filtered}", **values)  # noqa: S608 - ours
        return [SessionInfo(**dict(zip(_INFO, row, strict=True))) for row in found]

    async def with_messages(self) -> Collection[str]:
        """Return the paused sessions with a message that their run would take in: one to the model waits for the open calls."""
        await self.settle()
        found = await self.found(
            "SELECT DISTINCT session_id FROM inbox JOIN session ON session.id = session_id "
            "WHERE consumed_seq IS NULL AND session.state = 'paused' AND kind NOT IN ('message', 'compact')"
        )
        return [session_id for (session_id,) in found]

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the sessions with a result that says `outcome_unknown`, or whose text does; one look over all results."""
        await self.settle()
        found = await self.found(
            "SELECT DISTINCT session_id FROM event "  # noqa: S608 - a name of ours
            f"WHERE type = 'tool.finished' AND {self.find}(body, 'outcome_unknown') > 0"
        )
        return [session_id for (session_id,) in found]

    async def due(self, before: float | None = None) -> Sequence[DueRow] | None:
        found = await self.found(
            "SELECT due.session_id, due.key, due.kind, due.at, due.call_id FROM due JOIN session ON session.id = due.session_id "
            "WHERE session.state IN ('paused', 'queued', 'running') AND (CAST(:before AS double precision) IS NULL "
            "OR due.at <= CAST(:before AS double precision) OR due.kind = 'unknown' OR due.key = 'now') "
            "ORDER BY session.updated_at DESC, session.seat DESC, due.key",
            before=before,
        )
        return [DueRow(*row) for row in found]

    async def inbox(self, session_id: str, decode: Callable[[Sequence[MessageRow]], _T]) -> _T:
        waiting = (
            "SELECT msg_id, kind, body, sum FROM inbox WHERE session_id = :id AND consumed_seq IS NULL ORDER BY arrival"
        )
        return await self.ask(lambda connection: decode(self.rows(connection, waiting, id=session_id)))

    async def blob(self, digest: str) -> bytes | None:
        found = await self.found("SELECT bytes FROM blob WHERE sha256 = :digest", digest=digest)
        return found[0][0] if found else None

    async def found(self, statement: str, **values: object) -> list[Any]:
        """Return what a statement finds, asked on the thread that reads."""
        return await self.ask(lambda connection: self.rows(connection, statement, **values))


_TABLES = TypeVar("_TABLES", bound=TableBackend[Any])


class TableJournal(StoreJournal[_TABLES]):
    """The `Journal` port over a store with tables, which answers some questions without reading events."""

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions that a process which seems to live holds."""
        return await self._store.held(session_ids)

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in."""
        return await self._store.with_messages()

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results."""
        return await self._store.with_unknown_outcomes()


# --- A daemon thread that does jobs in order, in batches, and tells the event loops that wait. Knows no SQL and no
# event.


class Job(Generic[_T]):
    """One thing to do with the store, and what came of it.

    Args:
        act: What to do with the thread's connection; None to learn only that all jobs before it are done.
        future: Where somebody waits, or None when nobody does.
        session_id: The session that it appends to, or empty.
        is_durable: Whether it must survive a power cut before its future is told.
        is_aside: Whether nobody asks what happened to it, now or later.
        deferred: Where its failure is noted, when several journals share the thread.
    """

    __slots__ = ("act", "deferred", "error", "future", "is_aside", "is_durable", "outcome", "session_id")

    def __init__(
        self,
        act: Callable[[Any], _T] | None,  # Any: the connection of whichever store the thread serves
        *,
        future: "asyncio.Future[_T] | None" = None,
        session_id: str = "",
        is_durable: bool = False,
        is_aside: bool = False,
        deferred: "Deferred | None" = None,
    ) -> None:
        self.act = act
        self.future = future
        self.session_id = session_id
        self.is_durable = is_durable
        self.is_aside = is_aside
        self.deferred = deferred
        self.outcome: _T | None = None
        self.error: TreadleError | None = None

    def fail(self, error: TreadleError) -> None:
        """Note that it failed, for whoever waits for it, else for the next caller of its session."""
        self.error = error
        if self.deferred is not None:
            self.deferred.note(self, error)


class Worker:
    """Runs `serve` with whatever is queued, on one thread of its own that never keeps the interpreter from ending.

    A job that somebody waits for is done at once, and so is all that is queued before it. Others may linger: each waking
    of a thread costs the event loop more than what a job of theirs does.

    Args:
        name: Of the thread.
        serve: Does the jobs and sets each one's outcome or error. Must not raise.
        finish: Lets go of the store, on the same thread. Must not raise.
        max_batch: Jobs handed over at once.
        exit_seconds: How long the end of the interpreter waits for queued jobs.
        linger_seconds: How long a job that nobody waits for may wait for others.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[Job[Any]]], None],  # Any: jobs of all outcomes share one queue
        finish: Callable[[], None],
        *,
        max_batch: int,
        exit_seconds: float,
        linger_seconds: float = 0.0,
    ) -> None:
        self._serve = serve
        self._finish = finish
        self._max_batch = max_batch
        self._exit_seconds = exit_seconds
        self._linger_seconds = linger_seconds
        self._name = name
        self._begin()
        watch(self)

    def after_fork(self) -> None:
        """A fork has no such thread. What the parent's thread still does is not the fork's to do."""
        bury(self._queue, self._thread, self._farewells)
        atexit.unregister(self._end)
        self._begin()

    def _begin(self) -> None:
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        # Locked while nothing hurries. Neither an event nor a condition: what they hold, a collection might ask for again.
        self._calm = threading.Lock()
        self._calm.acquire()
        # Reentrant, because the garbage collector may call `stop` in the middle of anything.
        self._gate = threading.RLock()
        self._is_stopped = self._is_finished = False
        self._taken = self._served = 0
        self._farewells: list[Job[None]] = []

    @property
    def backlog(self) -> int:
        """Jobs that wait for the thread."""
        return self._queue.qsize()

    @property
    def served(self) -> int:
        """Jobs that were done so far."""
        return self._served

    @property
    def is_idle(self) -> bool:
        """Whether every job that was taken so far is done, but for those aside, and more are taken."""
        return self._served == self._taken and not self._is_stopped

    def submit(self, job: Job[Any]) -> None:
        """Queue a job. The thread starts with the first.

        Raises:
            JournalError: The journal is closed.
        """
        with self._gate:
            if self._is_stopped:
                raise JournalError("This journal is closed. Open it again.")
            if self._thread.ident is None:
                self._thread.start()
                atexit.register(self._end)
            self._taken += not job.is_aside
            self._queue.put(job)
            if job.future is not None:
                self._hurry()

    def stop(self, farewell: Job[None] | None = None) -> None:
        """Take no more jobs; do those that are queued; then finish, and tell the farewell. Returns at once.

        May be called twice, and by the garbage collector. A farewell's future belongs to the loop that calls.
        """
        with self._gate:
            is_first, self._is_stopped = not self._is_stopped, True
            if self._is_finished or self._thread.ident is None:
                _settle([] if farewell is None else [farewell])
                return
            if farewell is not None:
                self._farewells.append(farewell)
            if is_first:
                self._queue.put(None)
                self._hurry()

    async def wait_for_end(self) -> None:
        """Take no more jobs, and return when those that are queued are done and the store is let go of."""
        farewell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop(Job(None, future=farewell))
        await farewell

    def _hurry(self) -> None:
        with suppress(RuntimeError):  # it hurries already
            self._calm.release()

    def _end(self) -> None:
        """At the end of the interpreter: what was queued is still stored, as far as the time allows."""
        self.stop()
        self._thread.join(self._exit_seconds)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._next_batch()
            if batch:
                self._serve_all(batch)
                self._served += sum(not job.is_aside for job in batch)  # before anybody is told, who may ask at once
                _tell(batch)
        self._finish()
        atexit.unregister(self._end)
        with self._gate:
            self._is_finished = True
            _tell(self._farewells)

    def _serve_all(self, batch: Sequence[Job[Any]]) -> None:
        try:
            self._serve(batch)
        except Exception as exc:  # noqa: BLE001  # whatever it was, those who wait must be notified, and the thread continues
            for job in batch:
                job.error = JournalError(
                    f"The journal failed unexpectedly: {exc!r}. This is a bug in Treadle: please report it."
                )

    def _next_batch(self) -> tuple[list[Job[Any]], bool]:
        batch: list[Job[Any]] = []
        job = self._queue.get()
        if self._linger_seconds and job is not None and job.future is None:
            self._calm.acquire(timeout=self._linger_seconds)
        while job is not None:
            batch.append(job)
            if len(batch) == self._max_batch:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True


def _tell(jobs: Sequence[Job[Any]]) -> None:
    """Wake those who wait: one call an event loop, because each call is a system call."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[Job[Any]]] = defaultdict(list)
    for job in jobs:
        if job.future is not None:
            waiting[job.future.get_loop()].append(job)
    for loop, done in waiting.items():
        with suppress(RuntimeError):  # a closed loop: nobody waits any more
            loop.call_soon_threadsafe(_settle, done)


def _settle(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.done():  # the waiting task was cancelled; what it asked for is stored anyway
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.outcome)


# --- What happened to appends that nobody waited for, so that it is reported once and nothing follows one that failed.
# Stores nothing.


class Deferred:
    """The failures of one journal. Its writer notes them on one thread; callers ask on any."""

    def __init__(self) -> None:
        self._refused: dict[str, TreadleError] = {}
        self._unreported: dict[str, TreadleError] = {}

    def check(self, session_id: str) -> None:
        """Tell the caller what happened to a deferred append of this session, if it failed."""
        if session_id in self._refused:
            self._unreported.pop(session_id, None)
            self.refuse(session_id)

    def refuse(self, session_id: str) -> None:
        """Let nothing in. Invariant: nothing follows an append that failed, until somebody opens the session anew."""
        if (error := self._refused.get(session_id)) is not None:
            raise again(error)

    def report(self) -> None:
        """Raise, once, that deferred appends have failed. Raises JournalError: the first of them."""
        if self._unreported:
            error = next(iter(self._unreported.values()))
            self._unreported.clear()
            raise JournalError(f"An event could not be stored. {error}") from error

    def forget(self, session_id: str) -> None:
        """Let appends of a session in again: somebody has opened it anew."""
        self._refused.pop(session_id, None)

    def note(self, job: Job[Any], error: TreadleError) -> None:
        """Note that a job failed: whoever waits for it is told, else the next caller of its session."""
        if job.future is not None:
            self._unreported.pop(job.session_id, None)
        elif not job.is_aside and job.session_id not in self._refused:
            self._refused[job.session_id] = self._unreported[job.session_id] = error


def again(error: TreadleError) -> TreadleError:
    """Return the error anew: one object raised twice would gather the tracebacks of both."""
    return type(error)(str(error))


# --- What the leases of all stores share: who holds a session, how that is reported, and how often a holder sends a
# heartbeat.

LEASE_SECONDS = 10.0
"""A holder that sent no heartbeat for so long is taken for dead."""

BEATS_A_LEASE = 20
_LOOKS_A_BEAT = 2


def look_seconds(lease_seconds: float) -> float:
    """How often one looks whether a lease has ended."""
    return lease_seconds / BEATS_A_LEASE / _LOOKS_A_BEAT


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a session."""

    host: str
    pid: int
    since: float
    """Seconds since 1970, by the holder's clock. For people, and to tell two holders apart."""

    @classmethod
    def here(cls) -> "Holder":
        """Return this process, now."""
        return cls(host=socket.gethostname(), pid=os.getpid(), since=time.time())

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


def held(session_id: str, holder: Holder | None, *, journal: str) -> SessionHeld:
    """Return the error of a session whose holder lives; None where the holder's name cannot be read.

    Args:
        journal: Where the session is stored, for the command that cancels it.
    """
    who = "another process" if holder is None else str(holder)
    return SessionHeld(
        f"Session {session_id!r} is being run by {who}. Wait for it, or cancel it with session.cancel() or `treadle cancel "
        f"{shlex.quote(session_id)} --journal {shlex.quote(journal)}`; meanwhile you can send messages and answers to it."
    )


class HolderLink:
    """The way from a thread that keeps leases to the event loop of the run that holds one."""

    def __init__(self, on_message: Callable[[], None]) -> None:
        self._on_message = on_message
        self._reported = 0
        self._loop = asyncio.get_running_loop()

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody can be notified of anything: the event loop of its run is closed."""
        return self._loop.is_closed()

    def tell(self, arrival: int) -> None:
        """Tell the holder of a message, once."""
        if arrival > self._reported:
            self._reported = arrival
            self._call(self._on_message)

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a closed loop: nobody is left to tell
            self._loop.call_soon_threadsafe(callback)
