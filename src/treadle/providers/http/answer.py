"""Answer: one HTTP answer, read under our own limits of time and size. Knows no dialect, sends nothing."""

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from treadle.errors import (
    IncompleteStream,
    ModelError,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.providers.http.endpoint import Endpoint, Timeouts

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.connector import Connection

__all__ = [
    "ACCEPTED",
    "PIECE_BYTES",
    "Answer",
    "Exchange",
    "in_words",
    "kept_answer",
    "no_first_byte",
    "unpacker_for",
]


# --- Unpacking: compressed bytes in, small pieces of what they hold out. Bounded at each step; does no I/O.

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


class _Unpacker:
    """Decompresses one body step by step. 60 KB can hold 60 MB, so no step gives more than one piece."""

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
        """Return the next piece; nothing when more bytes are needed."""
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
        """Check that the body is whole."""
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


def unpacker_for(encoding: str, *, shown: str) -> _Unpacker | None:
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
            return _Unpacker(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), shown=shown)
        case "deflate":
            return _Unpacker(_Deflate, shown=shown)
        case other:
            raise ModelResponseInvalid(
                f"{shown} compressed its answer with {other!r:.40}, which was not offered. Only {ACCEPTED} can be read."
            )


# --- Answer: one HTTP answer, read under our own limits of time and size. Knows no dialect, sends nothing.

_TURN_SECONDS = 0.005
"""How long an answer is read before others get a turn: a fast server always has more, and never makes us wait."""

_DRAIN_SECONDS = 0.25
"""What a kept connection is worth: the wait for the last bytes of an answer that is whole already."""

_LARGE_BYTES = 1024 * 1024


class _Kept:
    """A body that has come already, read like one that comes."""

    def __init__(self, body: bytes) -> None:
        self._rest = body

    def on_eof(self, callback: Callable[[], None]) -> None:
        callback()

    def at_eof(self) -> bool:
        return not self._rest

    def read_nowait(self, size: int) -> bytes:
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    async def read(self, size: int) -> bytes:
        return self.read_nowait(size)


class Exchange(NamedTuple):
    """A request that was sent, and the head of its answer."""

    connection: "Connection | None"
    """None for a body that has come already."""
    status: int
    headers: Mapping[str, str]
    content: "StreamReader | _Kept"
    """Where the body comes."""


class Answer:
    """The answer to one request: its head, and its body as it comes. Close it when done."""

    def __init__(
        self, exchange: "Exchange", endpoint: Endpoint, *, timeouts: Timeouts, sent_at: float, max_bytes: int
    ) -> None:
        self._timeouts = timeouts
        self.status = exchange.status
        self.headers = exchange.headers
        self.endpoint = endpoint
        self._connection: Connection | None = exchange.connection
        self._content = exchange.content
        self._loop = asyncio.get_running_loop()
        self._ends_at = sent_at + timeouts.total_seconds
        self._first_byte_at: float | None = sent_at + timeouts.first_byte_seconds
        self._idle_seconds = self._pause_seconds = timeouts.idle_seconds
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes
        self._turn_began = self._loop.time()
        try:
            self._unpacker = unpacker_for(self.headers.get("Content-Encoding", ""), shown=endpoint.shown)
        except ModelResponseInvalid:
            self.close()
            raise
        self._content.on_eof(self._keep_connection)

    @property
    def content_type(self) -> str:
        """What the server calls the body, such as `text/event-stream`; nothing where it does not say."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def read(self, *, pause_seconds: float | None = None) -> bytes:
        """Return the next piece of the body, decompressed: at most `PIECE_BYTES`; nothing at its end.

        Args:
            pause_seconds: How long to wait for it, where that is less than between any two pieces.

        Raises:
            ModelUnavailable: The server fell silent or takes too long.
            IncompleteStream: The connection broke, or the compressed body was cut off.
            ModelResponseInvalid: The body is larger than the limit, or is not compressed as the server said.
        """
        await self.give_turn()
        self._pause_seconds = self._idle_seconds if pause_seconds is None else min(pause_seconds, self._idle_seconds)
        piece = await (self._read_raw() if self._unpacker is None else self._read_unpacked(self._unpacker))
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            self.close()
            raise ModelResponseInvalid(f"The answer of {self.endpoint.shown} is larger than {self._max_bytes} bytes.")
        return piece

    @property
    def _is_at_end(self) -> bool:
        """Whether nothing is left to read, as is known of most answers with their first bytes."""
        return self._unpacker is None and self._content.at_eof()

    async def read_rest(self, *, max_bytes: int | None = None) -> bytes:
        """Return the whole of the body that is left.

        Args:
            max_bytes: Bytes that it may have; None for the limit of every answer.

        Raises:
            ModelError: As `read` does.
        """
        if max_bytes is not None and max_bytes < self._bytes_left:
            self._bytes_left = self._max_bytes = max_bytes
        pieces = []
        while not self._is_at_end and (piece := await self.read()):
            pieces.append(piece)
        return b"".join(pieces)

    async def give_turn(self, size: int = 0) -> None:
        """Let others have a turn of the event loop, if this answer has had it for long.

        Args:
            size: Bytes that are about to be decoded in one go; for many, a turn is given in any case.
        """
        if size > _LARGE_BYTES:
            await asyncio.sleep(0)  # the first turn is for what was ready already, the second for timers and sockets
        if size > _LARGE_BYTES or self._loop.time() - self._turn_began > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn_began = self._loop.time()

    def hasten(self, idle_seconds: float) -> None:
        """Wait no longer than this for each further piece."""
        self._idle_seconds = min(self._idle_seconds, idle_seconds)

    async def drain(self) -> None:
        """Read a little on to the end of the body, so that the connection can be used again. Never fails."""
        self.hasten(_DRAIN_SECONDS)
        self._bytes_left = min(self._bytes_left, 64 * 1024)
        try:
            await self.read_rest()
        except ModelError:
            self.close()

    def close(self) -> None:
        """Let go of the connection: kept when the body was read to its end, else closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _keep_connection(self) -> None:
        """The body has come. A server that answers before it has read the request may never read on: that connection is closed."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = connection.transport
        if transport is not None and transport.get_write_buffer_size():
            connection.close()
        else:
            connection.release()

    async def _read_unpacked(self, unpacker: _Unpacker) -> bytes:
        while not (piece := unpacker.take()):
            packed = await self._read_raw()
            if not packed:
                unpacker.finish()
                return b""
            unpacker.feed(packed)
        return piece

    async def _read_raw(self) -> bytes:
        content = self._content
        try:
            piece = content.read_nowait(PIECE_BYTES)
            if not piece and not content.at_eof():
                piece = await self._wait()
        except _failures() as exc:  # asked only when something is raised
            self.close()
            raise IncompleteStream(
                f"The connection to {self.endpoint.shown} broke in the middle of the answer: {in_words(exc)}."
            ) from exc
        self._first_byte_at = None
        return piece

    async def _wait(self) -> bytes:
        now = self._loop.time()
        silence_ends_at = self._first_byte_at or now + self._pause_seconds
        timer = asyncio.timeout_at(min(silence_ends_at, self._ends_at))
        try:
            async with timer:
                piece = await self._content.read(PIECE_BYTES)
        except TimeoutError as exc:
            if not timer.expired():
                raise
            self.close()
            raise ModelUnavailable(self._complaint(is_total=self._ends_at <= silence_ends_at)) from exc
        self._turn_began = self._loop.time()
        return piece

    def _complaint(self, *, is_total: bool) -> str:
        timeouts, shown = self._timeouts, self.endpoint.shown
        if is_total:
            return f"The answer of {shown} took longer than {timeouts.total_seconds:g} s (Timeouts.total_seconds)."
        if self._first_byte_at is not None:
            return no_first_byte(shown, timeouts)
        return (
            f"{shown} sent nothing for {self._pause_seconds:g} s in the middle of the answer (Timeouts.idle_seconds)."
        )


def no_first_byte(shown: str, timeouts: Timeouts) -> str:
    seconds = min(timeouts.first_byte_seconds, timeouts.total_seconds)
    return f"{shown} sent no answer within {seconds:g} s. For a slow model raise Timeouts.first_byte_seconds."


def in_words(exc: BaseException) -> str:
    """Say in a few words what the system says; never an address, which may hold a password."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return type(exc).__name__


def _failures() -> tuple[type[Exception], ...]:
    from aiohttp import ClientError  # noqa: PLC0415 - whoever has an answer has loaded it

    return ClientError, OSError


def kept_answer(endpoint: Endpoint, status: int, body: bytes) -> Answer:
    """Return an answer in JSON whose body has come already."""
    exchange = Exchange(None, status, {"Content-Type": "application/json"}, _Kept(body))
    now = asyncio.get_running_loop().time()
    return Answer(exchange, endpoint, timeouts=endpoint.timeouts, sent_at=now, max_bytes=len(body))
