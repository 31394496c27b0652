"""Report: the rows of a batch as one page of HTML with plots, which needs no network and no script. Reads the rows once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from treadle.batch.rows import BatchRow
from treadle.batch.summary import BatchSummary, Tally, money
from treadle.fields import checked

__all__ = ["report_page"]

_WIDTH, _BAR = 560, 20
_BINS = 24
_MOST_BARS = 12
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a202c; --soft: #5a6778; --line: #d5dce5; --bar: #2b6cb0; --good: #2f855a; --bad: #c53030; --wait: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --back: #14181f; --text: #e6eaf0; --soft: #9aa7b8; --line: #303a48; --bar: #63a4e8; --good: #58b98a; --bad: #f07f7f; --wait: #e0b050; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
main { display: grid; gap: 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
section { min-width: 0; } svg { display: block; width: 100%; height: auto; } text { fill: var(--text); font: 13px system-ui, sans-serif; }
.soft { fill: var(--soft); color: var(--soft); } .axis { stroke: var(--line); }
table { border-collapse: collapse; margin-bottom: 2rem; } th { color: var(--soft); font-weight: normal; padding: .15rem 1.5rem .15rem 0; text-align: left; vertical-align: top; }
td { padding: .15rem 0; font-variant-numeric: tabular-nums; }
.bar { fill: var(--bar); } .good { fill: var(--good); } .bad { fill: var(--bad); } .wait { fill: var(--wait); }
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
    parts = [
        ("completed", summary.completed, "good"),
        ("paused", summary.paused, "wait"),
        ("not completed", summary.failed, "bad"),
    ]
    lines = [_stacked("runs", parts, summary.tasks, 0)]
    if summary.scored:
        scores = [("passed", summary.passed, "good"), ("not passed", summary.scored - summary.passed, "bad")]
        lines.append(_stacked("scores", scores, summary.scored, 64))
    return _svg(64 * len(lines), lines)


def _stacked(name: str, parts: Sequence[tuple[str, int, str]], total: int, y: int) -> str:
    found, at = [], 0.0
    for _, count, kind in parts:
        width = _WIDTH * count / total if total else 0.0
        found.append(f'<rect class="{kind}" x="{at:.1f}" y="{y + 20}" width="{width:.1f}" height="{_BAR}"/>')
        at += width
    said = ", ".join(f"{count:,} {word}" for word, count, _ in parts if count) or "none"
    return f'<text x="0" y="{y + 14}">{escape(name)}: {escape(said)}</text>' + "".join(found)


def _bars(counts: Mapping[str, int], kind: str = "bar") -> str:
    """Return horizontal bars, the longest on top."""
    shown = list(counts.items())[:_MOST_BARS]
    if not shown:
        return '<p class="soft">None.</p>'
    most = max(count for _, count in shown)
    lines = []
    for n, (name, count) in enumerate(shown):
        y, width = 30 * n, max(2.0, 250 * count / most)
        lines.append(
            f'<text x="0" y="{y + 15}">{escape(name if len(name) <= 32 else name[:31] + "…")}</text>'
            f'<rect class="{kind}" x="240" y="{y}" width="{width:.1f}" height="{_BAR}"/>'
            f'<text x="{246 + width:.1f}" y="{y + 15}">{count:,}</text>'
        )
    return _svg(30 * len(shown), lines)


def _histogram(numbers: Sequence[float], shown: Callable[[float], str]) -> str:
    """Return a histogram from the least to the most, with the median below it."""
    if not numbers or max(numbers) == 0:
        return '<p class="soft">Nothing to show: all are 0.</p>'
    least, most = min(numbers), max(numbers)
    bins = min(_BINS, int(most - least) + 1) if all(float(one).is_integer() for one in numbers) else _BINS
    counts = [0] * bins
    for one in numbers:
        counts[min(int((one - least) / ((most - least) or 1) * bins), bins - 1)] += 1
    step, highest = _WIDTH / bins, max(counts)
    lines = [
        f'<rect class="bar" x="{n * step + 1:.1f}" y="{130 - 120 * count / highest:.1f}" width="{step - 2:.1f}" height="{120 * count / highest:.1f}">'
        f"<title>{count:,}</title></rect>"
        for n, count in enumerate(counts)
        if count
    ]
    median = sorted(numbers)[(len(numbers) - 1) // 2]
    lines += [
        f'<line class="axis" x1="0" y1="130.5" x2="{_WIDTH}" y2="130.5"/>',
        f'<text class="soft" x="0" y="148">{escape(shown(least))}</text>',
        f'<text class="soft" x="{_WIDTH / 2}" y="148" text-anchor="middle">median {escape(shown(median))}</text>',
        f'<text class="soft" x="{_WIDTH}" y="148" text-anchor="end">{escape(shown(most))}</text>',
    ]
    return _svg(154, lines)


def _svg(height: int, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'
