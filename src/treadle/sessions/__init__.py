"""Sessions: what is recorded of a conversation, and what people do to it between its runs."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.sessions.explain import Explanation as Explanation
    from treadle.sessions.session import Session as Session
    from treadle.sessions.spending import BudgetLeft as BudgetLeft
    from treadle.sessions.spending import budgets_left as budgets_left

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "explain": "Explanation",
        "session": "Session",
        "spending": "BudgetLeft budgets_left",
    },
)
