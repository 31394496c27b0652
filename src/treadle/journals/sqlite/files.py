"""Opening a journal file: recognised before it is touched, private, never made by a reader. Knows no event.

The database is never opened with `os.open` once it exists: POSIX drops all locks that a process holds on a file when
any descriptor of it closes, and another connection of this process may hold some.
"""

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from treadle.errors import JournalError
from treadle.journals.sqlite.faults import describe, describe_os_error
from treadle.journals.sqlite.migration import migrate
from treadle.journals.sqlite.schema import VERSION, Kind, build, kind_of

__all__ = ["Stamp", "open_reader", "open_still", "open_writer", "stamp"]

_Prepare: TypeAlias = Callable[[sqlite3.Connection, Path, float], None]

_WAL_PAUSE_SECONDS = 0.01
_SMALLEST_BYTES = 512
"""Size of the smallest page, so of the smallest database."""

# Between making the file and connecting to it, a descriptor of ours is closed: nobody else may have connected.
_opening = threading.Lock()


def open_writer(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection that writes; the folder, the file and its tables are made when missing.

    Raises:
        JournalError: The file is not ours, newer, damaged, locked, or cannot be reached. It was not changed.
    """
    with _opening:
        try:
            _make_file(path)
        except OSError as exc:
            raise describe_os_error(path, exc) from exc
        _refuse_strangers(path)
        return _connect(path, "mode=rw", busy_seconds, _prepare)


def open_reader(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection that reads a file which a writer of this process has opened."""
    return _connect(path, "mode=ro", busy_seconds, _check_ours)


def open_still(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection that reads without making a file, be it beside the journal.

    SQLite makes its -shm and -wal files for readers too, and they stay. Without a -wal file nobody writes, so the file
    can be read as one that does not change; the caller compares its `stamp` before and after.

    Raises:
        JournalError: There is no such file, or it cannot be read, or it is not ours.
    """
    try:
        _check_regular(path)
    except OSError as exc:
        raise describe_os_error(path, exc) from exc
    mode = "mode=ro" if _beside(path, "-wal").exists() else "mode=ro&immutable=1"
    return _connect(path, mode, busy_seconds, _check_ours)


class Stamp(NamedTuple):
    """What changes when somebody writes."""

    changed_ns: int
    size: int
    has_log: bool


def stamp(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_mtime_ns, status.st_size, _beside(path, "-wal").exists())


# --- the file


def _make_file(path: Path) -> None:
    if path.exists():
        _check_regular(path)
        _check_writable(path)
        _check_single(path)
        return
    _make_folder(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:  # another process was first, or a link leads nowhere: connecting will tell
        return
    os.fchmod(
        descriptor, 0o600
    )  # the umask may have taken even the owner's permissions; SQLite copies them to its files
    os.close(descriptor)
    _sync_folder(path.parent)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    folder.chmod(0o700)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """A synced file can still be lost in a power cut when its name was not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_regular(path: Path) -> None:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise JournalError(
            f"{path} is a folder, and a journal is a file. Name a file in it, such as {path / 'journal.db'}."
        )
    if not stat.S_ISREG(status.st_mode):
        raise JournalError(f"{path} is not a regular file. Name another file for the journal.")
    if 0 < status.st_size < _SMALLEST_BYTES:  # SQLite would take it for an empty one, and write over it
        raise JournalError(f"{path} is not a Treadle journal. Name another file; this one was not changed.")


def _check_single(path: Path) -> None:
    if path.stat().st_nlink > 1:  # SQLite keeps a log for each name: two of them would damage the file
        raise JournalError(
            f"The journal {path} has {path.stat().st_nlink} names (hard links), and a journal must have only one. Remove the others, or copy the file instead of linking it."
        )


def _check_writable(path: Path) -> None:
    # SQLite opens what it may not write as read-only, silently, and would fail at the first event.
    for needed in (path, path.parent):
        if not os.access(needed, os.W_OK):
            raise JournalError(
                f"The journal {path} cannot be written: {needed} is read-only. Change its permissions or name another."
            )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


# --- the connection


def _connect(path: Path, mode: str, busy_seconds: float, prepare: _Prepare) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=busy_seconds, isolation_level=None)
    except sqlite3.Error as exc:
        raise describe(path, exc) from exc
    try:
        prepare(connection, path, busy_seconds)
    except sqlite3.Error as exc:
        connection.close()
        raise describe(path, exc) from exc
    except JournalError:
        connection.close()
        raise
    return connection


def _refuse_strangers(path: Path) -> None:
    """Look at a file before SQLite may write: opening another program's file would fold its -wal file into it."""
    if _beside(path, "-journal").exists():  # its making was cut off: only a writer can clear that up
        return
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as exc:
        raise describe(path, exc) from exc
    try:
        _check_ours_or_empty(connection, path)
    except sqlite3.DatabaseError:  # another process may be making it now; whoever connects next reports a real fault
        return
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    if _check_ours_or_empty(connection, path) is Kind.EMPTY:
        _make_private(path)
        build(connection)
        _check_ours(connection, path, busy_seconds)
    if kind_of(connection)[1] < VERSION:
        migrate(connection, path)
    _enter_wal(connection, path, time.monotonic() + busy_seconds)
    # On macOS a plain fsync leaves the bytes in the drive's cache; elsewhere these two change nothing.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")


def _make_private(path: Path) -> None:
    try:
        path.chmod(0o600)  # a file that stood there empty
    except OSError as exc:
        raise describe_os_error(path, exc) from exc


def _enter_wal(connection: sqlite3.Connection, path: Path, deadline: float) -> None:
    """Change to a write-ahead log. SQLite does not wait here when another process is opening the file, so we do."""
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_PAUSE_SECONDS)
            continue
        if mode != "wal":
            raise JournalError(
                f"The folder of the journal {path} allows no shared memory. Name a file on a local disk."
            )
        return


def _check_ours(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    if _check_ours_or_empty(connection, path) is Kind.EMPTY:
        raise JournalError(f"{path} is empty: no journal has been started in it.")


def _check_ours_or_empty(connection: sqlite3.Connection, path: Path) -> Kind:
    connection.execute("PRAGMA trusted_schema = OFF")
    kind, version = kind_of(connection)
    match kind:
        case Kind.NEWER:
            raise JournalError(
                f"{path} was written by a newer Treadle (schema {version}; this one knows {VERSION}). "
                "Upgrade Treadle; the file was not changed."
            )
        case Kind.FOREIGN:
            raise JournalError(
                f"{path} is a database of another program. Name another file for the journal; this one was not changed."
            )
        case _:
            return kind
