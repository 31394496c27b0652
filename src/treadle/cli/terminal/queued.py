"""Queued: what a person enters while something is under way. It goes to the model with the results of a step, or is the next task.

Nothing that was entered is dropped: what cannot be left for a run is kept here. It draws nothing.
"""

import asyncio
from collections import deque

from treadle import Run, Session
from treadle.cli.output.text import one_line
from treadle.cli.terminal.faces import Face
from treadle.ports import Journal

__all__ = ["Queued"]


class Queued:
    """What waits in one conversation."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._held: deque[str] = deque()
        """What was entered while no calls were under way."""
        self._leaving: set[asyncio.Task[None]] = set()

    def hold(self, text: str) -> None:
        """Keep a text for the next step, or as the next task."""
        self._held.append(text)
        self._tell(text)

    def leave(self, run: Run, text: str) -> None:
        """Leave a run a text, and say so once it will be read with the results of this step."""
        self.pass_on(run)
        self._begin(run, text, is_told=False)

    def pass_on(self, run: Run) -> None:
        """Leave a run what is kept: it is added after the results of the step that is under way."""
        while self._held:
            self._begin(run, self._held.popleft(), is_told=True)

    async def taken(self, session: Session, journal: Journal) -> str | None:
        """Return what was entered and no step took in, and keep it no more; None where there is nothing."""
        while self._leaving:
            await asyncio.wait(self._leaving)
        left = [one for one in await journal.inbox(session.id) if one.kind == "message"]
        texts = [str(getattr(one, "text", "")) for one in left]
        if left:
            await journal.consume(session.id, [one.id for one in left], session.state.head)
        texts += self._held
        self._held.clear()
        return "\n\n".join(text for text in texts if text) or None

    def _begin(self, run: Run, text: str, *, is_told: bool) -> None:
        task = asyncio.create_task(self._leave(run, text, is_told=is_told))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, run: Run, text: str, *, is_told: bool) -> None:
        try:
            await run.steer(text)
        except Exception:  # noqa: BLE001 - the run ends in this moment, or its journal is away: the text is the next task
            self._held.append(text)
        if not is_told:
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._face.tell(f"Queued: {one_line(text, 200)}")
