"""Text of strangers made fit for a terminal: control characters escaped, long things shortened. Prints nothing."""

import re

import msgspec

__all__ = ["one_line", "printable", "shown_call", "shown_json"]

# What a terminal obeys, what hides or turns text around, and what no encoding can carry. Tab and line feed stay.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_BLANKS = re.compile(r"\s+")
_MAX_VALUE = 60


def printable(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey.

    Example:
        >>> printable("red: \x1b[31m")
        'red: \\x1b[31m'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = _BLANKS.sub(" ", printable(text[: limit * 8])).strip()
    return line if len(line) <= limit and len(text) <= limit * 8 else f"{line[: limit - 3]}..."


def shown_json(value: object, limit: int = _MAX_VALUE) -> str:
    """Return a JSON value in short."""
    try:
        text = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        text = repr(value)
    if isinstance(value, str) and len(text) > limit:
        return f'{one_line(text[:-1], limit)}"'
    return one_line(text, limit)


def shown_call(name: str, arguments: object) -> str:
    """Return a call as one writes it: `grep(pattern="error", path="src")`."""
    value = _decoded(arguments)
    if isinstance(value, dict):
        inner = ", ".join(f"{one_line(str(key), 40)}={shown_json(item)}" for key, item in list(value.items())[:8])
        inner += ", ..." if len(value) > 8 else ""
    else:
        inner = one_line(arguments if isinstance(arguments, str) else shown_json(arguments), _MAX_VALUE)
    return f"{one_line(name, 60)}({inner})"


def _decoded(arguments: object) -> object:
    """Arguments come parsed, or as the model wrote them."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments
