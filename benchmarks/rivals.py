"""Measure other libraries beside Treadle and the bare loop: the same tasks, the same server, an environment for each with pinned versions.

    python benchmarks/rivals.py                      all of them; environments that are missing are made first, with pip
    python benchmarks/rivals.py --quick              about two minutes, once the environments are made
    python benchmarks/rivals.py langgraph agno       only these, beside Treadle and the bare loop
    python benchmarks/rivals.py --docs               write the table and the chart of the last results into docs/

The pins are `peers/NAME_peer.txt`. A rival that cannot be installed is reported and left out; so is an experiment that it fails.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import charts
from harness import EXPERIMENTS
from run import MEASURES, PEERS, processors, python_of, script_of, serving

HERE = Path(__file__).parent
RESULTS = HERE / "rivals.json"
FLOOR = "floor_kept"
"""What ratios are to: the bare loop that keeps its client, as a service does."""


class Rival(NamedTuple):
    """One library."""

    title: str
    packages: tuple[str, ...]
    """Whose versions are reported."""
    without: tuple[str, ...] = ()
    """Experiments that it has nothing for."""


RIVALS = {
    "pydantic_ai": Rival("Pydantic AI", ("pydantic-ai-slim", "openai")),
    "openai_agents": Rival("OpenAI Agents SDK", ("openai-agents", "openai")),
    "langgraph": Rival("LangGraph", ("langgraph", "langchain", "langchain-openai", "openai")),
    "strands": Rival("Strands Agents", ("strands-agents", "openai")),
    "smolagents": Rival("smolagents", ("smolagents", "openai")),
    "agno": Rival("Agno", ("agno", "openai")),
    "llm": Rival("llm", ("llm", "openai")),
    "mini_swe": Rival("mini-swe-agent", ("mini-swe-agent", "litellm", "openai"), ("parallel", "stream")),
    "google_adk": Rival("Google ADK", ("google-adk", "litellm", "openai")),
}
APART = {"claude_agent_sdk": Rival("Claude Agent SDK", ("claude-agent-sdk",))}
"""What is held against the conformance suite alone: it starts a program of its own for each run."""
OURS = {
    "floor_kept": "Bare loop",
    "treadle_peer": "Treadle",
    "treadle_sqlite_peer": "Treadle, SQLite",
}
QUICK = ("turns", "stream")
assert set(OURS) <= set(PEERS)


def main() -> int:
    wanted = _arguments()
    if wanted.docs:
        charts.write_docs(json.loads(wanted.out.read_text(encoding="utf-8")))
        return 0
    left_out = {name: fault for name in wanted.names if (fault := set_up(name))}
    for name, fault in left_out.items():
        print(f"Left out: {RIVALS[name].title}. {fault}", file=sys.stderr)
    results = _results(wanted, [name for name in wanted.names if name not in left_out])
    results["left_out"] = left_out
    wanted.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(charts.table(results))
    print(f"\nThe results are in {wanted.out}.", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(RIVALS)}; without one, all")
    parser.add_argument("--quick", action="store_true", help=f"one round of {' and '.join(QUICK)}")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes for each figure (3)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--docs", action="store_true", help="measure nothing; write the last results into docs/")
    wanted = parser.parse_args()
    if unknown := sorted(set(wanted.names) - set(RIVALS)):
        parser.error(f"{unknown[0]!r} is not a rival. Choose from {', '.join(RIVALS)}.")
    if wanted.rounds < 1:
        parser.error("--rounds must be at least 1.")
    wanted.names = wanted.names or list(RIVALS)
    wanted.rounds = 1 if wanted.quick else wanted.rounds
    return wanted


# --- environments


def set_up(name: str) -> str:
    """Make the environment of a rival where it is missing or older than its pins; return what went wrong, else ''."""
    pins = HERE / "peers" / f"{name}_peer.txt"
    folder = HERE / "venvs" / f"{name}_peer"
    stamp = folder / "installed.txt"
    if stamp.is_file() and stamp.read_bytes() == pins.read_bytes():
        return ""
    print(
        f"Installing {(RIVALS | APART)[name].title} (once, and again when its pins change)", file=sys.stderr, flush=True
    )
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(pins)]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
        ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ran.returncode != 0:
            return f"It cannot be installed here: {_last_line(ran.stdout)}"
    stamp.write_bytes(pins.read_bytes())
    return ""


def versions(name: str) -> dict[str, str]:
    code = "import json, sys; from importlib.metadata import version; print(json.dumps({p: version(p) for p in sys.argv[1:]}))"
    rival = (RIVALS | APART).get(name)
    packages = rival.packages if rival else ("aiohttp",) if name == FLOOR else ("treadle", "aiohttp")
    command = [python_of(_peer(name)), "-c", code, *packages]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _peer(name: str) -> str:
    return f"{name}_peer" if name in RIVALS | APART else name


# --- measuring


def _results(wanted: argparse.Namespace, rivals: Sequence[str]) -> dict[str, Any]:
    names = [*OURS, *rivals]
    begun, load_before = time.strftime("%Y-%m-%d %H:%M"), os.getloadavg()
    figures, failed = _figures(names, wanted)
    return {
        "when": begun,
        "command": " ".join(["python benchmarks/rivals.py", *sys.argv[1:]]),
        "machine": {
            "system": platform.system(),
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(load_before[0], 1),
            "load_after": round(os.getloadavg()[0], 1),
        },
        "rounds": wanted.rounds,
        "floor": FLOOR,
        "measures": {measure.metric: {"title": measure.title, "unit": measure.unit} for measure in MEASURES},
        "peers": {
            name: {
                "title": OURS.get(name) or RIVALS[name].title,
                "versions": versions(name),
                "figures": figures.get(name, {}),
                "failed": failed.get(name, {}),
            }
            for name in names
        },
    }


def _figures(
    names: Sequence[str], wanted: argparse.Namespace
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, str]]]:
    """Return the smallest of all rounds, by peer and metric (turns a second: the largest), and what failed."""
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    failed: defaultdict[str, dict[str, str]] = defaultdict(dict)
    client, server = processors()
    with serving(server) as address, tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        for number in range(wanted.rounds):
            for experiment in QUICK if wanted.quick else EXPERIMENTS:
                for name in names:
                    if experiment in failed[name] or (name in RIVALS and experiment in RIVALS[name].without):
                        continue
                    print(f"round {number + 1} of {wanted.rounds}: {experiment}, {name}", file=sys.stderr, flush=True)
                    figures, fault = _measured(_peer(name), experiment, address, folder, client, quick=wanted.quick)
                    if fault:
                        failed[name][experiment] = fault
                        print(f"  failed: {fault}", file=sys.stderr, flush=True)
                    for metric, value in figures.items():
                        found[name][metric].append(value)
    least = {name: {key: _best(key, values) for key, values in its.items()} for name, its in found.items()}
    return least, dict(failed)


def _best(metric: str, values: Sequence[float]) -> float:
    """Return the value that other work on the machine disturbed least, where that is known; else the median."""
    if metric.endswith("a_second"):
        return max(values)
    return min(values) if "cpu" in metric else statistics.median(values)


def _measured(
    peer: str, experiment: str, address: str, folder: str, processor: int | None, *, quick: bool
) -> tuple[dict[str, float], str]:
    """Return the figures of one fresh process, and '' or why there are none."""
    command = [python_of(peer), str(script_of(peer)), "--server", address, "--experiment", experiment]
    command += ["--quick"] if quick else []
    seconds = 30 if quick else 200
    # In an empty home, and without a way to a proxy or a key of the person's.
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "OPENAI_API_KEY": "x"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        cwd=folder,
    )
    if processor is not None:
        os.sched_setaffinity(process.pid, {processor})
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {}, f"It took more than {seconds} seconds."
    if process.returncode != 0:
        return {}, _last_line(errors)
    figures = [line for line in output.splitlines() if line.startswith("{")]
    return (json.loads(figures[-1]), "") if figures else ({}, "It printed no figures.")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "It said nothing."


if __name__ == "__main__":
    sys.exit(main())
