"""Wire: JSON messages, one a line, between this process's standard streams and the client that started it. Knows no protocol."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.message import SessionMessage

from treadle.serve.mcp_service import McpService, Offer

__all__ = ["Wire", "serve_mcp", "standard_wire"]

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_HELD = 64
"""Messages that are read ahead. A client that writes faster waits."""


class Wire:
    """Messages from one descriptor and to another. What is not a JSON object is answered with an error, and the next line is read.

    The descriptors are read and written in threads of their own: a client that stops reading holds back who sends, and nobody else.

    Args:
        source: The descriptor that is read.
        target: The descriptor that is written.
        max_bytes: The longest line. Of a longer one nothing is kept.
    """

    def __init__(self, source: int, target: int, *, max_bytes: int = 32_000_000) -> None:
        self._source = source
        self._target = target
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._received: asyncio.Queue[bytes | str | None] = asyncio.Queue(_HELD)
        self._to_send: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._ended = asyncio.Event()
        self._is_closed = False
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True, name="treadle-wire").start()

    # --- as a transport of messages

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None once the client has gone."""
        while (line := await self._next()) is not None:
            message = _decoded(line)
            if isinstance(message, dict):
                return message
            code = _PARSE_ERROR if isinstance(message, str) else _INVALID_REQUEST
            await self.send(_error(code, message or "A message must be one JSON object. Batches are not supported."))
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message, and return when it is written. One to a client that has gone is dropped."""
        if self._ended.is_set() or self._is_closed:
            return
        written: asyncio.Future[None] = self._loop.create_future()
        self._to_send.put((msgspec.json.encode(message) + b"\n", written))
        await written

    async def close(self) -> None:
        """Write no more."""
        if not self._is_closed:
            self._is_closed = True
            self._to_send.put(None)

    def end(self) -> None:
        """Act as if the client had gone: `receive` returns None."""
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the client has gone."""
        return self._ended.is_set()

    async def _next(self) -> bytes | str | None:
        if self._ended.is_set():
            return None
        getting = asyncio.ensure_future(self._received.get())
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
            line = getting.result() if getting.done() else None
        finally:
            getting.cancel()
            ending.cancel()
        if line is None:
            self._ended.set()
        return line

    # --- in threads of their own

    def _read(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            for line in self._lines():
                if line == "" or (isinstance(line, bytes) and not line.strip()):
                    continue
                asyncio.run_coroutine_threadsafe(self._received.put(line), self._loop).result()
            asyncio.run_coroutine_threadsafe(self._received.put(None), self._loop).result()

    def _lines(self) -> Iterator[bytes | str]:
        """Yield each line; for one that is too long, a text that says so."""
        held, is_skipping = bytearray(), False
        while piece := self._piece():
            *ended, rest = piece.split(b"\n")
            for part in ended:
                if not is_skipping:
                    held += part
                    yield bytes(held) if len(held) <= self._max_bytes else self._too_long()
                held.clear()
                is_skipping = False
            held += b"" if is_skipping else rest
            if len(held) > self._max_bytes:
                yield self._too_long()
                held.clear()
                is_skipping = True
        if held:
            yield bytes(held)

    def _piece(self) -> bytes:
        try:
            return os.read(self._source, 262_144)
        except OSError:
            return b""

    def _too_long(self) -> str:
        return f"A message is longer than {self._max_bytes:,} bytes."

    def _write(self) -> None:
        while (one := self._to_send.get()) is not None:
            content, written = one
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(self._target, view) :]
            except OSError:
                self._tell(self._ended.set)
            self._tell(partial(_settle, written))

    def _tell(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(act)


def _settle(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)


def _decoded(line: bytes | str) -> dict[str, Any] | str | None:
    """Return a message; a text that says why a line is not JSON; None for JSON that is not an object."""
    if isinstance(line, str):
        return line
    try:
        message = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        return f"The message is not valid JSON: {error}"
    return message if isinstance(message, dict) else None


def _error(code: int, says: str, frame_id: str | int | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": frame_id, "error": {"code": code, "message": says}}


@contextmanager
def standard_wire(target: int) -> Iterator[Wire]:
    """Take standard input for the wire alone: tools and programs that read it find it empty.

    Args:
        target: The descriptor of standard output itself.
    """
    source = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    wire = Wire(source, target)
    try:
        yield wire
    finally:
        wire.end()
        os.dup2(source, 0)


# --- MCP over standard input and output: frames of a wire to messages of the official package and back. Knows no tool.


async def serve_mcp(offer: Offer, wire: Wire, *, version: str) -> None:
    """Serve one client until it leaves, and return when all that it had begun is recorded."""
    service = McpService(offer, version=version, has_ended=lambda: wire.has_ended)
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    options = service.server.create_initialization_options(NotificationOptions())

    async def feed() -> None:
        async with to_server:
            while (frame := await wire.receive()) is not None:
                try:
                    message = types.jsonrpc_message_adapter.validate_python(frame, by_name=False)
                except ValueError:
                    named = frame.get("id")
                    known = named if isinstance(named, str | int) and not isinstance(named, bool) else None
                    await wire.send(_error(_INVALID_REQUEST, "This is not a JSON-RPC 2.0 message.", known))
                    continue
                await to_server.send(SessionMessage(message))

    async def drain() -> None:
        async with from_server:
            async for one in from_server:
                await wire.send(one.message.model_dump(by_alias=True, exclude_unset=True, mode="json"))

    feeding, draining = asyncio.create_task(feed()), asyncio.create_task(drain())
    try:
        await service.server.run(incoming, outgoing, options)
    finally:
        feeding.cancel()
        await service.finish()
        await asyncio.wait({feeding, draining})
        await wire.close()
