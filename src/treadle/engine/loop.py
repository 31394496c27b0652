"""The loop: steer, propose, record, execute, record; until an answer, a limit, a person or a fault ends it.

Knows no provider, no store and no screen. A feature enters through its own room, not through here; what may refuse a call
belongs to planning, what may end a run to the Meter or to a result's status.
"""

import sys
from typing import Literal

import msgspec

from treadle.engine.model_calls.proposal import Proposer
from treadle.engine.model_calls.requests import Answers
from treadle.engine.rules.endings import (
    cancelled_stop,
    ended_event,
    is_turn_or_call_limit,
    limit_notice,
    limit_stop,
    not_closed,
    waiting_stop,
)
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls.calls import Batch, Proposal
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.engine.tool_calls.execution import Execution
from treadle.events import AnyEvent, BudgetReached, MessageAdded, ModelFinished
from treadle.messages import user_message
from treadle.sessions.inbox import Inbox
from treadle.state import CallState, RunState
from treadle.stops import Status, Stop, StopReason, merged

__all__ = ["Loop"]


class Loop:
    """One run, from its first request (or from where it stopped) to its Stop."""

    def __init__(
        self,
        scope: RunScope,
        *,
        inbox: Inbox,
        proposer: Proposer,
        execution: Execution,
        early: EarlyCalls,
    ) -> None:
        self._ledger = ledger = scope.ledger
        self._inbox = inbox
        self._proposer = proposer
        self._execution = execution
        self._early = early
        self._hooks = scope.hooks
        self._answers = Answers(output=scope.about.output)
        self._meter = scope.meter
        self._interrupt = scope.interrupt
        self._closes = scope.about.on_limit == "summarize"
        self._begins = True  # whether the run has not asked the model yet
        self._phase: Literal["model", "tool"] = "model"
        self._answer: ModelFinished | None = None
        self._ending: Stop | None = None  # what the next request closes the run for, but for a limit
        assert ledger.state.run is not None
        self._run: RunState = ledger.state.run
        self._wall_before = self._run.spent.wall_seconds

    async def run(self) -> Stop:
        """Continue until the run ends, and record its end. What is to end it early trips the interrupt."""
        stop: Stop | None = None
        while stop is None or await self._goes_on(stop):
            stop = await self._step()
        return await self._stop(stop)

    async def _step(self) -> Stop | None:
        """One model call and the results of all calls that it proposed. A step left half done continues at execute."""
        if (cancel := await self._inbox.read()) is not None:
            self._interrupt.trip(cancelled_stop(cancel.by))
        if self._ledger.state.open:
            return await self._execute(self._ledger.state.unanswered, None)
        ended = self._interrupt.stop or (await self._execution.ended_before() if self._begins else None)
        if ended is not None:
            return ended
        self._begins = False
        look = self._meter.look(self._run.spent)
        reached = look.reached
        if reached is not None and not (is_turn_or_call_limit(reached) and self._may_close):
            return merged(self._ending, *map(limit_stop, self._meter.all_reached(self._run.spent)))
        ending = self._ending or (None if reached is None else limit_stop(reached))
        self._phase = "model"
        if ending is None and self._meter.above is not None:
            self._meter.promise_turn(self._run.spent)
        # The call that arrives at a limit carries the limit's notice, so it is not started before that is known.
        room = 0 if look.is_last else 1_000_000 if look.calls_left is None else look.calls_left - 1
        try:
            proposal = await self._proposer.propose(closing=ending is not None, room=room)
            if isinstance(proposal, Stop):
                return self._at_limit(proposal, ending)
            if not proposal.calls:
                return await self._conclude(proposal, ending)
            states = [CallState(call=call, position=position) for position, call in enumerate(proposal.calls)]
            return self._at_limit(await self._execute(states, proposal), ending)
        finally:
            if not self._early.is_unused:  # calls that start while the model still speaks end with the step
                await self._early.close(sys.exception())

    def _at_limit(self, stop: Stop | None, ending: Stop | None) -> Stop | None:
        """Return why the run ends. What a closing request was made for stays the reason, unless somebody interrupted it."""
        return stop if ending is None or self._interrupt.stop is not None else not_closed(ending, stop)

    async def _conclude(self, proposal: Proposal, ending: Stop | None) -> Stop | None:
        """A response that calls nothing ends the run, unless the model must be told what its answer lacks."""
        verdict = self._answers.judge(proposal, self._ledger.state.messages)
        stop = ending or proposal.stop
        if stop is None and isinstance(verdict, str):
            correction = MessageAdded(message=user_message(verdict), source="runtime")
            await self._ledger.record(proposal.finished, correction)
            return None
        self._answer = proposal.finished  # enters the commit that ends the run: an answer is never half stored
        return stop or (None if isinstance(verdict, str) else verdict)

    async def _execute(self, calls: list[CallState], proposal: Proposal | None) -> Stop | None:
        self._phase = "tool"
        finished = None if proposal is None else proposal.finished
        is_closing = finished is not None and finished.closing
        spent = self._run.spent
        if finished is None:
            after, unstarted = spent, sum([not one.started for one in calls])
        else:
            after, unstarted = spent.plus(finished.usage, finished.cost, turns=1, calls=len(calls)), len(calls)
        look, most = self._meter.look(after), self._meter.budget.max_tool_calls
        reached, exhausted = look.counted, look.exhausted
        if finished is None or self._meter.is_shared:
            allowance = self._meter.promise_calls(spent, unstarted, are_counted=finished is None)
        else:  # nobody else draws from the budget
            allowance = None if most is None else max(most - spent.tool_calls, 0)
        batch = Batch(
            calls=calls,
            step=self._ledger.state.step if finished is None else finished.step,
            proposal=proposal,
            allowance=allowance,
            exhausted=None if exhausted is None else exhausted.budget,
            notice=limit_notice(reached) if reached is not None and self._closes and not is_closing else None,
        )
        stop = await self._execution.execute(batch)
        state = self._ledger.state
        if stop is not None and reached is not None and not is_closing:
            stop = merged(stop, limit_stop(reached))
        if stop is not None and stop.asks_closing and self._may_close:
            self._ending = stop
            return None
        return stop or (waiting_stop(state.pending_approvals(), state.suspended) if state.open else None)

    @property
    def _may_close(self) -> bool:
        """Whether one more request may ask for a summary: once, with means left (seed 002)."""
        run = self._run
        is_due = self._closes and not run.has_closed and run.spent.model_turns > 0
        return is_due and self._meter.look(run.spent).exhausted is None

    # --- the end

    async def _goes_on(self, stop: Stop) -> bool:
        """Whether a hook makes the run continue, with a message behind its answer."""
        goes_on = await self._hooks.at_stop(stop, self._answer)
        self._answer = None if goes_on else self._answer
        return goes_on

    async def _stop(self, stop: Stop) -> Stop:
        """Record the end of the run. Every ending passes here, once; what else was to end it is kept beside it.

        A run that was resumed, and pauses without having done anything, stays as it was.
        """
        if stop.reason.status is Status.PAUSED and self._ledger.is_deferring:
            self._ledger.forget()
            return stop
        if stop in self._interrupt.signals:
            stop = merged(*self._interrupt.signals) or stop
        if stop.reason is StopReason.CANCELLED and stop.phase is None:
            stop = msgspec.structs.replace(stop, phase=self._phase)
        events: list[AnyEvent] = [] if self._answer is None else [self._answer]
        if stop.reached is not None:
            reached, profile = stop.reached, self._run.profile
            events.append(BudgetReached(budget=reached.budget, used=reached.used, limit=reached.limit, profile=profile))
        text = (
            self._run.text
            if self._answer is None
            else self._answers.whole_text(self._answer, self._ledger.state.messages)
        )
        seconds = self._wall_before + self._ledger.clock.monotonic() - self._interrupt.begun
        ended = ended_event(stop, text=text, profile=self._run.profile, wall_seconds=seconds)
        await self._ledger.record(*events, ended, durable=True)
        return stop
