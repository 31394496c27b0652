"""The recorded counts of the scenarios, and the comparison with them. Counts nothing itself: see scenarios.py.

python tests/benchmarks/counts.py              count each scenario and compare
python tests/benchmarks/counts.py --record     record the counts on purpose, for this version of Python
python tests/benchmarks/counts.py read_turn    only that scenario
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scenarios import NAMES

__all__ = ["BOUNDS", "RECORDED", "VERSION", "complaints", "count", "load", "record"]

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

BOUNDS = {"calls": 1.10, "blocks": 1.15, "modules": 1.10}
"""By unit: how many times the recorded number is allowed."""
SLACK = 40
"""More of each unit that is allowed, so that small numbers do not fail for a handful."""
OTHER_VERSION = 2
"""How many times the bound's growth is allowed on a Python whose own numbers are not recorded."""

Counts = Mapping[str, int]


def count(name: str) -> dict[str, int]:
    """Return the counts of one scenario, from a process of its own without coverage and with a fixed hash seed.

    Raises:
        RuntimeError: The scenario failed; its output is the message.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment = {**inherited, "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(HERE / "scenarios.py"), name]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    if ran.returncode != 0:
        raise RuntimeError(f"The scenario {name} failed:\n{ran.stdout}{ran.stderr}")
    return json.loads(ran.stdout)


def load() -> dict[str, dict[str, Counts]]:
    """Return the recorded counts, by version of Python and scenario."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def record(found: Mapping[str, Counts]) -> None:
    """Record counts for this version of Python; scenarios that were not counted keep theirs."""
    kept = load() if RECORDED.exists() else {}
    kept[VERSION] = dict(sorted({**kept.get(VERSION, {}), **found}.items()))
    RECORDED.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n", encoding="utf-8")


def complaints(
    name: str, found: Counts, recorded: Mapping[str, Mapping[str, Counts]], version: str = VERSION
) -> list[str]:
    """Return a sentence for each count of a scenario that has grown out of its bound."""
    against = version if version in recorded else _nearest(version, recorded)
    before = recorded[against].get(name)
    if before is None:
        return [f"The scenario {name} has no recorded numbers. Record them: {_command(name)}"]
    leeway = 1 if against == version else OTHER_VERSION
    return [
        f"{name}: {unit} grew by {(found[unit] / known - 1) * 100:.1f} %, from {known:,} (recorded for Python {against}) "
        f"to {found[unit]:,}; at most {limit:,.0f} are allowed. Find the change that costs so much, or record the new "
        f"number on purpose: {_command(name)}"
        for unit, known in before.items()
        if found[unit] > (limit := known * (1 + (BOUNDS[unit] - 1) * leeway) + SLACK)
    ]


def _nearest(version: str, recorded: Mapping[str, object]) -> str:
    def minor(text: str) -> int:
        return int(text.partition(".")[2])

    return min(recorded, key=lambda known: abs(minor(known) - minor(version)))


def _command(name: str) -> str:
    return f"python tests/benchmarks/counts.py --record {name}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count what fixed scenarios cost, and compare with recorded numbers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}; without one, all")
    parser.add_argument("--record", action="store_true", help="record the numbers instead of comparing them")
    wanted = parser.parse_args(words)
    if unknown := sorted(set(wanted.names) - set(NAMES)):
        parser.error(f"{unknown[0]!r} is not a scenario. Choose from {', '.join(NAMES)}.")
    found = {name: count(name) for name in wanted.names or NAMES}
    for name, counts in found.items():
        print(f"{name}: " + ", ".join(f"{number:,} {unit}" for unit, number in counts.items()))
    if wanted.record:
        record(found)
        print(f"Recorded for Python {VERSION} in {RECORDED.name}. Say in the commit message why they changed.")
        return 0
    recorded = load()
    faults = [fault for name, counts in found.items() for fault in complaints(name, counts, recorded)]
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
