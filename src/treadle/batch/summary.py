"""Summary: what the rows of a batch come to, as numbers and as a table of text. Reads no file."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from treadle.batch.rows import BatchRow
from treadle.fields import Documented, checked

__all__ = ["BatchSummary", "Tally", "money", "spread", "summarize"]


class Spread(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How numbers are spread."""

    mean: float = 0.0
    """Their mean."""
    median: float = 0.0
    """Half of them are below this, or equal."""
    p95: float = 0.0
    """95 of 100 are below this, or equal."""
    most: float = 0.0
    """The largest."""


class BatchSummary(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a batch came to.

    Example:
        summary = await run_batch(agent, tasks, journal="runs.db", results="results.jsonl")
        print(summary.completed, summary.cost)
    """

    tasks: int = 0
    """Tasks that have a row; each repetition counts."""
    completed: int = 0
    """Rows whose run completed."""
    failed: int = 0
    """Rows whose run did not: stopped, failed, or an error."""
    paused: int = 0
    """Rows whose run waits for a person."""
    scored: int = 0
    """Rows that have a score."""
    passed: int = 0
    """Rows whose score is at least 0.5."""
    cost: Decimal = Decimal(0)
    """What they have cost together; those with an unknown price are not in it."""
    unpriced: int = 0
    """Rows whose cost is unknown."""
    input_tokens: int = 0
    """Tokens that models have read."""
    output_tokens: int = 0
    """Tokens that models have written."""
    tool_calls: int = 0
    """Calls that have a result."""
    reasons: dict[str, int] = {}
    """How many runs have ended for each reason, the most frequent first."""
    tool_failures: dict[str, int] = {}
    """How many calls have failed, by tool and status, the most frequent first."""
    steps: Spread = Spread()
    """Responses of the model, by task."""
    seconds: Spread = Spread()
    """Running time, by task."""
    others: int = 0
    """Rows of tasks that are not in this batch: the results hold them from before."""
    unfinished: int = 0
    """Tasks without a row, or whose row the same command looks at again: the batch was ended before them."""
    ended_by: str = ""
    """Why the batch ended before all tasks had: `total_budget`, `stop` or `error`; empty if all have a row."""

    def __str__(self) -> str:
        """Return the table that people read: a name and its values a line."""
        rows = [
            ("tasks", self._counted()),
            ("completed", _part(self.completed, self.tasks)),
            *([("paused", _part(self.paused, self.tasks))] if self.paused else []),
            *([("passed", _part(self.passed, self.scored))] if self.scored else []),
            ("cost", money(self.cost) + (f", and {self.unpriced:,} without a known price" if self.unpriced else "")),
            ("tokens", f"{self.input_tokens:,} in, {self.output_tokens:,} out"),
            ("steps", f"median {self.steps.median:.0f}, 95 % {self.steps.p95:.0f}, most {self.steps.most:.0f}"),
            ("seconds", f"median {self.seconds.median:.1f}, 95 % {self.seconds.p95:.1f}, most {self.seconds.most:.1f}"),
            ("ended", _listed(self.reasons)),
            *([("tool failures", _listed(self.tool_failures))] if self.tool_failures else []),
        ]
        return "\n".join(f"{name:<14} {value}" for name, value in rows)

    def _counted(self) -> str:
        others = f", {self.others:,} of them of other tasks that these results hold" if self.others else ""
        return f"{self.tasks:,}{others}" + (f", {self.unfinished:,} unfinished" if self.unfinished else "")


class Tally:
    """Adds rows up. Keeps three numbers a row."""

    def __init__(self) -> None:
        self.rows = self.scored = self.passed = self.unpriced = 0
        self.statuses: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.tool_failures: Counter[str] = Counter()
        self.cost = Decimal(0)
        self.tokens = [0, 0]
        self.tool_calls = 0
        self.steps, self.seconds, self.costs = array("l"), array("d"), array("d")

    def add(self, row: BatchRow) -> None:
        """Add one row."""
        self.rows += 1
        self.statuses[row.status] += 1
        self.reasons[row.reason or row.status] += 1
        if row.tool_failures:
            self.tool_failures.update(row.tool_failures)
        self.scored += row.passed is not None
        self.passed += row.passed is True
        self.unpriced += row.cost is None
        self.cost += (amount := row.amount)
        self.tokens[0] += row.input_tokens
        self.tokens[1] += row.output_tokens
        self.tool_calls += row.tool_calls
        self.steps.append(row.steps)
        self.seconds.append(row.seconds)
        self.costs.append(float(amount))

    def summary(self, *, others: int = 0, unfinished: int = 0, ended_by: str = "") -> BatchSummary:
        """Return what the rows come to."""
        completed, paused = self.statuses["completed"], self.statuses["paused"]
        return BatchSummary(
            tasks=self.rows,
            completed=completed,
            paused=paused,
            failed=self.rows - completed - paused,
            scored=self.scored,
            passed=self.passed,
            cost=self.cost,
            unpriced=self.unpriced,
            input_tokens=self.tokens[0],
            output_tokens=self.tokens[1],
            tool_calls=self.tool_calls,
            reasons=dict(self.reasons.most_common()),
            tool_failures=dict(self.tool_failures.most_common()),
            steps=spread(self.steps),
            seconds=spread(self.seconds),
            others=others,
            unfinished=unfinished,
            ended_by=ended_by,
        )


@checked
def summarize(rows: Iterable[BatchRow]) -> BatchSummary:
    """Return what rows come to.

    Example:
        print(summarize(read_rows("results.jsonl")).cost)
    """
    tally = Tally()
    for row in rows:
        tally.add(row)
    return tally.summary()


def spread(numbers: Sequence[float]) -> Spread:
    """Return how numbers are spread; zeros for none."""
    if not numbers:
        return Spread()
    ordered = sorted(numbers)
    return Spread(
        mean=sum(ordered) / len(ordered),
        median=ordered[(len(ordered) - 1) // 2],
        p95=ordered[-(-len(ordered) * 95 // 100) - 1],
        most=ordered[-1],
    )


def money(amount: Decimal | float) -> str:
    """Return dollars with as many digits as say something: cents, and more for small amounts."""
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}" if amount >= 0.01 else f"${amount:.6f}"


def _part(count: int, of: int) -> str:
    return f"{count:,} of {of:,}" + (f" ({100 * count / of:.1f} %)" if of else "")


def _listed(counts: dict[str, int]) -> str:
    shown = [f"{count:,} {name}" for name, count in list(counts.items())[:5]]
    return ", ".join([*shown, *(["..."] if len(counts) > len(shown) else [])]) or "none"
