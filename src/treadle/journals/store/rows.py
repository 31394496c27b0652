"""Events as rows and back. Knows the form of a stored event; knows no connection."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from treadle.errors import JournalError, shown
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionMarked,
    ToolResolved,
    decode_event,
    encode_event,
)
from treadle.journals.store.sequence import status_of, task_of
from treadle.journals.store.sums import SumRow, check_link
from treadle.ports import SessionInfo

__all__ = ["INFO_COLUMNS", "EventRow", "SessionRow", "event_of", "events_of", "info_of", "rows_of"]

_RESTORE = "Restore the journal from a backup; nothing was changed."

EventRow: TypeAlias = tuple[int, float, str, int, str]
"""seq, at, type, version, body."""


class SessionRow(NamedTuple):
    """What is kept beside a session's events so that a list need not read them: it follows from them."""

    head: int = 0
    """The number of the last event."""
    task: str = ""
    status: str | None = None
    """None where the schema has none yet."""
    updated_at: float = 0.0
    """When the last event was recorded, in seconds since 1970."""


INFO_COLUMNS = "id, state, head, updated_at, task, parent_id, parent_seq, tenant"
"""Columns of a line in the list of sessions; the status follows, which old schemas lack."""


def info_of(row: Sequence[Any]) -> SessionInfo:  # Any: a value of each column
    """Return a line of the list of sessions from `INFO_COLUMNS` and the status."""
    session_id, phase, head, updated_at, task, parent_id, parent_seq, tenant, status = row
    return SessionInfo(
        id=session_id,
        phase=phase,
        head=head,
        updated_at=updated_at,
        task=task,
        parent_id=parent_id,
        parent_seq=parent_seq,
        tenant=tenant,
        status=status,
    )


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
    """Decode one event.

    Raises:
        JournalError: It is damaged, or of a kind that only a newer version knows.
    """
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
