"""Characters: text that a stream may have cut inside a character, or damaged. Joins what belongs together, repairs nothing else.

A server that is damaged, or that cuts its pieces carelessly, sends what is not text: half of a surrogate pair, a byte that is not UTF-8, a
bare control character inside a JSON string. A string holds the first as it is. It holds the other two as two low halves, which no text
does: `\\udfff` and, for the byte B, U+DC00 + B.
"""

import re
from itertools import islice
from typing import Any

__all__ = [
    "damaged_byte",
    "damaged_json",
    "is_damaged",
    "is_damaged_throughout",
    "joined",
    "repaired",
    "repaired_value",
]

_BYTES = re.compile("(?:\udfff[\udc80-\udcff])+")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DAMAGE = re.compile("[\ud800-\udfff]")
_DAMAGED = re.compile("\udfff([\udc00-\udc1f\udc80-\udcff])|[\ud800-\udfff]")
_BLANKS = "\t\n\r"
_MOST_DAMAGE = 50_000
"""Characters."""


def damaged_byte(byte: int) -> str:
    """Return what stands for a bare control character, or for a byte that is not UTF-8."""
    return "\udfff" + chr(0xDC00 + byte)


def is_damaged(text: str) -> bool:
    """Whether something in the text is not text."""
    return not text.isascii() and _DAMAGE.search(text) is not None


def is_damaged_throughout(text: str) -> bool:
    """Whether more of the text is damaged than an honest server's mistakes explain."""
    return is_damaged(text) and sum(1 for _ in islice(_DAMAGE.finditer(text), _MOST_DAMAGE + 1)) > _MOST_DAMAGE


def joined(text: str) -> str:
    """Join the bytes of one character, and the halves of one surrogate pair, that came in several pieces.

    Example:
        joined("\\ud83d" + "\\ude00") == "\\U0001f600"
    """
    if not is_damaged(text):
        return text
    return _HALVES.sub(_character, _BYTES.sub(_decoded, text))


def repaired(text: str) -> str:
    """Join what came in pieces, replace the rest of what is not text by U+FFFD, and drop bare control characters.

    For text that is read. Never for arguments: what is carried out is what the model wrote.
    """
    if text.isascii() or not is_damaged(text):  # asked of every piece of a stream
        return text
    return _DAMAGED.sub(_replaced, joined(text))


def repaired_value(value: Any) -> Any:
    """Return a JSON value with its texts repaired: the same object where none is damaged."""
    match value:
        case str():
            return repaired(value)
        case dict():
            made = {repaired(name): repaired_value(item) for name, item in value.items()}
            return value if all(made.get(name, made) is item for name, item in value.items()) else made
        case list():
            items = [repaired_value(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case _:
            return value


def damaged_json(text: str) -> str:
    """Return damaged JSON as text that can be stored and that is not valid JSON, wherever the damage stands."""
    if not is_damaged(text):
        return text
    # An escape loses its meaning behind a backslash, and finds its other half in an escape of the text's own. A control
    # character between them is invalid in every place.
    mark = "\x1a" if "\\" in text else ""
    return _DAMAGE.sub(lambda found: f"{mark}\\u{ord(found[0]):04x}", text)


def _decoded(found: re.Match[str]) -> str:
    try:
        return bytes(ord(half) - 0xDC00 for half in found[0][1::2]).decode()
    except UnicodeDecodeError:
        return found[0]


def _character(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _replaced(found: re.Match[str]) -> str:
    byte = ord(found[1]) - 0xDC00 if found[1] else 0xFF
    if byte >= 0x80:
        return "\ufffd"
    return chr(byte) if chr(byte) in _BLANKS else ""
