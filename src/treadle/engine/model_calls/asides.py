"""Asides: what the model is asked beside the run's own steps: a summary, a check. Recorded under an act, charged to the run.

Such a request offers no tools, and its answer is not a message of the session.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal

import msgspec

from treadle.budgets import Spent
from treadle.engine.interrupts import Interrupt
from treadle.engine.model_calls.purse import Purse
from treadle.engine.model_calls.texts import encodable, encodable_part
from treadle.engine.model_calls.usage import cost_of, estimate, format_cost, whole_usage
from treadle.engine.rules.retries import model_wait_seconds
from treadle.engine.traces import show_request
from treadle.errors import BudgetUsedUp, IncompleteStream, ModelError, ModelRejected, ModelUnavailable
from treadle.events import ModelFailed, ModelFinished, ModelStarted
from treadle.messages import Finish, Message, Usage
from treadle.ports import Model, ModelEnd, ModelRequest, SessionView, asked_model
from treadle.redaction import shown_error
from treadle.sessions.ledger import Ledger
from treadle.sessions.views import ReadOnlyView

__all__ = ["Aside", "Asides", "CheckView"]

_CUT_OFF = "[The answer was cut off here: it reached the output limit.]"


class Asides:
    """Asks the model of one run beside its steps."""

    def __init__(
        self, *, ledger: Ledger, model: Model, purse: Purse, interrupt: Interrupt, retries: int | None
    ) -> None:
        self.ledger = ledger
        self.model = model
        self.purse = purse
        self.interrupt = interrupt
        self.retries = retries

    def begin(self, kind: str, *, step: int) -> "Aside":
        """Begin an act, named by its kind and the event that it follows: unique in the session."""
        return Aside(self, f"{kind}:{self.ledger.state.head + 1}", step)


class Aside:
    """One act: its requests one after the other, and what they have used together."""

    def __init__(self, asides: Asides, act: str, step: int) -> None:
        self.act = act
        self.spent = Spent()
        """What its requests have used; a cost of None where nobody knows."""
        self._asides = asides
        self._step = step
        self.ledger = asides.ledger
        self._order = asyncio.Lock()

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask without tools, and return the model's words. Tried again where that may help.

        An answer that the output limit cuts off is asked for again, with a higher limit where the vendor has one, and is marked
        as cut off where it is so again.

        Raises:
            ModelError: It failed, or the model refused to answer.
            BudgetUsedUp: The run's budget leaves no room for it.
        """
        model = self._asides.model
        request = ModelRequest(
            messages=tuple(messages),
            instructions=instructions,
            tool_choice="none",
            session_id=self._asides.ledger.state.id,
        )
        attempt = 0
        async with self._order:
            while True:
                attempt += 1
                if (stop := self._asides.interrupt.stop) is not None:
                    raise ModelUnavailable(f"The run ends: {stop.message}")
                if (reached := await self._asides.purse.take(request, model.price)) is not None:
                    raise BudgetUsedUp(f"The budget {reached.budget} is used up: {reached.used} of {reached.limit}.")
                try:
                    end = await self._received(request, attempt)
                except ModelError as error:
                    if (wait := await self._failed(error, request, attempt)) is None:
                        raise
                    await self._asides.interrupt.sleep(wait)
                    continue
                words = await self._finished(end, request, attempt)
                if end.finish is not Finish.LENGTH or request.raise_output_limit:
                    return _whole(words, end)
                request = msgspec.structs.replace(request, raise_output_limit=True)

    async def _received(self, request: ModelRequest, attempt: int) -> ModelEnd:
        asides = self._asides
        started = ModelStarted(
            step=self._step,
            act=self.act,
            attempt=attempt,
            model=asked_model(asides.model).name,
            tool_choice="none",
            messages=len(request.messages),
        )
        await asides.ledger.record(started)
        show_request(asides.ledger, self.act, request, asides.model)
        end: ModelEnd | None = None
        stream = asides.model.stream(request)
        try:
            with asides.interrupt.cancel_scope():
                async for part in stream:
                    end = part if isinstance(part, ModelEnd) else end
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if end is None or end.is_broken_off:
            raise IncompleteStream("The response ended without its terminal part.")
        return end

    async def _failed(self, error: ModelError, request: ModelRequest, attempt: int) -> float | None:
        """Record a failed attempt; return how long to wait before the next, or None for no other."""
        asides = self._asides
        wait = None
        is_allowed = asides.retries is None or attempt <= asides.retries
        if error.may_retry and is_allowed and asides.interrupt.stop is None:
            wait = model_wait_seconds(error, attempt, asides.ledger.randomness.random(), asides.interrupt.seconds_left)
        usage = estimate(request, ()) if error.usage is None and isinstance(error, IncompleteStream) else error.usage
        cost = None if usage is None else cost_of(error.price or asides.model.price, usage)
        self._charge(usage, cost)
        failed = ModelFailed(
            step=self._step,
            act=self.act,
            error=type(error).__name__,
            message=encodable(shown_error(error)),
            attempt=attempt,
            status=error.status,
            retry_in_seconds=wait,
            usage=usage,
            cost=format_cost(cost),
        )
        await asides.ledger.record(failed)
        return wait

    async def _finished(self, end: ModelEnd, request: ModelRequest, attempt: int) -> str:
        asides = self._asides
        parts = tuple(map(encodable_part, end.parts))
        usage = whole_usage(end.usage, request, parts)
        cost = cost_of(end.price or asides.model.price, usage)
        self._charge(usage, cost)
        message = Message(role="assistant", parts=parts, origin=end.origin or asides.model.name)
        finished = ModelFinished(
            step=self._step,
            act=self.act,
            message=message,
            finish=end.finish,
            usage=usage,
            cost=format_cost(cost),
            attempt=attempt,
            turns=0,
            response_id=encodable(end.response_id),
            response_model=encodable(end.response_model),
        )
        await asides.ledger.record(finished, durable=True)  # it is paid: after a crash it counts too
        return message.text

    def _charge(self, usage: Usage | None, cost: Decimal | None) -> None:
        self._asides.purse.settle(usage, format_cost(cost))
        if usage is not None:
            self.spent = self.spent.plus(usage, format_cost(cost), turns=0, calls=0)


def _whole(words: str, end: ModelEnd) -> str:
    """Return the words of an answer, marked where they are cut off. A refusal is not an answer."""
    if end.finish is Finish.REFUSED:
        raise ModelRejected(f"The model refused to answer: {encodable(end.message or words) or 'it gave no reason'}")
    return f"{words}\n{_CUT_OFF}" if words and end.finish is Finish.LENGTH else words


class CheckView(ReadOnlyView):
    """A session as a check sees it, which may ask the run's model too."""

    def __init__(self, session: SessionView, asides: Asides) -> None:
        super().__init__(session)
        self.__asides = asides

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask without tools, and return the model's words. Recorded under an act of its own, and charged to the run.

        Raises:
            ModelError: It failed.
            BudgetUsedUp: The run's budget leaves no room for it.
        """
        asides = self.__asides
        return await asides.begin("check", step=asides.ledger.state.step).ask(messages, instructions=instructions)
