"""One slice of a session, for engines that call a function: the session runs until it ends or waits for somebody."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from treadle import Agent, Worker, submit
from treadle.errors import WorkerNameTaken
from treadle.testing import ScriptedModel, text
from treadle.workers import result

JOURNAL = Path(tempfile.mkdtemp()) / "agent.db"


def make_clerk() -> Agent:
    """Make the agent."""
    return Agent(ScriptedModel([text("Invoice 7 is paid.")]))


class Once:
    """A dispatcher that delivers one session, and ends its worker when the session was let go of."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.worker: Worker | None = None
        self.is_done = False
        self._waiting = [self]

    async def send(self, session_id: str, **_: Any) -> None:
        """Nothing is sent: the engine outside does that."""

    async def next(self) -> "Once":
        """Give the one session, then nothing more."""
        if not self._waiting:
            await asyncio.Event().wait()
        return self._waiting.pop()

    async def end(self, *, is_done: bool, waits: bool = False) -> None:
        """End the worker."""
        self.is_done = is_done
        assert self.worker is not None
        self.worker.stop()

    async def close(self) -> None:
        """Nothing is held."""


async def run_slice(session_id: str) -> bool:
    """Run a session until it ends or pauses. Return whether there was something to do that this process could do."""
    once = Once(session_id)
    once.worker = Worker(JOURNAL, {"clerk": make_clerk}, dispatcher=once, concurrency=1, name=f"slice-{session_id}")
    try:
        await once.worker.run()
    except WorkerNameTaken:  # another process runs a slice of this session now
        return False
    return once.is_done


async def main() -> None:
    session_id = await submit(JOURNAL, "clerk", "Pay invoice 7")
    print(await run_slice(session_id), (await result(JOURNAL, session_id)).text)
    print(await run_slice(session_id))  # it may come twice, or late: there is nothing to do


if __name__ == "__main__":
    asyncio.run(main())
