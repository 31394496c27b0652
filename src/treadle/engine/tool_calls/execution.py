"""Execution: carry out one batch of calls: settle what broke off > plan > schedule > attempt > finish.

Invariant: every call of the batch ends in exactly one `tool.finished`, or waits for a person. Knows no model and no wire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.scheduling import conflicts, group
from treadle.engine.rules.tries import Tries
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.attempts import Attempts
from treadle.engine.tool_calls.conditions import DoneCondition
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.engine.tool_calls.finishing import Finisher
from treadle.engine.tool_calls.invocation import Invoker
from treadle.engine.tool_calls.planning import Batch, Plan, Planner
from treadle.engine.tool_calls.recovery import Recovery
from treadle.engine.tool_calls.slots import Held
from treadle.errors import IntentNotStored
from treadle.events import AnyEvent, ToolResumed, ToolStarted
from treadle.messages import ToolCall
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.sessions.settling import abandoned, may_have_acted, unknown_outcome
from treadle.state import CallState, Suspended
from treadle.stops import Stop, StopReason
from treadle.tools import CheckedCall, ToolResult, business_key

__all__ = ["Batch", "Execution"]

logger = redacted_logger(__name__)


class Execution:
    """Carries out the batches of one run.

    Args:
        condition: The user's own end of the run.
        end_children: Ends the sessions that carry out calls which have a result by now: none outlives its call.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        recovery: Recovery,
        planner: Planner,
        attempts: Attempts,
        invoker: Invoker,
        early: EarlyCalls,
        interrupt: Interrupt,
        tries: Tries,
        condition: DoneCondition,
        result_chars: int | None,
        end_children: Callable[[], Awaitable[None]],
    ) -> None:
        self._end_children = end_children
        self._ledger = ledger
        self._recovery = recovery
        self._planner = planner
        self._attempts = attempts
        self._invoker = invoker
        self._batch_time = invoker.batch_time
        self._early = early
        self._interrupt = interrupt
        self._tries = tries
        self._condition = condition
        self._slots = attempts.slots
        self._result_chars = result_chars
        self._finisher = Finisher(run_id="", step=0, last_id="")
        self._done: Stop | None = None
        self._in_doubt: frozenset[str] = frozenset()
        self._suspended: dict[str, CallState] = {}
        self._looks_back = True

    async def ended_before(self) -> Stop | None:
        """Return the end that the last batch had brought about where its process died before it could record that end.

        Asked before each request; only the first one of a resumed run, if no batch went before it, can find something.
        """
        state, looks_back = self._ledger.state, self._looks_back
        self._looks_back = False
        if not looks_back or not state.messages or state.messages[-1].role != "tool":
            return None
        return (
            self._condition.ended_by([call.result for call in state.answered])
            or await self._condition.stop()
            or self._interrupt.stop
        )

    async def execute(self, batch: Batch) -> Stop | None:
        """Give every call of the batch its result, but those that wait for a person. Return why the run must end, if so."""
        self._looks_back = False
        self._done = self._condition.ended_by([call.result for call in self._ledger.state.open.values()])
        self._in_doubt = frozenset(state.call.id for state in batch.calls if may_have_acted(state))
        self._suspended = {
            state.call.id: msgspec.structs.replace(state) for state in batch.calls if state.suspended is not None
        }
        self._finisher = Finisher(
            run_id=self._ledger.run_id,
            step=batch.step,
            last_id=batch.calls[-1].call.id,
            notice=batch.notice,
            result_chars=self._result_chars,
        )
        batch = await self._recovery.settle(batch, self._finisher)
        plan = await self._planner.plan(batch, self._finisher)
        await self._carry_out_plan(batch, plan)
        self._batch_time.end()
        stop = self._interrupt.stop or plan.stop or self._done or await self._concluded(batch)
        if stop is not None:  # nobody is asked any more: what waited for a person ends with the run
            await self._leave([state.call for state in self._ledger.state.unanswered])
        await self._end_children()
        return stop

    async def _carry_out_plan(self, batch: Batch, plan: Plan) -> None:
        await self._early.drop(but=[early.id for _, early in plan.adopted])
        if plan.ready:
            self._batch_time.begin()
        before: list[AnyEvent] = [*([] if batch.finished is None else [batch.finished]), *plan.events]
        groups = group(plan.ready)
        if groups and self._may_start(groups[0]):
            await self._run_group(groups.pop(0), *before)
        else:
            await self._ledger.record(*before)
        for calls in groups:
            await self._wait_until_clear(calls)
            if self._has_ended:
                await self._leave([call.call for call in calls])
            else:
                await self._run_group(calls)
        await self._adopt(plan.adopted)

    # --- groups

    @property
    def _has_ended(self) -> bool:
        return self._interrupt.stop is not None or self._done is not None or self._batch_time.is_over

    def _may_start(self, calls: Sequence[CheckedCall]) -> bool:
        """Whether a group may start at once, in the commit of its decisions."""
        return not self._has_ended and (not _acts(calls) or (self._early.is_idle and not self._blocking(calls)))

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
                        tasks.create_task(self._carry_out(call, held.hand_on()))
                    for call in waiting:
                        tasks.create_task(self._queue(call))
            except BaseExceptionGroup as raised:
                # Only the journal can fail in there: a tool's own failure is a result.
                raise raised.exceptions[0] from None

    async def _queue(self, call: CheckedCall) -> None:
        """Wait for a slot; then start, unless the run has ended meanwhile."""
        with await self._slots.wait() as slot:
            if self._has_ended:
                await self._leave([call.call])
            elif await self._start([call], slot):
                await self._carry_out(call, slot)

    async def _start(self, calls: Sequence[CheckedCall], held: Held, *before: AnyEvent) -> Sequence[CheckedCall]:
        """Record, after what comes before it, that calls which hold a slot start. Return those that do, and give back the other slots.

        Where the store cannot keep it, calls that act are answered instead of started: a crash would leave them unknown.
        """
        if asked := self._planner.asked_since(calls):
            calls = [call for call in calls if call.id not in asked]
            before = (*before, *(event for events in asked.values() for event in events))
        try:
            await self._ledger.record(*before, *(self._started(call) for call in calls), durable=_acts(calls))
        except IntentNotStored:
            acting = [call for call in calls if not call.effect.is_read]
            reads = [call for call in calls if call.effect.is_read]
            answers = [self._finisher.finished(call.call, refusals.not_storable(call)) for call in acting]
            await self._ledger.record(*before, *(self._started(call) for call in reads), *answers)
            calls = reads
        held.keep(len(calls))
        return calls

    def _started(self, call: CheckedCall) -> ToolStarted | ToolResumed:
        state = self._ledger.state.open.get(call.id)
        if state is not None and state.started is not None and (state.suspended is not None or call.tool.resumes):
            return ToolResumed(call_id=call.id, tool=call.name, key=call.key)
        return ToolStarted(
            call_id=call.id,
            tool=call.name,
            key=call.key,
            execution_id=self._finisher.execution_of(call.id),
            position=call.position,
            effect=call.effect,
            digest=call.digest,
            business_key="" if call.effect.is_read else business_key(call.tool, call.arguments) or "",
            timeout=None if call.effect.is_read else call.tool.timeout,
        )

    async def _carry_out(self, call: CheckedCall, slot: Held) -> None:
        """Carry out a call that is recorded as started, and give back its slot once it has ended."""
        with slot:
            if self._interrupt.stop is not None or self._batch_time.is_over:  # it came while the start was being stored
                await self._leave([call.call])
                return
            try:
                result = await self._attempts.run(call)
            except Suspended as suspended:
                event = suspended.event(call_id=call.id, tool=call.name, step=self._finisher.step)
                await self._ledger.record(event, durable=True)
                return
        # What was done to the world is known to have been done, whatever happens next: else a crash would leave it in doubt.
        await self._ledger.record(self._finisher.finished(call.call, result), durable=not call.effect.is_read)
        if self._done is None:
            self._done = self._condition.ended_by([result])

    async def _leave(self, calls: Sequence[ToolCall]) -> None:
        """Answer calls that will not start."""
        results = [self._left_open(call) or self._refusal(call) for call in calls]
        if results:
            pairs = zip(calls, results, strict=True)
            await self._ledger.record(*(self._finisher.finished(call, result) for call, result in pairs))

    def _refusal(self, call: ToolCall) -> ToolResult:
        if (stop := self._interrupt.stop) is not None:
            return refusals.run_stopped(call, is_cancel=stop.reason is StopReason.CANCELLED)
        if self._done is None and self._batch_time.is_over:
            return refusals.batch_time_over(call, self._batch_time.seconds)
        return refusals.run_ended(call)

    def _left_open(self, call: ToolCall) -> ToolResult | None:
        """Return the result of a call that had started before and goes no further; None where it never started."""
        state = self._ledger.state.open.get(call.id)
        if state is None or state.suspended is None:  # one that was to go on, and has not been called, still waits
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
        while blocking := self._blocking(calls):
            logger.info("Waiting for %d abandoned calls before the next one that acts", len(blocking))
            if not await self._interrupt.wait_for(blocking[0], self._batch_time.left):
                return
            await asyncio.sleep(0)  # let the future's own callback take it off the list

    def _blocking(self, calls: Sequence[CheckedCall]) -> "list[asyncio.Future[Any]]":
        acting = [call for call in calls if not call.effect.is_read]
        loop = asyncio.get_running_loop()  # a session may outlive a loop, whose futures nobody completes any more
        held = [
            (future, call)
            for future, call in self._invoker.abandoned.items()
            if not call.effect.is_read and future.get_loop() is loop
        ]
        return [future for future, holder in held if any(conflicts(call, holder) for call in acting)]

    async def _adopt(self, adopted: Sequence[tuple[ToolCall, CheckedCall]]) -> None:
        """Wait for calls that started while the response streamed; give theirs to equal calls of a retry."""
        for call, early in adopted:
            result = await self._early.result_of(early)
            if call.id != early.id:
                reused = msgspec.structs.replace(result, call_id=call.id)
                await self._ledger.record(self._finisher.finished(call, reused, reused_from=early.id))

    async def _concluded(self, batch: Batch) -> Stop | None:
        """Return the end of a run that is done by its user's own condition, or that a guard stops."""
        guarded = self._guarded()
        if batch.finished is not None and batch.finished.closing:
            return guarded
        return await self._condition.stop() or self._interrupt.stop or guarded

    def _guarded(self) -> Stop | None:
        """Count the finished batch as a try. Return the stop of a guard that it has tripped."""
        if self._ledger.state.has_open_calls:
            return None
        self._tries.add(self._ledger.state.answered)
        return self._tries.stop()


def _acts(calls: Sequence[CheckedCall]) -> bool:
    """Whether any of them may change the world: then its start must survive a power cut."""
    return not all(call.effect.is_read for call in calls)
