"""What is asked of the tables in PostgreSQL, one function a question. Changes nothing and opens no connection."""

from collections.abc import Collection, Sequence
from typing import Any

from psycopg import Cursor

from treadle.journals.backend import INFO_COLUMNS, DueRow, MessageRow, SessionRow, SumRow, info_of
from treadle.journals.postgres.link import Connection
from treadle.journals.store import WITH_MESSAGES, conditions
from treadle.ports import SessionFilter, SessionInfo

__all__ = [
    "select_arrivals",
    "select_blob",
    "select_due",
    "select_events",
    "select_held",
    "select_inbox",
    "select_now",
    "select_row",
    "select_sessions",
    "select_sum",
    "select_with_messages",
    "select_with_unknown_outcomes",
]


def select_now(connection: Connection) -> float:
    """Return the server's time in seconds since 1970."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


def select_row(connection: Connection, session_id: str) -> SessionRow:
    """Return what is kept beside a session's events; nothing for an unknown session."""
    row = connection.execute(
        "SELECT head, task, status, updated_at FROM session WHERE id = %s", (session_id,)
    ).fetchone()
    return SessionRow() if row is None else SessionRow(*row)


def select_events(connection: Connection, session_id: str, after: int) -> list[SumRow]:
    """Return a session's events after a number, with their checksums."""
    found: Cursor[Any] = connection.execute(
        "SELECT seq, body, sum FROM event WHERE session_id = %s AND seq > %s ORDER BY seq",
        (session_id, after),
        binary=True,
    )
    return found.fetchall()


def select_sum(connection: Connection, session_id: str, seq: int) -> bytes | None:
    """Return the checksum of an event; None where it has none, or does not exist."""
    row = connection.execute(
        "SELECT sum FROM event WHERE session_id = %s AND seq = %s", (session_id, seq), binary=True
    ).fetchone()
    return None if row is None or row[0] is None else bytes(row[0])


def select_sessions(connection: Connection, where: SessionFilter) -> tuple[SessionInfo, ...]:
    filtered, values = conditions(where, "%({})s".format, "strpos(lower(id || ' ' || task), {text}) > 0")
    rows = connection.execute(f"SELECT {INFO_COLUMNS}, status FROM session {filtered}", values)  # noqa: S608 - ours
    return tuple(map(info_of, rows))


def select_held(connection: Connection, session_ids: Collection[str]) -> frozenset[str]:
    """Return those of these sessions whose holder's lease has not ended yet, by the server's clock."""
    rows = connection.execute(
        "SELECT id FROM session WHERE id = ANY(%s) AND owner IS NOT NULL AND lease_until > clock_timestamp()",
        (list(session_ids),),
    )
    return frozenset(session_id for (session_id,) in rows)


def select_with_unknown_outcomes(connection: Connection) -> frozenset[str]:
    """Return the sessions in which a call has a result that says `outcome_unknown`, and perhaps some whose text does."""
    rows = connection.execute(
        "SELECT DISTINCT session_id FROM event WHERE type = 'tool.finished' AND strpos(body, 'outcome_unknown') > 0"
    )
    return frozenset(session_id for (session_id,) in rows)


def select_with_messages(connection: Connection) -> frozenset[str]:
    """Return the paused sessions in whose inbox a message waits that their run would take in."""
    rows = connection.execute(WITH_MESSAGES)
    return frozenset(session_id for (session_id,) in rows)


def select_due(connection: Connection, before: float | None) -> list[DueRow] | None:
    """Return the index of what waits; of what is due until an instant."""
    rows = connection.execute(
        "SELECT due.session_id, due.key, due.kind, due.at, due.call_id FROM due JOIN session ON session.id = due.session_id "
        "WHERE session.state IN ('paused', 'queued', 'running') "
        "AND (%(before)s::float8 IS NULL OR due.at <= %(before)s OR due.kind = 'unknown' OR due.key = 'now') "
        "ORDER BY session.updated_at DESC, session.seat DESC, due.key",
        {"before": before},
    )
    return [DueRow(*row) for row in rows]


def select_inbox(connection: Connection, session_id: str) -> list[MessageRow]:
    found: Cursor[Any] = connection.execute(
        "SELECT msg_id, kind, body, sum FROM inbox WHERE session_id = %s AND consumed_seq IS NULL ORDER BY arrival",
        (session_id,),
    )
    return found.fetchall()


def select_arrivals(connection: Connection, session_ids: Sequence[str]) -> dict[str, int]:
    """Return the number of the last message that waits in each of these inboxes, where any does."""
    rows = connection.execute(
        "SELECT session_id, max(arrival) FROM inbox WHERE consumed_seq IS NULL AND session_id = ANY(%s) GROUP BY session_id",
        (list(session_ids),),
    )
    return dict(rows.fetchall())


def select_blob(connection: Connection, digest: str) -> bytes | None:
    row = connection.execute("SELECT bytes FROM blob WHERE sha256 = %s", (digest,), binary=True).fetchone()
    return None if row is None else bytes(row[0])
