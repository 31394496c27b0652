"""The results of compare.py as a page, a picture and a file of evidence. Runs nothing."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "scripts"))
from drawings import THEMES, Paper, Theme
from treadle.conformance import GROUPS, SCENARIOS

DOCS = PROJECT / "docs"
PAGE = DOCS / "know" / "conformance-results.md"
EVIDENCE = DOCS / "know" / "conformance-evidence.html"
BEGIN, END = "<!-- conformance results -->", "<!-- end of conformance results -->"

Results = Mapping[str, Any]  # Any: the JSON that compare.py writes
Judged = Mapping[str, Any]


def made(results: Results) -> dict[Path, str]:
    """Return the page, the evidence and the pictures, by their paths."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    middle = "\n\n".join([BEGIN, table(results), _said(results), _lists(results), END])
    files = {PAGE: before + middle + rest.partition(END)[2], EVIDENCE: _evidence(results)}
    return files | {DOCS / f"conformance-{name}.svg": picture(results, theme) for name, theme in THEMES.items()}


def title(judged: Judged) -> str:
    """Return the name of a library, with the form of its adapter."""
    return f"{judged['title']}, advised" if judged["form"] else judged["title"]


def _count(judged: Judged, group: str = "") -> Counter[str]:
    return Counter(
        one["outcome"] for name, one in judged["verdicts"].items() if not group or name.startswith(f"{group}/")
    )


def _failed(judged: Judged) -> list[str]:
    return [name for name, one in judged["verdicts"].items() if one["outcome"] == "fails"]


# --- the page


def table(results: Results) -> str:
    """Return a Markdown table: what each library holds, fails and does not offer."""
    lines = ["| | Version | Holds | Fails | Not offered |", "|---|---|---|---|---|"]
    for judged in results["subjects"].values():
        found = _count(judged)
        version = next(iter(judged["versions"].values()))
        counts = (found["holds"], found["fails"], found["not offered"])
        lines.append(f"| {title(judged)} | {version} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def _said(results: Results) -> str:
    machine = results["machine"]
    differs = [
        f"{title(judged)}: `{name}`"
        for judged in results["subjects"].values()
        for name, one in judged["verdicts"].items()
        if "outcomes" in one
    ]
    days = sorted({judged["when"][:10] for judged in results["subjects"].values()})
    return (
        f"`{results['command']}`, {' and '.join(days)}, {machine['system']} {machine['machine']}, {machine['processors']} processors, "
        f"Python {machine['python']}. Each library ran {'twice' if results['rounds'] == 2 else results['rounds']} "
        f"the {_known_in('chat')} of the {len(SCENARIOS)} scenarios whose failure exists in Chat Completions{_elsewhere(results)}. "
        + (f"These differed, and count as failures: {', '.join(differs)}." if differs else "No verdict differed.")
    )


_NAMES = {"responses": "Responses", "anthropic": "Anthropic Messages", "gemini": "Gemini"}


def _elsewhere(results: Results) -> str:
    """Return which libraries ran the scenarios of another dialect."""
    others = [one for one in results["subjects"].values() if one.get("dialect", "chat") != "chat"]
    return "".join(f"; {title(one)} the {_known_in(one['dialect'])} in {_NAMES[one['dialect']]}" for one in others)


def _known_in(dialect: str) -> int:
    return sum(dialect in one.dialects for one in SCENARIOS)


def _lists(results: Results) -> str:
    """Return a block that opens for each library: its versions, and the scenarios that it fails."""
    blocks = []
    for key, judged in results["subjects"].items():
        failed = [f'<a href="conformance-evidence.html#{_anchor(key, name)}">{name}</a>' for name in _failed(judged)]
        versions = ", ".join(f"{name} {version}" for name, version in judged["versions"].items())
        form = f" Advised: {judged['form']}." if judged["form"] else ""
        blocks.append(
            f"<details><summary>{title(judged)}: {len(failed)} of {_count(judged).total()} fail</summary>\n"
            f"<p>{versions}.{form}</p>\n<p>{' · '.join(failed) or 'None.'}</p>\n</details>"
        )
    return "\n".join(blocks)


def _anchor(key: str, name: str) -> str:
    return f"{key}:{name}".replace(":", "-").replace("/", "-")


# --- the picture


def picture(results: Results, theme: Theme) -> str:
    """Return an SVG: a row for each library, a column for each group of scenarios."""
    subjects = list(results["subjects"].values())
    left, cell, row = 168, 54, 34
    width, height = left + cell * len(GROUPS) + 64, 96 + row * len(subjects) + 40
    paper = Paper(theme, width, height, "The conformance suite: scenarios that each library fails, by group")
    paper.text(16, 28, "Scenarios that fail, by library and group", bold=True)
    for number, group in enumerate(GROUPS):
        paper.text(left + cell * number + cell // 2, 66 if number % 2 else 84, group, anchor="middle", quiet=True)
    paper.text(left + cell * len(GROUPS) + 30, 84, "all", anchor="middle", quiet=True)
    for place, judged in enumerate(subjects):
        y = 94 + row * place
        paper.text(
            32 if judged["form"] else 16, y + 20, "advised" if judged["form"] else judged["title"], bold=place == 0
        )
        for number, group in enumerate(GROUPS):
            text, fill = _cell(judged, group, theme)
            paper.box(left + cell * number, y, cell - 4, row - 4, text, fill=fill)
        paper.text(left + cell * len(GROUPS) + 30, y + 20, str(len(_failed(judged))), anchor="middle", bold=True)
    paper.text(
        16,
        height - 14,
        "0: all that it offers holds. -: it offers nothing of this group. advised: with its documentation's options for safety.",
        quiet=True,
    )
    return paper.svg()


def _cell(judged: Judged, group: str, theme: Theme) -> tuple[str, str]:
    found = _count(judged, group)
    if not found["holds"] + found["fails"]:
        return "-", theme.back
    few = found["fails"] * 4 < found["holds"] + found["fails"]
    return str(found["fails"]), theme.good if not found["fails"] else theme.warn if few else theme.stop


# --- the evidence

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { margin: 0 auto; max-width: 76rem; padding: 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse }
th, td { border: 1px solid #8884; padding: .2rem .5rem; text-align: left; white-space: nowrap }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .5rem }
"""


_KEY = """<a href="conformance-results.html">What this is, and how to answer it.</a>
+ holds, x fails, - not offered, ! differed between two rounds."""


def _evidence(results: Results) -> str:
    """Return a page of HTML that asks no host: the whole table, and what was seen of each failure."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Conformance: the evidence</title><style>{_STYLE}</style></head><body>",
        "<h1>Conformance: the evidence</h1>",
        f"<p>{_KEY}</p>",
        *_whole_table(results["subjects"]),
        *(line for key, judged in results["subjects"].items() for line in _failures(key, judged)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _whole_table(subjects: Mapping[str, Judged]) -> Iterator[str]:
    heads = "".join(f"<th>{escape(title(one))}</th>" for one in subjects.values())
    yield f'<div class="wide"><table><thead><tr><th>Scenario</th>{heads}</tr></thead><tbody>'
    for scenario in SCENARIOS:
        cells = "".join(f"<td>{_mark(key, judged, scenario.id)}</td>" for key, judged in subjects.items())
        if any(scenario.id in judged["verdicts"] for judged in subjects.values()):
            yield f'<tr><th title="{escape(scenario.failure)}">{scenario.id}</th>{cells}</tr>'
    yield "</tbody></table></div>"


def _mark(key: str, judged: Judged, name: str) -> str:
    found = judged["verdicts"].get(name, {"outcome": "not offered"})
    mark = {"holds": "+", "fails": "x", "not offered": "-"}[found["outcome"]] + ("!" if "outcomes" in found else "")
    return f'<a href="#{_anchor(key, name)}">{mark}</a>' if found["outcome"] == "fails" else mark


def _failures(key: str, judged: Judged) -> Iterator[str]:
    known = {one.id: one for one in SCENARIOS}
    failed = _failed(judged)
    yield f"<h2>{escape(title(judged))}</h2>"
    yield "" if failed else "<p>Nothing failed.</p>"
    for name in failed:
        scenario, found = known[name], judged["verdicts"][name]
        seen = found["evidence"]
        lines = [
            *(f"Wrong: {one}" for one in found["faults"]),
            f"Answers of the provider: {', '.join(map(str, seen['statuses'])) or 'none'}",
            *(
                f"Executed: {one['tool']} {one['arguments']}{'' if one['done'] else ' (did not end)'}"
                for one in seen["executions"]
            ),
            *_exits(seen["exits"]),
            "The end of the last request:",
            *seen["last_messages"],
        ]
        yield (
            f"<details><summary>{name} ({scenario.severity}): {escape(scenario.failure)}</summary>"
            f'<p id="{_anchor(key, name)}">Right: {escape(scenario.promise)}<br>Source: {escape(scenario.source)}</p>'
            f"<pre>{escape(chr(10).join(lines))}</pre></details>"
        )


def _exits(exits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, one in enumerate(exits, 1):
        yield f"Process {number}: exit code {one['code']}, answer {one['answer']}" + (
            f", {one['error']}" if one["error"] else ""
        )
