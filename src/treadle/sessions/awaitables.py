"""Awaitables: what a session knows at once, and looks up in its journal where it is awaited."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Self, TypeVar

from treadle.events import AnyEvent
from treadle.ports import Journal
from treadle.state import Approval, Doubt

__all__ = ["Approvals", "Doubts", "SessionEvents"]


_One = TypeVar("_One")


class _Found(tuple[_One, ...]):  # noqa: SLOT001 - it carries what looks into the journal again
    """What a session knows of something. Await it to look into the journal again first."""

    _look: Callable[[], Awaitable[Self]]

    def __new__(cls, found: Iterable[_One], look: Callable[[], Awaitable[Self]]) -> Self:
        made = super().__new__(cls, found)
        made._look = look
        return made

    def __await__(self) -> Generator[Any, None, Self]:
        return self._look().__await__()


class Approvals(_Found[Approval]):
    """The requests for consent that wait for an answer. Await it to look into the journal again first."""


class Doubts(_Found[Doubt]):
    """The calls in doubt. Await it to look into the journal again first, and to leave out what another process carries out."""


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
