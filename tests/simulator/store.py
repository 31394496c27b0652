"""The simulated store: what is synced, what only stored, what still waits in a process; leases with epochs; a journal for each process.

A crash keeps what is stored, a power cut only what is synced. Every operation is a place for a fault.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from treadle.errors import JournalError, SessionHeld, UnknownSession
from treadle.events import (
    AnyEvent,
    ApprovalRequested,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolResolved,
    ToolStarted,
    decode_event,
    encode_event,
)
from treadle.journals.backend import check_numbers, conflict, due_rows, exists, parent_of, status_of, task_of
from treadle.journals.store import due_items, listed, resumable_sessions, waiting_approvals
from treadle.ports import DueItem, InboxMessage, SessionFilter, SessionInfo
from treadle.ports.journals import ALL_SESSIONS
from treadle.state import Approval

if TYPE_CHECKING:
    from simulator.process import Process

__all__ = ["Shelf", "SimJournal", "SimStore"]

LEASE_SECONDS = 10.0


class Shelf:
    """What a store keeps of one session."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.commits: list[int] = []
        """Number of the last event of each commit, so that a power cut takes whole ones."""
        self.synced = 0
        """Events that a power cut cannot take."""
        self.inbox: dict[str, InboxMessage] = {}
        self.consumed: dict[str, int] = {}
        self.put = 0
        """Messages that were ever left in the inbox."""
        self.state = "active"
        self.status: Any = "active"
        self.task = ""
        self.parent: tuple[str, int] | None = None
        self.epoch = 0
        self.lease: SimLease | None = None
        self.started: dict[str, tuple[int, ToolStarted]] = {}
        self.finished: dict[str, tuple[int, ToolFinished]] = {}
        self.requested: dict[str, ApprovalRequested] = {}
        self.resolved: dict[str, str] = {}
        """By call: how it ended, as a person has said last."""
        self.stretches = 0
        """How often a run began or continued."""
        self.is_purged = False
        self.is_left = False
        """Whether its session was taken to another store and continues there."""
        self.moved: int | None = None
        """How many events it had when it was closed for that; None where it was not closed."""

    @property
    def head(self) -> int:
        return len(self.events)

    def add(self, events: Sequence[AnyEvent], state: str) -> None:
        self.events.extend(events)
        self.commits.append(self.head)
        self.state = state
        self.task = self.task or task_of(events)
        self.status = status_of(events) or self.status
        for event in events:
            self._index(event)

    def _index(self, event: AnyEvent) -> None:
        kind = type(event)
        if kind is ToolStarted:
            self.started[event.call_id] = (event.seq, event)  # type: ignore[index]
        elif kind is ToolFinished:
            self.finished[event.call_id] = (event.seq, event)  # type: ignore[index]
        elif kind is ApprovalRequested:
            self.requested[event.approval_id] = event  # type: ignore[union-attr]
        elif kind is ToolResolved and not event.child_id:  # type: ignore[union-attr]
            self.resolved[event.call_id] = event.outcome  # type: ignore[index, union-attr]
        elif kind is RunStarted or kind is RunResumed:
            self.stretches += 1

    def purge(self, tombstone: AnyEvent) -> None:
        """Keep nothing but the fact of the deletion."""
        for kept in (self.events, self.commits, self.inbox, self.consumed, self.started, self.finished, self.requested):
            kept.clear()
        self.is_purged, self.task = True, ""
        self.add([tombstone], "deleted")
        self.synced = self.head

    def lose_power(self, keep: int) -> None:
        """Lose what was not synced, but for so many of its first commits."""
        ends = [end for end in self.commits if end > self.synced][:keep]
        head = ends[-1] if ends else self.synced
        del self.events[head:]
        self.commits = [end for end in self.commits if end <= head]
        for table in (self.started, self.finished, self.requested, self.resolved):
            table.clear()
        self.stretches = 0
        for event in self.events:
            self._index(event)
        self.consumed = {name: seq for name, seq in self.consumed.items() if seq <= head}


class SimStore:
    """One store, shared by every process that opens it."""

    def __init__(self, name: str, *, encodes: bool) -> None:
        self.name = name
        self.encodes = encodes
        """Whether events pass through bytes, as they do in a file."""
        self.shelves: dict[str, Shelf] = {}
        self.blobs: dict[str, bytes] = {}
        self.gone_until = 0.0
        self.hangs_until = 0.0

    def lose_power(self, keep: Callable[[], int]) -> None:
        for shelf in self.shelves.values():
            shelf.lose_power(keep())


class SimLease:
    """The right to write one session."""

    def __init__(
        self, shelf: Shelf, process: "Process", on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> None:
        self.head = shelf.head
        self.has_messages = len(shelf.consumed) < len(shelf.inbox)
        self.process = process
        self.on_lost = on_lost
        self.on_message = on_message
        self.on_release: Callable[[], None] | None = None
        self._shelf = shelf

    async def release(self) -> None:
        if self._shelf.lease is self:
            self._shelf.lease = None
            if self.on_release is not None and not self.process.is_dead:
                self.on_release()


class SimJournal:
    """The `Journal` port of one process over a store."""

    def __init__(self, store: SimStore, process: "Process") -> None:
        self._store = store
        self._process = process
        self._epochs: dict[str, int] = {}
        self._waiting: list[tuple[str, list[AnyEvent], str]] = []
        self._is_draining = False
        self._is_closed = False

    @property
    def location(self) -> str:
        return self._store.name

    def is_fenced(self, session_id: str) -> bool:
        """Whether another process has taken the session over from this one."""
        shelf = self._store.shelves.get(session_id)
        return shelf is not None and self._epochs.get(session_id, shelf.epoch) != shelf.epoch

    def drop(self) -> None:
        """Let go of what the journal holds outside of this simulation."""

    def die(self, keep: int) -> None:
        """Lose what only waited in the process, but for so many of its first commits."""
        waiting, self._waiting = self._waiting[:keep], []
        self._keep_all(waiting)

    async def create(self, session_id: str) -> bool:
        await self._process.operation("create")
        is_new = session_id not in self._store.shelves
        shelf = self._store.shelves.setdefault(session_id, Shelf())
        self._drain()
        self._epochs[session_id] = shelf.epoch
        return is_new

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> SimLease:
        await self._process.operation("acquire")
        shelf = self._shelf(session_id)
        self._drain()
        if (held := shelf.lease) is not None and not held.process.is_dead:
            if not held.process.is_silent(LEASE_SECONDS):
                raise SessionHeld(f"Session {session_id!r} is being run by {held.process.name}.")
            held.process.loop.call_soon(held.on_lost)
            self._process.life.happened("lease_lost")
        shelf.epoch += 1
        self._epochs[session_id] = shelf.epoch
        shelf.lease = lease = SimLease(shelf, self._process, on_lost, on_message)
        return lease

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        check_numbers(events)
        kept = [decode_event(encode_event(event)) for event in events] if self._store.encodes else list(events)
        try:
            await self._process.operation("append")
        except GeneratorExit:
            raise
        except BaseException as error:
            # Cancelled while it waited: stored or not, nobody knows.
            if type(error).__name__ == "CancelledError" and self._process.coin(0.5) and not self._process.is_dead:
                self._put(session_id, kept, state, durable=durable)
            raise
        self._put(session_id, kept, state, durable=durable)
        await self._process.stored(events, durable=durable)

    def _put(self, session_id: str, events: list[AnyEvent], state: str, *, durable: bool) -> None:
        shelf = self._shelf(session_id)
        head = shelf.head + sum(len(one[1]) for one in self._waiting if one[0] == session_id)
        if self.is_fenced(session_id):
            self._refuse(session_id, events, state)
        if self.is_fenced(session_id) or (events and events[0].seq != head + 1):
            raise conflict(session_id, head, events[0].seq if events else head + 1)
        if head == 0:
            self._process.life.made(self._store.name, session_id, events)
        self._waiting.append((session_id, events, state))
        if durable:
            self._drain()
            shelf.synced = shelf.head
        elif not self._is_draining:
            self._is_draining = True
            self._process.loop.call_later(0.003, self._drain)

    def _drain(self) -> None:
        self._is_draining = False
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._keep_all(waiting)

    def _keep_all(self, waiting: Sequence[tuple[str, list[AnyEvent], str]]) -> None:
        for session_id, events, state in waiting:
            if self.is_fenced(session_id):
                self._refuse(session_id, events, state)
            else:
                self._keep(session_id, events, state)

    def _keep(self, session_id: str, events: list[AnyEvent], state: str) -> None:
        self._store.shelves[session_id].add(events, state)

    def _refuse(self, session_id: str, events: list[AnyEvent], state: str) -> None:
        """Another process has taken the session over."""

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        check_numbers(events)
        await self._process.operation("adopt")
        if session_id in self._store.shelves:
            raise exists(session_id)
        self._made(session_id, events, state, inbox)
        await self._process.stored(events, durable=True)

    def _made(self, session_id: str, events: Sequence[AnyEvent], state: str, inbox: Sequence[InboxMessage]) -> None:
        self._store.shelves[session_id] = shelf = Shelf()
        shelf.parent = parent_of(events)
        self._process.life.made(self._store.name, session_id, events)
        shelf.add(list(events), state)
        shelf.synced = shelf.head
        shelf.inbox.update((message.id, message) for message in inbox)
        self._epochs[session_id] = shelf.epoch

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        await self._process.operation("purge")
        shelf = self._shelf(session_id)
        if self.is_fenced(session_id):
            raise conflict(session_id, shelf.head, 1)
        self._purged(session_id, tombstone, blobs)
        await self._process.stored([tombstone], durable=True)

    def _purged(self, session_id: str, tombstone: AnyEvent, blobs: Sequence[str]) -> None:
        self._shelf(session_id).purge(tombstone)
        rest = [str(event) for other in self._store.shelves.values() for event in other.events]
        for digest in blobs:
            if not any(digest in text for text in rest):
                self._store.blobs.pop(digest, None)

    async def flush(self) -> None:
        await self._process.operation("flush")
        self._drain()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        await self._process.operation("read")
        self._drain()
        shelf = self._store.shelves.get(session_id)
        return () if shelf is None else tuple(shelf.events[max(after, 0) :])

    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        await self._process.operation("sessions")
        self._drain()
        infos = (
            SessionInfo(
                id=name,
                run_status=shelf.state,
                head=shelf.head,
                updated_at=shelf.events[-1].at if shelf.events else 0.0,
                task=shelf.task,
                own_status=shelf.status,
            )
            for name, shelf in self._store.shelves.items()
        )
        return listed(infos, where)

    async def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        for event in await self.read(session_id, after=after):
            yield event

    async def approvals(self) -> Sequence[Approval]:
        return await waiting_approvals(self)

    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        await self._process.operation("due")
        open_ones = [(name, one) for name, one in self._store.shelves.items() if one.state in ("paused", "running")]
        return due_items(
            [row for name, one in open_ones for row in due_rows(name, one.events)], before=before, limit=limit
        )

    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        return await resumable_sessions(self, now=self._process.clock.now() if now is None else now)

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        await self._process.operation("put")
        shelf = self._shelf(session_id)
        is_new = message.id not in shelf.inbox
        shelf.inbox.setdefault(message.id, message)
        shelf.put += is_new
        if is_new and shelf.lease is not None and not shelf.lease.process.is_dead:
            shelf.lease.process.loop.call_soon(shelf.lease.on_message)
        return is_new

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        await self._process.operation("inbox")
        shelf = self._store.shelves.get(session_id)
        if shelf is None:
            return ()
        return tuple(message for message in shelf.inbox.values() if message.id not in shelf.consumed)

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        await self._process.operation("consume")
        shelf = self._shelf(session_id)
        for message_id in message_ids:
            if message_id in shelf.inbox:
                shelf.consumed.setdefault(message_id, seq)

    async def put_blob(self, content: bytes) -> str:
        await self._process.operation("put_blob")
        digest = hashlib.sha256(content).hexdigest()
        self._store.blobs[digest] = bytes(content)
        return digest

    async def blob(self, digest: str) -> bytes | None:
        await self._process.operation("blob")
        return self._store.blobs.get(digest)

    async def close(self) -> None:
        await self._process.operation("close")
        self._drain()
        self._is_closed = True

    def _shelf(self, session_id: str) -> Shelf:
        if self._is_closed:
            raise JournalError("This journal is closed.")
        shelf = self._store.shelves.get(session_id)
        if shelf is None:
            raise UnknownSession(f"The journal holds no session {session_id!r}.")
        return shelf
