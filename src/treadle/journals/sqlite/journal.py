"""A journal in one SQLite file, shared by any number of processes. It knows nothing of what its events mean."""

import os
from collections.abc import Collection
from pathlib import Path

from treadle.errors import JournalError
from treadle.fields import checked
from treadle.journals.sqlite.backend import SqliteBackend
from treadle.journals.store.journal import StoreJournal, opened
from treadle.journals.store.lease import LEASE_SECONDS

__all__ = ["SqliteJournal", "open_sqlite"]


@checked
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
    return await opened(
        SqliteJournal(path, read_only=read_only, busy_seconds=busy_seconds, lease_seconds=lease_seconds)
    )


class SqliteJournal(StoreJournal[SqliteBackend]):
    """The `Journal` port over one SQLite file. The file is opened by the first call; see `open_sqlite`."""

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        busy_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(
            SqliteBackend(_path_of(path), read_only=read_only, busy_seconds=busy_seconds, lease_seconds=lease_seconds)
        )

    async def open(self) -> None:
        """Open the file now instead of with the first call.

        Raises:
            JournalError: As `open_sqlite` says.
        """
        await self._store.ask(None)

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions whose locks a process of this machine holds."""
        return await self._store.held(session_ids)

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in."""
        return await self._store.with_messages()

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results."""
        return await self._store.with_unknown_outcomes()


def _path_of(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise JournalError(f"{text!r} is not a file name. Name a file for the journal.")
    path = Path(text).absolute()  # the folder of work may change before the file is opened
    if path.is_symlink() and not path.exists():  # it leads nowhere, perhaps to a disk that is away: opening will tell
        return path
    try:
        return path.resolve()  # a journal that is reached by two names has one log, and one set of locks
    except (OSError, RuntimeError):  # links in a circle: opening will tell
        return path
