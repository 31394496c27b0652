"""Waits: how long a provider asks us to wait, in all the forms in which they do. Sleeps nowhere and knows no dialect."""

import email.utils
import math
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

__all__ = ["asked_seconds", "retry_after_seconds"]

_ASKING = frozenset({None, 429, 503, 529})
"""Statuses whose words may name a wait: elsewhere "try again in 5 minutes" speaks of something else."""

_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
"""Google's `RetryInfo`, such as `"retryDelay": "17s"`."""
_SPAN = r"\d{1,9}(?:\.\d{1,9})?\s*(?:milliseconds?|ms|hours?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_SPANS = re.compile(rf"(?:{_SPAN}\s*)+", re.IGNORECASE)
_TOLD = re.compile(rf"(?:try again|retry) (?:in|after) ({_SPANS.pattern})", re.IGNORECASE)
_NUMBER_AND_UNIT = re.compile(r"([\d.]+)\s*(ms|milli|h|m|s)", re.IGNORECASE)
_ISO = re.compile(r"\d{4}-\d\d-\d\dT")
_INSTANTS = 1e8
"""From here on a number of a reset is an instant, in seconds since 1970: nobody waits three years."""
_MILLISECONDS = 1e11
"""From here on it is in milliseconds."""
_FACTORS = {"ms": 0.001, "milli": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def asked_seconds(status: int | None, *, headers: Mapping[str, str], error_text: str) -> float | None:
    """Return how long the provider asks us to wait; None where it does not say. Of several waits that it tells, the longest.

    Args:
        status: Of the answer; None for an error inside a stream.
        headers: Of the answer, by lower-case name.
        error_text: The error as it came: its own words may name a wait, and inside a stream there is no other form.
    """
    told = [retry_after_seconds(headers)]
    if found := _RETRY_DELAY.search(error_text):
        told.append(float(found[1]))
    if status in _ASKING and (found := _TOLD.search(error_text)):
        told.append(_seconds_of(found[1]))
    if status == 429:
        told += _full_again(headers)
    return max((seconds for seconds in told if seconds is not None), default=None)


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


def _full_again(headers: Mapping[str, str]) -> Iterator[float | None]:
    """Yield when what is used up is there again: `x-ratelimit-reset-requests: 1m12s`, or a limit of all kinds in one header."""
    for kind in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{kind}") == "0":
            yield _until_reset(headers.get(f"x-ratelimit-reset-{kind}", ""), headers.get("date"))
    for name in ("x-ratelimit-reset", "ratelimit-reset"):
        if headers.get(name.replace("reset", "remaining"), "0") == "0":
            yield _until_reset(headers.get(name, ""), headers.get("date"))


def _until_reset(reset: str, date: str | None) -> float | None:
    """Return the seconds until a limit is full again: from a span, a number of seconds, an instant in seconds or milliseconds since 1970, or a date."""
    if _SPANS.fullmatch(reset):
        return _seconds_of(reset)
    number = _number(reset)
    if number is None:
        return _seconds_until(reset, date)
    if number >= _MILLISECONDS:
        number /= 1000
    return max(number - _now(date) if number >= _INSTANTS else number, 0.0)


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
    """Return the seconds to a date, by the server's own clock where it tells the time: ours may be wrong."""
    then = _instant(text)
    return None if then is None else max(then - _now(date), 0.0)


def _now(date: str | None) -> float:
    """Return the instant by the server's own clock, or by ours where it does not tell the time."""
    now = _instant(date) if date else None
    return time.time() if now is None else now


def _instant(text: str) -> float | None:
    """Return the instant of an HTTP date, or of one such as `2026-11-03T10:00:30Z`."""
    if _ISO.match(text):
        try:
            then = datetime.fromisoformat(text)
            return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
