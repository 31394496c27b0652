"""PostgreSQL: a journal that several machines share. It knows nothing of what its events mean."""

import asyncio
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakSet

import msgspec
import psycopg
from psycopg import generators

from treadle.concurrency import CURRENT, FIRST_SECONDS, NEXT_SECONDS, Patience, StoreSilent, after_fork, answer_of, bury
from treadle.errors import JournalError, SessionConflict, SessionError, UnknownSession
from treadle.fields import checked
from treadle.journals import postgres_leases as leases
from treadle.journals.backend import (
    Append,
    DueChanges,
    DueRow,
    EventRow,
    Last,
    MessageRow,
    conflict,
    due_changes,
    event_of,
    exists,
    forked,
    merged,
    taken_over,
    unknown,
)
from treadle.journals.postgres_leases import UNTIL, Claim, Heartbeat, LeaseActs, ServerLease, ServerLeases
from treadle.journals.postgres_link import (
    COLLISIONS,
    NAMED,
    NAMES_MORE,
    NAMES_ONE,
    OWN_FAULTS,
    STORE_FAULTS,
    Address,
    Connection,
    Link,
    Sent,
    describe,
    parse_address,
)
from treadle.journals.postgres_live import LiveTexts, hearing, hearing_notification
from treadle.journals.store import (
    LEASE_SECONDS,
    SELECT_SUM,
    Deferred,
    Job,
    TableBackend,
    TableJournal,
    Worker,
    again,
    look_seconds,
    opened,
)
from treadle.redaction import redacted_logger

__all__ = ["PostgresJournal", "open_postgres"]

_T = TypeVar("_T")


# --- What is done to the tables. Each act sends its statements and returns what gives its outcome once the server has answered,
# so that the statements of many sessions travel together. Each is right by itself: what must hold is asked in the statement that writes.

_NOW = "extract(epoch FROM clock_timestamp())::double precision"
_ROWS = """unnest(%(seqs)s::bigint[], %(ats)s::double precision[], %(types)s::text[], %(versions)s::integer[],
        %(bodies)s::text[], %(sums)s::bytea[]) AS item"""
_DUE_ROWS = (
    "unnest(%(keys)s::text[], %(due_kinds)s::text[], %(dues)s::double precision[], %(call_ids)s::text[]) AS item"
)

# `moved` is empty, and so is everything, where the head, the epoch or the lease no longer holds.
_APPEND = f"""
WITH moved AS (
    UPDATE session SET
        state = %(state)s, version = version + 1, head = coalesce(%(head)s, head),
        updated_at = coalesce(%(at)s, updated_at), task = CASE task WHEN '' THEN %(task)s ELSE task END,
        status = coalesce(%(status)s, status), tenant = coalesce(%(tenant)s, tenant),
        lease_until = CASE WHEN %(holds)s THEN {UNTIL} ELSE lease_until END
    WHERE id = %(id)s AND epoch = coalesce(%(epoch)s, epoch) AND head = coalesce(%(before)s, head)
        AND (NOT %(holds)s OR lease_until > clock_timestamp())
    RETURNING id, epoch
), added AS (
    INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum)
    SELECT moved.id, moved.epoch, item.*
    FROM moved, {_ROWS}
)
SELECT epoch FROM moved
"""  # noqa: S608 - made of constants

# One statement sees its rows as they were before it: a key that is put anew is changed, and not dropped as well.
_DUE = f"""), dropped AS (
    DELETE FROM due USING moved WHERE due.session_id = moved.id
        AND (%(drops_all)s OR due.key = ANY(%(drops)s)) AND due.key <> ALL(%(keys)s)
), put AS (
    INSERT INTO due (session_id, key, kind, at, call_id)
    SELECT moved.id, item.*
    FROM moved, {_DUE_ROWS}
    ON CONFLICT (session_id, key) DO UPDATE SET kind = excluded.kind, at = excluded.at, call_id = excluded.call_id
)
SELECT epoch FROM moved
"""  # noqa: S608 - made of constants

_APPEND_DUE = _APPEND.replace(")\nSELECT epoch FROM moved\n", _DUE)

_ADOPT = f"""
WITH made AS (
    INSERT INTO session (id, parent_id, parent_seq, state, status, tenant, head, task, version, created_at, updated_at)
    VALUES (%(id)s, %(parent_id)s, %(parent_seq)s, %(state)s, coalesce(%(status)s, 'active'), coalesce(%(tenant)s, ''),
        coalesce(%(head)s, 0), %(task)s, 1, {_NOW}, coalesce(%(at)s, {_NOW}))
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), added AS (
    INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum)
    SELECT made.id, 0, item.*
    FROM made, {_ROWS}
), left_there AS (
    INSERT INTO inbox (session_id, msg_id, kind, body, sum)
    SELECT made.id, message.*
    FROM made, unnest(%(msg_ids)s::text[], %(kinds)s::text[], %(messages)s::text[], %(message_sums)s::bytea[]) AS message
    ON CONFLICT (session_id, msg_id) DO NOTHING
), put AS (
    INSERT INTO due (session_id, key, kind, at, call_id)
    SELECT made.id, item.*
    FROM made, {_DUE_ROWS}
)
SELECT id FROM made
"""  # noqa: S608 - made of constants

# Counted, not asked whether there are any: the server then looks each digest up, and never reads all events to compare them.
_DROP_BLOBS = f"""
DELETE FROM blob WHERE sha256 = ANY(%s) AND EXISTS (SELECT FROM session WHERE id = %s)
    AND (SELECT count(*) FROM event WHERE {NAMED} = blob.sha256 AND {NAMES_ONE}) = 0
    AND (SELECT count(*) FROM event WHERE {NAMES_MORE} AND strpos(body, blob.sha256) > 0) = 0
"""  # noqa: S608 - made of constants

_HEIR_BEATS = 4
"""An heir that has not asked for so many looks is dead itself."""

_MOST_UNSYNCED = 1000
"""Events of one session that are kept for the case that the server loses them."""


class Transaction:
    """The transaction of a writer that is under way."""

    def __init__(self) -> None:
        self.tries = 0
        self.claimed: list[tuple[Acts, str, int | None]] = []
        """Sessions taken in it, with the number of each before."""


class LostEvents(Exception):
    """The store lacks events before an append, which the server had confirmed and lost in a crash of its own."""

    def __init__(self, session_id: str, act: Callable[[Connection], Sent[None]]) -> None:
        super().__init__()
        self.session_id = session_id
        self.act = act
        """Appends those that were lost as well."""


class Acts:
    """The acts of one journal's jobs. `foreign`: sessions that the process holds from which this one was forked."""

    def __init__(
        self, transaction: Transaction, lease_seconds: float, look_seconds: float, *, foreign: Collection[str] = ()
    ) -> None:
        self.deferred = Deferred()
        self._foreign = set(foreign)
        self._transaction = transaction
        self._lease_seconds = lease_seconds
        self._heir_seconds = look_seconds * _HEIR_BEATS
        self._epochs: dict[str, int] = {}
        self._held: set[str] = set()
        self._last: dict[str, Last] = {}
        self._unsynced: dict[str, list[EventRow]] = {}
        """Events that the server has confirmed and may lose when it crashes."""

    @property
    def held(self) -> Collection[str]:
        """Sessions whose lease this journal has."""
        return tuple(self._held)

    def create(self, connection: Connection, session_id: str) -> Sent[bool]:
        made = connection.execute(
            f"INSERT INTO session (id, created_at, updated_at) VALUES (%s, {_NOW}, {_NOW}) ON CONFLICT (id) DO NOTHING",  # noqa: S608 - made of constants
            (session_id,),
        )
        found = connection.execute("SELECT epoch FROM session WHERE id = %s", (session_id,))

        def outcome() -> bool:
            row = found.fetchone()
            assert row is not None
            if session_id not in self._held:  # a fenced run must not be let in again by whoever opens its session
                self._epochs[session_id] = int(row[0])
            self._last.pop(session_id, None)
            self.deferred.forget(session_id)
            return made.rowcount == 1

        return outcome

    def claim(self, connection: Connection, session_id: str, owner: str) -> Sent[Claim]:
        sent = leases.claim(connection, session_id, owner, self._lease_seconds, self._heir_seconds)

        def outcome() -> Claim:
            claim = sent()
            if claim.epoch is not None:
                before, self._epochs[session_id] = self._epochs.get(session_id), claim.epoch
                # Invariant: a statement that has waited for the session's row sees the new head, and none of the events that came
                # with it. A sum that it did not find is asked for by itself.
                self._last.pop(session_id, None)
                if claim.sum is not None:
                    self._last[session_id] = Last(claim.head, claim.sum)
                self._held.add(session_id)
                self._foreign.discard(session_id)
                self._transaction.claimed.append((self, session_id, before))
            return claim

        return outcome

    def forget_claim(self, session_id: str, epoch: int | None) -> None:
        """A claim was rolled back, or its answer was lost.

        Args:
            epoch: The session's number before it, which still fences what was to be written under that one.
        """
        self._held.discard(session_id)
        self._last.pop(session_id, None)
        if epoch is None:
            self._epochs.pop(session_id, None)
        else:
            self._epochs[session_id] = epoch

    def give_back(self, connection: Connection, session_id: str, epoch: int) -> Sent[None]:
        if self._epochs.get(session_id) == epoch:
            self._held.discard(session_id)
        return leases.give_back(connection, session_id, epoch)

    def append(self, connection: Connection, append: Append) -> Sent[None]:
        session_id = append.session_id
        self.deferred.refuse(session_id)
        if session_id in self._foreign:
            raise forked(session_id)
        epoch = self._epochs.get(session_id)
        lease_seconds = self._lease_seconds if session_id in self._held else None
        before = self._sum_before(connection, append)
        sent = _send_append(connection, append, epoch, before=before, lease_seconds=lease_seconds)

        def outcome() -> None:
            row = sent.fetchone()
            if row is not None:
                self._epochs[session_id] = int(row[0])
            elif self._transaction.tries == 1 or not _is_stored(connection, append, epoch):
                self._last.pop(session_id, None)
                self._look_for_loss(connection, append, epoch)
                raise _why_refused(connection, append, epoch)
            self._note(append, before)

        return outcome

    def _sum_before(self, connection: Connection, append: Append) -> bytes | None:
        if not append.before:
            return None
        last = self._last.get(append.session_id)
        if last is not None and last.seq == append.before:
            return last.sum
        found = _rows(connection, SELECT_SUM, id=append.session_id, seq=append.before)
        return found[0][0] if found else None

    def _note(self, append: Append, before: bytes | None) -> None:
        if append.rows:
            seq, _, stored_sum = append.chained(before)[-1]
            self._last[append.session_id] = Last(seq, stored_sum)
            kept = self._unsynced.setdefault(append.session_id, [])
            kept.extend(append.rows)
            del kept[:-_MOST_UNSYNCED]

    def _look_for_loss(self, connection: Connection, append: Append, epoch: int | None) -> None:
        """See whether a crash of the server has taken events that it had confirmed: we still have those."""
        session_id, before = append.session_id, append.before
        kept = self._unsynced.get(session_id)
        if not kept or before is None:
            return
        head, stored_epoch = _place_of(connection, session_id) or (0, 0)
        lost = [row for row in kept if head < row[0] <= before]
        if lost and stored_epoch == epoch and [row[0] for row in lost] == list(range(head + 1, before + 1)):
            due = due_changes(session_id, [event_of(session_id, row[0], row[4]) for row in lost])
            whole = msgspec.structs.replace(append, rows=[*lost, *append.rows], due=merged((due, append.due)))
            raise LostEvents(session_id, partial(self.append, append=whole))

    def synced(self) -> None:
        """The server has all that it has confirmed so far on its disk."""
        self._unsynced.clear()

    def adopt(
        self, connection: Connection, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]
    ) -> Sent[None]:
        parent_id, parent_seq = parent or (None, None)
        messages = {
            "msg_ids": [row[0] for row in inbox],
            "kinds": [row[1] for row in inbox],
            "messages": [row[2] for row in inbox],
            "message_sums": [row[3] for row in inbox],
        }
        sent = connection.execute(
            _ADOPT, {**_parameters(append, None), **messages, "parent_id": parent_id, "parent_seq": parent_seq}
        )

        def outcome() -> None:
            if sent.fetchone() is None and (self._transaction.tries == 1 or not _is_stored(connection, append, 0)):
                raise exists(append.session_id)

        return outcome

    def purge(self, connection: Connection, append: Append, blobs: Sequence[str]) -> Sent[None]:
        """Remove all of a session but what follows now, numbered from 1."""
        session_id = append.session_id
        self._last.pop(session_id, None)
        emptied = connection.execute(
            "UPDATE session SET state = 'deleted', head = 0, task = '' WHERE id = %s", (session_id,)
        )
        for table in ("event", "inbox", "due"):
            connection.execute(f"DELETE FROM {table} WHERE session_id = %s", (session_id,))  # noqa: S608 - ours
        _send_append(connection, append, None, before=None, lease_seconds=None)
        if blobs:
            connection.execute(_DROP_BLOBS, (list(blobs), session_id))
        return lambda: _check_found(emptied.rowcount == 1, session_id)

    def put(self, connection: Connection, session_id: str, message: MessageRow) -> Sent[bool]:
        message_id, kind, body, _ = message
        added = connection.execute(
            "INSERT INTO inbox (session_id, msg_id, kind, body, sum) SELECT id, %s, %s, %s, %s FROM session WHERE id = %s "
            "ON CONFLICT (session_id, msg_id) DO NOTHING",
            (*message, session_id),
        )
        found = connection.execute(
            "SELECT kind, body FROM inbox WHERE session_id = %s AND msg_id = %s", (session_id, message_id)
        )

        def outcome() -> bool:
            row = found.fetchone()
            _check_found(row is not None, session_id)
            # Of a second try, one that is equal is ours.
            return added.rowcount == 1 or (self._transaction.tries > 1 and row == (kind, body))

        return outcome


def _send_append(
    connection: Connection, append: Append, epoch: int | None, *, before: bytes | None, lease_seconds: float | None
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Move the head and add the events, where head, epoch and lease still hold; what it finds is the epoch, or nothing.

    Args:
        before: The checksum of the event that these follow; None where it has none.
        epoch: None for whichever the session has.
        lease_seconds: The lease of the session's holder, which continues with this; None for a writer without one.
    """
    return connection.execute(
        _APPEND if append.due is None else _APPEND_DUE,
        {
            **_parameters(append, before),
            "epoch": epoch,
            "holds": lease_seconds is not None,
            "lease": lease_seconds or 0.0,
        },
    )


def _consume(connection: Connection, session_id: str, message_ids: Sequence[str], seq: int) -> Sent[None]:
    """Mark messages as consumed. The first event that consumed one stays on record."""
    connection.execute(
        "UPDATE inbox SET consumed_seq = %s WHERE session_id = %s AND msg_id = ANY(%s) AND consumed_seq IS NULL",
        (seq, session_id, list(message_ids)),
    )
    found = connection.execute("SELECT FROM session WHERE id = %s", (session_id,))
    return lambda: _check_found(found.fetchone() is not None, session_id)


def _reindex(connection: Connection, session_id: str, head: int, rows: Sequence[DueRow]) -> Sent[None]:
    """Put these rows in place of all of a session's in the index, where its head is still this one."""
    place = {"id": session_id, "head": head}
    is_there = "EXISTS (SELECT FROM session WHERE id = %(id)s AND head = %(head)s FOR UPDATE)"
    connection.execute(f"DELETE FROM due WHERE session_id = %(id)s AND {is_there}", place)  # noqa: S608 - made of constants
    connection.execute(
        f"INSERT INTO due (session_id, key, kind, at, call_id) SELECT %(id)s, item.* FROM {_DUE_ROWS} "  # noqa: S608 - made of constants
        f"WHERE {is_there} ON CONFLICT (session_id, key) DO NOTHING",
        {**place, **_due_parameters(DueChanges(puts=tuple(rows)))},
    )
    return lambda: None


def _put_blob(connection: Connection, digest: str, content: bytes) -> Sent[None]:
    connection.execute(
        "INSERT INTO blob (sha256, bytes) VALUES (%s, %b) ON CONFLICT (sha256) DO NOTHING", (digest, content)
    )
    return lambda: None


def _place_of(connection: Connection, session_id: str) -> tuple[int, int] | None:
    """Return the session's head and epoch; None for an unknown session."""
    row = connection.execute("SELECT head, epoch FROM session WHERE id = %s", (session_id,)).fetchone()
    return None if row is None else (int(row[0]), int(row[1]))


def _why_refused(connection: Connection, append: Append, epoch: int | None) -> SessionConflict | UnknownSession:
    if (place := _place_of(connection, append.session_id)) is None:
        return unknown(append.session_id)
    head, stored_epoch = place
    if epoch is not None and stored_epoch != epoch:
        return taken_over(append.session_id)
    if append.rows and head != append.before:
        return conflict(append.session_id, head, append.rows[0][0])
    return SessionConflict(
        f"The lease on session {append.session_id!r} has expired: its holder sent no heartbeat in time. Nothing was "
        "written; resume the session."
    )


def _is_stored(connection: Connection, append: Append, epoch: int | None) -> bool:
    """Whether the events of an append are there, each as it is and from this epoch."""
    row = connection.execute(
        "SELECT count(*) FROM event JOIN unnest(%(seqs)s::bigint[], %(bodies)s::text[]) AS item(seq, body) USING (seq, body) "
        "WHERE session_id = %(id)s AND epoch = coalesce(%(epoch)s, epoch)",
        {**_parameters(append, None), "epoch": epoch},
    ).fetchone()
    return bool(append.rows) and row == (len(append.rows),)


def _parameters(append: Append, before: bytes | None) -> dict[str, Any]:  # Any: what a statement takes
    rows = append.rows
    return {
        "id": append.session_id,
        "state": append.state,
        "task": append.task,
        "status": append.status,
        "tenant": append.tenant,
        "head": rows[-1][0] if rows else None,
        "at": rows[-1][1] if rows else None,
        "before": append.before,
        "seqs": [row[0] for row in rows],
        "ats": [row[1] for row in rows],
        "types": [row[2] for row in rows],
        "versions": [row[3] for row in rows],
        "bodies": [row[4] for row in rows],
        "sums": [row[2] for row in append.chained(before)],
        **_due_parameters(append.due or DueChanges()),
    }


def _due_parameters(changes: DueChanges) -> dict[str, Any]:  # Any: what a statement takes
    return {
        "drops_all": changes.drops_all,
        "drops": list(changes.drops),
        "keys": [row.key for row in changes.puts],
        "due_kinds": [row.kind for row in changes.puts],
        "dues": [row.at for row in changes.puts],
        "call_ids": [row.call_id for row in changes.puts],
    }


def _check_found(is_found: bool, session_id: str) -> None:
    if not is_found:
        raise unknown(session_id)


@cache
def _translated(statement: str) -> str:
    """Return a statement whose places are `:name` in the driver's own form."""
    return re.sub(r":(\w+)", r"%(\1)s", statement.replace("%", "%%"))


def _rows(connection: Connection, statement: str, **values: object) -> list[Any]:
    return connection.execute(_translated(statement), values, binary=True).fetchall()


# --- The reading side. Runs on the reader's thread only; changes nothing.


class PostgresReader:
    """Serves jobs that read; again where the connection was lost meanwhile."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def serve(self, jobs: Sequence[Job[Any]]) -> None:  # Any: jobs of all outcomes share one queue
        for job in jobs:
            if job.act is None:
                continue
            try:
                job.outcome = self._link.run(job.act)
            except STORE_FAULTS as exc:
                job.error = describe(self._link.address, exc)
            except (JournalError, SessionError) as exc:
                job.error = exc

    def finish(self) -> None:
        self._link.drop()


# --- The writing side: all that is queued goes into one transaction. Runs on the writer's thread only.

logger = redacted_logger(__name__)

_Sent: TypeAlias = list[tuple[Job[Any], Sent[Any]]]  # Any: jobs of all outcomes share one queue
_Lost: TypeAlias = tuple[Job[Any], LostEvents]


class PostgresWriter:
    """Serves jobs that write, of all journals that share its connection."""

    def __init__(self, link: Link) -> None:
        self.transaction = Transaction()
        self._link = link
        self._acts: WeakSet[Acts] = WeakSet()

    def add(self, acts: Acts) -> None:
        """Take the jobs of one more journal."""
        self._acts.add(acts)

    # --- the thread

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        """Do all jobs in one transaction. One that is fenced, or cannot be stored, fails alone."""
        self.transaction.tries = 0
        lost: list[_Lost] = []
        try:
            self._link.run(partial(self._transact, jobs, lost))
        except (*OWN_FAULTS, *COLLISIONS) as exc:
            if len(jobs) > 1:
                for job in jobs:
                    self.serve([job])
            else:
                jobs[0].fail(describe(self._link.address, exc))
        except (psycopg.Error, JournalError) as exc:
            error = exc if isinstance(exc, JournalError) else describe(self._link.address, exc)
            for job in jobs:
                job.fail(again(error))
        for job, loss in lost:
            self._recover(job, loss)

    def _recover(self, job: Job[Any], loss: LostEvents) -> None:
        """Store what the server has lost in a crash of its own, and what follows it."""
        logger.warning(
            "The server of the journal %s lost the last events of session %s in a crash; they are stored again",
            self._link.address.location,
            loss.session_id,
        )
        job.act = loss.act
        job.is_durable = True
        self.serve([job])

    def finish(self) -> None:
        self._link.drop()

    def _transact(self, jobs: Sequence[Job[Any]], lost: list[_Lost], connection: Connection) -> None:
        acting = [job for job in jobs if job.act is not None]
        if not acting:
            return
        self.transaction.tries += 1
        self.transaction.claimed.clear()
        lost.clear()
        try:
            self._send_all(acting, lost, connection)
        except BaseException:
            self._undo(connection)
            raise

    def _send_all(self, jobs: Sequence[Job[Any]], lost: list[_Lost], connection: Connection) -> None:
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
                    self._settle(sent, lost)
                    busy.clear()
                self._send(job, connection, sent)
                busy.update({job.session_id} - {""})
            connection.execute("COMMIT")
            sync()
            self._settle(sent, lost)
        if is_durable:
            for acts in tuple(self._acts):
                acts.synced()

    def _send(self, job: Job[Any], connection: Connection, sent: _Sent) -> None:
        assert job.act is not None
        job.error = None
        try:
            sent.append((job, job.act(connection)))
        except (SessionError, JournalError) as exc:  # raised before anything of this job was sent
            job.fail(exc)

    def _settle(self, sent: _Sent, lost: list[_Lost]) -> None:
        for job, outcome in sent:
            try:
                job.outcome = outcome()
            except LostEvents as exc:
                lost.append((job, exc))
            except (SessionError, JournalError) as exc:  # the statements of this job have written nothing
                job.fail(exc)
        sent.clear()

    def _undo(self, connection: Connection) -> None:
        for acts, session_id, epoch in reversed(self.transaction.claimed):
            acts.forget_claim(session_id, epoch)
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:  # the server rolls back what belongs to no connection
            self._link.drop()


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


# --- What all journals of a process on one PostgreSQL database share: three connections, each with a thread of its own.

_MAX_BATCH = 1000
_EXIT_SECONDS = 5.0


class Limits(NamedTuple):
    """How long to wait for what, in seconds."""

    busy: float
    patience: float
    lease: float

    @property
    def silence(self) -> float:
        """A server that waits for a lock is silent; so a silence is longer than that."""
        return self.busy + self.patience


class Engine:
    """The threads and connections of one process for one database."""

    def __init__(self, address: Address, limits: Limits) -> None:
        self.pid = os.getpid()
        self.users = 0
        link = partial(Link, address, busy_seconds=limits.busy)
        slow = partial(link, silence_seconds=limits.silence, patience_seconds=limits.patience)
        self._links = (slow(), slow())
        self.writer = PostgresWriter(self._links[0])
        reader = PostgresReader(self._links[1])
        exit_seconds = limits.silence + limits.patience + _EXIT_SECONDS
        self.writing = Worker(
            "treadle-journal-writer", self.writer.serve, self.writer.finish,
            max_batch=_MAX_BATCH, exit_seconds=exit_seconds,
        )  # fmt: skip
        self.reading = Worker(
            "treadle-journal-reader", reader.serve, reader.finish, max_batch=1, exit_seconds=exit_seconds
        )
        # A beat that fails is followed by the next one, so it has no patience of its own. The loss of a lease is reported by
        # the holder's own clock, so a beat may wait a while.
        beat = link(silence_seconds=min(limits.lease / 4, limits.silence), patience_seconds=0.0)
        self.heartbeat = Heartbeat(beat, limits.lease)
        self._silent_at: int | None = None
        self._patience = Patience()

    @property
    def patience(self) -> Patience | None:
        """How long to wait for a server that owes somebody an answer; None while it owes nothing."""
        return self._patience if self._silent_at == self._served else None

    @property
    def is_silent(self) -> bool:
        """Whether the server has answered nothing since somebody gave up waiting for it."""
        return self.patience is not None

    def note_silence(self, seconds: float) -> None:
        """Somebody has given up waiting: the next one waits at most so long, until something is answered."""
        if not self.is_silent:
            self._patience = Patience(seconds=seconds)
        self._silent_at = self._served

    @property
    def _served(self) -> int:
        return self.writing.served + self.reading.served

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more jobs; end when what is queued is done. Returns at once. `at_once`: wait for no answer of the server any more."""
        self.heartbeat.stop()
        if at_once:
            for link in self._links:
                link.hurry()
        for worker in (self.reading, self.writing):
            worker.stop()

    async def wait_for_end(self) -> None:
        """Return when both threads have ended."""
        for worker in (self.reading, self.writing):
            await worker.wait_for_end()


_engines: dict[tuple[Any, ...], Engine] = {}
_gate = threading.RLock()  # reentrant: the garbage collector may forsake a journal while another one is made


@after_fork
def _begin_anew() -> None:
    """The connections are the parent's. Closing them here would end them there."""
    global _gate  # noqa: PLW0603 - what the parent holds locked stays locked here
    _gate = threading.RLock()
    bury(*_engines.values())
    _engines.clear()


def engine_for(address: Address, limits: Limits) -> Engine:
    """Return the engine of this process for a database, to be given back with `give_back`."""
    key = (tuple(sorted(address.parameters.items())), limits)
    with _gate:
        engine = _engines.get(key)
        if engine is None or engine.pid != os.getpid():
            engine = _engines[key] = Engine(address, limits)
        engine.users += 1
        return engine


def give_back(engine: Engine) -> bool:
    """Let go of an engine. Return whether nobody uses it any more; then the caller stops it."""
    with _gate:
        engine.users -= 1
        if engine.users > 0 or engine.pid != os.getpid():
            return False
        for key, known in tuple(_engines.items()):
            if known is engine:
                del _engines[key]
        return True


# --- One journal's place in a PostgreSQL store. Its threads and connections are shared: see `engine`.

_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow server cannot fill the memory."""

_LEAST_SECONDS = 2.0
"""To take a lease or to give it back may last as long as it would hold, but not less than this."""


class PostgresBackend(TableBackend[Connection]):
    """The primitives of a journal over one schema of a database. The first of them connects.

    An append that was under way when the server went away is stored, exactly once, or raises.
    """

    find = "strpos"

    def __init__(self, address: Address, limits: Limits) -> None:
        self.address = address
        self.live = LiveTexts(self.ask)
        self._client = _Client(address, limits)
        self._finalizer = weakref.finalize(self, _Client.leave, self._client)
        self._finalizer.atexit = False  # the threads end themselves then

    @property
    def location(self) -> str:
        return self.address.location

    async def create(self, session_id: str) -> bool:
        return await self._write(partial(self._here().acts.create, session_id=session_id), session_id)

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> ServerLease:
        return await self._here().leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions on which somebody's lease has not ended, by the server's clock."""
        if not session_ids:
            return ()
        holds = "SELECT id FROM session WHERE id = ANY(:ids) AND owner IS NOT NULL AND lease_until > clock_timestamp()"
        return [session_id for (session_id,) in await self.found(holds, ids=list(session_ids))]

    async def append(self, append: Append, *, durable: bool) -> None:
        client = self._here()
        client.leases.check(append.session_id)
        act = partial(client.acts.append, append=append)
        if durable or client.engine.writing.backlog > _MAX_BACKLOG:
            await self._write(act, append.session_id, durable=durable)
        else:
            client.engine.writing.submit(Job(act, session_id=append.session_id, deferred=client.acts.deferred))

    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        act = partial(self._here().acts.adopt, append=append, parent=parent, inbox=inbox)
        await self._write(act, append.session_id, durable=True)

    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        act = partial(self._here().acts.purge, append=append, blobs=blobs)
        await self._write(act, append.session_id, durable=True)

    async def put(self, session_id: str, message: MessageRow) -> bool:
        act = partial(self._here().acts.put, session_id=session_id, message=message)
        is_new = await self._write(act, session_id, durable=True)  # a person's answer is not to be asked for twice
        self._here().engine.heartbeat.look()
        return is_new

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        act = partial(_consume, session_id=session_id, message_ids=message_ids, seq=seq)
        await self._write(act, session_id)

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
        await self._write(partial(_reindex, session_id=session_id, head=head, rows=rows), session_id)

    async def put_blob(self, digest: str, content: bytes) -> None:
        await self._write(partial(_put_blob, digest=digest, content=content))

    def check(self, session_id: str) -> None:
        self._here().acts.deferred.check(session_id)

    def report(self) -> None:
        self._client.acts.deferred.report()

    async def close(self) -> None:
        """Store what is pending and let go of the server. May be called twice."""
        if self._finalizer.detach() is not None:
            await self._client.close()

    async def settle(self) -> None:
        client = self._here()
        await client.submit(client.engine.writing, Job[None](None))

    def rows(self, connection: Connection, statement: str, **values: object) -> list[Any]:
        return _rows(connection, statement, **values)

    async def ask(self, question: Callable[[Connection], _T]) -> _T:
        client = self._here()
        return await client.submit(client.engine.reading, Job(question))

    async def _write(self, act: Callable[[Connection], Sent[_T]], session_id: str = "", *, durable: bool = False) -> _T:
        return await self._here().write(act, session_id, is_durable=durable)

    def _here(self) -> "_Client":
        """Return what this process has of the journal."""
        if self._client.engine.pid != os.getpid():
            self._client = self._client.anew()
        return self._client


class _Client:
    """One journal's place at the engine that it shares, in one process. Knows no way to the journal: one that nobody reaches any more must end."""

    def __init__(self, address: Address, limits: Limits, *, foreign: Collection[str] = ()) -> None:
        self._address = address
        self._limits = limits
        self.engine = engine_for(address, limits)
        self.acts = Acts(self.engine.writer.transaction, limits.lease, look_seconds(limits.lease), foreign=foreign)
        self.engine.writer.add(self.acts)
        lease_acts = LeaseActs(claim=self._claim, give_back=self._give_back, abandon=self._abandon)
        self.leases = ServerLeases(lease_acts, self.engine.heartbeat, limits.lease, self._address.location)

    def anew(self) -> "_Client":
        """Return a place for a process that was forked. The leases are the parent's."""
        bury(self)  # closing its connections here would end the parent's
        return _Client(self._address, self._limits, foreign=self.acts.held)

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
        job: Job[Any] = Job(act, session_id=session_id, is_durable=is_durable, deferred=self.acts.deferred)
        found: _T = await self.submit(self.engine.writing, job)
        return found

    async def _claim(self, session_id: str, owner: str) -> Claim:
        # Durable: a server that forgot it in a crash would give the same number to another one.
        act = partial(self.acts.claim, session_id=session_id, owner=owner)
        return await self._write_in_time(act, session_id, is_durable=True)

    async def _give_back(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # away or closed meanwhile: the lease ends by itself
            await self._write_in_time(partial(self.acts.give_back, session_id=session_id, epoch=epoch), session_id)

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
            act = partial(self.acts.give_back, session_id=session_id, epoch=epoch)
            self.engine.writing.submit(Job(act, session_id=session_id, is_aside=True, deferred=self.acts.deferred))

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


# --- A journal in a PostgreSQL database, shared by any number of machines. It knows nothing of what its events mean.


@checked
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
        ConfigurationError: The URL is invalid.
        JournalError: The server cannot be reached, or holds tables that are not ours, or newer. Nothing was changed.
    """
    return await opened(
        PostgresJournal(url, busy_seconds=busy_seconds, patience_seconds=patience_seconds, lease_seconds=lease_seconds)
    )


class PostgresJournal(TableJournal[PostgresBackend]):
    """The `Journal` port over one schema of a PostgreSQL database. Connects with the first call; see `open_postgres`.

    An append that was under way when the server went away is stored, exactly once, or raises.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = 5.0,
        patience_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(PostgresBackend(parse_address(url), Limits(busy_seconds, patience_seconds, lease_seconds)))

    async def now(self) -> float:
        """Return the time by the server's clock, which all machines that share the database can ask."""
        [(now,)] = await self._store.found("SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)")
        return float(now)

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Send what followers elsewhere do not know yet, by NOTIFY; nothing where nobody follows."""
        return await self._store.live.tell(session_id, number, pieces, told)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        """Receive the live texts of a session, over a connection of its own."""
        return hearing(self._store.address, session_id)

    def hear_bell(self, ring: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Ring soon after a task or a message was left, by NOTIFY, over a connection of its own."""
        return hearing_notification(self._store.address, ring)
