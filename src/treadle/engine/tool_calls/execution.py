"""Execution: carry out one batch of calls: settle what broke off > plan > schedule > attempt > finish.

Invariant: every call of the batch ends in exactly one `tool.finished`, or waits for a person. Knows no model and no wire.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.scheduling import group
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.attempts import Attempts
from treadle.engine.tool_calls.batch import Batch, Plan
from treadle.engine.tool_calls.conditions import Conditions
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.engine.tool_calls.finishing import Finisher
from treadle.engine.tool_calls.invocation import Held
from treadle.engine.tool_calls.planning import Planner
from treadle.engine.tool_calls.recovery import Recovery
from treadle.engine.tool_calls.siblings import Siblings
from treadle.errors import IntentNotStored
from treadle.events import AnyEvent, CallDecided, RepeatNoticed, ToolResumed, ToolStarted, ToolSuspended
from treadle.messages import ToolCall
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.sessions.settling import abandoned, end_children, may_have_acted, unknown_outcome
from treadle.state import CallState, Suspended
from treadle.stops import Stop, StopReason
from treadle.tools import CheckedCall, Effect, ToolResult

__all__ = ["Execution"]

logger = redacted_logger(__name__)


class Execution:
    """Carries out the batches of one run.

    Args:
        siblings: What the failure of one call means for the others.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        recovery: Recovery,
        planner: Planner,
        attempts: Attempts,
        early: EarlyCalls,
        interrupt: Interrupt,
        conditions: Conditions,
        siblings: Siblings,
    ) -> None:
        self._ledger = ledger
        self._recovery = recovery
        self._planner = planner
        self._attempts = attempts
        self._invoker = attempts.invoker
        self._batch_time = attempts.batch_time
        self._slots = attempts.slots
        self.early = early
        self._interrupt = interrupt
        self._conditions = conditions
        self._result_chars = attempts.result_chars
        self._siblings = siblings
        self._has_siblings = False
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
        if any(state.started is not None for state in batch.calls):
            batch = await self._recovery.settle(batch, self._finisher)
        plan = await self._planner.plan(batch, self._finisher)
        if not self.early.is_unused:
            await self.early.drop(but=[early.id for _, early in plan.adopted])
        await self._run(batch, plan)
        if plan.adopted:
            await self._adopt(plan.adopted)
        while self._may_ask and (answered := await self._planner.approving.answered()):
            rest = msgspec.structs.replace(batch, calls=answered, proposal=None, allowance=None)
            plan = await self._planner.plan(rest, self._finisher)
            await self._run(rest, plan)
        self._batch_time.end()
        self._batch = None  # it would be kept all the time that the next response takes
        stop = await self._conditions.after(batch, self._interrupt.stop, plan.stop, self._done)
        if stop is not None:  # nobody is asked any more: what waited for a person ends with the run
            await self._leave([state.call for state in self._ledger.state.unanswered])
        await end_children(self._ledger)  # nothing that carries out a call outlives it
        return stop

    @property
    def _may_ask(self) -> bool:
        """Whether the run continues, so that an answer to what it asks may still matter. A plan that ends it asks nothing."""
        return self._done is None and self._interrupt.stop is None

    def _begin(self, batch: Batch) -> None:
        # Of a response that was just received, nothing can have a result yet.
        self._done = self._conditions.begin() if batch.proposal is None else None
        self._batch = batch
        self._has_siblings = len(batch.calls) > 1
        if self._has_siblings:
            self._siblings.begin()
        started = [state for state in batch.calls if state.started is not None]
        self._in_doubt = tuple([state.call.id for state in started if may_have_acted(state)])
        self._suspended = {
            state.call.id: msgspec.structs.replace(state) for state in started if state.suspended is not None
        }
        self._finisher = Finisher(
            run_id=self._ledger.run_id,
            step=batch.step,
            last_id=batch.calls[-1].call.id,
            state=self._ledger.state,
            notice=batch.notice,
            result_chars=self._result_chars,
        )

    async def _run(self, batch: Batch, plan: Plan) -> None:
        """Record what was decided, and run the calls that are ready, group after group. The first may start in that very commit."""
        if plan.ready:
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
        refused = {call.id: result for call in calls if (result := self._siblings.refusal(call)) is not None}
        if not refused:
            return calls
        results = [self._left_open(call) or refused[call.id] for call in calls if call.id in refused]
        await self._ledger.record(*map(self._finisher.finished, results))
        return [call for call in calls if call.id not in refused]

    # --- groups

    @property
    def _has_ended(self) -> bool:
        return self._interrupt.stop is not None or self._done is not None or self._batch_time.is_over

    def _may_start(self, calls: Sequence[CheckedCall]) -> bool:
        """Whether a group may start at once, in the commit of its decisions."""
        return not self._has_ended and (
            not _acts(calls) or (self.early.is_idle and not self._invoker.late.blocking(calls))
        )

    async def _run_group(self, calls: Sequence[CheckedCall], *before: AnyEvent) -> None:
        """Record what comes before, and run calls side by side: those that find a slot start in that commit, others in their turn."""
        with await self._slots.take(len(calls)) as held:
            waiting = calls[len(held) :]
            started = await self._start(calls[: len(held)], held, *before)
            if len(started) == 1 and not waiting:
                await self._carry_out(started[0], held)
                return
            try:
                async with asyncio.TaskGroup() as tasks:
                    for call in started:
                        tasks.create_task(self._carry_out(call, held.transfer()))
                    for call in waiting:
                        tasks.create_task(self._queue(call))
            except BaseExceptionGroup as raised:
                # Only the journal can fail in there: a tool's own failure is a result.
                raise raised.exceptions[0] from None

    async def _queue(self, call: CheckedCall) -> None:
        """Wait for a slot; then start, unless the run has ended meanwhile."""
        with await self._slots.wait() as slot:
            if self._has_ended:
                await self._leave([call])
            elif await self._independent([call]) and await self._start([call], slot):
                await self._carry_out(call, slot)

    async def _start(self, calls: Sequence[CheckedCall], held: Held, *before: AnyEvent) -> Sequence[CheckedCall]:
        """Record, after what comes before it, that calls which hold a slot start. Return those that do, and give back the other slots.

        Where the store cannot keep it, calls that act are answered instead of started: a crash would leave them unknown.
        """
        while any(map(self._planner.is_stale, calls)):
            assert self._batch is not None
            plan = await self._planner.decide_anew(calls, self._batch, self._finisher)
            calls, before = plan.ready, (*before, *plan.events)
            if plan.stop is not None:
                self._done = self._done or plan.stop
                await self._ledger.record(*before)
                await self._leave(calls)
                held.keep(0)
                return ()
        if asked := self._planner.asked_since(calls):
            calls = [call for call in calls if call.id not in asked]
            before = (*before, *(event for events in asked.values() for event in events))
        if self._ledger.is_deferring and all(map(self._waits_below, calls)):
            self._ledger.defer(*before, *(self._started(call) for call in calls))
            held.keep(len(calls))
            return calls
        holds, starts = partial(self._may_still_start, calls), [self._started(call) for call in calls]
        try:
            is_recorded = await self._ledger.record(*before, *starts, durable=_acts(calls), holds=holds)
        except IntentNotStored:
            acting = [call for call in calls if not call.effect.is_read]
            reads = [call for call in calls if call.effect.is_read]
            answers = [self._finisher.finished(self._left_open(call) or refusals.not_storable(call)) for call in acting]
            starts = [self._started(call) for call in reads]
            is_recorded = await self._ledger.record(*before, *starts, *answers, holds=holds)
            calls = reads if is_recorded else calls
        if not is_recorded:
            return await self._start(calls, held, *before)
        held.keep(len(calls))
        return calls

    def _waits_below(self, call: CheckedCall) -> bool:
        """Whether a session that carries out a call waited when its run paused: until it records something, nothing has happened."""
        state = self._ledger.state.open.get(call.id)
        return call.tool.resumes and state is not None and state.suspended is not None

    def _may_still_start(self, calls: Sequence[CheckedCall]) -> bool:
        """Whether what was decided on calls still holds: while their start waits to be stored, a change of mode may be stored."""
        return not (any(map(self._planner.is_stale, calls)) or self._planner.asked_since(calls))

    def _started(self, call: CheckedCall) -> ToolStarted | ToolResumed:
        state = self._ledger.state.open.get(call.id)
        if state is not None and state.started is not None and (state.suspended is not None or call.tool.resumes):
            effect = Effect.READ if call.tool.resumes else call.effect
            return ToolResumed(call_id=call.id, tool=call.name, key=call.key, effect=effect)
        return self._finisher.started(call, sandbox=self._invoker.sandbox)

    async def _carry_out(self, call: CheckedCall, slot: Held) -> None:
        """Carry out a call that is recorded as started, and give back its slot once it has ended."""
        with slot:
            if self._interrupt.stop is not None or self._batch_time.is_over:  # it came while the start was being stored
                await self._leave([call])
                return
            try:
                running = self._attempts.run(call)
                is_cut = self._has_siblings and self._siblings.may_cut(call)
                result = await (self._siblings.watched(call, asyncio.create_task(running)) if is_cut else running)
            except Suspended as suspended:
                await self._suspend(call, suspended)
                return
        # What was done to the world is known to have been done, whatever happens next: else a crash would leave it in doubt.
        await self._ledger.record(self._finisher.finished(result), durable=not call.effect.is_read)
        if self._has_siblings:
            self._siblings.finished(call, result)
        if self._done is None:
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
        if self._done is None and self._batch_time.is_over:
            return refusals.batch_time_over(call, self._batch_time.seconds)
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
        await self.early.wait_idle()
        while blocking := self._invoker.late.blocking(calls):
            logger.info("Waiting for %d abandoned calls before the next one that acts", len(blocking))
            if not await self._interrupt.wait_for(blocking[0], self._batch_time.left):
                return
            await asyncio.sleep(0)  # let the future's own callback take it off the list

    async def _adopt(self, adopted: Sequence[tuple[CheckedCall, CheckedCall]]) -> None:
        """Wait for calls that started while the response streamed; give theirs to equal calls of a retry."""
        for call, early in adopted:
            is_own = call.id == early.id
            result = await self.early.result_of(early, is_own=is_own)
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
    return not all(call.effect.is_read for call in calls)
