"""Sending: one reply onto one connection, faults and all. Decides nothing about the reply."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from treadle.mock.server.connection import Connection, HungUp, Received, head_of
from treadle.mock.server.delivery import NOTHING, Delivery, Hold, bomb, plan
from treadle.mock.server.vendor import Reply
from treadle.mock.turns import CutBy, Waitable

__all__ = ["send"]

_NO_BODY = frozenset({204, 304})
_END_OF_CHUNKS = b"0\r\n\r\n"

_Frame: TypeAlias = bytes | Hold


async def send(connection: Connection, received: Received | None, reply: Reply, gate: Waitable | None) -> bool:
    """Answer one request, or what came instead of one. Return whether the connection may be used again.

    Raises:
        HungUp: The client closed the connection meanwhile.
    """
    turn = reply.turn
    if turn.delay_ms:
        await connection.wait(asyncio.sleep(turn.delay_ms / 1000))
    if gate is not None and turn.hold_after_call is None and turn.hold_after_pieces is None:
        await connection.wait(gate.wait())
    if turn.cut == "before-answer":
        return await _break_off(connection, turn.how_cut)
    delivery = plan(reply.answer, turn) if turn.bomb_bytes is None else bomb(reply.answer, turn)
    framing, keeps_alive = _framing(received, reply, delivery)
    for frame in _frames(framing, reply, delivery):
        if isinstance(frame, bytes):
            await connection.write(frame)
        elif gate is not None:
            await connection.wait(gate.wait())
        if turn.gap_ms:
            await connection.wait(asyncio.sleep(turn.gap_ms / 1000))
    if delivery.breaks_off not in (None, "clean"):
        return await _break_off(connection, delivery.breaks_off)
    return keeps_alive


def _framing(received: Received | None, reply: Reply, delivery: Delivery) -> tuple[dict[str, str], bool]:
    """Return the headers that say where the body ends, and whether another request may follow."""
    is_keep_alive = received is not None and received.is_keep_alive
    if "content-length" in reply.turn.header_fields:
        return {"connection": "close"}, False  # it may be a lie: nothing can follow it
    if reply.turn.status in _NO_BODY:
        return {}, is_keep_alive
    is_chunked = reply.answer.is_stream or delivery.breaks_off == "endless"
    if is_chunked and received is not None and received.is_chunkable:
        return {"transfer-encoding": "chunked"}, is_keep_alive
    if delivery.breaks_off in (None, "clean"):
        length = sum(len(step) for step in delivery.steps if isinstance(step, bytes))
    else:
        length = len(reply.turn.prefix) + sum(len(piece.content) for piece in reply.answer.pieces)
    return {"content-length": str(length), **({} if is_keep_alive else {"connection": "close"})}, is_keep_alive


def _frames(framing: dict[str, str], reply: Reply, delivery: Delivery) -> Iterable[_Frame]:
    """Return the head, the body in its framing, and the waits; joined where nothing asks for separate writes."""
    turn = reply.turn
    encoding = {} if turn.bomb_bytes is None else {"content-encoding": "gzip"}
    headers = {"content-type": reply.answer.content_type, **framing, **encoding, **turn.header_fields}
    frames: list[_Frame] = [head_of(turn.status, headers)]
    is_chunked = "transfer-encoding" in framing
    if turn.status not in _NO_BODY:
        frames += (_chunk(step) if is_chunked and isinstance(step, bytes) else step for step in delivery.steps)
    if is_chunked and delivery.breaks_off in (None, "clean"):
        frames.append(_END_OF_CHUNKS)
    return frames if turn.gap_ms or turn.chunk_size else _joined(frames)


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def _joined(frames: Sequence[_Frame]) -> Iterable[_Frame]:
    waiting = b""
    for frame in frames:
        if isinstance(frame, bytes):
            waiting += frame
            continue
        yield waiting
        waiting = b""
        yield frame
    if waiting:
        yield waiting


async def _break_off(connection: Connection, how: CutBy | None) -> bool:
    if how == "reset":
        connection.reset()
    while how == "endless":  # until the client has had enough
        await connection.write(_chunk(NOTHING))
    if how == "stall":
        await connection.wait_hangup()
        raise HungUp
    return False
