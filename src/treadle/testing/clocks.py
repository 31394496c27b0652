"""Clocks and chance that a test controls. They know no agent; anything that takes a Clock or Randomness takes them."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.ports import Timer

__all__ = ["FakeClock", "FixedRandomness"]

_IDLE_ITERATIONS = 50
"""Turns of the event loop without a new timer after which an automatic clock takes the loop for idle."""


class FakeClock:
    """A clock whose time moves only when the test says so.

    With `auto=True` it jumps to the next timer by itself once the event loop has gone round 50 times without a timer being
    made or cancelled. That suits models and tools that are coroutines of this process. What waits for a socket, a thread or
    a process looks idle to it and would be outrun: use `advance` there.

    Example:
        >>> clock = FakeClock()
        >>> rung = []
        >>> _ = clock.call_later(5, lambda: rung.append(clock.monotonic()))
        >>> clock.advance(4.5), rung
        (None, [])
        >>> clock.advance(60), rung
        (None, [5.0])

    Args:
        now: What `now()` says at the start, in seconds since 1970.
        auto: Whether it jumps to the next timer by itself.
    """

    @checked
    def __init__(self, *, now: float = 1_700_000_000.0, auto: bool = False) -> None:
        self._offset = now
        self._monotonic = 0.0
        self._is_auto = auto
        self._timers: list[_FakeTimer] = []
        self._numbers = itertools.count()
        self._watching: asyncio.AbstractEventLoop | None = None
        self._idle = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.waits: list[float] = []
        """The delays that were asked for, in seconds and in order."""

    def now(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return self._offset + self._monotonic

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._monotonic

    @checked
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _FakeTimer(self._monotonic + max(seconds, 0.0), next(self._numbers), callback, self._touch)
        heapq.heappush(self._timers, timer)
        self.waits.append(seconds)
        self._wake_waiters()
        self._touch()
        return timer

    @checked
    def advance(self, seconds: float) -> None:
        """Let seconds pass and call back every timer that falls due, in order, each at its own time.

        Call it on the event loop's thread. Callbacks run inside it; the tasks that they wake run when the loop next does.

        Raises:
            ConfigurationError: Time would go back.
        """
        if not seconds >= 0:
            raise ConfigurationError(
                f"advance() takes 0 seconds or more; got {seconds}. Use shift() to set the time of day back."
            )
        end = self._monotonic + seconds
        while (timer := self._next()) is not None and timer.due <= end:
            self._fire(timer)
        self._monotonic = end

    @checked
    def shift(self, seconds: float) -> None:
        """Set the people's clock forward or back, as an administrator or summer time does. No timer notices."""
        self._offset += seconds

    @checked
    async def wait_waits(self, count: int) -> None:
        """Return when so many delays have been asked for since the start: the moment to `advance`."""
        if len(self.waits) >= count:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((count, future))
        await future

    def _next(self) -> "_FakeTimer | None":
        while self._timers and self._timers[0].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0] if self._timers else None

    def _fire(self, timer: "_FakeTimer") -> None:
        heapq.heappop(self._timers)
        self._monotonic = max(self._monotonic, timer.due)
        timer.callback()

    def _wake_waiters(self) -> None:
        for count, future in self._waiters:
            if len(self.waits) >= count and not future.done():
                future.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if not waiter[1].done()]

    def _touch(self) -> None:
        """Note that something happened, and watch for idleness from now on."""
        self._idle = 0
        if not self._is_auto or self._next() is None:
            return
        loop = asyncio.get_running_loop()
        if self._watching is not loop:
            self._watching = loop
            loop.call_soon(self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        timer = self._next()
        if timer is None:
            self._watching = None
            return
        self._idle += 1
        loop.call_soon(self._check, loop)
        if self._idle >= _IDLE_ITERATIONS:
            self._idle = 0
            self._fire(timer)


class _FakeTimer:
    """One pending callback, ordered by its time and then by age."""

    def __init__(self, due: float, number: int, callback: Callable[[], None], touch: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.is_cancelled = False
        self._number = number
        self._touch = touch

    def cancel(self) -> None:
        self.is_cancelled = True
        self._touch()

    def __lt__(self, other: "_FakeTimer") -> bool:
        return (self.due, self._number) < (other.due, other._number)


class FixedRandomness:
    """Chance that is not: the given numbers in their order, the last one for ever; tokens are counted.

    Example:
        >>> chance = FixedRandomness([0.25, 0.75])
        >>> [chance.random() for _ in range(3)], chance.token()
        ([0.25, 0.75, 0.75], '0000000000000001')

    Args:
        values: Numbers from 0 up to, not including, 1; the last one is repeated.

    Raises:
        ConfigurationError: There is no number, or one is not from 0 up to, not including, 1.
    """

    @checked
    def __init__(self, values: Sequence[float] = (0.5,)) -> None:
        if not values or not all(0 <= value < 1 for value in values):
            raise ConfigurationError(
                f"values must be at least one number from 0 up to, not including, 1; got {shown(values)}."
            )
        self._values = tuple(values)
        self._drawn = 0
        self._tokens = itertools.count(1)

    def random(self) -> float:
        """Return the next value, a number from 0 up to, not including, 1."""
        value = self._values[min(self._drawn, len(self._values) - 1)]
        self._drawn += 1
        return value

    def token(self) -> str:
        return f"{next(self._tokens):016d}"
