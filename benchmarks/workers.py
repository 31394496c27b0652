"""Workers under load and under fire: `python benchmarks/workers.py SCENARIO [--spread file|postgres|pgqueuer] [--count N]`.

Each scenario starts worker processes of its own, and a PostgreSQL server of its own where the spread needs one. It prints one JSON
object. It ends with 1 where something was lost, done twice, left to lie, or exceeded a limit; times are for you to judge, on a machine you know.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import msgspec
from fleet import deaths, sharing, waiting

SPREADS = ("file", "postgres", "pgqueuer")

SCENARIOS = {
    "kills": (deaths.kills, 200, "workers killed by SIGKILL"),
    "stops": (deaths.stops, 30, "workers stopped for longer than their lease"),
    "restarts": (deaths.restarts, 20, "restarts of the database, by turns in order and killed"),
    "share": (sharing.share, 400, "tasks over four workers: how many each has done"),
    "latency": (sharing.latency, 100, "tasks, one at a time: from submit to the first request"),
    "fairness": (sharing.fairness, 10_000, "tasks of one tenant: how long another's single one waits"),
    "throughput": (sharing.throughput, 400, "tasks over 1, 2 and 4 workers: a second, and database time per event"),
    "paused": (waiting.paused, 10_000, "paused sessions: memory of an idle worker, and how soon an answer wakes one"),
    "limits": (waiting.limits, 2, "minutes under limits of each tenant, counted at the mock provider"),
    "noisy": (waiting.noisy, 60, "tasks of one tenant, alone and beside a slow one: its p95"),
}  # fmt: skip


def main() -> int:
    words = parse()
    measure, count, _ = SCENARIOS[words.scenario]
    load = os.getloadavg()[0]
    begun = time.monotonic()
    found: dict[str, Any] = asyncio.run(
        measure(words.spread, words.count or count, words.workers, words.seed, words.lease_seconds)
    )
    about = {
        "scenario": words.scenario, "spread": words.spread, "workers": words.workers, "lease_seconds": words.lease_seconds,
        "seed": words.seed, "seconds": round(time.monotonic() - begun, 1), "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    print(msgspec.json.format(msgspec.json.encode({**about, **found}), indent=2).decode())
    return 0 if found.get("is_clean", True) else 1


def parse() -> argparse.Namespace:
    told = "\n".join(f"  {name:11} {told} ({count})" for name, (_, count, told) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n{told}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--spread", choices=SPREADS, default="pgqueuer", help="what spreads the sessions (pgqueuer)")
    parser.add_argument("--count", type=int, default=0, help="how many, as the scenario says")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (4)")
    parser.add_argument("--lease-seconds", type=float, default=2.0, help="the lease of a session (2)")
    parser.add_argument("--seed", type=int, default=19, help="of the chance (19)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
