"""How fast the page answers with many sessions and many waiting approvals: `python benchmarks/web.py [--sessions N] [--waiting N]`.

Everything runs in one process on loopback: the times are those of the server alone, by its own clock, as minimum and median of twenty requests.
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from pathlib import Path

from treadle import Agent, open_journal, open_session, submit, tool
from treadle.testing import ScriptedModel
from treadle.web import views
from treadle.web.access import Person
from treadle.web.snapshot import Snapshot


@tool(effect="unsafe")
async def pay(account: str) -> str:
    """Pay an account."""
    return "paid"


async def fill(journal, sessions: int, waiting: int) -> None:
    gate = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with gate, open_session(journal) as session:
            await session.change(metadata={"tenant": f"t{number % 7}"})
            turns = [{"calls": [{"name": "pay", "arguments": {"account": str(number)}}]}, {"text": "Paid."}]
            await Agent(ScriptedModel(turns), tools=[pay], name=f"agent{number % 5}").run(
                f"Pay {number}", session=session
            )

    await asyncio.gather(*(one(number) for number in range(waiting)))
    for number in range(sessions - waiting):
        await submit(journal, f"agent{number % 5}", f"Look into ticket {number}", tenant=f"t{number % 7}")


def timed(name: str, work) -> None:
    took = []
    for _ in range(20):
        begun = time.perf_counter()
        work()
        took.append((time.perf_counter() - begun) * 1000)
    print(f"{name:<40} {min(took):8.1f} ms least {statistics.median(took):8.1f} ms median")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=1000)
    given = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(Path(folder) / "agent.db") as journal:
            await fill(journal, given.sessions, given.waiting)
            begun = time.perf_counter()
            snapshot = await Snapshot(journal).ready()
            while snapshot.unread:
                await snapshot.refresh()
            print(f"read {given.sessions} sessions, {given.waiting} of which wait: {time.perf_counter() - begun:.1f} s")
            begun = time.perf_counter()
            await snapshot.refresh()
            print(f"read again: {(time.perf_counter() - begun) * 1000:.0f} ms")
            ada = Person(name="ada", role="operate", proof="link")
            timed("sessions, first page", lambda: views.listing(snapshot, ada))
            timed("sessions, page 90", lambda: views.listing(snapshot, ada, page=90))
            timed("sessions, filtered by text", lambda: views.listing(snapshot, ada, {"text": "ticket 99"}))
            timed("inbox, first page", lambda: views.inbox(snapshot, ada))
            timed("fleet", lambda: views.fleet(snapshot))
            timed("costs", lambda: views.costs(snapshot, ada, by="tenant", days=30))
            await snapshot.close()


if __name__ == "__main__":
    asyncio.run(main())
