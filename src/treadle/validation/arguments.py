"""Arguments: from a call's raw text to a JSON object, strictly. Repairs nothing and knows no schema."""

import math
import re
from typing import Any

import jiter

from treadle.errors import InvalidArguments
from treadle.tools import JsonObject
from treadle.validation.schema import bounded, row, shape

__all__ = ["NotJson", "parse_arguments", "parse_json"]

_SNIPPET_CHARS = 60
_MAX_VALUES = 100_000
"""Values in one call's arguments. A model that may write 128,000 tokens cannot write as many."""
_MARK = "<HERE>"

# Strings are matched as wholes first, so that what they hold is not taken for brackets or numbers. One without an end reaches to the
# end of the text: else it would be tried again from each quote in it.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
_NUMBER = re.compile(rf"{_STRING}|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.DOTALL | re.ASCII)
_LARGE_EXPONENT = re.compile(r"[0-9][eE]\+?[0-9][0-9]")
_MANY_DIGITS = re.compile(r"(?<![0-9])[0-9]{290}")


class NotJson(Exception):
    """Raised for arguments that are not strict JSON. `str()` names the place and the repair.

    Args:
        reason: What is wrong.
        repair: What to do, as a sentence.
        text: The whole raw text.
        at: Index of the offending character.
    """

    def __init__(self, reason: str, repair: str, text: str, at: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        self.snippet = _snippet(text, at)
        super().__init__(f"{reason} at line {self.line}, column {self.column}: {self.snippet} {repair}")


def parse_arguments(text: str, *, max_chars: int = 1_000_000, max_depth: int = 64) -> JsonObject:
    """Return the arguments of a call. No text at all means none: servers send "" for a call without arguments.

    Example:
        parse_arguments('{"name": "Frodo"}')

    Raises:
        NotJson: The text is not strict JSON, or too long or too deep to be looked at.
        InvalidArguments: It is JSON, but no object.
    """
    if not text or text.isspace():
        return {}
    value = parse_json(text, max_chars=max_chars, max_depth=max_depth)
    if not isinstance(value, dict):
        details = [row("", "object", bounded(value))]
        raise InvalidArguments(
            f"expected one JSON object with the arguments by parameter name; got {shape(value)}.", details
        )
    return value


def parse_json(text: str, *, max_chars: int = 1_000_000, max_depth: int = 64) -> Any:  # Any: any JSON value
    """Return the JSON value that a model wrote.

    Raises:
        NotJson: The text is not strict JSON, or too long or too deep to be looked at.
    """
    if len(text) > max_chars:
        reason = f"too long: {len(text)} characters, where {max_chars} are allowed,"
        raise NotJson(reason, "Send less, or in several calls.", text, max_chars)
    if len(text) > _MAX_VALUES and text.count(",") > _MAX_VALUES:
        reason = f"too large: more than {_MAX_VALUES} values"
        raise NotJson(reason, "Send fewer, or in several calls.", text, len(text))
    value = _parsed(text)
    if text.count("{") + text.count("[") > max_depth:
        _refuse_depth(text, max_depth)
    if _LARGE_EXPONENT.search(text) or (len(text) > 290 and _MANY_DIGITS.search(text)):
        _refuse_overflow(text)
    return value


def _parsed(text: str) -> Any:  # Any: JSON of strangers
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise NotJson(*_SURROGATE, text, error.start) from None
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as error:
        message, _, place = str(error).rpartition(" at line ")
        line, _, column = place.partition(" column ")
        at = len(text) if message.startswith("EOF") else _index(raw, int(line), int(column))
        raise NotJson(*_diagnosis(message, text, at), text, at) from None


def _index(raw: bytes, line: int, column: int) -> int:
    """Return the character that jiter means: it counts bytes, from 1."""
    start = 0
    for _ in range(line - 1):
        start = raw.index(b"\n", start) + 1
    return len(raw[: max(start + column - 1, 0)].decode(errors="ignore"))


def _refuse_depth(text: str, max_depth: int) -> None:
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += (found[1] is not None) - (found[2] is not None)
        if depth > max_depth:
            raise NotJson(f"nested deeper than {max_depth} levels", _FLATTEN, text, found.start())


def _refuse_overflow(text: str) -> None:
    """Find numbers beyond what a float holds: jiter makes them infinite, even with the option that refuses infinity."""
    for found in _NUMBER.finditer(text):
        number = found[1]
        if number is not None and not number.removeprefix("-").isdigit() and math.isinf(float(number)):
            raise NotJson(*_TOO_LARGE, text, found.start())


# --- what to tell the model ------------------------------------------------------------------------------------------

_TOO_LARGE = ("a number too large", "Send a smaller one, or a string.")
_FLATTEN = "Flatten the arguments."
_SURROGATE = ("half of a surrogate pair, which is not text,", "Send the whole character, or leave it out.")
_QUOTES = "Use plain double quotes around keys and strings."


# What is at the place: a pattern, the reason, the repair.
_SIGHTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"nan|inf|(?<=n)an\b", re.IGNORECASE),
        "NaN or Infinity, which JSON does not have,",
        "Send a finite number, null, or a string.",
    ),
    (re.compile(r"True|False|None"), "a Python literal", "Write true, false or null."),
    (re.compile(r"```"), "a code fence", "Send the bare JSON object."),
    (re.compile(r"[\u201c-\u201f\u00ab\u00bb\uff02]"), "a typographic quote", _QUOTES),
    (re.compile(r"['`\u2018-\u201b]"), "a single quote", _QUOTES),
    (re.compile(r"//|/\*|#"), "a comment, which JSON does not have,", "Leave it out."),
)


_SAYINGS: tuple[tuple[str, str, str], ...] = (
    ("trailing comma", "trailing comma", "Remove the comma."),
    ("EOF", "the text ends too early", "Send the complete JSON object again."),
    ("recursion limit", "nested too deeply", _FLATTEN),
    ("control character", "an unescaped control character in a string", r"Escape it, such as \n or \t."),
    ("invalid unicode", *_SURROGATE),
    ("lone leading surrogate", *_SURROGATE),
    ("unexpected end of hex escape", *_SURROGATE),
    ("invalid escape", "an escape that JSON does not have", r"Write a backslash as \\."),
    ("key must be a string", "a key without double quotes", _QUOTES),
    ("trailing characters", "more text after the end of the JSON value", "Send exactly one JSON object."),
    ("number out of range", *_TOO_LARGE),
    ("invalid number", "a number that is not JSON", "Write it with digits, such as 0.5 or -2."),
)


def _diagnosis(message: str, text: str, at: int) -> tuple[str, str]:
    """Return the reason and the repair: first by what is there, then by the parser's own words."""
    for sight, reason, repair in _SIGHTS:
        if sight.match(text, at):
            return reason, repair
    if message.startswith("Detected duplicate key"):
        key = message.removeprefix("Detected ")
        return key if len(key) <= _SNIPPET_CHARS else f'{key[:_SNIPPET_CHARS]}..."', "Send each key once."
    for start, reason, repair in _SAYINGS:
        if message.startswith(start):
            return reason, repair
    return message, "Send one strict JSON object."


def _snippet(text: str, at: int) -> str:
    """Return what is around the place on one line, as text that any encoder takes."""
    at = min(at, len(text))
    start = max(at - _SNIPPET_CHARS // 2, 0)
    before, after = text[start:at], text[at : start + _SNIPPET_CHARS]
    return _printable(before) + _MARK + _printable(after)


def _printable(piece: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in piece)
