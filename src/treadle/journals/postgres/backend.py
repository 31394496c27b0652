"""One journal's place in a PostgreSQL store. Its threads and connections are shared: see `engine`.

No event loop ever waits for the network. Appends of all sessions that are queued together travel together, in one
transaction.
"""

import asyncio
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, TypeVar

from treadle.concurrency.forks import bury
from treadle.concurrency.patience import CURRENT, FIRST_SECONDS, NEXT_SECONDS, StoreSilent, answer_of
from treadle.errors import JournalError
from treadle.journals.postgres import queries, statements
from treadle.journals.postgres.address import Address
from treadle.journals.postgres.bell import hearing_bell
from treadle.journals.postgres.engine import Limits, engine_for, give_back
from treadle.journals.postgres.hands import Hands
from treadle.journals.postgres.lease import LeaseActs, ServerLease, ServerLeases
from treadle.journals.postgres.live import LiveDesk, hearing
from treadle.journals.postgres.schema import Connection
from treadle.journals.postgres.statements import Claim, Sent
from treadle.journals.store.appends import Append
from treadle.journals.store.due import DueRow
from treadle.journals.store.lease import look_seconds
from treadle.journals.store.sums import MessageRow
from treadle.journals.store.tables import TableBackend
from treadle.journals.store.worker import Job, Worker

__all__ = ["PostgresBackend"]

_T = TypeVar("_T")

_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow server cannot fill the memory."""

_LEAST_SECONDS = 2.0
"""To take a lease or to give it back may last as long as it would hold, but not less than this."""


class PostgresBackend(TableBackend[Connection]):
    """The primitives of a journal over one schema of a database. The first of them connects.

    An append that was under way when the server went away is stored, exactly once, or raises.
    """

    def __init__(self, address: Address, limits: Limits) -> None:
        super().__init__(queries)
        self._address = address
        self._seat = _Seat(address, limits)
        self._live = LiveDesk(self.ask)
        self._finalizer = weakref.finalize(self, _Seat.leave, self._seat)
        self._finalizer.atexit = False  # the threads end themselves then

    @property
    def location(self) -> str:
        return self._address.location

    async def create(self, session_id: str) -> bool:
        return await self._write(partial(self._here().hands.create, session_id=session_id), session_id)

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> ServerLease:
        return await self._here().leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def now(self) -> float:
        """Return the time by the server's clock, which all machines that share the database can ask."""
        return await self.ask(queries.select_now)

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions on which somebody's lease has not ended, by the server's clock."""
        return await self.ask(partial(queries.select_held, session_ids=session_ids)) if session_ids else ()

    async def append(self, append: Append, *, durable: bool) -> None:
        seat = self._here()
        seat.leases.check(append.session_id)
        act = partial(seat.hands.append, append=append)
        if durable or seat.engine.writing.backlog > _MAX_BACKLOG:
            await self._write(act, append.session_id, durable=durable)
        else:
            seat.engine.writing.submit(Job(act, session_id=append.session_id, owner=seat.hands))

    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        act = partial(self._here().hands.adopt, job=append, parent=parent, inbox=inbox)
        await self._write(act, append.session_id, durable=True)

    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        act = partial(self._here().hands.purge, job=append, blobs=blobs)
        await self._write(act, append.session_id, durable=True)

    async def put(self, session_id: str, message: MessageRow) -> bool:
        act = partial(self._here().hands.put, session_id=session_id, message=message)
        is_new = await self._write(act, session_id, durable=True)  # a person's answer is not to be asked for twice
        self._here().engine.heart.look()
        return is_new

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        act = partial(statements.consume, session_id=session_id, message_ids=message_ids, seq=seq)
        await self._write(act, session_id)

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
        await self._write(partial(statements.reindex, session_id=session_id, head=head, rows=rows), session_id)

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        return await self._live.tell(session_id, number, pieces, told)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        return hearing(self._address, session_id)

    def hear_bell(self, ring: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return hearing_bell(self._address, ring)

    async def put_blob(self, digest: str, content: bytes) -> None:
        await self._write(partial(statements.put_blob, digest=digest, content=content))

    def check(self, session_id: str) -> None:
        self._here().hands.deferred.check(session_id)

    def report(self) -> None:
        self._seat.hands.deferred.report()

    async def close(self) -> None:
        """Store what is pending and let go of the server. May be called twice."""
        if self._finalizer.detach() is not None:
            await self._seat.close()

    async def settle(self) -> None:
        seat = self._here()
        await seat.submit(seat.engine.writing, Job[None](None))

    async def ask(self, question: Callable[[Connection], _T]) -> _T:
        seat = self._here()
        return await seat.submit(seat.engine.reading, Job(question))

    async def _write(self, act: Callable[[Connection], Sent[_T]], session_id: str = "", *, durable: bool = False) -> _T:
        return await self._here().write(act, session_id, is_durable=durable)

    def _here(self) -> "_Seat":
        """Return what this process has of the journal."""
        if self._seat.engine.pid != os.getpid():
            self._seat = self._seat.anew()
        return self._seat


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
        self.leases = ServerLeases(acts, self.engine.heart, limits.lease, self._address.location)

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
