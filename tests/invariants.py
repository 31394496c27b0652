"""Invariants: what must hold of a session after anything at all has happened. Asserts; runs nothing.

    check_events(await session.events())     # one journal, whole or broken off
    await check_session(session)             # the same, and what the session makes of it

`tests/conftest.py` runs `check_events` over every session of every test.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from treadle import Session
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    MessageAdded,
    ModeChanged,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionRewound,
    ToolAttemptFailed,
    ToolFinished,
    ToolInDoubt,
    ToolLate,
    ToolResolved,
    ToolResumed,
    ToolStarted,
    ToolSuspended,
    decode_event,
    encode_event,
)
from treadle.messages import Message
from treadle.ports import ModelRequest
from treadle.providers.openai_chat.request import ChatRequests
from treadle.sessions.session import fold
from treadle.testing import check_chat_history
from treadle.tools import CallStatus, Effect

__all__ = ["check_events", "check_pairs", "check_session", "find_violations"]

ACTED = frozenset(
    {
        CallStatus.OK,
        CallStatus.REJECTED,
        CallStatus.UNEXPECTED_RESULT_SHAPE,
        CallStatus.TIMEOUT,
        CallStatus.OUTCOME_UNKNOWN,
    }
)
"""Statuses of calls that have started."""

SETTLED = frozenset({CallStatus.CANCELLED, CallStatus.OUTCOME_UNKNOWN})
"""Statuses of calls that a paused run left open, where another task has taken its place."""

NATURAL = frozenset({"model_error", "incomplete_stream", "context_overflow", "budget_exceeded", "step_limit_reached"})
"""Ends of a run that nobody outside brought about: a retry that was announced before them should have come."""


async def check_session(session: Session) -> None:
    """Assert everything that a session's journal and its transcript promise."""
    events = list(await session.events())
    check_events(events)
    again = fold(session.id, [decode_event(encode_event(event)) for event in events])
    assert msgspec.to_builtins(again.messages) == msgspec.to_builtins(session.state.messages)
    assert set(again.open) == set(session.state.open)
    assert again.pending_approvals() == session.state.pending_approvals()
    check_pairs(session.messages, open_ids=set(session.state.open))


def check_events(events: Sequence[AnyEvent]) -> None:
    """Assert what one session's whole journal promises. It may end anywhere, as after a crash."""
    violations = find_violations(events)
    assert not violations, "\n".join(violations)


def find_violations(events: Sequence[AnyEvent]) -> list[str]:
    """Return what one session's journal breaks, as sentences with the event's number; empty where all holds."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return reader.violations


def check_pairs(messages: Sequence[Message], *, open_ids: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Assert that calls and results match, neighbours and in order; only the last message may wait for a person."""
    seen: set[str] = set()
    for index, message in enumerate(messages):
        ids = [call.id for call in message.calls]
        assert not seen & set(ids), "an id is used twice"
        assert len(ids) == len(set(ids))
        seen.update(ids)
        if message.role == "tool":
            assert [result.call_id for result in message.results] == [call.id for call in messages[index - 1].calls]
        if ids and not (index == len(messages) - 1 and open_ids):
            assert messages[index + 1].role == "tool", "a call has no result"
    if messages and not open_ids:
        _check_with_the_vendor(messages)


def _check_with_the_vendor(messages: Sequence[Message]) -> None:
    requests = ChatRequests("m", origin="x", options={}, stream=False, thinking_field=None)
    body = requests.body(ModelRequest(messages=tuple(message for message in messages if message.parts)))
    check_chat_history(json.loads(body)["messages"])


@dataclass(kw_only=True)
class _Call:
    """What the journal has said of one call."""

    is_proposed: bool = False
    is_early: bool = False
    decision: str | None = None
    approval: str | None = None
    """The request for consent that is open."""
    starts: list[ToolStarted] = field(default_factory=list)
    segment: int = 0
    """Which stretch of running it last started in."""
    is_suspended: bool = False
    """Whether it has started and waits for something outside."""
    may_repeat: bool = False
    """Whether somebody has said since that an unsafe call may start again."""
    resolution: str | None = None
    """What a person has said of it since it last started: done, not_done or unknown."""
    promised_attempt: int = 0
    """The attempt that a retry was announced for."""
    finished: ToolFinished | None = None

    @property
    def is_open(self) -> bool:
        return self.finished is None and (self.is_proposed or bool(self.starts))


class _Reader:
    """Goes through one journal and writes down what it breaks."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._calls: dict[str, _Call] = {}
        self._approvals: dict[str, str] = {}
        self._answered: set[str] = set()
        self._reused: set[str] = set()
        self._run = "none"  # none, running, paused, or the status it finished with
        self._segment = 0
        self._closed: str | None = None
        """Why nothing may run: the session is suspended, deleted or has moved; None while it is active."""
        self._requested: ModelStarted | None = None
        self._promised: ModelFailed | None = None
        self._unkept: list[str] = []
        self._head = 0
        self._last: AnyEvent | None = None

    def read(self, event: AnyEvent) -> None:
        """Take one event in."""
        if event.seq != self._head + 1:
            self._broken(event, f"follows number {self._head}")
        self._head = event.seq
        if event.is_of_run and not self._is_in_place(event):
            self._broken(event, f"belongs to a run, and the run is {self._run}")
        if event.act is not None and isinstance(event, ModelFinished | ModelFailed):
            self._promised = None  # what was asked beside has used up what the retry needed, perhaps
        if event.act is None and (check := self._checks.get(type(event))) is not None:
            check(self, event)
        self._last = event

    def _broken(self, event: AnyEvent, words: str) -> None:
        call = f" of {event.call_id}" if event.call_id else ""
        self.violations.append(f"{event.seq}. {event.type}{call}: {words}")

    def _is_in_place(self, event: AnyEvent) -> bool:
        """Nothing of a run comes before its beginning or after its end."""
        match event:
            case RunStarted() | RunResumed() | ToolLate():
                return True
            case MessageAdded(source="import"):
                return True
            case MessageAdded(source="runtime") if isinstance(self._last, SessionRewound):
                return True  # what was done stays done, the model is told
            case ToolFinished(result=result) if self._run == "paused":
                return result.status in SETTLED and self._call(event).is_open
            case ToolInDoubt() if self._run == "paused":
                return self._call(event).is_open
            case _:
                return self._run == "running"

    def _call(self, event: AnyEvent) -> _Call:
        return self._calls.setdefault(event.call_id or "", _Call())

    def _open(self) -> dict[str, _Call]:
        return {call_id: call for call_id, call in self._calls.items() if call.is_open}

    # --- runs

    def _run_started(self, event: RunStarted) -> None:
        self._check_is_active(event)
        if open_calls := self._open():
            self._broken(event, f"leaves calls of the run before without a result: {sorted(open_calls)}")
        self._begin()

    def _check_is_active(self, event: AnyEvent) -> None:
        if self._closed is not None:
            self._broken(event, f"the session is {self._closed}")

    def _run_resumed(self, event: RunResumed) -> None:
        self._check_is_active(event)
        if self._run in ("none", "completed"):
            self._broken(event, f"there is nothing to resume: the run is {self._run}")
        self._begin()

    def _session_changed(self, event: SessionChanged) -> None:
        if event.status is not None:
            is_active = event.status == "active"
            self._closed = None if is_active else f"moved to {event.moved_to}" if event.moved_to else event.status

    def _begin(self) -> None:
        self._run = "running"
        self._segment += 1
        self._requested = self._promised = None
        self._unkept.clear()
        for call in self._calls.values():
            call.promised_attempt = 0  # by a process that died: what it announced it could not keep

    def _run_finished(self, event: RunFinished) -> None:
        if open_calls := self._open():
            self._broken(event, f"leaves calls without a result: {sorted(open_calls)}")
        if event.reason in NATURAL and event.budget != "max_wall_time_seconds":  # time may run out in any pause
            if self._promised is not None:
                self._broken(event, "an announced retry of the model never came")
            for words in self._unkept:
                self._broken(event, words)
        self._run = event.status

    def _run_paused(self, event: RunPaused) -> None:
        waiting = [
            call_id
            for call_id, call in self._open().items()
            if not call.is_suspended and (call.approval is None or call.segment == self._segment)
        ]
        if waiting:
            self._broken(event, f"leaves calls that nobody is asked about: {sorted(waiting)}")
        if not self._open():
            self._broken(event, "no call waits for anybody")
        self._run = "paused"

    def _session_rewound(self, event: SessionRewound) -> None:
        if open_calls := self._open():
            self._broken(event, f"leaves calls without a result: {sorted(open_calls)}")
        if self._run != "none":
            self._run = "rewound"  # also one that was completed: its task may still be there

    def _session_forked(self, event: SessionForked) -> None:
        if open_calls := self._open():
            self._broken(event, f"shares calls without a result: {sorted(open_calls)}")

    # --- the model

    def _model_started(self, event: ModelStarted) -> None:
        if self._requested is not None:
            self._broken(event, f"the request of event {self._requested.seq} has no end")
        if open_calls := self._open():
            early = {call_id for call_id, call in open_calls.items() if not call.is_proposed}
            if missing := set(open_calls) - early:
                self._broken(event, f"the model is asked while calls have no result: {sorted(missing)}")
        self._requested, self._promised = event, None

    def _model_finished(self, event: ModelFinished) -> None:
        if self._requested is None and not isinstance(self._last, ModelFinished):
            self._broken(event, "nobody asked the model")
        self._requested = None
        for call in event.message.calls:
            known = self._calls.setdefault(call.id, _Call())
            if known.is_proposed:
                self._broken(event, f"proposes {call.id} a second time")
            known.is_proposed = True

    def _model_failed(self, event: ModelFailed) -> None:
        if self._requested is None:
            self._broken(event, "nobody asked the model")
        if event.is_aside:
            return
        self._requested = None
        self._promised = event if event.retry_in_seconds is not None else None

    def _model_discarded(self, event: ModelDiscarded) -> None:
        for call_id in event.calls:
            if not self._calls.get(call_id, _Call()).is_early:
                self._broken(event, f"{call_id} had not started early")

    # --- decisions

    def _call_decided(self, event: CallDecided) -> None:
        call = self._call(event)
        if call.finished is not None:
            self._broken(event, "it is decided after its result")
        call.decision = event.decision

    def _approval_requested(self, event: ApprovalRequested) -> None:
        call = self._call(event)
        if not call.is_open:
            self._broken(event, "consent is asked for a call that is not open")
        if event.approval_id in self._approvals:
            self._broken(event, "its id is used twice")
        call.approval = event.approval_id
        self._approvals[event.approval_id] = event.call_id or ""

    def _approval_answered(self, event: ApprovalAnswered) -> None:
        if self._approvals.get(event.approval_id) != event.call_id:
            self._broken(event, "nobody asked for this consent")
        if event.approval_id in self._answered:
            self._broken(event, "it is answered twice")
        self._answered.add(event.approval_id)
        call = self._call(event)
        call.may_repeat = call.may_repeat or event.answer == "allow"

    # --- calls

    def _tool_started(self, event: ToolStarted) -> None:
        call = self._call(event)
        if call.decision not in ("allow", "draft") and not (call.decision == "sandbox" and event.sandbox):
            self._broken(event, f"{event.tool} started although it was decided as {call.decision}")
        if event.decision not in ("", call.decision):
            self._broken(event, f"{event.tool} started by {event.decision} although it was decided as {call.decision}")
        if call.finished is not None:
            self._broken(event, f"{event.tool} started after its result")
        if event.early:
            call.is_early = True
            if event.effect is not Effect.READ:
                self._broken(event, f"{event.tool} is {event.effect} and started before its response was whole")
        elif not call.is_proposed:
            self._broken(event, f"{event.tool} was never proposed")
        if call.resolution == "done":
            self._broken(event, f"{event.tool} started although a person had said that it was done")
        self._check_is_active(event)
        if call.starts:
            self._started_again(event, call)
        call.starts.append(event)
        call.segment, call.may_repeat, call.approval, call.resolution = self._segment, False, None, None

    def _started_again(self, event: ToolStarted, call: _Call) -> None:
        if call.segment == self._segment:
            self._broken(event, f"{event.tool} started twice in one stretch of its run")
        if event.effect is Effect.UNSAFE and not call.may_repeat:
            self._broken(event, f"{event.tool} is unsafe and started twice")
        if event.key != call.starts[-1].key and not call.may_repeat:
            self._broken(event, f"{event.tool} started again under another key")

    def _tool_suspended(self, event: ToolSuspended) -> None:
        call = self._call(event)
        if not call.starts or call.finished is not None:
            self._broken(event, "a call waits that is not under way")
        call.is_suspended = True

    def _tool_resumed(self, event: ToolResumed) -> None:
        call = self._call(event)
        if call.decision not in ("allow", "draft"):
            self._broken(event, f"{event.tool} continues although it was decided as {call.decision}")
        if not call.starts or call.finished is not None or call.segment == self._segment:
            self._broken(event, f"{event.tool} continues although it was not left open by an earlier stretch")
        elif event.key != call.starts[-1].key:
            self._broken(event, f"{event.tool} continues under another key")
        call.segment, call.is_suspended = self._segment, False

    def _tool_in_doubt(self, event: ToolInDoubt) -> None:
        call = self._call(event)
        if not call.starts:
            self._broken(event, "it never started")
        call.may_repeat = call.may_repeat or event.answer == "not_done"

    def _tool_resolved(self, event: ToolResolved) -> None:
        if event.child_id:  # of a call that the session made which carried out a call of this one
            return
        call = self._call(event)
        if not call.starts:
            self._broken(event, "a call is resolved that never started")
        if call.resolution not in (None, "unknown"):
            self._broken(event, f"it was resolved already, as {call.resolution}")
        call.resolution = event.outcome
        call.may_repeat = event.outcome == "not_done"

    def _attempt_failed(self, event: ToolAttemptFailed) -> None:
        call = self._call(event)
        if not call.starts or call.finished is not None:
            self._broken(event, "an attempt failed of a call that was not running")
        call.promised_attempt = 0 if event.retry_in_seconds is None else event.attempt + 1

    def _mode_changed(self, event: ModeChanged) -> None:
        for call in self._calls.values():
            call.promised_attempt = 0  # a person may have ended the mode in which it would start

    def _tool_finished(self, event: ToolFinished) -> None:
        call, result = self._call(event), event.result
        if call.finished is not None:
            self._broken(event, f"it was finished already, by event {call.finished.seq}")
        elif not call.is_open:
            self._broken(event, "a result of no call")
        if result.call_id != event.call_id:
            self._broken(event, f"it holds the result of {result.call_id}")
        if (event.failure_class is None) != (result.status == "ok"):
            self._broken(event, f"the failure class {event.failure_class} does not fit {result.status}")
        if call.decision is None:
            self._broken(event, "it has a result and no decision")
        if call.resolution == "done" and result.status not in (CallStatus.OK, CallStatus.OUTCOME_UNKNOWN):
            self._broken(event, f"it is {result.status} although a person had said that it was done")
        if event.reused_from is not None:
            self._check_reused(event, event.reused_from)
        elif result.status in ACTED and not call.starts:
            self._broken(event, f"it is {result.status} and never started")
        if call.promised_attempt > result.attempts and call.starts and result.status is not CallStatus.CANCELLED:
            self._unkept.append(f"attempt {call.promised_attempt} of {event.call_id} was announced and never came")
        call.finished, call.approval = event, None

    def _check_reused(self, event: ToolFinished, source: str) -> None:
        other = self._calls.get(source)
        if other is None or other.finished is None or not other.is_early:
            self._broken(event, f"{source} has no result that could answer it")
        elif other.is_proposed or source in self._reused:
            self._broken(event, f"the result of {source} answers a second call")
        self._reused.add(source)

    # Any: a table by type; each function names the type that it takes.
    _checks: ClassVar[dict[type[Any], Callable[["_Reader", Any], None]]] = {
        ApprovalAnswered: _approval_answered,
        ApprovalRequested: _approval_requested,
        CallDecided: _call_decided,
        ModeChanged: _mode_changed,
        ModelDiscarded: _model_discarded,
        ModelFailed: _model_failed,
        ModelFinished: _model_finished,
        ModelStarted: _model_started,
        RunFinished: _run_finished,
        RunPaused: _run_paused,
        RunResumed: _run_resumed,
        RunStarted: _run_started,
        SessionChanged: _session_changed,
        SessionForked: _session_forked,
        SessionRewound: _session_rewound,
        ToolAttemptFailed: _attempt_failed,
        ToolFinished: _tool_finished,
        ToolInDoubt: _tool_in_doubt,
        ToolResolved: _tool_resolved,
        ToolResumed: _tool_resumed,
        ToolStarted: _tool_started,
        ToolSuspended: _tool_suspended,
    }
