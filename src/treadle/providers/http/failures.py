"""Failures: from a provider's words to the one exception that says what may be done. Knows the habits of all dialects, sends nothing."""

import email.utils
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from treadle.errors import ContextOverflow, ModelError, ModelRejected, ModelResponseInvalid, ModelUnavailable
from treadle.messages import Finish
from treadle.ports import ModelEnd
from treadle.providers.payload import to_json

if TYPE_CHECKING:
    from treadle.providers.http.answer import Answer
    from treadle.providers.http.endpoint import Endpoint

__all__ = [
    "Ending",
    "Meaning",
    "ModelRefused",
    "Wording",
    "Wordings",
    "event_failure",
    "excerpt",
    "failure_of",
    "finish_of",
    "not_the_protocol",
    "read_failure",
    "retry_after_seconds",
    "says",
    "speaks_of_a_break",
    "wordings",
]


# --- Waits: how long a provider asks us to wait, in all the forms in which they do. Sleeps nowhere and knows no
# dialect.

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


def _asked_seconds(status: int | None, *, headers: Mapping[str, str], error_text: str) -> float | None:
    """Return how long the provider asks us to wait; None where it does not say. Of several waits that it tells, the longest."""
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


# --- Wordings: what vendors call an ending, and how they say no. The rows are `wordings.toml` next to this file, which says what
# its fields mean. Decides nothing, sends nothing.

Meaning: TypeAlias = Literal["refused", "no_credit", "too_long"]


class Ending(msgspec.Struct, frozen=True):
    """What words for the end of a response mean."""

    finish: Finish
    words: tuple[str, ...]
    source: str


class Wording(msgspec.Struct, frozen=True):
    """An error whose code or message matches a pattern."""

    pattern: str
    example: str
    source: str
    is_code: bool = False


class Wordings(msgspec.Struct, frozen=True):
    """All rows."""

    ending: tuple[Ending, ...]
    refused: tuple[Wording, ...]
    no_credit: tuple[Wording, ...]
    too_long: tuple[Wording, ...]


@cache
def wordings() -> Wordings:
    """Return the rows, read when a response ends or fails for the first time."""
    import tomllib  # noqa: PLC0415 - loaded with the rows

    text = files("treadle.providers.http").joinpath("wordings.toml").read_text(encoding="utf-8")
    read: Any = tomllib.loads(text)
    return msgspec.convert(read, Wordings)


@cache
def _finishes() -> Mapping[str, Finish]:
    return {word: ending.finish for ending in wordings().ending for word in ending.words}


@cache
def _pattern(meaning: Meaning, *, is_code: bool) -> re.Pattern[str]:
    rows: tuple[Wording, ...] = getattr(wordings(), meaning)
    return re.compile("|".join(row.pattern for row in rows if row.is_code == is_code) or "(?!)", re.IGNORECASE)


def finish_of(word: str) -> Finish:
    """Return what a vendor's word for the end of a response means; UNKNOWN for a word that is not known here."""
    finishes = _finishes()
    return finishes.get(word) or finishes.get(_plain(word), Finish.UNKNOWN)  # most servers write it as the table does


def speaks_of_a_break(word: str) -> bool:
    """Whether a vendor's word for the end of a response means that it was not a natural one, be it a word that is not known here."""
    plain = _plain(word)
    return plain in _finishes() or bool(_BREAK.search(plain))


_BREAK = re.compile(
    "abort|block|cancel|disconnect|error|exceed|fail|filter|incomplete|interrupt|length|limit|max|moderat|not_|paus|pend"
    "|polic|progress|refus|safety|sensitive|time_?out|too_|trunc|unexpected|unsafe"
)
"""What is in the names of endings that are limits, refusals and breaks. An answer before such a word may lack its rest."""


def _plain(word: str) -> str:
    """Return a word in the letters of the tables: gateways write `content-filter` and `contentFilter` too."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", word).replace("-", "_").lower()


def says(meaning: Meaning, code: str, message: str) -> bool:
    """Whether an error has this meaning, whoever sent it."""
    in_code, anywhere = _pattern(meaning, is_code=True), _pattern(meaning, is_code=False)
    return bool(in_code.search(code) or anywhere.search(f"{code} {message}"))


# --- Failures: from a provider's words to the one exception that says what may be done. Knows the habits of all
# dialects, sends nothing.

_MAX_ERROR_BYTES = 64 * 1024
_MAX_WORDS = 8 * 1024
"""Characters of an error's words that are looked at: the reason is at their beginning."""
_ERROR_SECONDS = 5.0
"""How long to wait for each piece of an error's words: the status says the most."""

_PASSING = frozenset({408, 409, 425, 429})
_LASTING = frozenset({501, 505})
_OVERFLOW_STATUSES = frozenset({None, 400, 413, 422, 500})
_POLICY_STATUSES = frozenset({None, 400, 403, 422, 451})

_BLOCKED = 498
"""Cohere's status for words of its deny list, in a request or an answer."""

_BAD_KEY = re.compile(
    "api[ _]key[ _](not[ _]valid|invalid|expired|not[ _]found)|(incorrect|invalid) api[ _]key", re.IGNORECASE
)
"""What Gemini and xAI say with status 400, where others say 401."""
_NEEDS_TEMPLATE = re.compile("requires? --jinja", re.IGNORECASE)
"""What llama.cpp says with status 500 to tools, where it was started without a template that takes them."""
_REFUSING = re.compile(
    "invalid_|image_|_image|authentication|permission|not_found|unsupported|bad_?request|residency",
    re.IGNORECASE,
)
"""Codes of errors inside a stream, where no status tells that they last."""
_PASSING_CODE = re.compile(
    "(throttling|modelnotready|modeltimeout|modelerror|modelstreamerror|serviceunavailable|internalserver)exception",
    re.IGNORECASE,
)
"""Classes of AWS's errors that pass, whatever the status says: a model's own error comes as 424."""
_VERSION = re.compile(r"/v\d")
"""What most base URLs have in their path."""
_BROKEN_CALL = re.compile("tool_use_failed|output_parse_failed", re.IGNORECASE)
"""The model wrote a call that its own server could not read: the next one may be better."""


class ModelRefused(ModelRejected):
    """The vendor's own policy forbids the request or its answer. Adapters make a response of it: see `read_response`."""

    def as_response(self) -> ModelEnd:
        """Return the response that a policy's refusal is."""
        return ModelEnd(parts=(), finish=Finish.REFUSED, finish_reason="content_filter", message=str(self))


async def read_failure(answer: "Answer", *, key_advice: str) -> ModelError:
    """Return the exception for an answer that is not a success.

    Args:
        answer: Its body is read, as far as is useful.
        key_advice: What to check where the key is refused.
    """
    body = await _read_some(answer)
    code, message = _reason(body)
    code = f"{code} {answer.headers.get('x-amzn-errortype', '')}".strip()  # AWS names the class of an error there
    said = excerpt(message, redact=answer.endpoint.redact)
    opening = f"{answer.endpoint.shown} answered {answer.status}" + (f": {said.rstrip('.')}." if said else ".")
    if 300 <= answer.status < 400:
        return ModelRejected(
            f"{opening} It redirects to {_target(answer)}, and redirects are not followed: set base_url to where the API is.",
            status=answer.status,
        )
    is_key = answer.status in (401, 403) or (answer.status == 400 and _BAD_KEY.search(message) is not None)
    is_other = _is_policy(answer.status, code, message) or says("no_credit", code, message)
    if is_key and not is_other:
        return ModelRejected(f"{opening} {key_advice}", status=answer.status)
    wait = _asked_seconds(answer.status, headers=answer.headers, error_text=_words(body))
    if answer.status == 404 and (version := _missing_version(answer.endpoint)):
        opening += f" The base URL often ends in {version}."
    return _classified(answer.status, code, message, opening=opening, wait=wait)


def _missing_version(endpoint: "Endpoint") -> str:
    """Return what the address may lack. Compatible servers have versions of their own behind those that end in /v1."""
    own, shown = endpoint.version, endpoint.shown.rstrip("/")
    has_one = _VERSION.search(shown) if own == "/v1" else shown.endswith(own)
    return "" if has_one else own


def event_failure(error: Any, endpoint: "Endpoint") -> ModelError:
    """Return the exception for an error that came inside an answer. `error` is the provider's own JSON value."""
    _, message = _reason_of({"error": error})
    said = excerpt(message, redact=endpoint.redact)
    return failure_of(error, opening=f"{endpoint.shown} broke off the answer: {said.rstrip('.') or 'no reason given'}.")


def failure_of(
    error: Any, *, status: int | None = None, headers: Mapping[str, str] | None = None, opening: str
) -> ModelError:
    """Return the exception for a provider's own error: a JSON value, or text.

    Args:
        status: Of the answer; None for an error inside a stream, which may name one itself.
        headers: Of the answer, by lower-case name.
        opening: What the exception says first.
    """
    code, message = _reason_of({"error": error})
    status = _status_of(error) if status is None else status
    wait = _asked_seconds(status, headers=headers or {}, error_text=_words(to_json(_clipped(error))))
    return _classified(status, code, message, opening=opening, wait=wait)


def not_the_protocol(body: bytes, answer: "Answer", *, expected: str = "a model's response") -> ModelResponseInvalid:
    """Return the exception for a success that is not an answer of this dialect."""
    said = excerpt(_words(body), redact=answer.endpoint.redact)
    what = f"{said!r} ({answer.content_type or 'no content type'})" if said else "nothing"
    return ModelResponseInvalid(
        f"{answer.endpoint.shown} answered {answer.status} with {what} instead of {expected}. Check base_url: it often ends in /v1.",
        status=answer.status,
    )


def excerpt(text: str, *, redact: Callable[[str], str] = str, limit: int = 300) -> str:
    """Return the beginning of a text on one line, without secrets. Redacted before it is cut: half a key is a secret too."""
    line = " ".join(redact(text[:_MAX_WORDS]).split())
    printable = "".join(character if character.isprintable() else "�" for character in line[:limit])
    return printable + ("..." if len(line) > limit else "")


def _classified(status: int | None, code: str, message: str, *, opening: str, wait: float | None) -> ModelError:
    if _BROKEN_CALL.search(code):
        return ModelResponseInvalid(f"{opening} The model's call could not be read.", status=status)
    if _is_policy(status, code, message):
        return ModelRefused(f"{opening} The provider's policy forbids it.", status=status)
    if status == 413 or (status in _OVERFLOW_STATUSES and says("too_long", code, message)):
        return ContextOverflow(f"{opening} The request is longer than the model's context.", status=status)
    if status == 402 or says("no_credit", code, message):
        return ModelRejected(f"{opening} The account has no credit left: waiting does not help.", status=status)
    if _NEEDS_TEMPLATE.search(message) is None and _may_pass(status, code):
        return ModelUnavailable(opening, status=status, retry_after_seconds=wait)
    return ModelRejected(opening + _advice_on(status, message), status=status)


def _advice_on(status: int | None, message: str) -> str:
    if _NEEDS_TEMPLATE.search(message):
        return " Start llama-server with --jinja, or drive the model by text: capabilities=['no_tools']."
    return " Check the model's name and base_url." if status == 404 else ""


def _may_pass(status: int | None, code: str) -> bool:
    if _PASSING_CODE.search(code):
        return True
    if status is None:
        return _REFUSING.search(code) is None
    return status in _PASSING or (status >= 500 and status not in _LASTING)


def _is_policy(status: int | None, code: str, message: str) -> bool:
    if status == _BLOCKED:
        return True
    return status in _POLICY_STATUSES and says("refused", code, message)


async def _read_some(answer: "Answer") -> bytes:
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
        return "", _words(body)
    code, message = _reason_of(value)
    return code, message or _words(body)


def _clipped(value: Any, depth: int = 6) -> Any:
    """Return the beginning of a provider's error, so that an error of megabytes costs what a small one does."""
    match value:
        case str():
            return value[:_MAX_WORDS]
        case dict() if depth:
            return {name[:_MAX_WORDS]: _clipped(item, depth - 1) for name, item in islice(value.items(), 50)}
        case list() if depth:
            return [_clipped(item, depth - 1) for item in value[:50]]
        case _:
            return value if isinstance(value, int | float) else None


def _words(body: bytes) -> str:
    return body[:_MAX_WORDS].decode("utf-8", "replace")


def _reason_of(value: Any) -> tuple[str, str]:
    if isinstance(value, list) and value:  # Gemini's compatible endpoint wraps its error into a list
        return _reason_of(value[0])
    if not isinstance(value, dict):
        return "", value[:_MAX_WORDS] if isinstance(value, str) else ""
    if isinstance(several := value.get("errors"), list) and several:  # Cloudflare lists them
        return _reason_of(several)
    inner = value.get("error")
    if isinstance(inner, str):
        return inner[:_MAX_WORDS], _first_text(value, "message", "detail") or inner[:_MAX_WORDS]
    if isinstance(inner, dict):
        value = inner
    said = (value.get(name) for name in ("code", "type", "status", "__type"))
    code = " ".join(str(word)[:_MAX_WORDS] for word in said if isinstance(word, str | int))
    return code, _first_text(value, "message", "Message", "detail", "msg", "error")


def _first_text(value: Mapping[str, Any], *names: str) -> str:
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found[:_MAX_WORDS]
        if isinstance(found, list | dict) and found:
            return _words(to_json(_clipped(found)))
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


def _target(answer: "Answer") -> str:
    """Name the host of a redirect; the rest of the address may hold a secret."""
    location = answer.headers.get("location", "")
    found = re.match(r"https?://(?:[^/@?#]*@)?([^/?#@]+)", location)
    return excerpt(found[1], limit=100) if found else "another path of the same server"
