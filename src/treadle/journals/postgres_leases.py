"""Leases on the sessions of a PostgreSQL journal: one writer at a time, known to live while its row says so.

A lease is the session's epoch, its owner, and an end by the server's clock that a heartbeat moves on. Whoever takes over
raises the epoch in the statement that finds the lease ended: there the server's clock decides. Its holder counts the time
since the last renewal by its own monotonic clock, on its event loop: it stops before others may start, whatever happens to
the connection.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import psycopg

from treadle.errors import JournalError, SessionConflict
from treadle.journals.backend import unknown
from treadle.journals.postgres_link import Connection, Link, Sent, describe
from treadle.journals.store import BEATS_A_LEASE, Holder, HolderLink, held, look_seconds
from treadle.redaction import redacted_logger

__all__ = ["UNTIL", "Claim", "Heartbeat", "LeaseActs", "ServerLease", "ServerLeases", "claim", "give_back"]

logger = redacted_logger(__name__)

# --- What is asked of the server. Sends, and returns what gives the outcome once the server has answered.

UNTIL = "clock_timestamp() + make_interval(secs => %(lease)s)"
"""The end of a lease that is taken or renewed now."""

# A row that is locked is being appended to, and each append of a holder renews its lease by itself: nobody waits here.
_RENEW = f"""
WITH mine AS (
    SELECT session.id
    FROM session JOIN unnest(%(ids)s::text[], %(epochs)s::bigint[]) AS held(id, epoch) USING (id, epoch)
    WHERE lease_until > clock_timestamp()
    FOR NO KEY UPDATE OF session SKIP LOCKED
)
UPDATE session SET lease_until = {UNTIL} FROM mine WHERE session.id = mine.id
"""  # noqa: S608 - made of constants

# Of each lease: whether nobody has taken the session over, and for how many seconds it holds by the server's clock.
_LEASES = """
SELECT held.id, coalesce(session.epoch = held.epoch, false),
    coalesce(extract(epoch FROM lease_until - clock_timestamp())::float8, 0)
FROM unnest(%(ids)s::text[], %(epochs)s::bigint[]) AS held(id, epoch)
LEFT JOIN session ON session.id = held.id
"""

_ARRIVALS = (
    "SELECT session_id, max(arrival) FROM inbox WHERE consumed_seq IS NULL AND session_id = ANY(%s) GROUP BY session_id"
)

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


def claim(connection: Connection, session_id: str, owner: str, lease_seconds: float, wait: float) -> Sent[Claim]:
    """Take a session that nobody holds, or whose lease has ended by the server's clock.

    Args:
        wait: Seconds for which we are its heir, where somebody holds it.

    Raises:
        UnknownSession: There is no such session.
    """
    parameters = {"id": session_id, "owner": owner, "lease": lease_seconds, "wait": wait}
    claimed = connection.execute(
        f"UPDATE session SET epoch = epoch + 1, owner = %(owner)s, lease_until = {UNTIL}, heir = NULL "  # noqa: S608 - made of constants
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


# --- The holder's side.

_SLACK_SECONDS = 2.0
"""How much longer than a short lease is waited: a loaded machine may look late."""
_BEATS_OF_THE_LIVING = 3
"""A renewal or two that were under way when their process died may arrive after it."""


class LeaseActs(NamedTuple):
    """What leases need of the writer."""

    claim: Callable[[str, str], Awaitable[Claim]]
    """Take a session for an owner, where nobody's lease on it holds."""
    give_back: Callable[[str, int], Awaitable[None]]
    """Note that nobody holds this number any more. Never raises for the store's faults."""
    abandon: Callable[[str, int], None]
    """The same without waiting: the holder's event loop is closed."""


class ServerLease(HolderLink):
    """The right to write one session, until it is released or lost."""

    def __init__(
        self,
        session_id: str,
        epoch: int,
        *,
        heard_at: float,
        lease_seconds: float,
        on_lost: Callable[[], None],
        on_message: Callable[[], None],
        let_go: Callable[["ServerLease"], Awaitable[None]],
    ) -> None:
        super().__init__(on_message)
        self.session_id = session_id
        self.epoch = epoch
        self.heard_at = heard_at
        """When the last renewal that succeeded was asked for, on this process's monotonic clock."""
        self.loss = ""
        """Why the lease was lost; empty while it holds."""
        self._holds_seconds = lease_seconds * (
            1 - 1 / BEATS_A_LEASE
        )  # it ends here a little earlier than at the server
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._let_go = let_go
        self._pid = os.getpid()
        self._is_over = False
        self._timer = self._loop.call_later(self._seconds_left(), self._look_at_clock)

    def _seconds_left(self) -> float:
        return self.heard_at + self._holds_seconds - time.monotonic()

    def _look_at_clock(self) -> None:
        """On the event loop, whatever the connection does: a lease that was not renewed in time is lost."""
        if self._is_over or self.loss:
            return
        if (left := self._seconds_left()) > 0:
            self._timer = self._loop.call_later(left, self._look_at_clock)
        else:
            self._lose(self._unrenewed())

    def _unrenewed(self) -> str:
        return f"The lease on the session was not renewed for {self._lease_seconds:g} s, because its journal did not answer."

    def lose(self, *, has_ended: bool) -> None:
        """Tell the holder, once, that the lease is lost. For the thread of the heartbeat.

        Args:
            has_ended: It was not renewed in time; else another process has taken the session over.
        """
        because = self._unrenewed() if has_ended else "Another process has taken the session over."
        self._call(lambda: self._lose(because))

    def _lose(self, because: str) -> None:
        if not self._is_over and not self.loss:
            self.loss = because
            self._timer.cancel()
            logger.warning("The run of session %s is stopped. %s", self.session_id, because)
            self._on_lost()

    @property
    def head(self) -> None:
        """Not asked for: what others have recorded is read in any case."""

    @property
    def has_messages(self) -> None:
        """Not asked for: the inbox is read in any case."""

    async def release(self) -> None:
        """Give the session back. May be called twice."""
        if self._pid != os.getpid():  # it belongs to the process that this one was forked from
            return
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            await self._let_go(self)


class ServerLeases:
    """Takes and keeps the leases of one journal."""

    def __init__(self, acts: LeaseActs, heartbeat: "Heartbeat", lease_seconds: float, location: str) -> None:
        self._acts = acts
        self._location = location
        self._lease_seconds = lease_seconds
        self._heartbeat = heartbeat
        self._kept: set[ServerLease] = set()

    def stop(self) -> None:
        """Let the leases of this journal end by themselves. Returns at once."""
        for lease in tuple(self._kept):
            self._heartbeat.leave(lease)

    def check(self, session_id: str) -> None:
        """Refuse what is written under a lease that is lost here, although the server may not have noticed yet.

        Raises:
            SessionConflict: The session's lease is lost. What was asked for before that may still be stored.
        """
        for lease in self._kept:
            if lease.loss and lease.session_id == session_id:
                raise SessionConflict(f"{lease.loss} Nothing was written; resume session {session_id!r}.")

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> ServerLease:
        """Take a session that nobody holds, or whose holder is dead. Raises SessionHeld: its holder lives."""
        heard_at, epoch = await self._claim(session_id, Holder.here())
        lease = ServerLease(
            session_id,
            epoch,
            heard_at=heard_at,
            lease_seconds=self._lease_seconds,
            on_lost=on_lost,
            on_message=on_message,
            let_go=self._let_go,
        )
        self._kept.add(lease)
        self._heartbeat.keep(lease, self._acts.abandon)
        return lease

    async def _claim(self, session_id: str, owner: Holder) -> tuple[float, int]:
        """Claim until we have it, or its holder has moved on the end of the lease several times: then it lives.

        Of many that wait for the end of one lease, one is the heir. The others are told at once.
        """
        owner_json = msgspec.json.encode(owner).decode()
        seen: Claim | None = None
        beats = 0
        # A little longer than a lease: its end is the server's, and one that was moved on ends a moment later.
        patience = max(self._lease_seconds * 1.25, self._lease_seconds + _SLACK_SECONDS)
        until = time.monotonic() + patience
        while True:
            heard_at = time.monotonic()
            claim = await self._acts.claim(session_id, owner_json)
            if claim.epoch is not None:
                return heard_at, claim.epoch
            if claim.is_free:
                continue
            if seen is not None and claim.until != seen.until:
                beats += 1
                until = heard_at + patience
            is_other = seen is not None and claim.owner != seen.owner
            lives = is_other or beats >= _BEATS_OF_THE_LIVING or self._heartbeat.keeps(session_id)
            # A lease may be longer than ours: we do not wait for its end for ever.
            if lives or not claim.is_heir or heard_at >= until:
                raise held(session_id, _holder_of(claim), journal=self._location)
            seen = claim
            await asyncio.sleep(look_seconds(self._lease_seconds))

    async def _let_go(self, lease: ServerLease) -> None:
        self._kept.discard(lease)
        self._heartbeat.leave(lease)
        await self._acts.give_back(lease.session_id, lease.epoch)


class Heartbeat:
    """A daemon thread that beats for all leases of one database, with a connection of its own, however busy others are."""

    def __init__(self, link: Link, lease_seconds: float) -> None:
        self._link = link
        self._lease_seconds = lease_seconds
        self._every_seconds = lease_seconds / BEATS_A_LEASE
        self._gate = threading.Condition(threading.RLock())  # reentrant: the garbage collector may call `stop`
        self._leases: dict[str, ServerLease] = {}
        self._abandon: dict[str, Callable[[str, int], None]] = {}
        self._is_beating = False
        self._is_asked = False
        self._is_stopped = False
        self._is_away = False

    def keeps(self, session_id: str) -> bool:
        with self._gate:
            return session_id in self._leases

    def keep(self, lease: ServerLease, abandon: Callable[[str, int], None]) -> None:
        with self._gate:
            self._leases[lease.session_id] = lease
            self._abandon[lease.session_id] = abandon
            self._gate.notify()
            if not self._is_beating and not self._is_stopped:
                self._is_beating = True
                threading.Thread(target=self._work, name="treadle-heartbeat", daemon=True).start()

    def leave(self, lease: ServerLease) -> None:
        with self._gate:
            if self._leases.get(lease.session_id) is lease:
                del self._leases[lease.session_id], self._abandon[lease.session_id]

    def look(self) -> None:
        with self._gate:
            self._is_asked = True
            self._gate.notify()

    def stop(self) -> None:
        with self._gate:
            self._is_stopped = True
            self._link.hurry()
            self._gate.notify()

    def _work(self) -> None:
        while leases := self._next():
            leases = tuple(lease for lease in leases if not self._is_forsaken(lease))
            try:
                lost = self._beat(leases)
                self._is_away = False
            except (psycopg.Error, JournalError) as exc:
                # A server that is away for a moment has taken nothing from us; one that is away for a lease has.
                self._complain(exc)
                lost = {lease: True for lease in leases if time.monotonic() - lease.heard_at >= self._lease_seconds}
            for lease, has_ended in lost.items():
                self.leave(lease)
                lease.lose(has_ended=has_ended)
            self._wait()

    def _is_forsaken(self, lease: ServerLease) -> bool:
        """Give a session back whose event loop was closed with its run pending: nobody can resume that."""
        if not lease.is_orphaned:
            return False
        abandon = self._abandon[lease.session_id]
        self.leave(lease)
        abandon(lease.session_id, lease.epoch)
        return True

    def _complain(self, fault: Exception) -> None:
        if not self._is_away:
            detail = fault if isinstance(fault, JournalError) else describe(self._link.address, fault)
            logger.warning("The leases on sessions could not be renewed: %s", detail)
        self._is_away = True

    def _next(self) -> tuple[ServerLease, ...]:
        with self._gate:
            # It ends a while after the last lease, so that a run after the other needs no new thread each.
            if not self._leases and not self._is_stopped:
                self._gate.wait_for(lambda: self._leases or self._is_stopped, self._every_seconds)
            if self._is_stopped or not self._leases:
                self._is_beating = False
                self._link.drop()
                return ()
            return tuple(self._leases.values())

    def _wait(self) -> None:
        with self._gate:
            self._gate.wait_for(lambda: self._is_asked or self._is_stopped, self._every_seconds)
            self._is_asked = False

    def _beat(self, leases: tuple[ServerLease, ...]) -> dict[ServerLease, bool]:
        asked_at = time.monotonic()
        held = {lease.session_id: lease.epoch for lease in leases}

        parameters = {"ids": list(held), "epochs": list(held.values()), "lease": self._lease_seconds}

        def renew(connection: Connection) -> tuple[dict[str, tuple[bool, float]], dict[str, int]]:
            connection.execute(_RENEW, parameters)
            found = connection.execute(_LEASES, parameters)
            states = {session_id: (is_ours, seconds) for session_id, is_ours, seconds in found}
            return states, dict(connection.execute(_ARRIVALS, (list(held),)).fetchall())

        states, arrivals = self._link.run(renew)
        lost: dict[ServerLease, bool] = {}
        for lease in leases:
            is_ours, seconds = states[lease.session_id]
            if is_ours and seconds > 0:
                # One that could not be renewed, because its row was locked, ends when it would have.
                lease.heard_at = max(lease.heard_at, asked_at + min(seconds - self._lease_seconds, 0.0))
                lease.tell(arrivals.get(lease.session_id, 0))
            else:
                lost[lease] = is_ours
        return lost


def _holder_of(claim: Claim) -> Holder | None:
    try:
        return msgspec.json.decode(claim.owner, type=Holder)
    except msgspec.MsgspecError:
        return None
