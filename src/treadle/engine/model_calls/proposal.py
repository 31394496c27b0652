"""Proposal: obtain one response of the model: stream it, start reads early, try again where that may help.

Executes nothing itself and records everything but the final `model.finished`, which belongs to the commit of the decisions.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from decimal import Decimal
from functools import partial

import msgspec

from treadle.budgets import LimitReached, Meter, Spent
from treadle.engine.interrupts import Interrupt
from treadle.engine.model_calls.answers import MAX_CONTINUATIONS, ignored_choice_stop
from treadle.engine.model_calls.naming import ResponseCalls
from treadle.engine.model_calls.requests import Requests
from treadle.engine.model_calls.texts import encodable, encodable_call, encodable_part
from treadle.engine.model_calls.usage import add_costs, cost_of, estimate, format_cost
from treadle.engine.rules.endings import limit_stop, unstarted_calls_stop
from treadle.engine.rules.retries import model_wait_seconds, retry_after_note
from treadle.engine.spec import AgentSpec
from treadle.engine.tool_calls.batch import Proposal
from treadle.engine.tool_calls.early import EarlyCalls, Offers
from treadle.errors import ContextOverflow, IncompleteStream, ModelError, shown
from treadle.events import DecisionRejected, ModelDelta, ModelFailed, ModelFinished, ModelStarted
from treadle.messages import Finish, Message, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import (
    BoundDriver,
    CallReady,
    Model,
    ModelEnd,
    ModelPart,
    ModelRequest,
    RequestFailed,
    ResponseSetAside,
    TextDelta,
    ThinkingDelta,
    told_counted,
)
from treadle.redaction import shown_error
from treadle.sessions.ledger import Ledger
from treadle.stops import Stop, StopReason

__all__ = ["Proposer"]


class _Response(msgspec.Struct, kw_only=True):
    """What has come of one attempt so far."""

    calls: ResponseCalls
    begun: float
    first_at: float | None = None
    offers: Offers = msgspec.field(default_factory=Offers)
    end: ModelEnd | None = None
    has_emitted: bool = False
    turns: int = 0
    """Responses that it took, those set aside for a better wording included."""
    usage: Usage = Usage()
    """What those set aside for a better wording used."""
    cost: Decimal | None = Decimal(0)
    streamed: list[Part] = msgspec.field(default_factory=list)
    """What the server has sent of the response that is under way."""
    counted: Usage | None = None
    """What the server had counted when we cut it off."""
    stop: Stop | None = None
    """The limit that forbids the driver's next request."""


class Proposer:
    """Asks the model on behalf of one run."""

    def __init__(
        self,
        about: AgentSpec,
        *,
        ledger: Ledger,
        driver: BoundDriver,
        model: Model,
        requests: Requests,
        early: EarlyCalls,
        interrupt: Interrupt,
        meter: Meter,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._meter = meter
        self._refused_as = frozenset(about.guards.finish_reasons)
        self._model = model
        self._requests = requests
        self._early = early
        self._interrupt = interrupt
        self._allowed = meter.budget.max_retries_per_model_call

    async def propose(self, *, closing: bool, room: int) -> Proposal | Stop:
        """Return the model's whole response, or why there is none.

        Args:
            closing: Whether this is the request after a limit, whose response may call nothing.
            room: How many of its calls may start before the response is whole.
        """
        request = await self._requests.make(closing=closing)
        step = self._ledger.state.step + 1
        attempt = 0
        while True:
            attempt += 1
            await self._ledger.record(self._started(request, step=step, attempt=attempt, closing=closing))
            calls = ResponseCalls(self._ledger.state.call_ids, step)
            response = _Response(calls=calls, begun=self._ledger.clock.monotonic())
            self._early.listen(0 if closing else room, tool_choice=request.tool_choice)
            error = await self._attempt(request, response, step=step, attempt=attempt)
            if response.stop is not None:
                return response.stop
            if error is None and self._interrupt.stop is None:
                return self._proposal(request, response, step=step, attempt=attempt, closing=closing)
            if (stop := await self._failed(error, request, response, step, attempt)) is not None:
                return stop

    def _started(self, request: ModelRequest, *, step: int, attempt: int, closing: bool) -> ModelStarted:
        return ModelStarted(
            step=step,
            attempt=attempt,
            model=self._model.name,
            tools=tuple(spec.name for spec in request.tools),
            tool_choice=request.tool_choice,
            messages=len(request.messages),
            closing=closing,
        )

    async def _attempt(
        self, request: ModelRequest, response: _Response, *, step: int, attempt: int
    ) -> ModelError | None:
        """Receive one response; return what failed. An interrupt ends it without an error."""
        try:
            with self._interrupt.cancel_scope():
                await self._receive(request, response, step, attempt)
        except ModelError as error:
            return error
        if response.end is None and response.stop is None and self._interrupt.stop is None:
            return IncompleteStream("The driver ended its response without a terminal part.")
        return self._broken_off(response)

    def _broken_off(self, response: _Response) -> ModelError | None:
        """Return why a response that has its end is not whole after all; None where it is."""
        end = response.end
        if end is None or response.stop is not None or not end.is_broken_off or self._stop_after(end) is not None:
            return None
        word = encodable(end.finish_reason or "")
        error = IncompleteStream(
            f"The model's response ended with the finish reason {shown(word)}, which is not a completion."
        )
        error.usage, error.price = end.usage, end.price
        return error

    async def _receive(self, request: ModelRequest, response: _Response, step: int, attempt: int) -> None:
        stream = self._driver.propose(request)
        try:
            async for part in stream:
                match part:
                    case TextDelta() | ThinkingDelta():
                        if self._say(part, response, step):
                            await asyncio.sleep(0)  # who listens has the first word before we look further
                    case ModelEnd():
                        response.offers.forget()
                        response.end = part
                        response.turns += 1
                        await self._tell_failure(part, step)
                    case ResponseSetAside():
                        response.streamed.clear()
                        await self._set_aside(part, request, response, step)
                        if response.stop is not None or response.end is not None:
                            break
                    case RequestFailed(error=error):
                        await self._tell_lost_request(error, step, attempt)
                    case CallReady():
                        self._ready(part.call, response, step, attempt)
        except asyncio.CancelledError as cut:
            response.counted = told_counted(cut)
            raise
        finally:
            await response.offers.close(is_whole=response.end is not None)
            await _close(stream)

    async def _set_aside(self, part: ResponseSetAside, request: ModelRequest, response: _Response, step: int) -> None:
        """Count a response that is not the step's own message, before the driver may ask again."""
        parts = tuple(map(encodable_part, part.parts))
        usage = part.usage or estimate(request, parts)
        cost = cost_of(self._model.price, usage)
        if part.reason == "reworded":
            response.turns, response.usage = response.turns + 1, response.usage + usage
            response.cost = add_costs(response.cost, cost)
        else:
            rejected = DecisionRejected(
                step=step,
                reason=part.reason,
                text=_text(parts),
                attempt=part.attempt,
                message=encodable(part.message),
                usage=usage,
                cost=format_cost(cost),
            )
            await self._ledger.record(rejected)
        if (reached := self._meter.reached(self._spent_with(response))) is not None:
            response.end = part.fallback
            response.stop = None if part.fallback is not None else limit_stop(reached)

    def _spent_with(self, response: _Response) -> Spent:
        spent = self._spent
        return msgspec.structs.replace(
            spent,
            model_turns=spent.model_turns + response.turns,
            usage=spent.usage + response.usage,
            cost=add_costs(spent.cost, response.cost),
        )

    async def _tell_failure(self, end: ModelEnd, step: int) -> None:
        if (failure := end.failure) is not None:
            rejected = DecisionRejected(
                step=step,
                reason=failure.reason,
                text=encodable(_text(end.parts)),
                attempt=failure.attempts,
                message=encodable(failure.message),
            )
            await self._ledger.record(rejected)

    async def _tell_lost_request(self, error: ModelError, step: int, attempt: int) -> None:
        """Record a request that failed and that the step goes on without. What it used is in the step's own response."""
        failed = ModelFailed(
            step=step,
            error=type(error).__name__,
            message=encodable(shown_error(error)),
            attempt=attempt,
            status=error.status,
            is_aside=True,
        )
        await self._ledger.record(failed)

    def _say(self, part: TextDelta | ThinkingDelta, response: _Response, step: int) -> bool:
        """Tell a piece of what the model says. Return whether it is the first that somebody hears."""
        words = encodable(part.text)
        is_first = response.first_at is None
        if type(part) is TextDelta:
            response.streamed.append(Text(words))
            self._delta(response, ModelDelta(step=step, text=words))
        else:
            response.streamed.append(Thinking(text=words))
            self._delta(response, ModelDelta(step=step, thinking=words))
        return is_first and bool(self._ledger.subscribers)

    def _delta(self, response: _Response, delta: ModelDelta) -> None:
        if response.first_at is None:
            response.first_at = self._ledger.clock.monotonic()
        response.has_emitted = True
        self._ledger.publish(delta)

    def _ready(self, call: ToolCall, response: _Response, step: int, attempt: int) -> None:
        position = response.calls.early_count
        call = encodable_call(call)
        response.streamed.append(msgspec.structs.replace(call, id=""))
        named = response.calls.ready(call)
        if named is None:
            return
        self._delta(response, ModelDelta(step=step, call=named))
        if position < self._early.room:
            response.offers.put(partial(self._early.offer, named, position=position, step=step, attempt=attempt))

    # --- a whole response

    def _proposal(
        self, request: ModelRequest, response: _Response, *, step: int, attempt: int, closing: bool
    ) -> Proposal:
        end = response.end
        assert end is not None
        now = self._ledger.clock.monotonic()
        collected = response.calls.collect(
            map(encodable_part, end.parts),
            cut=end.cut_calls,
            unnamed=end.unnamed_calls,
            is_retold=end.is_retold,
        )
        parts = collected.parts
        usage = end.usage or estimate(request, parts)
        cost = add_costs(response.cost, cost_of(end.price or self._model.price, usage))
        finished = ModelFinished(
            step=step,
            message=Message(role="assistant", parts=parts, origin=end.origin or self._model.name),
            finish=end.finish,
            usage=response.usage + usage,
            cost=format_cost(cost),
            attempt=attempt,
            closing=closing,
            dropped_text=end.dropped_text,
            turns=response.turns,
            duration_seconds=round(now - response.begun, 6),
            first_token_seconds=None if response.first_at is None else round(response.first_at - response.begun, 6),
        )
        return Proposal(
            finished=finished,
            refusal=_refusal(end, closing=closing),
            cut_calls=collected.cut,
            repeated_calls=collected.repeated,
            failure=end.failure,
            stop=self._stop_after(end)
            or (None if closing else self._stop_of_calls(end, finished, request.tool_choice)),
            tool_choice=request.tool_choice,
        )

    def _stop_after(self, end: ModelEnd) -> Stop | None:
        """Return the stop of a failed decision, or of a finish reason that the user has named."""
        if (failure := end.failure) is not None:
            details = {"class": failure.code, "attempts": failure.attempts}
            message = encodable(failure.message)
            return Stop(reason=StopReason.INVALID_CALL_LIMIT, message=message, details=details)
        if end.finish is Finish.REFUSED and end.message:
            return Stop(reason=StopReason.REFUSED, message=encodable(end.message))
        word = next((word for word in (end.finish_reason, end.finish.value) if word in self._refused_as), None)
        if word is None:
            return None
        message = f"The model's response ended with {word!r}, which was to end the run."
        return Stop(reason=StopReason.REFUSED, message=message, details={"finish_reason": word})

    def _stop_of_calls(self, end: ModelEnd, finished: ModelFinished, tool_choice: str) -> Stop | None:
        """Return the stop of a response none of whose calls may start, where asking again leads nowhere."""
        run = self._ledger.state.run
        if run is None or not finished.message.calls:
            return None
        if (stop := ignored_choice_stop(finished, self._ledger.state.messages, tool_choice)) is not None:
            return stop
        return unstarted_calls_stop(end.finish, cut_before=run.cut_in_calls, allowed=MAX_CONTINUATIONS)

    # --- a failed one

    async def _failed(
        self, error: ModelError | None, request: ModelRequest, response: _Response, step: int, attempt: int
    ) -> Stop | None:
        """Record the failed attempt and wait. Return why there will be no other, or None to try again."""
        usage, cost = self._used(error, request, response)
        reached = (
            None
            if usage is None
            else self._meter.exhausted(self._spent.plus(usage, format_cost(cost), turns=0, calls=0))
        )
        is_allowed = self._allowed is None or attempt <= self._allowed
        wait = None
        if error is not None and error.may_retry and is_allowed and reached is None:
            chance = self._ledger.randomness.random()
            wait = model_wait_seconds(error, attempt, chance, self._interrupt.seconds_left)
        failed = ModelFailed(
            step=step,
            error="Interrupted" if error is None else type(error).__name__,
            message=self._interrupted if error is None else encodable(shown_error(error)),
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
        return self._stop_for(error, attempt, is_used_up=error.may_retry and not is_allowed)

    def _used(
        self, error: ModelError | None, request: ModelRequest, response: _Response
    ) -> tuple[Usage | None, Decimal | None]:
        """Return what a failed attempt has used and what it costs; None for what nobody knows.

        A response that broke off counts what its server had counted by then, and at least what was received of it, by our
        estimate. A request that got no response at all counts nothing.
        """
        has_begun = response.has_emitted or isinstance(error, IncompleteStream)
        told = response.counted if error is None else error.usage
        if told is None and not has_begun:
            return (response.usage, response.cost) if response.turns else (None, None)
        ours = estimate(request, _joined(response.streamed))
        usage = ours if told is None else told
        if usage.output_tokens < ours.output_tokens and response.streamed:  # counted before the model spoke
            usage = msgspec.structs.replace(usage, output_tokens=ours.output_tokens, estimated=True)
        price = self._model.price if error is None or error.price is None else error.price
        return response.usage + usage, add_costs(response.cost, cost_of(price, usage))

    @property
    def _interrupted(self) -> str:
        return self._interrupt.stop.message if self._interrupt.stop is not None else ""

    @property
    def _spent(self) -> Spent:
        run = self._ledger.state.run
        return Spent() if run is None else run.spent

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


async def _close(stream: AsyncIterator[ModelPart]) -> None:
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


def _refusal(end: ModelEnd, *, closing: bool) -> str | None:
    if closing:
        return "Not executed: the run is at its limit and calling tools is over."
    match end.finish:
        case Finish.LENGTH:
            return "Not executed: the response was cut off by its output limit. Issue the calls again, fewer at a time."
        case Finish.REFUSED:
            return "Not executed: the response was ended by the provider's content filter."
        case _:
            return None


def _joined(parts: list[Part]) -> list[Part]:
    """Return what was streamed with its pieces put together: an estimate counts what wraps each part too."""
    said = "".join(part.text for part in parts if isinstance(part, Text | Thinking))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return [*([Text(said)] if said else []), *calls]


def _text(parts: tuple[Part, ...]) -> str:
    return Message(role="assistant", parts=parts).text
