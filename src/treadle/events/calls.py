"""What happens to a tool call: its decision, approval, attempts and result."""

from typing import Any, ClassVar, Literal

import msgspec

from treadle.budgets import Spent
from treadle.events.base import Event
from treadle.fields import Documented, checked
from treadle.messages import ToolCall
from treadle.tools import ApprovalType, Effect, JsonObject, Preview, ToolResult

__all__ = [
    "UNTOLD",
    "ActionDecided",
    "ApprovalAnswered",
    "ApprovalRequested",
    "CallDecided",
    "ChildEnded",
    "ChildStarted",
    "ContractViolated",
    "DoubtBelow",
    "RulesGranted",
    "ToolAttemptFailed",
    "ToolFinished",
    "ToolInDoubt",
    "ToolInput",
    "ToolLate",
    "ToolProgress",
    "ToolResolved",
    "ToolResumed",
    "ToolStarted",
    "ToolSuspended",
]


class CallDecided(Event, frozen=True, kw_only=True, tag="call.decided"):
    """A call has its decision: allowed, denied, waiting for consent, or refused because it is invalid."""

    tool: str
    """Name of the tool."""
    decision: str
    """allow, deny, ask, sandbox; `none` for a call without a decision."""
    rule: str
    """Name of the rule that decided."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    effect: Effect | None = None
    """What the call does to the world; None for a call that is not valid."""
    digest: str = ""
    """Of tool and canonical arguments: equal calls have equal digests."""
    key: str = ""
    """The idempotency key of the call."""
    position: int = 0
    """Place of the call in its response."""
    arguments: JsonObject | None = None
    """The arguments that were decided on, if they differ from the model's."""
    converted: JsonObject | None = None
    """The arguments as they were read, if the model put a scalar in quotes or left out the list around one value; None otherwise."""
    early: bool = False
    """Whether it was decided while the model's response was still streaming."""
    scope: str = ""
    """Where the rule comes from, such as `project` or `agent`: see `treadle.Decision`."""
    by: str = ""
    """Who decided."""
    mode: str = ""
    """The session's mode at that time."""
    message: str = ""
    """Words of the decision for the model."""
    interrupt: bool = False
    """Whether the run stops for a person because of it."""
    risk: str = ""
    """The risk class of the call: see `treadle.tools.Risk`."""
    lifted: tuple[str, ...] = ()
    """What of the sandbox's border is lifted for it, or would be with consent: see `treadle.Decision`."""


class ActionDecided(Event, frozen=True, kw_only=True, tag="action.decided"):
    """A tool has asked about one of its own actions, in the middle of its call (`call_id`)."""

    tool: str
    """The tool that asked."""
    action: str
    """Name of the action."""
    arguments: JsonObject
    """Arguments of the action."""
    decision: str
    """allow, deny, ask or sandbox. The tool acts on `allow` only."""
    rule: str
    """Name of the rule that decided."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    effect: Effect | None = None
    """What the action does to the world."""
    digest: str = ""
    """Of action and canonical arguments; empty for an action whose arguments are refused."""
    scope: str = ""
    """Where the rule comes from, such as `project` or `agent`: see `treadle.Decision`."""
    by: str = ""
    """Who decided."""
    mode: str = ""
    """The session's mode at that time."""


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval.requested"):
    """A call waits for a person's consent."""

    approval_id: str
    """Id of the request for consent."""
    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """The arguments, as a JSON object."""
    digest: str
    """What the consent is bound to: session, call, tool, arguments, effect and the tool's schema."""
    effect: Effect
    """What the call does to the world."""
    expires_at: float
    """When the request expires, in seconds since 1970."""
    rule: str = ""
    """Name of the rule that decided."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    replaces: str = ""
    """The first request for this consent, where its answer could not be used; answering either answers this one."""
    approval_type: ApprovalType = "tool_call"
    """What is asked: whether the call may run; whether one that had started may run again; whether it is meant, though it may be the
    repetition of another one; or what to run, where edited arguments did not fit."""
    action: str = ""
    """What would be done, in a few words."""
    target: str = ""
    """What it would be done to, such as a path; empty if the tool does not say."""
    risk: str = ""
    """Its risk class: see `treadle.tools.Risk`."""
    preview: Preview | None = None
    """What it would change, in detail: a unified diff, a parsed command. None in events of older versions."""
    expected_result: str = ""
    """What is true afterwards, in one sentence."""
    rollback: str = ""
    """How it can be undone, in one sentence."""
    scope: str = "call"
    """What an answer covers where it names no scope: this one call."""
    rules: tuple[str, ...] = ()
    """Rules that would allow just this call without a question. An answer may take them, for the session or permanently. Empty where none is
    proven to match, and for shells, interpreters, wrappers, protected files and calls that a rule asks about."""
    path: tuple[str, ...] = ()
    """Names of the agents down to the one that asks, where a session keeps the request of one that carries out its calls."""
    edited: JsonObject | None = None
    """Arguments that a person put in place of the model's in an earlier answer, where a hook, an interceptor or a policy has changed
    them since; None otherwise."""
    lifted: tuple[str, ...] = ()
    """What consent lifts of the sandbox's border, such as `git` or `network api.example.com`; `unconfined` for all of it."""


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval.answered"):
    """A person has answered a request for consent."""

    approval_id: str
    """Id of the request for consent."""
    answer: Literal["allow", "deny"]
    """`allow` or `deny`."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    approved_by: str = "person"
    """Who answered, such as a user's name."""
    arguments: JsonObject | None = None
    """Edited arguments, or None for those that were asked about."""
    given_at: float | None = None
    """When the person gave the answer, in seconds since 1970, by the store's clock where it has one. `at` is when a run read it."""
    interrupt: bool = False
    """Whether the person, who denies the call, wants the run to stop."""
    scope: Literal["call", "session", "rule"] = "call"
    """What an `allow` covers: this one call; this session; or, as a rule, later sessions too. `rules.granted` names the rules."""
    expires_at: float | None = None
    """When an `allow` of this one call is void, if it has not been used, in seconds since 1970."""


class RulesGranted(Event, frozen=True, kw_only=True, tag="rules.granted"):
    """A person has allowed more than one call: what these rules match is no longer asked about, unless another rule or a tool asks."""

    rules: tuple[str, ...]
    """The rules, such as `shell(git log:*)`."""
    scope: Literal["session", "rule"] = "session"
    """`session`, or `rule` where the person has them kept for later sessions too."""
    by: str = "person"
    """Who allowed it."""
    approval_id: str = ""
    """The request that was answered; empty for rules that were granted by themselves."""


class ToolStarted(Event, frozen=True, kw_only=True, tag="tool.started"):
    """A call has started. Recorded before a call that changes the world begins to act."""

    tool: str
    """Name of the tool."""
    key: str = ""
    """The idempotency key of the call."""
    execution_id: str = ""
    """Id of this execution; the result in the transcript carries it too."""
    position: int = 0
    """Place of the call in its response."""
    effect: Effect = Effect.UNSAFE
    """What the call does to the world."""
    early: bool = False
    """Whether the call started while the model's response was still streaming."""
    attempt: int = 1
    """The model attempt that proposed it."""
    call: ToolCall | None = None
    """Of an early call, which starts before its message is recorded."""
    digest: str = ""
    """Of tool and canonical arguments: equal calls have equal digests."""
    business_key: str = ""
    """What the tool's `key` says that the call is about, such as an invoice; empty without one."""
    timeout: float | None = None
    """Seconds that the tool gave this attempt: after a crash a request of it may act for so long. None for no limit."""
    decision: str = ""
    """The decision by which it runs: allow, or sandbox. Empty in journals of before there was more than one."""
    rule: str = ""
    """Name of the rule that decided."""
    scope: str = ""
    """Where the rule comes from, such as `project` or `agent`: see `treadle.Decision`."""
    by: str = ""
    """Who decided that it may run."""
    mode: str = ""
    """The session's mode at that time."""
    sandbox: str = ""
    """Name of the sandbox that it runs in; empty for a call that runs as it is."""
    lifted: tuple[str, ...] = ()
    """What of the sandbox's border is lifted for it, such as `git`."""


class ToolSuspended(Event, frozen=True, kw_only=True, tag="tool.suspended"):
    """A started call waits for something outside: a person, a child's approval, a plan. It has not crashed, and continues later."""

    tool: str
    """Name of the tool."""
    reason: str = "input_required"
    """Why the run pauses: `approval_required` or `input_required`."""
    waits_for: str = ""
    """What it waits for, for people."""
    asks: tuple[ApprovalRequested, ...] = ()
    """Requests for consent that it waits for. Each names the session that asked, where the answer belongs."""
    due_at: float | None = None
    """When it is to be started again, in seconds since 1970; None for a call that waits for somebody."""
    form: JsonObject | None = None
    """JSON Schema of what it waits for, so that a page can show a form; None where any value may be given."""


class ToolInput(Event, frozen=True, kw_only=True, tag="tool.input"):
    """A person has given a suspended call what it waits for. The call finds it in its context when it is started again."""

    tool: str
    """Name of the tool."""
    value: Any = None
    """Any JSON value."""
    by: str = "person"
    """Who gave it, such as a user's name."""
    message_id: str = ""
    """The inbox message that brought it: it is taken in once."""
    given_at: float | None = None
    """When it was given, in seconds since 1970, by the store's clock where it has one. `at` is when a run read it."""


class ToolResumed(Event, frozen=True, kw_only=True, tag="tool.resumed"):
    """A call that was suspended, or that broke off and can continue, continues under the key that it started with."""

    tool: str
    """Name of the tool."""
    key: str = ""
    """The idempotency key of the call."""
    effect: Effect = Effect.UNSAFE
    """What the call does to the world from here on; `read` where the tool records by itself what it does."""


class ChildStarted(Event, frozen=True, kw_only=True, tag="child.started"):
    """A call is carried out by an agent, in a separate session of the same journal. Recorded again when that session continues."""

    tool: str
    """Name of the tool."""
    child_id: str
    """The child's session."""
    agent: str = ""
    """Name of the agent that carries it out; empty in events of older versions."""


class DoubtBelow(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call of unknown outcome in a session that carries out a call of another one."""

    session_id: str
    """The session that made the call."""
    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    digest: str = ""
    """Of tool and canonical arguments."""
    business_key: str = ""
    """What the tool's own `key` says that the call is about, as JSON."""


class ChildEnded(Event, frozen=True, kw_only=True, tag="child.ended"):
    """The child's run has ended, or waits. What it has spent counts towards this run."""

    is_of_run: ClassVar[bool] = False  # a child that waited may be ended between two runs
    child_id: str
    """The child's session."""
    status: str
    """completed, stopped, failed, or paused: then it continues with this run."""
    reason: str | None = None
    """The stop reason of the child's run."""
    spent: Spent = Spent()
    """Everything that the child has spent so far, in all its segments; so a second event of one child counts nothing twice."""
    in_doubt: tuple[DoubtBelow, ...] = ()
    """Its calls of unknown outcome, and those of agents that it called: what equals one of them needs a person's approval."""


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool.progress"):
    """Live only: how far a running call is."""

    is_live: ClassVar[bool] = True
    message: str
    """What the tool reports, for people."""
    done: float | None = None
    """How much is done, in the tool's own unit."""
    total: float | None = None
    """How much there is in all."""


UNTOLD = " (its message is in the log)"
"""What the model reads behind the name of an exception whose message is not for it."""


class ToolAttemptFailed(Event, frozen=True, kw_only=True, tag="tool.attempt_failed"):
    """An attempt of a call has failed."""

    attempt: int
    """Number of the attempt, from 1."""
    failure_class: str
    """The kind of failure, such as `timeout`."""
    message: str
    """What went wrong, in one sentence."""
    retry_in_seconds: float | None = None
    """Seconds until the next attempt; None when there is none."""
    traceback: str | None = None
    """For operators; never shown to the model."""

    @checked
    def revealed(self, text: str) -> str:
        """Return what the model was told of the failure, for a person: with the message that it was not told."""
        return text.replace(f"{self.message.partition(':')[0]}{UNTOLD}", self.message)


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool.finished"):
    """A call has its one result."""

    result: ToolResult
    """The result."""
    failure_class: str | None = None
    """The result's status where it is an error."""
    reused_from: str | None = None
    """The call of a discarded response whose result answers this one."""


class ToolLate(Event, frozen=True, kw_only=True, tag="tool.late"):
    """A call that had been given up ended after all. Recorded; never sent to the model."""

    tool: str
    """Name of the tool."""
    outcome: str
    """`returned` or `raised`."""
    content: str = ""
    """What the call returned, or the error that it raised."""


class ToolInDoubt(Event, frozen=True, kw_only=True, tag="tool.in_doubt"):
    """A call that changes the world had started and its outcome is unknown."""

    tool: str
    """Name of the tool."""
    key: str = ""
    """The idempotency key of the call."""
    asked: str | None = None
    """Who was asked how the call ended: `check` (the tool's own) or `person`; None if nobody was."""
    answer: str | None = None
    """What came of it, such as `done`, `not_done` or `unknown`; None if nobody was asked."""


class ToolResolved(Event, frozen=True, kw_only=True, tag="tool.resolved"):
    """A person has said how a call in doubt ended, before the model was told of it or later."""

    is_of_run: ClassVar[bool] = False
    tool: str
    """Name of the tool."""
    outcome: Literal["done", "not_done", "unknown"]
    """`unknown`: nobody will find out."""
    by: str = "person"
    """Who said so, such as a user's name."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    key: str = ""
    """The idempotency key of the call."""
    value: Any = None
    """The result that the person has given, where the call was done."""
    child_id: str = ""
    """The session that had made the call to carry out a call of this one, and whose model is no longer informed."""


class ContractViolated(Event, frozen=True, kw_only=True, tag="contract.violated"):
    """A tool returned a result that does not fit its output schema."""

    tool: str
    """Name of the tool."""
    details: tuple[dict[str, Any], ...] = ()
    """Every violation: field, constraint and value."""
    artifact: str | None = None
    """Digest of the raw result in the journal, which the model does not see."""
