"""Encoded: JSON bytes that are made once and joined into many requests. Knows no dialect."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from treadle.messages import Message

__all__ = ["EncodedMessages", "to_json"]

_encoder = msgspec.json.Encoder()


class EncodedMessages:
    """The bytes of each message, made at first sight and dropped with the message.

    A transcript only grows, so each request costs its new messages and one copy; and what was sent once is sent again byte for
    byte, which is what a provider's prompt cache asks for.

    Args:
        encode: Returns a message as the dialect's JSON objects, joined by commas; the same for the same message.
    """

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self._encode = encode
        self._known: dict[int, tuple[weakref.ref[Message], bytes]] = {}

    def pieces(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the bytes of each message, in order, without those that come to nothing."""
        known = self._known
        found = [known[id(message)][1] if id(message) in known else self._add(message) for message in messages]
        return [piece for piece in found if piece]

    def _add(self, message: Message) -> bytes:
        encoded = self._encode(message)
        key, known = id(message), self._known
        # The entry goes before the id can be used again: callbacks run while the message dies.
        known[key] = (weakref.ref(message, lambda _: known.pop(key, None)), encoded)
        return encoded


def to_json(value: Any) -> bytes:
    """Return a JSON value as bytes. Lone surrogates, which are no text and which servers refuse, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(value)))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
