"""Server-sent events: bytes in, the data of events out, however the bytes were cut. Knows no dialect and does no I/O.

Follows the standard (CRLF, LF and CR end a line, comments, several `data` lines, a byte order mark), with two liberties: at the end
of the stream, where servers are careless (see `SseReader.finish`), and for an error in a field of its own. The name of an event is
not told: every dialect says in its data what it is.
"""

from collections.abc import Iterable

from treadle.errors import ModelResponseInvalid

__all__ = ["MAX_EVENT_BYTES", "SseReader"]

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Bytes of one event: more than any honest event holds, less than hurts."""

MAX_BARREN_BYTES = 4 * 1024 * 1024
"""Bytes of one stream that carry no data, such as comments: a day of honest ones, sent to keep the connection."""

_MAX_LINES = 20_000
"""Lines of one event. Servers write one, or a few."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseReader:
    """Collects bytes and gives out the data of whole events, as it came: bytes that ought to be UTF-8.

    Example:
        reader = SseReader()
        reader.feed(b"data: 1\\n\\ndata: 2")  # [b"1"]
        reader.finish()  # b"2"
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._is_at_start = True
        self._ended_with_cr = False
        self._barren_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete.

        Raises:
            ModelResponseInvalid: One event is larger than the limit, or the stream carries hardly anything but comments.
        """
        if self._ended_with_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        pending = self._pending
        searched = max(len(pending) - 1, 0)
        pending += chunk
        if self._is_at_start and not self._skip_byte_order_mark():
            return []
        if (end := pending.find(b"\n\n", searched)) < 0:
            self._check_size(len(pending) - 1)
            return []
        rest: bytes | bytearray
        if pending.rfind(b"\n\n") == end:  # one event, and it may be large
            with memoryview(pending) as whole:
                blocks = [bytes(whole[:end])]
            rest = pending[end + 2 :]
        else:
            *blocks, rest = bytes(pending).split(b"\n\n")
        # The rest is shorter than this chunk, so all copying stays linear in what was read.
        self._pending = bytearray(rest)
        self._check_size(max(len(rest) - 1, *map(len, blocks)))
        found = [data for block in blocks if (data := _data(block)) is not None]
        if len(found) < len(blocks) or b"" in found:
            self._count_barren(sum(len(block) + 2 for block in blocks) - sum(len(data) + 8 for data in found if data))
        return found

    def _count_barren(self, size: int) -> None:
        self._barren_bytes += size
        if self._barren_bytes > MAX_BARREN_BYTES:
            raise ModelResponseInvalid(f"The server sent {self._barren_bytes} bytes of a stream without data in them.")

    def finish(self) -> bytes | None:
        """Return the data of the event that the end of the stream cut from its blank line, or None.

        The standard drops it. Servers do end with `data: [DONE]` and nothing after, so it is handed out, for the caller to accept
        only where its data is whole by itself: a JSON object is, since half of one is not valid JSON.
        """
        block = bytes(self._pending).removesuffix(b"\n")
        self._pending = bytearray()
        self._check_size(len(block))
        return _data(block)

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


def _data(block: bytes) -> bytes | None:
    """Return the data of one event, which is what stands between two blank lines; None where it has none."""
    if not block:
        return None
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    if block.count(b"\n") > _MAX_LINES:
        raise ModelResponseInvalid(f"The server sent one event of more than {_MAX_LINES} lines.")
    fields = [line.partition(b":") for line in block.split(b"\n")]
    values = [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]
    return b"\n".join(values) if values else _error(fields)


def _error(fields: Iterable[tuple[bytes, bytes, bytes]]) -> bytes | None:
    """Return the JSON object of a field `error`, as llama.cpp has sent it, in the form of an error that is data; else None."""
    errors = (value.strip() for name, _, value in fields if name == b"error")
    return next((b'{"error":%b}' % value for value in errors if value.startswith(b"{")), None)
