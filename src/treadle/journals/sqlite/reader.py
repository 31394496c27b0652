"""The reading side of a journal file. Runs on the reader's thread only; changes nothing and makes no file."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from treadle.concurrency.forks import bury, watch
from treadle.errors import JournalError, SessionError
from treadle.journals.sqlite.faults import STORE_FAULTS, describe, describe_os_error
from treadle.journals.sqlite.files import open_reader, open_still, stamp
from treadle.journals.store.worker import Job

__all__ = ["Reader", "StillReader"]

_MAX_LOOKS = 10


class Reader:
    """Serves jobs that read, beside a writer of this process."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None
        watch(self)

    def after_fork(self) -> None:
        """The connection is the parent's."""
        bury(self._connection)
        self._connection = None

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            try:
                if job.act is not None:
                    job.outcome = job.act(self._open())
            except STORE_FAULTS as exc:
                self.finish()
                job.error = describe(self._path, exc)
            except (JournalError, SessionError) as exc:
                job.error = exc

    def finish(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_reader(self._path, self._busy_seconds)
        return self._connection


class StillReader:
    """Serves jobs that read a file which others may be writing, and leaves nothing behind."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds

    def serve(self, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            try:
                self._look(job)
            except OSError as exc:
                job.error = describe_os_error(self._path, exc)

    def finish(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _look(self, job: Job[Any]) -> None:
        for _ in range(_MAX_LOOKS):
            before = stamp(self._path)
            self._look_once(job)
            # Beside a -wal file SQLite's own locks have held; without one, only an unchanged file was read as it is.
            if before.has_log or stamp(self._path) == before:
                return
        job.error = JournalError(f"The journal {self._path} changed each time it was read. Try again.")

    def _look_once(self, job: Job[Any]) -> None:
        job.error = None
        try:
            with closing(open_still(self._path, self._busy_seconds)) as connection:
                if job.act is not None:
                    job.outcome = job.act(connection)
        except STORE_FAULTS as exc:
            job.error = describe(self._path, exc)
        except (JournalError, SessionError) as exc:
            job.error = exc
