"""Lenient: decode the JSON that servers really send. Replaces what is no text, and mends no JSON."""

import re
from typing import TypeVar

import msgspec

from treadle.errors import ModelResponseInvalid

__all__ = ["decode"]

_T = TypeVar("_T")

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode JSON; once more with what is no text replaced, where a server sends such.

    Raises:
        ModelResponseInvalid: It is no JSON, or of another shape.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(_mended(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(f"The server sent what is not its protocol: {exc}.") from exc


def _mended(data: bytes) -> bytes:
    """Replace what is no Unicode (broken UTF-8, lone surrogates) by U+FFFD, and drop control characters. Mends no JSON."""
    text = _CONTROLS.sub("", data.decode("utf-8", "replace"))
    return _ESCAPES.sub(lambda found: r"\ufffd" if found["lone"] else found[0], text).encode()
