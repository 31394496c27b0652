"""What a batch costs over the same loop by hand, and how much memory a long one needs. Zero latency; one process each.

python benchmarks/batch.py              # 1,000 tasks, by hand and as a batch in turn: the ratio of their times
python benchmarks/batch.py memory       # 100,000 tasks: the most memory that the process has had
"""

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from treadle import Agent, open_journal, open_session
from treadle.batch import BatchTask, run_batch
from treadle.messages import Finish, Text
from treadle.ports import ModelEnd, ModelPart, ModelRequest, TextDelta

PROMISED_OVERHEAD, PROMISED_MB = 0.10, 300
CONCURRENCY = 8


class Answers:
    """A model that answers at once. `ScriptedModel` would too, but it keeps every request for the test that looks at it."""

    name, price = "answers", None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Answer 42."""
        yield TextDelta("42")
        yield ModelEnd(parts=(Text("42"),), finish=Finish.STOP)


def agent() -> Agent:
    """Return an agent that answers at once."""
    return Agent(Answers(), name="answers")


def tasks(count: int) -> Iterator[BatchTask]:
    """Yield tasks with an expected answer."""
    return (BatchTask(id=f"q{n}", task=f"What is {n} times 7?", expected="42") for n in range(count))


async def by_hand(folder: Path, count: int) -> None:
    """Run each task in a session of its own, and write a row: what people write without `run_batch`."""
    answering, left = agent(), tasks(count)
    async with open_journal(folder / "runs.db") as journal:
        with (folder / "rows.jsonl").open("w") as rows:

            async def work() -> None:
                for task in left:
                    async with open_session(journal, id=task.id) as session:
                        result = await answering.run(task.task, session=session)
                    row = {
                        "id": task.id,
                        "status": result.status,
                        "text": result.text,
                        "passed": result.text == task.expected,
                        "cost": str(result.spent.cost),
                        "tokens": result.spent.usage.input_tokens + result.spent.usage.output_tokens,
                        "session": result.session_id,
                    }
                    rows.write(json.dumps(row) + "\n")
                    rows.flush()

            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def as_batch(folder: Path, count: int) -> None:
    """Run the same tasks with `run_batch`."""
    await run_batch(
        agent(),
        list(tasks(count)) if count <= 1_000 else tasks(count),
        journal=folder / "runs.db",
        results=folder / "rows.jsonl",
        concurrency=CONCURRENCY,
        score=lambda task, row: row.text == task.expected,
    )


def overhead(count: int, rounds: int) -> bool:
    """Print the ratio, and return whether it is as promised. The fastest round of each is the one that was disturbed least."""
    ways: dict[str, Callable[[Path, int], Awaitable[None]]] = {"by hand": by_hand, "run_batch": as_batch}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                gc.collect()
                begun, used = time.perf_counter(), time.process_time()
                asyncio.run(way(Path(folder), count))
                took[name].append((time.perf_counter() - begun, time.process_time() - used))
    ratios = []
    for n, what in enumerate(("elapsed", "processor")):
        hand, batch = (min(one[n] for one in took[name]) for name in ways)
        ratios.append(batch / hand - 1)
        print(f"{count:,} tasks, {what}: by hand {hand:.2f} s, run_batch {batch:.2f} s: {ratios[-1]:+.1%}")
    return ratios[0] < PROMISED_OVERHEAD


def memory(count: int) -> bool:
    """Print the most memory that a batch has had, and return whether it is as promised."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        asyncio.run(as_batch(Path(folder), count))
        seconds = time.monotonic() - begun
        rows = sum(1 for _ in (Path(folder) / "rows.jsonl").open())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} tasks: {rows:,} rows in {seconds:.0f} s, at most {most:.0f} MB")
    return most < PROMISED_MB and rows == count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("overhead", "memory"), default="overhead")
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "memory":
        sys.exit(not memory(options.tasks or 100_000))
    sys.exit(not overhead(options.tasks or 1_000, options.rounds))
