"""State: what a session's events add up to. One fold, used while events happen and when they are read back.

Not a store: it holds nothing that the events do not say.
"""

from treadle.state.calls import BUDGET_EXCEEDED, Approval, CallRecord, CallState, ChildState, Denial, streak_key
from treadle.state.runs import RunState
from treadle.state.session import SessionState

__all__ = [
    "BUDGET_EXCEEDED",
    "Approval",
    "CallRecord",
    "CallState",
    "ChildState",
    "Denial",
    "RunState",
    "SessionState",
    "streak_key",
]
