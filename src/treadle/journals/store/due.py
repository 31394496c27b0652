"""The index of what waits in a journal: calls that a person is asked about, calls to be looked at again, deadlines.

It follows from events, changes with them in one transaction, and is read without them. A session of an older journal is
marked as not looked at until its events have been added up once. Knows no connection.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from treadle.events import (
    AnyEvent,
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
)

__all__ = [
    "AT_ONCE",
    "LISTING",
    "UNKNOWN",
    "DueChanges",
    "DueRow",
    "IndexKind",
    "due_changes",
    "due_rows",
    "merged",
    "unknown_row",
]

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
    for one in changes:
        whole = whole if one is None else one.after(whole)
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
