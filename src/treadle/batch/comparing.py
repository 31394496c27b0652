"""Comparing: whether one batch did better than another on the same tasks, by the tests of scipy. Runs nothing."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from treadle.batch.rows import BatchRow
from treadle.batch.summary import money
from treadle.errors import ConfigurationError
from treadle.fields import Documented, checked

__all__ = ["Comparison", "ComparisonSide", "compare"]

_LEVEL = 0.95
_RESAMPLES = 5_000
_SHOWN = 8


class ComparisonSide(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One of two batches."""

    rows: int
    """Its rows."""
    tasks: int
    """Its tasks: a task that was repeated has several rows."""
    rate: float
    """The mean over tasks of how many of their rows have passed; without scores, have completed."""
    low: float
    """The lower end of its interval of 95 %: Wilson's, or a bootstrap over tasks if they were repeated."""
    high: float
    """The upper end."""
    pass_hat: dict[int, float]
    """pass^k by k: how probably k repetitions of a task all pass, as far as each task was repeated."""
    cost: Decimal
    """What it has cost, as far as that is known."""
    cost_a_task: float
    """The same for each row."""
    seconds: float
    """The mean running time of a row."""


class Comparison(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Two batches on the same tasks.

    Example:
        print(compare(read_rows("before.jsonl"), read_rows("after.jsonl")))
    """

    before: ComparisonSide
    """The first batch."""
    after: ComparisonSide
    """The second batch."""
    pairs: int
    """Tasks that both have; only these are compared."""
    difference: float
    """The rate of the second minus that of the first, over the pairs."""
    low: float
    """The lower end of its interval of 95 %, by a paired bootstrap."""
    high: float
    """The upper end."""
    p: float
    """How probable so large a difference is by chance: McNemar's exact test, or a paired permutation test if tasks were repeated."""
    gained: tuple[str, ...]
    """Tasks of which more has passed in the second."""
    lost: tuple[str, ...]
    """Tasks of which less has passed in the second."""
    reworded: tuple[str, ...] = ()
    """Tasks of the pairs whose text differs: perhaps they only share an id, such as the number of a line."""

    def __str__(self) -> str:
        """Return the table that people read."""
        sides = (self.before, self.after)
        ks = sorted(self.before.pass_hat.keys() & self.after.pass_hat.keys() - {1})
        rows = [
            ("", "before", "after"),
            (
                "tasks",
                *(f"{one.tasks:,}" + (f" ({one.rows:,} rows)" if one.rows != one.tasks else "") for one in sides),
            ),
            ("passed", *(f"{one.rate:.1%} ({one.low:.1%} to {one.high:.1%})" for one in sides)),
            *((f"pass^{k}", *(f"{one.pass_hat[k]:.1%}" for one in sides)) for k in ks),
            ("cost", *(money(one.cost) for one in sides)),
            ("cost a task", *(money(one.cost_a_task) for one in sides)),
            ("seconds a task", *(f"{one.seconds:.1f}" for one in sides)),
        ]
        lines = [f"{name:<14} {left:<26} {right}".rstrip() for name, left, right in rows]
        points = f"{100 * self.difference:+.1f} points ({100 * self.low:+.1f} to {100 * self.high:+.1f})"
        lines += [
            "",
            f"difference     {points}, p = {self.p:.2g}, over {self.pairs:,} tasks that both have",
            f"better         {_listed(self.gained)}",
            f"worse          {_listed(self.lost)}",
            *([f"other text     {_listed(self.reworded)}"] if self.reworded else []),
        ]
        return "\n".join(lines)


@checked
def compare(before: Iterable[BatchRow], after: Iterable[BatchRow]) -> Comparison:
    """Compare two batches task by task. Needs scipy: extra `batch`.

    Example:
        print(compare(read_rows("before.jsonl"), read_rows("after.jsonl")))

    Raises:
        ConfigurationError: They have no task in common, or scipy is not installed.
    """
    first, second = list(before), list(after)
    left, right = _by_task(first), _by_task(second)
    both = [task for task in left if task in right]
    if not both:
        raise ConfigurationError(
            "The two batches have no task in common: they are compared task by task, by the ids of the tasks."
        )
    changes = [_mean(right[task]) - _mean(left[task]) for task in both]
    low, high = _bootstrapped(changes)
    return Comparison(
        before=_side(first, left),
        after=_side(second, right),
        pairs=len(both),
        difference=_mean(changes),
        low=low,
        high=high,
        p=_probability(changes),
        gained=tuple(task for task, change in zip(both, changes, strict=True) if change > 0),
        lost=tuple(task for task, change in zip(both, changes, strict=True) if change < 0),
        reworded=_reworded(first, second),
    )


def _by_task(rows: Iterable[BatchRow]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        found[row.id].append(row.status == "completed" if row.passed is None else row.passed)
    return dict(found)


def _reworded(before: Iterable[BatchRow], after: Iterable[BatchRow]) -> tuple[str, ...]:
    texts = {row.id: row.task for row in before}
    return tuple(dict.fromkeys(row.id for row in after if texts.get(row.id, row.task) != row.task))


def _side(rows: Sequence[BatchRow], by_task: Mapping[str, Sequence[bool]]) -> ComparisonSide:
    rates = [_mean(one) for one in by_task.values()]
    is_repeated = len(rows) > len(by_task)
    low, high = _bootstrapped(rates) if is_repeated else _wilson(sum(map(sum, by_task.values())), len(rates))
    cost = sum((row.amount for row in rows), Decimal(0))
    least = min(map(len, by_task.values()))
    return ComparisonSide(
        rows=len(rows),
        tasks=len(by_task),
        rate=_mean(rates),
        low=low,
        high=high,
        pass_hat={k: _mean([_all_pass(one, k) for one in by_task.values()]) for k in range(1, least + 1)},
        cost=cost,
        cost_a_task=float(cost) / len(rows),
        seconds=_mean([row.seconds for row in rows]),
    )


def _all_pass(passed: Sequence[bool], k: int) -> float:
    """Return how probably k of these, drawn without putting back, have all passed."""
    return math.comb(sum(passed), k) / math.comb(len(passed), k)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _listed(tasks: Sequence[str]) -> str:
    shown = ", ".join(tasks[:_SHOWN]) + (", ..." if len(tasks) > _SHOWN else "")
    return f"{len(tasks):,}" + (f": {shown}" if tasks else "")


# --- What scipy says.


def _stats() -> Any:  # Any: a module without types
    try:
        from scipy import stats  # noqa: PLC0415 - large, and needed here alone
    except ImportError as error:
        raise ConfigurationError(
            "Comparing needs scipy: pip install '.[batch]' in the project's folder, or pip install scipy."
        ) from error
    return stats


def _wilson(passed: int, of: int) -> tuple[float, float]:
    found = _stats().binomtest(passed, of).proportion_ci(_LEVEL, method="wilson")
    return float(found.low), float(found.high)


def _bootstrapped(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a mean, resampled over tasks with a fixed seed: the same rows have the same interval."""
    if len(set(numbers)) < 2:
        return numbers[0], numbers[0]
    found = _stats().bootstrap(
        (numbers,), _mean_of, n_resamples=_RESAMPLES, confidence_level=_LEVEL, method="percentile", rng=0, batch=100
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _probability(changes: Sequence[float]) -> float:
    moved = [change for change in changes if change]
    if not moved:
        return 1.0
    if set(moved) <= {1.0, -1.0}:  # McNemar's test, exact: of the pairs that differ, half would be better by chance
        return float(_stats().binomtest(sum(change > 0 for change in moved), len(moved)).pvalue)
    found = _stats().permutation_test(
        (moved,), _mean_of, permutation_type="samples", n_resamples=_RESAMPLES, vectorized=True, rng=0, batch=100
    )
    return float(found.pvalue)


def _mean_of(numbers: Any, axis: int = -1) -> Any:  # Any: arrays
    return numbers.mean(axis=axis)
