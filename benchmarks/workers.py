"""How fast and how fairly workers begin what was submitted: `python benchmarks/workers.py latency|fairness [--tasks N]`.

It starts a PostgreSQL of its own, as the tests do. Each line is one way to spread the sessions.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from postgres_server import PostgresServer, find_binaries
from treadle import Agent, PgQueuerDispatcher, Worker, open_journal, result, submit
from treadle.testing import ScriptedModel, text

WAYS = ("file", "postgres", "pgqueuer")


class Clerk:
    """An agent's model that notes when each task reaches it."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}

    def make(self) -> Agent:
        def answer(request: Any) -> Any:
            self.begun[request.messages[0].text] = time.perf_counter()
            return text("done")

        return Agent(ScriptedModel([answer]))


@asynccontextmanager
async def working(address: str, way: str, clerk: Clerk) -> AsyncIterator[None]:
    dispatcher = PgQueuerDispatcher(address) if way == "pgqueuer" else None
    worker = Worker(address, {"clerk": clerk.make}, dispatcher=dispatcher, concurrency=2)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def latency(address: str, way: str, tasks: int) -> str:
    """From the call of submit to the first request, one task at a time."""
    clerk, took = Clerk(), []
    async with working(address, way, clerk), open_journal(address) as journal:
        for n in range(tasks + 2):
            begun = time.perf_counter()
            await result(journal, await submit(journal, "clerk", f"task {n}"))
            took.append((clerk.begun[f"task {n}"] - begun) * 1000)
    took = sorted(took[2:])
    return f"p50 {statistics.median(took):.0f} ms, p95 {took[int(len(took) * 0.95)]:.0f} ms, of {tasks} tasks"


async def fairness(address: str, way: str, tasks: int) -> str:
    """How long another tenant's single task waits while one tenant's many are worked off."""
    clerk = Clerk()
    async with open_journal(address) as journal:
        await asyncio.gather(*[submit(journal, "clerk", f"many {n}", tenant="many") for n in range(tasks)])
        async with working(address, way, clerk):
            while len(clerk.begun) < min(20, tasks):  # noqa: ASYNC110 - it watches what others do
                await asyncio.sleep(0.01)
            begun = time.perf_counter()
            one = await submit(journal, "clerk", "one", tenant="one")
            await result(journal, one)
    waited = clerk.begun["one"] - begun
    before = sum(begun < at < clerk.begun["one"] for at in clerk.begun.values())
    return f"the single task waited {waited * 1000:.0f} ms, behind {before} of {tasks} tasks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measure", choices=("latency", "fairness"))
    parser.add_argument("--tasks", type=int, default=0)
    chosen = parser.parse_args()
    measure, tasks = (latency, 100) if chosen.measure == "latency" else (fairness, 10_000)
    server = PostgresServer(find_binaries())
    server.start()
    try:
        for way in WAYS:
            address = str(Path(tempfile.mkdtemp()) / "agent.db") if way == "file" else server.new_url()
            print(f"{way:9}", asyncio.run(measure(address, way, chosen.tasks or tasks)), flush=True)
    finally:
        server.end()


if __name__ == "__main__":
    main()
