"""Batches: the time that the calls of one response may take together. Measures it; ends no call."""

from treadle.ports import Clock

__all__ = ["BatchTime"]


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
