"""What a session's events add up to. One fold, used while events happen and when they are read back."""

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from treadle.canonical import artifact_id
from treadle.errors import ConfigurationError, JournalError, check_kind, shown
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    BudgetWarned,
    CallDecided,
    ChildEnded,
    ChildStarted,
    CompactionAsked,
    CompactionSkipped,
    ContextCompacted,
    DecisionRejected,
    DoubtBelow,
    Event,
    HookActed,
    MessageAdded,
    ModeChanged,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RulesGranted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionSpawned,
    SessionStatus,
    TaskSubmitted,
    TaskWithdrawn,
    ToolFinished,
    ToolInput,
    ToolResolved,
    ToolResumed,
    ToolsetListed,
    ToolStarted,
    ToolSuspended,
)
from treadle.fields import checked_but
from treadle.messages import Finish, Message, Result, Usage
from treadle.state.calls import (
    BUDGET_EXCEEDED,
    IN_DOUBT,
    Approval,
    CallRecord,
    CallState,
    ChildState,
    Denial,
    Doubt,
    SideEffects,
    approval_of,
    asks_of,
    call_record,
    denial_of,
    only_reads,
    resolution_id,
    result_part,
)
from treadle.state.compactions import Compactions
from treadle.state.runs import RunState, begin_call, end_call
from treadle.tools import DEFAULT_MODE, CallStatus, JsonObject, Mode

__all__ = ["Facts", "SessionState", "add_up", "sums"]


# --- Facts: what tools remember in their session, beside the messages: what was read and its hash, a plan, a list of
# things to do.


class Facts(msgspec.Struct, gc=False):
    """The facts of a session, folded from the results of its calls. `values` is replaced, never changed: threads may read it."""

    values: JsonObject = {}
    changes: list[tuple[int, JsonObject]] = []
    """What each event changed, by the event's number."""

    def change(self, seq: int, changes: JsonObject) -> None:
        """Take in the changes that an event brings: a JSON merge patch (RFC 7386), in which None removes a key."""
        self.changes.append((seq, changes))
        self.values = _merged(self.values, changes)

    def rewind(self, to: int) -> None:
        """Go back to what they were at an event."""
        self.changes = [change for change in self.changes if change[0] <= to]
        self.values = {}
        for _, changes in self.changes:
            self.values = _merged(self.values, changes)


def _merged(target: Any, patch: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = _merged(merged.get(name), value)
        else:
            merged[name] = value
    return merged


# --- What a session's events add up to. One fold, used while events happen and when they are read back.


class SessionState:
    """The sum of a session's events, and what follows from it. Changed by `apply` only."""

    # A dict of so many names takes five times the memory, and a process may hold thousands of sessions.
    __slots__ = (
        "__weakref__",
        "_decided_early",
        "_missing",
        "_transcript",
        "answered",
        "approvals",
        "call_ids",
        "caller",
        "compactions",
        "doubts",
        "doubts_below",
        "early",
        "facts",
        "granted",
        "has_empty_messages",
        "head",
        "id",
        "marks",
        "message_ids",
        "message_seqs",
        "messages",
        "metadata",
        "mode",
        "moved_to",
        "open",
        "own_status",
        "parent_id",
        "parent_seq",
        "resolutions",
        "rewinds",
        "run",
        "salvaged",
        "side_effects",
        "step",
        "submitted",
    )  # fmt: skip

    def __init__(self, session_id: str) -> None:  # noqa: PLR0915 - a list of values, each with its first one
        self.id = session_id
        self.head = 0
        self.step = 0
        self.messages: list[Message] = []
        self.open: dict[str, CallState] = {}
        """Calls of the last step, in call order, until all have results."""
        self.answered: tuple[CallState, ...] = ()
        """Calls of the last step whose calls all have results."""
        self.early: dict[str, CallState] = {}
        """Calls that started while their response still streamed."""
        self.salvaged: list[CallState] = []
        """Early calls of discarded responses of this step: their results may answer equal calls."""
        self.approvals: dict[str, Approval] = {}
        """Pending and answered but not yet used."""
        self.doubts: dict[str, Doubt] = {}
        """Calls whose unknown outcome was reported to the model, until a person says how they ended."""
        self.doubts_below: dict[str, tuple[DoubtBelow, ...]] = {}
        """Calls of unknown outcome of sessions that carried out its calls, by the session that ended."""
        self.resolutions: tuple[ToolResolved, ...] = ()
        """How those calls ended."""
        self.side_effects = SideEffects()
        self.call_ids: dict[str, None] = {}
        """Ids of its calls. A set of five of them takes three times the memory."""
        self.message_ids: dict[str, None] = {}
        """Ids of the inbox messages that it has read."""
        self.run: RunState | None = None
        self.own_status: SessionStatus = "active"
        """What people have set, independent of its runs."""
        self.submitted: TaskSubmitted | None = None
        """The task that waits for a worker to begin its run; None for none."""
        self.moved_to = ""
        """Where a session that was moved continues; empty for one that is here."""
        self.metadata: JsonObject = {}
        """The application's metadata of the session."""
        self.parent_id: str | None = None
        self.parent_seq: int | None = None
        self.caller: SessionSpawned | None = None
        """The call of another session that this one carries out; None for a session that people run."""
        self.mode: Mode = DEFAULT_MODE
        """How much happens in it without a question."""
        self.granted: tuple[RulesGranted, ...] = ()
        """Rules that people have granted in it."""
        self.facts = Facts()
        """The facts that tools have stored in the session."""
        self.compactions = Compactions()
        """Where the model is shown something shorter instead of messages."""
        self.marks: dict[str, int] = {}
        """Names of points, by the number of their last event."""
        self.rewinds: tuple[tuple[int, int], ...] = ()
        """Each rewind: the event it went back to, and its own number."""
        self.message_seqs: list[int] = []
        """The event that brought each message."""
        self.has_empty_messages = False
        """Whether a message without parts was ever added, such as an empty answer of the model."""
        self._transcript: tuple[Message, ...] | None = None
        self._decided_early: CallDecided | None = None
        self._missing = 0  # open calls without a result; counted, because a step may hold a thousand

    @property
    def transcript(self) -> tuple[Message, ...]:
        """All messages: the same tuple until there is another one, because a long session's is copied in every step."""
        if self._transcript is None:
            self._transcript = tuple(self.messages)
        return self._transcript

    @property
    def shown(self) -> tuple[Message, ...]:
        """The messages as the model is shown them: all, except those that a compaction has replaced."""
        if not self.compactions.made:
            return self.transcript
        self.compactions.entries(self.messages, self.message_seqs)
        return self.compactions.messages

    @property
    def artifacts(self) -> Mapping[str, str]:
        """Digests of the artifacts of which the model was shown a part, by the ids that it was given."""
        return self.compactions.artifacts

    @property
    def has_open_calls(self) -> bool:
        return bool(self.open)

    @property
    def is_whole(self) -> bool:
        """Whether every call has its result, early calls of responses that broke off included: a point to fork or move."""
        return not (self.open or self.early or any(one.result is None for one in self.salvaged))

    @property
    def unanswered(self) -> list[CallState]:
        return [state for state in self.open.values() if state.result is None]

    @property
    def status(self) -> str:
        """In which state it is, in one word: `suspended`, or what else people have set; else its `run_status`."""
        return self.run_status if self.own_status == "active" else self.own_status

    @property
    def run_status(self) -> str:
        """What happened to its last run, for lists: `active` before its first run, then its last run's status.

        `queued` where a task waits for a worker; `deleted` where the session was deleted.
        """
        if self.own_status == "deleted":
            return "deleted"
        if self.submitted is not None:
            return "queued"
        return self.run.status if self.run else "active"

    @property
    def phase(self) -> str:
        """The old name of `run_status`."""
        warnings.warn("Write state.run_status: `phase` goes.", DeprecationWarning, stacklevel=2)
        return self.run_status

    def run_status_at(self, seq: int) -> str:
        """Say what the run status is after a rewind to this event: its run can continue, unless its task is gone too."""
        kept = bisect_right(self.message_seqs, seq)
        return "active" if self.run is None or kept <= self.run.first_message else "stopped"

    def is_visible(self, seq: int) -> bool:
        """Whether what the model sees goes back to this event: no later rewind has gone behind it."""
        return not any(to < seq < rewound for to, rewound in self.rewinds)

    def call_records(self) -> tuple[CallRecord, ...]:
        """Return the calls of the run that have a result, in call order; also those beside a call that waits."""
        beside = (call_record(state, state.result) for state in self.open.values() if state.result is not None)
        return (*(() if self.run is None else self.run.calls), *beside)

    def pending_approvals(self) -> tuple[Approval, ...]:
        """Return what waits for a person's word: this session's own requests, and those of sessions that carry out its calls."""
        own = (approval for approval in self.approvals.values() if approval.answer is None)
        return (*own, *(self._asked_below(ask) for state in self.suspended for ask in asks_of(state)))

    @property
    def suspended(self) -> list[CallState]:
        """Started calls without a result that wait for something."""
        return [state for state in self.open.values() if state.suspended is not None and state.result is None]

    @property
    def questions(self) -> list[CallState]:
        """The calls with which its run is paused that wait for somebody's answer, and not for approval or a time, in order."""
        if self.run is None or self.run.status != "paused":
            return []
        waits = [(one, one.suspended) for one in self.suspended]
        return [one for one, what in waits if what is not None and not what.asks and what.due_at is None]

    @property
    def question(self) -> CallState | None:
        """The first of its `questions`; None without one."""
        return next(iter(self.questions), None)

    @property
    def carried_out(self) -> dict[str, list[str]]:
        """The sessions that carry out open calls of its run, by the id of the call. Such a call never waits or acts by itself."""
        found: dict[str, list[str]] = {}
        for child in () if self.run is None else self.run.children.values():
            if child.call_id in self.open:
                found.setdefault(child.call_id, []).append(child.session_id)
        return found

    @property
    def root_id(self) -> str:
        """The session that a person resumes: this one, or the one at the top of those that call each other."""
        return self.id if self.caller is None else self.caller.root_id or self.caller.parent_id

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the agents from the one that the top calls down to this session's; empty for a session of a person."""
        return () if self.caller is None else self.caller.path

    def open_doubts(self) -> tuple[Doubt, ...]:
        """Return the calls in doubt that a person has not resolved: those whose model was told, and those without a result.

        While a run is live, a call without a result is under way and in no doubt: only the caller knows whether one is.
        """
        below = self.carried_out  # an agent as a tool continues where it broke off
        open_ones = [
            state.doubt(self.id)
            for state in self.unanswered
            if state.started is not None and state.resolution is None and not state.started.effect.is_repeatable
            if state.suspended is None and state.call.id not in below
        ]
        return (*(doubt for doubt in self.doubts.values() if not doubt.resolution), *open_ones)

    def doubtful(self) -> tuple[Doubt | DoubtBelow, ...]:
        """Return the calls of unknown outcome that an equal call would repeat: its own, and those of agents that it called."""
        return (*self.doubts.values(), *(one for below in self.doubts_below.values() for one in below))

    def open_effects(self) -> list[CallState]:
        """Return the calls that may still act, or ask a person whether they may: those without a result that are not reads."""
        return [state for state in self.unanswered if not only_reads(state)]

    def untold_resolutions(self) -> list[ToolResolved]:
        """Return how doubts ended, where the model was told of the doubt and not yet of its end."""
        return [one for one in self.resolutions if resolution_id(one) not in self.message_ids]

    def _asked_below(self, ask: ApprovalRequested) -> Approval:
        return approval_of(ask, ask.session_id, self.root_id)

    # --- adding up

    def apply(self, event: AnyEvent) -> None:
        """Add one event. Events that change nothing here are passed over, so that new ones can be added.

        Raises:
            ConfigurationError: It is not an Event.
        """
        try:
            self.head = event.seq
        except AttributeError:
            raise ConfigurationError(f"event must be an Event of treadle.events; got {shown(event)}.") from None
        if self.run is not None and event.is_of_run and not isinstance(event, RunResumed):
            self.run.last_at = event.at
        fold = self._folds.get(type(event)) if event.act is None else self._beside.get(type(event))
        if fold is not None:
            fold(self, event)

    # --- runs

    def _task_submitted(self, event: TaskSubmitted) -> None:
        self.submitted = event

    def _task_withdrawn(self, event: TaskWithdrawn) -> None:
        self.submitted = None

    def _run_started(self, event: RunStarted) -> None:
        self.submitted = None
        self.run = RunState.begun(event, first_message=len(self.messages))
        self._salvage()

    def _run_ended(self, event: RunFinished | RunPaused) -> None:
        self._running().end(event)

    def _run_resumed(self, event: RunResumed) -> None:
        self._running().resume(event)
        self._salvage()

    def _running(self) -> RunState:
        if self.run is None:
            self.run = RunState(id="", task="")
        return self.run

    # --- messages and model calls

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self.has_empty_messages = self.has_empty_messages or not message.parts
        self._transcript = None
        self.message_seqs.append(self.head)

    def _hook_acted(self, event: HookActed) -> None:
        run = self._running()
        run.continued += event.answer == "continued"
        run.interrupted_by = event if event.interrupt else run.interrupted_by

    def _message_added(self, event: MessageAdded) -> None:
        self._add(event.message)
        if event.message_id:
            self.message_ids[event.message_id] = None

    def _model_started(self, event: ModelStarted) -> None:
        run = self.run or self._running()
        run.model_retries += event.attempt > 1
        run.offered = event.tools
        run.prefix = event.prefix

    def _toolset_listed(self, event: ToolsetListed) -> None:
        self._running().tool_owners |= dict.fromkeys(event.tools, event.toolset)

    def _model_failed(self, event: ModelFailed) -> None:
        if event.usage is not None:
            self._spend(event.usage, event.cost, turns=0, calls=0)

    def _decision_rejected(self, event: DecisionRejected) -> None:
        if event.usage is not None:
            self._spend(event.usage, event.cost, turns=1, calls=0)

    def _model_finished(self, event: ModelFinished) -> None:
        run = self.run or self._running()
        calls = event.message.calls
        self.step = event.step
        self._add(event.message)
        run.text = event.message.text or run.text
        run.steps += 1
        run.advice = event.advice or run.advice
        run.has_closed = run.has_closed or event.closing
        run.was_cut = run.was_cut or event.finish is Finish.LENGTH
        run.cut_in_calls = run.cut_in_calls + 1 if calls and event.finish is Finish.LENGTH else 0
        self._spend(
            event.usage, event.cost, turns=0 if event.closing else event.turns, calls=0 if event.closing else len(calls)
        )
        for position, call in enumerate(calls):
            self.call_ids[call.id] = None
            early = self.early.pop(call.id, None)
            self.open[call.id] = early or CallState(call=call, position=position)
        if self.early:
            self._salvage()
        self._missing = sum([state.result is None for state in self.open.values()])
        if calls and not self._missing:
            self._close_step()

    def _spend(self, usage: Usage, cost: str | None, *, turns: int, calls: int) -> None:
        run = self.run or self._running()
        run.spent = run.spent.plus(usage, cost, turns=turns, calls=calls)

    def _spent_beside(self, event: ModelFinished | ModelFailed) -> None:
        """Charge what was asked apart from the run's own steps: it is not a step, and its answer no message of the session."""
        if event.usage is not None:
            self._running().spend_beside(event.act or "", event.usage, event.cost)

    def _context_compacted(self, event: ContextCompacted) -> None:
        self._running().end_act(event.act or "", event.usage, event.cost)
        self.compactions.artifacts |= {artifact_id(digest): digest for digest in event.artifacts}
        if event.last:  # an event of an older version says nothing of messages
            self.compactions.add(event)

    def _model_discarded(self, event: ModelDiscarded) -> None:
        self._salvage()

    def _salvage(self) -> None:
        self.salvaged.extend(self.early.values())
        self.early.clear()

    # --- calls

    def _find(self, call_id: str | None) -> CallState | None:
        if call_id is None:
            return None
        found = self.open.get(call_id) or self.early.get(call_id)
        if found is None and self.salvaged:
            return next((state for state in self.salvaged if state.call.id == call_id), None)
        return found

    def _call_decided(self, event: CallDecided) -> None:
        if (state := self._find(event.call_id)) is not None:
            state.decision = event
        elif event.early:  # its start comes next, and brings the call
            self._decided_early = event
        if event.decision == "deny":
            run = self._running()
            run.denials.append(denial_of(event))
            run.interrupted_by = event if event.interrupt else run.interrupted_by

    def _action_decided(self, event: ActionDecided) -> None:
        if event.decision in ("deny", "sandbox"):
            denial = Denial(call_id=event.call_id or "", tool=event.action, rule=event.rule, reason=event.reason)
            self._running().denials.append(denial)

    def _approval_requested(self, event: ApprovalRequested) -> None:
        approval = approval_of(event, self.id, self.root_id, self.path)
        state = self._find(event.call_id)
        if state is not None and state.approval is not None:  # expired, or of another action: the new one replaces it
            self.approvals.pop(state.approval.id, None)
        self.approvals[approval.id] = approval
        if state is not None:
            state.approval = approval

    def _approval_answered(self, event: ApprovalAnswered) -> None:
        approval = self.approvals.get(event.approval_id)
        if approval is None or approval.answer is not None:
            return
        answered = msgspec.structs.replace(approval, answer=event)
        self.approvals[approval.id] = answered
        self.side_effects.consent(approval, event)
        if (state := self._find(approval.call_id)) is not None:
            state.approval = answered

    def _rules_granted(self, event: RulesGranted) -> None:
        self.granted = (*self.granted, event)

    def _tool_started(self, event: ToolStarted) -> None:
        run, state = self.run or self._running(), self._find(event.call_id)
        begin_call(run, event.call_id or "", event.at)
        if state is not None:
            state.suspended = None
        if event.early and event.call is not None:
            self.call_ids[event.call.id] = None
            decided = self._decided_early
            decision = decided if decided is not None and decided.call_id == event.call_id else None
            self.early[event.call.id] = CallState(
                call=event.call, position=event.position, decision=decision, started=event
            )
        elif state is not None:
            state.started, state.resolution = event, None
            state.starts += 1
            if state.approval is not None:  # single use
                self.approvals.pop(state.approval.id, None)
                if (
                    state.approval.answer is None
                ):  # it began without the answer, in another mode: nobody is asked any more
                    state.approval = None

    def _tool_suspended(self, event: ToolSuspended) -> None:
        end_call(self._running(), event.call_id or "", event.at)
        if (state := self._find(event.call_id)) is not None and state.result is None:
            state.suspended = event

    def _tool_input(self, event: ToolInput) -> None:
        if (state := self._find(event.call_id)) is not None:
            state.inputs = (*state.inputs, event)

    def _tool_resumed(self, event: ToolResumed) -> None:
        begin_call(self._running(), event.call_id or "", event.at)
        if (state := self._find(event.call_id)) is not None:
            state.suspended = None

    def _child_started(self, event: ChildStarted) -> None:
        children, call_id = self._running().children, event.call_id or ""
        known = children.get(event.child_id) or ChildState(
            session_id=event.child_id, call_id=call_id, tool=event.tool, agent=event.agent or event.tool
        )
        children[event.child_id] = msgspec.structs.replace(known, call_id=call_id, status="running")

    def _budget_warned(self, event: BudgetWarned) -> None:
        self._running().warned[event.budget] = event.limit

    def _child_ended(self, event: ChildEnded) -> None:
        run = self._running()
        if (child := run.children.get(event.child_id)) is not None:
            run.spent = run.spent.with_child(event.spent, child.spent)
            child.status, child.reason, child.spent = event.status, event.reason, event.spent
        if event.status == "gone":
            return  # nobody can say more of its calls: what was in doubt still is
        self.doubts_below.pop(event.child_id, None)
        if event.in_doubt:
            self.doubts_below[event.child_id] = event.in_doubt

    def _tool_finished(self, event: ToolFinished) -> None:
        state = self._find(event.call_id)
        if state is None or state.result is not None:
            return
        state.result = event.result
        run = self.run or self._running()
        end_call(run, event.call_id or "", event.at)
        if event.result.artifact is not None:
            self._keep(event.result.artifact, event.result.content)
        self.side_effects.add(state)
        if event.result.facts:
            self.facts.change(event.seq, event.result.facts)
        if event.result.code == BUDGET_EXCEEDED:
            run.uncharge()
        decision = state.decision
        if event.result.status is CallStatus.DENIED and decision is not None and decision.decision == "sandbox":
            run.denials.append(denial_of(decision))
        if event.result.status is CallStatus.OUTCOME_UNKNOWN and state.started is not None:
            self._doubt(state)
        if state.approval is not None:
            self.approvals.pop(state.approval.id, None)
        if event.call_id in self.open:
            self._missing -= 1
            if not self._missing:
                self._close_step()

    def _keep(self, artifact: str, content: str) -> None:
        """Invariant: the model can read on only in what a result shows it by name. What was withheld from it stays so."""
        if (name := artifact_id(artifact)) in content:
            self.compactions.artifacts[name] = artifact

    def _doubt(self, state: CallState) -> None:
        """The model is told that the outcome is unknown; where a person knows it already, it is told that as well."""
        resolved = state.resolution
        if resolved is not None and resolved.outcome != "unknown":
            self.resolutions = (*self.resolutions, resolved)
            return
        stays = "" if resolved is None else resolved.outcome
        self.doubts[state.call.id] = msgspec.structs.replace(state.doubt(self.id), resolution=stays)

    def _tool_resolved(self, event: ToolResolved) -> None:
        """Invariant: recorded between runs only. The next run gives an open call its result, or tells the model."""
        call_id = event.call_id or ""
        if event.child_id:
            self.resolutions = (*self.resolutions, event)
            if event.outcome != "unknown":
                self._settle_below(event.child_id, call_id)
        elif (reported := self.doubts.pop(call_id, None)) is not None:
            self.resolutions = (*self.resolutions, event)
            if event.outcome == "unknown":
                self.doubts[call_id] = msgspec.structs.replace(reported, resolution="unknown")
        elif (state := self.open.get(call_id)) is not None:
            state.resolution = event
            if state.approval is not None and state.approval.rule == IN_DOUBT and state.approval.answer is None:
                self.approvals.pop(state.approval.id, None)  # the question has found its answer elsewhere
                state.approval = None

    def _settle_below(self, child_id: str, call_id: str) -> None:
        """A person knows how a call of a child has ended."""
        for name, below in tuple(self.doubts_below.items()):
            kept = tuple(one for one in below if (one.session_id, one.call_id) != (child_id, call_id))
            self.doubts_below[name] = kept

    def _close_step(self) -> None:
        """Invariant: the results enter the transcript together and in call order, whatever order they finished in."""
        run = self.run or self._running()
        results: list[Result] = []
        for state in self.open.values():
            result = state.result
            assert result is not None
            run.calls.append(call_record(state, result))
            results.append(result_part(result))
        self._add(Message(role="tool", parts=tuple(results)))
        self.answered = tuple(self.open.values())
        self.open.clear()
        self.salvaged.clear()

    # --- the session itself

    def _session_changed(self, event: SessionChanged) -> None:
        if event.status == "active" != self.own_status and self.run is not None:
            self.run.forgive()
        self.own_status = event.status or self.own_status
        if event.status is not None:
            self.moved_to = event.moved_to
        if event.metadata is not None:
            merged = {**self.metadata, **event.metadata}
            self.metadata = {key: value for key, value in merged.items() if value is not None}

    def _mode_changed(self, event: ModeChanged) -> None:
        self.mode = event.mode
        if event.message_id:
            self.message_ids[event.message_id] = None

    def _compaction_asked(self, event: CompactionAsked) -> None:
        self.compactions.asked = event.seq
        if event.message_id:
            self.message_ids[event.message_id] = None

    def _compaction_skipped(self, event: CompactionSkipped) -> None:
        self.compactions.asked = 0

    def _session_forked(self, event: SessionForked) -> None:
        self.parent_id, self.parent_seq = event.parent_id, event.parent_seq
        self.caller = None
        self.granted = ()  # people allowed that in the other session
        self.submitted = None  # a task is carried out once: a fork does not inherit it
        if self.run is not None:  # the children before this point are the other session's
            self.run.children.clear()

    def _session_spawned(self, event: SessionSpawned) -> None:
        self.parent_id, self.parent_seq, self.caller = event.parent_id, event.parent_seq, event

    def _session_marked(self, event: SessionMarked) -> None:
        self.marks[event.name] = event.seq - 1

    def _session_rewound(self, event: SessionRewound) -> None:
        """Invariant: it is recorded only where no call is open, and goes back to such a point: pairs stay whole."""
        kept = bisect_right(self.message_seqs, event.to)
        del self.messages[kept:], self.message_seqs[kept:]
        self._transcript = None
        self.facts.rewind(event.to)
        self.compactions.rewind(event.to)
        self.approvals.clear()
        self.granted = tuple(one for one in self.granted if one.seq <= event.to)
        self.early.clear()
        self.salvaged.clear()
        self.marks = {name: seq for name, seq in self.marks.items() if seq <= event.to}
        self.rewinds = (*self.rewinds, (event.to, event.seq))
        if self.run is not None:
            self._rewind_run(self.run, kept)

    def _rewind_run(self, run: RunState, kept: int) -> None:
        """A run whose task is still there may continue from that point, and what it has spent stays spent."""
        if kept <= run.first_message:
            self.run = None
        else:
            run.status, run.reason, run.text = "stopped", "rewound", ""

    # Any: a table by type; each function names the type that it takes.
    _folds: ClassVar[dict[type[Any], Callable[["SessionState", Any], None]]] = {
        ActionDecided: _action_decided,
        ApprovalAnswered: _approval_answered,
        ApprovalRequested: _approval_requested,
        CallDecided: _call_decided,
        BudgetWarned: _budget_warned,
        ChildEnded: _child_ended,
        ChildStarted: _child_started,
        CompactionAsked: _compaction_asked,
        CompactionSkipped: _compaction_skipped,
        ContextCompacted: _context_compacted,
        DecisionRejected: _decision_rejected,
        HookActed: _hook_acted,
        MessageAdded: _message_added,
        ModeChanged: _mode_changed,
        ModelDiscarded: _model_discarded,
        ModelFailed: _model_failed,
        ModelFinished: _model_finished,
        ModelStarted: _model_started,
        RulesGranted: _rules_granted,
        RunFinished: _run_ended,
        RunPaused: _run_ended,
        RunResumed: _run_resumed,
        RunStarted: _run_started,
        SessionChanged: _session_changed,
        SessionForked: _session_forked,
        SessionMarked: _session_marked,
        SessionRewound: _session_rewound,
        SessionSpawned: _session_spawned,
        TaskSubmitted: _task_submitted,
        TaskWithdrawn: _task_withdrawn,
        ToolFinished: _tool_finished,
        ToolInput: _tool_input,
        ToolResolved: _tool_resolved,
        ToolResumed: _tool_resumed,
        ToolStarted: _tool_started,
        ToolSuspended: _tool_suspended,
        ToolsetListed: _toolset_listed,
    }
    _beside: ClassVar[dict[type[Any], Callable[["SessionState", Any], None]]] = {
        ContextCompacted: _context_compacted,
        ModelFailed: _spent_beside,
        ModelFinished: _spent_beside,
    }
    """For events of an act apart from the run's own steps."""


_SUMS = tuple(
    name for name in SessionState.__slots__ if name not in ("__weakref__", "_transcript")
)  # that one is a copy


def sums(state: SessionState) -> dict[str, Any]:
    """Return all that the events of a session add up to, by name. Two sessions with equal sums stand alike."""
    return {name: getattr(state, name) for name in _SUMS}


# --- Adding up: the sum of a session's events, or one clear error where they contradict each other. Reads no store.

_CONTRADICTIONS = (
    AssertionError,
    ArithmeticError,
    AttributeError,
    ConfigurationError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a sum raises for events that no run has recorded in this order."""


@checked_but("events")
def add_up(state: SessionState, events: Iterable[AnyEvent]) -> SessionState:
    """Add events to a state, and return it.

    Raises:
        JournalError: They contradict each other, so the session is damaged.
    """
    check_kind("events", events, Iterable, "a list of events")  # not each of them: there may be a million
    event: AnyEvent | None = None
    try:
        for event in events:
            state.apply(event)
    except _CONTRADICTIONS as exc:
        where = "" if not isinstance(event, Event) else f" at event {event.seq} ({event.type})"
        raise JournalError(
            f"The events of session {state.id!r} contradict each other{where}: {type(exc).__name__} {exc}. Restore the journal "
            "from a backup; nothing was changed."
        ) from exc
    return state
