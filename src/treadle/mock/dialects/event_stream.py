"""AWS event streams, written: one message of headers and a payload, with both checksums. Reads nothing."""

import struct
import zlib
from collections.abc import Mapping

__all__ = ["event_frame", "exception_frame", "frame"]

_TEXT = 7


def event_frame(kind: str, payload: bytes) -> bytes:
    """Return one event.

    Example:
        >>> event_frame("messageStart", b'{"role":"assistant"}')[-4:] != b""
        True

    Args:
        kind: The type of the event.
        payload: JSON.
    """
    return frame({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload)


def exception_frame(kind: str, payload: bytes) -> bytes:
    """Return one exception."""
    return frame({":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}, payload)


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message of these headers and this payload."""
    head = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + bytes([_TEXT]) + struct.pack(">H", len(value)) + value
