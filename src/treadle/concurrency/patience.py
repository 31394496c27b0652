"""Patience: how long a run still waits for its store once the run is to end. Knows no store.

A run waits for its store as long as the store allows. When it is cancelled, loses its lease or reaches a limit, it waits
for a moment only: a server that takes bytes and answers nothing must not delay the end.
"""

import asyncio
from contextvars import ContextVar
from typing import TypeVar

from treadle.errors import JournalError

__all__ = ["CURRENT", "FIRST_SECONDS", "NEXT_SECONDS", "Patience", "StoreSilent", "answer_of"]

_T = TypeVar("_T")

FIRST_SECONDS = 0.4
"""How long a store may take to answer after the end of a run was asked for."""
NEXT_SECONDS = 0.03
"""The same for a store that has not answered in that time."""


class StoreSilent(JournalError):
    """The store did not answer in time. What was handed to it may still be stored."""


class Patience:
    """The patience of one run. To be used on one event loop."""

    def __init__(self, *, seconds: float | None = None) -> None:
        """Make the patience of a run.

        Args:
            seconds: How long to wait for each answer; None for as long as the store allows.
        """
        self._waiting: dict[asyncio.Future[object], str] = {}
        self._seconds = seconds

    @property
    def is_hurried(self) -> bool:
        """Whether the store is waited for a moment only."""
        return self._seconds is not None

    def hurry(self) -> None:
        """From now on wait for the store for a moment only."""
        if self._seconds is None:
            self._seconds = FIRST_SECONDS
            for future in tuple(self._waiting):
                self._limit(future)

    async def wait(self, future: "asyncio.Future[_T]", place: str) -> _T:
        """Wait for the store's answer.

        Raises:
            StoreSilent: The run is to end, and the answer did not come in time.
        """
        known: asyncio.Future[object] = future  # type: ignore[assignment]  # only whether it is done is asked
        self._waiting[known] = place
        if self._seconds is not None:
            self._limit(known)
        try:
            return await future
        finally:
            del self._waiting[known]

    def _limit(self, future: "asyncio.Future[object]") -> None:
        assert self._seconds is not None
        future.get_loop().call_later(self._seconds, self._give_up, future)

    def _give_up(self, future: "asyncio.Future[object]") -> None:
        if future.done() or future not in self._waiting:
            return
        self._seconds = NEXT_SECONDS
        future.set_exception(
            StoreSilent(
                f"The journal {self._waiting[future]} does not answer. What was handed to it may not be stored. Check its "
                "server, then resume the session."
            )
        )


CURRENT: ContextVar[Patience | None] = ContextVar("treadle_patience", default=None)
"""The patience of the run that this code belongs to."""


async def answer_of(future: "asyncio.Future[_T]", place: str, *, instead: Patience | None = None) -> _T:
    """Wait for a store's answer as long as the current run allows.

    Args:
        instead: The patience to have instead, where the store owes somebody an answer already.

    Raises:
        StoreSilent: The run is to end, and the answer did not come in time.
    """
    patience = instead or CURRENT.get()
    return await (future if patience is None else patience.wait(future, place))
