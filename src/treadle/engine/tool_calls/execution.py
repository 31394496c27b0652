"""Execution: carry out one batch of calls: settle what broke off > plan > schedule > attempt > finish.

Invariant: every call of the batch ends in exactly one `tool.finished`, or waits for a person. Knows no model and no wire.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import msgspec

from treadle.canonical import find_unencodable
from treadle.engine.rules.bounds import group, named_resources
from treadle.engine.rules.endings import ended_by_results, failure_stop, interrupted_stop
from treadle.engine.rules.failures import contained, is_being_cancelled, pass_interrupts
from treadle.engine.rules.tries import Progress, Tries, todos_reminder
from treadle.engine.scope import RunScope
from treadle.engine.spec import CancelSiblings, DoneWhen
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.attempts import Attempts
from treadle.engine.tool_calls.calls import Batch, Decided, Finisher, Plan, Refused
from treadle.engine.tool_calls.checking import Checker
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.engine.tool_calls.planning import Planner
from treadle.engine.tool_calls.recovery import Recovery
from treadle.errors import ConfigurationError, IntentNotStored, shown
from treadle.events import (
    ActionDecided,
    AnyEvent,
    BudgetWarned,
    CallDecided,
    MessageAdded,
    RepeatNoticed,
    ToolResumed,
    ToolStarted,
    ToolSuspended,
)
from treadle.messages import ToolCall, user_message
from treadle.permissions import consent
from treadle.ports import CheckView, Decision, DecisionKind
from treadle.redaction import redacted_logger
from treadle.sessions.maintenance import abandoned, end_children, may_have_acted, unknown_outcome
from treadle.state import CallState, SessionState, Suspended
from treadle.stops import LimitReached, Stop, StopReason, merged
from treadle.tools import CallStatus, CheckedCall, Done, Effect, JsonObject, Tool, ToolResult

__all__ = ["Actions", "Conditions", "DoneCondition", "Execution"]


# --- Siblings: what the failure of one call means for the others of its response. Ends nothing by itself; makes no
# result but theirs.


class Siblings:
    """The calls of one response, as far as one matters to another.

    Args:
        policy: `on_unsafe_error`: a call that acts and ends with an error cancels the others; `never`: none does.
    """

    def __init__(self, policy: CancelSiblings) -> None:
        self._policy = policy
        self._broken: dict[str, CheckedCall] = {}  # resources that a failed call was to write
        self._culprit: CheckedCall | None = None
        self._reads: dict[str, asyncio.Task[ToolResult]] = {}  # that are under way, by call id

    def finished(self, call: CheckedCall, result: ToolResult) -> None:
        """Take note of a call's end. Where the policy says so, reads that are under way are cut off."""
        if not result.is_error or call.effect.is_read:
            return
        self._breaks(call, call)
        if self._policy == "on_unsafe_error" and self._culprit is None:
            self._culprit = call
            for task in self._reads.values():
                task.cancel()

    def refusal(self, call: CheckedCall) -> ToolResult | None:
        """Return the result of a call that may not start because another one failed; None where it may."""
        if self._culprit is not None:
            return refusals.sibling_failed(call, self._culprit)
        needed = next((self._broken[name] for name in _named(call) if name in self._broken), None)
        if needed is None:
            return None
        if not call.effect.is_read:
            self._breaks(call, needed)
        return refusals.prerequisite_failed(call, needed)

    def _breaks(self, call: CheckedCall, first: CheckedCall) -> None:
        written = (name for name, mode in _named(call).items() if mode == "write" and name != "*")
        self._broken.update((name, self._broken.get(name, first)) for name in written)

    async def watched(self, call: CheckedCall, task: "asyncio.Task[ToolResult]") -> ToolResult:
        """Wait for a read that may be cut off because a sibling fails; return what it is told then."""
        self._reads[call.id] = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._culprit is None or is_being_cancelled():
                raise  # the read is cancelled too: whoever is cancelled while it waits for a task cancels that
            return refusals.sibling_failed(call, self._culprit)
        finally:
            del self._reads[call.id]

    def may_cut(self, call: CheckedCall) -> bool:
        """Whether the call may be cut off when a sibling fails: a read may; a call with an effect runs to its end, so that its outcome is known."""
        return self._policy == "on_unsafe_error" and call.effect.is_read


def _named(call: CheckedCall) -> Mapping[str, str]:
    return named_resources(call) or {}


# --- Reminders: what the runtime tells the model between two steps, at the end of what it sees: the prefix stays as it
# is.

_NOUNS = {
    "max_model_turns": "responses",
    "max_tool_calls": "tool calls",
    "max_wall_time_seconds": "seconds",
    "max_input_tokens": "input tokens",
    "max_output_tokens": "output tokens",
    "max_total_cost": "of the cost",
}


class Reminders:
    """The reminders of one run."""

    def __init__(self, scope: RunScope, *, progress: Progress) -> None:
        self._ledger = ledger = scope.ledger
        self._meter = meter = scope.meter
        self._interrupt = scope.interrupt
        self._progress = progress
        self._warn_at = warn_at = scope.about.guards.budget_warning
        part, limits = warn_at or 1.0, meter.limits
        self._floors = [part * float(limits[name]) if name in limits else inf for name in _NOUNS]
        run = ledger.state.run
        self._seconds_before = 0.0 if run is None else run.spent.wall_seconds

    async def remind(self) -> None:
        """Record what the model is to be told before it is asked again. Nothing, most often."""
        progress, near, state = self._progress, self._near_limits(), self._ledger.state
        stalled = progress.reminder() if progress.is_noteworthy else None
        todos = todos_reminder(state.facts.values, state.shown) if "todos" in state.facts.values else None
        if not near and stalled is None and todos is None:
            return
        said = [one for one in (stalled, todos) if one is not None]
        if near:
            left = "; ".join(f"{one.used} of {one.limit} {_NOUNS[one.budget]}" for one in near)
            said.append(
                f"A note from the runtime: this run has used {left}. Do what matters most, and answer before the limit is reached."
            )
        warned = [BudgetWarned(budget=one.budget, used=one.used, limit=one.limit) for one in near]
        told = MessageAdded(message=user_message("\n\n".join(said)), source="runtime")
        await self._ledger.record(*warned, told)

    def _near_limits(self) -> list[LimitReached]:
        """Return the limits of the run that are nearly used up, and of which nobody was warned yet."""
        run = self._ledger.state.run
        if run is None or self._warn_at is None:
            return []
        seconds = self._seconds_before + self._ledger.clock.monotonic() - self._interrupt.begun
        spent, usage, (turns, calls, wall, given, written, cost) = run.spent, run.spent.usage, self._floors
        is_far = spent.model_turns < turns and spent.tool_calls < calls and seconds < wall
        if is_far and usage.input_tokens < given and usage.output_tokens < written and float(spent.cost or 0) < cost:
            return []  # most steps
        near = self._meter.near(run.spent, seconds, self._warn_at)
        return [one for one in near if run.warned.get(one.budget) != one.limit]


# --- Conditions: whether a run is over after a batch of calls: by a tool that ends it, by its user's own condition, or
# by a guard.

logger = redacted_logger(__name__)

_FAILED = frozenset(
    {
        CallStatus.FAILED,
        CallStatus.REJECTED,
        CallStatus.TIMEOUT,
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.UNEXPECTED_RESULT_SHAPE,
    }
)
"""How a tool that has run fails. What never ran is the model's mistake, or a decision."""


class DoneCondition:
    """The condition of one run that its user has given."""

    def __init__(self, scope: RunScope, function: DoneWhen, session: CheckView) -> None:
        self._function = function
        self._session = session
        self._contracts = scope.offering.contracts
        self._interrupt = scope.interrupt

    async def stop(self) -> Stop | None:
        """Return the end of the run where the condition holds. A condition that fails is logged and ends nothing."""
        try:
            answer: Any = self._function(self._session)  # whatever a stranger's function returns
            if inspect.isawaitable(answer):
                awaited, answer = answer, None
                with self._interrupt.cancel_scope():
                    answer = await contained(awaited)
        except BaseException as error:
            pass_interrupts(error)
            logger.exception("The function of done_when raised; the run continues")
            return None
        if answer is None or answer is False:
            return None
        if answer is True or answer is Done:
            answer = Done()
        if not isinstance(answer, Done):
            logger.error("done_when returned a %s; the run continues. Return Done(payload)", type(answer).__name__)
            return None
        return await self._done(answer)

    async def _done(self, answer: Done) -> Stop | None:
        plain = await self._contracts.plain(answer.value)
        if plain.problem is not None:
            logger.error("The payload of done_when is not JSON (%s); the run continues", plain.problem)
            return None
        message = "The condition of done_when holds."
        return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, message=message, output=plain.data)


class Conditions:
    """Whatever may end one run after a batch of calls.

    Args:
        done: The user's own condition; None for none.
    """

    def __init__(
        self,
        scope: RunScope,
        *,
        done: DoneCondition | None,
        tries: Tries,
        progress: Progress,
    ) -> None:
        self._stops_on_failure = scope.about.on_failure == "stop"
        self._required = scope.offering.required
        self._ending = scope.offering.ending
        self.may_end_by_results = bool(self._stops_on_failure or self._required or self._ending)
        """Whether a result may end the run by itself."""
        self._ledger = ledger = scope.ledger
        self._done = done
        self._tries = tries
        self._progress = progress
        self._reminders = Reminders(scope, progress=progress)
        self._interrupt = scope.interrupt
        self._looks_back = True
        self._shortened = _times_shortened(ledger.state) if ledger.state.compactions.made else 0

    def ended_by(self, results: Sequence[ToolResult | None]) -> Stop | None:
        """Return the end of the run where a result is a success of a tool that ends it, or a failure where none is to be continued after."""
        ended = ended_by_results(results, ending=self._ending, required=self._required)
        if ended is None and self._stops_on_failure:
            failed = next((one for one in results if one is not None and one.status in _FAILED), None)
            return None if failed is None else failure_stop(failed)
        return ended

    async def before_request(self) -> Stop | None:
        """Return the end that the last batch had brought about where its process died before it could record that end.

        Asked before the first request of the run.
        """
        state = self._ledger.state
        if (interrupted := self._interrupted()) is not None:
            return interrupted
        if not self._looks_back or not state.messages or state.messages[-1].role != "tool":
            return None
        ended = ended_by_results([call.result for call in state.answered], ending=self._ending, required=self._required)
        if ended is None and self._done is not None:
            ended = await self._done.stop()
        return ended or self._interrupt.stop

    def begin(self) -> Stop | None:
        """Begin a batch. Return the end of the run that a result has brought about which it had before."""
        self._looks_back = False
        return self.ended_by([call.result for call in self._ledger.state.open.values()])

    async def after(self, batch: Batch, *stops: Stop | None) -> Stop | None:
        """Return the end of a run that is done by its user's own condition, or that a guard stops: every such signal.

        Args:
            stops: What ends it already; its user is not asked then.
        """
        guarded = self._guarded()
        is_closing = batch.proposal is not None and batch.proposal.finished.closing
        run = self._ledger.state.run
        if not any(stops) and run is not None and run.interrupted_by is not None:
            stops = (interrupted_stop(run.interrupted_by),)  # a batch that is resumed does not decide that again
        done = None
        if self._done is not None and not is_closing and not any(stops):
            done = await self._done.stop()
        signals = [one for one in (*self._interrupt.signals, *stops, done, *guarded) if one is not None]
        stop = merged(*signals) if signals else None
        if stop is None and not self._ledger.state.open:
            await self._reminders.remind()
        return stop

    def _interrupted(self) -> Stop | None:
        run = self._ledger.state.run
        return None if run is None or run.interrupted_by is None else interrupted_stop(run.interrupted_by)

    def _guarded(self) -> tuple[Stop, ...]:
        """Count the finished batch as a try. Return the stops of the guards that it has tripped."""
        if self._ledger.state.open:
            return ()
        answered = self._ledger.state.answered
        self._tries.add(answered)
        if self._ledger.state.compactions.made and (
            (shortened := _times_shortened(self._ledger.state)) != self._shortened
        ):
            self._shortened = shortened
            self._progress.forget()
        self._progress.add(answered)
        lack = self._progress.stop() if self._progress.is_noteworthy else None
        return self._tries.stops() if lack is None else (*self._tries.stops(), lack)


def _times_shortened(state: SessionState) -> int:
    """Count how often what the model sees was made shorter: what it does not see any more it may look at again."""
    return sum(one.tier != "limits" for one in state.compactions.made)


# --- Execution: carry out one batch of calls: settle what broke off > plan > schedule > attempt > finish.


class Execution:
    """Carries out the batches of one run."""

    def __init__(
        self,
        scope: RunScope,
        *,
        recovery: Recovery,
        planner: Planner,
        attempts: Attempts,
        early: EarlyCalls,
        conditions: Conditions,
    ) -> None:
        self._ledger = ledger = scope.ledger
        self._recovery = recovery
        self._planner = planner
        self._attempts = attempts
        self._late = scope.late
        self._batch_time = scope.batch_time
        self._slots = scope.slots
        self._sandbox = scope.about.sandbox
        self._early = early
        self._interrupt = scope.interrupt
        self._conditions = conditions
        self._result_chars = scope.meter.budget.max_tool_result_chars
        self._cancel_siblings = scope.about.cancel_siblings
        self._siblings: Siblings | None = None  # of the batch; None for a single call
        self._has_begun_before = False  # whether a call of the batch has started before
        self._finisher = Finisher(run_id="", step=0, last_id="", state=ledger.state)
        self._batch: Batch | None = None
        self._done: Stop | None = None
        self._in_doubt: tuple[str, ...] = ()
        self._suspended: dict[str, CallState] = {}

    async def ended_before(self) -> Stop | None:
        """Return the end that the last batch had brought about, where its process died before it could record that end."""
        return await self._conditions.before_request()

    async def execute(self, batch: Batch) -> Stop | None:
        """Give every call of the batch its result, but those that wait for a person. Return why the run must end, if so.

        The stages of a call, in their order: a call that a dead process had begun is settled; the others are checked and decided
        on; the decisions are recorded, with the starts of those that start at once; each call is attempted, its result held to
        the tool's contract, and its end recorded.
        """
        self._begin(batch)
        if self._has_begun_before:
            batch = await self._recovery.settle(batch, self._finisher)
        plan = await self._planner.plan(batch, self._finisher)
        if not self._early.is_unused:
            await self._early.drop(but=[early.id for _, early in plan.adopted])
        await self._run(batch, plan)
        if plan.adopted:
            await self._adopt(plan.adopted)
        approving = self._planner.approving
        # What ends the run asks nothing: an answer would not matter any more.
        while approving.waiting and self._done is None and self._interrupt.stop is None:
            if not (answered := await approving.answered()):
                break
            rest = msgspec.structs.replace(batch, calls=answered, proposal=None, allowance=None)
            plan = await self._planner.plan(rest, self._finisher)
            await self._run(rest, plan)
        if self._batch_time is not None:
            self._batch_time.end()
        self._batch = None  # it would be kept all the time that the next response takes
        stop = await self._conditions.after(batch, self._interrupt.stop, plan.stop, self._done)
        if stop is not None:  # nobody is asked any more: what waited for a person ends with the run
            await self._leave([state.call for state in self._ledger.state.unanswered])
        run = self._ledger.state.run
        if run is not None and run.children:
            await end_children(self._ledger)  # nothing that carries out a call outlives it
        return stop

    def _begin(self, batch: Batch) -> None:
        # Of a response that was just received, nothing can have a result yet.
        self._done = self._conditions.begin() if batch.proposal is None else None
        self._batch = batch
        self._siblings = Siblings(self._cancel_siblings) if len(batch.calls) > 1 else None
        self._has_begun_before, self._in_doubt, self._suspended = False, (), {}
        if batch.proposal is None:
            self._note_started([state for state in batch.calls if state.started is not None])
        self._finisher = Finisher(
            run_id=self._ledger.run_id,
            step=batch.step,
            last_id=batch.calls[-1].call.id,
            state=self._ledger.state,
            notice=batch.notice,
            result_chars=self._result_chars,
        )

    def _note_started(self, started: Sequence[CallState]) -> None:
        """Note how the calls stand that had started before the batch."""
        self._has_begun_before = bool(started)
        self._in_doubt = tuple([state.call.id for state in started if may_have_acted(state)])
        self._suspended = {
            state.call.id: msgspec.structs.replace(state) for state in started if state.suspended is not None
        }

    async def _run(self, batch: Batch, plan: Plan) -> None:
        """Record what was decided, and run the calls that are ready, group after group. The first may start in that very commit."""
        if plan.ready and self._batch_time is not None:
            self._batch_time.begin()
        before: list[AnyEvent] = [] if batch.proposal is None else [batch.proposal.finished]
        before += plan.events
        groups = group(plan.ready) if len(plan.ready) > 1 else [plan.ready] if plan.ready else []
        if groups and self._may_start(groups[0]):
            await self._run_group(groups.pop(0), *before)
        elif self._ledger.is_deferring and all(map(_asks_still, before)):
            self._ledger.defer(*before)
        else:
            await self._ledger.record(*before)
        for calls in groups:
            await self._wait_until_clear(calls)
            if self._has_ended:
                await self._leave(calls)
            elif independent := await self._independent(calls):
                await self._run_group(independent)

    async def _independent(self, calls: Sequence[CheckedCall]) -> Sequence[CheckedCall]:
        """Answer the calls that may not start because another one failed, and return the others."""
        siblings = self._siblings
        if siblings is None:
            return calls
        refused = {call.id: result for call in calls if (result := siblings.refusal(call)) is not None}
        if not refused:
            return calls
        results = [self._left_open(call) or refused[call.id] for call in calls if call.id in refused]
        await self._ledger.record(*map(self._finisher.finished, results))
        return [call for call in calls if call.id not in refused]

    # --- groups

    @property
    def _has_ended(self) -> bool:
        time = self._batch_time
        return self._interrupt.stop is not None or self._done is not None or (time is not None and time.is_over)

    def _may_start(self, calls: Sequence[CheckedCall]) -> bool:
        """Whether a group may start at once, in the commit of its decisions."""
        return not self._has_ended and (not _acts(calls) or (self._early.is_idle and not self._late.blocking(calls)))

    async def _run_group(self, calls: Sequence[CheckedCall], *before: AnyEvent) -> None:
        """Record what comes before, and run calls side by side: those that find a slot start in that commit, others in their turn."""
        count = await self._slots.take(len(calls))
        waiting = calls[count:]
        started: Sequence[CheckedCall] = ()
        try:
            started = await self._start(calls[:count], *before)
        finally:
            if count > len(started):
                self._slots.give_back(count - len(started))
        if len(started) == 1 and not waiting:
            await self._carry_out(started[0])
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for call in started:
                    tasks.create_task(self._carry_out(call))
                for call in waiting:
                    tasks.create_task(self._queue(call))
        except BaseExceptionGroup as raised:
            # Only the journal can fail in there: a tool's own failure is a result.
            raise raised.exceptions[0] from None

    async def _queue(self, call: CheckedCall) -> None:
        """Wait for a slot; then start, unless the run has ended meanwhile."""
        await self._slots.wait()
        started: Sequence[CheckedCall] = ()
        try:
            if self._has_ended:
                await self._leave([call])
            elif await self._independent([call]):
                started = await self._start([call])
        finally:
            self._slots.give_back(1 - len(started))
        for one in started:
            await self._carry_out(one)

    async def _start(self, calls: Sequence[CheckedCall], *before: AnyEvent) -> Sequence[CheckedCall]:
        """Record, after what comes before it, that calls which hold a slot start. Return those that do.

        Where the store cannot keep it, calls that act are answered instead of started: a crash would leave them unknown.
        """
        if self._ledger.is_deferring and all(map(self._waits_below, calls)):
            self._ledger.defer(*before, *(self._started(call) for call in calls))
            return calls
        holds = partial(self._planner.stand, calls)  # while it waits to be stored, a change of mode may be
        starts = [self._started(call) for call in calls]
        try:
            is_recorded = await self._ledger.record(*before, *starts, durable=_acts(calls), holds=holds)
        except IntentNotStored:
            acting = [call for call in calls if not call.effect.is_read]
            reads = [call for call in calls if call.effect.is_read]
            answers = [self._finisher.finished(self._left_open(call) or refusals.not_storable(call)) for call in acting]
            starts = [self._started(call) for call in reads]
            is_recorded = await self._ledger.record(*before, *starts, *answers, holds=holds)
            calls = reads if is_recorded else calls
        return calls if is_recorded else await self._start_anew(calls, *before)

    async def _start_anew(self, calls: Sequence[CheckedCall], *before: AnyEvent) -> Sequence[CheckedCall]:
        """Start calls whose decisions hold no longer, each by a new one."""
        assert self._batch is not None
        plan = await self._planner.decide_anew(calls, self._batch, self._finisher)
        if plan.stop is None:
            return await self._start(plan.ready, *before, *plan.events)
        self._done = self._done or plan.stop
        await self._ledger.record(*before, *plan.events)
        await self._leave(plan.ready)
        return ()

    def _waits_below(self, call: CheckedCall) -> bool:
        """Whether a session that carries out a call waited when its run paused: until it records something, nothing has happened."""
        state = self._ledger.state.open.get(call.id)
        return call.tool.resumes and state is not None and state.suspended is not None

    def _started(self, call: CheckedCall) -> ToolStarted | ToolResumed:
        state = self._ledger.state.open.get(call.call.id)
        if state is not None and state.started is not None and (state.suspended is not None or call.tool.resumes):
            effect = Effect.READ if call.tool.resumes else call.effect
            return ToolResumed(call_id=call.id, tool=call.name, key=call.key, effect=effect)
        return self._finisher.started(call, sandbox=self._sandbox)

    async def _carry_out(self, call: CheckedCall) -> None:
        """Carry out a call that is recorded as started, and give back its slot once it has ended."""
        time, siblings = self._batch_time, self._siblings
        try:
            if self._interrupt.stop is not None or (time is not None and time.is_over):
                await self._leave([call])  # that came while the start was being stored
                return
            running = self._attempts.run(call)
            if siblings is not None and siblings.may_cut(call):
                running = siblings.watched(call, asyncio.create_task(running))
            result = await running
        except Suspended as suspended:
            await self._suspend(call, suspended)
            return
        finally:
            self._slots.give_back()
        # What was done to the world is known to have been done, whatever happens next: else a crash would leave it in doubt.
        await self._ledger.record(self._finisher.finished(result), durable=not call.effect.is_read)
        if siblings is not None:
            siblings.finished(call, result)
        if self._done is None and self._conditions.may_end_by_results:
            self._done = self._conditions.ended_by([result])

    async def _suspend(self, call: CheckedCall, suspended: Suspended) -> None:
        event = suspended.event(call_id=call.id, tool=call.name)
        if self._ledger.is_deferring and _is_same_wait(event, self._ledger.state.open.get(call.id)):
            self._ledger.forget(call.id)
            return
        await self._ledger.record(event, durable=True)

    async def _leave(self, calls: Sequence[ToolCall | CheckedCall]) -> None:
        """Answer calls that will not start."""
        results = [self._left_open(call) or self._refusal(call) for call in calls]
        if results:
            await self._ledger.record(*map(self._finisher.finished, results))

    def _refusal(self, call: ToolCall | CheckedCall) -> ToolResult:
        if (stop := self._interrupt.stop) is not None:
            return refusals.run_stopped(call, is_cancel=stop.reason is StopReason.CANCELLED)
        time = self._batch_time
        if self._done is None and time is not None and time.is_over:
            return refusals.batch_time_over(call, time.seconds)
        return refusals.run_ended(call)

    def _left_open(self, call: ToolCall | CheckedCall) -> ToolResult | None:
        """Return the result of a call that had started before and goes no further; None where it never started."""
        state = self._ledger.state.open.get(call.id)
        if state is None or state.suspended is None:  # one that was to continue, and has not been called, still waits
            state = self._suspended.get(call.id)
        if state is not None:
            return abandoned(state)
        return unknown_outcome(call) if call.id in self._in_doubt else None

    async def _wait_until_clear(self, calls: Sequence[CheckedCall]) -> None:
        """Before calls that act: wait for early reads, and for calls that were given up and hold what these need.

        A non-read that was given up keeps its resource until it ends, or the run does.
        """
        if not _acts(calls):
            return
        await self._early.wait_idle()
        while blocking := self._late.blocking(calls):
            logger.info("Waiting for %d abandoned calls before the next one that acts", len(blocking))
            left = None if self._batch_time is None else self._batch_time.left
            if not await self._interrupt.wait_for(blocking[0], left):
                return
            await asyncio.sleep(0)  # let the future's own callback take it off the list

    async def _adopt(self, adopted: Sequence[tuple[CheckedCall, CheckedCall]]) -> None:
        """Wait for calls that started while the response streamed; give theirs to equal calls of a retry."""
        for call, early in adopted:
            is_own = call.id == early.id
            result = await self._early.result_of(early, is_own=is_own)
            if isinstance(result, Suspended):
                await (self._suspend(call, result) if is_own else self._run_group([call]))
            elif not is_own:
                reused = msgspec.structs.replace(result, call_id=call.id)
                await self._ledger.record(self._finisher.finished(reused, reused_from=early.id))


def _asks_still(event: AnyEvent) -> bool:
    """Whether an event only repeats what is known of a call about which a person is asked, whose request is recorded."""
    return isinstance(event, RepeatNoticed) or (isinstance(event, CallDecided) and event.decision == "ask")


def _is_same_wait(event: ToolSuspended, state: CallState | None) -> bool:
    before = None if state is None else state.suspended
    if before is None:
        return False
    asked, asked_before = ([one.approval_id for one in each.asks] for each in (event, before))
    return (event.waits_for, event.due_at, asked) == (before.waits_for, before.due_at, asked_before)


def _acts(calls: Sequence[CheckedCall]) -> bool:
    """Whether any of them may change the world: then its start must survive a power cut."""
    for call in calls:  # noqa: SIM110 - any() calls a generator for each
        if call.effect is not Effect.READ:
            return True
    return False


# --- Actions: decide on what a tool is about to do by itself, by the rules that hold for calls, and record the
# decision.


class Actions:
    """Decides on the actions of one run's tools."""

    def __init__(self, scope: RunScope, checker: Checker) -> None:
        self._ledger = scope.ledger
        self._top = scope.top
        self._checker = checker

    async def decide(self, within: CheckedCall, action: str, arguments: JsonObject, effect: Effect) -> Decision:
        """Return the decision on an action of a call that is under way. It is recorded first, and stored if the action acts.

        Raises:
            ConfigurationError: The action has no name, or its arguments are not a JSON object.
        """
        _check(action, arguments)
        while self._is_open(within):
            if (decision := await self._decided(within, action, arguments, effect)) is not None:
                return decision
        return _ENDED

    async def _decided(
        self, within: CheckedCall, action: str, arguments: JsonObject, effect: Effect
    ) -> Decision | None:
        """Return a decision that is recorded; None where the call has ended meanwhile, or a person has changed the mode."""
        proposed = ToolCall(id=within.id, name=action, arguments=msgspec.json.encode(arguments).decode())
        step = self._ledger.state.step + (within.id in self._ledger.state.early)
        unknown = Tool(name=action, description="", parameters=_ANY, effect=effect, run=_never)
        checked = await self._checker.check(proposed, position=within.position, step=step, otherwise=unknown)
        event = _event(within, checked, action, arguments, step)
        try:
            is_recorded = await self._ledger.record(
                event,
                durable=event.effect is not Effect.READ,
                holds=lambda: self._is_open(within) and event.mode in ("", self._top.mode),
            )
        except IntentNotStored:
            return _NOT_STORED
        return consent.decision_of(event) if is_recorded else None

    def _is_open(self, call: CheckedCall) -> bool:
        """Whether the call has no result yet: nothing is decided for one that has ended, or that the run has left behind."""
        state = self._ledger.state
        known = state.open.get(call.id) or state.early.get(call.id)
        return known is not None and known.result is None


def _event(
    within: CheckedCall, checked: Decided | Refused, action: str, arguments: JsonObject, step: int
) -> ActionDecided:
    if isinstance(checked, Refused):
        decision, digest, effect = _no(checked.rule, checked.result.message or ""), "", Effect.UNSAFE
    elif checked.is_rewritten:  # the tool would not carry out what was decided on
        decision, digest, effect = _REWRITTEN, checked.call.digest, checked.call.effect
    else:
        decision, digest, effect = checked.decision, checked.call.digest, checked.call.effect
    return ActionDecided(
        call_id=within.id,
        step=step,
        tool=within.name,
        action=action,
        arguments=arguments,
        decision=str(decision.kind),
        rule=decision.rule,
        reason=decision.reason,
        effect=effect,
        digest=digest,
        scope=decision.scope,
        by=decision.by,
        mode=decision.mode,
    )


def _check(action: object, arguments: object) -> None:
    if not isinstance(action, str) or not action.isprintable() or not 0 < len(action) <= 256:
        raise ConfigurationError(f"The name of an action must be 1 to 256 printable characters; got {shown(action)}.")
    if not isinstance(arguments, dict):
        raise ConfigurationError(f"The arguments of {action} must be a JSON object; got {shown(arguments)}.")
    if (problem := find_unencodable(arguments)) is not None:
        raise ConfigurationError(f"The arguments of {action} are not JSON: {problem}.")


def _never(arguments: object, ctx: object) -> None:
    raise AssertionError("an action is decided here, and carried out by the tool that asked")


_ANY: JsonObject = {"type": "object"}


def _no(rule: str, reason: str) -> Decision:
    return Decision(kind=DecisionKind.DENY, rule=rule, reason=reason, scope="runtime", by="runtime")


_ENDED = _no("call has ended", "The call that asks has ended.")
_NOT_STORED = _no("journal unavailable", "The journal cannot be written, and nothing is changed without a record.")
_REWRITTEN = _no(
    "arguments changed",
    "A policy or an interceptor changed the arguments of this action. Change the action itself, then ask again.",
)
