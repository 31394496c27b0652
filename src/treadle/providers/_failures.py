"""Failures: from a provider's words to the one exception that says what may be done. Knows the habits of all dialects, sends nothing."""

import email.utils
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from treadle.errors import ContextOverflow, ModelError, ModelRejected, ModelResponseInvalid, ModelUnavailable
from treadle.providers._http import Answer, Endpoint

__all__ = ["event_failure", "excerpt", "not_the_protocol", "read_failure", "retry_after_seconds"]

_MAX_ERROR_BYTES = 64 * 1024
_ERROR_SECONDS = 5.0
"""How long to wait for each piece of an error's words: the status says the most."""

_PASSING = frozenset({408, 409, 425, 429})
_LASTING = frozenset({501, 505})
_OVERFLOW_STATUSES = frozenset({None, 400, 413, 422, 500})

_OVERFLOW = re.compile(
    "context_length_exceeded|exceed_context_size|model_max_prompt_tokens_exceeded|(maximum|max) context|context (length|window|size|limit)"
    "|prompt (is )?too long|maximum prompt length|too many (input )?tokens(?! per)|inputs? (is |tokens )?too long|input token count|range of input length"
    "|reduce the length of the messages|model token limit|tokens_limit_reached|`inputs` (tokens \\+|must have less than)",
    re.IGNORECASE,
)
_OUT_OF_MONEY = re.compile(
    "insufficient_quota|billing_hard_limit|billing_not_active|insufficient_credits", re.IGNORECASE
)
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')
_BAD_KEY = re.compile("api[ _]key[ _](not[ _]valid|invalid|expired|not[ _]found)", re.IGNORECASE)
"""What Gemini says with status 400, where others say 401."""
_REFUSING = re.compile(
    "invalid_|image_|authentication|permission|not_found|unsupported|bad_?request",
    re.IGNORECASE,
)


async def read_failure(answer: Answer, *, key_advice: str) -> ModelError:
    """Return the exception for an answer that is no success.

    Args:
        answer: Its body is read, as far as is useful.
        key_advice: What to check where the key is refused.
    """
    body = await _read_some(answer)
    code, message = _reason(body)
    said = excerpt(message, redact=answer.endpoint.redact)
    opening = f"{answer.endpoint.shown} answered {answer.status}" + (f": {said.rstrip('.')}." if said else ".")
    if 300 <= answer.status < 400:
        return ModelRejected(
            f"{opening} It redirects to {_target(answer)}, and redirects are not followed: set base_url to where the API is.",
            status=answer.status,
        )
    if answer.status in (401, 403) or (answer.status == 400 and _BAD_KEY.search(message)):
        return ModelRejected(f"{opening} {key_advice}", status=answer.status)
    wait = retry_after_seconds(answer.headers)
    if wait is None:
        wait = _told_wait(body)
    return _classify(answer.status, f"{code} {message}", opening, wait)


def event_failure(error: Any, endpoint: Endpoint) -> ModelError:
    """Return the exception for an error that came inside an answer. `error` is the provider's own JSON value."""
    code, message = _reason_of({"error": error})
    number = _status_of(error)
    said = excerpt(message, redact=endpoint.redact)
    opening = f"{endpoint.shown} broke off the answer: {said.rstrip('.') or 'no reason given'}."
    if number is None and _REFUSING.search(code) and not _OVERFLOW.search(f"{code} {message}"):
        return ModelRejected(opening)
    return _classify(number, f"{code} {message}", opening, _told_wait(msgspec.json.encode(error)))


def not_the_protocol(body: bytes, answer: Answer) -> ModelResponseInvalid:
    """Return the exception for a success that is no answer of this dialect."""
    said = excerpt(body[:_MAX_ERROR_BYTES].decode("utf-8", "replace"), redact=answer.endpoint.redact)
    what = f"{said!r} ({answer.content_type or 'no content type'})" if said else "nothing"
    return ModelResponseInvalid(
        f"{answer.endpoint.shown} answered {answer.status} with {what} instead of a model's response. Check base_url: it often ends in /v1.",
        status=answer.status,
    )


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long the provider asks us to wait, from `retry-after-ms` or `retry-after`; None where it does not say.

    A negative wait is none at all; an absurd one is returned as it is: the runtime bounds it.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0.0)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is None and text is not None:
        seconds = _seconds_until(text, headers.get("date"))
    return None if seconds is None else max(seconds, 0.0)


def excerpt(text: str, *, redact: Callable[[str], str] = str, limit: int = 300) -> str:
    """Return the beginning of a text on one line, without secrets. Redacted before it is cut: half a key is a secret too."""
    line = " ".join(redact(text[:_MAX_ERROR_BYTES]).split())
    printable = "".join(character if character.isprintable() else "�" for character in line[:limit])
    return printable + ("..." if len(line) > limit else "")


def _classify(status: int | None, words: str, opening: str, wait: float | None) -> ModelError:
    if status == 413 or (status in _OVERFLOW_STATUSES and _OVERFLOW.search(words)):
        return ContextOverflow(f"{opening} The request is longer than the model's context.", status=status)
    if _OUT_OF_MONEY.search(words) or status == 402:
        return ModelRejected(f"{opening} The account has no credit left: waiting does not help.", status=status)
    if status is None or status in _PASSING or (status >= 500 and status not in _LASTING):
        return ModelUnavailable(opening, status=status, retry_after_seconds=wait)
    advice = " Check the model's name and base_url." if status == 404 else ""
    return ModelRejected(opening + advice, status=status)


async def _read_some(answer: Answer) -> bytes:
    """Read what an error says. When even that breaks, the status alone must do."""
    body = b""
    answer.hasten(_ERROR_SECONDS)
    try:
        while len(body) < _MAX_ERROR_BYTES and (piece := await answer.read()):
            body += piece
    except ModelError:
        pass
    return body[:_MAX_ERROR_BYTES]


def _reason(body: bytes) -> tuple[str, str]:
    """Return the code and the message of an error's body: JSON in one of the usual shapes, or plain text."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", body.decode("utf-8", "replace")
    code, message = _reason_of(value)
    return code, message or body.decode("utf-8", "replace")


def _reason_of(value: Any) -> tuple[str, str]:
    if isinstance(value, list) and value:  # Gemini's compatible endpoint wraps its error into a list
        return _reason_of(value[0])
    if not isinstance(value, dict):
        return "", value if isinstance(value, str) else ""
    inner = value.get("error")
    if isinstance(inner, str):
        return inner, _first_text(value, "message", "detail") or inner
    if isinstance(inner, dict):
        value = inner
    code = " ".join(str(value[name]) for name in ("code", "type", "status") if isinstance(value.get(name), str | int))
    return code, _first_text(value, "message", "detail", "msg", "error")


def _told_wait(body: bytes) -> float | None:
    """Return the wait that an error's own words ask for: Google's `RetryInfo`, such as `"retryDelay": "17s"`."""
    found = _RETRY_DELAY.search(body)
    return float(found[1]) if found else None


def _first_text(value: Mapping[str, Any], *names: str) -> str:
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
        if isinstance(found, list | dict) and found:
            return msgspec.json.encode(found).decode()
    return ""


def _status_of(error: Any) -> int | None:
    """Return the HTTP status that an error inside a stream names as its code, if it names one."""
    if not isinstance(error, dict):
        return None
    for name in ("code", "status", "status_code"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:9])
        if type(value) is int and 400 <= value < 600:
            return value
    return 429 if "rate_limit" in f"{error.get('code')} {error.get('type')}" else None


def _target(answer: Answer) -> str:
    """Name the host of a redirect; the rest of the address may hold a secret."""
    location = answer.headers.get("location", "")
    found = re.match(r"https?://(?:[^/@?#]*@)?([^/?#@]+)", location)
    return excerpt(found[1], limit=100) if found else "another path of the same server"


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
