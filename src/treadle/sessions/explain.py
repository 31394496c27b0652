"""Explain: read what a session did from its events alone."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from treadle.budgets import plain
from treadle.concurrency import Threads
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ChildStarted,
    ContextCompacted,
    MessageAdded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionRewound,
    ToolAttemptFailed,
    ToolFinished,
    ToolInput,
    ToolLate,
    ToolResolved,
    ToolStarted,
)
from treadle.fields import Documented
from treadle.messages import ToolCall, Usage
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.sessions.maintenance import Parcel, effects_after, pack, pack_redacted
from treadle.state import SessionState, add_up
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
    "events_of_all",
    "explain",
    "explained",
    "exported",
]


# --- The explanation of a session, as a value: what was tried, used, changed, approved and refused, and why it ended.


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
    """What a run did apart from its own steps: it made what the model is shown shorter, or asked a model for a check."""

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
    """In which state it is, in one word: what people have set, such as `suspended`; else what happened to its last run."""
    run_status: str
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
    """What its runs did apart from their own steps."""
    status_reason: str = ""
    """Why somebody, or a worker, has given the session its status; empty without a reason."""

    @property
    def state(self) -> str:
        """The old name of `run_status`."""
        warnings.warn("Write explanation.status: `state` goes.", DeprecationWarning, stacklevel=2)
        return self.run_status


# --- Explain: read what a session did from its events alone.


def explain(session_id: str, events: Iterable[AnyEvent], children: Sequence[Explanation] = ()) -> Explanation:
    """Answer what was tried, on what data, what changed, who approved, what failed, why it stopped, and what a rerun does.

    Secrets are redacted.

    Args:
        children: The same on the sessions that carried out its calls.
    """
    events = tuple(events)
    state, reading = SessionState(session_id), _Reading()
    for event in events:
        add_up(state, (event,))
        reading.take(event)
        reading.count(state)
    return _redacted(_explanation(events, state, reading, children))


def _redacted(about: Explanation) -> Explanation:
    """Take the secrets out: an explanation is read, and nothing of it is executed."""
    plain = msgspec.to_builtins(about)
    hidden = Redactor().value(plain)
    return about if hidden == plain else msgspec.convert(hidden, Explanation)


def _explanation(
    events: Sequence[AnyEvent], state: SessionState, reading: "_Reading", children: Sequence[Explanation]
) -> Explanation:
    changed = _changed(events, reading)
    return Explanation(
        session_id=state.id,
        status=state.status,
        run_status=state.run_status,
        parent_id=state.parent_id,
        parent_seq=state.parent_seq,
        tried=tuple(reading.calls.values()),
        data_used=tuple(reading.used),
        changed=changed,
        approved=tuple(reading.approved),
        resolved=tuple(reading.resolved),
        failed=tuple(reading.failed),
        stopped=reading.stopped,
        rerun=_rerun(state, changed + tuple(_all_changed(children))),
        runs=tuple(reading.runs),
        rewinds=tuple(event.to for event in events if isinstance(event, SessionRewound)),
        caller_id=None if (caller := state.caller) is None else caller.parent_id,
        caller_run=None if caller is None else caller.parent_run,
        caller_step=None if caller is None else caller.parent_step,
        caller_call=None if caller is None else caller.parent_call,
        children=tuple(children),
        agent="" if state.run is None else state.run.agent,
        inputs=tuple(reading.inputs),
        facts=state.facts.values,
        acts=tuple(reading.acts.values()),
        status_reason=_status_reason(events),
    )


def _status_reason(events: Sequence[AnyEvent]) -> str:
    changes = [event for event in events if isinstance(event, SessionChanged) and event.status is not None]
    return changes[-1].reason if changes else ""


def _all_changed(children: Sequence[Explanation]) -> Iterator[Changed]:
    for child in children:
        yield from child.changed
        yield from _all_changed(child.children)


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.calls: dict[str, Tried] = {}
        self.used: list[Used] = []
        self.approved: list[Approved] = []
        self.resolved: list[Resolved] = []
        self.failed: list[Failed] = []
        self._attempts: dict[str, ToolAttemptFailed] = {}
        self.stopped: Stopped | None = None
        self.runs: list[RunTrace] = []
        self.resolutions: dict[str, str] = {}
        """What a person said of a call since it last started."""
        self.acts: dict[str, Aside] = {}
        self.inputs: list[Given] = []
        self._asked: dict[str, ApprovalRequested] = {}
        self._spoken_on: set[str] = set()
        """Calls on which a person has spoken: the decision that follows is theirs."""

    def take(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() | RunResumed() | RunPaused() | RunFinished():
                self._run(event)
            case ModelStarted(act=None) | ModelFinished(act=None) | ModelFailed(act=None):
                self._model(event)
            case ModelStarted() | ModelFinished() | ModelFailed() | ContextCompacted():
                self._beside(event)
            case ApprovalRequested() | ApprovalAnswered() | ToolResolved() | ToolInput():
                self._add_answer(event)
            case CallDecided(call_id=str(call_id)):
                self._decided(call_id, event)
            case ActionDecided():
                tool = f"{event.action} (asked by {event.tool})"
                self._approve(event, tool, event.decision, by=f"rule {event.rule}")
            case ToolStarted():
                self._started(event)
            case ToolAttemptFailed(call_id=str(call_id)):
                self._attempts[call_id] = event
            case ToolFinished(call_id=str(call_id)) | ToolLate(call_id=str(call_id)):
                self._finished(call_id, event)
            case _:
                pass

    def _add_answer(self, event: ApprovalRequested | ApprovalAnswered | ToolResolved | ToolInput) -> None:
        """Take in what a person was asked, or said."""
        match event:
            case ApprovalRequested():
                self._asked[event.approval_id] = event
            case ApprovalAnswered():
                self._answered(event)
            case ToolResolved():
                self._resolved(event)
            case ToolInput():
                given = Given(
                    call_id=event.call_id or "", value=event.value, by=event.by, at=event.at, given_at=event.given_at
                )
                self.inputs.append(given)

    def _run(self, event: RunStarted | RunResumed | RunPaused | RunFinished) -> None:
        match event:
            case RunStarted():
                trace = RunTrace(
                    run_id=event.run_id,
                    task=event.task,
                    model=event.model,
                    instructions=event.instructions,
                    started_at=event.at,
                    cost="0",
                )
                self.runs.append(trace)
                self.stopped = Stopped(status="running", reason=None)
            case RunResumed():
                self.stopped = Stopped(status="running", reason=None)
                self._end(None, "running", None)
            case RunPaused():
                self.stopped = Stopped(status="paused", reason=event.reason)
                self._end(event.at, "paused", event.reason)
            case RunFinished():
                self.stopped = Stopped(
                    status=event.status,
                    reason=event.reason,
                    message=event.message,
                    budget=event.budget,
                    used=event.used,
                    limit=event.limit,
                    signals=event.signals,
                )
                self._end(event.at, event.status, event.reason)

    def _end(self, at: float | None, status: str, reason: str | None) -> None:
        if self.runs:
            run = self.runs[-1]
            run.ended_at, run.status, run.reason = at, status, reason

    def _model(self, event: ModelStarted | ModelFinished | ModelFailed) -> None:
        run = self.runs[-1] if self.runs else None
        match event:
            case ModelStarted() if run is not None:
                run.models += [event.model] if event.model not in run.models else []
                run.tools += [name for name in event.tools if name not in run.tools]
            case ModelFinished():
                for call in event.message.calls:
                    self._call(call, event)
                if run is not None:
                    run.steps += 1
            case ModelFailed():
                failed = Failed(what="model", call_id=None, status=event.error, message=event.message)
                self.failed.append(failed)
            case _:
                pass

    def _beside(self, event: ModelStarted | ModelFinished | ModelFailed | ContextCompacted) -> None:
        """Take in what was asked apart from the run's own steps, and what came of it."""
        run = self.runs[-1] if self.runs else None
        act = Aside(act=event.act or "", run_id=event.run_id, step=event.step)
        if event.act is not None:  # an event of an older version names none
            act = self.acts.setdefault(event.act, act)
        match event:
            case ModelStarted():
                act.requests += 1
                if run is not None:
                    run.models += [event.model] if event.model not in run.models else []
            case ModelFinished():
                act.count(event.usage, event.cost)
            case ModelFailed():
                failed = Failed(what=f"model for {event.act}", call_id=None, status=event.error, message=event.message)
                self.failed.append(failed)
                if event.usage is not None:
                    act.count(event.usage, event.cost)
            case ContextCompacted():
                act.compacted(event)
                if run is not None:
                    run.compactions += 1

    def count(self, state: SessionState) -> None:
        """Take over what the run that is under way has used so far."""
        if state.run is not None and self.runs and self.runs[-1].run_id == state.run.id:
            run, spent = self.runs[-1], state.run.spent
            run.input_tokens, run.output_tokens = spent.usage.input_tokens, spent.usage.output_tokens
            run.cost = None if spent.cost is None else str(plain(spent.cost))

    def _call(self, call: ToolCall, event: AnyEvent) -> Tried:
        tried = Tried(call_id=call.id, tool=call.name, run_id=event.run_id, step=event.step, arguments=call.arguments)
        known = self.calls.setdefault(call.id, tried)
        known.arguments = known.arguments or call.arguments
        return known

    def _decided(self, call_id: str, event: CallDecided) -> None:
        if call_id not in self.calls and not event.early:
            return
        # Of a call that began before its response was whole, the decision is the first that is recorded.
        tried = self._call(ToolCall(id=call_id, name=event.tool, arguments=""), event)
        tried.digest, tried.decision = event.digest, event.decision
        tried.rule, tried.reason, tried.effect = event.rule, event.reason, event.effect
        tried.scope, tried.by, tried.mode = event.scope, event.by, event.mode
        tried.decided = "" if event.arguments is None else msgspec.json.encode(event.arguments).decode()
        if event.decision in ("allow", "deny", "draft", "sandbox") and call_id not in self._spoken_on:
            self._approve(event, event.tool, event.decision, by=f"rule {event.rule}")

    def _approve(
        self,
        event: CallDecided | ActionDecided | ToolResolved | ApprovalAnswered,
        tool: str,
        decision: str,
        *,
        by: str,
        call_id: str | None = None,
        given_at: float | None = None,
    ) -> None:
        self.approved.append(
            Approved(
                call_id=call_id or event.call_id or "",
                tool=tool,
                decision=decision,
                by=by,
                reason=event.reason,
                at=event.at,
                given_at=given_at,
            )
        )

    def _started(self, event: ToolStarted) -> None:
        self.resolutions.pop(event.call_id or "", None)
        if event.call is not None:  # it began before its response was whole, which may never have been
            tried = self._call(event.call, event)
            tried.arguments, tried.digest = event.call.arguments, event.digest

    def _resolved(self, event: ToolResolved) -> None:
        call_id = event.call_id or ""
        self.resolutions[call_id] = event.outcome
        self._spoken_on.add(call_id)
        self.resolved.append(
            Resolved(
                call_id=call_id,
                tool=event.tool,
                outcome=event.outcome,
                by=event.by,
                reason=event.reason,
                at=event.at,
                value=event.value,
            )
        )
        self._approve(event, event.tool, f"resolved as {event.outcome}", by=event.by)

    def _answered(self, event: ApprovalAnswered) -> None:
        asked = self._asked.get(event.approval_id)
        call_id = (asked.call_id if asked is not None else event.call_id) or ""
        if not event.approved_by.startswith("rule "):
            self._spoken_on.add(call_id)
        tool = "" if asked is None else asked.tool
        self._approve(event, tool, event.answer, by=event.approved_by, call_id=call_id, given_at=event.given_at)

    def carried_out(self, call_id: str) -> str:
        """Return the arguments with which a call was carried out."""
        tried = self.calls.get(call_id)
        return "" if tried is None else tried.decided or tried.arguments

    def _finished(self, call_id: str, event: ToolFinished | ToolLate) -> None:
        tried = self.calls.get(call_id)
        if isinstance(event, ToolLate):
            if tried is not None:
                tried.late = f"{event.outcome} {event.content}"
            return
        result = event.result
        if tried is not None:
            tried.status, tried.attempts = result.status.value, result.attempts
        if result.is_error:
            message = result.message or result.content
            if (attempt := self._attempts.get(call_id)) is not None:
                message = attempt.revealed(message)
            self.failed.append(Failed(what=result.name, call_id=call_id, status=result.status.value, message=message))
        elif tried is not None and tried.effect in (None, Effect.READ):
            arguments = tried.decided or tried.arguments
            used = Used(call_id=call_id, tool=result.name, arguments=arguments, characters=len(result.content))
            self.used.append(used)


def _changed(events: Iterable[AnyEvent], reading: _Reading) -> tuple[Changed, ...]:
    return tuple(
        Changed(
            call_id=one.call_id,
            tool=one.tool,
            arguments=reading.carried_out(one.call_id),
            effect=one.effect,
            status=one.status,
            is_certain=one.status in ("ok", "unexpected_result_shape") or said == "done",
            resolution=said,
        )
        for one in effects_after(events, 0)
        if (said := reading.resolutions.get(one.call_id, "")) != "not_done"
    )


def _rerun(state: SessionState, changed: tuple[Changed, ...]) -> Rerun:
    run = state.run
    can_resume = run is not None and run.status != "completed" and state.own_status == "active"
    lasting = [one for one in changed if one.effect is not Effect.IDEMPOTENT]
    if state.moved_to:
        why = f"The session continues in {state.moved_to}: what is done there is unknown here."
        return Rerun(can_resume=False, is_safe=False, why=why)
    if not changed:
        why = "Nothing was changed: the task can be run again."
    elif not lasting:
        why = "What was changed is idempotent: the task can be run again."
    else:
        names = ", ".join(dict.fromkeys(f"{one.tool} ({one.resolution or one.status})" for one in lasting))
        why = f"Running the task again may repeat what was done: {names}."
        why += " `resume` continues without repeating it." if can_resume else " Check first."
    return Rerun(can_resume=can_resume, is_safe=not lasting, why=why)


# --- Reading: looks at all events of a session, to explain or export it; in a thread where that takes long.

_threads = Threads()
_MANY_EVENTS = 500
_MANY_CHARS = 200_000
"""Events and characters from which on a session is explained, or redacted, in a thread."""


async def explained(journal: Journal, session_id: str) -> Explanation:
    """Return the explanation of a session, and of those that carried out its calls."""
    events = await journal.read(session_id)
    children = [await explained(journal, child_id) for child_id in _children_in(events)]
    if not _is_long(events):
        return explain(session_id, events, children)
    explanation: Explanation = await _threads.submit(partial(explain, session_id, events, children))
    return explanation


async def exported(parcel: Parcel, redactor: Redactor | None) -> Sequence[bytes]:
    """Return a parcel as lines of JSON; with a redactor, without the secrets."""
    packed = pack(parcel) if redactor is None else pack_redacted(parcel, redactor)
    if _is_long(parcel.events) or sum(map(len, parcel.blobs.values())) > _MANY_CHARS:
        lines: Sequence[bytes] = await _threads.submit(partial(tuple, packed))
        return lines
    return tuple(packed)


async def events_of_all(journal: Journal, session_id: str) -> list[AnyEvent]:
    """Return the events of a session, and of those that carried out its calls."""
    events = list(await journal.read(session_id))
    for child_id in _children_in(events):
        events += await events_of_all(journal, child_id)
    return events


def _children_in(events: Sequence[AnyEvent]) -> list[str]:
    return list(dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)))


def _is_long(events: Sequence[AnyEvent]) -> bool:
    """Whether looking at every word of these events takes longer than others may wait for their turn."""
    if len(events) > _MANY_EVENTS:
        return True
    chars = sum(len(event.result.content) for event in events if isinstance(event, ToolFinished))
    chars += sum(len(event.message.text) for event in events if isinstance(event, ModelFinished | MessageAdded))
    return chars > _MANY_CHARS
