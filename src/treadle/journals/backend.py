"""Backend: what a store on disk or on a server provides, and what all of them share: appends, rows, tables, numbers, leases. Knows no run."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from treadle import canonical
from treadle.errors import (
    ConfigurationError,
    JournalError,
    SessionConflict,
    SessionExists,
    SessionHeld,
    UnknownSession,
    shown,
)
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionSpawned,
    SessionStatus,
    TaskSubmitted,
    TaskWithdrawn,
    ToolFinished,
    ToolResolved,
    ToolResumed,
    ToolStarted,
    ToolSuspended,
    decode_event,
    encode_event,
)
from treadle.fields import explained
from treadle.ports import InboxMessage, Lease, SessionFilter, SessionInfo

__all__ = [
    "AT_ONCE",
    "LISTING",
    "UNKNOWN",
    "Append",
    "Backend",
    "DueChanges",
    "DueRow",
    "EventRow",
    "Last",
    "LocalLease",
    "LocalLeases",
    "MessageRow",
    "SessionRow",
    "StoredEvents",
    "SumRow",
    "append_of",
    "chain",
    "chained",
    "check_messages",
    "check_numbers",
    "check_session_id",
    "conflict",
    "digest_of",
    "disk_full",
    "due_changes",
    "due_rows",
    "event_of",
    "events_of",
    "exists",
    "followed",
    "forked",
    "locked",
    "merged",
    "message_of",
    "not_taken",
    "parent_of",
    "rows_of",
    "status_of",
    "taken_over",
    "task_of",
    "tenant_of",
    "unknown",
    "unknown_row",
]


# --- Checksums of what is stored: chained over a session's events, single for messages. Stores nothing.

SumRow = tuple[int, str, bytes | None]
"""seq, body, sum; no sum for an event that an older version has stored."""

MessageRow = tuple[str, Any, str, bytes | None]  # Any: the kind, a Literal that a store keeps as text
"""id, kind, body, sum; no sum for a message that an older version has stored."""

_BYTES = 16


def chained(session_id: str, before: bytes | None, seq: int, body: str) -> bytes:
    """Return the sum of an event. `before`: the sum of the event before; None where it has none."""
    found = blake2b(before or b"", digest_size=_BYTES)
    found.update(b"\0%d\0" % seq)
    found.update(session_id.encode())
    found.update(b"\0")
    found.update(body.encode())
    return found.digest()


def chain(session_id: str, before: bytes | None, items: Iterable[tuple[int, str]]) -> list[bytes]:
    """Return the sums of events that follow each other."""
    sums = []
    for seq, body in items:
        before = chained(session_id, before, seq, body)
        sums.append(before)
    return sums


def check_link(session_id: str, before: bytes | None, row: SumRow) -> bytes | None:
    """Compare an event with its sum, and return that.

    Args:
        before: The sum of the event before; None where it has none.

    Raises:
        JournalError: The event, the one before, or the sum was changed. The message says where.
    """
    seq, body, stored = row
    if stored is None:
        if before is not None:
            raise _changed(session_id, seq, "has no checksum, though the event before has one")
        return None
    if bytes(stored) != chained(session_id, before, seq, body):
        raise _changed(session_id, seq, "does not match its checksum")
    return bytes(stored)


def message_sum(session_id: str, message_id: str, kind: str, body: str) -> bytes:
    """Return the sum of a message in an inbox."""
    return blake2b(f"{session_id}\x00{message_id}\x00{kind}\x00{body}".encode(), digest_size=_BYTES).digest()


def check_messages(session_id: str, rows: Sequence[MessageRow]) -> None:
    """Compare messages with their sums, where they have any. Raises JournalError: one was changed after it was stored."""
    for message_id, kind, body, stored in rows:
        if stored is not None and bytes(stored) != message_sum(session_id, message_id, kind, body):
            raise JournalError(
                f"Session {session_id!r} is damaged: the message {message_id!r} in its inbox does not match its checksum. "
                "Restore the journal from a backup; nothing was changed."
            )


def _changed(session_id: str, seq: int, what: str) -> JournalError:
    return JournalError(
        f"Session {session_id!r} is damaged: event {seq} {what}. It, or an event before it, was changed after it was "
        "stored. Restore the journal from a backup; nothing was changed."
    )


# --- The index of what waits in a journal: calls that a person is asked about, calls to be looked at again, deadlines.

IndexKind: TypeAlias = Literal["approval", "call", "deadline", "task", "unknown"]

AT_ONCE = "now"
"""The key of a task that begins at once: it is due whatever a clock says, for the clock that stamped it may be ahead."""
UNKNOWN = "?"
"""The key of the row that says that a session has not been looked at."""

_DEADLINE = "deadline"
_TASK = "task"

_TELLING = frozenset(
    {
        ApprovalAnswered,
        ApprovalRequested,
        RunFinished,
        RunResumed,
        RunStarted,
        SessionChanged,
        SessionForked,
        SessionRewound,
        TaskSubmitted,
        TaskWithdrawn,
        ToolFinished,
        ToolResumed,
        ToolStarted,
        ToolSuspended,
    }
)


LISTING = frozenset({ApprovalRequested, RunResumed, RunStarted, TaskSubmitted, ToolSuspended})
"""Events that may put a row into the index. All others change nothing in a session that has none."""


class DueRow(NamedTuple):
    """One thing that a session waits for."""

    session_id: str
    key: str
    """Unique in the session."""
    kind: IndexKind
    at: float | None
    """When it is due, in seconds since 1970; None for what has no such time."""
    call_id: str = ""
    """Of a task: its priority and its tenant, with a blank between them."""


class DueChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What an append changes in the index of its session: first it drops, then it puts."""

    drops_all: bool = False
    drops: tuple[str, ...] = ()
    """Keys of rows that go, those that are put anew among them."""
    puts: tuple[DueRow, ...] = ()

    def after(self, before: "DueChanges | None") -> "DueChanges":
        """Return these changes and those that come before them as one."""
        if before is None or self.drops_all:
            return self
        puts = tuple(row for row in before.puts if row.key not in self.drops) + self.puts
        drops = tuple(dict.fromkeys((*before.drops, *self.drops)))
        return DueChanges(drops_all=before.drops_all, drops=() if before.drops_all else drops, puts=puts)

    def applied(self, rows: Iterable[DueRow]) -> list[DueRow]:
        """Return the rows of a session after these changes."""
        kept = [] if self.drops_all else [row for row in rows if row.key not in self.drops]
        return [*kept, *self.puts]


def merged(changes: Iterable[DueChanges | None]) -> DueChanges | None:
    """Return changes that follow each other as one; None where nothing changes."""
    whole: DueChanges | None = None
    for change in changes:
        whole = whole if change is None else change.after(whole)
    return whole


def due_changes(session_id: str, events: Iterable[AnyEvent]) -> DueChanges | None:
    """Return what events change in the index of their session; None where they change nothing."""
    relevant = [event for event in events if type(event) in _TELLING]
    return merged(_change(session_id, event) for event in relevant) if relevant else None


def unknown_row(session_id: str) -> DueRow:
    """Return the row that says that a session has not been looked at."""
    return DueRow(session_id, UNKNOWN, "unknown", None)


def due_rows(session_id: str, events: Sequence[AnyEvent]) -> list[DueRow]:
    """Return the rows of a session by all of its events."""
    changes = due_changes(session_id, events)
    return [] if changes is None else changes.applied(())


def _change(session_id: str, event: AnyEvent) -> DueChanges | None:
    match event:
        case RunStarted() | RunFinished() | SessionRewound() | SessionChanged(status="deleted"):
            deadline = event.deadline if isinstance(event, RunStarted) else None
            return DueChanges(drops_all=True, puts=tuple(_deadline(session_id, deadline)))
        case TaskSubmitted():
            key, at = (AT_ONCE, event.at) if event.due_at is None else (_TASK, event.due_at)
            row = DueRow(session_id, key, "task", at, f"{event.priority} {event.tenant}")
            return DueChanges(drops=(_TASK, AT_ONCE), puts=(row,))
        case TaskWithdrawn() | SessionForked():  # a task is carried out once: a fork does not inherit it
            return DueChanges(drops=(_TASK, AT_ONCE))
        case RunResumed(deadline=float(deadline)):
            return DueChanges(drops=(_DEADLINE,), puts=tuple(_deadline(session_id, deadline)))
        case _:
            return None if event.call_id is None else _change_of_call(session_id, event.call_id, event)


def _change_of_call(session_id: str, call_id: str, event: AnyEvent) -> DueChanges | None:
    approval, call = f"approval {call_id}", f"call {call_id}"
    match event:
        case ApprovalRequested():
            row = DueRow(session_id, approval, "approval", event.expires_at, call_id)
            return DueChanges(drops=(approval,), puts=(row,))
        case ApprovalAnswered():
            return DueChanges(drops=(approval,))
        case ToolSuspended(due_at=float(at)):
            return DueChanges(drops=(call,), puts=(DueRow(session_id, call, "call", at, call_id),))
        case ToolStarted() | ToolFinished() | ToolResumed():
            return DueChanges(drops=(approval, call))
        case _:
            return None


def _deadline(session_id: str, at: float | None) -> Iterator[DueRow]:
    if at is not None:
        yield DueRow(session_id, _DEADLINE, "deadline", at)


# --- What every journal asks of an append: that its events follow. Knows no store; stores nothing.

DESCRIBING = frozenset({RunStarted, SessionChanged, TaskSubmitted})
"""Events that may say a session's task, its status or its tenant. Few commits hold one."""

TASK_CHARS = 80
"""Length of the first words of a task in a list of sessions."""

_MAX_ID_CHARS = 200


def check_session_id(session_id: str) -> None:
    """Refuse a name that cannot be stored, listed or typed.

    Raises:
        ConfigurationError: It is empty, too long, or holds control characters or lone surrogates.
    """
    if type(session_id) is not str or not 0 < len(session_id) <= _MAX_ID_CHARS or not session_id.isprintable():
        raise ConfigurationError(
            f"A session id is 1 to {_MAX_ID_CHARS} printable characters; got {shown(session_id, 220)}."
        )


def check_numbers(events: Sequence[AnyEvent]) -> None:
    """Refuse events that are live, or whose numbers are not one after the other.

    Raises:
        ConfigurationError: The caller numbered them wrongly. That is a mistake in the program, never a lost race.
    """
    if not events:
        return
    expected = events[0].seq
    for event in events:
        if event.is_live or event.seq != expected or expected < 1:
            raise ConfigurationError(
                f"Event {event.type} has the number {event.seq}; a journaled one here has {max(expected, 1)}."
            )
        expected += 1


def conflict(session_id: str, head: int, seq: int) -> SessionConflict:
    """Return the error of an append whose first event, number `seq`, does not follow the stored head, the number of the last one."""
    return SessionConflict(
        f"Session {session_id!r} is at event {head}, so event {seq} cannot follow: another process has written to it. Nothing was written; open the session again."
    )


def exists(session_id: str) -> SessionExists:
    """Return the error of a session that is to be made and is there."""
    return SessionExists(
        f"Session {session_id!r} exists already; a deleted session keeps its id, too. Use another id for the new one."
    )


def unknown(session_id: str) -> UnknownSession:
    """Return the error of a session that does not exist."""
    return UnknownSession(f"The journal holds no session {session_id!r}.")


def taken_over(session_id: str) -> SessionConflict:
    """Return the error of an append to a session that is in other hands now."""
    return SessionConflict(f"Session {session_id!r} was taken over by another process. Nothing was written.")


def forked(session_id: str) -> SessionConflict:
    """Return the error of an append to a session whose lease belongs to the process that this one was forked from."""
    return SessionConflict(
        f"Session {session_id!r} is run by the process that this one was forked from. Nothing was written; resume the "
        "session here once that run has ended."
    )


def status_of(events: Sequence[AnyEvent]) -> SessionStatus | None:
    """Return the status that the events give to their session; None when they give none."""
    for event in reversed(events):
        if isinstance(event, SessionChanged) and event.status is not None:
            return event.status
    return None


def tenant_of(events: Sequence[AnyEvent]) -> str | None:
    """Return the tenant that the events give to their session, empty where they take it away; None when they name none."""
    for event in reversed(events):
        if isinstance(event, SessionChanged) and event.metadata is not None and "tenant" in event.metadata:
            tenant = event.metadata["tenant"]
            return "" if tenant is None else str(tenant)
    return None


_LINKS = (SessionForked, SessionSpawned)


def parent_of(events: Sequence[AnyEvent]) -> tuple[str, int] | None:
    """Return the session and event that these events were forked from, the last time, or whose call they carry out."""
    forks = [(event.parent_id, event.parent_seq) for event in events if isinstance(event, _LINKS)]
    return forks[-1] if forks else None


def task_of(events: Sequence[AnyEvent]) -> str:
    """Return the first words of the first task among the events that has any, on one line; empty when none has."""
    for event in events:
        if isinstance(event, RunStarted | TaskSubmitted):
            # Twice the length is read, so that a long task full of control characters costs little.
            task = event.task if isinstance(event, RunStarted) else event.message.text
            shown = task[: 2 * TASK_CHARS]
            if not shown.isprintable():
                shown = "".join([char if char.isprintable() else " " for char in shown])
            if text := " ".join(shown.split())[:TASK_CHARS]:
                return text
    return ""


# --- Events as rows and back. Knows the form of a stored event; knows no connection.

_RESTORE = "Restore the journal from a backup; nothing was changed."

EventRow: TypeAlias = tuple[int, float, str, int, str]
"""seq, at, type, version, body."""


class Last(NamedTuple):
    """A session's last event, as far as a store's writer knows."""

    seq: int
    sum: bytes | None


class SessionRow(NamedTuple):
    """What is kept beside a session's events so that a list need not read them: it follows from them."""

    head: int = 0
    """The number of the last event."""
    task: str = ""
    status: str | None = None
    """None where the schema has none yet."""
    updated_at: float = 0.0
    """When the last event was recorded, in seconds since 1970."""


def rows_of(events: Sequence[AnyEvent]) -> list[EventRow]:
    """Encode events now, so that what is stored is what they were when they were appended.

    Raises:
        JournalError: One holds what JSON cannot; none may be stored.
    """
    return [(event.seq, event.at, event.type, event.version, _body_of(event)) for event in events]


_SAID_OUTSIDE = (ApprovalAnswered, RunResumed, RunStarted, SessionChanged, SessionMarked, ToolResolved)

_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, in seconds since 1970: a time that no calendar has cannot be shown."""


def _body_of(event: AnyEvent) -> str:
    if not _EARLIEST <= event.at <= _LATEST:
        raise JournalError(
            f"Event {event.seq} ({event.type}) has the time {event.at!r}, which is out of range. Correct it; nothing was "
            "stored."
        )
    try:
        body = encode_event(event)
        # The encoder turns NaN and infinity into null, and a number field that is null would never open again.
        # What people and applications say enters through few events: a value of another type would never open either.
        if b"null" in body or isinstance(event, _SAID_OUTSIDE):
            decode_event(body)
    except (JournalError, msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise JournalError(f"Event {event.seq} ({event.type}) holds what a journal cannot store: {exc}.") from exc
    return body.decode()


def events_of(
    session_id: str, after: int, session: SessionRow, rows: Iterable[SumRow], *, before: bytes | None = None
) -> tuple[AnyEvent, ...]:
    """Decode a session's events after a number, compare each with its checksum, and see that none is missing up to its head.

    Read from the first event on, its row must follow from them as well.

    Args:
        session: Read before the events: what it names was there then.
        before: The checksum of the event with the number `after`; None where it has none.

    Raises:
        JournalError: One is missing, damaged, changed, or of a kind that only a newer version knows.
    """
    events = []
    for expected, row in enumerate(rows, start=after + 1):
        seq, body, _ = row
        if seq != expected:
            raise JournalError(f"Session {session_id!r} is damaged: event {expected} is missing. {_RESTORE}")
        event = event_of(session_id, seq, body)
        before = check_link(session_id, before, row)
        events.append(event)
    if after + len(events) < session.head:
        raise JournalError(f"Session {session_id!r} is damaged: event {after + len(events) + 1} is missing. {_RESTORE}")
    if not after and before is not None:
        _check_row(session_id, session, events[: session.head])
    return tuple(events)


def _check_row(session_id: str, session: SessionRow, events: Sequence[AnyEvent]) -> None:
    if not events:
        return
    expected = SessionRow(
        session.head, task_of(events), session.status and (status_of(events) or "active"), events[-1].at
    )
    for name, stored, reported in zip(SessionRow._fields, session, expected, strict=True):
        if stored != reported:
            raise JournalError(
                f"Session {session_id!r} is damaged: its {name} is stored as {shown(stored)}, and its events say {shown(reported)}. "
                "Restore the journal from a backup; nothing was changed."
            )


def event_of(session_id: str, seq: int, body: str) -> AnyEvent:
    """Decode one event. Raises JournalError: it is damaged, or of a kind that only a newer version knows."""
    try:
        event = decode_event(body)
    except JournalError as exc:
        raise JournalError(
            f"Event {seq} of session {session_id!r} cannot be read ({exc}): it is damaged, or a newer Treadle wrote it. "
            "Nothing was changed."
        ) from exc
    if event.seq != seq:
        raise JournalError(f"Session {session_id!r} is damaged: event {seq} says that it is number {event.seq}.")
    return event


# --- What is handed to a store's writer, encoded and checked on the caller's side. Knows no connection.


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are to follow a session's head, encoded."""

    session_id: str
    rows: Sequence[EventRow]
    state: str
    task: str = ""
    """First words of the run's task where one starts here; kept only by a session that has none yet."""
    tenant: str | None = None
    """Whose session it is, where these events say so."""
    status: str | None = None
    """What people have made of the session, where these events say so."""
    due: DueChanges | None = None
    """What these events change in the index of what waits; None where they change nothing."""

    @property
    def before(self) -> int | None:
        """Number of the event that these follow; None without events."""
        return self.rows[0][0] - 1 if self.rows else None

    def chained(self, before: bytes | None) -> list[SumRow]:
        """Return number, text and checksum of each event. `before`: the checksum of the event that these follow; None where it has none."""
        sums = chain(self.session_id, before, ((row[0], row[4]) for row in self.rows))
        return [(row[0], row[4], link) for row, link in zip(self.rows, sums, strict=True)]


@explained
def append_of(session_id: str, events: Sequence[AnyEvent], state: str, *, is_unlisted: bool = False) -> Append:
    """Encode events now, so that what is stored is what they were when they were appended.

    Args:
        is_unlisted: Whether the session surely has no row in the index of what waits.

    Raises:
        ConfigurationError: The caller numbered them wrongly.
        JournalError: One holds what JSON cannot; none may be stored.
    """
    check_numbers(events)
    is_still = is_unlisted and LISTING.isdisjoint(map(type, events))
    describing = () if DESCRIBING.isdisjoint(map(type, events)) else events
    return Append(
        session_id=session_id,
        rows=rows_of(events),
        state=state,
        task=task_of(describing),
        status=status_of(describing),
        tenant=tenant_of(describing),
        due=None if is_still else due_changes(session_id, events),
    )


@explained
def followed(info: SessionInfo, append: Append) -> SessionInfo:
    """Return a session's line in the list after an append.

    Raises:
        SessionConflict: The append does not follow the session's last event.
    """
    if append.before is not None and append.before != info.head:
        raise conflict(info.id, info.head, append.before + 1)
    return msgspec.structs.replace(
        info,
        run_status=append.state,
        head=append.rows[-1][0] if append.rows else info.head,
        updated_at=append.rows[-1][1] if append.rows else info.updated_at,
        task=info.task or append.task,
        own_status=append.status or info.own_status,
        tenant=info.tenant if append.tenant is None else append.tenant,
    )


def message_of(session_id: str, message: InboxMessage) -> MessageRow:
    """Encode a message to a session.

    Raises:
        JournalError: It holds what JSON cannot.
        UnicodeEncodeError: Its id is not text.
    """
    if (fault := canonical.find_unencodable(message.body)) is not None:
        raise JournalError(f"The message {message.id!r} cannot be stored: {fault}.")
    body = msgspec.json.encode(message.body).decode()
    return message.id, message.kind, body, message_sum(session_id, message.id, message.kind, body)


# --- What the author of a store writes: a handful of primitives over rows. `StoreJournal` makes a journal of them.

_T = TypeVar("_T")


class StoredEvents(NamedTuple):
    """The events of one session after a number, as they are stored."""

    session: SessionRow
    """Read before the events: what it names was stored then."""
    before: bytes | None
    """Checksum of the event that these follow; None where it has none."""
    rows: Sequence[SumRow]
    """In the order of their numbers."""


class Backend(ABC):
    """The primitives of a store. Texts are JSON already, ids and numbers are checked, checksums are opaque.

    Each primitive is all or nothing. A store that raises `JournalError` has written nothing, or says otherwise.
    """

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the store is, for people: a path or an address without secrets."""

    # --- sessions and their events

    @abstractmethod
    async def create(self, session_id: str) -> bool:
        """Make a session without events if there is none. Return whether it was made."""

    @abstractmethod
    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        """Take the session for one run, as `Journal.acquire` says. `LocalLeases` does it for a store of one process.

        Raises:
            SessionHeld: Somebody who is alive holds it.
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def append(self, append: Append, *, durable: bool) -> None:
        """Add rows whose first number is one above the session's head; without rows, change its state alone.

        Raises:
            SessionConflict: The head is another one, or the session was taken over. `conflict` makes the error.
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        """Make a session that has all of this, durable.

        Args:
            parent: The id of the session that it is forked from, and the number of the event at which it was.

        Raises:
            SessionExists: There is one by that id. `exists` makes the error.
        """

    @abstractmethod
    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        """Remove the session's events, task and inbox, and these blobs where no event names them; then append, durable.

        Raises:
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def events(self, session_id: str, after: int, decode: Callable[[StoredEvents], _T]) -> _T:
        """Return what `decode` makes of the events with a number above `after`; of none for an unknown session.

        Decoding takes long for a long session: call it on the thread that reads, if there is one.
        """

    @abstractmethod
    async def sessions(self, where: SessionFilter) -> Sequence[SessionInfo]:
        """Return the sessions that a filter names, the last changed first. `listed` does it over values."""

    # --- what waits, for stores with an index of it

    async def due(self, before: float | None = None) -> Sequence[DueRow] | None:
        """Return the rows of all sessions whose run is paused or under way, the sessions that changed last first.

        With `before`, rows that are due later, or have no time, may be left out; those of kind `unknown`, or with the key `now`, are not.

        None for a store without an index: the sessions that are paused or under way are then looked at one by one.
        """
        return None

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:  # noqa: B027 - as above
        """Replace all rows of a session by these, if its head is still this number."""

    # --- messages

    @abstractmethod
    async def put(self, session_id: str, message: MessageRow) -> bool:
        """Leave a message, durable, and tell whoever holds the session. Return False when one with its id is stored.

        Raises:
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def inbox(self, session_id: str, decode: Callable[[Sequence[MessageRow]], _T]) -> _T:
        """Return what `decode` makes of the messages that nobody has consumed, in the order of arrival."""

    @abstractmethod
    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        """Mark messages as consumed by an event. The first event that consumed one stays on record.

        Raises:
            UnknownSession: There is no such session.
        """

    # --- bytes

    @abstractmethod
    async def put_blob(self, digest: str, content: bytes) -> None:
        """Store bytes under their digest, unless they are stored."""

    @abstractmethod
    async def blob(self, digest: str) -> bytes | None:
        """Return the bytes of a digest, or None."""

    # --- for stores that answer before they have stored

    async def settle(self) -> None:  # noqa: B027 - a store that stores at once has nothing to wait for
        """Return when every append so far has been tried. Raises nothing for those that failed."""

    def check(self, session_id: str) -> None:  # noqa: B027 - as above
        """Raise what happened to a deferred append of this session, if it failed."""

    def report(self) -> None:  # noqa: B027 - as above
        """Raise, once, that deferred appends have failed.

        Raises:
            JournalError: The first of them.
        """

    async def close(self) -> None:  # noqa: B027 - a store may have nothing to let go of
        """Store what is pending and let go of the store. May be called twice."""


# --- Faults that every store can have, in words that say what to do. Acts on nothing.


def disk_full(place: object) -> JournalError:
    """Return the error of a store that has no room left."""
    return JournalError(f"The disk of the journal {place} is full. Free some space; what was recorded before is safe.")


def locked(place: object) -> JournalError:
    """Return the error of a store that another program keeps locked."""
    return JournalError(
        f"Another program keeps the journal {place} locked. Close it, or try again later; nothing was written."
    )


def not_taken(place: object, fault: object) -> JournalError:
    """Return the error of the one thing that a store cannot keep."""
    return JournalError(f"The journal {place} cannot store this ({fault}). Nothing was written.")


# --- Leases for a store that one process uses: whoever holds a session lives as long as the process. Knows no store.


class LocalLeases:
    """The leases on all sessions of one store, on one event loop."""

    def __init__(self) -> None:
        self._holders: dict[str, Callable[[], None]] = {}

    @explained
    def acquire(
        self,
        session_id: str,
        on_message: Callable[[], None],
        *,
        head: int | None = None,
        has_messages: bool | None = None,
    ) -> "LocalLease":
        """Take a session that nobody holds.

        Args:
            head: Number of its last event, where the store knows it.
            has_messages: Whether anything lies in its inbox, where the store knows that.

        Raises:
            SessionHeld: A run of this process holds it.
        """
        if session_id in self._holders:
            raise SessionHeld(f"Session {session_id!r} is already running in this process. Wait for that run.")
        self._holders[session_id] = on_message
        return LocalLease(self._holders, session_id, head, has_messages)

    @explained
    def is_held(self, session_id: str) -> bool:
        """Return whether a run of this process holds the session."""
        return session_id in self._holders

    @explained
    def tell(self, session_id: str) -> None:
        """Tell whoever holds the session, if anybody does, that a message has arrived."""
        if (on_message := self._holders.get(session_id)) is not None:
            on_message()


class LocalLease:
    """The right to write one session. Nobody can take it away: it ends with its run, or with the process."""

    def __init__(
        self, holders: dict[str, Callable[[], None]], session_id: str, head: int | None, has_messages: bool | None
    ) -> None:
        self.head, self.has_messages = head, has_messages
        self._holders: dict[str, Callable[[], None]] | None = holders
        self._session_id = session_id

    async def release(self) -> None:
        if self._holders is not None:
            del self._holders[self._session_id]
            self._holders = None


# --- Blobs: the digest by which bytes are kept. Stores nothing.

_SLICE = 4 * 1024 * 1024
"""Bytes that are digested at once: some 10 ms."""


async def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal. Gives others turns of the event loop while it works."""
    digest = hashlib.sha256(content[:_SLICE])
    for start in range(_SLICE, len(content), _SLICE):
        await asyncio.sleep(0)
        digest.update(memoryview(content)[start : start + _SLICE])
    return digest.hexdigest()
