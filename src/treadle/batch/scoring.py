"""Scoring: how good the answer of a task is. Two simple scores; all others are functions of users."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from treadle.batch.rows import BatchRow
from treadle.batch.tasks import BatchTask
from treadle.errors import ConfigurationError, shown
from treadle.fields import checked

__all__ = ["Score", "contains", "exact", "scored"]

Score: TypeAlias = Callable[[BatchTask, BatchRow], float | bool | Awaitable[float | bool | None] | None]
"""Says how good an answer is: a number from 0 to 1, whether it is right, or None for no score. Called for each run that completed."""

_PASSES = 0.5


@checked
def exact(task: BatchTask, row: BatchRow) -> bool | None:
    """Whether the answer is the expected one, apart from white space around it; None if none is expected.

    Example:
        await run_batch(agent, tasks, journal="runs.db", score=exact)
    """
    if task.expected is None:
        return None
    return row.output == task.expected if row.output is not None else row.text.strip() == str(task.expected).strip()


@checked
def contains(task: BatchTask, row: BatchRow) -> bool | None:
    """Whether the answer contains the expected text, in any case; None if none is expected.

    Example:
        await run_batch(agent, tasks, journal="runs.db", score=contains)
    """
    return None if task.expected is None else str(task.expected).strip().casefold() in row.text.casefold()


async def scored(task: BatchTask, row: BatchRow, score: Score) -> BatchRow:
    """Return the row with its score: 0 for a run that did not complete, none yet for one that is paused.

    Raises:
        ConfigurationError: The function returned something else than a score.
        Exception: What the function raised.
    """
    if row.status == "paused":
        return row
    found = score(task, row) if row.status == "completed" else 0.0
    value = await found if inspect.isawaitable(found) else found
    if value is None:
        return row
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigurationError(
            f"A score is a number from 0 to 1, True, False or None; got {shown(value)} for task {task.id!r}."
        )
    return msgspec.structs.replace(row, score=float(value), passed=value >= _PASSES)
