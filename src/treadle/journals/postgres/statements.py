"""What is done to the tables in PostgreSQL, one function an act. Opens no connection and no transaction.

A function that writes sends its statements and returns what gives their outcome once the server has answered, so that the
statements of many sessions travel together. Each is right by itself: what must hold is asked in the statement that writes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from psycopg import Cursor

from treadle.errors import SessionConflict, UnknownSession
from treadle.journals.backend import (
    Append,
    DueChanges,
    DueRow,
    EventRow,
    MessageRow,
    conflict,
    due_changes,
    event_of,
    merged,
    taken_over,
    unknown,
)
from treadle.journals.postgres.link import NAMED, NAMES_MORE, NAMES_ONE, Connection

__all__ = [
    "Claim",
    "Sent",
    "Standing",
    "adopt",
    "append",
    "claim",
    "consume",
    "create",
    "fencing",
    "give_back",
    "is_stored",
    "longer",
    "place_of",
    "purge",
    "put",
    "put_blob",
    "reindex",
    "renew",
]

_T = TypeVar("_T")

Sent: TypeAlias = Callable[[], _T]
"""Gives the outcome of statements that were sent."""

_NOW = "extract(epoch FROM clock_timestamp())::double precision"
_UNTIL = "clock_timestamp() + make_interval(secs => %(lease)s)"

# `moved` is empty, and so is everything, where the head, the epoch or the lease no longer holds.
_APPEND = f"""
WITH moved AS (
    UPDATE session SET
        state = %(state)s, version = version + 1, head = coalesce(%(head)s, head),
        updated_at = coalesce(%(at)s, updated_at), task = CASE task WHEN '' THEN %(task)s ELSE task END,
        status = coalesce(%(status)s, status), tenant = coalesce(%(tenant)s, tenant),
        lease_until = CASE WHEN %(holds)s THEN {_UNTIL} ELSE lease_until END
    WHERE id = %(id)s AND epoch = coalesce(%(epoch)s, epoch) AND head = coalesce(%(before)s, head)
        AND (NOT %(holds)s OR lease_until > clock_timestamp())
    RETURNING id, epoch
), added AS (
    INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum)
    SELECT moved.id, moved.epoch, item.*
    FROM moved, unnest(%(seqs)s::bigint[], %(ats)s::double precision[], %(types)s::text[], %(versions)s::integer[],
        %(bodies)s::text[], %(sums)s::bytea[]) AS item
)
SELECT epoch FROM moved
"""  # noqa: S608 - made of constants

# One statement sees its rows as they were before it: a key that is put anew is changed, and not dropped as well.
_DUE = """), dropped AS (
    DELETE FROM due USING moved WHERE due.session_id = moved.id
        AND (%(drops_all)s OR due.key = ANY(%(drops)s)) AND due.key <> ALL(%(keys)s)
), put AS (
    INSERT INTO due (session_id, key, kind, at, call_id)
    SELECT moved.id, item.*
    FROM moved, unnest(%(keys)s::text[], %(due_kinds)s::text[], %(dues)s::double precision[], %(call_ids)s::text[]) AS item
    ON CONFLICT (session_id, key) DO UPDATE SET kind = excluded.kind, at = excluded.at, call_id = excluded.call_id
)
SELECT epoch FROM moved
"""

_APPEND_DUE = _APPEND.replace(")\nSELECT epoch FROM moved\n", _DUE)

_ADOPT = f"""
WITH made AS (
    INSERT INTO session (id, parent_id, parent_seq, state, status, tenant, head, task, version, created_at, updated_at)
    VALUES (%(id)s, %(parent_id)s, %(parent_seq)s, %(state)s, coalesce(%(status)s, 'active'), coalesce(%(tenant)s, ''),
        coalesce(%(head)s, 0), %(task)s, 1, {_NOW}, coalesce(%(at)s, {_NOW}))
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), added AS (
    INSERT INTO event (session_id, epoch, seq, at, type, version, body, sum)
    SELECT made.id, 0, item.*
    FROM made, unnest(%(seqs)s::bigint[], %(ats)s::double precision[], %(types)s::text[], %(versions)s::integer[],
        %(bodies)s::text[], %(sums)s::bytea[]) AS item
), left_there AS (
    INSERT INTO inbox (session_id, msg_id, kind, body, sum)
    SELECT made.id, message.*
    FROM made, unnest(%(msg_ids)s::text[], %(kinds)s::text[], %(messages)s::text[], %(message_sums)s::bytea[]) AS message
    ON CONFLICT (session_id, msg_id) DO NOTHING
), put AS (
    INSERT INTO due (session_id, key, kind, at, call_id)
    SELECT made.id, item.*
    FROM made, unnest(%(keys)s::text[], %(due_kinds)s::text[], %(dues)s::double precision[], %(call_ids)s::text[]) AS item
)
SELECT id FROM made
"""  # noqa: S608 - made of constants

# A row that is locked is being appended to, and each append of a holder renews its lease by itself: nobody waits here.
_RENEW = f"""
WITH mine AS (
    SELECT session.id
    FROM session JOIN unnest(%(ids)s::text[], %(epochs)s::bigint[]) AS held(id, epoch) USING (id, epoch)
    WHERE lease_until > clock_timestamp()
    FOR NO KEY UPDATE OF session SKIP LOCKED
)
UPDATE session SET lease_until = {_UNTIL} FROM mine WHERE session.id = mine.id
"""  # noqa: S608 - made of constants

_STANDING = """
SELECT held.id, coalesce(session.epoch = held.epoch, false),
    coalesce(extract(epoch FROM lease_until - clock_timestamp())::float8, 0)
FROM unnest(%(ids)s::text[], %(epochs)s::bigint[]) AS held(id, epoch)
LEFT JOIN session ON session.id = held.id
"""

# One process waits for the end of a lease that may be a dead one's; all others are told at once.
_INHERIT = """
UPDATE session SET heir = %(owner)s, heir_until = clock_timestamp() + make_interval(secs => %(wait)s)
WHERE id = %(id)s AND owner <> %(owner)s AND lease_until > clock_timestamp()
    AND (heir IS NULL OR heir = %(owner)s OR heir_until <= clock_timestamp())
"""

# A statement of its own: it sees what was committed while the one before it waited for the row.
_HOLDER = """
SELECT owner, lease_until::text, coalesce(heir = %(owner)s, false), owner IS NULL OR lease_until <= clock_timestamp()
FROM session WHERE id = %(id)s
"""


# Counted, not asked whether there are any: the server then looks each digest up, and never reads all events to compare them.
_DROP_BLOBS = f"""
DELETE FROM blob WHERE sha256 = ANY(%s) AND EXISTS (SELECT FROM session WHERE id = %s)
    AND (SELECT count(*) FROM event WHERE {NAMED} = blob.sha256 AND {NAMES_ONE}) = 0
    AND (SELECT count(*) FROM event WHERE {NAMES_MORE} AND strpos(body, blob.sha256) > 0) = 0
"""  # noqa: S608 - made of constants


class Claim(NamedTuple):
    """What came of the attempt to take a session."""

    epoch: int | None
    """The session's new number; None when somebody else holds it."""
    owner: str = ""
    until: str = ""
    """The end of the other one's lease, to be compared with itself a moment later."""
    is_heir: bool = False
    """Whether we are the one that waits for that end."""
    is_free: bool = False
    """The other one's lease ended, or was given back, after we had been refused: the next attempt may succeed."""
    head: int = 0
    """Number of the session's last event."""
    sum: bytes | None = None
    """Checksum of that event, where it has one."""


def create(connection: Connection, session_id: str) -> Sent[tuple[bool, int]]:
    """Make a session if there is none; return whether it was made, and its number."""
    made = connection.execute(
        f"INSERT INTO session (id, created_at, updated_at) VALUES (%s, {_NOW}, {_NOW}) ON CONFLICT (id) DO NOTHING",  # noqa: S608 - made of constants
        (session_id,),
    )
    found = connection.execute("SELECT epoch FROM session WHERE id = %s", (session_id,))

    return lambda: (made.rowcount == 1, int(_row(found)[0]))


def claim(connection: Connection, session_id: str, owner: str, lease_seconds: float, wait: float) -> Sent[Claim]:
    """Take a session that nobody holds, or whose lease has ended by the server's clock.

    Args:
        wait: Seconds for which we are its heir, where somebody holds it.

    Raises:
        UnknownSession: There is no such session.
    """
    parameters = {"id": session_id, "owner": owner, "lease": lease_seconds, "wait": wait}
    claimed = connection.execute(
        f"UPDATE session SET epoch = epoch + 1, owner = %(owner)s, lease_until = {_UNTIL}, heir = NULL "  # noqa: S608 - made of constants
        "WHERE id = %(id)s AND (owner IS NULL OR owner = %(owner)s OR lease_until <= clock_timestamp()) "
        "RETURNING epoch, head, (SELECT sum FROM event WHERE session_id = session.id AND seq = session.head)",
        parameters,
        binary=True,
    )
    connection.execute(_INHERIT, parameters)
    found = connection.execute(_HOLDER, parameters)

    def outcome() -> Claim:
        if (row := claimed.fetchone()) is not None:
            epoch, head, stored = row
            return Claim(int(epoch), head=int(head), sum=None if stored is None else bytes(stored))
        if (row := found.fetchone()) is None:
            raise unknown(session_id)
        holder, until, is_heir, is_free = row
        return Claim(None, holder or "", until or "", is_heir=is_heir, is_free=is_free)

    return outcome


def give_back(connection: Connection, session_id: str, epoch: int) -> Sent[None]:
    """Note that nobody holds the session, unless others have taken it since."""
    connection.execute(
        "UPDATE session SET owner = NULL, lease_until = NULL WHERE id = %s AND epoch = %s", (session_id, epoch)
    )
    return lambda: None


def append(
    connection: Connection, job: Append, epoch: int | None, *, before: bytes | None, lease_seconds: float | None
) -> Sent[int | None]:
    """Move the head and add the events, where head, epoch and lease still hold; return the epoch, None for nothing written.

    Args:
        before: The checksum of the event that these follow; None where it has none.
        epoch: None for whichever the session has.
        lease_seconds: The lease of the session's holder, which continues with this; None for a writer without one.
    """
    sent = connection.execute(
        _APPEND if job.due is None else _APPEND_DUE,
        {**_parameters(job, before), "epoch": epoch, "holds": lease_seconds is not None, "lease": lease_seconds or 0.0},
    )

    def outcome() -> int | None:
        row = sent.fetchone()
        return None if row is None else int(row[0])

    return outcome


def adopt(
    connection: Connection, job: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]
) -> Sent[bool]:
    """Make a session that has all of this; return whether it was made. Nothing is written when there is one by its id."""
    parent_id, parent_seq = parent or (None, None)
    messages = {
        "msg_ids": [row[0] for row in inbox],
        "kinds": [row[1] for row in inbox],
        "messages": [row[2] for row in inbox],
        "message_sums": [row[3] for row in inbox],
    }
    sent = connection.execute(
        _ADOPT, {**_parameters(job, None), **messages, "parent_id": parent_id, "parent_seq": parent_seq}
    )
    return lambda: sent.fetchone() is not None


def purge(connection: Connection, job: Append, blobs: Sequence[str]) -> Sent[None]:
    """Remove all of a session but what follows now, numbered from 1.

    Raises:
        UnknownSession: There is no such session. Nothing was written.
    """
    session_id = job.session_id
    emptied = connection.execute(
        "UPDATE session SET state = 'deleted', head = 0, task = '' WHERE id = %s", (session_id,)
    )
    connection.execute("DELETE FROM event WHERE session_id = %s", (session_id,))
    connection.execute("DELETE FROM inbox WHERE session_id = %s", (session_id,))
    connection.execute("DELETE FROM due WHERE session_id = %s", (session_id,))
    append(connection, job, None, before=None, lease_seconds=None)
    if blobs:
        connection.execute(_DROP_BLOBS, (list(blobs), session_id))
    return lambda: _check_found(emptied.rowcount == 1, session_id)


def put(connection: Connection, session_id: str, message: MessageRow) -> Sent[tuple[bool, bool]]:
    """Leave a message; return whether it was new, and whether one that is equal is there now.

    Raises:
        UnknownSession: There is no such session.
    """
    message_id, kind, body, _ = message
    added = connection.execute(
        "INSERT INTO inbox (session_id, msg_id, kind, body, sum) SELECT id, %s, %s, %s, %s FROM session WHERE id = %s "
        "ON CONFLICT (session_id, msg_id) DO NOTHING",
        (*message, session_id),
    )
    found = connection.execute(
        "SELECT kind, body FROM inbox WHERE session_id = %s AND msg_id = %s", (session_id, message_id)
    )

    def outcome() -> tuple[bool, bool]:
        row = found.fetchone()
        _check_found(row is not None, session_id)
        return added.rowcount == 1, row == (kind, body)

    return outcome


def consume(connection: Connection, session_id: str, message_ids: Sequence[str], seq: int) -> Sent[None]:
    """Mark messages as consumed. The first event that consumed one stays on record.

    Raises:
        UnknownSession: There is no such session.
    """
    connection.execute(
        "UPDATE inbox SET consumed_seq = %s WHERE session_id = %s AND msg_id = ANY(%s) AND consumed_seq IS NULL",
        (seq, session_id, list(message_ids)),
    )
    found = connection.execute("SELECT FROM session WHERE id = %s", (session_id,))
    return lambda: _check_found(found.fetchone() is not None, session_id)


def reindex(connection: Connection, session_id: str, head: int, rows: Sequence[DueRow]) -> Sent[None]:
    """Put these rows in place of all of a session's in the index, where its head is still this one."""
    place = {"id": session_id, "head": head}
    is_there = "EXISTS (SELECT FROM session WHERE id = %(id)s AND head = %(head)s FOR UPDATE)"
    connection.execute(f"DELETE FROM due WHERE session_id = %(id)s AND {is_there}", place)  # noqa: S608 - made of constants
    connection.execute(
        "INSERT INTO due (session_id, key, kind, at, call_id) SELECT %(id)s, item.* FROM unnest(%(keys)s::text[], "  # noqa: S608 - made of constants
        "%(due_kinds)s::text[], %(dues)s::double precision[], %(call_ids)s::text[]) AS item "
        f"WHERE {is_there} ON CONFLICT (session_id, key) DO NOTHING",
        {**place, **_due_parameters(DueChanges(puts=tuple(rows)))},
    )
    return lambda: None


def put_blob(connection: Connection, digest: str, content: bytes) -> Sent[None]:
    connection.execute(
        "INSERT INTO blob (sha256, bytes) VALUES (%s, %b) ON CONFLICT (sha256) DO NOTHING", (digest, content)
    )
    return lambda: None


class Standing(NamedTuple):
    """What a lease is after its renewal."""

    is_ours: bool
    """Whether nobody has taken the session over."""
    seconds: float
    """How long it holds from now on, by the server's clock; 0 or less where it has ended."""


def renew(connection: Connection, held: Mapping[str, int], lease_seconds: float) -> dict[str, Standing]:
    """Prolong the leases on sessions with these numbers; return what each is now. One whose row is locked is not prolonged."""
    parameters = {"ids": list(held), "epochs": list(held.values()), "lease": lease_seconds}
    connection.execute(_RENEW, parameters)
    found = connection.execute(_STANDING, parameters)
    return {session_id: Standing(bool(is_ours), float(seconds)) for session_id, is_ours, seconds in found}


# --- why nothing was written -----------------------------------------------------------------------------------------


def fencing(connection: Connection, job: Append, epoch: int | None) -> SessionConflict | UnknownSession:
    """Return why an append wrote nothing."""
    row = connection.execute("SELECT head, epoch FROM session WHERE id = %s", (job.session_id,)).fetchone()
    if row is None:
        return unknown(job.session_id)
    head, stored_epoch = row
    if epoch is not None and stored_epoch != epoch:
        return taken_over(job.session_id)
    if job.rows and head != job.rows[0][0] - 1:
        return conflict(job.session_id, head, job.rows[0][0])
    return SessionConflict(
        f"The lease on session {job.session_id!r} has expired: its holder sent no heartbeat in time. Nothing was "
        "written; resume the session."
    )


def place_of(connection: Connection, session_id: str) -> tuple[int, int]:
    """Return the session's head and epoch; zeros for an unknown session."""
    row = connection.execute("SELECT head, epoch FROM session WHERE id = %s", (session_id,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def is_stored(connection: Connection, job: Append, epoch: int | None) -> bool:
    """Whether the events of an append are there, each as it is and from this epoch."""
    parameters = _parameters(job, None)
    row = connection.execute(
        "SELECT count(*) FROM event JOIN unnest(%(seqs)s::bigint[], %(bodies)s::text[]) AS item(seq, body) USING (seq, body) "
        "WHERE session_id = %(id)s AND epoch = coalesce(%(epoch)s, epoch)",
        {**parameters, "epoch": epoch},
    ).fetchone()
    return bool(job.rows) and row == (len(job.rows),)


# --- helpers ---------------------------------------------------------------------------------------------------------


def longer(job: Append, rows: Sequence[EventRow]) -> Append:
    """Return an append with further events before its own."""
    lost = due_changes(job.session_id, [event_of(job.session_id, row[0], row[4]) for row in rows])
    return msgspec.structs.replace(job, rows=[*rows, *job.rows], due=merged((lost, job.due)))


def _parameters(job: Append, before: bytes | None) -> dict[str, Any]:  # Any: what a statement takes
    return {
        "id": job.session_id,
        "state": job.state,
        "task": job.task,
        "status": job.status,
        "tenant": job.tenant,
        "head": job.rows[-1][0] if job.rows else None,
        "at": job.rows[-1][1] if job.rows else None,
        "before": job.before,
        "seqs": [row[0] for row in job.rows],
        "ats": [row[1] for row in job.rows],
        "types": [row[2] for row in job.rows],
        "versions": [row[3] for row in job.rows],
        "bodies": [row[4] for row in job.rows],
        "sums": [row[2] for row in job.chained(before)],
        **_due_parameters(job.due or DueChanges()),
    }


def _due_parameters(changes: DueChanges) -> dict[str, Any]:  # Any: what a statement takes
    return {
        "drops_all": changes.drops_all,
        "drops": list(changes.drops),
        "keys": [row.key for row in changes.puts],
        "due_kinds": [row.kind for row in changes.puts],
        "dues": [row.at for row in changes.puts],
        "call_ids": [row.call_id for row in changes.puts],
    }


def _row(cursor: Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row


def _check_found(is_found: bool, session_id: str) -> None:
    if not is_found:
        raise unknown(session_id)
