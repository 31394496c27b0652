"""What a confined command costs over a bare one: `python benchmarks/sandbox.py`. The goal is 30 ms.

Both run `/bin/true` by the runner that `shell` uses, so that what differs is the confinement alone. Rounds alternate, and the median
counts: other work on the machine slows both.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial

from treadle.errors import SandboxUnavailable
from treadle.sandboxes import Bubblewrap, Confinement, Landlock
from treadle.tools import Command

GOAL_MS = 30.0
COMMAND = ("/bin/true",)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="commands of each kind (100)")
    rounds = parser.parse_args().rounds
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        for kind in (Bubblewrap, Landlock):
            runner: Bubblewrap | Landlock = kind(Confinement(writable=(folder,)))
            try:
                problem = runner.problem()
            except SandboxUnavailable as error:
                problem = str(error)
            if problem is not None:
                print(f"{runner.name:<11} unavailable: {problem}")
                continue
            bare_ms, confined_ms = await compare(bare, partial(confined, runner), rounds)
            cost = confined_ms - bare_ms
            is_met = is_met and cost <= GOAL_MS
            print(
                f"{runner.name:<11} bare {bare_ms:6.1f} ms   confined {confined_ms:6.1f} ms   cost {cost:6.1f} ms   goal {GOAL_MS:g} ms"
            )
    return 0 if is_met else 1


async def compare(
    one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]], rounds: int
) -> tuple[float, float]:
    """Return the medians of both, in milliseconds."""
    await one()
    await other()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for taken, act in zip(times, (one, other), strict=True):
            begun = time.perf_counter()
            await act()
            taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[0]), statistics.median(times[1])


async def bare() -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND)
    await process.wait()


async def confined(runner: Bubblewrap | Landlock) -> None:
    done = await runner.run(Command(arguments=COMMAND))
    if done.exit_code != 0:
        raise SystemExit(f"{runner.name}: exit code {done.exit_code}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
