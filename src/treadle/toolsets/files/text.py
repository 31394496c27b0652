"""Text files as lines, in bounded memory whatever their size. Opens nothing and knows no tool."""

import io
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import BinaryIO

import msgspec

from treadle.toolsets.files.root import Opened

__all__ = ["Line", "lines", "pieces", "text_stream"]

PIECE_BYTES = 4096
OVERLAP_BYTES = 256
_SNIFFED_BYTES = 8192
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MAX_WIDE_BYTES = 20_000_000
_SKIPPED_BYTES = 1 << 16
_BETWEEN_LOOKS = 64
"""Pieces of a long line that are skipped between two looks at whether to stop."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file, as far as it was kept."""

    text: str
    """Without its line end; bytes that are not UTF-8 become U+FFFD."""
    dropped_bytes: int = 0
    """Bytes of the line beyond the text."""


def text_stream(opened: Opened) -> BinaryIO | None:
    """Return an opened file as a stream of UTF-8 at its first character, or None when it is binary (a NUL in its first 8 KiB).

    UTF-16 with a byte order mark, as Windows writes it, is read whole and changed to UTF-8. The stream reads the guard's descriptor
    and must not outlive its block.
    """
    stream = os.fdopen(opened.descriptor, "rb", closefd=False)
    head = stream.read(_SNIFFED_BYTES)
    if head.startswith(_WIDE_MARKS) and opened.size <= _MAX_WIDE_BYTES:
        stream.seek(0)
        return _narrowed(stream.read(_MAX_WIDE_BYTES + 1))
    stream.seek(len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0)
    return None if b"\0" in head else stream


def _narrowed(content: bytes) -> BinaryIO | None:
    try:
        return io.BytesIO(content.decode("utf-16").encode())
    except UnicodeDecodeError:
        return None


def lines(stream: BinaryIO, *, keep_bytes: int, is_over: Callable[[], bool]) -> Iterator[Line]:
    """Yield the lines, each cut to so many bytes. A longer line is read to its end, but never held.

    Args:
        is_over: Whether to end within a long line. Asked now and then.
    """
    while start := stream.readline(keep_bytes):
        dropped, is_whole = (0, True) if start.endswith(b"\n") else _skip_line(stream, is_over)
        yield Line(text=_decode(start), dropped_bytes=dropped)
        if not is_whole:
            return


def pieces(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of every line; one longer than 4 KiB comes as several pieces that overlap a little."""
    number, tail = 1, b""
    while piece := stream.readline(PIECE_BYTES):
        yield number, _decode(tail + piece)
        is_whole = piece.endswith(b"\n")
        number, tail = (number + 1, b"") if is_whole else (number, piece[-OVERLAP_BYTES:])


def _skip_line(stream: BinaryIO, is_over: Callable[[], bool]) -> tuple[int, bool]:
    """Return how many bytes were skipped, and whether the line was skipped to its end."""
    dropped = 0
    for number in count(1):
        rest = stream.readline(_SKIPPED_BYTES)
        dropped += len(rest.rstrip(b"\r\n"))
        if not rest or rest.endswith(b"\n"):
            return dropped, True
        if number % _BETWEEN_LOOKS == 0 and is_over():
            break
    return dropped, False


def _decode(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
