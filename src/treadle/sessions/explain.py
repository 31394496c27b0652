"""Explain: read what a session did from its events alone."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from treadle.budgets import plain
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ContextCompacted,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionRewound,
    ToolFinished,
    ToolInput,
    ToolLate,
    ToolResolved,
    ToolStarted,
)
from treadle.messages import ToolCall
from treadle.redaction import Redactor
from treadle.sessions.checkpoints import effects_after
from treadle.sessions.explanation import (
    Approved,
    Aside,
    Changed,
    Explanation,
    Failed,
    Given,
    Rerun,
    Resolved,
    RunTrace,
    Stopped,
    Tried,
    Used,
)
from treadle.state import SessionState, add_up
from treadle.tools import Effect

__all__ = ["explain"]


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
        state=state.phase,
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
                self._action(event)
            case ToolStarted():
                self._started(event)
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
        """Take in what was asked beside the run's own steps, and what came of it."""
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
            by = f"rule {event.rule}"
            self.approved.append(
                Approved(
                    call_id=call_id, tool=event.tool, decision=event.decision, by=by, reason=event.reason, at=event.at
                )
            )

    def _action(self, event: ActionDecided) -> None:
        self.approved.append(
            Approved(
                call_id=event.call_id or "",
                tool=f"{event.action} (asked by {event.tool})",
                decision=event.decision,
                by=f"rule {event.rule}",
                reason=event.reason,
                at=event.at,
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
                call_id=event.call_id or "",
                tool=event.tool,
                outcome=event.outcome,
                by=event.by,
                reason=event.reason,
                at=event.at,
                value=event.value,
            )
        )
        self.approved.append(
            Approved(
                call_id=call_id,
                tool=event.tool,
                decision=f"resolved as {event.outcome}",
                by=event.by,
                reason=event.reason,
                at=event.at,
            )
        )

    def _answered(self, event: ApprovalAnswered) -> None:
        asked = self._asked.get(event.approval_id)
        call_id = (asked.call_id if asked is not None else event.call_id) or ""
        if not event.approved_by.startswith("rule "):
            self._spoken_on.add(call_id)
        self.approved.append(
            Approved(
                call_id=call_id,
                tool="" if asked is None else asked.tool,
                decision=event.answer,
                by=event.approved_by,
                reason=event.reason,
                at=event.at,
                given_at=event.given_at,
            )
        )

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
    can_resume = run is not None and run.phase != "completed" and state.status == "active"
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
