"""Connections: just enough HTTP/1.1 to read requests exactly and to answer wrongly on purpose. Knows no script."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Mapping
from http import HTTPStatus

import msgspec

__all__ = ["BadHttp", "Connection", "HungUp", "Reader", "Received", "head_of"]

_MAX_HEAD_BYTES = 64 * 1024
_PHRASES = {item.value: item.phrase for item in HTTPStatus}


class BadHttp(Exception):
    """What came is not a request that can be read. The connection is closed after the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HungUp(Exception):
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
            BadHttp: It cannot be read.
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
            raise BadHttp(431, "The request's head is too large.") from None
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
            raise BadHttp(415, f"The content-encoding {headers['content-encoding']!r} is not supported here.")
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                return await self._chunked_body()
            return await self._reader.readexactly(self._checked_length(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise BadHttp(400, "The request's body is shorter than announced, or its chunks are malformed.") from None

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
            raise BadHttp(400, f"The content-length {length!r:.40} is not a number.")
        if len(length) > 18 or int(length) > self._max_body_bytes:
            raise BadHttp(413, f"The request's body is larger than {self._max_body_bytes} bytes.")
        return int(length)

    async def write(self, content: bytes) -> None:
        """Send bytes and return once the system has taken them.

        Raises:
            HungUp: The client has closed the connection.
        """
        try:
            self._writer.write(content)
            await self._writer.drain()
        except OSError:
            raise HungUp from None

    async def wait(self, awaitable: Awaitable[object]) -> None:
        """Wait for something, unless the client hangs up first.

        Raises:
            HungUp: The client has closed the connection.
        """
        waited = asyncio.ensure_future(awaitable)
        ended = asyncio.ensure_future(self._reader.ended.wait())
        try:
            await asyncio.wait((waited, ended), return_when=asyncio.FIRST_COMPLETED)
            if not waited.done():
                raise HungUp
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


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
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
        raise BadHttp(400, "The request line is malformed.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttp(400, "A header line is malformed.")
        headers[name.lower()] = value.strip()
    return fields[0], fields[1], fields[2], headers


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        return int(digits, 16) if not digits.startswith((b"-", b"+")) else _no_size()
    except ValueError:
        return _no_size()


def _no_size() -> int:
    raise BadHttp(400, "A chunk's size is not a number.")
