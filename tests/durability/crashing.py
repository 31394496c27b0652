"""What the crash tests share: a scene with a world, children that die in it, and the count of what they did. Kills only its own."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from crash_child import Job

import treadle
from treadle.events import AnyEvent
from treadle.journals.sqlite import open_sqlite
from treadle.sessions.session import fold
from treadle.state import SessionState

HERE = Path(__file__).resolve().parent
EFFECTS = ("read", "idempotent", "keyed", "unsafe")


class Ended:
    """How one child ended."""

    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.report = report

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def __repr__(self) -> str:
        return f"Ended({self.code}, {self.report})"


class Children:
    """Starts children one after the other, each a process of its own."""

    def __init__(self, mother: asyncio.subprocess.Process) -> None:
        self._mother = mother

    async def run(self, job: Job, *, on_start: Callable[[int], None] = lambda pid: None) -> Ended:
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        Path(job.out).unlink(missing_ok=True)
        self._mother.stdin.write(json.dumps(treadle_json(job)).encode() + b"\n")
        await self._mother.stdin.drain()
        on_start(int(await self._mother.stdout.readline()))
        code = int(await self._mother.stdout.readline())
        out = Path(job.out)
        return Ended(code, json.loads(out.read_text()) if out.exists() and out.stat().st_size else {})


def treadle_json(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__struct_fields__}


@asynccontextmanager
async def children(**variables: str) -> AsyncIterator[Children]:
    """Give what starts children, with these variables in their environment as well."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), **variables}
    mother = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "crash_child.py"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        yield Children(mother)
    finally:
        assert mother.stdin is not None
        mother.stdin.close()
        await mother.wait()


class World:
    """The effects server, seen from the tests."""

    def __init__(self, port: int, path: Path) -> None:
        self.port = port
        self._path = path

    def acts(self, session: str = "s") -> list[dict[str, Any]]:
        """Everything that was asked to be done, in order."""
        if not self._path.exists():
            return []
        acts = (json.loads(line) for line in self._path.read_text().splitlines())
        return [act for act in acts if act["session"] == session]

    def requests(self, session: str = "s") -> dict[int, int]:
        """How often each of the two acts was asked for."""
        return dict(Counter(act["n"] for act in self.acts(session)))

    def duplicates(self, session: str = "s") -> list[str]:
        """What was done twice, or asked for under two keys."""
        acts = self.acts(session)
        acted = Counter(act["n"] for act in acts if act["has_acted"] and act["effect"] != "read")
        keys: dict[int, set[str]] = {}
        for act in acts:
            keys.setdefault(act["n"], set()).add(act["do"])
        twice = [f"act {n} was done {count} times" for n, count in acted.items() if count > 1]
        return twice + [f"act {n} has the keys {sorted(used)}" for n, used in keys.items() if len(used) > 1]


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[World]:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "effects_server.py"),
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield World(int(await server.stdout.readline()), path)
    finally:
        server.stdin.close()
        await server.wait()


async def stored(journal: str | Path, session: str = "s") -> tuple[Sequence[AnyEvent], SessionState]:
    """Return what a journal holds of the session, as a process that starts now sees it."""
    store = await (treadle.open_journal(journal) if str(journal).startswith("postgresql:") else open_sqlite(journal))
    try:
        events = await store.read(session)
    finally:
        await store.close()
    return events, fold(session, events)


async def answer_all(journal: str | Path, answer: Any = "allow", *, session: str = "s") -> int:
    """Answer every request for consent that waits, from this process. Return how many there were."""
    async with treadle.open_session(journal, id=session) as opened:
        waiting = opened.approvals()
        for approval in waiting:
            await opened.answer(approval.id, answer)
        return len(waiting)
