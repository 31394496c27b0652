"""Treadle with every run in a durable session of one SQLite file."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from treadle_peer import Agents, Treadle, harness

from treadle import open_journal, open_session
from treadle.ports import Journal


class DurableTreadle(Treadle):
    """Sessions of one journal, opened at the first run and closed with the process.

    Args:
        path: Of the journal; a new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal: Journal | None = None

    async def run(self, agent: Agents) -> str:
        async with open_session(await self._open_journal()) as session:
            return (await agent.whole.run(harness.TASK, session=session)).text

    async def stream(self, agent: Agents, on_text: Callable[[str], None]) -> str:
        async with (
            open_session(await self._open_journal()) as session,
            agent.streaming.stream(harness.TASK, session=session) as run,
        ):
            async for event in run:
                if event.type == "model.delta" and event.text:
                    on_text(event.text)
        return run.result.text

    async def close(self) -> None:
        if self._journal is not None:
            await self._journal.close()

    async def _open_journal(self) -> Journal:
        if self._journal is None:
            self._journal = await open_journal(self._path)
        return self._journal


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        harness.main(DurableTreadle(Path(folder) / "journal.db"))
