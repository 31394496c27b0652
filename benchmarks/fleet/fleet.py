"""A fleet of worker processes on one journal: begun, killed, stopped and continued by the scenarios. Decides nothing."""

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec
from fleet.member import Act, Member, Spread

from postgres_server import PostgresServer, find_binaries
from treadle import submit
from treadle.errors import JournalError
from treadle.workers import list_workers

MEMBER = Path(__file__).resolve().parent / "member.py"
LOOK_SECONDS = 0.02
READY_SECONDS = 120.0


class Fleet:
    """Worker processes that share one journal."""

    def __init__(self, member: Member, journal: Any, server: PostgresServer | None) -> None:
        self.member = member
        self.journal = journal
        self.server = server
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.acts: list[Act] = []
        self._begun = 0
        self._read = 0

    async def begin(self, count: int = 1) -> None:
        """Start workers; they need a moment until they work."""
        for _ in range(count):
            self._begun += 1
            name = f"w{self._begun}"
            options = msgspec.json.encode(msgspec.structs.replace(self.member, name=name)).decode()
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, str(MEMBER), options,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip

    async def ready(self, count: int) -> None:
        """Return when so many workers are at work."""
        async with asyncio.timeout(READY_SECONDS):
            while len(await list_workers(self.journal)) < count:
                await asyncio.sleep(0.1)

    def look(self) -> list[Act]:
        """Return what was done so far."""
        with Path(self.member.acts).open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        self.acts += [msgspec.json.decode(line, type=Act) for line in whole.splitlines()]
        return self.acts

    async def until(self, condition: Callable[[list[Act]], object], seconds: float) -> None:
        """Return when what was done fulfils a condition."""
        async with asyncio.timeout(seconds):
            while not condition(self.look()):
                await asyncio.sleep(LOOK_SECONDS)

    async def at_work(self) -> list[str]:
        """Return the living workers that have done something, when all but one have: who died is replaced first."""
        others = len(self.processes) - 1
        await self.until(lambda acts: len({act.worker for act in acts} & set(self.processes)) >= others, READY_SECONDS)
        seen = {act.worker for act in self.acts}
        return [name for name in self.processes if name in seen]

    async def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    async def end(self) -> None:
        for name in list(self.processes):
            await self.kill(name)


@asynccontextmanager
async def fleet_of(spread: Spread, **options: Any) -> AsyncIterator[Fleet]:
    """Give a fleet without workers on an empty journal; a PostgreSQL of its own where the spread needs one."""
    server = None if spread == "file" else PostgresServer(find_binaries())
    with tempfile.TemporaryDirectory(prefix="treadle-fleet-") as folder:
        acts = Path(folder) / "acts"
        acts.touch()
        if server is not None:
            server.start()
        address = f"{folder}/agent.db" if server is None else server.new_url()
        member = Member(address=address, acts=str(acts), spread=spread, **options)
        from fleet.member import journal_of

        journal = await journal_of(member)
        fleet = Fleet(member, journal, server)
        try:
            yield fleet
        finally:
            await fleet.end()
            with suppress(JournalError):
                await journal.close()
            if server is not None:
                server.end()


class Feeding:
    """Keeps tasks waiting, so that workers always have something to do."""

    def __init__(self, fleet: Fleet, agent: str, *, backlog: int) -> None:
        self._fleet = fleet
        self._agent = agent
        self._backlog = backlog
        self._task: asyncio.Task[None] | None = None
        self.ids: set[str] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._feed())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _feed(self) -> None:
        number = 0
        while True:
            ended = sum(act.what == "end" for act in self._fleet.look())
            while len(self.ids) - ended < self._backlog:
                number += await self._submitted(number)
            await asyncio.sleep(0.1)

    async def _submitted(self, number: int) -> int:
        """Submit a task; it is named by a key, so that one of unknown outcome is submitted again."""
        try:
            self.ids.add(await submit(self._fleet.journal, self._agent, f"Task {number}", key=f"task {number}"))
        except JournalError:
            await asyncio.sleep(0.2)
            return 0
        return 1


def quantiles(seconds: Iterable[float]) -> dict[str, float]:
    """Return median, 95th percentile and maximum in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {
        "p50_ms": round(statistics.median(ordered) * 1000, 1),
        "p95_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] * 1000, 1),
        "most_ms": round(ordered[-1] * 1000, 1),
    }


async def reading(ask: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Ask a journal that may be away."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except JournalError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.3)
