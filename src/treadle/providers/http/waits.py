"""Waits: how long a provider asks us to wait, in all the forms in which they do. Sleeps nowhere and knows no dialect."""

import email.utils
import math
import re
import time
from collections.abc import Mapping

__all__ = ["asked_seconds", "retry_after_seconds"]

_ASKING = frozenset({None, 429, 503, 529})
"""Statuses whose words may name a wait: elsewhere "try again in 5 minutes" speaks of something else."""

_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
"""Google's `RetryInfo`, such as `"retryDelay": "17s"`."""
_SPAN = r"\d{1,9}(?:\.\d{1,9})?\s*(?:milliseconds?|ms|hours?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_SPANS = re.compile(rf"(?:{_SPAN}\s*)+", re.IGNORECASE)
_TOLD = re.compile(rf"(?:try again|retry) (?:in|after) ({_SPANS.pattern})", re.IGNORECASE)
_NUMBER_AND_UNIT = re.compile(r"([\d.]+)\s*(ms|milli|h|m|s)", re.IGNORECASE)
_FACTORS = {"ms": 0.001, "milli": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def asked_seconds(status: int | None, *, headers: Mapping[str, str], error_text: str) -> float | None:
    """Return how long the provider asks us to wait; None where it does not say.

    Args:
        status: Of the answer; None for an error inside a stream.
        headers: They override the text.
        error_text: The error as it came: its own words may name a wait, and inside a stream there is no other form.
    """
    seconds = retry_after_seconds(headers)
    if seconds is None and (found := _RETRY_DELAY.search(error_text)):
        seconds = float(found[1])
    if seconds is None and status in _ASKING and (found := _TOLD.search(error_text)):
        seconds = _seconds_of(found[1])
    if seconds is None and status == 429:
        seconds = _full_again(headers)
    return seconds


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the wait of `retry-after-ms` or `retry-after`; None where there is none.

    A negative wait counts as no wait; an absurd one is returned as it is: the runtime bounds it.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0.0)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is None and text is not None:
        seconds = _seconds_until(text, headers.get("date"))
    return None if seconds is None else max(seconds, 0.0)


def _full_again(headers: Mapping[str, str]) -> float | None:
    """Return when what is used up is there again, as OpenAI and others say it: `x-ratelimit-reset-requests: 1m12s`."""
    for kind in ("requests", "tokens"):
        reset = headers.get(f"x-ratelimit-reset-{kind}", "")
        if headers.get(f"x-ratelimit-remaining-{kind}") == "0" and _SPANS.fullmatch(reset):
            return _seconds_of(reset)
    return None


def _seconds_of(spans: str) -> float:
    """Return the seconds of spans such as `1m26.4s`, `6ms` or `20 seconds`."""
    return sum(float(number) * _FACTORS[unit.lower()] for number, unit in _NUMBER_AND_UNIT.findall(spans))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def _seconds_until(text: str, date: str | None) -> float | None:
    """Return the seconds to an HTTP date, by the server's own clock where it tells the time: ours may be wrong."""
    then = _instant(text)
    if then is None:
        return None
    now = _instant(date) if date is not None else None
    return then - (time.time() if now is None else now)


def _instant(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
