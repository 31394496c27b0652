"""Proposal: obtain one response of the model: stream it, start reads early, try again where that may help.

Executes nothing itself and records everything but the final `model.finished`, which belongs to the commit of the decisions.
"""

from operator import attrgetter
from typing import Literal

import msgspec

from treadle.context.compilers import Zones
from treadle.engine.model_calls.requests import MAX_CONTINUATIONS, Requests, ignored_choice_stop
from treadle.engine.model_calls.reservations import Reservations, count_tokens, encodable, format_cost
from treadle.engine.model_calls.response import ResponseCollector
from treadle.engine.rules.endings import limit_stop, unstarted_calls_stop
from treadle.engine.rules.failures import model_wait_seconds, retry_after_note
from treadle.engine.scope import RunScope
from treadle.engine.spec import show_request
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.calls import Proposal
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.errors import ContextOverflow, IncompleteStream, ModelError, shown
from treadle.events import MessageAdded, ModelFailed, ModelFinished, ModelStarted
from treadle.messages import Finish, user_message
from treadle.ports import (
    BoundDriver,
    ModelEnd,
    ModelRequest,
    RequestNeed,
)
from treadle.redaction import shown_error
from treadle.stops import LimitReached, Stop, StopReason

__all__ = ["Proposer"]

_NAME_OF = attrgetter("name")
_MAX_OVERFLOWS = 3
"""Requests of one step that are made shorter because the provider refused the one before as too long."""


class Proposer:
    """Asks the model on behalf of one run."""

    def __init__(
        self,
        scope: RunScope,
        *,
        driver: BoundDriver,
        requests: Requests,
        reservations: Reservations,
        early: EarlyCalls,
    ) -> None:
        self._scope = scope
        self._ledger = scope.ledger
        self._driver = driver
        self._meter = meter = scope.meter
        self._refused_as = scope.about.guards.finish_reasons
        self._model = scope.model
        self._requests = requests
        self._zones = Zones()
        self._hooks = scope.hooks
        self._reservations = reservations
        self._early = early
        self._interrupt = scope.interrupt
        self._allowed = meter.budget.max_retries_per_model_call

    async def propose(self, *, closing: bool, room: int) -> Proposal | Stop:
        """Return the model's whole response, or why there is none.

        Args:
            closing: Whether this is the request after a limit, whose response may call nothing.
            room: How many of its calls may start before the response is whole.
        """
        if self._hooks.sees_requests and (denied := await self._hooks.before_request()) is not None:
            return denied
        need = RequestNeed(step=self._ledger.state.step + 1, closing=closing)
        request = await self._requests.make(self._model, need)
        while request is not None:
            if (reached := await self._reservations.take(request, self._model)) is not None:
                return limit_stop(reached)
            await self._ledger.record(self._started(request, need))
            if self._ledger.subscribers:
                show_request(self._ledger, None, request, self._model)
            response = ResponseCollector(request, self._scope, early=self._early, step=need.step, attempt=need.attempt)
            self._early.listen(0 if closing or self._hooks.sees_responses else room, tool_choice=request.tool_choice)
            error: ModelError | None = None
            try:
                with self._interrupt.cancel_scope():
                    await response.receive(self._driver)
            except ModelError as failed:
                error = failed
            if response.stop is not None:
                return response.stop
            if error is None and (response.end is None or response.end.is_broken_off):
                error = self._broken_off(response.end)
            if error is None and self._interrupt.stop is None:
                proposal = self._proposal(response, closing=closing)
                await self._reservations.settle(proposal.finished.usage, proposal.finished.cost)
                return await self._looked_at(proposal) if self._hooks.sees_responses else proposal
            following = await self._following(request, need, error, response)
            if not isinstance(following, tuple):
                return following
            need, request = following
        assert self._interrupt.stop is not None  # nothing else keeps a request from being made
        return self._interrupt.stop

    async def _following(
        self, request: ModelRequest, need: RequestNeed, error: ModelError | None, response: ResponseCollector
    ) -> tuple[RequestNeed, ModelRequest | None] | Proposal | Stop:
        """Return what is asked after a request whose response is not whole, what is kept of that, or why nothing is asked."""
        if (kept := self._interrupted(response, closing=need.closing)) is not None:
            return await self._kept(kept)
        stop = await self._failed(error, response)
        if stop is None:
            need = _again(need, "retry")
            return need, await self._requests.make(self._model, need)
        if isinstance(error, ContextOverflow) and (smaller := await self._smaller(request, need, stop)) is not None:
            return _again(need, "overflow"), smaller
        return self._interrupt.stop or stop

    async def _smaller(self, request: ModelRequest, need: RequestNeed, stop: Stop) -> ModelRequest | None:
        """Return a shorter request after one that was too long; None where there is none, or none may be tried."""
        is_allowed = self._allowed is None or need.attempt <= self._allowed
        if stop.reason is not StopReason.CONTEXT_OVERFLOW or need.overflows >= _MAX_OVERFLOWS or not is_allowed:
            return None
        smaller = await self._requests.make(self._model, _again(need, "overflow"))
        if smaller is None or count_tokens(smaller.messages) >= count_tokens(request.messages):
            return None
        return smaller

    def _started(self, request: ModelRequest, need: RequestNeed) -> ModelStarted:
        state = self._ledger.state
        known = "" if state.run is None else state.run.prefix
        prefix, changed = self._zones.look(request, shortened=len(state.compactions.made), known=known)
        return ModelStarted(
            step=need.step,
            attempt=need.attempt,
            model=request.model or self._model.name,
            tools=tuple(map(_NAME_OF, request.tools)),
            tool_choice=request.tool_choice,
            messages=len(request.messages),
            closing=need.closing,
            prefix=prefix,
            prefix_changed=changed,
        )

    def _broken_off(self, end: ModelEnd | None) -> ModelError | None:
        """Return why a response is not whole; None where it is, or where an interrupt has cut it off."""
        if end is None:
            message = "The driver ended its response without a terminal part."
            return IncompleteStream(message) if self._interrupt.stop is None else None
        if self._stop_after(end) is not None:
            return None
        word = encodable(end.finish_reason or "")
        error = IncompleteStream(
            f"The model's response ended with the finish reason {shown(word)}, which is not a completion."
        )
        error.usage, error.price = end.usage, end.price
        return error

    # --- a whole response

    def _proposal(self, response: ResponseCollector, *, closing: bool) -> Proposal:
        end, tool_choice = response.end, response.request.tool_choice
        assert end is not None
        collected = response.collected(end)
        finished = response.finished(end, collected.parts, closing=closing)
        calls = finished.message.calls
        stop = self._stop_after(end)
        if stop is None and calls and not closing:
            stop = self._stop_of_calls(end, finished, tool_choice)
        return Proposal(
            finished=finished,
            calls=calls,
            refusal=refusals.of_response(end.finish, closing=closing, has_strays=end.has_strays),
            cut_calls=collected.cut,
            repeated_calls=collected.repeated,
            failure=end.failure,
            calls_in_text=end.calls_in_text,
            stop=stop,
            tool_choice=tool_choice,
        )

    async def _looked_at(self, proposal: Proposal) -> Proposal:
        """Let hooks look at a whole response, of which nothing has started: one may keep its calls from starting."""
        denied = await self._hooks.after_response(proposal.finished.message)
        if denied is None:
            return proposal
        reason = f"{denied.by} denied the response{refusals.because(denied)}"
        stop = Stop(reason=StopReason.CANCELLED, message=f"The run stopped for a person: {reason}")
        return msgspec.structs.replace(
            proposal,
            refusal=proposal.refusal or f"Not executed: {reason}",
            stop=proposal.stop or (stop if denied.interrupt else None),
        )

    def _stop_after(self, end: ModelEnd) -> Stop | None:
        """Return the stop of a failed decision, or of a finish reason that the user has named."""
        if (failure := end.failure) is not None:
            details = {"class": failure.code, "attempts": failure.attempts}
            message = encodable(failure.message)
            return Stop(reason=StopReason.INVALID_CALL_LIMIT, message=message, asks_closing=True, details=details)
        if end.finish is Finish.REFUSED and end.message:
            return Stop(reason=StopReason.REFUSED, message=encodable(end.message))
        word = end.finish_reason if end.finish_reason in self._refused_as else end.finish.value
        if word not in self._refused_as:
            return None
        message = f"The model's response ended with {word!r}, which was to end the run."
        return Stop(reason=StopReason.REFUSED, message=message, details={"finish_reason": word})

    def _stop_of_calls(self, end: ModelEnd, finished: ModelFinished, tool_choice: str) -> Stop | None:
        """Return the stop of a response none of whose calls may start, where asking again leads nowhere."""
        run = self._ledger.state.run
        if run is None:
            return None
        if (stop := ignored_choice_stop(finished, self._ledger.state.messages, tool_choice)) is not None:
            return stop
        return unstarted_calls_stop(end.finish, cut_before=run.cut_in_calls, allowed=MAX_CONTINUATIONS)

    # --- one that somebody has interrupted

    def _interrupted(self, response: ResponseCollector, *, closing: bool) -> ModelFinished | None:
        """Return what a response had brought before somebody cancelled the run. One that a limit or a fault cuts off is discarded."""
        stop = self._interrupt.stop
        is_wish = stop is not None and stop.reason is StopReason.CANCELLED
        return response.interrupted(closing=closing) if is_wish else None

    async def _kept(self, finished: ModelFinished) -> Proposal | Stop:
        """Keep what had come: words are recorded with a mark, and calls get their results, which say that the run was stopped."""
        stop = self._interrupt.stop
        assert stop is not None
        await self._reservations.settle(finished.usage, finished.cost)
        if finished.message.calls:
            return Proposal(finished=finished, calls=finished.message.calls, tool_choice="auto")
        mark = f"A note from the runtime: the answer above was interrupted before it was complete. {stop.message}"
        await self._ledger.record(finished, MessageAdded(message=user_message(mark), source="runtime"))
        return stop

    # --- a failed one

    async def _failed(self, error: ModelError | None, response: ResponseCollector) -> Stop | None:
        """Record the failed attempt and wait. Return why there will be no other, or None to try again."""
        step, attempt = response.step, response.attempt
        usage, cost = response.used(error)
        await self._reservations.settle(usage, format_cost(cost))
        reached = None
        if usage is not None:
            reached = self._meter.look(self._meter.spent().plus(usage, format_cost(cost), turns=0, calls=0)).exhausted
        is_allowed = self._allowed is None or attempt <= self._allowed
        wait = None
        if error is not None and error.may_retry and is_allowed and reached is None:
            chance = self._ledger.randomness.random()
            wait = model_wait_seconds(error, attempt, chance, self._interrupt.seconds_left)
        interrupted = "" if self._interrupt.stop is None else self._interrupt.stop.message
        failed = ModelFailed(
            step=step,
            error="Interrupted" if error is None else type(error).__name__,
            message=interrupted if error is None else encodable(shown_error(error)),
            attempt=attempt,
            status=None if error is None else error.status,
            retry_in_seconds=wait,
            usage=usage,
            cost=format_cost(cost),
        )
        await self._ledger.record(failed)
        if response.has_emitted:
            await self._early.discard(attempt=attempt, step=step, reason=failed.message)
        if wait is not None and await self._interrupt.sleep(wait):
            return None
        if error is None or self._interrupt.stop is not None:
            return self._interrupt.stop
        if reached is not None:
            return limit_stop(reached)
        await self._hooks.error(error)
        return self._stop_for(error, attempt, is_used_up=error.may_retry and not is_allowed)

    def _stop_for(self, error: ModelError, attempt: int, *, is_used_up: bool) -> Stop:
        match error:
            case ContextOverflow():
                reason = StopReason.CONTEXT_OVERFLOW
            case IncompleteStream():
                reason = StopReason.INCOMPLETE_STREAM
            case _:
                reason = StopReason.MODEL_ERROR
        reached = None
        if is_used_up and self._allowed is not None:
            reached = LimitReached(budget="max_retries_per_model_call", used=attempt - 1, limit=self._allowed)
        details = {"error": type(error).__name__, "status": error.status, "attempts": attempt}
        return Stop(
            reason=reason,
            message=encodable(shown_error(error)) + retry_after_note(error),
            reached=reached,
            details=details,
        )


def _again(need: RequestNeed, reason: Literal["retry", "overflow"]) -> RequestNeed:
    """Return what the next attempt is made for."""
    overflows = need.overflows + (reason == "overflow")
    return msgspec.structs.replace(need, attempt=need.attempt + 1, reason=reason, overflows=overflows)
