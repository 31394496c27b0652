"""A journal file and its two threads: one writes and one reads, so that no event loop ever waits for a disk.

Appends of all sessions that are queued together are one transaction and one sync.
"""

import asyncio
import os
import socket
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from treadle.errors import JournalError
from treadle.journals.sqlite import statements
from treadle.journals.sqlite.lease import Claimed, FileLease, LeaseRows, Leases
from treadle.journals.sqlite.migration import remove_copies
from treadle.journals.sqlite.reader import Reader, StillReader
from treadle.journals.sqlite.writer import Writer
from treadle.journals.store.appends import Append
from treadle.journals.store.due import DueRow
from treadle.journals.store.sums import MessageRow
from treadle.journals.store.tables import TableBackend
from treadle.journals.store.worker import Job, Worker

__all__ = ["SqliteBackend"]

_T = TypeVar("_T")

_MAX_BATCH = 1000
_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow disk cannot fill the memory."""

_LINGER_SECONDS = 0.003
"""How long a deferred append may wait for others, to be stored with them."""

_EXIT_SECONDS = 5.0


class SqliteBackend(TableBackend[sqlite3.Connection]):
    """The primitives of a journal over one SQLite file, which the first of them opens."""

    def __init__(self, path: Path, *, read_only: bool, busy_seconds: float, lease_seconds: float) -> None:
        super().__init__(statements)
        self._path = path
        self._read_only = read_only
        self._is_open = False
        self._writer = Writer(self._path, busy_seconds)
        reader = (StillReader if read_only else Reader)(self._path, busy_seconds)
        exit_seconds = busy_seconds + _EXIT_SECONDS
        self._writing = Worker(
            "treadle-journal-writer", self._writer.serve, self._writer.finish,
            max_batch=_MAX_BATCH, exit_seconds=exit_seconds, linger_seconds=_LINGER_SECONDS,
        )  # fmt: skip
        self._reading = Worker(
            "treadle-journal-reader", reader.serve, reader.finish, max_batch=1, exit_seconds=exit_seconds
        )
        rows = LeaseRows(
            read=self._epoch,
            guess=self._writer.epoch_seen,
            claim=self._claim,
            give_back=self._give_back,
            look=self._look,
        )
        self._leases = Leases(self._path, rows, lease_seconds)
        self._writer.note = _weakly(self._leases.note)  # the thread must not keep a journal that nobody reaches
        weakref.finalize(self, _forsake, self._writing, self._reading).atexit = False  # workers end themselves then

    @property
    def location(self) -> str:
        return str(self._path)

    async def create(self, session_id: str) -> bool:
        return await self._write(partial(self._writer.create, session_id=session_id, now=time.time()))

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> FileLease:
        self._check_writable()
        return await self._leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions whose locks a process of this machine holds."""
        await self.settle()

        def ask(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            return [(one, statements.epoch_of(connection, session_id=one)) for one in session_ids]

        return [one for one, epoch in await self.ask(ask) if self._leases.is_held(one, epoch)]

    async def append(self, append: Append, *, durable: bool) -> None:
        act = partial(self._writer.append, append=append)
        if durable or self._writing.backlog > _MAX_BACKLOG:
            await self._write(act, session_id=append.session_id, durable=durable)
        else:
            self._check_writable()
            self._writing.submit(Job(act, session_id=append.session_id))

    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        act = partial(statements.adopt, job=append, now=time.time(), parent=parent, inbox=inbox)
        await self._write(act, durable=True)

    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        await self._write(partial(self._writer.purge, job=append, blobs=blobs), durable=True)
        await asyncio.to_thread(remove_copies, self._path)

    async def put(self, session_id: str, message: MessageRow) -> bool:
        # Durable: a person's answer is not to be asked for twice.
        is_new = await self._write(partial(statements.put, session_id=session_id, message=message), durable=True)
        self._leases.look()
        return is_new

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        await self._write(partial(statements.consume, session_id=session_id, message_ids=message_ids, seq=seq))

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
        await self._write(partial(statements.reindex, session_id=session_id, head=head, rows=rows))

    async def put_blob(self, digest: str, content: bytes) -> None:
        await self._write(partial(statements.put_blob, digest=digest, content=content))

    def check(self, session_id: str) -> None:
        self._writer.deferred.check(session_id)

    def report(self) -> None:
        self._writer.deferred.report()

    async def close(self) -> None:
        """Store what is pending, fold the log into the database and let go of the file. May be called twice."""
        loop = asyncio.get_running_loop()
        # The reader first: the last connection to close folds the log, and a reader may not.
        for worker in (self._reading, self._writing):
            farewell: asyncio.Future[None] = loop.create_future()
            worker.stop(Job(None, future=farewell))
            await farewell

    async def settle(self) -> None:
        if self._read_only or (self._is_open and self._writing.is_idle):
            return
        await _done(self._writing, None)
        self._is_open = True

    async def ask(self, question: Callable[[sqlite3.Connection], _T] | None) -> _T:
        if not self._is_open:  # the writer makes the file
            await self.settle()
        return await _done(self._reading, question)

    async def _epoch(self, session_id: str) -> int:
        await self.settle()
        return await self.ask(partial(statements.epoch_of, session_id=session_id))

    async def _claim(self, session_id: str, seen: int, epoch: int) -> Claimed | None:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        act = partial(self._writer.claim, session_id=session_id, seen=seen, epoch=epoch, owner=owner)
        return await self._write(act)

    def _give_back(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # closed meanwhile: the lock is free anyway, and that is what counts
            act = partial(self._writer.give_back, session_id=session_id, epoch=epoch)
            self._writing.submit(Job(act, is_aside=True))

    def _look(self) -> None:
        with suppress(JournalError):  # closed meanwhile
            self._reading.submit(Job(lambda connection: self._leases.tell(statements.select_arrivals(connection))))

    async def _write(
        self, act: Callable[[sqlite3.Connection], _T], *, session_id: str = "", durable: bool = False
    ) -> _T:
        self._check_writable()
        outcome = await _done(self._writing, act, session_id=session_id, is_durable=durable)
        self._is_open = True
        return outcome

    def _check_writable(self) -> None:
        if self._read_only:
            raise JournalError(
                f"The journal {self._path} was opened for reading only. Open it again with open_journal({str(self._path)!r})."
            )


async def _done(
    worker: Worker,
    act: Callable[[sqlite3.Connection], _T] | None,
    *,
    session_id: str = "",
    is_durable: bool = False,
) -> _T:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    worker.submit(Job(act, future=future, session_id=session_id, is_durable=is_durable))
    return await future


def _weakly(method: Callable[[Mapping[str, int]], None]) -> Callable[[Mapping[str, int]], None]:
    """Return what calls a method for as long as its object lives."""
    weak = weakref.WeakMethod(method)

    def call(heads: Mapping[str, int]) -> None:
        if (strong := weak()) is not None:
            strong(heads)

    return call


def _forsake(*workers: Worker) -> None:
    """Let the threads of a journal that nobody closed and nobody can reach end, once they have stored what is queued."""
    for worker in workers:
        worker.stop()
