"""Waiting: what of a session waits for a person, by its events and by what lies in its inbox. Reads no store."""

from collections.abc import Iterable
from datetime import UTC, datetime

from treadle.fields import explained
from treadle.state.calls import Approval
from treadle.state.inbox import InboxMessage, LeftAnswer, LeftCancellation, LeftMode
from treadle.state.session import SessionState
from treadle.tools import MODES, Mode

__all__ = ["answer_id", "applies_to", "instant", "is_cancelled", "mode_after", "unreadable", "waiting_approvals"]


@explained
def answer_id(approval: Approval) -> str:
    """Return the id of the inbox message that answers a request: the first message of this id wins."""
    return f"answer:{approval.id}"


@explained
def waiting_approvals(state: SessionState, inbox: Iterable[InboxMessage]) -> tuple[Approval, ...]:
    """Return the requests for consent that nobody has answered. A session that was closed or cancelled has none."""
    messages = tuple(inbox)
    if state.status == "deleted" or state.moved_to or is_cancelled(state, messages):
        return ()
    answered = {message.id for message in messages if isinstance(message, LeftAnswer)}
    return tuple(one for one in state.pending_approvals() if answer_id(one) not in answered)


@explained
def is_cancelled(state: SessionState, inbox: Iterable[InboxMessage]) -> bool:
    """Whether the run that is under way or paused was cancelled, and has not ended yet."""
    run = state.run
    if run is None or run.phase not in ("running", "paused"):
        return False
    return any(applies_to(message, run.id) for message in inbox)


@explained
def applies_to(message: InboxMessage, run_id: str) -> bool:
    """Whether a message cancels this run. One that names no run cancels whichever is under way."""
    return isinstance(message, LeftCancellation) and message.run_id in ("", run_id)


@explained
def mode_after(inbox: Iterable[InboxMessage], mode: Mode) -> Mode:
    """Return a session's mode once these messages are taken in. A mode that only a newer Treadle knows changes nothing."""
    known: dict[str, Mode] = {one: one for one in MODES}
    for message in inbox:
        if isinstance(message, LeftMode):
            mode = known.get(message.mode, mode)
    return mode


@explained
def instant(at: float) -> str:
    """Return a time, in seconds since 1970, as people read it: `2026-11-30 18:00:00 UTC`, or the number if no calendar has it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {at!r}"


@explained
def unreadable(session_id: str, error: Exception) -> str:
    """Return one line on a session that a list had to leave out."""
    return f"Session {session_id!r} cannot be read and is left out: {error}"
