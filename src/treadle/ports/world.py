"""The ports to the world: time and chance."""

from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "Randomness", "Timer"]


class Timer(Protocol):
    """A call that waits for its time."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time. The only source of it in the core."""

    def now(self) -> float:
        """Seconds since 1970, as people know them; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back on the event loop after so many seconds.

        Args:
            seconds: How long from now; 0 or less for the next turn of the loop.
            callback: Called once, unless the timer is cancelled before.
        """
        ...


class Randomness(Protocol):
    """Chance: jitter and names. The only source of it in the core."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...

    def token(self) -> str:
        """Return a new name: 16 lower-case letters and digits, never seen before."""
        ...
