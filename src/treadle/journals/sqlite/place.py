"""Whether a journal file is still the one that was opened: not deleted, replaced or cut under a run. Changes nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from treadle.errors import JournalError

__all__ = ["Place"]


class _File(NamedTuple):
    device: int
    inode: int
    size: int


class Place:
    """The identity of a journal file and of its log, from the first time that they are seen."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._database: _File | None = None
        self._log: _File | None = None
        self._fault = ""

    def check(self, connection: sqlite3.Connection | None = None) -> None:
        """Compare the files with those that were seen before.

        Args:
            connection: The open one; None before there is one.

        Raises:
            JournalError: They are others, or cut, or were when they were last compared: what is written now may be lost.
        """
        if self._fault:
            raise JournalError(self._fault)
        self._database = self._same("", self._database, connection)
        if connection is not None:
            self._log = self._same("-wal", self._log, connection)

    def reopened(self) -> None:
        """The log may be another one: SQLite removes it with the last connection."""
        self._log = None

    def _same(self, suffix: str, known: _File | None, connection: sqlite3.Connection | None) -> _File | None:
        try:
            status = os.stat(self._path + suffix)  # noqa: PTH116 - a Path costs more than the call, at each durable commit
        except OSError:
            if known is None:
                return None
            raise self._lost(suffix, "was deleted") from None
        found = _File(status.st_dev, status.st_ino, status.st_size)
        if known is None:
            return found
        if found[:2] != known[:2]:
            raise self._lost(suffix, "was replaced by another file")
        if found.size < known.size and connection is not None and not _is_whole(self._path):
            raise self._lost(suffix, "was truncated")
        return found

    def _lost(self, suffix: str, what: str) -> JournalError:
        self._fault = (
            f"The file {self._path}{suffix} of a journal {what} while the journal was open. Nothing more is stored. Put the "
            "file back or restore the journal from a backup, then resume the session in a new process."
        )
        return JournalError(self._fault)


def _is_whole(path: str) -> bool:
    """A file may become smaller in peace: by VACUUM, or when its log begins anew. Asked without what is in memory."""
    try:
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False
