"""Results of the model benchmark as tables of Markdown, and on the page that shows them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["of", "of_corrections", "write_corrections", "write_docs"]

PAGE = Path(__file__).parents[2] / "docs" / "know" / "models-benchmark.md"
TITLES = {
    "treadle_default": "Treadle, default",
    "treadle_text_calls": "Treadle, native driver, calls in the text",
    "treadle_react": "Treadle, ReAct without a schema",
    "treadle_native": "Treadle, native driver, calls in the text off",
    "smolagents": "smolagents",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI Agents SDK",
    "bare": "Bare loop",
}
KINDS = ("one", "two", "parallel", "result", "correction", "none")

Run = Mapping[str, Any]


def of(results: Mapping[str, Any]) -> str:
    """Return the tables: what was done, and by kind of task."""
    peers = list(dict.fromkeys(run["peer"] for run in results["runs"]))
    rows = {peer: [run for run in results["runs"] if run["peer"] == peer] for peer in peers}
    held = {name for name, task in results["tasks"].items() if task["held_out"]}
    first = [
        "| | Done | Tuning | Held out | Falsely completed | Valid calls | Corrections that cured | Requests | Tokens |",
        "|---|" + "---|" * 8,
    ]
    for peer, runs in rows.items():
        parts = [[run for run in runs if (run["task"] in held) is one] for one in (False, True)]
        cells = [_done(runs), *map(_done, parts), *(one(runs) for one in (_false, _valid, _cured, _requests, _tokens))]
        first.append(f"| {TITLES[peer]} | {' | '.join(cells)} |")
    second = ["| | " + " | ".join(KINDS) + " |", "|---|" + "---|" * len(KINDS)]
    for peer, runs in rows.items():
        cells = [_done([run for run in runs if results["tasks"][run["task"]]["kind"] == kind]) for kind in KINDS]
        second.append(f"| {TITLES[peer]} | {' | '.join(cells)} |")
    return "\n".join([*first, "", *second])


def _done(runs: Sequence[Run]) -> str:
    return f"{sum(run['done'] for run in runs)} of {len(runs)}" if runs else "-"


def _false(runs: Sequence[Run]) -> str:
    return str(sum(run["completed"] and not run["done"] for run in runs))


def _valid(runs: Sequence[Run]) -> str:
    calls = [is_good for run in runs for _, is_good in run["calls"]]
    return f"{sum(calls)} of {len(calls)}"


def _cured(runs: Sequence[Run]) -> str:
    """Count the bad calls of which the next call of the same tool was good."""
    bad = cured = 0
    for run in runs:
        for at, (tool, is_good) in enumerate(run["calls"]):
            if not is_good:
                bad += 1
                cured += next((good for name, good in run["calls"][at + 1 :] if name == tool), False)
    return f"{cured} of {bad}"


def _requests(runs: Sequence[Run]) -> str:
    return f"{sum(run['requests'] for run in runs) / len(runs):.1f}"


def _tokens(runs: Sequence[Run]) -> str:
    return f"{sum(run['input_tokens'] + run['output_tokens'] for run in runs) / len(runs):,.0f}"


def write_docs(results: Mapping[str, Any]) -> None:
    """Write the tables into the page."""
    _put("results", f"{_said(results)}\n\n{of(results)}")


def _put(name: str, shown: str) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(f"<!-- {name} -->")
    after = rest.split(f"<!-- end of {name} -->")[1]
    PAGE.write_text(f"{before}<!-- {name} -->\n\n{shown}\n\n<!-- end of {name} -->{after}", encoding="utf-8")


def _said(results: Mapping[str, Any]) -> str:
    machine, sampling = results["machine"], results["sampling"]
    seeds = ", ".join(map(str, sampling["seeds"]))
    return (
        f"`{results['command']}`, {results['when']}, {machine['system']}, {machine['processors']} processors, load {machine['load_before']} before and "
        f"{machine['load_after']} after. Model: {results['model']}, temperature {sampling['temperature']}, at most {sampling['max_tokens']} tokens an answer, "
        f"seeds {seeds}. Requests and tokens are the mean of a task."
    )


def write_corrections(results: Mapping[str, Any]) -> None:
    """Write the table of corrections into the page."""
    _put("corrections", of_corrections(results))


def of_corrections(results: Mapping[str, Any]) -> str:
    """Return the table of corrections: by fault, how many bad calls each mode cured."""
    runs = results["runs"]
    modes = [
        mode
        for mode in ("treadle_default", "treadle_react", "treadle_text_calls")
        if any(_mode(run) == mode for run in runs)
    ]
    halves = [is_held_out for is_held_out in (False, True) if any(run["held_out"] is is_held_out for run in runs)]
    columns = [(mode, half) for mode in modes for half in halves]
    names = [f"{TITLES[mode].removeprefix('Treadle, ')}, {'held out' if half else 'tuning'}" for mode, half in columns]
    rows = ["| What was wrong | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for fault in [*dict.fromkeys(run["fault"] for run in runs), "All"]:
        chosen = [run for run in runs if fault in ("All", run["fault"])]
        cells = [_all_cured([run for run in chosen if (_mode(run), run["held_out"]) == column]) for column in columns]
        rows.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _mode(run: Run) -> str:
    return f"treadle_{run['mode']}"


def _all_cured(runs: Sequence[Run]) -> str:
    return f"{sum(run['cured'] for run in runs)} of {len(runs)}" if runs else "-"
