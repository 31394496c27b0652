"""The writing side of a PostgreSQL journal: all that is queued goes into one transaction. Runs on the writer's thread only.

Durability: with `synchronous_commit = on` COMMIT returns once the server's log is on its disk, and the log is one for all,
so also what was committed before without. With `off` the server may lose the last such commits when it crashes itself,
always from the end. kill -9 of this process loses neither.

A connection may be lost after COMMIT was sent and before its answer came. Everything is then done once more, and what turns
out to be stored already has succeeded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import psycopg
from psycopg import generators

from treadle.errors import JournalError, SessionError
from treadle.journals import _postgres_statements as statements
from treadle.journals._appends import Append
from treadle.journals._deferred import Deferred, again
from treadle.journals._postgres_faults import COLLISIONS, OWN_FAULTS, describe
from treadle.journals._postgres_link import Link
from treadle.journals._postgres_schema import Connection
from treadle.journals._postgres_statements import Claim, Sent
from treadle.journals._sequence import exists
from treadle.journals._worker import Job
from treadle.ports import InboxMessage

__all__ = ["PostgresWriter"]

_Sent: TypeAlias = list[tuple[Job[Any], Sent[Any]]]  # Any: jobs of all outcomes share one queue


class PostgresWriter:
    """Serves jobs that write. The act of a job sends its statements and returns what gives its outcome."""

    def __init__(self, link: Link, lease_seconds: float) -> None:
        self.deferred = Deferred()
        self._link = link
        self._lease_seconds = lease_seconds
        self._epochs: dict[str, int] = {}
        self._held: set[str] = set()
        self._claimed: list[str] = []
        """Sessions taken in the transaction under way."""
        self._tries = 0

    # --- acts of jobs

    def create(self, connection: Connection, session_id: str) -> Sent[bool]:
        sent = statements.create(connection, session_id)

        def outcome() -> bool:
            made, epoch = sent()
            if session_id not in self._held:  # a fenced run must not be let in again by whoever opens its session
                self._epochs[session_id] = epoch
            self.deferred.forget(session_id)
            return made

        return outcome

    def claim(self, connection: Connection, session_id: str, owner: str) -> Sent[Claim]:
        sent = statements.claim(connection, session_id, owner, self._lease_seconds)

        def outcome() -> Claim:
            claim = sent()
            if claim.epoch is not None:
                self._epochs[session_id] = claim.epoch
                self._held.add(session_id)
                self._claimed.append(session_id)
            return claim

        return outcome

    def give_back(self, connection: Connection, session_id: str, epoch: int) -> Sent[None]:
        if self._epochs.get(session_id) == epoch:
            self._held.discard(session_id)
        return statements.give_back(connection, session_id, epoch)

    def append(self, connection: Connection, append: Append) -> Sent[None]:
        session_id = append.session_id
        self.deferred.refuse(session_id)
        epoch = self._epochs.get(session_id)
        lease_seconds = self._lease_seconds if session_id in self._held else None
        sent = statements.append(connection, append, epoch, lease_seconds=lease_seconds)

        def outcome() -> None:
            stored_epoch = sent()
            if stored_epoch is not None:
                self._epochs[session_id] = stored_epoch
            elif self._tries == 1 or not statements.is_stored(connection, append, epoch):
                raise statements.fencing(connection, append, epoch)

        return outcome

    def adopt(
        self,
        connection: Connection,
        job: Append,
        parent: tuple[str, int] | None,
        inbox: Sequence[tuple[InboxMessage, str]],
    ) -> Sent[None]:
        sent = statements.adopt(connection, job, parent, inbox)

        def outcome() -> None:
            if not sent() and (self._tries == 1 or not statements.is_stored(connection, job, 0)):
                raise exists(job.session_id)

        return outcome

    def put(self, connection: Connection, session_id: str, message: InboxMessage, body: str) -> Sent[bool]:
        sent = statements.put(connection, session_id, message, body)

        def outcome() -> bool:
            is_new, is_there = sent()
            return is_new or (self._tries > 1 and is_there)

        return outcome

    # --- the thread

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        """Do all jobs in one transaction. One that is fenced, or cannot be stored, fails alone."""
        self._tries = 0
        try:
            self._link.run(partial(self._transact, jobs))
        except (*OWN_FAULTS, *COLLISIONS) as exc:
            if len(jobs) > 1:
                for job in jobs:
                    self.serve([job])
            else:
                self.deferred.fail(jobs[0], describe(self._link.address, exc))
        except psycopg.Error as exc:
            self._fail_all(jobs, describe(self._link.address, exc))
        except JournalError as exc:
            self._fail_all(jobs, exc)

    def finish(self) -> None:
        self._link.drop()

    def _transact(self, jobs: Sequence[Job[Any]], connection: Connection) -> None:
        acting = [job for job in jobs if job.act is not None]
        if not acting:
            return
        self._tries += 1
        self._claimed.clear()
        try:
            self._send_all(acting, connection)
        except BaseException:
            self._undo(connection)
            raise

    def _send_all(self, jobs: Sequence[Job[Any]], connection: Connection) -> None:
        level = "on" if any(job.is_durable for job in jobs) else "off"
        with _pipeline(connection) as sync:
            connection.execute("BEGIN", prepare=False)
            connection.execute(f"SET LOCAL synchronous_commit = {level}", prepare=False)
            sent: _Sent = []
            busy: set[str] = set()
            for job in jobs:
                # What came of one append of a session decides on the next one.
                if job.session_id in busy:
                    sync()
                    self._settle(sent)
                    busy.clear()
                self._send(job, connection, sent)
                busy.update({job.session_id} - {""})
            connection.execute("COMMIT", prepare=False)
            sync()
            self._settle(sent)

    def _send(self, job: Job[Any], connection: Connection, sent: _Sent) -> None:
        assert job.act is not None
        job.error = None
        try:
            sent.append((job, job.act(connection)))
        except (SessionError, JournalError) as exc:  # raised before anything of this job was sent
            self.deferred.fail(job, exc)

    def _settle(self, sent: _Sent) -> None:
        for job, outcome in sent:
            try:
                job.outcome = outcome()
            except (SessionError, JournalError) as exc:  # the statements of this job have written nothing
                self.deferred.fail(job, exc)
        sent.clear()

    def _undo(self, connection: Connection) -> None:
        for session_id in self._claimed:
            self._held.discard(session_id)
            self._epochs.pop(session_id, None)
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error:  # the server rolls back what belongs to no connection
            self._link.drop()

    def _fail_all(self, jobs: Sequence[Job[Any]], error: JournalError) -> None:
        for job in jobs:
            self.deferred.fail(job, again(error))


@contextmanager
def _pipeline(connection: Connection) -> Iterator[Callable[[], None]]:
    """Let statements travel together; give what waits for the answers to all that were sent."""
    with connection.pipeline() as pipeline:

        def sync() -> None:
            _push(connection)
            pipeline.sync()

        try:
            yield sync
        finally:
            with suppress(psycopg.Error):  # a connection that is lost is noticed by whoever uses it next
                _push(connection)


def _push(connection: Connection) -> None:
    """Send what lies in the driver's buffer: it waits for answers without (psycopg issue 685), and long texts hang."""
    connection.wait(generators.send(connection.pgconn))
