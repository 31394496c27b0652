"""Lenient: read the JSON that servers really send. Replaces what is no text, mends no JSON, and knows no dialect."""

import re
from typing import Any, TypeVar

import msgspec

from treadle.errors import ModelResponseInvalid

__all__ = ["arguments_text", "count", "decode", "text_or_nothing"]

_T = TypeVar("_T")

_MAX_VALUES = 300_000
"""Values in one JSON text: each costs far more than its few bytes on the wire."""
_MAX_MENDED_BYTES = 1024 * 1024
"""Bytes of a JSON text that is read a second time, because what it holds is not Unicode."""

_texts = msgspec.json.Decoder(str)

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode JSON; once more with what is no text replaced, where a server sends such.

    Raises:
        ModelResponseInvalid: It is not JSON, has another shape, or is too large to be decoded without holding the event loop.
    """
    if len(data) > _MAX_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise ModelResponseInvalid(f"The server sent one JSON text of more than {_MAX_VALUES} values.")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        if len(data) > _MAX_MENDED_BYTES:
            raise ModelResponseInvalid(f"The server sent what is not its protocol: {exc}.") from exc
    try:
        return decoder.decode(_mended(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(f"The server sent what is not its protocol: {exc}.") from exc


def text_or_nothing(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(counts: Any, name: str) -> int:
    """Return a number of tokens; 0 where the server gives none, or nonsense."""
    number = counts.get(name) if isinstance(counts, dict) else None
    if type(number) is not int and type(number) is not float:  # a boolean counts nothing
        return 0
    return int(number) if 0 < number < 2**53 else 0


def arguments_text(raw: msgspec.Raw) -> str:
    """Return the text of a call's arguments: of a string its content, of an object its own JSON, as it came."""
    encoded = bytes(raw)
    if encoded.startswith(b'"'):
        return decode(encoded, _texts)
    return "" if encoded == b"null" else encoded.decode("utf-8", "replace")


def _mended(data: bytes) -> bytes:
    """Replace what is no Unicode (broken UTF-8, lone surrogates) by U+FFFD, and drop control characters. Mends no JSON."""
    text = _CONTROLS.sub("", data.decode("utf-8", "replace"))
    return _ESCAPES.sub(lambda found: r"\ufffd" if found["lone"] else found[0], text).encode()
