"""State: what a session's events add up to, and what of it waits for a person. Values only, folded from events.

Not a store: it holds nothing that the events and the inbox do not say.
"""

from treadle.state.adding_up import add_up
from treadle.state.calls import BUDGET_EXCEEDED, Approval, CallRecord, CallState, ChildState, Denial, streak_key
from treadle.state.compactions import ShownMessage, compacted
from treadle.state.deeds import Consent, Deed
from treadle.state.doubts import IN_DOUBT, Doubt, is_equal, resolution_message
from treadle.state.inbox import (
    InboxMessage,
    LeftAnswer,
    LeftCancellation,
    LeftCompaction,
    LeftInput,
    LeftMessage,
    LeftMode,
    LeftUnknown,
    LeftWake,
    inbox_message,
    input_id,
)
from treadle.state.runs import RunState
from treadle.state.session import SessionState
from treadle.state.suspension import Suspended
from treadle.state.waiting import (
    answer_id,
    applies_to,
    instant,
    is_cancelled,
    mode_after,
    unreadable,
    waiting_approvals,
)

__all__ = [
    "BUDGET_EXCEEDED",
    "IN_DOUBT",
    "Approval",
    "CallRecord",
    "CallState",
    "ChildState",
    "Consent",
    "Deed",
    "Denial",
    "Doubt",
    "InboxMessage",
    "LeftAnswer",
    "LeftCancellation",
    "LeftCompaction",
    "LeftInput",
    "LeftMessage",
    "LeftMode",
    "LeftUnknown",
    "LeftWake",
    "RunState",
    "SessionState",
    "ShownMessage",
    "Suspended",
    "add_up",
    "answer_id",
    "applies_to",
    "compacted",
    "inbox_message",
    "input_id",
    "instant",
    "is_cancelled",
    "is_equal",
    "mode_after",
    "resolution_message",
    "streak_key",
    "unreadable",
    "waiting_approvals",
]
