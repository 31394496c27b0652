"""Events: everything that happens in a session, typed, numbered and versioned. Facts only; nobody acts on them here.

An event is journaled as JSON and must open for ever: fields are added with defaults, never renamed or removed.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from treadle.budgets import Spent
from treadle.effects import Effect
from treadle.messages import Finish, Message, ToolCall, Usage
from treadle.tools import JsonObject, ToolResult

__all__ = [
    "ActionDecided",
    "AnyEvent",
    "ApprovalAnswered",
    "ApprovalRequested",
    "BudgetReachedEvent",
    "BudgetWarned",
    "CallDecided",
    "ChildEnded",
    "ChildStarted",
    "ContextCompacted",
    "ContractViolated",
    "DecisionRejected",
    "Event",
    "HistoryRepaired",
    "JournalDegraded",
    "MessageAdded",
    "ModelDelta",
    "ModelDiscarded",
    "ModelFailed",
    "ModelFinished",
    "ModelStarted",
    "RepeatNoticed",
    "RunFinished",
    "RunPaused",
    "RunResumed",
    "RunStarted",
    "SessionChanged",
    "SessionForked",
    "SessionMarked",
    "SessionRewound",
    "SessionSpawned",
    "SessionStatus",
    "Subscriber",
    "ToolAttemptFailed",
    "ToolFinished",
    "ToolInDoubt",
    "ToolLate",
    "ToolProgress",
    "ToolResolved",
    "ToolResumed",
    "ToolStarted",
    "ToolSuspended",
    "decode_event",
    "encode_event",
    "on",
]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """The fields that all events share. The ledger fills them in when the event is recorded."""

    session_id: str = ""
    run_id: str = ""
    step: int = 0
    """The step it belongs to; 0 before the first."""
    call_id: str | None = None
    seq: int = 0
    """Its number in the session, from 1, without gaps; 0 for live events, which are not journaled."""
    at: float = 0.0
    """Seconds since 1970, by the machine's clock."""
    version: int = 1
    """Of this event type's fields."""
    parent: str | None = None
    """The run that this one is a child of."""

    is_live: ClassVar[bool] = False
    is_of_run: ClassVar[bool] = True
    """Whether it tells of the run that is under way; what is done to a session between runs is no part of their time."""

    @property
    def type(self) -> str:
        """The event's name, such as `tool.started`."""
        return str(self.__struct_config__.tag)


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


class RunPaused(Event, frozen=True, kw_only=True, tag="run.paused"):
    reason: str
    wall_seconds: float = 0.0
    """Running time of the run so far."""


class RunResumed(Event, frozen=True, kw_only=True, tag="run.resumed"):
    budget: dict[str, Any] | None = None
    profile: str | None = None
    in_doubt_seconds: float = 0.0
    model: str = ""
    instructions: str = ""
    deadline: float | None = None
    origin: JsonObject | None = None
    """As in `run.started`; None where it stays."""


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


class ModelStarted(Event, frozen=True, kw_only=True, tag="model.started"):
    attempt: int = 1
    model: str = ""
    tools: tuple[str, ...] = ()
    """Names of the tools offered."""
    tool_choice: str = "auto"
    messages: int = 0
    closing: bool = False
    """Whether this is the one request after a limit, which may not call tools."""


class ModelDelta(Event, frozen=True, kw_only=True, tag="model.delta"):
    """Live only: a piece of the answer as it streams."""

    is_live: ClassVar[bool] = True
    text: str = ""
    thinking: str = ""
    call: ToolCall | None = None
    """A call whose arguments are complete."""


class ModelFinished(Event, frozen=True, kw_only=True, tag="model.finished"):
    message: Message
    finish: Finish = Finish.UNKNOWN
    usage: Usage = Usage()
    cost: str | None = None
    """Exact decimal; None when the model has no price."""
    attempt: int = 1
    duration_seconds: float = 0.0
    first_token_seconds: float | None = None
    closing: bool = False
    dropped_text: str = ""
    """Text of the response that only repeated a call's arguments: it is no part of the message."""
    turns: int = 1
    """Responses that the step took; their usage and cost are in it."""


class ModelFailed(Event, frozen=True, kw_only=True, tag="model.failed"):
    error: str
    """The error's class."""
    message: str
    attempt: int = 1
    status: int | None = None
    retry_in_seconds: float | None = None
    """None when there is no further attempt."""
    usage: Usage | None = None
    """What the failed attempt used, where it is known."""
    cost: str | None = None
    is_aside: bool = False
    """Whether the step goes on without this request, as with a final inference whose draft stands."""


class ModelDiscarded(Event, frozen=True, kw_only=True, tag="model.discarded"):
    """A response broke off after calls of it had started early. Their results may answer equal calls of the retry."""

    attempt: int = 1
    reason: str = ""
    calls: tuple[str, ...] = ()


class CallDecided(Event, frozen=True, kw_only=True, tag="call.decided"):
    tool: str
    decision: str
    """allow, deny, ask, sandbox; `none` for a call that never came to a decision."""
    rule: str
    reason: str = ""
    effect: Effect | None = None
    digest: str = ""
    key: str = ""
    position: int = 0
    arguments: JsonObject | None = None
    """The arguments that were decided on, where they differ from the model's."""
    early: bool = False


class ActionDecided(Event, frozen=True, kw_only=True, tag="action.decided"):
    """A tool has asked about an action of its own, in the middle of its call (`call_id`)."""

    tool: str
    """The tool that asked."""
    action: str
    arguments: JsonObject
    decision: str
    """allow, deny, ask or sandbox. The tool acts on `allow` only."""
    rule: str
    reason: str = ""
    effect: Effect | None = None
    digest: str = ""
    """Of action and canonical arguments; empty for an action whose arguments are refused."""


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval.requested"):
    approval_id: str
    tool: str
    arguments: JsonObject
    digest: str
    effect: Effect
    expires_at: float
    rule: str = ""
    reason: str = ""
    replaces: str = ""
    """The first request for this consent, where its answer could not be used; answering either answers this one."""


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval.answered"):
    approval_id: str
    answer: Literal["allow", "deny"]
    reason: str = ""
    approved_by: str = "person"
    arguments: JsonObject | None = None
    """Edited arguments, or None for those that were asked about."""
    given_at: float | None = None
    """When the person gave the answer, by the store's clock where it has one. `at` is when a run took it in."""


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool.started"):
    tool: str
    key: str = ""
    execution_id: str = ""
    position: int = 0
    effect: Effect = Effect.UNSAFE
    early: bool = False
    attempt: int = 1
    """The model attempt that proposed it."""
    call: ToolCall | None = None
    """Of an early call, which starts before its message is recorded."""
    digest: str = ""
    business_key: str = ""
    """What the tool's `key` says that the call is about, such as an invoice; empty without one."""
    timeout: float | None = None
    """Seconds that the tool gave this attempt: after a crash a request of it may act for so long. None for no limit."""


class ToolSuspended(Event, frozen=True, kw_only=True, tag="tool.suspended"):
    """A started call waits for something outside: a person, a child's approval, a plan. It has not crashed, and goes on later."""

    tool: str
    reason: str = "input_required"
    """Why the run pauses: `approval_required` or `input_required`."""
    waits_for: str = ""
    """What it waits for, for people."""
    asks: tuple[ApprovalRequested, ...] = ()
    """Requests for consent that it waits for. Each names the session that asked, where the answer belongs."""


class ToolResumed(Event, frozen=True, kw_only=True, tag="tool.resumed"):
    """A call that was suspended, or that broke off and can go on, goes on under the key that it started with."""

    tool: str
    key: str = ""


class ChildStarted(Event, frozen=True, kw_only=True, tag="child.started"):
    """A call is carried out by an agent, in a session of its own in the same journal. Recorded again when that goes on."""

    tool: str
    child_id: str
    """The child's session."""


class ChildEnded(Event, frozen=True, kw_only=True, tag="child.ended"):
    """The child's run has ended, or waits. What it has spent counts to this run."""

    is_of_run: ClassVar[bool] = False  # a child that waited may be ended between two runs
    child_id: str
    status: str
    """completed, stopped, failed, or paused: then it goes on with this run."""
    reason: str | None = None
    spent: Spent = Spent()
    """Everything that the child has spent so far, in all its segments; so a second event of one child counts nothing twice."""


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool.progress"):
    """Live only: how far a running call is."""

    is_live: ClassVar[bool] = True
    message: str
    done: float | None = None
    total: float | None = None


class ToolAttemptFailed(Event, frozen=True, kw_only=True, tag="tool.attempt_failed"):
    attempt: int
    failure_class: str
    message: str
    retry_in_seconds: float | None = None
    traceback: str | None = None
    """For operators; never shown to the model."""


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool.finished"):
    result: ToolResult
    failure_class: str | None = None
    """The result's status where it is an error."""
    reused_from: str | None = None
    """The call of a discarded response whose result answers this one."""


class ToolLate(Event, frozen=True, kw_only=True, tag="tool.late"):
    """A call that had been given up ended after all. Recorded; never sent to the model."""

    tool: str
    outcome: str
    content: str = ""


class ToolInDoubt(Event, frozen=True, kw_only=True, tag="tool.in_doubt"):
    """A call that changes the world had started and nobody knows how it ended."""

    tool: str
    key: str = ""
    asked: str | None = None
    answer: str | None = None


class ToolResolved(Event, frozen=True, kw_only=True, tag="tool.resolved"):
    """A person has said how a call in doubt ended, before the model was told of it or later."""

    is_of_run: ClassVar[bool] = False
    tool: str
    outcome: Literal["done", "not_done", "unknown"]
    """`unknown`: nobody will find out."""
    by: str = "person"
    reason: str = ""
    key: str = ""
    """The idempotency key of the call."""
    value: Any = None
    """The result that the person has given, where the call was done."""
    child_id: str = ""
    """The session that had made the call to carry out a call of this one, and whose model hears of nothing any more."""


class RepeatNoticed(Event, frozen=True, kw_only=True, tag="repeat.noticed"):
    tool: str
    digest: str
    count: int


class BudgetWarned(Event, frozen=True, kw_only=True, tag="budget.warned"):
    budget: str
    used: int | float | str
    limit: int | float | str


class BudgetReachedEvent(Event, frozen=True, kw_only=True, tag="budget.reached"):
    budget: str
    used: int | float | str
    limit: int | float | str
    profile: str | None = None


class ContractViolated(Event, frozen=True, kw_only=True, tag="contract.violated"):
    tool: str
    details: tuple[dict[str, Any], ...] = ()
    artifact: str | None = None
    """Digest of the raw result in the journal, kept out of the model's sight."""


class HistoryRepaired(Event, frozen=True, kw_only=True, tag="history.repaired"):
    repairs: tuple[str, ...] = ()


class ContextCompacted(Event, frozen=True, kw_only=True, tag="context.compacted"):
    summary: str = ""


class DecisionRejected(Event, frozen=True, kw_only=True, tag="decision.rejected"):
    reason: str
    """extraction: it could not be read; validation: it could not be accepted."""
    text: str = ""
    attempt: int = 1
    message: str = ""
    """What the model is told."""
    usage: Usage | None = None
    """What the response used; None for the step's last one, which `model.finished` counts."""
    cost: str | None = None


SessionStatus: TypeAlias = Literal["active", "suspended", "completed", "failed", "deleted"]
"""What people have made of a session. It says nothing of how its runs ended."""


class SessionChanged(Event, frozen=True, kw_only=True, tag="session.changed"):
    """Something about the session itself was changed between its runs."""

    is_of_run: ClassVar[bool] = False
    status: SessionStatus | None = None
    """The new status; None where it stays."""
    metadata: JsonObject | None = None
    """Keys with their new values, null for a key that is removed; None where all stay."""
    moved_to: str = ""
    """Where the session goes on from now on; empty where it was not moved."""
    by: str = ""
    reason: str = ""


class SessionForked(Event, frozen=True, kw_only=True, tag="session.forked"):
    """The events before this one were another session's."""

    is_of_run: ClassVar[bool] = False
    parent_id: str
    parent_seq: int


class SessionSpawned(Event, frozen=True, kw_only=True, tag="session.spawned"):
    """This session carries out one call of another session. Its first event."""

    is_of_run: ClassVar[bool] = False
    parent_id: str
    parent_seq: int
    """The parent's last event at that time."""
    parent_run: str
    parent_step: int
    parent_call: str
    tool: str
    root_id: str = ""
    """The session at the top, whose run a person resumes."""


class SessionMarked(Event, frozen=True, kw_only=True, tag="session.marked"):
    """A point that can be named again. A name that is used twice means the later point."""

    is_of_run: ClassVar[bool] = False
    name: str


class SessionRewound(Event, frozen=True, kw_only=True, tag="session.rewound"):
    """The conversation goes on from an earlier point. What was done after it stays done, and stays in the journal."""

    is_of_run: ClassVar[bool] = False
    to: int
    """The last event whose messages the model still sees."""
    mark: str | None = None
    effects: tuple[str, ...] = ()
    """Calls after that point which may have changed the world."""


class JournalDegraded(Event, frozen=True, kw_only=True, tag="journal.degraded"):
    """Live only: the store has failed and the run goes on in memory, or the store is back and has everything."""

    is_live: ClassVar[bool] = True
    is_over: bool = False
    waiting: int = 0
    """Events that are not stored yet."""
    message: str = ""


AnyEvent: TypeAlias = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunFinished
    | MessageAdded
    | ModelStarted
    | ModelDelta
    | ModelFinished
    | ModelFailed
    | ModelDiscarded
    | CallDecided
    | ActionDecided
    | ApprovalRequested
    | ApprovalAnswered
    | ToolStarted
    | ToolSuspended
    | ToolResumed
    | ChildStarted
    | ChildEnded
    | ToolProgress
    | ToolAttemptFailed
    | ToolFinished
    | ToolLate
    | ToolInDoubt
    | ToolResolved
    | RepeatNoticed
    | BudgetWarned
    | BudgetReachedEvent
    | ContractViolated
    | HistoryRepaired
    | ContextCompacted
    | DecisionRejected
    | SessionChanged
    | SessionForked
    | SessionSpawned
    | SessionMarked
    | SessionRewound
    | JournalDegraded
)

Subscriber: TypeAlias = Callable[[AnyEvent], None]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode_event(event: Event) -> bytes:
    """Return an event as one JSON object."""
    return _encoder.encode(event)


def decode_event(body: bytes | str) -> AnyEvent:
    """Read an event back.

    Raises:
        msgspec.DecodeError: It is no event that this version knows.
    """
    event: AnyEvent = _decoder.decode(body)
    return event


def on(*types: str, call: Subscriber) -> Subscriber:
    """Make a subscriber that hears only the named events.

    Example:
        Agent(model, subscribers=[on("tool.started", "tool.finished", call=print)])
    """
    wanted = frozenset(types)

    def hear(event: AnyEvent) -> None:
        if event.type in wanted:
            call(event)

    return hear
