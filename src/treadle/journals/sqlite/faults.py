"""What SQLite and the file system complain of, in words that say what to do. Acts on nothing."""

import sqlite3
from pathlib import Path

from treadle.errors import JournalError
from treadle.journals.store.faults import disk_full, locked, not_taken

__all__ = ["OWN_FAULTS", "STORE_FAULTS", "describe", "describe_os_error"]

OWN_FAULTS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError, UnicodeError)
"""Faults of the one thing that was to be stored; the store itself is well."""

STORE_FAULTS = (sqlite3.Error, *OWN_FAULTS)

_CODE_MASK = 0xFF  # the lower byte is the kind of failure, the upper ones its finer reason


def describe_os_error(path: Path, fault: OSError) -> JournalError:
    """Return the error to raise when a file or folder cannot even be reached."""
    return JournalError(
        f"The journal {path} cannot be opened: {fault.strerror or fault}. Check its folder, or name another file."
    )


def describe(path: Path, fault: Exception) -> JournalError:
    """Return the error to raise for a fault of the journal in `path`."""
    if isinstance(fault, OWN_FAULTS):
        return not_taken(path, fault)
    match _code_of(fault):
        case sqlite3.SQLITE_NOTADB:
            text = f"{path} is neither a Treadle journal nor an SQLite database. Name another file; this one was not changed."
        case sqlite3.SQLITE_CORRUPT:
            text = (
                f"The journal {path} is damaged ({fault}). Copy it and its -wal file to a safe place first; then "
                f"`sqlite3 {path} .recover` saves what can be read, or name another file."
            )
        case sqlite3.SQLITE_FULL:
            return disk_full(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return locked(path)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            text = (
                f"The journal {path} cannot be written ({fault}). Check the permissions of the file and of its folder."
            )
        case sqlite3.SQLITE_CANTOPEN:
            text = (
                f"The journal {path} cannot be opened ({fault}). Check the permissions of the file and of its folder."
            )
        case sqlite3.SQLITE_IOERR:
            text = (
                f"The journal {path} cannot be read or written ({fault}). Check the disk, its quota and the limits of "
                "this process; what was recorded before is safe."
            )
        case _:
            text = f"The journal {path} does not work ({fault}). Was it changed by another program?"
    return JournalError(text)


def _code_of(fault: Exception) -> int | None:
    try:
        return fault.sqlite_errorcode & _CODE_MASK  # type: ignore[attr-defined, no-any-return]  # set by SQLite alone
    except AttributeError:  # raised by Python's module before SQLite was asked
        return None
