"""AWS event streams: bytes in, whole messages out, however the bytes were cut; both checksums checked. Knows no dialect and does no I/O.

A message becomes one JSON object, so that a dialect reads it as it reads an event of any other stream: `{"TYPE": payload}` for an event,
`{"exception": {"type": "TYPE", "payload": payload}}` for an error.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.providers.http.sse import MAX_EVENT_BYTES
from treadle.providers.payload.encoded import to_json

__all__ = ["EventStreamReader", "StreamException", "exception_error"]

_PRELUDE = struct.Struct(">III")
_SUM = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_FRAME_BYTES = _PRELUDE.size + _SUM.size
_MAX_HEADER_BYTES = 128 * 1024

_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type, for the types of one size: booleans, numbers, times, UUIDs."""
_SIZED = frozenset({6, 7})
"""Types whose value has its length before it: bytes and text."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")

_STATUSES = {
    "accessdenied": 403,
    "internalserver": 500,
    "modelerror": 424,
    "modelnotready": 429,
    "modelstreamerror": 424,
    "modeltimeout": 408,
    "resourcenotfound": 404,
    "serviceunavailable": 503,
    "throttling": 429,
    "validation": 400,
}
"""The HTTP status of each exception, as the vendor documents it: inside a stream none is sent."""


class StreamException(msgspec.Struct):
    """An error inside a stream. `Any` is the wire's."""

    type: Any = None
    payload: Any = None


class EventStreamReader:
    """Collects bytes and gives out whole messages as JSON.

    Example:
        reader = EventStreamReader()
        reader.feed(received)  # [b'{"messageStart":{"role":"assistant"}}']
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._expected = 0
        """Bytes of the message that has begun, once its prelude is there; else 0."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that these bytes complete.

        Raises:
            ModelResponseInvalid: A checksum does not match, or the bytes are not an event stream.
        """
        self._pending += chunk
        found = []
        at = 0
        while size := self._size_at(at):
            if len(self._pending) - at < size:
                break
            found.append(_message(bytes(self._pending[at : at + size])))
            at += size
            self._expected = 0
        del self._pending[:at]
        return found

    def finish(self) -> bytes | None:
        """Return None: a message without its end is not a message."""
        self._pending.clear()
        return None

    def _size_at(self, at: int) -> int:
        """Return the size of the message at this place; 0 while its prelude has not come. Each prelude is checked once."""
        if not self._expected and len(self._pending) - at >= _PRELUDE.size:
            size, header_bytes, checksum = _PRELUDE.unpack_from(self._pending, at)
            if zlib.crc32(self._pending[at : at + 8]) != checksum:
                raise ModelResponseInvalid(
                    "The server sent an event whose prelude is damaged: its checksum does not match."
                )
            if size > self._max_event_bytes:
                raise ModelResponseInvalid(f"The server sent one event of more than {self._max_event_bytes} bytes.")
            if header_bytes > min(_MAX_HEADER_BYTES, size - _FRAME_BYTES):
                raise ModelResponseInvalid("The server sent an event whose lengths are invalid.")
            self._expected = size
        return self._expected


def exception_error(exception: StreamException) -> dict[str, Any]:
    """Return an exception of a stream as the JSON value of a provider's error, with the status that belongs to its class."""
    payload = exception.payload if isinstance(exception.payload, dict) else {}
    code = str(exception.type)
    status = _STATUSES.get(re.sub("exception$", "", code.casefold()))
    said = (payload.get(name) for name in ("originalMessage", "message", "Message"))
    message = next((text for text in said if isinstance(text, str) and text.strip()), "")
    return {"code": code, "message": message, **({} if status is None else {"status_code": status})}


def _message(frame: bytes) -> bytes:
    size, header_bytes, _ = _PRELUDE.unpack_from(frame)
    (checksum,) = _SUM.unpack_from(frame, size - _SUM.size)
    if zlib.crc32(frame[: -_SUM.size]) != checksum:
        raise ModelResponseInvalid("The server sent a damaged event: its checksum does not match.")
    headers = dict(_headers(frame[_PRELUDE.size : _PRELUDE.size + header_bytes]))
    payload = frame[_PRELUDE.size + header_bytes : -_SUM.size].strip()
    match headers.get(":message-type", "event"):
        case "event":
            return b'{"%b":%b}' % (_type(headers.get(":event-type")), payload or b"null")
        case "exception":
            kind = _type(headers.get(":exception-type"))
            # What is not a JSON object is the server's words.
            said = payload if payload.startswith(b"{") else to_json({"message": payload.decode("utf-8", "replace")})
            return b'{"exception":{"type":"%b","payload":%b}}' % (kind, said)
        case "error":
            said = to_json({"message": headers.get(":error-message", "")})
            return b'{"exception":{"type":%b,"payload":%b}}' % (to_json(headers.get(":error-code", "")), said)
        case other:
            raise ModelResponseInvalid(f"The server sent an event of the unknown message type {other!r:.60}.")


def _type(name: str | None) -> bytes:
    if name is None or not _TYPE.fullmatch(name):
        raise ModelResponseInvalid("The server sent an event without a valid type.")
    return name.encode()


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """Yield names and values; of a value that is not text, nothing but its place is read."""
    at = 0
    try:
        while at < len(block):
            name_ends = at + 1 + block[at]
            name, kind = block[at + 1 : name_ends].decode("utf-8", "replace"), block[name_ends]
            at = name_ends + 1
            size = _FIXED.get(kind)
            if size is None:
                if kind not in _SIZED:
                    raise ModelResponseInvalid(f"The server sent an event with a header of the unknown type {kind}.")
                size = _LENGTH.unpack_from(block, at)[0]
                at += _LENGTH.size
            if at + size > len(block):
                raise ModelResponseInvalid("The server sent an event whose headers are cut off.")
            if kind == 7:
                yield name, block[at : at + size].decode("utf-8", "replace")
            at += size
    except (IndexError, struct.error) as exc:
        raise ModelResponseInvalid("The server sent an event whose headers are cut off.") from exc
