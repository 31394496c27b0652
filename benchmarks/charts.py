"""The results of rivals.py as a table and as a chart, made by the standard library. Measures nothing."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["chart", "short_table", "table", "write_docs"]

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "know" / "performance.md"
README = DOCS.parent / "README.md"
BEGIN, END = "<!-- rivals -->", "<!-- end of rivals -->"
FEW = ("floor_kept", "treadle_peer", "treadle_sqlite_peer", "langgraph", "openai_agents", "pydantic_ai")
"""What the table of the README shows."""

SHOWN = {
    "cpu_ms_a_turn_10": "CPU a turn, 10 turns",
    "cpu_ms_a_turn_100": "CPU a turn, 100 turns",
    "first_token_ms": "First token",
    "cpu_ms_a_1000_chunks": "CPU of 1,000 chunks",
    "turns_a_second": "100 runs, turns/s",
    "async_wall_ms": "128 async calls",
}
CHARTS = {"cpu_ms_a_turn_100": "turns", "cpu_ms_a_1000_chunks": "chunks"}
"""By metric: the last part of the file's name."""

Results = Mapping[str, Any]  # Any: the JSON that rivals.py writes


def table(results: Results) -> str:
    """Return a Markdown table, in milliseconds where nothing else is said, with the ratio to the floor."""
    peers = results["peers"]
    floor = peers[results["floor"]]["figures"]
    metrics = [metric for metric in SHOWN if metric in floor]
    lines = ["| | " + " | ".join(SHOWN[metric] for metric in metrics) + " |", "|---" * (len(metrics) + 1) + "|"]
    for peer in peers.values():
        cells = [_cell(peer["figures"].get(metric), floor[metric]) for metric in metrics]
        lines.append(f"| {peer['title']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def short_table(results: Results) -> str:
    """Return the few rows and columns that the README shows."""
    peers = {name: peer for name, peer in results["peers"].items() if name in FEW}
    figures = {
        name: {**peer, "figures": {one: peer["figures"][one] for one in CHARTS if one in peer["figures"]}}
        for name, peer in peers.items()
    }
    return table({**results, "peers": figures})


def _cell(value: float | None, floor: float) -> str:
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    ratio = value / floor
    return f"{value:,.{digits}f} ({ratio:.{1 if ratio >= 10 else 2}f}x)"


def chart(results: Results, metric: str) -> str:
    """Return an SVG of horizontal bars, the cheapest on top."""
    figures = [
        (peer["title"], peer["figures"][metric]) for peer in results["peers"].values() if metric in peer["figures"]
    ]
    figures.sort(key=lambda figure: figure[1])
    most, unit = figures[-1][1], results["measures"][metric]["unit"]
    height = 24 * len(figures) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="640" height="{height}" fill="#fff"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(results["measures"][metric]["title"])} ({escape(unit)})</text>',
    ]
    for row, (title, value) in enumerate(figures):
        at, width = 34 + 24 * row, max(2, 400 * value / most)
        colour = "#2b6cb0" if title.startswith("Treadle") else "#718096" if title == "Bare loop" else "#cbd5e0"
        parts += [
            f'<text x="160" y="{at + 13}" text-anchor="end">{escape(title)}</text>',
            f'<rect x="168" y="{at}" width="{width:.1f}" height="17" fill="{colour}"/>',
            f'<text x="{174 + width:.1f}" y="{at + 13}">{value:,.2f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def write_docs(results: Results) -> None:
    """Put the table and the charts into docs/, and a short table into the README."""
    shown = [metric for metric in CHARTS if metric in results["peers"][results["floor"]]["figures"]]
    for metric in shown:
        (DOCS / _file(metric)).write_text(chart(results, metric), encoding="utf-8")
    pictures = "\n".join(f"![{results['measures'][metric]['title']}](../{_file(metric)})" for metric in shown)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    middle = "\n\n".join([BEGIN, _words(results), table(results), pictures, END])
    PAGE.write_text(before + middle + after, encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    before, _, rest = readme.partition(BEGIN)
    README.write_text(before + "\n".join([BEGIN, short_table(results), END]) + rest.partition(END)[2], encoding="utf-8")


def _file(metric: str) -> str:
    return f"performance-{CHARTS[metric]}.svg"


def _words(results: Results) -> str:
    machine = results["machine"]
    versions = "; ".join(
        f"{peer['title']}: " + ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
        for peer in results["peers"].values()
    )
    failed = [
        f"{peer['title']} failed at {experiment}: {fault}"
        for peer in results["peers"].values()
        for experiment, fault in peer["failed"].items()
    ] + [f"{name} was left out. {fault}" for name, fault in results["left_out"].items()]
    said = (
        f"`{results['command']}`, {results['when']}, {machine['system']} {machine['machine']}, {machine['processors']} "
        f"processors, Python {machine['python']}, load {machine['load_before']} before and {machine['load_after']} after, "
        f"rounds: {results['rounds']}. Milliseconds where nothing else is said. CPU figures are the least of the rounds, turns/s the most, "
        f"other figures the median; wall times on a loaded machine say little.\n\nVersions: {versions}."
    )
    return said + ("\n\n" + " ".join(failed) if failed else "")
