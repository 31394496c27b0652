"""`treadle usage`: the tokens and the cost of all sessions of a journal, in groups. Runs nothing."""

import csv
import io

from treadle.cli.input.commands import UsageOptions
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import columns, one_line
from treadle.cli.sessions import opened
from treadle.ports import UsageRow

__all__ = ["usage"]

_COUNTS = ("requests", "input_tokens", "output_tokens", "cost", "unpriced")


async def usage(options: UsageOptions, terminal: Terminal) -> int:
    """Report what the sessions have used."""
    by = tuple(filter(None, (word.strip() for word in options.groups.split(","))))
    async with opened(settings_of(options).journal, is_read=True) as journal:
        rows = [*await journal.usage(by, since=options.since)]
    if options.as_json:
        terminal.data([_object(row) for row in rows])
    elif options.as_csv:
        for line in _csv(by, rows):
            terminal.line(line)
    elif rows:
        _show(by, rows, terminal)
    else:
        terminal.say("Nothing was used.")
    return 0


def _counts(row: UsageRow) -> tuple[str, ...]:
    cost = format(row.cost.normalize(), "f")
    return (str(row.requests), str(row.usage.input_tokens), str(row.usage.output_tokens), cost, str(row.unpriced))


def _object(row: UsageRow) -> dict[str, str | int]:
    counts = dict(zip(_COUNTS, _counts(row), strict=True))
    return {**row.group, **{name: one if name == "cost" else int(one) for name, one in counts.items()}}


def _csv(by: tuple[str, ...], rows: list[UsageRow]) -> list[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*by, *_COUNTS])
    writer.writerows([[*row.group.values(), *_counts(row)] for row in rows])
    return text.getvalue().splitlines()


def _show(by: tuple[str, ...], rows: list[UsageRow], terminal: Terminal) -> None:
    """Show a table, and once what its costs do not include."""
    table = [(*by, "requests", "input", "output", "USD")]
    table += [(*(one_line(value) or "-" for value in row.group.values()), *_counts(row)[:-1]) for row in rows]
    for line in columns(table, left=range(len(by))):
        terminal.line(line)
    if unpriced := sum(row.unpriced for row in rows):
        models = sorted({row.group["model"] for row in rows if row.unpriced and "model" in row.group})
        named = f" ({', '.join(map(one_line, models))})" if models else ""
        terminal.say(
            f"Without the cost of {unpriced} requests to models without a known price{named}: their tokens are counted."
        )
