"""The tables of a journal file, and how a file is recognised. Opens nothing and stores no event.

A schema is never edited: a change is a new version with a step that leads to it, because old files open for ever.
"""

import sqlite3
from enum import Enum

__all__ = ["APPLICATION_ID", "STEPS", "VERSION", "Kind", "build", "kind_of", "take_steps"]

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


class Kind(Enum):
    """What a database file is to us."""

    EMPTY = "empty"
    OURS = "ours"
    NEWER = "newer"
    FOREIGN = "foreign"


def kind_of(connection: sqlite3.Connection) -> tuple[Kind, int]:
    """Say what a file is, and its schema version. Reads only."""
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
