"""Waiting: the requests for consent that nobody has answered yet, over all sessions of a journal. Answers none."""

import logging
from collections.abc import Sequence

from treadle.errors import JournalError
from treadle.ports import Journal
from treadle.state import Approval, SessionState
from treadle.waiting import unreadable
from treadle.waiting import waiting_approvals as waiting_of

__all__ = ["waiting_approvals"]

logger = logging.getLogger(__name__)


async def waiting_approvals(journal: Journal) -> Sequence[Approval]:
    """Return them, the sessions that changed last first. An answer that no run has taken in yet counts as one.

    A session that cannot be read is left out with a warning: it never hides the others.
    """
    waiting: list[Approval] = []
    for info in await journal.sessions():
        if info.state not in ("paused", "running"):
            continue
        try:
            events = await journal.read(info.id)
        except JournalError as error:
            logger.warning("%s", unreadable(info.id, error))
            continue
        state = SessionState(info.id)
        for event in events:
            state.apply(event)
        if state.pending_approvals():
            waiting += waiting_of(state, await journal.inbox(info.id))
    return tuple(waiting)
