"""SQLite: a journal in one file, shared by any number of processes. It knows nothing of what its events mean."""

import asyncio
import os
import re
import socket
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from treadle.concurrency import bury, watch
from treadle.errors import JournalError, SessionConflict, SessionError, UnknownSession
from treadle.fields import checked
from treadle.journals.backend import (
    Append,
    DueChanges,
    DueRow,
    Last,
    MessageRow,
    conflict,
    disk_full,
    exists,
    forked,
    locked,
    not_taken,
    taken_over,
    unknown,
)
from treadle.journals.sqlite_leases import Claimed, FileLease, LeaseRows, Leases
from treadle.journals.sqlite_live import LiveFolder
from treadle.journals.store import (
    LEASE_SECONDS,
    SELECT_SUM,
    Deferred,
    Job,
    TableBackend,
    TableJournal,
    Worker,
    again,
    opened,
)
from treadle.redaction import redacted_logger

__all__ = [
    "STEPS",
    "VERSION",
    "Kind",
    "SqliteJournal",
    "backup_of",
    "build",
    "kind_of",
    "migrate",
    "open_reader",
    "open_sqlite",
    "open_traceless",
    "open_writer",
]


# --- What SQLite and the file system complain of, in words that say what to do. Acts on nothing.

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
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH | sqlite3.SQLITE_CANTOPEN as code:
            act = "opened" if code == sqlite3.SQLITE_CANTOPEN else "written"
            text = f"The journal {path} cannot be {act} ({fault}). Check the permissions of the file and of its folder."
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


# --- The tables of a journal file, and how a file is recognised. Opens nothing and stores no event.

APPLICATION_ID = 0x5452444C
"""`TRDL` in the header of every file of ours, where `file` and SQLite's own tools see it."""

# `session` carries the words of leases, wake-ups and forks from the first day, so that they need no migration.
# `event` is clustered by its key: one session's events lie side by side, and reading them is one scan.
# Deleting a session is the one thing that may remove events; it must first say so in `session.state`.
_FIRST = (
    """
    CREATE TABLE session (
        seat        INTEGER PRIMARY KEY,
        id          TEXT NOT NULL UNIQUE,
        tenant      TEXT NOT NULL DEFAULT '',
        state       TEXT NOT NULL DEFAULT 'active',
        head        INTEGER NOT NULL DEFAULT 0,
        epoch       INTEGER NOT NULL DEFAULT 0,
        owner       TEXT,
        lease_until REAL,
        wake_at     REAL,
        version     INTEGER NOT NULL DEFAULT 0,
        parent_id   TEXT,
        parent_seq  INTEGER,
        task        TEXT NOT NULL DEFAULT '',
        created_at  REAL NOT NULL,
        updated_at  REAL NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE event (
        session_id TEXT NOT NULL,
        seq        INTEGER NOT NULL,
        epoch      INTEGER NOT NULL,
        at         REAL NOT NULL,
        type       TEXT NOT NULL,
        version    INTEGER NOT NULL,
        body       TEXT NOT NULL,
        PRIMARY KEY (session_id, seq)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END
    """,
    """
    CREATE TRIGGER event_leaves_with_its_session BEFORE DELETE ON event
    WHEN (SELECT state FROM session WHERE id = OLD.session_id) IS NOT 'deleted'
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END
    """,
    """
    CREATE TABLE inbox (
        arrival      INTEGER PRIMARY KEY,
        session_id   TEXT NOT NULL,
        msg_id       TEXT NOT NULL,
        kind         TEXT NOT NULL,
        body         TEXT NOT NULL,
        consumed_seq INTEGER,
        UNIQUE (session_id, msg_id)
    ) STRICT
    """,
    "CREATE INDEX inbox_waiting ON inbox (session_id, arrival) WHERE consumed_seq IS NULL",
    "CREATE TABLE blob (sha256 TEXT NOT NULL PRIMARY KEY, bytes BLOB NOT NULL) STRICT",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

# What people have made of a session is not what happened to its last run, which is in `state`.
_SECOND = ("ALTER TABLE session ADD COLUMN status TEXT NOT NULL DEFAULT 'active'",)

# Checksums are chained over a session's events; a file's own name tells it from another one in its place.
_THIRD = (
    "ALTER TABLE event ADD COLUMN sum BLOB",
    "ALTER TABLE inbox ADD COLUMN sum BLOB",
    "CREATE TABLE journal (name TEXT NOT NULL) STRICT",
    "INSERT INTO journal (name) VALUES (lower(hex(randomblob(16))))",
)

# A list may be of one tenant or parent. The time of the last change has no index: each append would have to move it.
_FOURTH = (
    "CREATE INDEX session_of_tenant ON session (tenant)",
    "CREATE INDEX session_below ON session (parent_id)",
)

# What waits is read without events. It follows from them, so a session of before is marked as not looked at yet: `?`.
_FIFTH = (
    """
    CREATE TABLE due (
        session_id TEXT NOT NULL,
        key        TEXT NOT NULL,
        kind       TEXT NOT NULL,
        at         REAL,
        call_id    TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (session_id, key)
    ) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO due (session_id, key, kind) SELECT id, '?', 'unknown' FROM session WHERE state IN ('paused', 'running')",
)

STEPS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)
"""What leads from each version to the next; the first from an empty file. A new file takes all of them."""

VERSION = len(STEPS)

# A reader changes no file, so it may be an old one: it is read through views that have what was added since.
_DUE_VIEW = (
    "CREATE TEMP VIEW due AS SELECT id AS session_id, '?' AS key, 'unknown' AS kind, NULL AS at, '' AS call_id "
    "FROM main.session WHERE state IN ('paused', 'running')"
)
_WITHOUT_SUMS = (
    _DUE_VIEW,
    "CREATE TEMP VIEW event AS SELECT *, NULL AS sum FROM main.event",
    "CREATE TEMP VIEW inbox AS SELECT *, NULL AS sum FROM main.inbox",
)
_WITHOUT_STATUS = (*_WITHOUT_SUMS, "CREATE TEMP VIEW session AS SELECT *, 'active' AS status FROM main.session")
_VIEWS = {1: _WITHOUT_STATUS, 2: _WITHOUT_SUMS, 3: (_DUE_VIEW,), 4: (_DUE_VIEW,)}


class Kind(Enum):
    """What a database file is to us."""

    EMPTY = "empty"
    OURS = "ours"
    NEWER = "newer"
    FOREIGN = "foreign"


def kind_of(connection: sqlite3.Connection) -> tuple[Kind, int]:
    """Say what a file is, and its schema version. Reads only."""
    if connection.in_transaction:
        return _kind_seen(connection)
    connection.execute("BEGIN")  # one look: another process may be making the file
    try:
        return _kind_seen(connection)
    finally:
        connection.rollback()


def _kind_seen(connection: sqlite3.Connection) -> tuple[Kind, int]:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    match application_id, version, objects:
        case (0, 0, 0):
            return Kind.EMPTY, 0
        case (ours, version, _) if ours == APPLICATION_ID and version > VERSION:
            return Kind.NEWER, version
        case (ours, version, objects) if ours == APPLICATION_ID and version > 0 and objects > 0:
            return Kind.OURS, version
        case _:
            return Kind.FOREIGN, version


def build(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, in one transaction. Does nothing when another process was first."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if kind_of(connection)[0] is Kind.EMPTY:
            take_steps(connection, 0)
        connection.execute("COMMIT")
    except BaseException:
        # Nothing half made may stay, whatever stopped it; a failure has often rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def take_steps(connection: sqlite3.Connection, version: int) -> None:
    """Lead a file from its version to this program's, in the transaction that the caller has begun."""
    for step in STEPS[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


# --- Migration: an older journal file becomes one of this version, whole or not at all, with a copy next to it. Knows no
# event.

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
    """Copy the file as it is, its log included. Others may read it meanwhile; we keep them from writing."""
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
    """Sync a file, or a folder: a synced file can still be lost in a power cut when its name was not."""
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


# --- Opening a journal file: recognised before it is touched, private, never made by a reader. Knows no event.

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
    return _connect(path, "mode=ro", busy_seconds, _prepare_to_read)


def open_traceless(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection that reads without making a file, be it next to the journal.

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
    return _connect(path, mode, busy_seconds, _prepare_to_read)


def stamp(path: Path) -> tuple[int, int, bool]:
    """Return what changes when somebody writes. The last of it says whether there is a log."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, _beside(path, "-wal").exists()


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
    _sync(path.parent)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    folder.chmod(0o700)
    _sync(folder.parent)


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
        _check_ours(connection, path)
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


def _prepare_to_read(connection: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    _check_ours(connection, path)
    for statement in _VIEWS.get(kind_of(connection)[1], ()):
        connection.execute(statement)
    # SQLite's own function knows the letters of English alone.
    connection.create_function("lower", 1, str.lower, deterministic=True)


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
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


# --- The reading side of a journal file. Runs on the reader's thread only; changes nothing and makes no file.

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


class TracelessReader:
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
            if before[-1] or stamp(self._path) == before:
                return
        job.error = JournalError(f"The journal {self._path} changed each time it was read. Try again.")

    def _look_once(self, job: Job[Any]) -> None:
        job.error = None
        try:
            with closing(open_traceless(self._path, self._busy_seconds)) as connection:
                if job.act is not None:
                    job.outcome = job.act(connection)
        except STORE_FAULTS as exc:
            job.error = describe(self._path, exc)
        except (JournalError, SessionError) as exc:
            job.error = exc


# --- Whether a journal file is still the one that was opened: not deleted, replaced or cut under a run. Changes
# nothing.


class _File(NamedTuple):
    device: int
    inode: int
    size: int


class FileIdentity:
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


# --- The writing side of a journal file: all that is queued goes into one transaction. Runs on the writer's thread only.

# Nothing else asks which events name a stored text, so the indexes are made by the first purge that has to know. Files of
# every version may have them: a program that knows nothing of an index keeps it up to date too.
_MAY_NAME = "type IN ('tool.finished', 'contract.violated', 'context.compacted')"
_KEY = '\'"artifact":"\''
_NAMED = f"substr(body, instr(body, {_KEY}) + 12, 64)"
_NAMES_ONE = f"{_MAY_NAME} AND instr(body, {_KEY}) > 0"
# A list of several, or a second key of that name, such as one in a result's own data: such events are few, and each is looked at.
_NAMES_MORE = (
    f'{_MAY_NAME} AND (instr(body, \'"artifacts":["\') > 0 OR instr({_NAMED.replace(", 64", "")}, {_KEY}) > 0)'
)


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
        self._last: dict[str, Last] = {}
        self._heads: dict[str, int] = {}  # of sessions with events that are not known to be on the disk
        self._identity = FileIdentity(path)
        self._foreign: set[str] = set()  # sessions that the process holds from which this one was forked
        watch(self)

    def after_fork(self) -> None:
        """The connection and the leases are the parent's."""
        bury(self._connection)
        self._connection = None
        self._foreign |= self._held
        self.deferred = Deferred()
        for known in (self._epochs, self._held, self._last, self._heads):
            known.clear()

    def epoch_seen(self, session_id: str) -> int | None:
        """Return the session's number as this journal has last seen it; None for one that it has not. For other threads."""
        return self._epochs.get(session_id)

    # --- acts of jobs: each is right or raises before it has written anything

    def create(self, connection: sqlite3.Connection, session_id: str, now: float) -> bool:
        made = _create(connection, session_id, now)
        if session_id not in self._held:  # a run that was fenced must not be let in again by whoever opens its session
            self._epochs[session_id] = _epoch_of(connection, session_id)
        self.deferred.forget(session_id)
        return made

    def claim(
        self, connection: sqlite3.Connection, session_id: str, seen: int, epoch: int, owner: str
    ) -> Claimed | None:
        """Put the session into other hands, where it still is in those that were seen."""
        claimed = connection.execute(
            "UPDATE session SET epoch = ?, owner = ? WHERE id = ? AND epoch = ? RETURNING head, "
            "EXISTS (SELECT 1 FROM inbox WHERE session_id = session.id AND consumed_seq IS NULL)",
            (epoch, owner, session_id, seen),
        ).fetchone()
        if claimed is None:
            return None
        self._epochs[session_id] = epoch
        self._held.add(session_id)
        self._foreign.discard(session_id)
        head, has_messages = claimed
        name = connection.execute("SELECT name FROM journal").fetchone()
        return Claimed(int(head), bool(has_messages), "" if name is None else str(name[0]))

    def give_back(self, connection: sqlite3.Connection, session_id: str, epoch: int) -> None:
        """Note that nobody holds the session, unless others have taken it since."""
        if self._epochs.get(session_id) == epoch:
            self._held.discard(session_id)
        connection.execute("UPDATE session SET owner = NULL WHERE id = ? AND epoch = ?", (session_id, epoch))

    def append(self, connection: sqlite3.Connection, append: Append) -> None:
        session_id = append.session_id
        self.deferred.refuse(session_id)
        if session_id in self._foreign:
            raise forked(session_id)
        if session_id not in self._epochs:
            self._epochs[session_id] = _epoch_of(connection, session_id)
        last = _append(connection, append, self._epochs[session_id], self._last.pop(session_id, None))
        if last is not None:
            self._last[session_id] = last
            self._heads[session_id] = last.seq

    def adopt(
        self,
        connection: sqlite3.Connection,
        append: Append,
        now: float,
        parent: tuple[str, int] | None,
        inbox: Sequence[MessageRow],
    ) -> None:
        session_id = append.session_id
        if not _create(connection, session_id, now):
            raise exists(session_id)
        if parent is not None:
            connection.execute("UPDATE session SET parent_id = ?, parent_seq = ? WHERE id = ?", (*parent, session_id))
        _append(connection, append, 0)
        for message in inbox:
            self.put(connection, session_id, message)

    def purge(self, connection: sqlite3.Connection, append: Append, blobs: Sequence[str]) -> None:
        """Remove all of a session but what follows now, numbered from 1."""
        session_id = append.session_id
        epoch = _epoch_of(connection, session_id)
        self._last.pop(session_id, None)
        self._heads[session_id] = append.rows[-1][0]
        connection.execute("UPDATE session SET state = 'deleted', head = 0, task = '' WHERE id = ?", (session_id,))
        connection.execute("DELETE FROM event WHERE session_id = ?", (session_id,))
        connection.execute("DELETE FROM inbox WHERE session_id = ?", (session_id,))
        _append(connection, append, epoch)
        if blobs:
            _drop_blobs(connection, blobs)

    def put(self, connection: sqlite3.Connection, session_id: str, message: MessageRow) -> bool:
        """Leave a message; the first of two with one id wins."""
        _epoch_of(connection, session_id)
        put = connection.execute(
            "INSERT INTO inbox (session_id, msg_id, kind, body, sum) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (session_id, msg_id) DO NOTHING",
            (session_id, *message),
        )
        return put.rowcount == 1

    def consume(self, connection: sqlite3.Connection, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        """Mark messages as consumed. The first event that consumed one stays on record."""
        _epoch_of(connection, session_id)
        connection.executemany(
            "UPDATE inbox SET consumed_seq = ? WHERE session_id = ? AND msg_id = ? AND consumed_seq IS NULL",
            [(seq, session_id, message_id) for message_id in message_ids],
        )

    def reindex(self, connection: sqlite3.Connection, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
        """Put these rows in place of all of a session's in the index, where its head is still this one."""
        if connection.execute("SELECT 1 FROM session WHERE id = ? AND head = ?", (session_id, head)).fetchone():
            _change_due(connection, session_id, DueChanges(drops_all=True, puts=tuple(rows)))

    def put_blob(self, connection: sqlite3.Connection, digest: str, content: bytes) -> None:
        connection.execute(
            "INSERT INTO blob (sha256, bytes) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING", (digest, content)
        )

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
                jobs[0].fail(describe(self._path, exc))
        except (sqlite3.Error, JournalError) as exc:
            self._abandon()
            error = exc if isinstance(exc, JournalError) else describe(self._path, exc)
            for job in jobs:
                job.fail(again(error))

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
            self._identity.check(connection)
        self._set_synchronous(connection, "FULL" if is_durable else "NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            self._do(job, connection)
        connection.execute("COMMIT")
        if is_durable and self._heads:
            self.note(self._heads)
            self._heads.clear()

    def _do(self, job: Job[Any], connection: sqlite3.Connection) -> None:
        job.error = None
        if job.act is None:
            return
        try:
            job.outcome = job.act(connection)
        except (SessionError, JournalError) as exc:
            job.fail(exc)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._identity.check()  # a file that was there before is never made anew
            self._identity.reopened()
            self._connection = open_writer(self._path, self._busy_seconds)
            self._identity.check(self._connection)
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


def _create(connection: sqlite3.Connection, session_id: str, now: float) -> bool:
    """Make a session if there is none; return whether it was made."""
    made = connection.execute(
        "INSERT INTO session (id, created_at, updated_at) SELECT ?1, ?2, ?2 "
        "WHERE NOT EXISTS (SELECT 1 FROM event WHERE session_id = ?1) ON CONFLICT (id) DO NOTHING",
        (session_id, now),
    )
    if made.rowcount == 1:
        return True
    if connection.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is None:
        raise JournalError(
            f"Session {session_id!r} is damaged: its events are stored, its own record is missing. Restore the journal "
            "from a backup; nothing was changed."
        )
    return False


def _epoch_of(connection: sqlite3.Connection, session_id: str) -> int:
    """Return the number of times that the session has changed hands."""
    row = connection.execute("SELECT epoch FROM session WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise unknown(session_id)
    return int(row[0])


def _append(connection: sqlite3.Connection, append: Append, epoch: int, last: Last | None = None) -> Last | None:
    """Move the head, where it and the epoch still hold, and add the events. Return the session's last event now, if any was added.

    Args:
        last: The session's last event before, where the caller knows it.

    Raises:
        SessionConflict: Another writer has continued, or has taken the session over.
        UnknownSession: There is no such session.
    """
    session_id, before = append.session_id, append.before
    head, at = (append.rows[-1][0], append.rows[-1][1]) if append.rows else (None, None)
    moved = connection.execute(
        "UPDATE session SET state = ?, version = version + 1, head = coalesce(?, head), "
        "updated_at = coalesce(?, updated_at), task = CASE task WHEN '' THEN ? ELSE task END, "
        "status = coalesce(?, status), tenant = coalesce(?, tenant) WHERE id = ? AND epoch = ? AND head = coalesce(?, head)",
        (append.state, head, at, append.task, append.status, append.tenant, session_id, epoch, before),
    )
    if moved.rowcount == 0:
        raise _why_refused(connection, append, epoch)
    if before is None:
        return None
    if append.due is not None:
        _change_due(connection, session_id, append.due)
    if last is not None and last.seq == before:
        sum_before = last.sum
    else:
        found = connection.execute(SELECT_SUM, {"id": session_id, "seq": before}).fetchone()
        sum_before = None if found is None else found[0]
    chained = append.chained(sum_before)
    connection.executemany(
        "INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(session_id, epoch, *row, link[2]) for row, link in zip(append.rows, chained, strict=True)],
    )
    return Last(append.rows[-1][0], chained[-1][2])


def _why_refused(connection: sqlite3.Connection, append: Append, epoch: int) -> SessionConflict | UnknownSession:
    row = connection.execute("SELECT head, epoch FROM session WHERE id = ?", (append.session_id,)).fetchone()
    if row is None:
        return unknown(append.session_id)
    head, stored_epoch = row
    if stored_epoch != epoch:
        return taken_over(append.session_id)
    return conflict(append.session_id, head, append.rows[0][0])


def _change_due(connection: sqlite3.Connection, session_id: str, changes: DueChanges) -> None:
    if changes.drops_all:
        connection.execute("DELETE FROM due WHERE session_id = ?", (session_id,))
    connection.executemany(
        "DELETE FROM due WHERE session_id = ? AND key = ?", [(session_id, key) for key in changes.drops]
    )
    connection.executemany(
        "INSERT OR REPLACE INTO due (session_id, key, kind, at, call_id) VALUES (?, ?, ?, ?, ?)", changes.puts
    )


def _drop_blobs(connection: sqlite3.Connection, blobs: Sequence[str]) -> None:
    """Remove stored bytes that no event names any more."""
    connection.execute(f"CREATE INDEX IF NOT EXISTS event_naming ON event ({_NAMED}) WHERE {_NAMES_ONE}")
    connection.execute(f"CREATE INDEX IF NOT EXISTS event_naming_more ON event (type) WHERE {_NAMES_MORE}")
    connection.executemany(
        f"DELETE FROM blob WHERE sha256 = ?1 AND NOT EXISTS (SELECT 1 FROM event WHERE {_NAMED} = ?1 AND {_NAMES_ONE}) "  # noqa: S608 - made of constants
        f"AND NOT EXISTS (SELECT 1 FROM event WHERE {_NAMES_MORE} AND instr(body, ?1) > 0)",
        [(digest,) for digest in blobs],
    )


# --- A journal file and its two threads: one writes and one reads, so that no event loop ever waits for a disk.

_T = TypeVar("_T")

_MAX_BATCH = 1000
_MAX_BACKLOG = 256
"""Deferred appends that may wait; past it an append waits for the store, so that a slow disk cannot fill the memory."""

_LINGER_SECONDS = 0.003
"""How long a deferred append may wait for others, to be stored with them."""

_EXIT_SECONDS = 5.0


class SqliteBackend(TableBackend[sqlite3.Connection]):
    """The primitives of a journal over one SQLite file, which the first of them opens."""

    find = "instr"

    def __init__(self, path: Path, *, read_only: bool, busy_seconds: float, lease_seconds: float) -> None:
        self._path = path
        self._read_only = read_only
        self._is_open = False
        self._writer = Writer(self._path, busy_seconds)
        reader = (TracelessReader if read_only else Reader)(self._path, busy_seconds)
        exit_seconds = busy_seconds + _EXIT_SECONDS
        self._writing = Worker(
            "treadle-journal-writer", self._writer.serve, self._writer.finish,
            max_batch=_MAX_BATCH, exit_seconds=exit_seconds, linger_seconds=_LINGER_SECONDS,
        )  # fmt: skip
        self._reading = Worker(
            "treadle-journal-reader", reader.serve, reader.finish, max_batch=1, exit_seconds=exit_seconds
        )
        rows = LeaseRows(
            read=self._epoch,
            guess=self._writer.epoch_seen,
            claim=self._claim,
            give_back=self._give_back,
            look=self._look,
        )
        self._leases = Leases(self._path, rows, lease_seconds)
        self._writer.note = _weakly(self._leases.note)  # the thread must not keep a journal that nobody reaches
        weakref.finalize(self, _forsake, self._writing, self._reading).atexit = False  # workers end themselves then

    @property
    def location(self) -> str:
        return str(self._path)

    async def create(self, session_id: str) -> bool:
        return await self._write(partial(self._writer.create, session_id=session_id, now=time.time()))

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> FileLease:
        self._check_writable()
        return await self._leases.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions whose locks a process of this machine holds."""
        await self.settle()

        def ask(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            return [(session_id, _epoch_of(connection, session_id)) for session_id in session_ids]

        return [session_id for session_id, epoch in await self.ask(ask) if self._leases.is_held(session_id, epoch)]

    async def append(self, append: Append, *, durable: bool) -> None:
        act = partial(self._writer.append, append=append)
        if durable or self._writing.backlog > _MAX_BACKLOG:
            await self._write(act, session_id=append.session_id, durable=durable)
        else:
            self._check_writable()
            self._writing.submit(Job(act, session_id=append.session_id, deferred=self._writer.deferred))

    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        act = partial(self._writer.adopt, append=append, now=time.time(), parent=parent, inbox=inbox)
        await self._write(act, durable=True)

    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        await self._write(partial(self._writer.purge, append=append, blobs=blobs), durable=True)
        await asyncio.to_thread(remove_copies, self._path)

    async def put(self, session_id: str, message: MessageRow) -> bool:
        # Durable: a person's answer is not to be asked for twice.
        is_new = await self._write(partial(self._writer.put, session_id=session_id, message=message), durable=True)
        self._leases.look()
        return is_new

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        await self._write(partial(self._writer.consume, session_id=session_id, message_ids=message_ids, seq=seq))

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
        await self._write(partial(self._writer.reindex, session_id=session_id, head=head, rows=rows))

    async def put_blob(self, digest: str, content: bytes) -> None:
        await self._write(partial(self._writer.put_blob, digest=digest, content=content))

    def check(self, session_id: str) -> None:
        self._writer.deferred.check(session_id)

    def report(self) -> None:
        self._writer.deferred.report()

    async def close(self) -> None:
        """Store what is pending, fold the log into the database and let go of the file. May be called twice."""
        # The reader first: the last connection to close folds the log, and a reader may not.
        for worker in (self._reading, self._writing):
            await worker.wait_for_end()

    async def settle(self) -> None:
        if self._read_only or (self._is_open and self._writing.is_idle):
            return
        await _done(self._writing, Job[None](None))
        self._is_open = True

    async def ask(self, question: Callable[[sqlite3.Connection], _T] | None) -> _T:
        if not self._is_open:  # the writer makes the file
            await self.settle()
        return await _done(self._reading, Job(question))

    def rows(self, connection: sqlite3.Connection, statement: str, **values: object) -> list[Any]:
        return connection.execute(statement, values).fetchall()

    async def _epoch(self, session_id: str) -> int:
        await self.settle()
        return await self.ask(partial(_epoch_of, session_id=session_id))

    async def _claim(self, session_id: str, seen: int, epoch: int) -> Claimed | None:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        act = partial(self._writer.claim, session_id=session_id, seen=seen, epoch=epoch, owner=owner)
        return await self._write(act)

    def _give_back(self, session_id: str, epoch: int) -> None:
        with suppress(JournalError):  # closed meanwhile: the lock is free anyway, and that is what counts
            act = partial(self._writer.give_back, session_id=session_id, epoch=epoch)
            self._writing.submit(Job(act, is_aside=True))

    def _look(self) -> None:
        """Tell those who hold sessions of the last message that waits for each."""
        waiting = "SELECT session_id, max(arrival) FROM inbox WHERE consumed_seq IS NULL GROUP BY session_id"
        with suppress(JournalError):  # closed meanwhile
            self._reading.submit(
                Job(lambda connection: self._leases.tell(dict(connection.execute(waiting).fetchall())))
            )

    async def _write(
        self, act: Callable[[sqlite3.Connection], _T], *, session_id: str = "", durable: bool = False
    ) -> _T:
        self._check_writable()
        deferred = self._writer.deferred
        outcome = await _done(self._writing, Job(act, session_id=session_id, is_durable=durable, deferred=deferred))
        self._is_open = True
        return outcome

    def _check_writable(self) -> None:
        if self._read_only:
            raise JournalError(
                f"The journal {self._path} was opened for reading only. Open it again with open_journal({str(self._path)!r})."
            )


async def _done(worker: Worker, job: Job[_T]) -> _T:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    job.future = future
    worker.submit(job)
    return await future


def _weakly(method: Callable[[Mapping[str, int]], None]) -> Callable[[Mapping[str, int]], None]:
    """Return what calls a method for as long as its object lives."""
    weak = weakref.WeakMethod(method)

    def call(heads: Mapping[str, int]) -> None:
        if (strong := weak()) is not None:
            strong(heads)

    return call


def _forsake(*workers: Worker) -> None:
    """Let the threads of a journal that nobody closed and nobody can reach end, once they have stored what is queued."""
    for worker in workers:
        worker.stop()


# --- A journal in one SQLite file, shared by any number of processes. It knows nothing of what its events mean.


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


class SqliteJournal(TableJournal[SqliteBackend]):
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

        self._live = LiveFolder(Path(f"{self.location}-live"))

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Write what followers on this machine do not know yet into their files; nothing where nobody follows."""
        return await self._live.tell_live(session_id, number, pieces, told)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        """Receive the live texts of a session, in a file of its own next to the journal."""
        return self._live.hear_live(session_id)

    async def open(self) -> None:
        """Open the file now instead of with the first call.

        Raises:
            JournalError: As `open_sqlite` says.
        """
        await self._store.ask(None)


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
