"""The explanation of a session, as a value: what was tried, used, changed, approved and refused, and why it ended."""

from decimal import Decimal
from typing import Any

import msgspec

from treadle.events import ContextCompacted
from treadle.fields import Documented
from treadle.messages import Usage
from treadle.stops import StopSignal
from treadle.tools import Effect, JsonObject

__all__ = [
    "Approved",
    "Aside",
    "Changed",
    "Explanation",
    "Failed",
    "Given",
    "Rerun",
    "Resolved",
    "RunTrace",
    "Stopped",
    "Tried",
    "Used",
]


class Tried(msgspec.Struct, Documented, kw_only=True):
    """One call that the model proposed."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    run_id: str
    """Run of the call."""
    step: int
    """Step of the call, from 1."""
    arguments: str = ""
    """As the model wrote them."""
    decided: str = ""
    """The arguments that were decided on, as JSON, where they differ: a person or a policy has edited them."""
    digest: str = ""
    """Of tool and canonical arguments; empty for a call that never was valid."""
    effect: str | None = None
    """What the call does to the world; None for a call that is not valid."""
    decision: str | None = None
    """`allow`, `deny`, `ask` or `sandbox`; None before it is decided."""
    rule: str | None = None
    """Name of the rule that decided; None before it is decided."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    scope: str = ""
    """Where the rule comes from; empty in journals of before that was recorded."""
    by: str = ""
    """Who decided."""
    mode: str = ""
    """The session's mode when it was decided."""
    status: str | None = None
    """Of its result; None where there is none yet."""
    attempts: int = 0
    """Times the tool was started."""
    late: str = ""
    """How it ended after it had been given up: `returned` or `raised`, and what. The model was told something else by then."""


class Used(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Data that the model was given by a call."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    arguments: str
    """The arguments, as JSON."""
    characters: int
    """Length of what the model was shown."""


class Changed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that changed the world, or may have."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    arguments: str
    """The arguments, as JSON."""
    effect: Effect
    """What the call does to the world."""
    status: str
    """Status of the call's result."""
    is_certain: bool
    """Whether its result says so, or a person who has checked it; False where nobody knows."""
    resolution: str = ""
    """What a person said of a call of unknown outcome: `done` or `unknown`."""


class Approved(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Who let a call pass, or did not: a person's answer, or the rule."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    decision: str
    """allow, deny or sandbox; `resolved as done` and the like of a call of unknown outcome."""
    by: str
    """The one who answered, or `rule` and its name."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    at: float = 0.0
    """When it was recorded, in seconds since 1970."""
    given_at: float | None = None
    """When the person gave the answer, by the store's clock where it has one; None for a rule, and for old answers."""


class Resolved(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How a call in doubt ended, as a person said."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    outcome: str
    """`done`, `not_done` or `unknown`."""
    by: str
    """Who did it, such as a user's name."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    at: float = 0.0
    """When it was said, in seconds since 1970."""
    value: Any = None
    """The result that the person gave."""


class Failed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call or a model request that failed."""

    what: str
    """The tool, or `model`."""
    call_id: str | None
    """Id of the call; None for a model request."""
    status: str
    """The result's status, or the error's class."""
    message: str
    """What went wrong, in one sentence."""


class Given(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a person or another program gave a call that waited for it."""

    call_id: str
    """Id of the call."""
    value: Any
    """Any JSON value."""
    by: str = ""
    """Who did it, such as a user's name."""
    at: float = 0.0
    """When a run took it in, in seconds since 1970."""
    given_at: float | None = None
    """When it was given, by the store's clock where it has one."""


class Aside(msgspec.Struct, Documented, kw_only=True):
    """What a run did beside its own steps: it made what the model is shown shorter, or asked a model for a check."""

    act: str
    """Its name, such as `compaction:12`: events of this act belong to it."""
    run_id: str
    """Id of the run."""
    step: int = 0
    """The step that it belongs to."""
    requests: int = 0
    """How often a model was asked for it."""
    input_tokens: int = 0
    """Prompt tokens of its requests."""
    output_tokens: int = 0
    """Completion tokens of its requests."""
    cost: str | None = "0"
    """Exact decimal; None where nobody knows."""
    tier: str = ""
    """Which way messages were made shorter; empty where none were."""
    first: int | None = None
    """Number of the event that brought the first message in whose place something shorter stands."""
    last: int | None = None
    """Number of the event that brought the last of these messages."""
    tokens_before: int | None = None
    """Of the request without it, estimated."""
    tokens_after: int | None = None
    """Of the request with it, estimated."""

    def count(self, usage: Usage, cost: str | None) -> None:
        """Add one response."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        known = None if cost is None or self.cost is None else Decimal(self.cost) + Decimal(cost)
        self.cost = None if known is None else format(known.normalize(), "f")

    def compacted(self, event: ContextCompacted) -> None:
        """Add what came of it: its usage is the whole."""
        self.input_tokens, self.output_tokens = event.usage.input_tokens, event.usage.output_tokens
        self.cost, self.tier = event.cost, event.tier
        self.first, self.last = event.first, event.last
        self.tokens_before, self.tokens_after = event.tokens_before, event.tokens_after


class Stopped(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How the last run ended."""

    status: str
    """`completed`, `stopped`, `failed` or `paused`."""
    reason: str | None
    """The stop reason."""
    message: str = ""
    """How the run ended, in one sentence."""
    budget: str | None = None
    """The budget that ended the run; None where none did."""
    used: int | float | str | None = None
    """How much of that budget was used."""
    limit: int | float | str | None = None
    """That budget's limit."""
    signals: tuple[StopSignal, ...] = ()
    """All reasons that ended the run at the same time, the deciding one first; empty where there was only one."""


class Rerun(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What can be done again."""

    can_resume: bool
    """Whether `resume` can continue the last run; nothing that was done is done again."""
    is_safe: bool
    """Whether the task can be given anew from the start without doing something twice."""
    why: str
    """The reason, in one sentence."""


class RunTrace(msgspec.Struct, Documented, kw_only=True):
    """One run in figures."""

    run_id: str
    """Id of the run."""
    task: str
    """The task."""
    model: str = ""
    """The dialect and model that the run began with."""
    models: list[str] = []
    """Every model that was asked, in order of first use."""
    instructions: str = ""
    """Digest of the agent's instructions."""
    tools: list[str] = []
    """Names of the tools that the model saw."""
    started_at: float = 0.0
    """When it began, in seconds since 1970."""
    ended_at: float | None = None
    """When it ended, in seconds since 1970; None while it runs."""
    steps: int = 0
    """Steps of the run."""
    input_tokens: int = 0
    """Prompt tokens of all model calls."""
    output_tokens: int = 0
    """Completion tokens of all model calls."""
    cost: str | None = None
    """Exact decimal; None when a model call had no price."""
    compactions: int = 0
    """How often earlier messages were replaced by a summary."""
    status: str = "running"
    """`running`, `paused`, `completed`, `stopped` or `failed`."""
    reason: str | None = None
    """The stop reason; None while it runs."""


class Explanation(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True):
    """Seven answers on one session, and the figures of its runs. Its JSON has callers and children where there are any."""

    session_id: str
    """Id of the session."""
    status: str
    """What people have made of the session."""
    state: str
    """What happened to its last run."""
    parent_id: str | None
    """The session that it was forked from; None for a session that is not a fork."""
    parent_seq: int | None
    """Number of the last event that the two share."""
    tried: tuple[Tried, ...]
    """Every call that the model proposed, in order."""
    data_used: tuple[Used, ...]
    """Data that calls gave to the model."""
    changed: tuple[Changed, ...]
    """Calls that changed the world, or may have."""
    approved: tuple[Approved, ...]
    """Who allowed or denied each call."""
    failed: tuple[Failed, ...]
    """Calls and model requests that failed."""
    stopped: Stopped | None
    """None before the first run."""
    rerun: Rerun
    """Whether the task can be run again, and how."""
    runs: tuple[RunTrace, ...]
    """Each run in figures."""
    rewinds: tuple[int, ...]
    """Events that the conversation was taken back to."""
    caller_id: str | None = None
    """The session whose call this one carries out; None for a session that people run."""
    caller_run: str | None = None
    """Run of that call."""
    caller_step: int | None = None
    """Step of that call."""
    caller_call: str | None = None
    """Id of that call."""
    children: tuple["Explanation", ...] = ()
    """The same on the sessions that carried out its calls."""
    resolved: tuple[Resolved, ...] = ()
    """What persons have said on calls in doubt, in order: a later word on a call replaces an earlier one."""
    agent: str = ""
    """Name of the agent that carries out the last run; empty for one without a name."""
    inputs: tuple[Given, ...] = ()
    """What calls that waited were given."""
    facts: JsonObject = {}
    """What tools remember in the session."""
    acts: tuple[Aside, ...] = ()
    """What its runs did beside their own steps."""
    status_reason: str = ""
    """Why somebody, or a worker, has given the session its status; empty without a reason."""
