"""The writing side of a journal file: all that is queued goes into one transaction. Runs on the writer's thread only.

Durability: in a write-ahead log, `synchronous = FULL` makes COMMIT sync the log before it returns, and a sync covers all
of the file, so also the commits before it that went without. `NORMAL` syncs only when the log is folded into the database;
after a power cut the last such commits may be gone, always from the end. kill -9 loses neither: the kernel has the bytes.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treadle.concurrency.forks import bury, watch
from treadle.errors import JournalError, SessionError
from treadle.journals.sqlite import statements
from treadle.journals.sqlite.faults import OWN_FAULTS, describe
from treadle.journals.sqlite.files import open_writer
from treadle.journals.sqlite.lease import Claimed
from treadle.journals.sqlite.place import Place
from treadle.journals.store.appends import Append, Followers
from treadle.journals.store.deferred import Deferred, again
from treadle.journals.store.sequence import forked
from treadle.journals.store.worker import Job

__all__ = ["Writer"]


class Writer:
    """Serves jobs that write. Opens the file with the first, and again after the store has failed."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.deferred = Deferred()
        self.note: Callable[[Mapping[str, int]], None] = lambda _: None
        """Called with the last numbers of sessions once they are on the disk."""
        self._path = path
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None
        self._synchronous = ""
        self._epochs: dict[str, int] = {}
        self._held: set[str] = set()
        self._last: dict[str, statements.Last] = {}
        self._heads: dict[str, int] = {}  # of sessions with events that are not known to be on the disk
        self._place = Place(path)
        self._followers: dict[str, Followers] = {}  # of each session's first append in the transaction under way
        self._foreign: set[str] = set()  # sessions that the process holds from which this one was forked
        watch(self)

    def after_fork(self) -> None:
        """The connection and the leases are the parent's."""
        bury(self._connection)
        self._connection = None
        self._foreign |= self._held
        self.deferred = Deferred()
        for known in (self._epochs, self._held, self._last, self._heads, self._followers):
            known.clear()

    # --- acts of jobs

    def create(self, connection: sqlite3.Connection, session_id: str, now: float) -> bool:
        made = statements.create(connection, session_id, now)
        if session_id not in self._held:  # a run that was fenced must not be let in again by whoever opens its session
            self._epochs[session_id] = statements.epoch_of(connection, session_id)
        self.deferred.forget(session_id)
        return made

    def claim(
        self, connection: sqlite3.Connection, session_id: str, seen: int, epoch: int, owner: str
    ) -> Claimed | None:
        if not statements.claim(connection, session_id, seen, epoch, owner):
            return None
        self._epochs[session_id] = epoch
        self._held.add(session_id)
        self._foreign.discard(session_id)
        return Claimed(
            statements.select_head(connection, session_id),
            statements.has_messages(connection, session_id),
            statements.name_of(connection),
        )

    def give_back(self, connection: sqlite3.Connection, session_id: str, epoch: int) -> None:
        if self._epochs.get(session_id) == epoch:
            self._held.discard(session_id)
        statements.give_back(connection, session_id, epoch)

    def append(self, connection: sqlite3.Connection, append: Append) -> None:
        session_id = append.session_id
        self.deferred.refuse(session_id)
        if session_id in self._foreign:
            raise forked(session_id)
        followers = self._followers.get(session_id)
        if followers is not None and followers.take(append):
            return
        if followers is not None:
            self._write_followers(connection)
        if session_id not in self._epochs:
            self._epochs[session_id] = statements.epoch_of(connection, session_id)
        self._append(connection, append)
        if append.rows:
            self._followers[session_id] = Followers(append)

    def purge(self, connection: sqlite3.Connection, job: Append, blobs: Sequence[str]) -> None:
        self._last.pop(job.session_id, None)
        self._heads[job.session_id] = job.rows[-1][0]
        statements.purge(connection, job, blobs)

    def _append(self, connection: sqlite3.Connection, append: Append) -> None:
        session_id = append.session_id
        last = statements.append(connection, append, self._epochs[session_id], self._last.pop(session_id, None))
        if last is not None:
            self._last[session_id] = last
            self._heads[session_id] = last.seq

    # --- from other threads

    def epoch_seen(self, session_id: str) -> int | None:
        """Return the session's number as this journal has last seen it; None for one that it has not."""
        return self._epochs.get(session_id)

    # --- the thread

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        """Do all jobs in one transaction. One that is fenced, or cannot be stored, fails alone."""
        try:
            self._transact(jobs)
        except OWN_FAULTS as exc:
            self._roll_back()
            if len(jobs) > 1:
                for job in jobs:
                    self.serve([job])
            else:
                self.deferred.fail(jobs[0], describe(self._path, exc))
        except sqlite3.Error as exc:
            self._abandon()
            self._fail_all(jobs, describe(self._path, exc))
        except JournalError as exc:
            self._abandon()
            self._fail_all(jobs, exc)

    def finish(self) -> None:
        """Fold the log into the database, so that all is synced, and let go of the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what is in the log is safe there; whoever opens the file next folds it
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._abandon()

    def _transact(self, jobs: Sequence[Job[Any]]) -> None:
        connection = self._open()
        if all(job.act is None for job in jobs):
            return
        is_durable = any(job.is_durable for job in jobs)
        if is_durable:
            self._place.check(connection)
        self._set_synchronous(connection, "FULL" if is_durable else "NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        self._followers.clear()
        for job in jobs:
            self._do(job, connection)
        self._write_followers(connection)
        connection.execute("COMMIT")
        if is_durable and self._heads:
            self.note(self._heads)
            self._heads.clear()

    def _write_followers(self, connection: sqlite3.Connection) -> None:
        """Write what was taken without asking the store: the transaction keeps all others out, so it is right still."""
        for followers in self._followers.values():
            if (append := followers.as_one()) is not None:
                self._append(connection, append)
        self._followers.clear()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._place.check()  # a file that was there before is never made anew
            self._place.reopened()
            self._connection = open_writer(self._path, self._busy_seconds)
            self._place.check(self._connection)
            self._synchronous = ""
        return self._connection

    def _set_synchronous(self, connection: sqlite3.Connection, level: str) -> None:
        if level != self._synchronous:
            connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level

    def _roll_back(self) -> None:
        self._last.clear()
        self._heads.clear()
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _abandon(self) -> None:
        """Close the connection, which rolls back; after a failed sync no connection's word on its file counts."""
        self._last.clear()
        if self._connection is not None:
            with suppress(sqlite3.Error):  # nothing more can be done for it, and what was committed is safe
                self._connection.close()
            self._connection = None

    def _do(self, job: Job[Any], connection: sqlite3.Connection) -> None:
        job.error = None
        if job.act is None:
            return
        if not job.session_id:  # no append: it may look at what was appended before it, or change the session's hands
            self._write_followers(connection)
        try:
            job.outcome = job.act(connection)
        except (SessionError, JournalError) as exc:  # raised before anything of this job was written
            self.deferred.fail(job, exc)

    def _fail_all(self, jobs: Sequence[Job[Any]], error: JournalError) -> None:
        for job in jobs:
            self.deferred.fail(job, again(error))
