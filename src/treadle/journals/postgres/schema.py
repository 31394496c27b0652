"""The tables of a journal in PostgreSQL, and how they are recognised. Opens no connection and stores no event.

They lie in the first schema of the connection's search path, so that one database may hold several journals. A schema is
never edited: a change is a new version with a step that leads to it, because old journals open for ever.
"""

from enum import Enum
from typing import Any, TypeAlias

import psycopg

__all__ = ["VERSION", "Connection", "Kind", "build", "kind_of"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]  # Any: rows of all tables

# The same tables as in SQLite. `session` has room in its pages, because its rows change with every append.
_FIRST = (
    "CREATE TABLE treadle_journal (version integer NOT NULL)",
    """
    CREATE TABLE session (
        seat        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id          text NOT NULL UNIQUE,
        tenant      text NOT NULL DEFAULT '',
        state       text NOT NULL DEFAULT 'active',
        status      text NOT NULL DEFAULT 'active',
        head        bigint NOT NULL DEFAULT 0,
        epoch       bigint NOT NULL DEFAULT 0,
        owner       text,
        lease_until timestamptz,
        wake_at     double precision,
        version     bigint NOT NULL DEFAULT 0,
        parent_id   text,
        parent_seq  bigint,
        task        text NOT NULL DEFAULT '',
        created_at  double precision NOT NULL,
        updated_at  double precision NOT NULL
    ) WITH (fillfactor = 60)
    """,
    """
    CREATE TABLE event (
        session_id text NOT NULL,
        seq        bigint NOT NULL,
        epoch      bigint NOT NULL,
        at         double precision NOT NULL,
        type       text NOT NULL,
        version    integer NOT NULL,
        body       text NOT NULL,
        PRIMARY KEY (session_id, seq)
    )
    """,
    """
    CREATE TABLE inbox (
        arrival      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session_id   text NOT NULL,
        msg_id       text NOT NULL,
        kind         text NOT NULL,
        body         text NOT NULL,
        consumed_seq bigint,
        UNIQUE (session_id, msg_id)
    )
    """,
    "CREATE INDEX inbox_waiting ON inbox (session_id, arrival) WHERE consumed_seq IS NULL",
    "CREATE TABLE blob (sha256 text NOT NULL PRIMARY KEY, bytes bytea NOT NULL)",
    # Deleting a session is the one thing that may remove events; it must first say so in `session.state`.
    """
    CREATE FUNCTION event_is_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF EXISTS (SELECT FROM session WHERE id = OLD.session_id AND state = 'deleted') THEN
                RETURN OLD;
            END IF;
        END IF;
        RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END
    $$
    """,
    """
    CREATE TRIGGER event_is_never_changed BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION event_is_append_only()
    """,
    """
    CREATE TRIGGER event_is_never_emptied BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION event_is_append_only()
    """,
)

# Checksums are chained over a session's events; `heir` is the one process that waits for a dead holder's lease to end.
_SECOND = (
    "ALTER TABLE event ADD COLUMN sum bytea",
    "ALTER TABLE inbox ADD COLUMN sum bytea",
    "ALTER TABLE session ADD COLUMN heir text, ADD COLUMN heir_until timestamptz",
)

# A list may be of one tenant or parent. The time of the last change has no index: each append would have to move it.
_THIRD = (
    "CREATE INDEX session_of_tenant ON session (tenant)",
    "CREATE INDEX session_below ON session (parent_id)",
)

# What waits is read without events. It follows from them, so a session of before is marked as not looked at yet: `?`.
_FOURTH = (
    """
    CREATE TABLE due (
        session_id text NOT NULL,
        key        text NOT NULL,
        kind       text NOT NULL,
        at         double precision,
        call_id    text NOT NULL DEFAULT '',
        PRIMARY KEY (session_id, key)
    )
    """,
    "INSERT INTO due (session_id, key, kind) SELECT id, '?', 'unknown' FROM session WHERE state IN ('paused', 'running')",
)

_STEPS = (_FIRST, _SECOND, _THIRD, _FOURTH)
"""What leads from each version to the next; the first from an empty schema."""

VERSION = len(_STEPS)

_MARK = "treadle_journal"
"""The table by which a schema is known to be ours; it holds the version."""

_TABLES = (_MARK, "session", "event", "inbox", "blob")

_BUILDING = 0x5452444C
"""The advisory lock of whoever makes tables: `TRDL`."""


class Kind(Enum):
    """What the tables of a schema are to us."""

    EMPTY = "empty"
    OURS = "ours"
    OLDER = "older"
    NEWER = "newer"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    """Ours, but not all tables are there."""
    NOWHERE = "nowhere"
    """The search path names no schema that there is, or none that the role may use."""


def kind_of(connection: Connection) -> tuple[Kind, int]:
    """Say what the tables are, and their version. Reads only."""
    row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        return Kind.NOWHERE, 0
    found = connection.execute(
        "SELECT relname FROM pg_catalog.pg_class "
        "WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)",
        (list(_TABLES),),
    ).fetchall()
    tables = {name for (name,) in found}
    if not tables:
        return Kind.EMPTY, 0
    if tables != set(_TABLES):
        return (Kind.DAMAGED if _MARK in tables else Kind.FOREIGN), 0
    return _kind_of_version(connection.execute("SELECT max(version) FROM treadle_journal").fetchone())


def _kind_of_version(row: tuple[Any, ...] | None) -> tuple[Kind, int]:
    version = 0 if row is None or row[0] is None else int(row[0])
    if version <= 0:
        return Kind.FOREIGN, version
    if version == VERSION:
        return Kind.OURS, version
    return (Kind.NEWER if version > VERSION else Kind.OLDER), version


def build(connection: Connection, busy_seconds: float) -> None:
    """Make the tables, or lead older ones to this version, in one transaction. Does nothing when another was first."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {max(1, round(busy_seconds * 1000))}")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_BUILDING,))
        kind, version = kind_of(connection)
        if kind not in {Kind.EMPTY, Kind.OLDER}:
            return
        for step in _STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("DELETE FROM treadle_journal")
        connection.execute("INSERT INTO treadle_journal (version) VALUES (%s)", (VERSION,))
