"""Following a session: its events as they are stored, by this process or by others. Stores nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from treadle.events import AnyEvent, RunFinished, RunResumed, RunStarted, SessionRewound, TaskSubmitted, TaskWithdrawn

__all__ = ["LOOK_SECONDS", "Bells", "follow"]

LOOK_SECONDS = 0.5
"""How often a store is asked for what other processes have stored: as often as a holder looks for messages."""


_TURNS = (RunFinished, RunStarted, RunResumed, SessionRewound, TaskSubmitted, TaskWithdrawn)
"""Events after which a session's run has ended, or has not."""


class Bells(dict[str, set[asyncio.Event]]):
    """The followers of sessions on one event loop, which are notified of what is appended here. Holds those that wait only."""

    def ring(self, session_id: str) -> None:
        """Wake whoever follows the session."""
        for bell in self.get(session_id, ()):
            bell.set()

    def ring_all(self) -> None:
        """Wake everybody who follows: the journal was closed."""
        for session_id in self:
            self.ring(session_id)

    async def wait(self, session_id: str, seconds: float | None) -> None:
        """Return when the session's bell rings, or after so many seconds; None for no limit."""
        bell = asyncio.Event()
        self.setdefault(session_id, set()).add(bell)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await bell.wait()
        finally:
            self[session_id].discard(bell)
            if not self[session_id]:
                del self[session_id]


async def follow(
    read: Callable[[int], Awaitable[Sequence[AnyEvent]]], changed: Callable[[int], Awaitable[None]], after: int
) -> AsyncIterator[AnyEvent]:
    """Give the events after a number as they come, until a run has ended, or a task was withdrawn.

    Args:
        read: Returns the events after a number.
        changed: Returns when there may be events after a number.
    """
    while True:
        is_over = False
        for event in await read(after):
            after = event.seq
            if isinstance(event, _TURNS):
                is_over = isinstance(event, RunFinished | TaskWithdrawn)
            yield event
        if is_over:
            return
        await changed(after)
