"""A journal in a PostgreSQL database, shared by any number of machines. It knows nothing of what its events mean.

One thread writes, one reads and one keeps leases, each with a connection of its own, so that no event loop ever waits for
the network. All journals of a process on one database share them. Appends of all sessions that are queued together travel
together, in one transaction.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from treadle.concurrency.forks import bury
from treadle.concurrency.patience import CURRENT, FIRST_SECONDS, NEXT_SECONDS, StoreSilent, answer_of
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.postgres import queries, statements
from treadle.journals.postgres.address import Address, parse_address
from treadle.journals.postgres.engine import Limits, engine_for, give_back
from treadle.journals.postgres.hands import Hands
from treadle.journals.postgres.lease import LEASE_SECONDS, LeaseActs, ServerLease, ServerLeases, look_seconds
from treadle.journals.postgres.schema import Connection
from treadle.journals.postgres.statements import Claim, Sent
from treadle.journals.store.appends import append_of, body_of
from treadle.journals.store.approvals import waiting_approvals
from treadle.journals.store.blobs import digest_of
from treadle.journals.store.rows import events_of
from treadle.journals.store.sequence import check_session_id, conflict, parent_of
from treadle.journals.store.worker import Job, Worker
from treadle.ports import InboxMessage, SessionInfo
from treadle.state import Approval

__all__ = ["PostgresJournal", "open_postgres"]

_T = TypeVar("_T")

_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow server cannot fill the memory."""

_LEAST_SECONDS = 2.0
"""To take a lease or to give it back may last as long as it would hold, but not less than this."""


async def open_postgres(
    url: str, *, busy_seconds: float = 5.0, patience_seconds: float = 5.0, lease_seconds: float = LEASE_SECONDS
) -> "PostgresJournal":
    """Open a journal in a database now; make its tables when there are none.

    Example:
        journal = await open_postgres("postgresql://treadle:secret@db.example/agents")

    Args:
        url: The database, as the driver takes it. The tables lie in the first schema of its search path.
        busy_seconds: How long to wait for another program that keeps a row or table locked.
        patience_seconds: How long to wait for a server that went away in the middle, as when it is restarted. One that is
            silent while it should answer is given up after `busy_seconds` and `patience_seconds` together.
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
        self._limits = Limits(busy_seconds, patience_seconds, lease_seconds)
        self._seat = _Seat(self._address, self._limits)
        self._is_closed = False
        self._finalizer = weakref.finalize(self, _Seat.leave, self._seat)
        self._finalizer.atexit = False  # the threads end themselves then

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
        return await self._write(partial(self._here().hands.create, session_id=session_id), session_id)

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> ServerLease:
        return await self._here().leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._here().hands.deferred.check(session_id)
        act = partial(self._here().hands.append, append=append_of(session_id, events, state))
        if durable or self._here().engine.writing.backlog > _MAX_BACKLOG:
            await self._write(act, session_id, durable=durable)
        else:
            seat = self._here()
            seat.engine.writing.submit(Job(act, session_id=session_id, owner=seat.hands))

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        check_session_id(session_id)
        job = await asyncio.to_thread(append_of, session_id, events, state)  # a session may be long
        if events and events[0].seq != 1:
            raise conflict(session_id, 0, events[0].seq)
        messages = [(message, body_of(message)) for message in inbox]
        act = partial(self._here().hands.adopt, job=job, parent=parent_of(events), inbox=messages)
        await self._write(act, session_id, durable=True)

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        act = partial(self._here().hands.purge, job=append_of(session_id, [tombstone], "deleted"), blobs=tuple(blobs))
        await self._write(act, session_id, durable=True)

    async def flush(self) -> None:
        try:
            await self._catch_up()
        finally:  # an append that failed is told before a server that is away
            self._here().hands.deferred.report()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        await self._catch_up()
        after = max(after, 0)

        def read(connection: Connection) -> Sequence[AnyEvent]:
            row = queries.select_row(connection, session_id)  # first: whatever it names is there a moment later
            before = queries.select_sum(connection, session_id, after) if after else None
            return events_of(
                session_id, after, row, queries.select_events(connection, session_id, after), before=before
            )

        return await self._ask(read)

    async def sessions(self) -> Sequence[SessionInfo]:
        await self._catch_up()
        return await self._ask(queries.select_sessions)

    async def now(self) -> float:
        """Return the time by the server's clock, which all machines that share the database can ask."""
        return await self._ask(queries.select_now)

    async def is_held(self, session_id: str) -> bool:
        """Return whether somebody's lease on the session has not ended, by the server's clock."""
        return await self._ask(partial(queries.select_held, session_id=session_id))

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results, by the server."""
        await self._catch_up()
        return await self._ask(queries.select_with_unknown_outcomes)

    async def approvals(self) -> Sequence[Approval]:
        return await waiting_approvals(self)

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        act = partial(self._here().hands.put, session_id=session_id, message=message, body=body_of(message))
        is_new = await self._write(act, session_id, durable=True)  # a person's answer is not to be asked for twice
        self._here().engine.heart.look()
        return is_new

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        return await self._ask(partial(queries.select_inbox, session_id=session_id))

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        act = partial(statements.consume, session_id=session_id, message_ids=tuple(message_ids), seq=seq)
        await self._write(act, session_id)

    async def put_blob(self, content: bytes) -> str:
        digest = await digest_of(content)
        await self._write(partial(statements.put_blob, digest=digest, content=bytes(content)))
        return digest

    async def blob(self, digest: str) -> bytes | None:
        content = await self._ask(partial(queries.select_blob, digest=digest))
        if content is not None and await digest_of(content) != digest:
            raise JournalError(f"The journal {self.location} is damaged: the bytes stored as {digest} are others.")
        return content

    async def close(self) -> None:
        """Store what is pending and let go of the server. May be called twice.

        Raises:
            JournalError: A deferred append had failed. The connections are closed all the same.
        """
        if not self._is_closed:
            self._is_closed = True
            self._finalizer.detach()
            await self._seat.close()
        self._seat.hands.deferred.report()

    def _here(self) -> "_Seat":
        """Return what this process has of the journal."""
        if self._is_closed:
            raise JournalError("This journal is closed. Open it again.")
        if self._seat.engine.pid != os.getpid():
            self._seat = self._seat.anew()
        return self._seat

    async def _write(self, act: Callable[[Connection], Sent[_T]], session_id: str = "", *, durable: bool = False) -> _T:
        return await self._here().write(act, session_id, is_durable=durable)

    async def _ask(self, act: Callable[[Connection], _T]) -> _T:
        seat = self._here()
        return await seat.submit(seat.engine.reading, Job(act))

    async def _catch_up(self) -> None:
        """Return when everything appended so far has been tried. What failed is told by `flush` and the next append."""
        seat = self._here()
        await seat.submit(seat.engine.writing, Job[None](None))


class _Seat:
    """One journal's place at the engine that it shares, in one process. Knows no way to the journal: one that nobody
    reaches any more must end.
    """

    def __init__(self, address: Address, limits: Limits, *, foreign: Collection[str] = ()) -> None:
        self._address = address
        self._limits = limits
        self.engine = engine_for(address, limits)
        self.hands = Hands(self.engine.writer.transaction, limits.lease, look_seconds(limits.lease), foreign=foreign)
        self.engine.writer.add(self.hands)
        acts = LeaseActs(claim=self._claim, give_back=self._give_back, abandon=self._abandon)
        self.leases = ServerLeases(acts, self.engine.heart, limits.lease)

    def anew(self) -> "_Seat":
        """Return a place for a process that was forked. The leases are the parent's."""
        bury(self)  # closing its connections here would end the parent's
        return _Seat(self._address, self._limits, foreign=self.hands.held)

    async def submit(self, worker: Worker, job: Job[_T]) -> _T:
        """Have a job done, and return what came of it."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        job.future = future
        worker.submit(job)
        try:
            return await answer_of(future, self._address.location, instead=self.engine.patience)
        except StoreSilent:
            self.engine.note_silence(NEXT_SECONDS)
            raise
        except asyncio.CancelledError:
            if (patience := CURRENT.get()) is not None and patience.is_hurried:  # a run was cancelled before it began
                self.engine.note_silence(FIRST_SECONDS)
            raise

    async def write(self, act: Callable[[Connection], Sent[_T]], session_id: str, *, is_durable: bool = False) -> _T:
        """Return what the writer made of an act that sends."""
        job: Job[Any] = Job(act, session_id=session_id, is_durable=is_durable, owner=self.hands)
        found: _T = await self.submit(self.engine.writing, job)
        return found

    async def _claim(self, session_id: str, owner: str) -> Claim:
        # Durable: a server that forgot it in a crash would give the same number to another one.
        act = partial(self.hands.claim, session_id=session_id, owner=owner)
        return await self._write_in_time(act, session_id, is_durable=True)

    async def _give_back(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # away or closed meanwhile: the lease ends by itself
            await self._write_in_time(partial(self.hands.give_back, session_id=session_id, epoch=epoch), session_id)

    async def _write_in_time(
        self, act: Callable[[Connection], Sent[_T]], session_id: str, *, is_durable: bool = False
    ) -> _T:
        """Do something with a lease that nobody's clock watches. An answer after the lease would have ended is of no use.

        Raises:
            StoreSilent: The server did not answer in that time.
        """
        limit = max(self._limits.lease, _LEAST_SECONDS)
        try:
            async with asyncio.timeout(limit):
                return await self.write(act, session_id, is_durable=is_durable)
        except TimeoutError:
            self.engine.note_silence(NEXT_SECONDS)
            raise StoreSilent(f"The journal {self._address.location} did not answer for {limit:g} s.") from None

    def _abandon(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # as above
            act = partial(self.hands.give_back, session_id=session_id, epoch=epoch)
            self.engine.writing.submit(Job(act, session_id=session_id, is_aside=True, owner=self.hands))

    def leave(self) -> bool:
        """Let go of the engine, which ends with its last journal. Return whether it ends. Does not wait."""
        if self.engine.pid != os.getpid():
            return False
        self.leases.stop()
        if not give_back(self.engine):
            return False
        self.engine.stop(at_once=self.engine.is_silent)
        return True

    async def close(self) -> None:
        """Store what is pending and let go of the engine."""
        if self.engine.pid != os.getpid():
            return
        try:
            with suppress(JournalError):
                for worker in (self.engine.reading, self.engine.writing):
                    if not self.engine.is_silent:
                        await self.submit(worker, Job[None](None))
        finally:
            if self.leave() and not self.engine.is_silent:
                await self.engine.wait_for_end()
