"""What happens to a run: its beginning, pauses and end, messages, limits and repairs."""

from typing import Any, Literal

import msgspec

from treadle.events.base import Event
from treadle.messages import Message, Usage
from treadle.stops import StopSignal
from treadle.tools import JsonObject

__all__ = [
    "BudgetReached",
    "BudgetWarned",
    "CompactionSkipped",
    "ContextCompacted",
    "GoalChecked",
    "GoalSet",
    "HistoryRepaired",
    "HookActed",
    "MessageAdded",
    "RepeatNoticed",
    "RunFinished",
    "RunPaused",
    "RunResumed",
    "RunStarted",
    "ToolsetFailed",
    "ToolsetListed",
]


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    """A task was given: its run begins."""

    task: str
    """The task."""
    model: str = ""
    """The dialect and model, such as `openai-chat:gpt-5-mini`."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""
    budget: dict[str, Any] | None = None
    """The limits of the run, by name."""
    tools: tuple[str, ...] = ()
    """Names of the agent's tools."""
    instructions: str = ""
    """Digest of the agent's instructions; empty for none."""
    sent_instructions: str | None = None
    """The instructions themselves, if they were written for this run; None if they are the agent's own text."""
    deadline: float | None = None
    """Seconds since 1970 at which the run must have ended; None for no such time."""
    origin: JsonObject | None = None
    """How whoever started the run had set it up, as a JSON object of theirs: folder, tools, address. No secrets."""
    agent: str = ""
    """Name of the agent, by which a registry finds it; empty for an agent without a name."""
    fingerprint: dict[str, str] = msgspec.field(default_factory=dict)
    """What tells the agent from one that has changed since, by part: model, tools, answer."""
    single_turn: bool = False
    """Whether the model may call tools in one response only: its next one must be the answer."""
    worker: str = ""
    """The worker that runs it: its name, and when it began. Empty for another process."""


class RunPaused(Event, frozen=True, kw_only=True, tag="run.paused"):
    """A run waits for a person."""

    reason: str
    """`approval_required` or `input_required`."""
    wall_seconds: float = 0.0
    """Running time of the run so far."""


class RunResumed(Event, frozen=True, kw_only=True, tag="run.resumed"):
    """A run that was paused, stopped or interrupted is resumed."""

    budget: dict[str, Any] | None = None
    """The new budget; None if it is unchanged."""
    profile: str | None = None
    """The agent's profile; None if it is unchanged."""
    model: str = ""
    """The dialect and model that the run is resumed with."""
    instructions: str = ""
    """Digest of the agent's instructions; empty for none."""
    sent_instructions: str | None = None
    """As in `run.started`; None if they are unchanged."""
    deadline: float | None = None
    """Seconds since 1970 at which the run must have ended; None if it is unchanged."""
    origin: JsonObject | None = None
    """As in `run.started`; None if it is unchanged."""
    agent: str = ""
    """As in `run.started`; empty if it is unchanged."""
    fingerprint: dict[str, str] = msgspec.field(default_factory=dict)
    """As in `run.started`; empty if it is unchanged."""
    worker: str = ""
    """As in `run.started`: the one that runs it from here on."""
    is_alone: bool = False
    """Whether that worker runs nothing else meanwhile: processes that ran this session have died."""


class RunFinished(Event, frozen=True, kw_only=True, tag="run.finished"):
    """A run has ended."""

    reason: str
    """The stop reason, such as `completed`."""
    status: str
    """`completed`, `stopped` or `failed`."""
    completed: bool
    """Whether the task is done."""
    message: str = ""
    """How the run ended, in one sentence."""
    text: str = ""
    """The answer, or the last text before an abnormal stop."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""
    budget: str | None = None
    """The budget that ended the run; None if none did."""
    used: int | float | str | None = None
    """How much of that budget was used, in the unit of the budget: turns, calls, seconds, tokens, characters, retries or USD."""
    limit: int | float | str | None = None
    """That budget's limit, in the same unit."""
    details: dict[str, Any] | None = None
    """Facts of the reason. JSON values."""
    output: Any = None
    """The structured answer, or the payload of the tool that ended the run. A JSON value."""
    wall_seconds: float = 0.0
    """Running time of the run, in seconds."""
    signals: tuple[StopSignal, ...] = ()
    """All reasons that ended it at the same time, the deciding one first; empty if there was only one."""


class MessageAdded(Event, frozen=True, kw_only=True, tag="message.added"):
    """A message that the model did not write joined the conversation."""

    message: Message
    """The message."""
    source: Literal["task", "steer", "runtime", "import", "hook"] = "task"
    """Where it came from: the run's `task`, a person who steered the run, the `runtime` itself, an `import`, or a `hook`."""
    message_id: str | None = None
    """The inbox message that brought it, so that it is added once."""


class HookActed(Event, frozen=True, kw_only=True, tag="hook.acted"):
    """A hook has changed what a run does: added a message, denied something, or made the run continue at its end."""

    hook: str
    """Which hook."""
    at_moment: str
    """The moment, such as `prompt` or `stop`."""
    answer: str
    """`message`, `deny` or `continued`."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    interrupt: bool = False
    """Whether its denial stops the run for a person."""


class RepeatNoticed(Event, frozen=True, kw_only=True, tag="repeat.noticed"):
    """The model has proposed the same call again."""

    tool: str
    """Name of the tool."""
    digest: str
    """Of tool and canonical arguments: equal calls have equal digests."""
    count: int
    """How often in a row."""


class BudgetWarned(Event, frozen=True, kw_only=True, tag="budget.warned"):
    """A run nears one of its limits."""

    budget: str
    """Name of the budget, such as `max_tool_calls`."""
    used: int | float | str
    """How much of it is used, in the unit of the budget: turns, calls, seconds, tokens, characters, retries or USD."""
    limit: int | float | str
    """The limit, in the same unit."""


class BudgetReached(Event, frozen=True, kw_only=True, tag="budget.reached"):
    """A limit has been reached. The run ends, or asks the model for its closing answer."""

    budget: str
    """Name of the budget, such as `max_tool_calls`."""
    used: int | float | str
    """How much of it is used, in the unit of the budget: turns, calls, seconds, tokens, characters, retries or USD."""
    limit: int | float | str
    """The limit, in the same unit."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""


class HistoryRepaired(Event, frozen=True, kw_only=True, tag="history.repaired"):
    """The messages of a request were repaired so that the provider accepts them; the store is unchanged."""

    repairs: tuple[str, ...] = ()
    """Each repair, in one sentence."""


class ContextCompacted(Event, frozen=True, kw_only=True, tag="context.compacted"):
    """From here on the model is shown something shorter in place of some messages. The messages stay as they are stored.

    What was done for it, such as the request of a summary, is recorded before it under the same `act`.
    """

    summary: str = ""
    """The text that replaces the messages; empty if they only lost content."""
    tier: str = ""
    """How it was shortened, such as `results` or `summary`."""
    reason: str = ""
    """`overflow`: the provider refused the request as too long; `window`: it came near the model's window; `step`: the results of
    one step were too long together; `asked`: a person asked for it."""
    first: int = 0
    """Number of the event that brought the first message concerned."""
    last: int = 0
    """Number of the event that brought the last one. Calls and their results are both in, or both out."""
    messages: tuple[Message, ...] | None = None
    """What replaces the messages; None if each stays in its place."""
    results: dict[str, str] = msgspec.field(default_factory=dict)
    """What replaces the results of these calls, by call id."""
    artifacts: tuple[str, ...] = ()
    """Digests of the stored wholes of what was made shorter: the model can read on in them."""
    tokens_before: int = 0
    """Of the request without it, estimated."""
    tokens_after: int = 0
    """Of the request with it, estimated."""
    model: str = ""
    """The model whose request it was made for."""
    usage: Usage = Usage()
    """What it used in all; charged to the run."""
    cost: str | None = "0"
    """Exact decimal; None if unknown."""


class CompactionSkipped(Event, frozen=True, kw_only=True, tag="context.compaction_skipped"):
    """A person asked for a compaction, and the model is shown what it was shown before: nothing could be shortened."""

    message: str = ""
    """Why, in one sentence."""


class ToolsetListed(Event, frozen=True, kw_only=True, tag="toolset.listed"):
    """A toolset was opened, or its tools have changed."""

    toolset: str
    """Name of the toolset."""
    tools: tuple[str, ...] = ()
    """Names of all its tools that can be offered, visible now or not."""
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    """Why others of its tools cannot be offered, by name."""


class ToolsetFailed(Event, frozen=True, kw_only=True, tag="toolset.failed"):
    """A toolset is unavailable. The run continues without its tools."""

    toolset: str
    """Name of the toolset."""
    phase: Literal["open", "list", "run"] = "run"
    """open: it could not be opened; list: it did not say which tools it has; run: it ended in the middle of the run."""
    message: str = ""
    """What went wrong, in one sentence."""
    tools: tuple[str, ...] = ()
    """Names of the tools that are missing, as far as they are known."""


# --- Events of goals: what is to be reached, and what each look at it has found.


class GoalSet(Event, frozen=True, kw_only=True, tag="goal.set"):
    """A session has got a goal. Its objective never changes."""

    digest: str
    """Of the whole goal: another goal has another."""
    objective: str
    """What is to be reached."""
    done_condition: str
    """When it is reached, in words."""
    validation: str
    """What decides that it is reached: the command, or the function's name."""


class GoalChecked(Event, frozen=True, kw_only=True, tag="goal.checked"):
    """A checkpoint: the six questions about a goal, and their answers. None of them is asked of the model."""

    trigger: str
    """`checkpoint` after so many steps, or `claim` where the model says that it is done."""
    passed: bool
    """Is the done condition met? As the validation has found it."""
    exit_code: int | None = None
    """Of the command; None for a function, and for a command that did not end in time."""
    output: str = ""
    """What the validation has said: its end, where it is long."""
    is_valid: bool = True
    """Is the objective still valid? Whether the goal is the one that the session was given."""
    evidence: tuple[str, ...] = ()
    """What evidence proves progress? What was changed since the last checkpoint."""
    is_in_budget: bool = True
    """Are we within budget?"""
    left: dict[str, str] = msgspec.field(default_factory=dict)
    """What is left of each limit."""
    needs_approval: bool = False
    """Is human approval needed before the next step?"""
    should_compact: bool = False
    """Should compaction or handoff happen now?"""
