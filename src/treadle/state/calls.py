"""A call of a session, and what it waits for, by its events."""

from typing import Any

import msgspec

from treadle.budgets import Spent
from treadle.canonical import read_only
from treadle.errors import ConfigurationError
from treadle.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    DoubtBelow,
    MessageAdded,
    ToolInput,
    ToolResolved,
    ToolStarted,
    ToolSuspended,
)
from treadle.fields import Documented, explained
from treadle.messages import Result, ToolCall, user_message
from treadle.tools import ApprovalType, CallStatus, CheckedCall, Effect, JsonObject, Preview, ToolResult, business_key

__all__ = [
    "BUDGET_EXCEEDED",
    "IN_DOUBT",
    "Approval",
    "CallRecord",
    "CallState",
    "ChildState",
    "Consent",
    "Denial",
    "Doubt",
    "SideEffect",
    "SideEffects",
    "doubt_of",
    "is_equal",
    "request_of",
    "resolution_id",
    "resolution_message",
    "streak_key",
]


# --- Doubts: what is known of a call that may have acted and whose end nobody knows. Resolves none.

IN_DOUBT = "in doubt"
"""Rule of a request for consent to run a call again whose outcome is unknown."""

_SHOWN_CHARS = 50_000


class Doubt(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that has started, may have changed the world, and of which nobody knows how it ended."""

    call_id: str
    """Id of the call."""
    session_id: str
    """The session of the call."""
    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """The arguments, as a JSON object."""
    effect: Effect
    """What the call does to the world."""
    key: str
    """The idempotency key that the tool was given: what its service may know the call by."""
    business_key: str = ""
    """What the tool's own `key` says that the call is about, as JSON."""
    digest: str = ""
    """Of tool and canonical arguments."""
    since: float = 0.0
    """When the call started, in seconds since 1970, by the clock of the machine that ran it."""
    is_told: bool = False
    """Whether the model has been told that the outcome is unknown."""
    resolution: str = ""
    """`unknown` where a person has said that nobody will find out: the doubt is listed no longer, and no call may repeat it unasked."""


def doubt_of(
    session_id: str, call: ToolCall, started: ToolStarted, *, decided: JsonObject | None, is_told: bool
) -> Doubt:
    """Return the doubt about a call that has started.

    Args:
        decided: The arguments that were decided on, where they differ from the model's.
        is_told: Whether the model has been told that the outcome is unknown.
    """
    return Doubt(
        call_id=call.id,
        session_id=session_id,
        tool=started.tool,
        arguments=_object_of(call.arguments) if decided is None else decided,
        effect=started.effect,
        key=started.key,
        business_key=started.business_key,
        digest=started.digest,
        since=started.at,
        is_told=is_told,
    )


@explained
def is_equal(doubt: Doubt | DoubtBelow, call: CheckedCall) -> bool:
    """Whether a call means what a call in doubt meant: the same tool and key, or the same arguments."""
    if doubt.tool != call.name:
        return False
    key = business_key(call.tool, call.arguments)
    return key is None or doubt.digest == call.digest or (key != "" and key == doubt.business_key)


def resolution_id(resolved: ToolResolved) -> str:
    """Return the id of the message that reports a resolution to the model: it is sent once."""
    return f"resolved:{resolved.call_id}:{resolved.seq}"


@explained
def resolution_message(resolved: ToolResolved) -> MessageAdded:
    """Return what the model reads about a call whose outcome was reported to it as unknown."""
    call = f"Call {resolved.call_id} of {resolved.tool}, whose outcome was unknown,"
    value = msgspec.json.encode(resolved.value).decode()
    shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
    texts = {
        "done": f"{call} was carried out: a person has checked it. Its result: {shown} Do not issue it again.",
        "not_done": f"{call} was not carried out: a person has checked it. Issue it again if it is still needed.",
        "unknown": f"{call} was looked into by a person and stays unknown. Do not issue it again unless you are asked to.",
    }
    return MessageAdded(
        message=user_message(texts[resolved.outcome]), source="runtime", message_id=resolution_id(resolved)
    )


def _object_of(text: str) -> JsonObject:
    """Return the arguments that a model wrote; none where they are not a JSON object."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


# --- A call of a session, and what it waits for, by its events.

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
    """Its risk class: see `treadle.tools.Risk`."""
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
    lifted: tuple[str, ...] = ()
    """What consent lifts of the sandbox's border, such as `git` or `network api.example.com`; `unconfined` for all of it."""

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
    """A call of a run, with what came of it.

    Example:
        for one in result.tool_calls:
            print(one.name, one.arguments, one.status, one.result)
    """

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
    arguments_text: str = ""
    """Its arguments as the model wrote them, or as JSON if they were changed when the call was decided on."""
    content: str = ""
    """What the model read of its result: text, or JSON if the value is not text; shortened if it was too long."""
    value_text: str | None = None
    """The value that the tool returned, as JSON; None if that is text, if it was too large, or if the call failed."""

    @property
    def arguments(self) -> JsonObject:
        """Its arguments; empty if what the model wrote is not a JSON object."""
        return _object_of(self.arguments_text)

    @property
    def result(self) -> Any:  # Any: JSON
        """The value that the tool returned; the content if there is none."""
        return self.content if self.value_text is None else msgspec.json.decode(self.value_text)


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


_ASKED = tuple(name for name in Approval.__struct_fields__ if name in ApprovalRequested.__struct_fields__)
"""What a request for consent and its event both say."""


def approval_of(event: ApprovalRequested, session_id: str, root_id: str, path: tuple[str, ...] = ()) -> Approval:
    said = {name: getattr(event, name) for name in _ASKED}
    said |= {"session_id": session_id, "root_id": "" if root_id == session_id else root_id, "path": event.path or path}
    said |= {"arguments": read_only(event.arguments), "edited": read_only(event.edited)}
    return Approval(**{**said, "call_id": event.call_id or ""}, id=event.approval_id, requested_at=event.at)


def request_of(approval: Approval) -> ApprovalRequested:
    """Return the event of a request that another session has recorded."""
    said = {name: getattr(approval, name) for name in _ASKED}
    return ApprovalRequested(**said, approval_id=approval.id, at=approval.requested_at)


@explained
def streak_key(call: ToolCall, digest: str) -> str:
    """Return what makes two calls equal: tool and canonical arguments; the raw text where it is not a valid call."""
    return digest or f"{call.name} {call.arguments}"


def call_record(state: CallState, result: ToolResult) -> CallRecord:
    decided = state.decision
    changed = None if decided is None else decided.converted if decided.arguments is None else decided.arguments
    return CallRecord(
        id=result.call_id,
        name=result.name,
        status=result.status.value,
        attempts=result.attempts,
        duration_seconds=result.duration_seconds,
        arguments_text=state.call.arguments if changed is None else msgspec.json.encode(changed).decode(),
        content=result.content,
        value_text=_value_text(result),
    )


def _value_text(result: ToolResult) -> str | None:
    if result.data is None or isinstance(result.data, str):
        return None
    text = msgspec.json.encode(result.data).decode()
    return result.content if result.content == text else text  # most often one text, which the transcript holds too


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


# --- Side effects: what a session has done to the world, and what people have said of it. Kept for whoever continues; decides
# nothing.

_LONGEST = 2_000
"""Characters of arguments that are kept: they stand whole in the messages."""


class SideEffect(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that has changed the world, or may have."""

    tool: str
    """Name of the tool."""
    arguments: str
    """Its arguments as JSON text; of very long ones the beginning."""
    status: str
    """`ok`; else the status of a call that may have acted."""
    repeats: bool
    """Whether the same call again would change nothing more."""


class Consent(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a person has answered about one call."""

    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """What was asked about, or what the person made of it."""
    answer: str
    """`allow` or `deny`."""
    by: str
    """Who answered."""
    reason: str = ""
    """Why; empty without one."""


class SideEffects(msgspec.Struct, gc=False):
    """What a session has done to the world, and what people have answered. A rewind takes nothing back."""

    done: list[SideEffect] = []
    consents: tuple[Consent, ...] = ()

    def add(self, state: CallState) -> None:
        """Take in a call that has its result."""
        started, result = state.started, state.result
        if started is None or result is None or started.effect is Effect.READ:
            return
        if result.status is not CallStatus.OK and not (
            result.may_have_acted or result.status is CallStatus.OUTCOME_UNKNOWN
        ):
            return
        repeats = started.effect is Effect.IDEMPOTENT
        arguments = state.call.arguments[:_LONGEST]
        status = result.status.value
        self.done.append(SideEffect(tool=state.call.name, arguments=arguments, status=status, repeats=repeats))

    def consent(self, approval: Approval, answer: ApprovalAnswered) -> None:
        """Take in what a person has answered."""
        arguments = approval.arguments if answer.arguments is None else answer.arguments
        said = Consent(
            tool=approval.tool,
            arguments=arguments,
            answer=answer.answer,
            by=answer.approved_by,
            reason=answer.reason,
        )
        self.consents = (*self.consents, said)
