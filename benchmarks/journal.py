"""What the journal in a SQLite file costs, and whether a step costs more in a long session. In process, without a network.

python benchmarks/journal.py
python benchmarks/journal.py --rounds 5 --steps 2000
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from treadle import Agent, Budget, open_journal, open_session, tool
from treadle.events import MessageAdded
from treadle.journals.backend import chain, rows_of
from treadle.messages import Text, ToolCall, Usage, user_message
from treadle.ports import Journal, ModelEnd, ModelRequest

CROWD = 100
TURNS = 100
ROUNDS_OF_SUMS = 100
EVENTS = 10_000
POINTS = (100, 1_000, 10_000)
SPAN = 100
"""Steps that are measured together, up to each point."""
NO_LIMIT = Budget(max_model_turns=None, max_tool_calls=None, max_wall_time_seconds=None)


class Caller:
    """A model that calls the tool so many times, whatever the history, and notes the CPU time of each request."""

    name = "benchmark:caller"
    price = None

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self.at: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEnd]:
        self.at.append(time.process_time())
        number = len(self.at)
        asks = ToolCall(id=f"c{number}", name="look", arguments=f'{{"key": "k{number}"}}')
        yield ModelEnd(parts=(asks if number <= self._calls else Text("done"),), usage=Usage())


@tool(effect="read")
async def look(key: str) -> str:
    """Look up a key."""
    return key * 100


async def main(*, rounds: int, steps: int) -> None:
    """Print a table; of several rounds the least disturbed one."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(Path(folder) / "journal.db") as journal:
            await _events_per_second(journal, "warm")
            rates = [await _events_per_second(journal, f"crowd{at}") for at in range(rounds)]
            bare = min([await _seconds_per_turn(None, "") for _ in range(rounds)])
            journaled = min([await _seconds_per_turn(journal, f"turns{at}") for at in range(rounds)])
            sums = await _seconds_of_sums(journal, "turns0")
            opening = await _seconds_to_open(journal)
        kept = await _seconds_per_step(None, steps)
        async with open_journal(Path(folder) / "long.db") as journal:
            stored = await _seconds_per_step(journal, steps)
    print("| Measure | Value |")
    print("|---|---|")
    print(f"| Durable events a second, {CROWD} sessions side by side | {max(rates):,.0f} |")
    print(f"| CPU of a turn, in memory | {bare * 1e3:.2f} ms |")
    print(f"| CPU that the journal adds to a turn | {(journaled - bare) * 1e3:.2f} ms |")
    print(f"| CPU of the checksums of a turn | {sums * 1e6:.0f} us, {sums / journaled:.1%} of a journaled turn |")
    print(f"| Opening a session of {EVENTS:,} events, wall time | {opening * 1e3:.0f} ms |")
    for point, seconds in kept.items():
        print(f"| CPU of a step at step {point:,}, in memory | {seconds * 1e3:.2f} ms |")
    for point, seconds in stored.items():
        print(f"| CPU of a step at step {point:,}, journaled | {seconds * 1e3:.2f} ms |")


async def _events_per_second(journal: Journal, prefix: str) -> float:
    async def append(session_id: str) -> None:
        await journal.create(session_id)
        for seq in range(1, 21):
            event = MessageAdded(session_id=session_id, seq=seq, at=1.0, message=user_message("x" * 200))
            await journal.append(session_id, [event], state="running", durable=True)

    begun = time.perf_counter()
    await asyncio.gather(*(append(f"{prefix}-{at}") for at in range(CROWD)))
    return CROWD * 20 / (time.perf_counter() - begun)


async def _run(journal: Journal | None, session_id: str, calls: int) -> list[float]:
    model = Caller(calls)
    agent = Agent(model, tools=[look], budget=NO_LIMIT)
    if journal is None:
        await agent.run("Look.")
    else:
        async with open_session(journal, id=session_id) as session:
            await agent.run("Look.", session=session)
    return model.at


async def _seconds_per_turn(journal: Journal | None, session_id: str) -> float:
    """Return the CPU of a turn, all threads and the opening of the session included."""
    begun = time.process_time()
    await _run(journal, session_id, TURNS)
    return (time.process_time() - begun) / TURNS


async def _seconds_of_sums(journal: Journal, session_id: str) -> float:
    """Return the CPU of the checksums that a turn's events get."""
    rows = [(row[0], row[4]) for row in rows_of(await journal.read(session_id))]
    begun = time.process_time()
    for _ in range(ROUNDS_OF_SUMS):
        chain(session_id, None, rows)
    return (time.process_time() - begun) / ROUNDS_OF_SUMS / TURNS


async def _seconds_to_open(journal: Journal) -> float:
    await journal.create("whole")
    events = [
        MessageAdded(session_id="whole", seq=seq, at=1.0, message=user_message("x" * 200))
        for seq in range(1, EVENTS + 1)
    ]
    await journal.append("whole", events, state="active", durable=True)
    begun = time.perf_counter()
    async with open_session(journal, id="whole"):
        return time.perf_counter() - begun


async def _seconds_per_step(journal: Journal | None, steps: int) -> dict[int, float]:
    """Return the CPU of a step at each point of one long session."""
    at = await _run(journal, "long", steps)
    return {point: (at[point] - at[point - SPAN]) / SPAN for point in POINTS if point <= steps}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what the journal costs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    asked = parser.parse_args()
    asyncio.run(main(rounds=asked.rounds, steps=asked.steps))
