"""Kill sessions by the hundred, resume them, and print what came of it. It ends every process that it starts, and no other.

    python benchmarks/soak.py --kills 500
    python benchmarks/soak.py --kills 500 --store postgres

Each life is one session of a real process: killed with SIGKILL at a crash point or at a random time, resumed, perhaps killed
again, until it ends. What it did to the world is counted outside of it. Exit code 1 when anything promised did not
hold, or when there was too little time for the kills that were asked for.
"""

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / name) for name in ("durability", "")]

from crash_child import Job
from crashing import Children, World, world
from soaking import SCENES, WHERES, Life, Tally


async def main() -> int:
    words = parse()
    chance = random.Random(words.seed)
    wheres = [where for where in WHERES if words.store == "sqlite" or where != "CP16"]  # that is about making a file
    cells = {(scene, where): Tally() for scene in SCENES for where in wheres}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="treadle-soak-") as folder:
        async with AsyncExitStack() as stack:
            url = stack.enter_context(database()) if words.store == "postgres" else ""
            outside = await stack.enter_async_context(world())
            mothers = [stack.enter_context(Children()) for _ in range(words.workers)]
            typical = await typical_seconds(mothers[0], outside, Path(folder))
            plan = endless(chance, wheres)

            def is_over() -> bool:
                has_all = kills(cells) >= words.kills and all(tally.lives for tally in cells.values())
                return has_all or time.monotonic() - begun > words.seconds

            async def work(mother: Children) -> None:
                while not is_over():
                    number, cell = next(plan)
                    life = Life(mother, outside, Path(folder), f"life{number}", *cell, chance=chance, url=url)
                    await life.run(cells[cell], 1.2 * typical)
                    forget(Path(folder), f"life{number}")

            await asyncio.gather(*(work(mother) for mother in mothers))
    show(cells, time.monotonic() - begun, words.seed)
    is_clean = all(tally.is_clean for tally in cells.values())
    return 0 if is_clean and kills(cells) >= words.kills else 1


@contextmanager
def database() -> Iterator[str]:
    """Give the address of a journal on a PostgreSQL server of our own."""
    from postgres_server import PostgresServer, find_binaries

    binaries = find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed.")
    server = PostgresServer(binaries)
    server.start()
    try:
        yield server.new_url()
    finally:
        server.end()


def forget(folder: Path, name: str) -> None:
    """Remove what a life has left, so that hundreds of them need little room."""
    for left in folder.glob(f"{name}.*"):
        if left.is_file():
            left.unlink()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--store", choices=("sqlite", "postgres"), default="sqlite", help="where the sessions are (sqlite)"
    )
    parser.add_argument("--kills", type=int, default=500, help="how many kills there are to be (500)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long in any case (3600)")
    parser.add_argument("--workers", type=int, default=2, help="sessions side by side (2)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the chance")
    return parser.parse_args()


def endless(chance: random.Random, wheres: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Go through all cells again and again, in a new order each time; random times as often as all points together."""
    numbers = itertools.count(1)
    points = [(scene, where) for scene in SCENES for where in wheres]
    at_random = [(scene, "random") for scene in SCENES] * 3
    while True:
        cells = points + at_random
        chance.shuffle(cells)
        yield from zip(numbers, cells, strict=False)


async def typical_seconds(mother: Children, outside: World, folder: Path) -> float:
    """Measure how long a session takes that nobody kills."""
    spans = []
    for number in range(5):
        name = f"calm{number}"
        begun = time.monotonic()
        await mother.run(
            Job(journal=str(folder / f"{name}.db"), port=outside.port, out=str(folder / f"{name}.out"), session=name)
        )
        spans.append(time.monotonic() - begun)
    return statistics.median(spans)


def kills(cells: dict[tuple[str, str], Tally]) -> int:
    return sum(tally.kills for tally in cells.values())


def show(cells: dict[tuple[str, str], Tally], seconds: float, seed: int) -> None:
    """Print one line a scene, one a place, and all faults."""
    head = ("", "lives", "kills", "told unknown", "duplicates", "lost events", "broken")
    rows: list[tuple[object, ...]] = [head]
    groups = [(scene, [tally for (one, _), tally in cells.items() if one == scene]) for scene in SCENES]
    groups += [(where, [tally for (_, one), tally in cells.items() if one == where]) for where in WHERES]
    groups.append(("all", list(cells.values())))
    for name, tallies in (group for group in groups if group[1]):
        counts = [(t.lives, t.kills, t.told_unknown, t.duplicates, t.lost_events, t.broken) for t in tallies]
        rows.append((name, *map(sum, zip(*counts, strict=True))))
    for row in rows:
        print("| " + " | ".join(f"{cell!s:>{len(str(top)) or 16}}" for cell, top in zip(row, head, strict=True)) + " |")
        if row is head:
            print("|" + "|".join("-" * (len(top) + 2 if top else 18) for top in head) + "|")
    print(f"\n{seconds:.0f} s, seed {seed}")
    for fault in itertools.chain.from_iterable(tally.faults for tally in cells.values()):
        print(f"FAULT {fault}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
