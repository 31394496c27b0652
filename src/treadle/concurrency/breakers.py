"""Breakers: stop asking what keeps failing, and try it again now and then. A state machine; reads no clock, calls nothing."""

import msgspec

__all__ = ["Breaker"]


class Breaker:
    """A circuit breaker: closed while all is well, open after so many failures in a row, half open to try once again.

    Source: M. Nygard, "Release It!" (2007), chapter 5.

    Args:
        failures: Failures in a row that open it.
        open_seconds: How long nothing is tried; then one trial is let through, and its outcome decides.
    """

    def __init__(self, *, failures: int = 5, open_seconds: float = 30.0) -> None:
        self._limit = failures
        self._open_seconds = open_seconds
        self._state = _State()

    def seconds_until_trial(self, now: float) -> float:
        """Return how long it stays shut: 0 when a call may be tried now."""
        state = self._state
        if state.opened_at is None:
            return 0.0
        if state.is_trying:
            return self._open_seconds
        return max(state.opened_at + self._open_seconds - now, 0.0)

    def begin(self, now: float) -> bool:
        """Ask to try a call. Return whether it may be; of many that ask while it is half open, only one may."""
        if self.seconds_until_trial(now) > 0:
            return False
        if self._state.opened_at is not None:
            self._state.is_trying = True
        return True

    def succeeded(self) -> None:
        """The call that was tried went well: closed, all counts at zero."""
        self._state = _State()

    def failed(self, now: float) -> None:
        """The call that was tried failed."""
        state = self._state
        state.failures += 1
        if state.is_trying or state.failures >= self._limit:
            state.opened_at, state.is_trying = now, False

    def gave_up(self) -> None:
        """The call that was tried ended without telling anything, as when it was cancelled."""
        self._state.is_trying = False


class _State(msgspec.Struct):
    failures: int = 0
    opened_at: float | None = None
    is_trying: bool = False
