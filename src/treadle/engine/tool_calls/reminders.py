"""Reminders: what the runtime tells the model between two steps, at the end of what it sees: the prefix stays as it is.

Each is recorded, so that a resumed run does not repeat it. Ends no run.
"""

from math import inf

from treadle.budgets import Meter
from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.progress import Progress
from treadle.engine.rules.todos import todos_reminder
from treadle.events import BudgetWarned, MessageAdded
from treadle.messages import user_message
from treadle.sessions.ledger import Ledger
from treadle.stops import LimitReached

__all__ = ["Reminders"]

_NOUNS = {
    "max_model_turns": "responses",
    "max_tool_calls": "tool calls",
    "max_wall_time_seconds": "seconds",
    "max_input_tokens": "input tokens",
    "max_output_tokens": "output tokens",
    "max_total_cost": "of the cost",
}


class Reminders:
    """The reminders of one run.

    Args:
        warn_at: The part of a limit from which on the model is told of it; None for no such reminder.
    """

    def __init__(
        self, *, ledger: Ledger, meter: Meter, interrupt: Interrupt, progress: Progress, warn_at: float | None
    ) -> None:
        self._ledger = ledger
        self._meter = meter
        self._interrupt = interrupt
        self._progress = progress
        self._warn_at = warn_at
        part, limits = warn_at or 1.0, meter.limits
        self._floors = [part * float(limits[name]) if name in limits else inf for name in _NOUNS]
        run = ledger.state.run
        self._seconds_before = 0.0 if run is None else run.spent.wall_seconds

    async def remind(self) -> None:
        """Record what the model is to be told before it is asked again. Nothing, most often."""
        progress, near, state = self._progress, self._near_limits(), self._ledger.state
        stalled = progress.reminder() if progress.is_noteworthy else None
        todos = todos_reminder(state.facts.values, state.shown) if "todos" in state.facts.values else None
        said = [one for one in (stalled, todos) if one is not None]
        if not near and not said:
            return
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
