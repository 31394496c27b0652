"""A proxy in front of a PostgreSQL server that goes silent: it takes every byte and answers nothing. For tests."""

import asyncio
import itertools
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

STARTUP_BYTES = 4
"""Length of what leads the first message of a client, which has no type."""


PORTS = itertools.count(6000)
"""One for each proxy of this process: it is a part of the socket's name, and several may stand in one folder."""


class SilentProxy:
    """Passes everything on until it has seen so many messages of clients. Then it is silent, to new clients too."""

    def __init__(self, folder: Path, *, passes: int | None = None) -> None:
        self._server = folder / ".s.PGSQL.5432"
        self._port = next(PORTS)
        self._own = folder / f".s.PGSQL.{self._port}"
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = passes
        self.seen = 0
        self.silent = asyncio.Event()

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        back = asyncio.create_task(self._answer(server_reader, writer))
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await self._pass_on(reader, server_writer)
        back.cancel()
        writer.close()
        server_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        while True:
            length = await reader.readexactly(STARTUP_BYTES)
            (size,) = struct.unpack("!i", length)
            message = head + length + await reader.readexactly(size - STARTUP_BYTES)
            if head:
                self.seen += 1
            if self._passes is not None and self.seen > self._passes:
                self.silent.set()
            if not self.silent.is_set():
                writer.write(message)
            head = await reader.readexactly(1)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65536):
                if not self.silent.is_set():
                    writer.write(some)
