"""Budgets: the limits of one run, what it has spent, and the meter that compares the two. Values only; reads no clock."""

from treadle.budgets.limits import Budget, Deadline, Guards, Price, budget_from, epoch_seconds
from treadle.budgets.spending import Meter, Spent, plain

__all__ = [
    "Budget",
    "Deadline",
    "Guards",
    "Meter",
    "Price",
    "Spent",
    "budget_from",
    "epoch_seconds",
    "plain",
]
