"""Server-sent events: bytes in, events out, however the bytes were cut. Knows no dialect and does no I/O.

Follows the standard (CRLF, LF and CR end a line, comments, several `data` lines, a byte order mark), with one liberty at the end
of the stream, where servers are careless: see `SseReader.finish`.
"""

from typing import NamedTuple

from treadle.errors import ModelResponseInvalid

__all__ = ["MAX_EVENT_BYTES", "SseEvent", "SseReader"]

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Bytes of one event: more than any honest event holds, less than hurts."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event: its type, and its data as it came (bytes that ought to be UTF-8)."""

    type: str
    """The `event` field; `message` where there was none."""
    data: bytes


class SseReader:
    """Collects bytes and gives out whole events.

    Example:
        reader = SseReader()
        reader.feed(b"data: 1\\n\\ndata: 2")  # [SseEvent("message", b"1")]
        reader.finish()  # SseEvent("message", b"2")
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._is_at_start = True
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete.

        Raises:
            ModelResponseInvalid: One event is larger than the limit.
        """
        if self._ended_with_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        pending = self._pending
        searched = max(len(pending) - 1, 0)
        pending += chunk
        if self._is_at_start and not self._skip_byte_order_mark():
            return []
        if pending.find(b"\n\n", searched) < 0:
            self._check_size(len(pending) - 1)
            return []
        *blocks, rest = bytes(pending).split(b"\n\n")
        # The rest is shorter than this chunk, so all copying stays linear in what was read.
        self._pending = bytearray(rest)
        self._check_size(len(rest) - 1)
        return [event for block in blocks if block and (event := self._parse(block)) is not None]

    def finish(self) -> SseEvent | None:
        """Return the event that the end of the stream cut from its blank line, or None.

        The standard drops it. Servers do end with `data: [DONE]` and nothing after, so it is handed out, for the caller to accept
        only where its data is whole by itself: a JSON object is, since half of one is no JSON.
        """
        block = bytes(self._pending).removesuffix(b"\n")
        self._pending = bytearray()
        return self._parse(block)

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        """Turn CRLF and CR into LF. A CRLF that was cut in two was one line end, not two."""
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_with_cr = False
        if chunk:
            self._ended_with_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_byte_order_mark(self) -> bool:
        """Drop a mark at the very start. Return False while too few bytes have come to tell."""
        pending = self._pending
        if pending.startswith(_BYTE_ORDER_MARK):
            del pending[: len(_BYTE_ORDER_MARK)]
        elif _BYTE_ORDER_MARK.startswith(pending):
            return False
        self._is_at_start = False
        return True

    def _check_size(self, size: int) -> None:
        if size > self._max_event_bytes:
            raise ModelResponseInvalid(f"The server sent one event of more than {self._max_event_bytes} bytes.")

    def _parse(self, block: bytes) -> SseEvent | None:
        self._check_size(len(block))
        if block.startswith(b"data:") and b"\n" not in block:
            return SseEvent("message", block[6:] if block[5:6] == b" " else block[5:])
        return _parse_lines(block.split(b"\n"))


def _parse_lines(lines: list[bytes]) -> SseEvent | None:
    event_type, data = "message", None
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = value if data is None else data + b"\n" + value
        elif name == b"event" and value:
            event_type = value.decode("utf-8", "replace")
    return None if data is None else SseEvent(event_type, data)
