"""Limits: how many calls of a run may be under way at once, and how long those of one response may take together. Ends no call.

Whoever starts a call holds a slot, and gives it back at its end.
"""

import asyncio
from types import TracebackType
from typing import Self

from treadle.ports import Clock

__all__ = ["BatchTime", "Held", "Slots"]

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

    def transfer(self) -> "Held":
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


class BatchTime:
    """Runs from the first call of a response that starts until its last has ended. Waiting for a person does not count.

    Args:
        seconds: What the calls of one response may take together; None for no limit.
    """

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begun: float | None = None

    def begin(self) -> None:
        """A call starts. Only the first of a response begins the time."""
        if self.seconds is not None and self._begun is None:
            self._begun = self._clock.monotonic()

    def end(self) -> None:
        """The calls of the response have ended, or its response is discarded: the next one has the whole time."""
        self._begun = None

    @property
    def left(self) -> float | None:
        """Seconds that the calls still have; None for no limit."""
        if self.seconds is None:
            return None
        passed = 0.0 if self._begun is None else self._clock.monotonic() - self._begun
        return max(self.seconds - passed, 0.0)

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and self.left == 0.0

    def within(self, seconds: float | None) -> float | None:
        """Return the shorter of a call's own limit and what the batch has left; None for neither."""
        if self.seconds is None or (left := self.left) is None:
            return seconds
        return left if seconds is None else min(seconds, left)
