"""A journal in one SQLite file, shared by any number of processes. It knows nothing of what its events mean.

One thread writes and one reads, so that no event loop ever waits for a disk. Appends of all sessions that are queued
together are one transaction and one sync.
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
from treadle.events import AnyEvent
from treadle.journals.sqlite import statements
from treadle.journals.sqlite.lease import LEASE_SECONDS, Claimed, FileLease, LeaseRows, Leases
from treadle.journals.sqlite.migration import remove_copies
from treadle.journals.sqlite.reader import Reader, StillReader
from treadle.journals.sqlite.writer import Writer
from treadle.journals.store.appends import append_of, body_of
from treadle.journals.store.approvals import waiting_approvals
from treadle.journals.store.blobs import digest_of
from treadle.journals.store.rows import events_of
from treadle.journals.store.sequence import check_session_id, conflict, parent_of
from treadle.journals.store.worker import Job, Worker
from treadle.ports import InboxMessage, SessionInfo
from treadle.state import Approval

__all__ = ["SqliteJournal", "open_sqlite"]

_T = TypeVar("_T")

_MAX_BATCH = 1000
_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow disk cannot fill the memory."""

_LINGER_SECONDS = 0.003
"""How long a deferred append may wait for others, to be stored with them."""

_EXIT_SECONDS = 5.0


async def open_sqlite(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    busy_seconds: float = 5.0,
    lease_seconds: float = LEASE_SECONDS,
) -> "SqliteJournal":
    """Open a journal file now; make it, private to its owner, when there is none.

    Example:
        journal = await open_sqlite("state/journal.db")

    Args:
        path: The file.
        read_only: Make and change nothing; a missing file is an error.
        busy_seconds: How long to wait for another program that keeps the file locked.
        lease_seconds: After so long without a sign of life, the process that runs a session is taken for dead.

    Raises:
        JournalError: The file is not ours, newer, damaged, locked, or cannot be reached. It was not changed.
    """
    journal = SqliteJournal(path, read_only=read_only, busy_seconds=busy_seconds, lease_seconds=lease_seconds)
    try:
        await journal.open()
    except BaseException:  # a task cancelled here must leave no thread behind either
        await journal.close()
        raise
    return journal


class SqliteJournal:
    """The `Journal` port over one SQLite file. The file is opened by the first call; see `open_sqlite`.

    An append whose task is cancelled is stored all the same. After a deferred append has failed, appends of its session
    are refused until `create` names the session again: whoever opens it goes on from what is stored.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        busy_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._path = _path_of(path)
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

    async def open(self) -> None:
        """Open the file now instead of with the first call.

        Raises:
            JournalError: As `open_sqlite` says.
        """
        await self._ask(None)

    async def create(self, session_id: str) -> bool:
        check_session_id(session_id)
        return await self._write(partial(self._writer.create, session_id=session_id, now=time.time()))

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> FileLease:
        self._check_writable()
        return await self._leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._writer.deferred.check(session_id)
        append = append_of(session_id, events, state)
        act = partial(self._writer.append, append=append)
        if durable or self._writing.backlog > _MAX_BACKLOG:
            await self._write(act, session_id=session_id, durable=durable)
        else:
            self._check_writable()
            self._writing.submit(Job(act, session_id=session_id))

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        check_session_id(session_id)
        append = await asyncio.to_thread(append_of, session_id, events, state)  # a session may be long
        if events and events[0].seq != 1:
            raise conflict(session_id, 0, events[0].seq)
        act = partial(
            statements.adopt,
            job=append,
            now=time.time(),
            parent=parent_of(events),
            inbox=[(message, body_of(message)) for message in inbox],
        )
        await self._write(act, durable=True)

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        act = partial(self._writer.purge, job=append_of(session_id, [tombstone], "deleted"), blobs=tuple(blobs))
        await self._write(act, durable=True)
        await asyncio.to_thread(remove_copies, self._path)

    async def flush(self) -> None:
        await self._catch_up()
        self._writer.deferred.report()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        await self._catch_up()
        after = max(after, 0)

        def read(connection: sqlite3.Connection) -> Sequence[AnyEvent]:
            row = statements.select_row(connection, session_id)  # first: whatever it names is there a moment later
            before = statements.select_sum(connection, session_id, after) if after else None
            return events_of(
                session_id, after, row, statements.select_events(connection, session_id, after), before=before
            )

        return await self._ask(read)

    async def sessions(self) -> Sequence[SessionInfo]:
        await self._catch_up()
        return await self._ask(statements.select_sessions)

    async def is_held(self, session_id: str) -> bool:
        """Return whether a process of this machine holds the session's lock."""
        return self._leases.is_held(session_id, await self._epoch(session_id))

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results."""
        await self._catch_up()
        return await self._ask(statements.select_with_unknown_outcomes)

    async def approvals(self) -> Sequence[Approval]:
        return await waiting_approvals(self)

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        act = partial(statements.put, session_id=session_id, message=message, body=body_of(message))
        is_new = await self._write(act, durable=True)  # a person's answer is not to be asked for twice
        self._leases.look()
        return is_new

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        return await self._ask(partial(statements.select_inbox, session_id=session_id))

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        act = partial(statements.consume, session_id=session_id, message_ids=tuple(message_ids), seq=seq)
        await self._write(act)

    async def put_blob(self, content: bytes) -> str:
        digest = await digest_of(content)
        await self._write(partial(statements.put_blob, digest=digest, content=bytes(content)))
        return digest

    async def blob(self, digest: str) -> bytes | None:
        content = await self._ask(partial(statements.select_blob, digest=digest))
        if content is not None and await digest_of(content) != digest:
            raise JournalError(f"The journal {self._path} is damaged: the bytes stored as {digest} are others.")
        return content

    async def close(self) -> None:
        """Store what is pending, fold the log into the database and let go of the file. May be called twice.

        Raises:
            JournalError: A deferred append had failed. The file is closed all the same.
        """
        loop = asyncio.get_running_loop()
        # The reader first: the last connection to close folds the log, and a reader may not.
        for worker in (self._reading, self._writing):
            farewell: asyncio.Future[None] = loop.create_future()
            worker.stop(Job(None, future=farewell))
            await farewell
        self._writer.deferred.report()

    async def _epoch(self, session_id: str) -> int:
        await self._catch_up()
        return await self._ask(partial(statements.epoch_of, session_id=session_id))

    async def _claim(self, session_id: str, seen: int, epoch: int) -> Claimed | None:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        act = partial(self._writer.claim, session_id=session_id, seen=seen, epoch=epoch, owner=owner)
        return await self._write(act)

    def _give_back(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # closed meanwhile: the lock is free all the same, and that is what counts
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

    async def _catch_up(self) -> None:
        """Return when everything appended so far has been tried. What failed is told by `flush` and the next append."""
        if self._read_only or (self._is_open and self._writing.is_idle):
            return
        await _done(self._writing, None)
        self._is_open = True

    async def _ask(self, act: Callable[[sqlite3.Connection], _T] | None) -> _T:
        if not self._is_open:  # the writer makes the file
            await self._catch_up()
        return await _done(self._reading, act)

    def _check_writable(self) -> None:
        if self._read_only:
            raise JournalError(f"The journal {self._path} was opened for reading only.")


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


def _path_of(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise JournalError(f"{text!r} is no file name. Name a file for the journal.")
    path = Path(text).absolute()  # the folder of work may change before the file is opened
    if path.is_symlink() and not path.exists():  # it leads nowhere, perhaps to a disk that is away: opening will tell
        return path
    try:
        return path.resolve()  # a journal that is reached by two names has one log, and one set of locks
    except (OSError, RuntimeError):  # links in a circle: opening will tell
        return path
