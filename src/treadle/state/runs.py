"""A run of a session, by its events."""

from typing import Literal

import msgspec

from treadle.budgets import Spent
from treadle.state.calls import CallRecord, ChildState, Denial
from treadle.tools import JsonObject

__all__ = ["RunState"]

RunPhase = Literal["running", "paused", "stopped", "completed", "failed"]


class RunState(msgspec.Struct, kw_only=True):
    """One task's run: what it has used, done and become. Starts at zero with each new task."""

    id: str
    task: str
    phase: RunPhase = "running"
    reason: str | None = None
    profile: str | None = None
    budget: JsonObject | None = None
    deadline: float | None = None
    """Seconds since 1970 at which the run must have ended."""
    spent: Spent = Spent()
    calls: list[CallRecord] = msgspec.field(default_factory=list)
    children: dict[str, ChildState] = msgspec.field(default_factory=dict)
    """By session id."""
    denials: list[Denial] = msgspec.field(default_factory=list)
    text: str = ""
    """The last text that the model gave."""
    origin: JsonObject | None = None
    """How whoever started it had set it up, in words of theirs."""
    first_message: int = 0
    """Where in the session's messages the run begins."""
    steps: int = 0
    """Responses of the model, the closing one included."""
    has_closed: bool = False
    """Whether the closing request after a limit has been made."""
    was_cut: bool = False
    """Whether the output limit has cut a response."""
    model_retries: int = 0
    """Model calls that were tried again."""
    cut_in_calls: int = 0
    """Responses in a row whose calls were cut off by the output limit."""
    segment_at: float = 0.0
    last_at: float = 0.0
