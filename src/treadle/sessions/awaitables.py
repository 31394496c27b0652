"""Awaitables: what a session knows at once, and looks up in its journal where it is awaited."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Self

from treadle.events import AnyEvent
from treadle.ports import Journal
from treadle.state import Approval, Doubt

__all__ = ["Approvals", "Doubts", "SessionEvents"]


class Approvals(tuple[Approval, ...]):  # noqa: SLOT001 - it carries what looks into the journal again
    """The requests for consent that wait for an answer. Await it to look into the journal again first."""

    _look: "Callable[[], Awaitable[Approvals]]"

    def __new__(cls, found: Iterable[Approval], look: "Callable[[], Awaitable[Approvals]]") -> Self:
        made = super().__new__(cls, found)
        made._look = look
        return made

    def __await__(self) -> Generator[Any, None, "Approvals"]:
        return self._look().__await__()


class Doubts(tuple[Doubt, ...]):  # noqa: SLOT001 - as above
    """The calls in doubt. Await it to look into the journal again first, and to leave out what another process carries out."""

    _look: "Callable[[], Awaitable[Doubts]]"

    def __new__(cls, found: Iterable[Doubt], look: "Callable[[], Awaitable[Doubts]]") -> Self:
        made = super().__new__(cls, found)
        made._look = look
        return made

    def __await__(self) -> Generator[Any, None, "Doubts"]:
        return self._look().__await__()


class SessionEvents:
    """A session's events: `await` it for a list, or go through it with `async for`."""

    def __init__(self, journal: Journal, session_id: str, after: int) -> None:
        self._journal = journal
        self._session_id = session_id
        self._after = after

    def __await__(self) -> Generator[Any, None, Sequence[AnyEvent]]:
        return self._journal.read(self._session_id, after=self._after).__await__()

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        for event in await self._journal.read(self._session_id, after=self._after):
            yield event
