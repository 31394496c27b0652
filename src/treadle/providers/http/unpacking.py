"""Unpacking: compressed bytes in, small pieces of what they hold out. Bounded at each step; does no I/O."""

import zlib
from collections.abc import Callable
from typing import Protocol

from treadle.errors import IncompleteStream, ModelResponseInvalid

__all__ = ["ACCEPTED", "PIECE_BYTES", "Unpacker", "unpacker_for"]

ACCEPTED = "gzip, deflate"
"""The encodings that a server may choose from: the value of `Accept-Encoding`."""

PIECE_BYTES = 32 * 1024
"""Bytes that are handed out at once, so that the event loop gets a turn between two pieces of any answer."""

_MAX_FRUITLESS_STEPS = 1000
"""Empty members in a row that a compressed body may hold."""


class _Member(Protocol):
    """What `zlib.decompressobj` returns, as far as it is used here."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, packed: bytes, limit: int, /) -> bytes: ...


class Unpacker:
    """Decompresses one body step by step. 60 KB can hold 60 MB, so no step gives more than one piece.

    Example:
        unpacker.feed(compressed)
        while piece := unpacker.take(): ...

    Args:
        start: Makes the decompressor of one member; a gzip body may have several.
        shown: The server, for messages.
    """

    def __init__(self, start: Callable[[], _Member], *, shown: str) -> None:
        self._start = start
        self._shown = shown
        self._member = start()
        self._packed = b""
        self._has_begun = False

    def feed(self, packed: bytes) -> None:
        """Add bytes as they came. Take everything out before the next ones are added."""
        self._packed += packed

    def take(self) -> bytes:
        """Return the next piece; nothing when more bytes are needed.

        Raises:
            ModelResponseInvalid: The bytes are not compressed as the server said.
        """
        for _ in range(_MAX_FRUITLESS_STEPS):
            if self._member.eof:
                self._packed = self._packed.lstrip(b"\0")  # some servers pad the last member
            if not self._packed:
                return b""
            if self._member.eof:
                self._member = self._start()
            piece = self._step()
            if piece:
                return piece
        raise ModelResponseInvalid(f"{self._shown} sent a compressed answer that holds nothing.")

    def finish(self) -> None:
        """Check that the body is whole.

        Raises:
            IncompleteStream: It ended in the middle of a member.
        """
        if self._has_begun and not self._member.eof:
            raise IncompleteStream(f"The compressed answer of {self._shown} was cut off.")

    def _step(self) -> bytes:
        packed, self._packed = self._packed, b""
        self._has_begun = True
        try:
            piece = self._member.decompress(packed, PIECE_BYTES)
        except zlib.error as exc:
            raise ModelResponseInvalid(
                f"{self._shown} sent an answer that is not compressed as its Content-Encoding says: {exc}."
            ) from exc
        self._packed = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return piece


class _Deflate:
    """What servers call deflate: zlib's format, or the bare stream that some send under that name."""

    def __init__(self) -> None:
        self._inner: zlib._Decompress | None = None
        self._head = b""

    def decompress(self, packed: bytes, limit: int, /) -> bytes:
        if self._inner is None:
            packed = self._head + packed
            if len(packed) < 2:
                self._head = packed
                return b""
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(packed) else -zlib.MAX_WBITS)
        return self._inner.decompress(packed, limit)

    @property
    def eof(self) -> bool:
        return self._inner is not None and self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return b"" if self._inner is None else self._inner.unused_data

    @property
    def unconsumed_tail(self) -> bytes:
        return b"" if self._inner is None else self._inner.unconsumed_tail


def _is_zlib(head: bytes) -> bool:
    """Whether two bytes are the header of zlib's format (RFC 1950): the method deflate, and a sum that fits."""
    return head[0] & 0x0F == 8 and (head[0] * 256 + head[1]) % 31 == 0


def unpacker_for(encoding: str, *, shown: str) -> Unpacker | None:
    """Return what decompresses a body; None for one that is not compressed.

    Args:
        encoding: The header `Content-Encoding`.
        shown: The server, for messages.

    Raises:
        ModelResponseInvalid: The server chose an encoding that it was not offered.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Unpacker(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), shown=shown)
        case "deflate":
            return Unpacker(_Deflate, shown=shown)
        case other:
            raise ModelResponseInvalid(
                f"{shown} compressed its answer with {other!r:.40}, which was not offered. Only {ACCEPTED} can be read."
            )
