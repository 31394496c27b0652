"""What is done to the tables, one function an act. Opens no connection and no transaction; decides nothing about durability."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from treadle.errors import JournalError, SessionConflict, UnknownSession
from treadle.journals.backend import (
    INFO_COLUMNS,
    Append,
    DueChanges,
    DueRow,
    MessageRow,
    SessionRow,
    SumRow,
    conflict,
    exists,
    info_of,
    taken_over,
    unknown,
)
from treadle.journals.store import WITH_MESSAGES, conditions
from treadle.ports import SessionFilter, SessionInfo

__all__ = [
    "Last",
    "adopt",
    "append",
    "claim",
    "consume",
    "create",
    "epoch_of",
    "give_back",
    "has_messages",
    "name_of",
    "purge",
    "put",
    "put_blob",
    "reindex",
    "select_arrivals",
    "select_blob",
    "select_due",
    "select_events",
    "select_head",
    "select_inbox",
    "select_row",
    "select_sessions",
    "select_sum",
    "select_with_messages",
    "select_with_unknown_outcomes",
]

_STATUS_SINCE = 2
"""The first schema whose sessions have a status."""

_SUMS_SINCE = 3
"""The first schema whose events and messages have checksums."""

_DUE_SINCE = 5
"""The first schema with an index of what waits."""

_SLICE_BYTES = 1024 * 1024
"""Of stored bytes that are written or read at once."""


class Last(NamedTuple):
    """A session's last event."""

    seq: int
    sum: bytes | None


def create(connection: sqlite3.Connection, session_id: str, now: float) -> bool:
    """Make a session if there is none; return whether it was made.

    Raises:
        JournalError: There is none, but events of one by that id.
    """
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


def epoch_of(connection: sqlite3.Connection, session_id: str) -> int:
    """Return the number of times that the session has changed hands.

    Raises:
        UnknownSession: There is no such session.
    """
    row = connection.execute("SELECT epoch FROM session WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise unknown(session_id)
    (epoch,) = row
    return int(epoch)


def claim(connection: sqlite3.Connection, session_id: str, seen: int, epoch: int, owner: str) -> bool:
    """Put the session into other hands, where it still is in those that were seen. Return whether it was."""
    claimed = connection.execute(
        "UPDATE session SET epoch = ?, owner = ? WHERE id = ? AND epoch = ?", (epoch, owner, session_id, seen)
    )
    return claimed.rowcount == 1


def give_back(connection: sqlite3.Connection, session_id: str, epoch: int) -> None:
    """Note that nobody holds the session, unless others have taken it since."""
    connection.execute("UPDATE session SET owner = NULL WHERE id = ? AND epoch = ?", (session_id, epoch))


def append(connection: sqlite3.Connection, job: Append, epoch: int, last: Last | None = None) -> Last | None:
    """Move the head, where it and the epoch still hold, and add the events. Nothing is written when they do not.

    Args:
        last: The session's last event, where the caller knows it.

    Returns:
        The session's last event now; None where nothing was appended.

    Raises:
        SessionConflict: Another writer has continued, or has taken the session over.
        UnknownSession: There is no such session.
    """
    head, at = (job.rows[-1][0], job.rows[-1][1]) if job.rows else (None, None)
    before = job.before
    moved = connection.execute(
        "UPDATE session SET state = ?, version = version + 1, head = coalesce(?, head), "
        "updated_at = coalesce(?, updated_at), task = CASE task WHEN '' THEN ? ELSE task END, "
        "status = coalesce(?, status), tenant = coalesce(?, tenant) WHERE id = ? AND epoch = ? AND head = coalesce(?, head)",
        (job.state, head, at, job.task, job.status, job.tenant, job.session_id, epoch, before),
    )
    if moved.rowcount == 0:
        raise _fenced(connection, job, epoch)
    if before is None:
        return None
    if job.due is not None:
        _change_due(connection, job.session_id, job.due)
    is_known = last is not None and last.seq == before
    sum_before = last.sum if is_known and last is not None else select_sum(connection, job.session_id, before)
    chained = job.chained(sum_before)
    connection.executemany(
        "INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(job.session_id, epoch, *row, one[2]) for row, one in zip(job.rows, chained, strict=True)],
    )
    return Last(job.rows[-1][0], chained[-1][2])


def _change_due(connection: sqlite3.Connection, session_id: str, changes: DueChanges) -> None:
    if changes.drops_all:
        connection.execute("DELETE FROM due WHERE session_id = ?", (session_id,))
    connection.executemany(
        "DELETE FROM due WHERE session_id = ? AND key = ?", [(session_id, key) for key in changes.drops]
    )
    connection.executemany(
        "INSERT OR REPLACE INTO due (session_id, key, kind, at, call_id) VALUES (?, ?, ?, ?, ?)", changes.puts
    )


def reindex(connection: sqlite3.Connection, session_id: str, head: int, rows: Sequence[DueRow]) -> None:
    """Put these rows in place of all of a session's in the index, where its head is still this one."""
    if select_head(connection, session_id) == head:
        _change_due(connection, session_id, DueChanges(drops_all=True, puts=tuple(rows)))


def adopt(
    connection: sqlite3.Connection,
    job: Append,
    now: float,
    parent: tuple[str, int] | None,
    inbox: Sequence[MessageRow],
) -> None:
    """Make a session that has all of this.

    Raises:
        SessionExists: There is one by that id. Nothing was written.
    """
    if not create(connection, job.session_id, now):
        raise exists(job.session_id)
    if parent is not None:
        connection.execute("UPDATE session SET parent_id = ?, parent_seq = ? WHERE id = ?", (*parent, job.session_id))
    append(connection, job, 0)
    for message in inbox:
        put(connection, job.session_id, message)


def purge(connection: sqlite3.Connection, job: Append, blobs: Sequence[str]) -> None:
    """Remove all of a session but what follows now, numbered from 1.

    Raises:
        UnknownSession: There is no such session. Nothing was written.
    """
    epoch = epoch_of(connection, job.session_id)
    connection.execute("UPDATE session SET state = 'deleted', head = 0, task = '' WHERE id = ?", (job.session_id,))
    connection.execute("DELETE FROM event WHERE session_id = ?", (job.session_id,))
    connection.execute("DELETE FROM inbox WHERE session_id = ?", (job.session_id,))
    append(connection, job, epoch)
    if blobs:
        _drop_blobs(connection, blobs)


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


def _drop_blobs(connection: sqlite3.Connection, blobs: Sequence[str]) -> None:
    """Remove stored bytes that no event names any more."""
    connection.execute(f"CREATE INDEX IF NOT EXISTS event_naming ON event ({_NAMED}) WHERE {_NAMES_ONE}")
    connection.execute(f"CREATE INDEX IF NOT EXISTS event_naming_more ON event (type) WHERE {_NAMES_MORE}")
    connection.executemany(
        f"DELETE FROM blob WHERE sha256 = ?1 AND NOT EXISTS (SELECT 1 FROM event WHERE {_NAMED} = ?1 AND {_NAMES_ONE}) "  # noqa: S608 - made of constants
        f"AND NOT EXISTS (SELECT 1 FROM event WHERE {_NAMES_MORE} AND instr(body, ?1) > 0)",
        [(digest,) for digest in blobs],
    )


def _fenced(connection: sqlite3.Connection, job: Append, epoch: int) -> SessionConflict | UnknownSession:
    row = connection.execute("SELECT head, epoch FROM session WHERE id = ?", (job.session_id,)).fetchone()
    if row is None:
        return unknown(job.session_id)
    head, stored_epoch = row
    if stored_epoch != epoch:
        return taken_over(job.session_id)
    return conflict(job.session_id, head, job.rows[0][0])


def put(connection: sqlite3.Connection, session_id: str, message: MessageRow) -> bool:
    """Leave a message; the first of two with one id wins.

    Raises:
        UnknownSession: There is no such session.
    """
    if connection.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is None:
        raise unknown(session_id)
    put = connection.execute(
        "INSERT INTO inbox (session_id, msg_id, kind, body, sum) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (session_id, msg_id) DO NOTHING",
        (session_id, *message),
    )
    return put.rowcount == 1


def consume(connection: sqlite3.Connection, session_id: str, message_ids: Sequence[str], seq: int) -> None:
    """Mark messages as consumed. The first event that consumed one stays on record."""
    epoch_of(connection, session_id)
    connection.executemany(
        "UPDATE inbox SET consumed_seq = ? WHERE session_id = ? AND msg_id = ? AND consumed_seq IS NULL",
        [(seq, session_id, message_id) for message_id in message_ids],
    )


def put_blob(connection: sqlite3.Connection, digest: str, content: bytes) -> None:
    """Store bytes under their digest, in slices: bound as one value, they are copied while all threads wait."""
    added = connection.execute(
        "INSERT INTO blob (sha256, bytes) VALUES (?, zeroblob(?)) ON CONFLICT (sha256) DO NOTHING",
        (digest, len(content)),
    )
    if added.rowcount != 1 or not content:
        return
    assert added.lastrowid is not None
    with connection.blobopen("blob", "bytes", added.lastrowid) as blob:
        for start in range(0, len(content), _SLICE_BYTES):
            blob.write(content[start : start + _SLICE_BYTES])


def select_head(connection: sqlite3.Connection, session_id: str) -> int:
    """Return the number of the last event; 0 for an unknown session."""
    row = connection.execute("SELECT head FROM session WHERE id = ?", (session_id,)).fetchone()
    return 0 if row is None else int(row[0])


def select_row(connection: sqlite3.Connection, session_id: str) -> SessionRow:
    """Return what is kept beside a session's events; nothing for an unknown session."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    status = "status" if version >= _STATUS_SINCE else "NULL"
    row = connection.execute(
        f"SELECT head, task, {status}, updated_at FROM session WHERE id = ?",  # noqa: S608 - ours
        (session_id,),
    ).fetchone()
    return SessionRow() if row is None else SessionRow(*row)


def select_events(connection: sqlite3.Connection, session_id: str, after: int) -> list[SumRow]:
    """Return a session's events after a number, with their checksums."""
    return connection.execute(
        f"SELECT seq, body, {_sum_column(connection)} FROM event WHERE session_id = ? AND seq > ? ORDER BY seq",  # noqa: S608 - ours
        (session_id, after),
    ).fetchall()


def select_sum(connection: sqlite3.Connection, session_id: str, seq: int) -> bytes | None:
    """Return the checksum of an event; None where it has none, or does not exist."""
    row = connection.execute(
        f"SELECT {_sum_column(connection)} FROM event WHERE session_id = ? AND seq = ?",  # noqa: S608 - ours
        (session_id, seq),
    ).fetchone()
    return None if row is None else row[0]


def name_of(connection: sqlite3.Connection) -> str:
    """Return the journal's own name, by which it is distinguished from another file in its place."""
    row = connection.execute("SELECT name FROM journal").fetchone()
    return "" if row is None else str(row[0])


def _sum_column(connection: sqlite3.Connection) -> str:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return "sum" if version >= _SUMS_SINCE else "NULL"  # a reader changes no file, so it may be an old one


def select_sessions(connection: sqlite3.Connection, where: SessionFilter) -> tuple[SessionInfo, ...]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    status = "status" if version >= _STATUS_SINCE else "'active'"  # a reader changes no file, so it may be an old one
    if where.text:  # SQLite's own function knows the letters of English alone
        connection.create_function("lowered", 1, str.lower, deterministic=True)
    filtered, values = conditions(where, ":{}".format, "instr(lowered(id || ' ' || task), {text}) > 0", status=status)
    rows = connection.execute(f"SELECT {INFO_COLUMNS}, {status} FROM session {filtered}", values)  # noqa: S608 - ours
    return tuple(map(info_of, rows))


def select_with_unknown_outcomes(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the sessions in which a call has a result that says `outcome_unknown`, and perhaps some whose text does."""
    rows = connection.execute(
        "SELECT DISTINCT session_id FROM event WHERE type = 'tool.finished' AND instr(body, 'outcome_unknown') > 0"
    )
    return frozenset(session_id for (session_id,) in rows)


def select_with_messages(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the paused sessions in whose inbox a message waits that their run would take in."""
    rows = connection.execute(WITH_MESSAGES)
    return frozenset(session_id for (session_id,) in rows)


def select_due(connection: sqlite3.Connection, before: float | None) -> list[DueRow] | None:
    """Return the index of what waits; None for a file of an older schema, which has none."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < _DUE_SINCE:
        return None
    rows = connection.execute(
        "SELECT due.session_id, due.key, due.kind, due.at, due.call_id FROM due JOIN session ON session.id = due.session_id "
        "WHERE session.state IN ('paused', 'queued', 'running') "
        "AND (:before IS NULL OR due.at <= :before OR due.kind = 'unknown' OR due.key = 'now') "
        "ORDER BY session.updated_at DESC, session.seat DESC, due.key",
        {"before": before},
    )
    return [DueRow(*row) for row in rows]


def select_inbox(connection: sqlite3.Connection, session_id: str) -> list[MessageRow]:
    return connection.execute(
        f"SELECT msg_id, kind, body, {_sum_column(connection)} FROM inbox "  # noqa: S608 - ours
        "WHERE session_id = ? AND consumed_seq IS NULL ORDER BY arrival",
        (session_id,),
    ).fetchall()


def has_messages(connection: sqlite3.Connection, session_id: str) -> bool:
    """Whether anything waits in the session's inbox."""
    found = connection.execute(
        "SELECT 1 FROM inbox WHERE session_id = ? AND consumed_seq IS NULL LIMIT 1", (session_id,)
    )
    return found.fetchone() is not None


def select_arrivals(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of the last message that waits in each session's inbox, where any does."""
    rows = connection.execute(
        "SELECT session_id, max(arrival) FROM inbox WHERE consumed_seq IS NULL GROUP BY session_id"
    )
    return dict(rows.fetchall())


def select_blob(connection: sqlite3.Connection, digest: str) -> bytes | None:
    """Return stored bytes, read in slices as they were written; None where there are none."""
    row = connection.execute("SELECT rowid FROM blob WHERE sha256 = ?", (digest,)).fetchone()
    if row is None:
        return None
    with connection.blobopen("blob", "bytes", row[0], readonly=True) as blob:
        return b"".join([blob.read(_SLICE_BYTES) for _ in range(0, len(blob), _SLICE_BYTES)])
