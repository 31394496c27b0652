"""Characters: text that a stream may have cut inside a character, or damaged. Joins what belongs together, repairs nothing else.

A server that is damaged, or that cuts its pieces carelessly, sends two things that are not text: half of a surrogate pair, and a byte that
is not UTF-8. A string holds the first as it is. It holds the second as two low halves, which no text does: `\\udfff` and, for the
byte B, U+DC00 + B.
"""

import re

__all__ = ["broken_byte", "damaged_json", "is_damaged", "joined"]

_BROKEN_BYTES = re.compile("(?:\udfff[\udc80-\udcff])+")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DAMAGE = re.compile("[\ud800-\udfff]")


def broken_byte(byte: int) -> str:
    """Return what stands for a byte that is not UTF-8, from 0x80 to 0xff."""
    return "\udfff" + chr(0xDC00 + byte)


def is_damaged(words: str) -> bool:
    """Whether something in the text is not text."""
    return not words.isascii() and _DAMAGE.search(words) is not None


def joined(words: str) -> str:
    """Join the bytes of one character, and the halves of one surrogate pair, that came in several pieces.

    Example:
        joined("\\ud83d" + "\\ude00") == "\\U0001f600"
    """
    if not is_damaged(words):
        return words
    return _HALVES.sub(_character, _BROKEN_BYTES.sub(_decoded, words))


def damaged_json(words: str) -> str:
    """Return damaged JSON as text that can be stored and that is not valid JSON, wherever the damage stands."""
    if not is_damaged(words):
        return words
    # An escape loses its meaning behind a backslash, and finds its other half in an escape of the text's own. A control
    # character between them is invalid in every place.
    mark = "\x1a" if "\\" in words else ""
    return _DAMAGE.sub(lambda found: f"{mark}\\u{ord(found[0]):04x}", words)


def _decoded(found: re.Match[str]) -> str:
    try:
        return bytes(ord(half) - 0xDC00 for half in found[0][1::2]).decode()
    except UnicodeDecodeError:
        return found[0]


def _character(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
