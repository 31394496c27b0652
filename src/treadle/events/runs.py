"""What happens to a run: its beginning, pauses and end, messages, limits and repairs."""

from typing import Any, Literal

import msgspec

from treadle.events.base import Event
from treadle.messages import Message, Usage
from treadle.tools import JsonObject

__all__ = [
    "BudgetReached",
    "BudgetWarned",
    "ContextCompacted",
    "HistoryRepaired",
    "MessageAdded",
    "RepeatNoticed",
    "RunFinished",
    "RunPaused",
    "RunResumed",
    "RunStarted",
]


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    task: str
    model: str = ""
    profile: str | None = None
    budget: dict[str, Any] | None = None
    tools: tuple[str, ...] = ()
    instructions: str = ""
    """Digest of the agent's instructions; empty for none."""
    deadline: float | None = None
    """Seconds since 1970 at which the run must have ended; None for no such time."""
    origin: JsonObject | None = None
    """How whoever started the run had set it up, in words of theirs: folder, tools, address. No secrets."""
    agent: str = ""
    """Name of the agent, by which a registry finds it; empty for an agent without a name."""
    fingerprint: dict[str, str] = msgspec.field(default_factory=dict)
    """What tells the agent from one that has changed since, by part: model, instructions, tools, answer."""


class RunPaused(Event, frozen=True, kw_only=True, tag="run.paused"):
    reason: str
    wall_seconds: float = 0.0
    """Running time of the run so far."""


class RunResumed(Event, frozen=True, kw_only=True, tag="run.resumed"):
    budget: dict[str, Any] | None = None
    profile: str | None = None
    model: str = ""
    instructions: str = ""
    deadline: float | None = None
    origin: JsonObject | None = None
    """As in `run.started`; None where it stays."""
    agent: str = ""
    """As in `run.started`; empty where it stays."""
    fingerprint: dict[str, str] = msgspec.field(default_factory=dict)
    """As in `run.started`; empty where it stays."""


class RunFinished(Event, frozen=True, kw_only=True, tag="run.finished"):
    reason: str
    status: str
    completed: bool
    message: str = ""
    text: str = ""
    profile: str | None = None
    budget: str | None = None
    used: int | float | str | None = None
    limit: int | float | str | None = None
    details: dict[str, Any] | None = None
    output: Any = None
    wall_seconds: float = 0.0


class MessageAdded(Event, frozen=True, kw_only=True, tag="message.added"):
    message: Message
    source: Literal["task", "steer", "runtime", "import"] = "task"
    message_id: str | None = None
    """The inbox message that brought it, so that it is added once."""


class RepeatNoticed(Event, frozen=True, kw_only=True, tag="repeat.noticed"):
    tool: str
    digest: str
    count: int


class BudgetWarned(Event, frozen=True, kw_only=True, tag="budget.warned"):
    budget: str
    used: int | float | str
    limit: int | float | str


class BudgetReached(Event, frozen=True, kw_only=True, tag="budget.reached"):
    budget: str
    used: int | float | str
    limit: int | float | str
    profile: str | None = None


class HistoryRepaired(Event, frozen=True, kw_only=True, tag="history.repaired"):
    repairs: tuple[str, ...] = ()


class ContextCompacted(Event, frozen=True, kw_only=True, tag="context.compacted"):
    """From here on the model is shown something shorter in place of some messages. The messages stay as they are stored.

    What was done for it, such as the request of a summary, is recorded before it under the same `act`.
    """

    summary: str = ""
    """The text that stands in place of the messages; empty where they only lost content."""
    tier: str = ""
    """Which way it was made shorter, such as `results` or `summary`."""
    reason: str = ""
    """`overflow`: the provider refused the request as too long; `window`: it came near the model's window."""
    first: int = 0
    """Number of the event that brought the first message concerned."""
    last: int = 0
    """Number of the event that brought the last one. Calls and their results are both in, or both out."""
    messages: tuple[Message, ...] | None = None
    """What stands in place of the messages; None where each stays in its place."""
    results: dict[str, str] = msgspec.field(default_factory=dict)
    """What stands in place of the results of these calls, by call id."""
    tokens_before: int = 0
    """Of the request without it, estimated."""
    tokens_after: int = 0
    """Of the request with it, estimated."""
    model: str = ""
    """The model whose request it was made for."""
    usage: Usage = Usage()
    """What it used in all; charged to the run."""
    cost: str | None = "0"
    """Exact decimal; None where nobody knows."""
