"""The writing side of a PostgreSQL journal: all that is queued goes into one transaction. Runs on the writer's thread only.

Durability: with `synchronous_commit = on` COMMIT returns once the server's log is on its disk, and the log is one for all,
so also what was committed before without. With `off` the server may lose the last such commits when it crashes itself,
always from the end. kill -9 of this process loses neither.

A connection may be lost after COMMIT was sent and before its answer came. Everything is then done again, and what turns
out to be stored already has succeeded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg import generators

from treadle.errors import JournalError, SessionError
from treadle.journals.postgres.faults import COLLISIONS, OWN_FAULTS, describe
from treadle.journals.postgres.hands import Behind, Hands, Transaction
from treadle.journals.postgres.link import Link
from treadle.journals.postgres.schema import Connection
from treadle.journals.postgres.statements import Sent
from treadle.journals.store.appends import Append
from treadle.journals.store.deferred import again
from treadle.journals.store.worker import Job
from treadle.redaction import redacted_logger

__all__ = ["PostgresWriter"]

logger = redacted_logger(__name__)

_Sent: TypeAlias = list[tuple[Job[Any], Sent[Any]]]  # Any: jobs of all outcomes share one queue


class PostgresWriter:
    """Serves jobs that write, of all journals that share its connection."""

    def __init__(self, link: Link) -> None:
        self.transaction = Transaction()
        self._link = link
        self._hands: WeakSet[Hands] = WeakSet()

    def add(self, hands: Hands) -> None:
        """Take the jobs of one more journal."""
        self._hands.add(hands)

    # --- the thread

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        """Do all jobs in one transaction. One that is fenced, or cannot be stored, fails alone."""
        self.transaction.tries = 0
        behind: list[tuple[Job[Any], Append]] = []
        try:
            self._link.run(partial(self._transact, jobs, behind))
        except (*OWN_FAULTS, *COLLISIONS) as exc:
            if len(jobs) > 1:
                for job in jobs:
                    self.serve([job])
            else:
                jobs[0].fail(describe(self._link.address, exc))
        except psycopg.Error as exc:
            self._fail_all(jobs, describe(self._link.address, exc))
        except JournalError as exc:
            self._fail_all(jobs, exc)
        for job, whole in behind:
            self._recover(job, whole)

    def _recover(self, job: Job[Any], whole: Append) -> None:
        """Store what the server has lost in a crash of its own, and what follows it."""
        logger.warning(
            "The server of the journal %s lost the last events of session %s in a crash; they are stored again",
            self._link.address.location,
            whole.session_id,
        )
        assert isinstance(job.owner, Hands)
        job.act = partial(job.owner.append, append=whole)
        job.is_durable = True
        self.serve([job])

    def finish(self) -> None:
        self._link.drop()

    def _transact(
        self, jobs: Sequence[Job[Any]], behind: list[tuple[Job[Any], Append]], connection: Connection
    ) -> None:
        acting = [job for job in jobs if job.act is not None]
        if not acting:
            return
        self.transaction.tries += 1
        self.transaction.claimed.clear()
        behind.clear()
        try:
            self._send_all(acting, behind, connection)
        except BaseException:
            self._undo(connection)
            raise

    def _send_all(
        self, jobs: Sequence[Job[Any]], behind: list[tuple[Job[Any], Append]], connection: Connection
    ) -> None:
        is_durable = any(job.is_durable for job in jobs)
        wait = max(1, round(self._link.busy_seconds * 1000))
        with _pipeline(connection) as sync:
            # Nothing is set for longer than the transaction: a pooler may give the next one another connection.
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(f"SET LOCAL synchronous_commit = {'on' if is_durable else 'off'}")
            connection.execute(f"SET LOCAL lock_timeout = {wait}")
            sent: _Sent = []
            busy: set[str] = set()
            for job in jobs:
                # What came of one append of a session decides on the next one.
                if job.session_id in busy:
                    sync()
                    self._settle(sent, behind)
                    busy.clear()
                self._send(job, connection, sent)
                busy.update({job.session_id} - {""})
            connection.execute("COMMIT")
            sync()
            self._settle(sent, behind)
        if is_durable:
            for hands in tuple(self._hands):
                hands.synced()

    def _send(self, job: Job[Any], connection: Connection, sent: _Sent) -> None:
        assert job.act is not None
        job.error = None
        try:
            sent.append((job, job.act(connection)))
        except (SessionError, JournalError) as exc:  # raised before anything of this job was sent
            job.fail(exc)

    def _settle(self, sent: _Sent, behind: list[tuple[Job[Any], Append]]) -> None:
        for job, outcome in sent:
            try:
                job.outcome = outcome()
            except Behind as exc:
                behind.append((job, exc.whole))
            except (SessionError, JournalError) as exc:  # the statements of this job have written nothing
                job.fail(exc)
        sent.clear()

    def _undo(self, connection: Connection) -> None:
        for hands, session_id, epoch in reversed(self.transaction.claimed):
            hands.forget_claim(session_id, epoch)
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:  # the server rolls back what belongs to no connection
            self._link.drop()

    def _fail_all(self, jobs: Sequence[Job[Any]], error: JournalError) -> None:
        for job in jobs:
            job.fail(again(error))


@contextmanager
def _pipeline(connection: Connection) -> Iterator[Callable[[], None]]:
    """Let statements travel together; give what waits for the answers to all that were sent.

    A fault is kept from the driver, which would log a second one of its own on the way out.
    """
    fault: BaseException | None = None
    try:
        with connection.pipeline() as pipeline:

            def sync() -> None:
                _push(connection)
                pipeline.sync()

            try:
                yield sync
            except BaseException as exc:  # noqa: BLE001 - raised again below
                fault = exc
            finally:
                with suppress(psycopg.Error):  # a connection that is lost is noticed by whoever uses it next
                    _push(connection)
    except psycopg.Error:
        if fault is None:
            raise
    if fault is not None:
        raise fault


def _push(connection: Connection) -> None:
    """Send what lies in the driver's buffer: it waits for answers without (psycopg issue 685), and long texts hang."""
    connection.wait(generators.send(connection.pgconn))
