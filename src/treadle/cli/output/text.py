"""Text of strangers made fit for a terminal: what is invisible is escaped, long things are shortened. Prints nothing."""

import re
import time
import unicodedata
from collections.abc import Iterator

import msgspec

__all__ = [
    "counted",
    "escaped_json",
    "indented",
    "is_sentence",
    "one_line",
    "one_record",
    "printable",
    "shown_call",
    "shown_json",
    "shown_name",
    "shown_time",
    "whole_call",
    "wrapped",
]

# What no eye sees, and what a terminal obeys or turns around: C1 controls, fillers, joiners, marks of direction,
# variation selectors, tags. Surrogates, which no encoding can carry.
_INVISIBLE = (
    "\x7f-\x9f\u00ad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ud800-\udfff\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_STRANGE_BLANKS = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")  # tab and line feed stay
_UNSAFE_IN_LINE = re.compile(f"[\x00-\x1f{_INVISIBLE}{_STRANGE_BLANKS}]")
_UNSAFE_IN_JSON = re.compile(f"[{_INVISIBLE}{_STRANGE_BLANKS}]")
_EMOJI_STYLE = re.compile("(?<=[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])\ufe0f(?!\ufe0f)")
_BLANKS = re.compile(r"\s+")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.:/-]*", re.ASCII)
_RECORD = re.compile(r"[\w-]*\s?[:\]]", re.ASCII)
_MAX_VALUE = 60
_MAX_NAME = 60
_MAX_COMPACT = 120


def printable(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey. Tabs and line feeds stay.

    Example:
        >>> printable("red: \x1b[31m")
        'red: \\x1b[31m'
    """
    text = text.replace("\r\n", "\n")
    if not _UNSAFE.search(text):
        return text
    kept = [_UNSAFE.sub(_escape, part) for part in _EMOJI_STYLE.split(text)]
    return "\ufe0f".join(kept)  # the mark that makes a heart red is not a secret message


def one_record(text: str) -> str:
    """Return a text as one line that cannot end early: a line feed in it is shown as `\\n`."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = _BLANKS.sub(" ", printable(text[: limit * 8])).strip()
    return line if len(line) <= limit and len(text) <= limit * 8 else f"{line[: limit - 3]}..."


def shown_name(name: str, limit: int = _MAX_NAME) -> str:
    """Return a name that somebody else chose, of a tool or a call: quoted where it is more than one plain word."""
    return name if len(name) <= limit and _PLAIN_NAME.fullmatch(name) else shown_json(name, limit)


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 session`, `2 sessions`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def shown_time(at: float) -> str:
    """Return a time as a clock on this machine shows it; the number itself where no calendar has it.

    Example:
        >>> shown_time(1e300)
        'second 1e+300'
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"second {at:.6g}"


def shown_resolution(outcome: str, value: object) -> str:
    """Return how a call in doubt ended, as a person said, with the result where it was done.

    Example:
        >>> shown_resolution("done", {"receipt": 7})
        'resolved as done with {"receipt": 7}'
    """
    result = f" with {shown_json(value)}" if outcome == "done" else ""
    return f"resolved as {outcome.replace('_', ' ')}{result}"


def indented(text: str, mark: str = "  | ") -> str:
    """Return a text of strangers with a mark before each line, so that none can be taken for a record of ours."""
    return "\n".join(mark + line for line in printable(text).split("\n"))


def is_sentence(text: str) -> bool:
    """Whether a text is one line that begins as a plain sentence does and no record of ours: neither `[ok]` nor `treadle:`."""
    return "\n" not in text and text[:1].isascii() and text[:1].isalpha() and not _RECORD.match(text)


def wrapped(record: str, width: int, indent: str = "    ") -> Iterator[str]:
    """Yield a record in lines of a terminal's width, the later ones indented. Without a width it is one line.

    A terminal breaks a long line at its edge: what it put at the beginning of a line could pass for another record.
    """
    if width <= len(indent) + 8:
        yield record
        return
    line, used = "", 0
    for char in record:
        cells = _cells(char)
        if used + cells > width:
            yield line
            line, used = indent, len(indent)
        line += char
        used += cells
    yield line


def _cells(char: str) -> int:
    """Columns that a character takes; a tab is counted as 8."""
    if char.isascii():
        return 8 if char == "\t" else 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def escaped_json(text: str) -> str:
    r"""Return JSON with everything invisible written as `\uXXXX`: equal once it is parsed, and visible before."""
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    code = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at]:02x}{code[at + 1]:02x}" for at in range(0, len(code), 2))


def _json(value: object) -> str:
    try:
        return escaped_json(msgspec.json.encode(value).decode())
    except (UnicodeEncodeError, TypeError, RecursionError):
        return one_record(repr(value))


def shown_json(value: object, limit: int = _MAX_VALUE) -> str:
    """Return a JSON value in short."""
    text = _json(value)
    if isinstance(value, str) and len(text) > limit:
        return f'{one_line(text[:-1], limit)}"'
    return one_line(text, limit)


def shown_call(name: str, arguments: object) -> str:
    """Return a call in short: `grep(pattern="error", path="src")`. A person who decides on it needs `whole_call`."""
    value = _decoded(arguments)
    if isinstance(value, dict):
        inner = ", ".join(f"{shown_name(str(key), 40)}={shown_json(item)}" for key, item in list(value.items())[:8])
        inner += f", ... {len(value) - 8} more" if len(value) > 8 else ""
    else:
        inner = one_line(arguments if isinstance(arguments, str) else shown_json(arguments), _MAX_VALUE)
    return f"{shown_name(name)}({inner})"


def whole_call(name: str, arguments: object) -> list[str]:
    """Return a call as lines that hold all of it: every argument, every character, as JSON.

    A short call is one line, as `shown_call` writes it. Else each argument has its own, and a text of several lines becomes
    one JSON string a line. Nothing is left out, and nothing can pass for another argument.
    """
    value = _decoded(arguments)
    title = shown_name(name, 10_000)
    if not isinstance(value, dict):
        return [f"{title}, with arguments that are not a JSON object:", f"  {_json(value)}"]
    inner = ", ".join(f"{shown_name(str(key), 10_000)}={_json(item)}" for key, item in value.items())
    if len(inner) <= _MAX_COMPACT:
        return [f"{title}({inner})"]
    lines = [f"{title}, {len(value)} {'argument' if len(value) == 1 else 'arguments'}:"]
    for key, item in value.items():
        lines += _whole_argument(shown_name(str(key), 10_000), item)
    return lines


def _whole_argument(key: str, value: object) -> list[str]:
    text = _json(value)
    if isinstance(value, str) and ("\n" in value[:-1] or len(text) > 200):
        lines = value.splitlines(keepends=True)
        size = f"{len(value):,} characters, {len(lines):,} {'line' if len(lines) == 1 else 'lines'}"
        return [f"  {key} = ({size})", *(f"    {_json(line)}" for line in lines)]
    return [f"  {key} = {text}" + (f" ({len(text):,} characters)" if len(text) > 200 else "")]


def _decoded(arguments: object) -> object:
    """Arguments come parsed, or as the model wrote them."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments
