"""Text files as lines, in bounded memory whatever their size. Opens nothing and knows no tool."""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import BinaryIO

import msgspec

from treadle.tools import ToolContext
from treadle.toolsets.files.root import Opened, Root, spelled

__all__ = ["Line", "digest", "digest_of", "fact_name", "lines", "pieces", "seen_digest", "text_stream"]

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


# --- What a session has seen of its files: the digest of each file as it was read or written last, kept as a fact of
# the session.

FACT = "files"
"""The fact that holds `{path: digest}`."""
_MAX_BYTES = 50_000_000
_PIECE_BYTES = 1 << 20


def digest(content: bytes) -> str:
    """Return the digest of a file's content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of(opened: Opened) -> str | None:
    """Return the digest of an opened file, wherever its descriptor stands; None for a file of over 50 MB, which cannot be edited."""
    if opened.size > _MAX_BYTES:
        return None
    found = hashlib.sha256()
    at = 0
    while piece := os.pread(opened.descriptor, _PIECE_BYTES, at):
        found.update(piece)
        at += len(piece)
        if at > _MAX_BYTES:
            return None
    return f"sha256:{found.hexdigest()}"


def fact_name(root: Root, names: Sequence[str]) -> str:
    """Return the name by which the session knows a file: its path from `/`, links resolved."""
    return spelled(f"{root.path.rstrip('/')}/{'/'.join(names)}")


def seen_digest(ctx: ToolContext, root: Root, names: Sequence[str]) -> str | None:
    """Return the digest of a file as this session saw it last; None if it has not."""
    seen = ctx.facts.get(FACT, {})
    found = seen.get(fact_name(root, names)) if isinstance(seen, dict) else None
    return found if isinstance(found, str) else None
