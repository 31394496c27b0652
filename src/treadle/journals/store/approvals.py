"""Waiting: the requests for consent that nobody has answered yet, over all sessions of a journal. Answers none."""

from collections.abc import Sequence

from treadle.errors import JournalError
from treadle.ports import Journal
from treadle.redaction import redacted_logger
from treadle.state import Approval, SessionState, add_up, is_cancelled, unreadable
from treadle.state import waiting_approvals as waiting_of

__all__ = ["waiting_approvals"]

logger = redacted_logger(__name__)


async def waiting_approvals(journal: Journal) -> Sequence[Approval]:
    """Return them, the sessions that changed last first. An answer that no run has taken in yet counts as one.

    A session that cannot be read is left out with a warning: it never hides the others.
    """
    waiting: list[Approval] = []
    for info in await journal.sessions():
        if info.phase not in ("paused", "running"):
            continue
        messages = await journal.inbox(info.id)  # first: what a run takes in meanwhile is then in the events too
        try:
            state = add_up(SessionState(info.id), await journal.read(info.id))
        except JournalError as error:
            logger.warning("%s", unreadable(info.id, error))
            continue
        if state.pending_approvals() and not await _is_withdrawn(journal, state):
            own = waiting_of(state, messages)
            waiting += [one for one in own if one.session_id == info.id]  # a child's are listed with the child
    return tuple(waiting)


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
