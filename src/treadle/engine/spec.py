"""Spec: the description of an agent, whole. What carries a run out takes it instead of many of its fields."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

import msgspec
from typing_extensions import TypeVar

from treadle.budgets import Budget, Guards, Spent, TenantBudget, plain
from treadle.canonical import digest
from treadle.engine.opening import Opened
from treadle.engine.rules.failures import FailureText
from treadle.errors import shown
from treadle.events import Subscriber
from treadle.fields import Documented
from treadle.messages import Message, Usage
from treadle.ports import (
    Approver,
    CheckView,
    Compactor,
    Compiler,
    Driver,
    Hook,
    Model,
    ModelRequest,
    Policy,
    RequestTracer,
    RunTracer,
    Toolset,
)
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.sessions.session import Session
from treadle.state import Approval, CallRecord, ChildState, Denial, Doubt, RunState, SessionState
from treadle.stops import Status, Stop, StopReason
from treadle.tooling.toolbox import Toolbox
from treadle.tools import Done, JsonObject, RunContext, Runner, SessionSnapshot, Tool

if TYPE_CHECKING:
    from treadle.validation.typed import Typed

__all__ = [
    "AgentSpec",
    "CancelSiblings",
    "Deps",
    "DepsFunction",
    "DoneWhen",
    "InDoubt",
    "Instruction",
    "OnDenial",
    "OnFailure",
    "RunResult",
    "conclude",
    "fingerprint_of",
    "link_runs",
    "show_request",
    "traced_origin",
]

DoneWhen: TypeAlias = Callable[[CheckView], Done | bool | Awaitable[Done | bool | None] | None]
"""Returns `Done(payload)` or True to end the run, and False or None to continue."""

Deps = TypeVar("Deps", default=Any)
"""The type of the application's own object."""

DepsFunction: TypeAlias = Callable[[SessionSnapshot], Deps | Awaitable[Deps] | AbstractAsyncContextManager[Deps]]
"""Returns the application's own object for a session. One that `@asynccontextmanager` decorates closes it after the run."""

Instruction: TypeAlias = str | Callable[[RunContext[Deps]], str | Awaitable[str | None] | None]
"""A text, or a function that returns one, or None, for the run that begins."""

InDoubt: TypeAlias = Literal["ask", "tell"]
"""Who decides on a call of unknown outcome: a person is asked, or the model is told."""

OnFailure: TypeAlias = Literal["continue", "stop"]
"""Whether the model reads that a call failed, or the run ends with it."""
OnDenial: TypeAlias = Literal["continue", "skip"]
"""Whether the calls behind a denied one, in the same response, still run."""

CancelSiblings: TypeAlias = Literal["never", "on_unsafe_error"]
"""Whether a call that acts and ends with an error cancels the other calls of its response."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything about an agent but its model."""

    name: str
    """By which a registry finds it; empty for none."""
    fingerprint: dict[str, str] = {}
    """What tells the agent from one that has changed, by part; empty for an agent without a name."""
    toolbox: Toolbox
    """The tools that it has by itself."""
    toolsets: tuple[Toolset, ...]
    """What is opened for each of its runs, or for several."""
    toolset_seconds: float
    opened: Opened | None = None
    """What holds the toolsets open for several runs; None for an agent whose runs each open them."""
    instructions: str | tuple[Instruction, ...] | None
    """A text, or texts and functions in order; those are called when a run begins."""
    policy: Policy | None
    approver: Approver | None = None
    """Who is asked for consent before the run pauses for a person."""
    approver_seconds: float | None = None
    """How long the approver may take for one call; None for no limit."""
    sandbox: Runner | None
    """Where calls run that were decided to run in a sandbox; None where there is none."""
    driver: Driver | None
    """None as long as the model has not been asked which it needs."""
    budget: Budget
    tenant_budgets: tuple[TenantBudget, ...] = ()
    """What bounds the cost of all runs of a tenant together."""
    profile: str | None
    compiler: Compiler
    compactor: Compactor | None
    step_result_chars: int | None
    """Characters that the results of one step may take together."""
    tool_choice: str
    output: "Typed | None"
    guards: Guards
    on_limit: Literal["summarize", "report"]
    unpriced: Literal["refuse", "warn"]
    in_doubt: InDoubt | None
    approval_seconds: float
    batch_seconds: float | None
    cancel_siblings: CancelSiblings = "never"
    on_failure: OnFailure = "continue"
    on_denial: OnDenial = "continue"
    strict: bool = False
    """Whether scalars in quotes are refused for every tool."""
    failure_text: FailureText = "short"
    done_when: DoneWhen | None
    subscribers: tuple[Subscriber, ...]
    required: tuple[str, ...] = ()
    """Names of tools and toolsets without which a run does not continue."""
    max_depth: int
    """How many agents may stand below it, each called by the one above."""
    hooks: tuple[Hook, ...]
    """In the order in which they are called; interceptors are among them."""
    policies_above: tuple[Policy, ...] = ()
    """Policies of the runs that called it: each can only tighten what its own one says."""

    @property
    def instructions_text(self) -> str | None:
        """The instructions as they are sent. Functions have written them once the run has begun."""
        return self.instructions if isinstance(self.instructions, str) else None

    @property
    def instructions_digest(self) -> str:
        """What tells changed instructions from those before, without repeating either; empty for none."""
        instructions = self.instructions_text
        return "" if instructions is None else digest(instructions.encode("utf-8", "replace").decode())


def fingerprint_of(about: AgentSpec, model: str) -> dict[str, str]:
    """Return what the runs of an agent depend on, by part.

    Its budget, policy and listeners belong to whoever runs it. Its instructions may change at any time: a date in them, or a
    corrected word, must not strand the sessions that are open.

    Args:
        model: The name of its model.
    """
    tools = [
        [tool.name, tool.description, tool.parameters, tool.output_schema, _effect(tool), tool.ends_run]
        for tool in about.toolbox
    ]
    tools += [["toolset", toolset.name] for toolset in about.toolsets]
    answer = [None if about.output is None else about.output.schema, about.tool_choice]
    return {
        "model": model,
        "tools": digest(tools),
        "answer": digest(answer),
    }


def _effect(tool: Tool) -> str:
    return "by arguments" if callable(tool.effect) else str(tool.effect)


# --- Reports: what a run came to, as a value and as the one JSON object that people and programs read. Decides nothing.

Output_co = TypeVar("Output_co", default=Any, covariant=True)
"""The type of an agent's answer."""


class RunResult(msgspec.Struct, Documented, Generic[Output_co], frozen=True, kw_only=True):
    """The end of one run, with everything that was done until then. An abnormal stop is a value, not an exception.

    Example:
        result = await agent.run("Read the invoice")    # RunResult[Invoice], for Agent(..., output=Invoice)
        if result.output is not None:
            print(result.output.total)
    """

    session_id: str
    """Id of the session."""
    session: Session
    """The session of the run, so that a paused or stopped run can be resumed: `agent.resume(result.session)`."""
    run_id: str = ""
    """Id of the run, as its events have it."""
    stop: Stop
    """Why the run ended."""
    text: str
    """The answer, or the last text before an abnormal stop."""
    output: Output_co | None = None
    """The structured answer, in the agent's output type, or the payload of a tool that ended the run; None without one."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""
    spent: Spent = Spent()
    """What the run has used: turns, calls, tokens, cost and time."""
    steps: int = 0
    """Steps of the run: model responses, each with the results of its calls."""
    model_retries: int = 0
    """Model calls that were tried again, those that led to an answer included."""
    tool_calls: tuple[CallRecord, ...] = ()
    """Every call of the run, in order, with its arguments, its status and its result."""
    tool_seconds: float = 0.0
    """How long the calls of the run took, added up."""
    tool_wall_seconds: float = 0.0
    """How long any of them was under way: their critical path. What parallel calls have gained is the difference."""
    children: tuple[ChildState, ...] = ()
    """Agents that carried out calls of the run, in the order in which they began."""
    approvals: tuple[Approval, ...] = ()
    """Requests for consent that wait for an answer."""
    denials: tuple[Denial, ...] = ()
    """Calls that a policy or a person denied."""
    in_doubt: tuple[Doubt, ...] = ()
    """Calls of the session that may have acted, whose outcome nobody knows, and that no person has resolved."""
    running_on: tuple[str, ...] = ()
    """Ids of calls that were given up and still ran when the run ended: a thread can be asked to stop, not stopped."""
    messages: tuple[Message, ...] = ()
    """The whole transcript of the session."""
    advice: str = ""
    """What you can do about the model's server, such as the option that makes it read the calls of its model; empty for nothing."""
    degraded: bool = False
    """Whether the journal failed during the run, which continued in memory where that was safe."""
    unstored: int = 0
    """Events that the journal lacks, because it was not back when the run ended. They are lost with this process."""

    def __repr__(self) -> str:
        """Return how it ended, and the beginning of the answer."""
        said = shown(self.text) if self.output is None else shown(self.output)
        return (
            f"<RunResult {self.reason} of {self.session_id}, {self.steps} steps, {len(self.tool_calls)} calls: {said}>"
        )

    @property
    def reason(self) -> StopReason:
        return self.stop.reason

    @property
    def status(self) -> Status:
        return self.stop.reason.status

    @property
    def completed(self) -> bool:
        return self.stop.reason.is_completed

    @property
    def message(self) -> str:
        """One sentence on how the run ended, for a person."""
        return self.stop.message

    @property
    def next_safe_action(self) -> str:
        """What a program that acts for a user may safely do next."""
        action = self.reason.next_safe_action
        if self.reason is StopReason.INPUT_REQUIRED:
            action = f"{action} {self.message}"
        if self._has_met_deadline:
            action = "Continue with a later deadline, once the person who gave the task agrees."
        return self._after_doubts(action)

    @property
    def next_step(self) -> str:
        """What the person who reads it may do next."""
        step = "Give a later deadline to continue." if self._has_met_deadline else self.reason.next_step
        return self._after_doubts(step)

    @property
    def _has_met_deadline(self) -> bool:
        """Whether a deadline ended the run: a larger limit would not help it."""
        return self.reason is StopReason.BUDGET_EXCEEDED and "deadline" in (self.stop.details or {})

    def _after_doubts(self, action: str) -> str:
        if not self.in_doubt:
            return action
        calls = ", ".join(f"{doubt.tool} ({doubt.call_id})" for doubt in self.in_doubt)
        first = f"Find out how {calls} ended, and record it: `treadle resolve` or session.resolve()."
        return first if self.completed else f"{first} {action}"

    @property
    def usage(self) -> Usage:
        return self.spent.usage

    def report(self) -> dict[str, Any]:
        """Return the report as plain JSON values: the object of the command line's `--json`."""
        reached, cost = self.stop.reached, self.spent.cost
        return {
            "status": self.status.value,
            "reason": self.reason.value,
            "completed": self.completed,
            "next_safe_action": self.next_safe_action,
            "message": self.message,
            "signals": [msgspec.to_builtins(one) for one in self.stop.signals],
            "details": self.stop.details,
            "phase": self.stop.phase,
            "budget": reached.budget if reached else None,
            "used": reached.used if reached else None,
            "limit": reached.limit if reached else None,
            "profile": self.profile,
            "text": self.text,
            "output": self.stop.output,
            "session_id": self.session_id,
            "advice": self.advice,
            "degraded": self.degraded,
            "unstored": self.unstored,
            "usage": _usage(self.usage),
            "cached_share": _cached_share(self.usage),
            "cost": None if cost is None else str(plain(cost)),
            "wall_seconds": round(self.spent.wall_seconds, 3),
            "steps": self.steps,
            "retries": {
                "model": self.model_retries,
                "tool": sum(max(call.attempts - 1, 0) for call in self.tool_calls),
            },
            "tool_calls": [{name: getattr(call, name) for name in _REPORTED} for call in self.tool_calls],
            "failed_tool_calls": sum(call.status != "ok" for call in self.tool_calls),
            "tool_seconds": {
                "sum": round(self.tool_seconds, 3),
                "critical_path": round(self.tool_wall_seconds, 3),
                "gained": round(self.tool_seconds - self.tool_wall_seconds, 3),
            },
            "children": [_child(child) for child in self.children],
            "approvals": [_approval(approval) for approval in self.approvals],
            "in_doubt": [msgspec.to_builtins(doubt) for doubt in self.in_doubt],
            "running_on": list(self.running_on),
            "denials": [msgspec.structs.asdict(denial) for denial in self.denials],
        }


_REPORTED = ("id", "name", "status", "attempts", "duration_seconds")
"""What a report says of a call. Arguments and results may be long, or secret: the journal has them."""


def _cached_share(usage: Usage) -> float | None:
    """Return which part of the input came from the provider's cache; None where nothing was sent."""
    return round(usage.cached_input_tokens / usage.input_tokens, 3) if usage.input_tokens else None


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the counts that every report has, and tokens written to a cache where there are any."""
    counts = msgspec.structs.asdict(usage)
    if not usage.cache_written_tokens:
        del counts["cache_written_tokens"]
    return counts


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "digest": approval.digest,
        "expires_at": approval.expires_at,
        "path": list(approval.path),
    }


def _child(child: ChildState) -> dict[str, Any]:
    cost = child.spent.cost
    return {
        "agent": child.agent,
        "call_id": child.call_id,
        "session_id": child.session_id,
        "status": child.status,
        "reason": child.reason,
        "usage": _usage(child.spent.usage),
        "cost": None if cost is None else str(plain(cost)),
        "steps": child.spent.model_turns,
        "tool_calls": child.spent.tool_calls,
    }


def conclude(state: SessionState, stop: Stop, session: Session, *, has_price: bool) -> RunResult:
    """Make the result of the run that has just ended."""
    run = state.run
    assert run is not None
    spent = run.spent if has_price else msgspec.structs.replace(run.spent, cost=None)
    return RunResult(
        session_id=state.id,
        run_id=run.id,
        session=session,
        stop=stop,
        text=run.text,
        output=stop.output,
        profile=run.profile,
        spent=spent,
        steps=run.steps,
        model_retries=run.model_retries,
        tool_calls=state.call_records(),
        tool_seconds=run.tool_seconds,
        tool_wall_seconds=run.tool_wall_seconds,
        children=tuple([msgspec.structs.replace(child) for child in run.children.values()]) if run.children else (),
        approvals=state.pending_approvals(),
        denials=tuple(run.denials),
        in_doubt=state.open_doubts(),
        running_on=tuple(call.id for future, call in session.abandoned.items() if not future.done()),
        messages=tuple(state.messages),
        advice=run.advice,
        degraded=session.is_degraded,
        unstored=session.unstored,
    )


# --- Traces: what a run records of the trace that it belongs to, and the link back from a run that continues. Makes no
# span.

logger = redacted_logger(__name__)

_TRACE = "trace"


def traced_origin(
    subscribers: Sequence[Subscriber], given: JsonObject | None, before: RunState | None
) -> JsonObject | None:
    """Return the origin that a run records: what was given for it, with the trace that is current. None where it stays.

    Args:
        subscribers: Of the run; the first that traces runs counts.
        given: What whoever started the run has given.
        before: The run that continues; None for one that begins.
    """
    for tracer in subscribers:
        if isinstance(tracer, RunTracer):
            try:
                headers = dict(tracer.headers())
            except Exception:  # a subscriber cannot change the run
                logger.exception("A subscriber raised at headers; the run records no trace of it")
                continue
            if headers:
                kept = given if given is not None or before is None else before.origin
                return {**(kept or {}), _TRACE: headers}
    return given


def link_runs(subscribers: Sequence[Subscriber], run: RunState | None) -> None:
    """Say, to each that traces runs, to which trace a run belonged that is about to continue."""
    recorded = None if run is None else (run.origin or {}).get(_TRACE)
    if run is None or not isinstance(recorded, dict):
        return
    headers = {name: value for name, value in recorded.items() if isinstance(value, str)}
    for tracer in subscribers:
        if isinstance(tracer, RunTracer):
            try:
                tracer.link(run.id, headers)
            except Exception:  # as above
                logger.exception("A subscriber raised at link; the run continues without its link")


def show_request(ledger: Ledger, act: str | None, request: ModelRequest, model: Model) -> None:
    """Show a request whose `model.started` is recorded to each subscriber that traces requests."""
    for tracer in ledger.subscribers:
        if isinstance(tracer, RequestTracer):
            try:
                tracer.model_request(ledger.state.id, act, request, model)
            except Exception:  # as above
                logger.exception("A subscriber raised at model_request; the request is sent without it")
