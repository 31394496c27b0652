"""Lines: bytes of a server in, messages out, of which none grows without bound. Reads no pipe."""

import re
from typing import NamedTuple

__all__ = ["Lines", "TooLong"]

_BEGINNING = 300
_ID = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]')
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')


class TooLong(NamedTuple):
    """A line that was longer than allowed, and thrown away as it came."""

    size: int
    """Bytes that it had."""
    answers: int | None
    """The request that it answers, where its beginning or end says so."""


class Lines:
    """Cuts a stream of bytes into lines. Of a line that grows too long, only its beginning and end are kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes so far of the line that has not ended."""
        return self._size

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Return the lines that are whole now."""
        *ended, rest = chunk.split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            found.append(self._end())
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._pieces.append(piece)
            return
        if self._pieces:
            self._head, self._tail = b"".join(self._pieces)[:_BEGINNING], self._pieces[-1]
            self._pieces = []
        self._head = (self._head or piece)[:_BEGINNING]
        self._tail = (self._tail + piece)[-_BEGINNING:]

    def _end(self) -> bytes | TooLong:
        line: bytes | TooLong
        if self._size <= self._max_bytes:
            line = b"".join(self._pieces)
        else:
            found = _ID.search(self._head) or _ID_AT_END.search(self._tail)
            line = TooLong(self._size, int(found[1]) if found else None)
        self._pieces, self._size, self._head, self._tail = [], 0, b"", b""
        return line
