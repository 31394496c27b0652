"""Migration: an older journal file becomes one of this version, whole or not at all, with a copy beside it. Knows no event."""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from treadle.errors import JournalError
from treadle.journals.sqlite.faults import describe
from treadle.journals.sqlite.schema import VERSION, kind_of, take_steps
from treadle.redaction import redacted_logger

__all__ = ["backup_of", "migrate", "remove_copies"]

logger = redacted_logger(__name__)


def backup_of(path: Path, version: int) -> Path:
    """Return where the copy of a file of an older version lies."""
    return path.with_name(f"{path.name}.v{version}.bak")


def migrate(connection: sqlite3.Connection, path: Path, *, reached: Callable[[str], None] = lambda _: None) -> None:
    """Copy an older file, then take the steps to this version in one transaction. Does nothing when another process was first.

    Args:
        reached: Called with `begun`, `copied` and `changed` as each is; for those who test what a crash there leaves.

    Raises:
        JournalError: It failed; the file is as it was, and the message names the copy where one was made.
    """
    connection.execute("BEGIN IMMEDIATE")
    copy: Path | None = None
    try:
        _, version = kind_of(connection)
        if version < VERSION:
            reached("begun")
            copy = _copy(path, version)
            reached("copied")
            take_steps(connection, version)
            reached("changed")
        connection.execute("COMMIT")
    except BaseException as exc:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(exc, sqlite3.Error | OSError):
            raise _failed(path, exc, copy) from exc
        raise
    if copy is not None:
        logger.warning("The journal %s now has schema %d; a copy from before is %s", path, VERSION, copy)


def remove_copies(path: Path) -> None:
    """Remove the copies from before migrations, whole or begun: they keep what was purged since.

    Raises:
        JournalError: One cannot be removed. The others are gone.
    """
    kept = []
    is_copy = re.compile(re.escape(path.name) + r"\.v\d+\.bak(\.\d+)?(-journal)?").fullmatch
    for copy in [file for file in path.parent.iterdir() if is_copy(file.name)]:
        try:
            copy.unlink()
            logger.warning(
                "%s, the copy of the journal from before a migration, was removed: it held what was purged", copy
            )
        except FileNotFoundError:  # another process was first
            continue
        except OSError as error:
            kept.append(f"{copy} ({error.strerror})")
    if kept:
        raise JournalError(
            f"The session was purged from {path}, but copies of the journal from before a migration still hold it and "
            f"cannot be removed: {', '.join(sorted(kept))}. Remove them yourself."
        )


def _copy(path: Path, version: int) -> Path:
    """Copy the file as it stands, its log included. Others may read it meanwhile; we keep them from writing."""
    copy = backup_of(path, version)
    part = copy.with_name(f"{copy.name}.{os.getpid()}")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(part)) as target,
        ):
            source.backup(target)
        _sync(part)
        part.replace(copy)
    finally:
        for left in (part, part.with_name(part.name + "-journal")):
            with suppress(FileNotFoundError):
                left.unlink()
    return copy


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(path: Path, fault: sqlite3.Error | OSError, copy: Path | None) -> JournalError:
    detail = str(describe(path, fault)) if isinstance(fault, sqlite3.Error) else fault.strerror or str(fault)
    where = "" if copy is None else f" A copy of it is {copy}."
    return JournalError(
        f"The journal {path} has an older schema and could not be brought to {VERSION}: {detail} It was not changed.{where}"
    )
