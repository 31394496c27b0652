"""A proxy in front of a PostgreSQL server that loses the answer to a COMMIT: stored, and nobody knows. For tests."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self

COMMITTED = b"COMMIT\0"
"""How a server says that a transaction is stored."""


class CuttingProxy:
    """Passes everything on, and cuts the connection in place of as many confirmed commits as it is told."""

    def __init__(self, folder: Path) -> None:
        self._server = folder / ".s.PGSQL.5432"
        self._own = folder / ".s.PGSQL.5433"
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts_left = 0
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_unix_server(self._serve, self._own)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._listening is not None
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._own.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        there = asyncio.create_task(self._pass_on(reader, server_writer))
        with suppress(ConnectionError, asyncio.CancelledError):
            await self._answer(server_reader, writer)
        there.cancel()
        writer.close()
        server_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65536):
                writer.write(some)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(65536):
            if COMMITTED in some and self.cuts_left:
                self.cuts_left -= 1
                self.cuts += 1
                return
            writer.write(some)
