"""Resumable: which runs can continue now: those that broke off, and paused ones for which something has arrived, at any depth.

Resumes none. A run that only waits is not among them: resuming it would change nothing.
"""

from collections.abc import Collection, Iterable, Sequence

from treadle.errors import JournalError
from treadle.ports import HasInboxes, HasOverview, InboxMessage, Journal, SessionFilter
from treadle.redaction import redacted_logger
from treadle.state import (
    CallState,
    LeftCompaction,
    LeftMessage,
    LeftMode,
    LeftUnknown,
    SessionState,
    add_up,
    unreadable,
)
from treadle.tools import MODES

__all__ = ["broken_off", "can_be_taken_in", "can_continue", "resumable_sessions", "with_messages"]

logger = redacted_logger(__name__)


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
    held = await _held(journal, found)
    return tuple(one for one in found if one not in held)


async def broken_off(journal: Journal, *, but: Collection[str] = ()) -> list[str]:
    """Return the sessions whose run is under way and that nobody holds: their processes have died, or handed them over."""
    infos = await journal.sessions(SessionFilter(phases=("running",)))
    found = [info.id for info in infos if info.status == "active" and info.id not in but]
    held = await _held(journal, found)
    return [one for one in found if one not in held]


async def with_messages(journal: Journal) -> Iterable[str]:
    """Return the paused sessions in whose inbox a message waits that their run would take in; perhaps others."""
    if isinstance(journal, HasInboxes):
        return await journal.with_messages()
    paused = await journal.sessions(SessionFilter(phases=("paused",)))
    return [info.id for info in paused if any(map(can_be_taken_in, await journal.inbox(info.id)))]


async def can_continue(journal: Journal, state: SessionState, *, now: float) -> bool:
    """Whether a session's run would do anything if it were resumed: it broke off, or something that it waits for has arrived.

    Raises:
        JournalError: The store failed.
    """
    run = state.run
    if run is None or run.phase not in ("running", "paused") or state.status != "active":
        return False
    if run.phase == "running" or (run.deadline is not None and run.deadline <= now):
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
    if state.run is not None and state.run.phase == "running":
        return child_id not in await _held(journal, [child_id])
    return state.run is None or state.run.phase != "paused" or await can_continue(journal, state, now=now)


async def _top(journal: Journal, session_id: str) -> SessionState:
    """Return the session at the top of those of which this one carries out a call."""
    state = add_up(SessionState(session_id), await journal.read(session_id))
    return state if state.caller is None else await _top(journal, state.root_id)


async def _held(journal: Journal, session_ids: Collection[str]) -> Collection[str]:
    return await journal.held(session_ids) if session_ids and isinstance(journal, HasOverview) else ()
