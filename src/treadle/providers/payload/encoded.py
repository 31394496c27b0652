"""Encoded: JSON bytes that are made once and joined into many requests. Knows no dialect."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import ref

import msgspec

from treadle.messages import Message

__all__ = ["EncodedMessages", "to_json"]

_LONG = 32
"""Messages from which on the bytes of each are kept beside the last body, for requests that do not begin as that one did."""

_encoder = msgspec.json.Encoder()


class _Body(NamedTuple):
    """The last body of one session."""

    whole: bytes
    head: bytes
    first: "_First"
    """Weak: it drops the body when the message dies."""
    rest: tuple[Message, ...]
    """The messages behind the first."""

    def begins(self, head: bytes, messages: Sequence[Message]) -> bool:
        """Whether a request with this head and these messages begins with the whole of it."""
        behind = tuple(messages[1 : len(self.rest) + 1])
        return self.head == head and self.first() is messages[0] and self.rest == behind


class _Known(ref[Message]):
    """A message that was encoded, and its bytes. One object and no closure: the collector looks at each that a session keeps."""

    __slots__ = ("encoded", "key")
    key: int
    encoded: bytes


class _First(ref[Message]):
    """The first message of a session whose last body is kept."""

    __slots__ = ("session_id",)
    session_id: str


class EncodedMessages:
    """The bytes of each message, made at first sight and dropped with the message.

    What was sent once is sent again byte for byte, which is what a provider's prompt cache asks for.

    A session's last body is kept until its first message dies: so that its next request costs its new messages and one copy, and not a
    look at every message. The bytes of each message are kept beside it once the session is long; for a short one they would only be the
    same bytes twice, and it is written anew where its beginning changes.

    Args:
        encode: Returns a message as the dialect's JSON objects, joined by commas; the same for the same message.
    """

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self._encode = encode
        self._known: dict[int, _Known] = {}
        self._bodies: dict[str, _Body] = {}
        known, bodies = self._known, self._bodies

        def forget(one: ref[Message]) -> None:
            known.pop(one.key, None)  # type: ignore[attr-defined]  # a _Known, as all of these

        def drop(one: ref[Message]) -> None:
            bodies.pop(one.session_id, None)  # type: ignore[attr-defined]  # a _First, as all of these

        self._forget, self._drop = forget, drop

    def pieces(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the bytes of each message, in order, without those that come to nothing."""
        known = self._known
        found = [known[id(message)].encoded if id(message) in known else self._add(message) for message in messages]
        return [piece for piece in found if piece]

    def body(self, head: bytes, messages: Sequence[Message], *, session_id: str) -> bytes:
        """Return the body of a request: its head, the messages joined by commas, and `]}`.

        Where it begins as the last one of its session did, that one is taken and only the rest is written.

        Args:
            head: What stands before the messages: it ends with their `[`, or with one element behind that.
        """
        if not messages:
            return head + b"]}"
        last = self._bodies.get(session_id)
        if last is not None and last.begins(head, messages):
            beginning, new, first = memoryview(last.whole)[:-2], messages[len(last.rest) + 1 :], last.first
        else:
            beginning, new, first = memoryview(head), messages, self._dropping(session_id, messages[0])
        pieces = self.pieces(new) if len(messages) >= _LONG else list(filter(None, map(self._encode, new)))
        comma = b"," if pieces and beginning[-1] != ord("[") else b""
        whole = b"".join((beginning, comma, b",".join(pieces), b"]}"))
        self._bodies[session_id] = _Body(whole, head, first, tuple(messages[1:]))
        return whole

    def _dropping(self, session_id: str, first: Message) -> _First:
        """Return a reference that drops the session's body when its first message dies."""
        found = _First(first, self._drop)
        found.session_id = session_id
        return found

    def _add(self, message: Message) -> bytes:
        one = _Known(message, self._forget)
        one.key, one.encoded = id(message), self._encode(message)
        # The entry is removed before the id can be used again: callbacks run while the message dies.
        self._known[one.key] = one
        return one.encoded


def to_json(value: Any) -> bytes:
    """Return a JSON value as bytes. Lone surrogates, which are not text and which servers refuse, become U+FFFD."""
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
