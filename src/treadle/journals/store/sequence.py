"""What every journal asks of an append: that its events follow. Knows no store; stores nothing."""

from collections.abc import Sequence

from treadle.errors import ConfigurationError, SessionConflict, SessionExists, UnknownSession, shown
from treadle.events import (
    AnyEvent,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionSpawned,
    SessionStatus,
    TaskSubmitted,
)

__all__ = [
    "DESCRIBING",
    "TASK_CHARS",
    "check_numbers",
    "check_session_id",
    "conflict",
    "exists",
    "forked",
    "parent_of",
    "status_of",
    "taken_over",
    "task_of",
    "tenant_of",
    "unknown",
]

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
    if not isinstance(session_id, str) or not 0 < len(session_id) <= _MAX_ID_CHARS or not session_id.isprintable():
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
