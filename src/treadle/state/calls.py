"""A call of a session, and what it waits for, by its events."""

import msgspec

from treadle.budgets import Spent
from treadle.canonical import read_only
from treadle.errors import ConfigurationError
from treadle.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ToolInput,
    ToolResolved,
    ToolStarted,
    ToolSuspended,
)
from treadle.fields import Documented, explained
from treadle.messages import Result, ToolCall
from treadle.state.doubts import Doubt, doubt_of
from treadle.tools import ApprovalType, Effect, JsonObject, Preview, ToolResult

__all__ = ["BUDGET_EXCEEDED", "Approval", "CallRecord", "CallState", "ChildState", "Denial", "streak_key"]

BUDGET_EXCEEDED = "budget_exceeded"
"""Code of a call that was not run because the tool call budget was used up."""


class Approval(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A request for consent to exactly one call."""

    id: str
    """Id of the request: `session.answer(approval.id, "allow")`."""
    session_id: str
    """The session that asks."""
    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """The arguments, as a JSON object."""
    digest: str
    """Of session, call, tool, arguments, effect and the tool's schema: what the consent is bound to."""
    effect: Effect
    """What the call does to the world."""
    requested_at: float
    """When consent was requested, in seconds since 1970."""
    expires_at: float
    """When the request expires, in seconds since 1970."""
    rule: str = ""
    """Name of the rule that decided."""
    reason: str = ""
    """Why consent is needed; empty without a reason."""
    answer: ApprovalAnswered | None = None
    """The person's answer; None while it waits."""
    replaces: str = ""
    """The first request for this consent, where its answer could not be used: the edited arguments did not fit."""
    approval_type: ApprovalType = "tool_call"
    """What is asked: `tool_call`, `in_doubt`, `possible_repetition` or `unfit_edit`; see `events.ApprovalRequested`."""
    action: str = ""
    """What would be done, in a few words."""
    target: str = ""
    """What it would be done to, such as a path; empty where the tool does not say."""
    risk: str = ""
    """Its risk class: see `treadle.Risk`."""
    preview: Preview | None = None
    """What it would change, in detail: a unified diff, a parsed command. None in requests of older versions."""
    expected_result: str = ""
    """What is true afterwards, in one sentence."""
    rollback: str = ""
    """How it can be undone, in one sentence."""
    scope: str = "call"
    """What an answer covers where it names no scope: this one call."""
    rules: tuple[str, ...] = ()
    """Rules that would allow just this call: `session.answer(id, "allow", scope="session")` takes them. Empty: they are not offered."""
    root_id: str = ""
    """The session whose run continues once it is answered, where that is another: the one at the top."""
    path: tuple[str, ...] = ()
    """Names of the agents from the one that the top calls down to the one that asks; empty where the top itself asks."""
    edited: JsonObject | None = None
    """Arguments that a person put in place of the model's in an earlier answer, where a hook, an interceptor or a policy has changed
    them since; None otherwise."""

    @property
    def is_answered_in_time(self) -> bool:
        """Whether a person has answered before it expired, whenever a run took the answer in."""
        if self.answer is None:
            return False
        given = self.answer.at if self.answer.given_at is None else self.answer.given_at
        return given <= self.expires_at


class CallState(msgspec.Struct, Documented, kw_only=True):
    """How far one call has come."""

    call: ToolCall
    """The call as the model proposed it."""
    position: int
    """Place of the call in its response."""
    decision: CallDecided | None = None
    """Its decision; None before it."""
    approval: Approval | None = None
    """Its request for consent; None without one."""
    started: ToolStarted | None = None
    """Its last start; None before it."""
    starts: int = 0
    """How often it has started: more than once where a process died in it."""
    suspended: ToolSuspended | None = None
    """What it waits for since it started; None where it does not wait."""
    inputs: tuple[ToolInput, ...] = ()
    """What people have given it while it waited, in order."""
    result: ToolResult | None = None
    """Its result; None before it."""
    resolution: ToolResolved | None = None
    """How it ended, as a person has said since it last started."""

    def doubt(self, session_id: str) -> Doubt:
        """Return what a person must know of the call to find out how it ended.

        Raises:
            ConfigurationError: The call has not started.
        """
        if self.started is None:
            raise ConfigurationError(f"The call {self.call.id!r} has not started: it cannot be in doubt.")
        decided = None if self.decision is None else self.decision.arguments
        return doubt_of(session_id, self.call, self.started, decided=decided, is_told=self.result is not None)

    @property
    def digest(self) -> str:
        """Of tool and canonical arguments; empty for a call that never was valid."""
        if self.decision is not None:
            return self.decision.digest
        return self.started.digest if self.started is not None else ""


class ChildState(msgspec.Struct, Documented, kw_only=True):
    """A session that carries out a call of this run."""

    session_id: str
    """The child's session."""
    call_id: str
    """The call that it carries out."""
    tool: str
    """Name of the tool."""
    agent: str = ""
    """Name of the agent."""
    status: str = "running"
    """`running`, `paused`, `completed`, `stopped` or `failed`."""
    reason: str | None = None
    """Why its run paused or ended; None while it runs."""
    spent: Spent = Spent()
    """What of its spending is in this run's own."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended and cannot be resumed."""
        return self.status not in ("running", "paused")


class CallRecord(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One line of a report's list of calls."""

    id: str
    """Id of the call."""
    name: str
    """Name of the tool."""
    status: str
    """Status of its result, such as `ok` or `denied`."""
    attempts: int
    """Times the tool was started."""
    duration_seconds: float
    """Seconds that the call took."""


class Denial(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One line of a report's list of denials."""

    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    rule: str
    """Name of the rule that decided."""
    reason: str
    """Why it was denied."""


def asks_of(state: CallState) -> tuple[ApprovalRequested, ...]:
    return () if state.suspended is None else state.suspended.asks


def approval_of(event: ApprovalRequested, session_id: str, root_id: str, path: tuple[str, ...] = ()) -> Approval:
    return Approval(
        id=event.approval_id,
        session_id=session_id,
        call_id=event.call_id or "",
        tool=event.tool,
        arguments=read_only(event.arguments),
        digest=event.digest,
        effect=event.effect,
        requested_at=event.at,
        expires_at=event.expires_at,
        rule=event.rule,
        reason=event.reason,
        replaces=event.replaces,
        approval_type=event.approval_type,
        action=event.action,
        target=event.target,
        risk=event.risk,
        preview=event.preview,
        expected_result=event.expected_result,
        rollback=event.rollback,
        scope=event.scope,
        rules=event.rules,
        root_id="" if root_id == session_id else root_id,
        path=event.path or path,
        edited=read_only(event.edited),
    )


@explained
def streak_key(call: ToolCall, digest: str) -> str:
    """Return what makes two calls equal: tool and canonical arguments; the raw text where it is not a valid call."""
    return digest or f"{call.name} {call.arguments}"


def call_record(result: ToolResult) -> CallRecord:
    return CallRecord(
        id=result.call_id,
        name=result.name,
        status=result.status.value,
        attempts=result.attempts,
        duration_seconds=result.duration_seconds,
    )


def result_part(result: ToolResult) -> Result:
    """Return what of a result enters the transcript."""
    return Result(
        call_id=result.call_id,
        name=result.name,
        content=result.content,
        is_error=result.is_error,
        execution_id=result.execution_id,
        media=result.media,
    )


def denial_of(decided: CallDecided) -> Denial:
    return Denial(call_id=decided.call_id or "", tool=decided.tool, rule=decided.rule, reason=decided.reason)


def only_reads(state: CallState) -> bool:
    """Whether a call surely changes nothing. One that was not decided yet may be anything."""
    effects = [one.effect for one in (state.started, state.decision) if one is not None]
    return bool(effects) and all(effect is Effect.READ for effect in effects)
