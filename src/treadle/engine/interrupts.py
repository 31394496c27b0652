"""Interrupts: what cuts into a run from outside: a person's cancel, or the wall-time budget. Knows no tool, no model."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from treadle.errors import RunHandedOver
from treadle.ports import Clock, Timer
from treadle.redaction import redacted_logger
from treadle.stops import Stop, StopReason

__all__ = ["CancelScope", "Gate", "Interrupt", "wait_at_most", "wait_until_recorded"]

logger = redacted_logger(__name__)


class Interrupt:
    """One per run. Trips once; everything that waits in the run waits for it too."""

    def __init__(self, clock: Clock) -> None:
        self.stop: Stop | None = None
        self.signals: tuple[Stop, ...] = ()
        """Everything that was to end the run, in order; the first is `stop`."""
        self.begun = clock.monotonic()
        """When the run's time began to count, by the monotonic clock."""
        self._clock = clock
        self._is_urgent = False
        self._on_trip: dict[Callable[[], None], None] = {}  # ordered: a run replays the same way in every process
        self._wall: Timer | None = None
        self._ends_at: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Running time that the run has left; None for no limit. A pause that outlasts it is not worth beginning."""
        return None if self._ends_at is None else max(self._ends_at - self._clock.monotonic(), 0.0)

    @property
    def is_patient(self) -> bool:
        """Whether a call that asks for it may still end by itself: a person cancelled, and nothing presses."""
        return self.stop is not None and self.stop.reason is StopReason.CANCELLED and not self._is_urgent

    def trip(self, stop: Stop, *, is_urgent: bool = False) -> None:
        """End the run for this reason. The first reason stays."""
        self._is_urgent = self._is_urgent or is_urgent
        self.signals = (*self.signals, stop)
        if self.stop is None:
            self.stop = stop
            for act in tuple(self._on_trip):
                act()

    def on_trip(self, act: Callable[[], None]) -> None:
        """Call back once when the run is to end; at once where it is to already."""
        if self.stop is None:
            self._on_trip[act] = None
        else:
            act()

    def begin(self) -> None:
        """Count the run's time from now."""
        self.begun = self._clock.monotonic()

    def trip_after(self, seconds: float, stop: Stop) -> None:
        """End the run after so many seconds, unless it has ended by then."""
        self._ends_at = self._clock.monotonic() + seconds
        self._wall = self._clock.call_later(seconds, lambda: self.trip(stop))

    def disarm(self) -> None:
        """Let go of the timer: the run has ended."""
        if self._wall is not None:
            self._wall.cancel()

    async def wait_for(self, future: "asyncio.Future[Any]", seconds: float | None = None) -> bool:
        """Wait until the future is done, the run is interrupted, or the time is up.

        Returns:
            Whether the future is done. Never raises for what it holds.
        """
        if not future.done():
            gate = Gate()
            future.add_done_callback(gate.open)
            try:
                await self._pass(gate, seconds)
            finally:
                future.remove_done_callback(gate.open)
        return future.done()

    async def sleep(self, seconds: float) -> bool:
        """Wait so long, or until the run is interrupted. Return whether the whole time passed."""
        await self._pass(Gate(), seconds)
        return self.stop is None

    async def _pass(self, gate: "Gate", seconds: float | None) -> None:
        """Wait until the gate is opened: by its owner, by an interrupt, or by time."""
        if self.stop is not None:
            return
        timer = None if seconds is None else self._clock.call_later(seconds, gate.open)
        self._on_trip[gate.open] = None
        try:
            await gate.opened
        finally:
            self._on_trip.pop(gate.open, None)
            if timer is not None:
                timer.cancel()

    def cancel_scope(self) -> "CancelScope":
        """Let an interrupt cut short what the body awaits.

        Example:
            with interrupt.cancel_scope() as scope:
                response = await receive()
            if scope.has_cut: ...
        """
        return CancelScope(self._on_trip, is_over=self.stop is not None)


class Gate:
    """What one waits at and others open, once."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self, _: object = None) -> None:
        if not self.opened.done():
            self.opened.set_result(None)


class CancelScope:
    """A `with` whose body is cancelled by an interrupt, and by nobody else; then it ends without an error.

    Like `asyncio.timeout`, it needs no task of its own.
    """

    def __init__(self, on_trip: dict[Callable[[], None], None], *, is_over: bool) -> None:
        self.has_cut = False
        """Whether the interrupt came while the body ran."""
        self._on_trip = on_trip
        self._is_over = is_over
        self._soon: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._on_trip[self._cut] = None
        if self._is_over:
            self._cut()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._on_trip.pop(self._cut, None)
        if self._soon is not None:
            self._soon.cancel()
        if not self.has_cut:
            return False
        is_only_ours = self._task.uncancel() <= self._cancelling
        return is_only_ours and isinstance(error, asyncio.CancelledError)

    def _cut(self) -> None:
        # Soon, not now: who trips the interrupt may be the body itself, and a task that runs is cancelled at its next await.
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        self.has_cut = True
        self._task.cancel()


async def wait_at_most(clock: Clock, future: "asyncio.Future[Any]", seconds: float) -> None:
    """Wait until the future is done, but no longer than so many seconds."""
    if future.done():
        return
    gate = Gate()
    timer = clock.call_later(seconds, gate.open)
    future.add_done_callback(gate.open)
    try:
        await gate.opened
    finally:
        timer.cancel()
        future.remove_done_callback(gate.open)


async def wait_until_recorded(work: "asyncio.Future[Any]", *, known: BaseException | None = None) -> None:
    """Wait until interrupted work has recorded its results; a second cancellation does not lose them (TF10).

    Args:
        known: The error that the caller gets anyway: where the work raised this very one, it is not logged.
    """
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            continue
    error = None if work.cancelled() else work.exception()
    if error is not None and error is not known and not isinstance(error, RunHandedOver):
        logger.error("Recording the results of a cancelled run failed", exc_info=error)
