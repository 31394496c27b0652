"""The mock provider: a strict vendor on loopback, played from a script. It repairs nothing, and no real model is near.

async with MockProvider([call("search", query="moon"), text("Found.")]) as provider:
    model = resolve_model("openai-chat:mock", base_url=provider.base_url)
"""

import asyncio
import contextlib
import inspect
import ipaddress
import itertools
import json
import socket
import struct
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, check_kind, check_path
from treadle.fields import Documented, checked, checked_but
from treadle.mock.batches import MockBatches
from treadle.mock.dialects.anthropic import AnthropicMessages, claude_dialects
from treadle.mock.dialects.bedrock import converse_dialects
from treadle.mock.dialects.cohere import CohereChat
from treadle.mock.dialects.gemini import gemini_dialects
from treadle.mock.dialects.openai_chat import ChatCompletions
from treadle.mock.dialects.openai_responses import Responses
from treadle.mock.dialects.shared import Answer, Dialect, HasHead, Piece, Refusal, is_listing, model_list
from treadle.mock.script import (
    Count,
    CutBy,
    Gate,
    Gates,
    Script,
    Turn,
    TurnLike,
    Waitable,
    load_script,
    no_constant,
    no_duplicates,
    turn_of,
)
from treadle.tools import JsonObject

__all__ = [
    "NOTHING",
    "Connection",
    "Delivery",
    "Hold",
    "MockProvider",
    "Reader",
    "Received",
    "RecordedRequest",
    "Reply",
    "Vendor",
    "bomb",
    "plan",
    "send",
]


# --- Connections: just enough HTTP/1.1 to read requests exactly and to answer wrongly on purpose. Knows no script.

_MAX_HEAD_BYTES = 64 * 1024
_PHRASES = {item.value: item.phrase for item in HTTPStatus}


class _BadHttp(Exception):
    """What came is not a request that can be read. The connection is closed after the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _HungUp(Exception):
    """The client closed the connection while it was being answered."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it came."""

    method: str
    path: str
    """Without the query."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    is_keep_alive: bool = True
    is_chunkable: bool = True
    """Whether the client speaks HTTP/1.1."""


class Reader(asyncio.StreamReader):
    """A stream reader that can be asked to wait for the end without reading."""

    def __init__(self) -> None:
        super().__init__(limit=_MAX_HEAD_BYTES, loop=asyncio.get_running_loop())
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


class Connection:
    """One client's connection."""

    def __init__(self, reader: Reader, writer: asyncio.StreamWriter, *, max_body_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._max_body_bytes = max_body_bytes
        writer.transport.set_write_buffer_limits(high=0)  # so that drain() means: it is on its way

    async def receive(self) -> Received | None:
        """Read one request; None when the client has closed the connection.

        Raises:
            _BadHttp: It cannot be read.
        """
        try:
            return await self._request()
        except OSError:  # the client reset the connection
            return None

    async def _request(self) -> Received | None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise _BadHttp(431, "The request's head is too large.") from None
        method, target, version, headers = _parse_head(head)
        path, _, query = target.partition("?")
        if headers.get("expect", "").lower() == "100-continue":
            await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Received(
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=await self._body(headers),
            is_keep_alive=version == "HTTP/1.1" and headers.get("connection", "").lower() != "close",
            is_chunkable=version == "HTTP/1.1",
        )

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("content-encoding", "identity") != "identity":
            raise _BadHttp(415, f"The content-encoding {headers['content-encoding']!r} is not supported here.")
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                return await self._chunked_body()
            return await self._reader.readexactly(self._checked_length(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise _BadHttp(400, "The request's body is shorter than announced, or its chunks are malformed.") from None

    async def _chunked_body(self) -> bytes:
        body = bytearray()
        while size := _chunk_size(await self._reader.readuntil(b"\r\n")):
            self._checked_length(str(len(body) + size))
            body += await self._reader.readexactly(size)
            await self._reader.readuntil(b"\r\n")
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return bytes(body)

    def _checked_length(self, length: str) -> int:
        if not (length.isascii() and length.isdigit()):
            raise _BadHttp(400, f"The content-length {length!r:.40} is not a number.")
        if len(length) > 18 or int(length) > self._max_body_bytes:
            raise _BadHttp(413, f"The request's body is larger than {self._max_body_bytes} bytes.")
        return int(length)

    async def write(self, content: bytes) -> None:
        """Send bytes and return once the system has taken them.

        Raises:
            _HungUp: The client has closed the connection.
        """
        try:
            self._writer.write(content)
            await self._writer.drain()
        except OSError:
            raise _HungUp from None

    async def wait(self, awaitable: Awaitable[object]) -> None:
        """Wait for something, unless the client hangs up first.

        Raises:
            _HungUp: The client has closed the connection.
        """
        waited = asyncio.ensure_future(awaitable)
        ended = asyncio.ensure_future(self._reader.ended.wait())
        try:
            await asyncio.wait((waited, ended), return_when=asyncio.FIRST_COMPLETED)
            if not waited.done():
                raise _HungUp
        finally:
            waited.cancel()
            ended.cancel()

    async def wait_hangup(self) -> None:
        """Say nothing until the client closes the connection."""
        await self._reader.ended.wait()

    def reset(self) -> None:
        """Close with a TCP reset."""
        at_once = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._writer.transport.abort()

    def abort(self) -> None:
        """Close at once, whatever has not been sent."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Close once everything has been sent."""
        self._writer.close()


def _head_of(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the status line and headers of an answer."""
    lines = [
        f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    request_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    fields = request_line.split(" ")
    if len(fields) != 3 or fields[2] not in ("HTTP/1.1", "HTTP/1.0") or not fields[1].startswith("/"):
        raise _BadHttp(400, "The request line is malformed.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _BadHttp(400, "A header line is malformed.")
        headers[name.lower()] = value.strip()
    return fields[0], fields[1], fields[2], headers


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        return int(digits, 16) if not digits.startswith((b"-", b"+")) else _no_size()
    except ValueError:
        return _no_size()


def _no_size() -> int:
    raise _BadHttp(400, "A chunk's size is not a number.")


# --- The vendor: what one request is answered with, as the script and the dialect have it. Records it; knows no socket.

_Respond: TypeAlias = Callable[[JsonObject], TurnLike | Mapping[str, Any] | Awaitable[TurnLike | Mapping[str, Any]]]
"""A function of the request's body that makes the turn: for many sessions at once, and for models that read."""
_Playable: TypeAlias = Script | Sequence[TurnLike | Mapping[str, Any]] | Path | _Respond
"""A script, turns, the path of a script's file, or a function."""

_NextTurn: TypeAlias = Callable[[JsonObject], Awaitable[Turn]]


class RecordedRequest(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One request that came, refused ones included.

    Example:
        >>> RecordedRequest(method="POST", path="/v1/chat/completions", headers={}, raw=b"{", status=400).body is None
        True
    """

    method: str
    """HTTP method, such as `POST`."""
    path: str
    """Path of the URL, with its query."""
    headers: dict[str, str]
    """By lower-case name."""
    raw: bytes
    """The body as it came."""
    body: Any = None  # Any: JSON of strangers; a test reads it as it is
    """The body as a JSON value; None when it is not JSON."""
    status: int = 200
    """The status of the answer."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is answered with."""

    turn: Turn
    """With its faults."""
    answer: Answer
    """Without them."""


class Vendor:
    """Checks requests, plays the script and keeps the record.

    Args:
        script: What to play.
        dialects: The wire formats to answer in; errors without a dialect are in the first one's.
        api_key: The key that requests must carry; None to take any.
    """

    def __init__(self, script: _Playable, *, dialects: Sequence[Dialect], api_key: str | None) -> None:
        self._next_turn = _player(script)
        self._dialects = dialects
        self._api_key = api_key
        self._numbers = itertools.count(1)
        self._ids: Iterator[str] = (f"call_{number}" for number in itertools.count(1))
        self._batches = MockBatches(self._play_in_batch)
        self.requests: list[RecordedRequest] = []
        self.refusals: list[Refusal] = []
        self.recording: TextIO | None = None
        """Where each request is written as one JSON line, or None."""

    async def reply(self, received: Received) -> Reply:
        """Return the answer to one request. A refused request takes no turn."""
        body: Any = None
        try:
            self._check_key(received)
            if is_listing(received.method, received.path):
                reply = _plain_reply(200, model_list(received.query, received.headers))
            elif MockBatches.is_own(received.path):
                reply = _plain_reply(200, await self._batched(received))
            else:
                dialect = self._dialect(received)
                body = _parsed(received.body)
                reply = await self._play(dialect, dialect.check(body))
        except Refusal as refusal:
            self.refusals.append(refusal)
            reply = self.refused(refusal, received.path)
        self._remember(received, body, reply.turn.status)
        return reply

    async def _batched(self, received: Received) -> bytes:
        query, headers = received.query, dict(received.headers)
        return await self._batches.reply(received.method, received.path, query, headers, received.body)

    async def _play_in_batch(self, path: str, body: JsonObject) -> tuple[int, bytes]:
        """Answer one request of a batch, as if it had come alone."""
        dialect = next(one for one in self._dialects if path.endswith(one.path))
        try:
            reply = await self._play(dialect, dialect.check(body))
        except Refusal as refusal:
            self.refusals.append(refusal)
            reply = self.refused(refusal, path)
        return reply.turn.status, b"".join(piece.content for piece in reply.answer.pieces)

    def refused(self, refusal: Refusal, path: str = "") -> Reply:
        """Return the answer that says no, in the dialect of the path; in the first one's where the path is nobody's."""
        dialect = next((one for one in self._dialects if path.endswith(one.path)), self._dialects[0])
        content = dialect.error(refusal.status, refusal.message, param=refusal.param, code=refusal.code)
        return _plain_reply(refusal.status, content)

    async def _play(self, dialect: Dialect, body: JsonObject) -> Reply:
        try:
            turn = await self._next_turn(body)
        except Refusal:
            raise
        except Exception as exc:
            # A script may be any function, and its fault must reach whoever runs the test: the client.
            raise Refusal(f"The script raised {exc!r}.", code="script_failed") from exc
        if turn.body is not None:
            return Reply(turn=turn, answer=_raw(turn.body))
        if turn.status >= 400:
            error = (
                turn.error if turn.error is not None else f"The server answered with status {turn.status}, as scripted."
            )
            return Reply(turn=turn, answer=_raw(dialect.error(turn.status, error)))
        return Reply(turn=turn, answer=dialect.answer(turn, body, number=next(self._numbers), ids=self._ids))

    def _dialect(self, received: Received) -> Dialect:
        for dialect in self._dialects:
            if received.path.endswith(dialect.path):
                if received.method == "POST":
                    if isinstance(dialect, HasHead):
                        return dialect.with_head(received.path, received.headers)
                    return dialect
                raise Refusal(f"Not allowed to {received.method} on {received.path}. (HINT: use POST)", status=405)
        raise Refusal(f"Unknown request URL: {received.method} {received.path}.", code="unknown_url", status=404)

    def _check_key(self, received: Received) -> None:
        key, headers = self._api_key, received.headers
        shown = (headers.get(name) for name in ("x-api-key", "x-goog-api-key"))
        if key is not None and headers.get("authorization") != f"Bearer {key}" and key not in shown:
            raise Refusal("Incorrect API key provided.", code="invalid_api_key", status=401)

    def _remember(self, received: Received, body: Any, status: int) -> None:
        self.requests.append(
            RecordedRequest(
                method=received.method,
                path=received.path,
                headers=dict(received.headers),
                raw=received.body,
                body=body,
                status=status,
            )
        )
        if self.recording is not None:
            shown = received.body.decode(errors="replace") if body is None else body
            line = {"method": received.method, "path": received.path, "body": shown, "status": status}
            self.recording.write(json.dumps(line) + "\n")
            self.recording.flush()


def _player(script: _Playable) -> _NextTurn:
    """Return the function that gives the turn of each request."""
    if callable(script):
        respond: _Respond = script

        async def play(body: JsonObject) -> Turn:
            made = respond(body)
            return turn_of(await made if inspect.isawaitable(made) else made)

        return play
    turns = (
        load_script(script) if isinstance(script, Path) else script if isinstance(script, Script) else Script(script)
    )
    indices = itertools.count()

    async def play_next(body: JsonObject) -> Turn:
        turn = turns.turn(next(indices))
        if turn is None:
            raise Refusal(f"The script is used up: it has {len(turns.turns)} turns.", code="script_exhausted")
        return turn

    return play_next


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as exc:
        raise Refusal(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
            f"correctly. The API expects a JSON payload, but what was sent was not valid JSON: {exc}.)"
        ) from exc


def _plain_reply(status: int, content: bytes) -> Reply:
    return Reply(turn=Turn(status=status), answer=_raw(content))


def _raw(content: bytes) -> Answer:
    """Return an answer of these bytes, its content type guessed as a careless server would."""
    start = content.lstrip()[:5]
    kind = "text/html" if start[:1] == b"<" else "text/event-stream" if start == b"data:" else "application/json"
    return Answer(
        pieces=(Piece(kind="whole", content=content),), content_type=kind, is_stream=kind == "text/event-stream"
    )


# --- Delivery: where an answer's bytes are split, held and cut off, as its turn says. Plans only; the server sends.

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


# --- Sending: one reply onto one connection, faults and all. Decides nothing about the reply.

_NO_BODY = frozenset({204, 304})
_END_OF_CHUNKS = b"0\r\n\r\n"

_Frame: TypeAlias = bytes | Hold


async def send(connection: Connection, received: Received | None, reply: Reply, gate: Waitable | None) -> bool:
    """Answer one request, or what came instead of one. Return whether the connection may be used again.

    Raises:
        _HungUp: The client closed the connection meanwhile.
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
    frames: list[_Frame] = [_head_of(turn.status, headers)]
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
        raise _HungUp
    return False


# --- The mock provider: a strict vendor on loopback, played from a script. It repairs nothing, and no real model is
# near.


class MockProvider:
    """A provider to test agents against. Use it with `async with`, or in a thread with `with provider.in_thread():`.

    Example:
        >>> with MockProvider(["Hello."]).in_thread() as provider:
        ...     provider.base_url.startswith("http://127.0.0.1:"), provider.requests
        (True, [])

    Turns are counted over the whole server, in the order in which requests come. A refused request takes no turn.

    Args:
        script: A Script, turns, the path of a script's file, or a function of the request's body that makes the turn.
        port: Where to listen; 0 for any free port.
        host: A loopback address.
        record: A file that gets one JSON line a request: method, path, body, status.
        api_key: The key that requests must carry; None to take any.
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON, as some servers do.

    Raises:
        ConfigurationError: The script is invalid, the address is not this machine's own, or it is taken.
    """

    max_body_bytes = 64 * 1024 * 1024

    @checked_but("script")
    def __init__(
        self,
        script: _Playable,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        record: Path | str | None = None,
        api_key: str | None = None,
        lenient_arguments: bool = False,
    ) -> None:
        dialects: list[Dialect] = [
            ChatCompletions(lenient_arguments=lenient_arguments),
            Responses(lenient_arguments=lenient_arguments),
            AnthropicMessages(),
            *claude_dialects(),
            *gemini_dialects(),
            *converse_dialects(),
            CohereChat(),
        ]
        self._vendor = Vendor(script, dialects=dialects, api_key=api_key)
        self._host = _loopback(host)
        self._port = _checked_port(port)
        if record is not None:
            check_path("record", record)
        self._record = record
        self._gates = Gates()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._arrivals = Count()
        self._hangups = Count()

    @property
    def base_url(self) -> str:
        """The address to configure as the provider's, ending in `/v1`."""
        if self._server is None:
            raise ConfigurationError(
                "The mock provider is not running: use it with `async with`, or `with provider.in_thread()`."
            )
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request, in order of arrival."""
        return self._vendor.requests

    @property
    def refusals(self) -> list[Refusal]:
        """Why requests were refused, in order."""
        return self._vendor.refusals

    @property
    def hangups(self) -> int:
        """How many answers the client cut off by closing the connection."""
        return self._hangups.value

    @checked
    def gate(self, name: str) -> Gate:
        """Return the gate of that name, at which turns with `gate=name` wait until the test opens it."""
        return self._gates.named(name)

    @checked
    async def wait_requests(self, count: int) -> None:
        """Return when so many requests have come since the provider was made."""
        await self._arrivals.wait(count)

    @checked
    async def wait_hangups(self, count: int) -> None:
        """Return when so many clients have closed the connection while they were being answered."""
        await self._hangups.wait(count)

    async def __aenter__(self) -> Self:
        if self._server is not None:
            raise ConfigurationError("The mock provider is running already.")
        with contextlib.ExitStack() as undo:
            if self._record is not None:
                self._vendor.recording = undo.enter_context(_opened(self._record))
            self._server = await self._listen()
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        if self._vendor.recording is not None:
            self._vendor.recording.close()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run the provider on an event loop of its own, for code that has none."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(self._run_until_stopped(started)), name="mock-provider", daemon=True
        )
        thread.start()
        loop, stopped = started.result()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stopped.set)
            thread.join()

    async def _run_until_stopped(self, started: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
        stopped = asyncio.Event()
        try:
            await self.__aenter__()
        except ConfigurationError as exc:  # raised again in the thread that asked
            started.set_exception(exc)
            return
        started.set_result((asyncio.get_running_loop(), stopped))
        try:
            await stopped.wait()
        finally:
            await self.__aexit__(None, None, None)

    async def _listen(self) -> asyncio.Server:
        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(Reader(), self._connected)

        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(protocol, self._host, self._port, backlog=1024)
        except OSError as exc:
            raise ConfigurationError(
                f"The mock provider cannot listen on {self._host} port {self._port}: {exc.strerror}."
            ) from exc
        if not server.sockets:  # asyncio passes over what no socket can be made for, as in a sandbox
            raise ConfigurationError(f"The mock provider cannot listen on {self._host}: no socket can be created here.")
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(reader, Reader)
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        connection = Connection(reader, writer, max_body_bytes=self.max_body_bytes)
        try:
            while await self._exchange(connection):
                pass
        except _HungUp:
            self._hangups.add()
        except asyncio.CancelledError:
            # The provider stops. asyncio.streams (3.11) logs a cancelled handler as an error, so it ends quietly here.
            connection.abort()
        finally:
            connection.close()

    async def _exchange(self, connection: Connection) -> bool:
        """Answer one request. Return whether the connection may be used again."""
        try:
            received = await connection.receive()
        except _BadHttp as exc:
            reply = self._vendor.refused(Refusal(str(exc), status=exc.status))
            return await send(connection, None, reply, None)
        if received is None:
            return False
        reply = await self._vendor.reply(received)
        self._arrivals.add()
        return await send(connection, received, reply, self._gate(reply.turn))

    def _gate(self, turn: Turn) -> Waitable | None:
        return self.gate(turn.gate) if isinstance(turn.gate, str) else turn.gate


def _opened(path: Path | str) -> TextIO:
    try:
        return Path(path).open("a", encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"The mock provider cannot record into {str(path)!r}: {exc}.") from exc


def _loopback(host: str) -> str:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"The mock provider listens on this machine only, such as 127.0.0.1; got {host!r:.80}."
        )
    return host


def _checked_port(port: int) -> int:
    check_kind("port", port, int, "a number from 0 to 65535")
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"A port is a number from 0 to 65535; got {port}.")
    return port
