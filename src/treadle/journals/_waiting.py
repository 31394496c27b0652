"""Waiting: the requests for consent that nobody has answered yet, over all sessions of a journal. Answers none."""

from collections.abc import Sequence

from treadle.ports import Journal
from treadle.state import Approval, SessionState

__all__ = ["waiting_approvals"]


async def waiting_approvals(journal: Journal) -> Sequence[Approval]:
    """Return them, the sessions that changed last first. An answer that no run has taken in yet counts as one."""
    waiting: list[Approval] = []
    for info in await journal.sessions():
        if info.state != "paused":
            continue
        state = SessionState(info.id)
        for event in await journal.read(info.id):
            state.apply(event)
        answered = {message.id for message in await journal.inbox(info.id) if message.kind == "answer"}
        waiting += [one for one in state.pending_approvals() if f"answer:{one.id}" not in answered]
    return tuple(waiting)
