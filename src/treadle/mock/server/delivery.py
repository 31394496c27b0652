"""Delivery: where an answer's bytes are split, held and cut off, as its turn says. Plans only; the server sends."""

import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from treadle.mock.dialects.answers import Answer, Piece
from treadle.mock.turns import CutBy, Turn

__all__ = ["NOTHING", "Delivery", "Hold", "bomb", "plan"]

NOTHING = b":%b\n\n" % (b" " * 65_533)
"""What a body repeats for ever: one long comment line of a stream."""

_GZIP = 16 + zlib.MAX_WBITS


class Hold(msgspec.Struct, frozen=True):
    """A place in the body at which to wait for the turn's gate."""


Step: TypeAlias = bytes | Hold


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """How one body is sent."""

    steps: tuple[Step, ...]
    """Bytes to write at once, and places to wait."""
    breaks_off: CutBy | None
    """How the body ends before its end; None for a whole one."""


def plan(answer: Answer, turn: Turn) -> Delivery:
    """Return the writes and waits that deliver an answer with the faults of its turn."""
    pieces = _until_cut(list(answer.pieces), turn)
    steps: list[Step] = [turn.prefix] if turn.prefix else []
    for count, piece in enumerate(pieces, start=1):
        steps.append(piece.content)
        if turn.hold_after_pieces == count or (
            piece.is_last and piece.call is not None and piece.call == turn.hold_after_call
        ):
            steps.append(Hold())
    if _holds_inside(turn) and Hold() not in steps:
        steps.insert(0 if turn.hold_after_call is not None or turn.hold_after_pieces == 0 else len(steps), Hold())
    if isinstance(turn.cut, int):
        steps = list(_first_bytes(steps, turn.cut))
    breaks_off = None if turn.cut is None else turn.how_cut
    return Delivery(steps=tuple(_sized(steps, turn)), breaks_off=breaks_off)


def bomb(answer: Answer, turn: Turn) -> Delivery:
    """Return the delivery of a small body that unpacks to a huge one."""
    packer = zlib.compressobj(wbits=_GZIP)
    packed = [packer.compress(turn.prefix + b"".join(piece.content for piece in answer.pieces))]
    left = turn.bomb_bytes or 0
    while left > 0:
        packed.append(packer.compress(NOTHING[:left]))
        left -= len(NOTHING)
    return Delivery(steps=tuple(_split(b"".join((*packed, packer.flush())), turn.chunk_size)), breaks_off=None)


def _holds_inside(turn: Turn) -> bool:
    return turn.hold_after_call is not None or turn.hold_after_pieces is not None


def _until_cut(pieces: list[Piece], turn: Turn) -> list[Piece]:
    """Return the pieces before a named cut. In a body that is one piece every name but the ends means half of it."""
    if turn.cut is None or isinstance(turn.cut, int):
        return pieces
    if len(pieces) == 1 and turn.cut != "before-body":
        return [_half(pieces[0])]
    match turn.cut:
        case "mid-text":
            return _cut_inside(pieces, [index for index, piece in enumerate(pieces) if piece.kind == "text"])
        case "mid-arguments":
            last = len(turn.calls) - 1
            own = [index for index, piece in enumerate(pieces) if piece.kind == "call" and piece.call == last]
            return _cut_inside(pieces, own[1:] or own)
        case _:
            return pieces[: _count_before(turn.cut, pieces)]


def _count_before(place: str, pieces: Sequence[Piece]) -> int:
    match place:
        case "before-terminal":
            return sum(piece.kind not in ("finish", "done") for piece in pieces)
        case "before-done":
            return sum(piece.kind != "done" for piece in pieces)
        case "reset":
            return max(len(pieces) // 2, 1)
        case _:
            return 0


def _cut_inside(pieces: list[Piece], own: Sequence[int]) -> list[Piece]:
    """Cut in the middle of the pieces at these positions, so that some of them has come and some has not."""
    if len(own) == 1:
        return [*pieces[: own[0]], _half(pieces[own[0]])]
    return pieces[: own[len(own) // 2]]


def _half(piece: Piece) -> Piece:
    return msgspec.structs.replace(piece, content=piece.content[: len(piece.content) // 2])


def _first_bytes(steps: Iterable[Step], count: int) -> Iterable[Step]:
    for step in steps:
        if isinstance(step, bytes):
            step, count = step[:count], max(count - len(step), 0)  # noqa: PLW2901 - the rest of it is cut off
        yield step


def _sized(steps: Iterable[Step], turn: Turn) -> Iterable[Step]:
    """Join what may be written at once, and split what may not."""
    waiting = b""
    for step in steps:
        match step:
            case Hold():
                yield from _split(waiting, turn.chunk_size)
                waiting = b""
                yield step
            case bytes() if turn.gap_ms and turn.chunk_size is None:
                yield from _split(step, None)
            case bytes():
                waiting += step
    yield from _split(waiting, turn.chunk_size)


def _split(content: bytes, size: int | None) -> Iterable[bytes]:
    size = size or len(content) or 1
    return (content[start : start + size] for start in range(0, len(content), size))
