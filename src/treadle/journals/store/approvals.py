"""Waiting: what waits in a journal, over all sessions: requests for consent that nobody has answered, and what is due. Answers none."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.store.due import AT_ONCE, UNKNOWN, DueRow, due_rows
from treadle.ports import DueItem, Journal
from treadle.redaction import redacted_logger
from treadle.state import Approval, SessionState, add_up, is_cancelled, unreadable
from treadle.state import waiting_approvals as waiting_of

__all__ = ["Reindex", "due_items", "looked_at", "open_sessions", "sessions_that_ask", "waiting_approvals"]

logger = redacted_logger(__name__)

Reindex: TypeAlias = Callable[[str, int, Sequence[DueRow]], Awaitable[None]]
"""Puts rows in place of all of a session's in the index, where its head is still this one."""


async def open_sessions(journal: Journal) -> list[str]:
    """Return the sessions whose run is paused or under way, those that changed last first."""
    return [info.id for info in await journal.sessions() if info.phase in ("paused", "queued", "running")]


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
