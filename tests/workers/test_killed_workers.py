"""Workers that are killed: their sessions continue elsewhere, and nothing is done twice."""

import asyncio
import os
import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from treadle import open_journal
from treadle.events import ToolFinished
from treadle.ports import SessionFilter
from treadle.tools import CallStatus
from treadle.workers import submit

HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("TREADLE_WORKER_KILLS", "4"))
WORKERS = 3


class Crew:
    """Worker processes, each replaced when it was killed."""

    def __init__(self, address: str, folder: Path, spread: str) -> None:
        self._address = address
        self._folder = folder
        self._spread = spread
        self._processes: list[asyncio.subprocess.Process] = []
        self._begun = 0

    async def begin(self) -> None:
        self._begun += 1
        self._processes.append(
            await asyncio.create_subprocess_exec(
                sys.executable, str(HERE / "crew.py"), self._address, str(self._folder), f"w{self._begun}", self._spread,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            )
        )  # fmt: skip

    async def kill(self, chance: random.Random) -> None:
        process = self._processes.pop(chance.randrange(len(self._processes)))
        process.kill()
        await process.wait()

    async def end(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.fixture(params=["sqlite", "postgres", "pgqueuer"])
def spread(request: pytest.FixtureRequest) -> str:
    """What spreads the sessions over the workers."""
    kind: str = request.param
    return kind


@pytest.fixture
def address(request: pytest.FixtureRequest, spread: str, tmp_path: Path) -> str:
    url: str = str(tmp_path / "agent.db") if spread == "sqlite" else request.getfixturevalue("postgres_url")
    return url


@pytest.mark.row("N19")
async def test_killed_workers_lose_nothing_and_do_nothing_twice(address: str, spread: str, tmp_path: Path) -> None:
    chance, crew, acts = random.Random(19), Crew(address, tmp_path, spread), tmp_path / "acts"
    acts.touch()
    tasks = 6 * KILLS
    for n in range(tasks):
        await submit(address, "payer", f"Pay {n}")
    for _ in range(WORKERS):
        await crew.begin()
    try:
        seen = 0
        for _ in range(KILLS):
            seen = await more_acts(acts, seen + chance.randint(2, 12))
            await crew.kill(chance)
            await crew.begin()
        async with open_journal(address) as journal, asyncio.timeout(120 + 5 * KILLS):
            while len(await journal.sessions(SessionFilter(phases=("completed",)))) < tasks:
                await asyncio.sleep(0.1)  # sleep: other processes are waited for
    finally:
        await crew.end()
    done = Counter(line.rsplit(" ", 1)[0] for line in acts.read_text().splitlines() if not line.startswith("up "))
    by_key = {}
    for line in acts.read_text().splitlines():
        effect, session, key = line.split(" ")
        if effect != "up":
            by_key.setdefault((effect, session), set()).add(key)
    unsafe = {one: count for one, count in done.items() if one.startswith("unsafe") and count != 1}
    assert unsafe == {}
    acted = {one.partition(" ")[2] for one in done if one.startswith("unsafe")}
    assert await reported_unknown(address, but=acted) == tasks - len(acted)
    assert {one: keys for one, keys in by_key.items() if one[0] in ("keyed", "idempotent") and len(keys) != 1} == {}


async def reported_unknown(address: str, *, but: set[str]) -> int:
    """Return in how many other sessions the model was told that nobody knows whether the unsafe call was carried out."""
    found = 0
    async with open_journal(address) as journal:
        for info in await journal.sessions(SessionFilter(phases=("completed",))):
            results = [event.result for event in await journal.read(info.id) if isinstance(event, ToolFinished)]
            found += info.id not in but and any(one.status is CallStatus.OUTCOME_UNKNOWN for one in results)
    return found


async def more_acts(acts: Path, wanted: int) -> int:
    """Wait until so many acts were written, and return how many there are."""
    async with asyncio.timeout(120):
        while (found := len(acts.read_text().splitlines())) < wanted:
            await asyncio.sleep(0.02)  # sleep: other processes are waited for
    return found
