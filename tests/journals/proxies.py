"""Proxies in front of a PostgreSQL server, on a socket in its folder: one loses answers, one goes silent, one is a pooler."""

import asyncio
import itertools
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from postgres_server import PostgresServer, connect

COMMITTED = b"COMMIT\0"
"""How a server says that a transaction is stored."""
STARTUP_BYTES = 4
"""Length of what leads the first message of a client, which has no type."""
SYNC, QUERY, FLUSH, TERMINATE, READY = b"S", b"Q", b"H", b"X", b"Z"

PORTS = itertools.count(6000)
"""One for each proxy of this process: it is a part of the socket's name, and several may stand in one folder."""

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Proxy:
    """Takes connections in the place of a server."""

    def __init__(self, folder: Path) -> None:
        self._server = folder / ".s.PGSQL.5432"
        self._port = next(PORTS)
        self._own = folder / f".s.PGSQL.{self._port}"
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_unix_server(self._serve, self._own)
        self._own.chmod(0o777)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._own.unlink(missing_ok=True)

    def url(self, url: str) -> str:
        """Return the address of the same journal through the proxy."""
        return f"{url}&port={self._port}"

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await self.carry(reader, writer)
        await _close(writer)

    async def carry(self, reader: Reader, writer: Writer) -> None:
        """Carry the bytes of a client to the server, and the answers back, until one of them ends."""
        server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        ways = [self.carry_there(reader, server_writer), self.carry_back(server_reader, writer)]
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _close(server_writer)

    async def carry_there(self, reader: Reader, writer: Writer) -> None:
        while some := await reader.read(65536):
            writer.write(some)

    async def carry_back(self, reader: Reader, writer: Writer) -> None:
        while some := await reader.read(65536):
            writer.write(some)


async def _close(writer: Writer) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class CuttingProxy(Proxy):
    """Cuts the connection in place of as many confirmed commits as it is told: stored, and nobody knows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cuts_left = 0
        self.cuts = 0

    async def carry_back(self, reader: Reader, writer: Writer) -> None:
        while some := await reader.read(65536):
            if COMMITTED in some and self.cuts_left:
                self.cuts_left -= 1
                self.cuts += 1
                return
            writer.write(some)


class SilentProxy(Proxy):
    """Takes every byte and answers nothing once it has seen so many messages of clients, to new clients too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.passes: int | None = None
        self.seen = 0
        self.silent = asyncio.Event()

    async def carry_there(self, reader: Reader, writer: Writer) -> None:
        head = b""
        while True:
            length = await reader.readexactly(STARTUP_BYTES)
            (size,) = struct.unpack("!i", length)
            message = head + length + await reader.readexactly(size - STARTUP_BYTES)
            if head:
                self.seen += 1
            if self.passes is not None and self.seen > self.passes:
                self.silent.set()
            if not self.silent.is_set():
                writer.write(message)
            head = await reader.readexactly(1)

    async def carry_back(self, reader: Reader, writer: Writer) -> None:
        while some := await reader.read(65536):
            if not self.silent.is_set():
                writer.write(some)
        await asyncio.Event().wait()  # only its client ends a connection


class PoolingProxy(Proxy):
    """A pooler in transaction mode: gives clients the connections of a pool, one transaction each, in turn.

    It signs clients in by itself, drops their options, and speaks the protocol's third version only.
    """

    def __init__(self, server: PostgresServer, url: str, *, backends: int) -> None:
        super().__init__(server.folder)
        self._connections = [connect(url) for _ in range(backends)]
        self._free: asyncio.Queue[tuple[Reader, Writer]] = asyncio.Queue()
        self._writers: list[Writer] = []
        self._last: object = None
        self.changes = 0
        """How often a transaction went to another connection than the one before."""

    async def __aenter__(self) -> Self:
        for connection in self._connections:
            backend = await _streams(connection)
            self._writers.append(backend[1])
            self._free.put_nowait(backend)
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await super().__aexit__(*exc_info)
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()
        for connection in self._connections:
            connection.close()

    def url(self, url: str) -> str:
        return f"{super().url(url)}&sslmode=disable&gssencmode=disable"

    async def carry(self, reader: Reader, writer: Writer) -> None:
        await _message(reader, has_type=False)
        writer.write(_made(b"R", struct.pack("!i", 0)))
        for name, value in (("server_encoding", "UTF8"), ("client_encoding", "UTF8"), ("server_version", "15.0")):
            writer.write(_made(b"S", f"{name}\0{value}\0".encode()))
        writer.write(_made(b"S", b"standard_conforming_strings\0on\0"))
        writer.write(_made(b"K", struct.pack("!ii", 1, 1)) + _made(READY, b"I"))
        while await self._transaction(reader, writer):
            pass

    async def _transaction(self, reader: Reader, writer: Writer) -> bool:
        """Pass one transaction on. Return whether the client continues."""
        first = await _message(reader)
        if first[:1] == TERMINATE:
            return False
        backend = await self._free.get()
        self.changes += backend is not self._last
        self._last = backend
        back, there = backend
        status, waiting, owed = b"T", [first], 0
        while status != b"I" or owed or waiting:
            message = waiting.pop() if waiting else await _message(reader)
            there.write(message)
            if message[:1] in (SYNC, QUERY):
                owed += 1
            if message[:1] == FLUSH:
                continue
            while owed:
                answer = await _message(back)
                writer.write(answer)
                if answer[:1] == READY:
                    owed -= 1
                    status = answer[5:6]
        self._free.put_nowait(backend)
        return True


async def _streams(connection: psycopg.Connection) -> tuple[Reader, Writer]:
    """Take a connection that is signed in out of the driver's hands."""
    own = socket.socket(fileno=os.dup(connection.pgconn.socket))
    return await asyncio.open_unix_connection(sock=own)


async def _message(reader: Reader, *, has_type: bool = True) -> bytes:
    head = await reader.readexactly(5 if has_type else 4)
    (size,) = struct.unpack("!i", head[-4:])
    return head + await reader.readexactly(size - 4)


def _made(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body
