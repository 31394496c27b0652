"""Retries: which failures may be tried again, and how long to wait. Pure values; sleeps nowhere."""

from treadle.errors import ModelError, Rejected, Transient
from treadle.tools import Effect

__all__ = ["backoff_seconds", "may_retry_call", "model_wait_seconds", "retry_after_note"]

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
LONGEST_MODEL_WAIT_SECONDS = 120.0
"""A provider that asks for a longer pause is not waited for: the run ends and says so."""


def backoff_seconds(attempt: int, chance: float) -> float:
    """Return the pause after failed attempt number `attempt`: exponential with full jitter.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog (2015): sleep = random(0, min(cap, base * 2^n)).

    Args:
        attempt: 1 for the first.
        chance: From 0 up to 1.
    """
    ceiling = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempt, 16))
    return ceiling * chance


def may_retry_call(effect: Effect, error: BaseException) -> bool:
    """Whether a call of this effect that raised this error may simply run again (design section 1).

    A time limit counts as `TimeoutError`. A service that said no is never asked again by the runtime.
    """
    if effect is Effect.UNSAFE or isinstance(error, Rejected):
        return False
    if effect is Effect.READ:
        return isinstance(error, Exception) and not isinstance(error, TypeError | ValueError)
    return isinstance(error, TimeoutError | ConnectionError | Transient)


def retry_after_note(error: ModelError) -> str:
    """Return the sentence on the wait that a provider asked for, where the run ends instead of waiting; else nothing."""
    asked = error.retry_after_seconds
    return "" if not asked or asked <= 0 else f" It asks to wait {asked:,.0f} s before the next request."


def model_wait_seconds(error: ModelError, attempt: int, chance: float, seconds_left: float | None) -> float | None:
    """Return how long to wait before the next attempt of a model call; None when waiting is pointless.

    The provider's `retry-after` is honoured as a minimum. A wait that outlasts the run's time, or that no person would
    sit through, is not begun.
    """
    wait = backoff_seconds(attempt, chance)
    if error.retry_after_seconds is not None:
        wait = max(wait, error.retry_after_seconds, 0.0)
    if wait > LONGEST_MODEL_WAIT_SECONDS or (seconds_left is not None and wait >= seconds_left):
        return None
    return wait
