"""A journal in memory: for runs without a session, and for tests. It keeps nothing when the process ends."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from treadle.budgets import Deadline
from treadle.errors import ConfigurationError, JournalError, check_kind, shown
from treadle.events import AnyEvent, SessionChanged, SessionStatus
from treadle.events.codec import artifacts_of
from treadle.fields import checked, checked_but, explained
from treadle.journals.backend import (
    LISTING,
    DueRow,
    LocalLease,
    LocalLeases,
    check_numbers,
    check_session_id,
    conflict,
    digest_of,
    due_changes,
    exists,
    parent_of,
    status_of,
    task_of,
    tenant_of,
    unknown,
)
from treadle.journals.store import (
    Notifications,
    can_be_taken_in,
    due_items,
    follow,
    listed,
    resumable_sessions,
    sessions_that_ask,
    waiting_approvals,
)
from treadle.journals.usage import usage_of
from treadle.ports import DueItem, InboxMessage, SessionFilter, SessionInfo, UsageRow
from treadle.ports.journals import ALL_SESSIONS
from treadle.state import Approval

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """The `Journal` port over plain lists. Events are kept as they are, so an append costs a few microseconds.

    Example:
        journal = MemoryJournal()
        await journal.create("greeting")
    """

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._blobs: dict[str, bytes] = {}
        self._naming: dict[str, set[str]] = {}
        """Which sessions name stored bytes."""
        self._leases = LocalLeases()
        self._notifications = Notifications()
        self._is_closed = False

    @property
    def location(self) -> str:
        return "memory"

    @checked
    async def create(self, session_id: str) -> bool:
        self._check_open()
        check_session_id(session_id)
        if session_id in self._shelves:
            return False
        self._shelves[session_id] = _Shelf(time.time())
        return True

    @checked
    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> LocalLease:
        shelf = self._shelf(session_id)
        has_messages = len(shelf.consumed) < len(shelf.inbox)
        return self._leases.acquire(session_id, on_message, head=len(shelf.events), has_messages=has_messages)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        try:
            shelf = self._shelf(session_id)
            for seq, event in enumerate(events, len(shelf.events) + 1):
                if event.seq != seq or event.is_live:
                    check_numbers(events)
                    raise conflict(session_id, len(shelf.events), events[0].seq)
        except (AttributeError, TypeError):
            check_session_id(session_id)
            raise ConfigurationError(f"events must be a list of events; got {shown(events)}.") from None
        shelf.events.extend(events)
        kinds = set(map(type, events))
        for digest in artifacts_of(events):
            self._naming.setdefault(digest, set()).add(session_id)
        shelf.state = state
        if events:
            shelf.updated_at = events[-1].at
            shelf.task = shelf.task or task_of(events)
        if SessionChanged in kinds:
            changes = [event for event in events if type(event) is SessionChanged]
            shelf.status = status_of(changes) or shelf.status
            tenant = tenant_of(changes)
            shelf.tenant = shelf.tenant if tenant is None else tenant
        if shelf.due or not LISTING.isdisjoint(kinds):
            due = due_changes(session_id, events)
            shelf.due = shelf.due if due is None else due.applied(shelf.due)
        if session_id in self._notifications:
            self._notifications.ring(session_id)

    @explained
    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        self._check_open()
        check_session_id(session_id)
        check_numbers(events)
        if session_id in self._shelves:
            raise exists(session_id)
        if events and events[0].seq != 1:
            raise conflict(session_id, 0, events[0].seq)
        self._shelves[session_id] = shelf = _Shelf(time.time())
        shelf.parent = parent_of(events)
        await self.append(session_id, events, state=state, durable=True)
        shelf.inbox.update((message.id, message) for message in inbox)

    @checked
    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        shelf = self._shelf(session_id)  # the same from now on too: a lease holds on to it
        for kept in (shelf.events, shelf.inbox, shelf.consumed):
            kept.clear()
        shelf.task = ""
        await self.append(session_id, [tombstone], state="deleted", durable=True)
        for digest in blobs:
            naming = self._naming.get(digest, set())
            naming.discard(session_id)
            if not naming:
                self._blobs.pop(digest, None)

    async def flush(self) -> None:
        self._check_open()

    @checked
    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        self._check_open()
        shelf = self._shelves.get(session_id)
        # Event n lies at index n - 1, because numbers have no gaps.
        return () if shelf is None else tuple(shelf.events[max(after, 0) :])

    @checked
    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        self._check_open()
        return listed((shelf.describe(session_id) for session_id, shelf in self._shelves.items()), where)

    @checked
    async def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        async def changed(head: int) -> None:
            while not await self.read(session_id, after=head):
                await self._notifications.wait(session_id, None)

        async for event in follow(lambda head: self.read(session_id, after=head), changed, max(after, 0)):
            yield event

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions that runs of this process hold."""
        return [one for one in session_ids if self._leases.is_held(one)]

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in."""
        self._check_open()
        open_ones = [one for one, shelf in self._shelves.items() if shelf.state == "paused"]
        return tuple([one for one in open_ones if any(map(can_be_taken_in, await self.inbox(one)))])

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of all sessions: their events are at hand."""
        self._check_open()
        return tuple(self._shelves)

    @checked
    async def usage(
        self, by: Sequence[str] = ("tenant", "model", "day"), *, since: Deadline | None = None
    ) -> Sequence[UsageRow]:
        return await usage_of(self, by, since)

    async def approvals(self) -> Sequence[Approval]:
        return await waiting_approvals(self, sessions_that_ask(self._due_rows()))

    @checked
    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        self._check_open()
        return due_items(self._due_rows(), before=before, limit=limit)

    def _due_rows(self) -> list[DueRow]:
        waiting = [(number, shelf) for number, shelf in enumerate(self._shelves.values()) if shelf.due]
        waiting.sort(key=lambda one: (one[1].updated_at, one[0]), reverse=True)
        return [row for _, shelf in waiting if shelf.state in ("paused", "queued", "running") for row in shelf.due]

    @checked
    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        return await resumable_sessions(self, now=time.time() if now is None else now)

    @checked
    async def put(self, session_id: str, message: InboxMessage) -> bool:
        shelf = self._shelf(session_id)
        if message.id in shelf.inbox:
            return False
        shelf.inbox[message.id] = message
        self._leases.tell(session_id)
        return True

    @checked
    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        self._check_open()
        shelf = self._shelves.get(session_id)
        if shelf is None or not shelf.inbox:
            return ()
        return tuple(message for message in shelf.inbox.values() if message.id not in shelf.consumed)

    @checked
    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        shelf = self._shelf(session_id)
        for message_id in message_ids:
            if message_id in shelf.inbox:
                shelf.consumed.setdefault(message_id, seq)

    @checked_but("content")
    async def put_blob(self, content: bytes) -> str:
        check_kind("content", content, (bytes, bytearray, memoryview), "bytes")
        self._check_open()
        digest = await digest_of(content)
        self._blobs.setdefault(digest, bytes(content))
        return digest

    @checked
    async def blob(self, digest: str) -> bytes | None:
        self._check_open()
        return self._blobs.get(digest)

    async def close(self) -> None:
        self._is_closed = True
        self._notifications.ring_all()

    def _shelf(self, session_id: str) -> "_Shelf":
        shelf = self._shelves.get(session_id)
        if shelf is None or self._is_closed:
            self._check_open()
            raise unknown(session_id)
        return shelf

    def _check_open(self) -> None:
        if self._is_closed:
            raise JournalError("This journal in memory is closed.")


class _Shelf:
    """What is kept of one session."""

    __slots__ = ("consumed", "due", "events", "inbox", "parent", "state", "status", "task", "tenant", "updated_at")

    def __init__(self, updated_at: float) -> None:
        self.events: list[AnyEvent] = []
        self.due: list[DueRow] = []
        self.inbox: dict[str, InboxMessage] = {}
        self.consumed: dict[str, int] = {}
        self.state = "active"
        self.task = ""
        self.status: SessionStatus = "active"
        self.tenant = ""
        self.parent: tuple[str, int] | None = None
        self.updated_at = updated_at

    def describe(self, session_id: str) -> SessionInfo:
        parent_id, parent_seq = self.parent or (None, None)
        return SessionInfo(
            id=session_id,
            run_status=self.state,
            head=len(self.events),
            updated_at=self.updated_at,
            task=self.task,
            own_status=self.status,
            tenant=self.tenant,
            parent_id=parent_id,
            parent_seq=parent_seq,
        )
