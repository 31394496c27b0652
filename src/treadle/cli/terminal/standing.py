"""Standing: where a conversation stands: model, mode, context, cost and steps, each beside its limit. Draws nothing."""

from decimal import Decimal

import msgspec

from treadle import Budget
from treadle.cli.output.text import one_line

__all__ = ["Standing"]


class Standing(msgspec.Struct, kw_only=True):
    """What the status line tells, most important first."""

    model: str = ""
    mode: str = "ask"
    context_tokens: int = 0
    """Of the last request and its answer."""
    window: int | None = None
    """Of the model; None where nobody knows."""
    cost: Decimal | None = Decimal(0)
    """None for a model without a price."""
    turns: int = 0
    budget: Budget = Budget()

    def parts(self) -> list[str]:
        """Return what is shown, one part for each thing."""
        return [one_line(self.model, 40), self.mode, self._context(), self._cost(), self._steps()]

    def line(self, width: int, *, hint: str = "") -> str:
        """Return one line that fits: of what does not, the last parts are left out, but never model and mode."""
        kept = self.parts()
        while len(kept) > 2 and len(" · ".join([*kept, *([hint] if hint else [])])) > width:
            kept.pop(-2 if len(kept) > 3 else -1)
        line = " · ".join([*kept, *([hint] if hint else [])])
        return line if len(line) <= width else " · ".join(kept)[:width]

    def _context(self) -> str:
        if self.window is None:
            return f"context {_thousands(self.context_tokens)}"
        share = 100 * self.context_tokens / self.window
        return f"context {share:.0f} % of {_thousands(self.window)}"

    def _cost(self) -> str:
        if self.cost is None:
            return "cost unknown"
        limit = self.budget.max_total_cost
        return f"${self.cost:.4f}" + ("" if limit is None else f" of ${Decimal(str(limit)):.2f}")

    def _steps(self) -> str:
        limit = self.budget.max_model_turns
        return f"step {self.turns}" + ("" if limit is None else f" of {limit}")


def _thousands(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.0f}k"
