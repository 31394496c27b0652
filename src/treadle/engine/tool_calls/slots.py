"""Slots: how many calls of a run may be under way at once. Whoever starts a call holds one, and gives it back at its end."""

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["Held", "Slots"]

_NO_LIMIT = 1_000_000


class Held:
    """Slots that somebody holds. As a context manager, it gives back at its end those that were not handed on.

    Example:
        with await slots.wait() as held:
            await start(call)
    """

    def __init__(self, free: asyncio.Semaphore, count: int) -> None:
        self._free = free
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep(0)

    def hand_on(self) -> "Held":
        """Return one of them, which its new holder gives back."""
        assert self._count > 0
        self._count -= 1
        return Held(self._free, 1)

    def keep(self, count: int) -> None:
        """Give back all but so many."""
        while self._count > count:
            self._count -= 1
            self._free.release()


class Slots:
    """The slots of one run.

    Args:
        limit: How many calls may be under way at once; None for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._free = asyncio.Semaphore(limit or _NO_LIMIT)

    async def wait(self) -> Held:
        """Wait for one."""
        await self._free.acquire()
        return Held(self._free, 1)

    async def take(self, most: int) -> Held:
        """Take as many as are free, at most these, and wait for none."""
        count = 0
        while count < most and not self._free.locked():
            await self._free.acquire()  # at once, as one is free
            count += 1
        return Held(self._free, count)
