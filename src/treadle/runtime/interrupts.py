"""Interrupts: what cuts into a run from outside: a person's cancel, or the wall-time budget. Knows no tool, no model."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from treadle.ports import Clock, Timer
from treadle.stops import Stop, StopReason

__all__ = ["Interrupt", "see_through", "wait_at_most"]


logger = logging.getLogger(__name__)


class Interrupt:
    """One per run. Trips once; everything that waits in the run waits for it too."""

    def __init__(self, clock: Clock) -> None:
        self.stop: Stop | None = None
        self._clock = clock
        self._is_urgent = False
        self._tripped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wall: Timer | None = None

    @property
    def is_patient(self) -> bool:
        """Whether a call that asks for it may still end by itself: a person cancelled, and nothing presses."""
        return self.stop is not None and self.stop.reason is StopReason.CANCELLED and not self._is_urgent

    def trip(self, stop: Stop, *, is_urgent: bool = False) -> None:
        """End the run for this reason. The first reason stays."""
        self._is_urgent = self._is_urgent or is_urgent
        if self.stop is None:
            self.stop = stop
            if not self._tripped.done():
                self._tripped.set_result(None)

    def trip_after(self, seconds: float, stop: Stop) -> None:
        """End the run after so many seconds, unless it has ended by then."""
        self._wall = self._clock.call_later(seconds, lambda: self.trip(stop))

    def disarm(self) -> None:
        """Let go of the timer: the run has ended."""
        if self._wall is not None:
            self._wall.cancel()

    async def wait_for(self, futures: Iterable["asyncio.Future[Any]"], seconds: float | None = None) -> bool:
        """Wait until any of the futures is done, the run is interrupted, or the time is up.

        Returns:
            Whether any of the futures is done. Never raises for what a future holds.
        """
        waited = set(futures)
        if any(future.done() for future in waited):
            return True
        timer = None if seconds is None else _Alarm(self._clock, seconds)
        extra = {self._tripped} if timer is None else {self._tripped, timer.future}
        try:
            await asyncio.wait(waited | extra, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        return any(future.done() for future in waited)

    async def sleep(self, seconds: float) -> bool:
        """Wait so long, or until the run is interrupted. Return whether the whole time passed."""
        if self.stop is not None:
            return False
        alarm = _Alarm(self._clock, seconds)
        try:
            await asyncio.wait({self._tripped, alarm.future}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
        return self.stop is None


async def wait_at_most(clock: Clock, futures: Iterable["asyncio.Future[Any]"], seconds: float) -> None:
    """Wait until all of the futures are done, but no longer than so many seconds."""
    alarm = _Alarm(clock, seconds)
    waiting = {future for future in futures if not future.done()}
    try:
        while waiting and not alarm.future.done():
            done, _ = await asyncio.wait(waiting | {alarm.future}, return_when=asyncio.FIRST_COMPLETED)
            waiting -= done
    finally:
        alarm.cancel()


async def see_through(work: "asyncio.Future[Any]") -> None:
    """Wait until interrupted work has recorded its results; a second cancellation does not lose them (TF10)."""
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            continue
    if not work.cancelled() and work.exception() is not None:
        logger.error("Recording the results of a cancelled run failed", exc_info=work.exception())


class _Alarm:
    """A future that is done after some seconds of the clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timer = clock.call_later(seconds, self._ring)

    def _ring(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def cancel(self) -> None:
        self._timer.cancel()
        self.future.cancel()
