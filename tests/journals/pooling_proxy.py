"""A pooler in front of PostgreSQL, in transaction mode: each transaction goes to the next of its connections. For tests.

It signs clients in by itself, drops their options, and speaks the protocol's third version only.
"""

import asyncio
import os
import socket
import struct
from contextlib import suppress
from typing import Self

import psycopg

from postgres_server import PostgresServer, connect

SYNC, QUERY, TERMINATE, READY = b"S", b"Q", b"X", b"Z"


class PoolingProxy:
    """Gives clients the connections of a pool, one transaction each, in turn."""

    def __init__(self, server: PostgresServer, url: str, *, backends: int) -> None:
        self._own = server.folder / ".s.PGSQL.5435"
        self._connections = [connect(url) for _ in range(backends)]
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._last: object = None
        self.changes = 0
        """How often a transaction went to another connection than the one before."""

    async def __aenter__(self) -> Self:
        for connection in self._connections:
            backend = await _streams(connection)
            self._writers.append(backend[1])
            self._free.put_nowait(backend)
        self._listening = await asyncio.start_unix_server(self._serve, self._own)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._own.unlink(missing_ok=True)
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()
        for connection in self._connections:
            connection.close()

    def url(self, url: str) -> str:
        """Return the address of the same journal through the pooler."""
        return url + "&port=5435&sslmode=disable&gssencmode=disable"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _message(reader, has_type=False)
            writer.write(_made(b"R", struct.pack("!i", 0)))
            for name, value in (("server_encoding", "UTF8"), ("client_encoding", "UTF8"), ("server_version", "15.0")):
                writer.write(_made(b"S", f"{name}\0{value}\0".encode()))
            writer.write(_made(b"S", b"standard_conforming_strings\0on\0"))
            writer.write(_made(b"K", struct.pack("!ii", 1, 1)) + _made(READY, b"I"))
            while await self._transaction(reader, writer):
                pass
        writer.close()

    async def _transaction(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass one transaction on. Return whether the client continues."""
        first = await _message(reader)
        if first[:1] == TERMINATE:
            return False
        backend = await self._free.get()
        self.changes += backend is not self._last
        self._last = backend
        there, back = backend[1], backend[0]
        status, waiting = b"T", [first]
        owed = 0
        while status != b"I" or owed or waiting:
            message = waiting.pop() if waiting else await _message(reader)
            there.write(message)
            if message[:1] in (SYNC, QUERY):
                owed += 1
            if message[:1] == b"H":
                continue
            while owed:
                answer = await _message(back)
                writer.write(answer)
                if answer[:1] == READY:
                    owed -= 1
                    status = answer[5:6]
        self._free.put_nowait(backend)
        return True


async def _streams(connection: psycopg.Connection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take a connection that is signed in out of the driver's hands."""
    own = socket.socket(fileno=os.dup(connection.pgconn.socket))
    return await asyncio.open_unix_connection(sock=own)


async def _message(reader: asyncio.StreamReader, *, has_type: bool = True) -> bytes:
    head = await reader.readexactly(5 if has_type else 4)
    (size,) = struct.unpack("!i", head[-4:])
    return head + await reader.readexactly(size - 4)


def _made(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body
