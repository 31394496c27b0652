"""A journal in a PostgreSQL database, shared by any number of machines. It knows nothing of what its events mean.

One thread writes, one reads and one keeps leases, each with a connection of its own, so that no event loop ever waits for
the network. Appends of all sessions that are queued together travel together, in one transaction.
"""

import asyncio
import hashlib
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals import _postgres_queries as queries
from treadle.journals import _postgres_statements as statements
from treadle.journals._appends import append_of, body_of
from treadle.journals._blobs import digest_of
from treadle.journals._postgres_address import parse_address
from treadle.journals._postgres_lease import LEASE_SECONDS, LeaseActs, ServerLease, ServerLeases
from treadle.journals._postgres_link import Link
from treadle.journals._postgres_reader import PostgresReader
from treadle.journals._postgres_schema import Connection
from treadle.journals._postgres_statements import Claim, Sent
from treadle.journals._postgres_writer import PostgresWriter
from treadle.journals._rows import events_of
from treadle.journals._sequence import check_session_id, conflict, parent_of
from treadle.journals._waiting import waiting_approvals
from treadle.journals._worker import Job, Worker
from treadle.ports import InboxMessage, SessionInfo
from treadle.state import Approval

__all__ = ["PostgresJournal", "open_postgres"]

_T = TypeVar("_T")

_MAX_BATCH = 1000
_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow server cannot fill the memory."""

_EXIT_SECONDS = 5.0


async def open_postgres(
    url: str, *, busy_seconds: float = 5.0, patience_seconds: float = 5.0, lease_seconds: float = LEASE_SECONDS
) -> "PostgresJournal":
    """Open a journal in a database now; make its tables when there are none.

    Example:
        journal = await open_postgres("postgresql://treadle:secret@db.example/agents")

    Args:
        url: The database, as the driver takes it. The tables lie in the first schema of its search path.
        busy_seconds: How long to wait for another program that keeps a row or table locked.
        patience_seconds: How long to wait for a server that went away in the middle, as when it is restarted.
        lease_seconds: After so long without a sign of life, the process that runs a session is taken for dead.

    Raises:
        ConfigurationError: The URL is none.
        JournalError: The server cannot be reached, or holds tables that are not ours, or newer. Nothing was changed.
    """
    journal = PostgresJournal(
        url, busy_seconds=busy_seconds, patience_seconds=patience_seconds, lease_seconds=lease_seconds
    )
    try:
        await journal.open()
    except BaseException:  # a task cancelled here must leave no thread behind either
        await journal.close()
        raise
    return journal


class PostgresJournal:
    """The `Journal` port over one schema of a PostgreSQL database. Connects with the first call; see `open_postgres`.

    An append whose task is cancelled is stored all the same. After a deferred append has failed, appends of its session
    are refused until `create` names the session again: whoever opens it goes on from what is stored. An append that was
    under way when the server went away is stored, exactly once, or raises.
    """

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = 5.0,
        patience_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._address = parse_address(url)
        link = partial(Link, self._address, busy_seconds=busy_seconds)
        self._writer = PostgresWriter(link(patience_seconds=patience_seconds), lease_seconds)
        reader = PostgresReader(link(patience_seconds=patience_seconds))
        exit_seconds = busy_seconds + patience_seconds + _EXIT_SECONDS
        self._writing = Worker(
            "treadle-journal-writer", self._writer.serve, self._writer.finish,
            max_batch=_MAX_BATCH, exit_seconds=exit_seconds,
        )  # fmt: skip
        self._reading = Worker(
            "treadle-journal-reader", reader.serve, reader.finish, max_batch=1, exit_seconds=exit_seconds
        )
        # A beat that fails is followed by the next one, so it has no patience of its own.
        heart = link(patience_seconds=0.0)
        self._leases = ServerLeases(_lease_acts(self._writer, self._writing), heart, lease_seconds)
        weakref.finalize(self, _forsake, self._leases, self._writing, self._reading).atexit = False

    @property
    def location(self) -> str:
        return self._address.location

    async def open(self) -> None:
        """Connect now instead of with the first call.

        Raises:
            JournalError: As `open_postgres` says.
        """
        await self._catch_up()

    async def create(self, session_id: str) -> bool:
        check_session_id(session_id)
        return await self._write(partial(self._writer.create, session_id=session_id), session_id)

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> ServerLease:
        return await self._leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._writer.deferred.check(session_id)
        act = partial(self._writer.append, append=append_of(session_id, events, state))
        if durable or self._writing.backlog > _MAX_BACKLOG:
            await self._write(act, session_id, durable=durable)
        else:
            self._writing.submit(Job(act, session_id=session_id))

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        check_session_id(session_id)
        job = append_of(session_id, events, state)
        if events and events[0].seq != 1:
            raise conflict(session_id, 0, events[0].seq)
        messages = [(message, body_of(message)) for message in inbox]
        act = partial(self._writer.adopt, job=job, parent=parent_of(events), inbox=messages)
        await self._write(act, session_id, durable=True)

    async def purge(self, session_id: str, stone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        act = partial(statements.purge, job=append_of(session_id, [stone], "deleted"), blobs=tuple(blobs))
        await self._write(act, session_id, durable=True)

    async def flush(self) -> None:
        try:
            await self._catch_up()
        finally:  # an append that failed is told before a server that is away
            self._writer.deferred.report()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        await self._catch_up()
        after = max(after, 0)

        def read(connection: Connection) -> Sequence[AnyEvent]:
            head = queries.select_head(connection, session_id)  # first: whatever it names is there a moment later
            return events_of(session_id, after, head, queries.select_events(connection, session_id, after))

        return await _done(self._reading, read)

    async def sessions(self) -> Sequence[SessionInfo]:
        await self._catch_up()
        return await _done(self._reading, queries.select_sessions)

    async def now(self) -> float:
        """Return the time by the server's clock, which all machines that share the database can ask."""
        return await _done(self._reading, queries.select_now)

    async def approvals(self) -> Sequence[Approval]:
        return await waiting_approvals(self)

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        act = partial(self._writer.put, session_id=session_id, message=message, body=body_of(message))
        is_new = await self._write(act, session_id, durable=True)  # a person's answer is not to be asked for twice
        self._leases.look()
        return is_new

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        return await _done(self._reading, partial(queries.select_inbox, session_id=session_id))

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        act = partial(statements.consume, session_id=session_id, message_ids=tuple(message_ids), seq=seq)
        await self._write(act, session_id)

    async def put_blob(self, content: bytes) -> str:
        digest = await digest_of(content)
        await self._write(partial(statements.put_blob, digest=digest, content=bytes(content)))
        return digest

    async def blob(self, digest: str) -> bytes | None:
        content = await _done(self._reading, partial(queries.select_blob, digest=digest))
        if content is not None and hashlib.sha256(content).hexdigest() != digest:
            raise JournalError(f"The journal {self.location} is damaged: the bytes stored as {digest} are others.")
        return content

    async def close(self) -> None:
        """Store what is pending and let go of the server. May be called twice.

        Raises:
            JournalError: A deferred append had failed. The connections are closed all the same.
        """
        self._leases.stop()
        loop = asyncio.get_running_loop()
        for worker in (self._reading, self._writing):
            farewell: asyncio.Future[None] = loop.create_future()
            worker.stop(Job(None, future=farewell))
            await farewell
        self._writer.deferred.report()

    async def _write(self, act: Callable[[Connection], Sent[_T]], session_id: str = "", *, durable: bool = False) -> _T:
        return await _sent(self._writing, act, session_id, is_durable=durable)

    async def _catch_up(self) -> None:
        """Return when everything appended so far has been tried. What failed is told by `flush` and the next append."""
        await _done(self._writing, None)


def _lease_acts(writer: PostgresWriter, writing: Worker) -> LeaseActs:
    """Give leases what they need of the writer, and no way to the journal: one that nobody reaches must end."""

    async def claim(session_id: str, owner: str) -> Claim:
        # Durable: a server that forgot it in a crash would give the same number to another one.
        return await _sent(
            writing, partial(writer.claim, session_id=session_id, owner=owner), session_id, is_durable=True
        )

    async def give_back(session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # away or closed meanwhile: the lease ends by itself
            await _sent(writing, partial(writer.give_back, session_id=session_id, epoch=epoch), session_id)

    return LeaseActs(claim=claim, give_back=give_back)


async def _sent(
    worker: Worker, act: Callable[[Connection], Sent[_T]], session_id: str, *, is_durable: bool = False
) -> _T:
    """Return what the writer made of an act that sends."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    worker.submit(Job(act, future=future, session_id=session_id, is_durable=is_durable))
    return await future


async def _done(worker: Worker, act: Callable[[Connection], _T] | None) -> _T:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    worker.submit(Job(act, future=future))
    return await future


def _forsake(leases: ServerLeases, *workers: Worker) -> None:
    """Let the threads of a journal that nobody closed and nobody can reach end, once they have stored what is queued."""
    leases.stop()
    for worker in workers:
        worker.stop()
