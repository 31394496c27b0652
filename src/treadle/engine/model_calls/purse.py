"""Purse: what a model call may use. It reserves its estimate before it begins, and gives back what it did not use.

Runs that draw from one budget side by side begin as many calls as fit into what is left; the others wait for what those
return. A run that draws from nobody's waits for nobody. Kept in memory only: what was used is folded from events.
"""

from collections.abc import Callable

from treadle.budgets import Meter, Spent
from treadle.engine.interrupts import Gate, Interrupt
from treadle.engine.model_calls.usage import cost_of, estimate, format_cost
from treadle.messages import Text, Usage
from treadle.ports import ModelRequest, Pricing
from treadle.stops import LimitReached

__all__ = ["Purse"]

_USUAL_ANSWER = Text("x" * 1000)
"""What an answer is taken for before one has come: 250 tokens."""


class Purse:
    """The budget of one run, as its model calls draw from it.

    Args:
        spent: What the run has used by its recorded events.
    """

    def __init__(self, meter: Meter, spent: Callable[[], Spent], interrupt: Interrupt) -> None:
        self.meter = self._meter = meter
        self._spent = spent
        self._interrupt = interrupt
        self._largest_answer = 0

    async def take(self, request: ModelRequest, price: Pricing | None) -> LimitReached | None:
        """Reserve what a request may use, once there is room for it. Return the limit that is reached meanwhile."""
        meter = self._meter
        if not meter.is_shared:
            return meter.exhausted(self._spent())
        usage = estimate(request, (_USUAL_ANSWER,))
        if self._largest_answer:
            usage = Usage(input_tokens=usage.input_tokens, output_tokens=self._largest_answer)
        wanted = Spent().plus(usage, format_cost(cost_of(price, usage)), turns=0, calls=0)
        while self._interrupt.stop is None:
            if (reached := meter.exhausted(self._spent())) is not None:
                return reached
            if meter.has_room(self._spent(), wanted):
                meter.reserve(self._spent().with_child(wanted, Spent()), is_under_way=True)
                return None
            gate = Gate()
            meter.on_return(gate.open)
            await self._interrupt.wait_for(gate.opened)
        return None

    def settle(self, usage: Usage | None, cost: str | None) -> None:
        """Keep only what a call has used, until that is recorded; None for a call that has used nothing that is known."""
        meter = self._meter
        if usage is not None:
            self._largest_answer = max(self._largest_answer, usage.output_tokens)
        if not meter.is_shared:
            return
        meter.reserve(None if usage is None else self._spent().plus(usage, cost, turns=0, calls=0))
