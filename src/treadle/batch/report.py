"""Report: the rows of a batch as one page of HTML with plots, which needs no network and no script. Reads the rows once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from treadle.batch.rows import BatchRow
from treadle.batch.summary import BatchSummary, Tally, money
from treadle.fields import checked

__all__ = ["report_page"]

_BINS = 24
_MOST_BARS = 12
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a202c; --soft: #5a6778; --line: #d5dce5; --bar: #2b6cb0; --good: #2f855a; --bad: #c53030; --wait: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --back: #14181f; --text: #e6eaf0; --soft: #9aa7b8; --line: #303a48; --bar: #63a4e8; --good: #58b98a; --bad: #f07f7f; --wait: #e0b050; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; overflow-wrap: anywhere; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; } h2 { font-size: 1rem; margin: 0 0 .5rem; } p { margin: 0 0 .25rem; }
main { display: grid; gap: 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
table { border-collapse: collapse; margin-bottom: 2rem; } th { color: var(--soft); font-weight: normal; padding: .15rem 1.5rem .15rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
td { padding: .15rem 0; font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); } .bar { --of: var(--bar); } .good { --of: var(--good); } .bad { --of: var(--bad); } .wait { --of: var(--wait); }
i { background: var(--of); display: block; height: 20px; min-width: 2px; } span i { display: inline-block; height: .7em; margin-right: .35em; width: .7em; } span { margin-right: 1em; white-space: nowrap; }
.stack { display: flex; margin-bottom: 1rem; }
.bars { align-items: center; column-gap: .75rem; display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr) auto; row-gap: .4rem; }
.bins { align-items: end; border-bottom: 1px solid var(--line); display: flex; gap: 2px; height: 120px; } .bins i { flex: 1; }
.ends { display: flex; justify-content: space-between; }
"""


@checked
def report_page(rows: Iterable[BatchRow], title: str = "Batch") -> str:
    """Return a page of HTML with a table and plots: outcomes, steps, cost, running time, reasons, tool failures.

    Example:
        Path("results.html").write_text(report_page(read_rows("results.jsonl")))
    """
    tally = Tally()
    for row in rows:
        tally.add(row)
    summary = tally.summary()
    plots = [
        ("Outcomes", _outcomes(summary)),
        ("Why runs ended", _bars(summary.reasons)),
        ("Running time of a task, in seconds", _histogram(tally.seconds, "{:.3g}".format)),
        ("Cost of a task", _histogram(tally.costs, money)),
        ("Steps of a task", _histogram(tally.steps, "{:.0f}".format)),
        ("Most frequent tool failures", _bars(summary.tool_failures, "bad")),
    ]
    body = "".join(f"<section><h2>{escape(name)}</h2>{plot}</section>\n" for name, plot in plots)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{_table(summary)}\n<main>\n{body}</main></body></html>\n"
    )


def _table(summary: BatchSummary) -> str:
    rows = (line.partition("  ") for line in str(summary).splitlines())
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value.strip())}</td></tr>" for name, _, value in rows)
    return f"<table>{cells}</table>"


def _outcomes(summary: BatchSummary) -> str:
    runs = [
        ("completed", summary.completed, "good"),
        ("paused", summary.paused, "wait"),
        ("not completed", summary.failed, "bad"),
    ]
    scores = [("passed", summary.passed, "good"), ("not passed", summary.scored - summary.passed, "bad")]
    return _stacked("Runs", runs) + (_stacked("Scores", scores) if summary.scored else "")


def _stacked(name: str, parts: Sequence[tuple[str, int, str]]) -> str:
    """Return a bar of parts, with what each colour means above it."""
    shown = [one for one in parts if one[1]]
    said = " ".join(f'<span><i class="{kind}"></i>{count:,} {word}</span>' for word, count, kind in shown) or "none"
    bar = "".join(f'<i class="{kind}" style="flex:{count}"></i>' for _, count, kind in shown)
    return f'<p>{name}: {said}</p><div class="stack">{bar}</div>'


def _bars(counts: Mapping[str, int], kind: str = "bar") -> str:
    """Return horizontal bars, the longest on top."""
    shown = list(counts.items())[:_MOST_BARS]
    if not shown:
        return '<p class="soft">None.</p>'
    most = max(count for _, count in shown)
    lines = (
        f'<div>{escape(name).replace("_", "_<wbr>")}</div><i class="{kind}" style="width:{100 * count / most:.1f}%"></i><div>{count:,}</div>'
        for name, count in shown
    )
    return f'<div class="bars">{"".join(lines)}</div>'


def _histogram(numbers: Sequence[float], shown: Callable[[float], str]) -> str:
    """Return a histogram from the least to the most, with the median below it."""
    if not numbers or max(numbers) == 0:
        return '<p class="soft">Nothing to show: all are 0.</p>'
    least, most = min(numbers), max(numbers)
    if least == most:
        return f"<p>{escape(shown(most))} for each task.</p>"
    bins = min(_BINS, int(most - least) + 1) if all(float(one).is_integer() for one in numbers) else _BINS
    counts = [0] * bins
    for one in numbers:
        counts[min(int((one - least) / (most - least) * bins), bins - 1)] += 1
    highest = max(counts)
    bars = "".join(
        f'<i class="bar" style="height:max(2px, {100 * count / highest:.1f}%)" title="{count:,}"></i>'
        if count
        else "<i></i>"
        for count in counts
    )
    median = sorted(numbers)[(len(numbers) - 1) // 2]
    ends = f"<div>{escape(shown(least))}</div><div>median {escape(shown(median))}</div><div>{escape(shown(most))}</div>"
    return f'<div class="bins">{bars}</div><div class="ends soft">{ends}</div>'
