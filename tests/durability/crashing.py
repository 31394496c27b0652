"""What the crash tests share: a scene with a world, children that die in it, and the count of what they did. Kills only its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from crash_child import Job

import treadle
from invariants import check_events, check_pairs
from treadle.events import AnyEvent, ChildStarted
from treadle.journals.sqlite import open_sqlite
from treadle.sessions.session import fold
from treadle.state import SessionState

HERE = Path(__file__).resolve().parent
EFFECTS = ("read", "idempotent", "keyed", "unsafe")


def often(cases: Iterable[tuple[Any, ...]], *kept: tuple[Any, ...]) -> list[Any]:
    """Return cases of which `make test` runs those that are kept: each costs two processes. `make soak` runs them all."""
    return [pytest.param(*case, marks=() if case in kept else pytest.mark.soak) for case in cases]


class Ended:
    """How one child ended."""

    def __init__(self, code: int, report: dict[str, Any]) -> None:
        self.code = code
        self.report = report

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def is_completed(self) -> bool:
        return (self.code, self.report.get("reason")) == (0, "completed")

    def __repr__(self) -> str:
        return f"Ended({self.code}, {self.report})"


class Children:
    """Starts children one after the other, each a process of its own, forked from one that has loaded Treadle.

    Args:
        variables: Of their environment, besides that of this process.
    """

    def __init__(self, **variables: str) -> None:
        self._variables = variables
        self._mother: subprocess.Popen[bytes] | None = None
        self._reading = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._mother is not None:
            self._mother.communicate()
        self._reading.shutdown()

    async def run(self, job: Job, *, on_start: Callable[[int], None] = lambda pid: None) -> Ended:
        if self._mother is None:
            self._mother = subprocess.Popen(
                [sys.executable, str(HERE / "crash_child.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(HERE), **self._variables},
            )
        mother, out = self._mother, Path(job.out)
        assert mother.stdin is not None
        assert mother.stdout is not None
        out.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        try:
            mother.stdin.write(msgspec.json.encode(job) + b"\n")
            mother.stdin.flush()
            on_start(int(await loop.run_in_executor(self._reading, mother.stdout.readline)))
            code = int(await loop.run_in_executor(self._reading, mother.stdout.readline))
        except BaseException:  # what it says next would be taken for an answer to the next job
            self._mother = None
            mother.kill()
            mother.wait()
            raise
        return Ended(code, json.loads(out.read_text()) if out.exists() and out.stat().st_size else {})


class World:
    """The outside world: it is asked to act, and remembers each time it was. Children reach it on loopback.

    One JSON object a connection: `{"do": KEY, "effect": ..., "n": ...}` acts, `{"ask": KEY}` asks whether KEY was done.
    """

    def __init__(self) -> None:
        self.port = 0
        self._done: set[str] = set()
        self._acts: list[dict[str, Any]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the one who asks may be dead, as the tests like it
            if line := await reader.readline():
                writer.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
            writer.close()

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if (key := asked.get("ask")) is not None:
            return {"done": key in self._done}
        key = asked["do"]
        # What honours keys, or changes nothing the second time, acts once; anything else acts each time.
        has_acted = asked["effect"] == "unsafe" or key not in self._done
        self._done.add(key)
        self._acts.append({**asked, "has_acted": has_acted})
        return {"done": True}

    def acts(self, session: str = "s") -> list[dict[str, Any]]:
        """Everything that was asked to be done, in order."""
        return [act for act in self._acts if act["session"] == session]

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
async def world() -> AsyncIterator[World]:
    found = World()
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


async def stored(journal: str | Path, session: str = "s") -> tuple[Sequence[AnyEvent], SessionState]:
    """Return what a journal holds of the session, as a process that starts now sees it."""
    store = await (treadle.open_journal(journal) if str(journal).startswith("postgresql:") else open_sqlite(journal))
    try:
        events = await store.read(session)
    finally:
        await store.close()
    return events, fold(session, events)


async def check_whole(journal: str | Path, session: str = "s") -> dict[str, str]:
    """Assert that a session and its children are whole. Return the status of each call's one result, the children's too."""
    events, state = await stored(journal, session)
    check_events(events)
    check_pairs(state.messages, open_ids=set(state.open))
    statuses = {event.call_id or "": event.result.status.value for event in events if event.type == "tool.finished"}
    for child in {event.child_id for event in events if isinstance(event, ChildStarted)}:
        statuses |= await check_whole(journal, child)
    return statuses


async def answer_all(journal: str | Path, answer: Any = "allow", *, session: str = "s") -> int:
    """Answer every request for consent that waits, from this process. Return how many there were."""
    async with treadle.open_session(journal, id=session) as opened:
        waiting = opened.approvals()
        for approval in waiting:
            await opened.answer(approval.id, answer)
        return len(waiting)


class Scene:
    """One session, and what becomes of it."""

    def __init__(self, mother: Children, outside: World, place: str, folder: Path) -> None:
        self._mother = mother
        self._outside = outside
        self.place = place
        self._folder = folder

    def job(self, out: str = "out", **words: Any) -> Job:
        return Job(journal=self.place, port=self._outside.port, out=str(self._folder / out), **words)

    async def run(self, **words: Any) -> Ended:
        """Have a child run or resume the session."""
        return await self._mother.run(self.job(**words))

    async def kill(self, point: str, **words: Any) -> None:
        """Have a child do so that dies at a point."""
        died = await self.run(point=point, **words)
        assert died.was_killed, f"never reached {point}: {died}"

    async def complete(self, **words: Any) -> dict[str, str]:
        """Have a child resume it to its end, and see that there is nothing left to do. Return the status of each call."""
        ended = await self.run(act="again", **words)
        assert ended.is_completed, ended
        assert self._outside.duplicates() == []
        return await check_whole(self.place)

    async def answer(self, answer: str = "allow") -> int:
        return await answer_all(self.place, answer)
