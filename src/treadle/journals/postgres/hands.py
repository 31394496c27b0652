"""What one journal holds in a PostgreSQL store: its sessions' numbers, checksums, and what happened to its appends.

Several journals of a process share one writer and its connection. What each of them may write is its own. Runs on the
writer's thread only, but for `deferred`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from treadle.journals.postgres import queries, statements
from treadle.journals.postgres.schema import Connection
from treadle.journals.postgres.statements import Claim, Sent
from treadle.journals.store.appends import Append
from treadle.journals.store.deferred import Deferred
from treadle.journals.store.rows import EventRow
from treadle.journals.store.sequence import exists, forked
from treadle.journals.store.sums import MessageRow

__all__ = ["Behind", "Hands", "Transaction"]

_HEIR_BEATS = 4
"""An heir that has not asked for so many looks is dead itself."""

_MOST_UNSYNCED = 1000
"""Events of one session that are kept for the case that the server loses them."""


class Transaction:
    """The transaction of a writer that is under way."""

    def __init__(self) -> None:
        self.tries = 0
        self.claimed: list[tuple[Hands, str, int | None]] = []
        """Sessions taken in it."""


class Behind(Exception):
    """The store lacks events before an append, which the server had confirmed and lost in a crash of its own."""

    def __init__(self, whole: Append) -> None:
        super().__init__()
        self.whole = whole
        """The append with the events that were lost."""


class _Last(NamedTuple):
    """A session's last event, as far as this journal knows."""

    seq: int
    sum: bytes | None


class Hands:
    """The acts of one journal's jobs. Each sends its statements and returns what gives its outcome."""

    def __init__(
        self, transaction: Transaction, lease_seconds: float, look_seconds: float, *, foreign: Collection[str] = ()
    ) -> None:
        """Make the hands of a journal.

        Args:
            foreign: Sessions that the process holds from which this one was forked.
        """
        self.deferred = Deferred()
        self._foreign = set(foreign)
        self._transaction = transaction
        self._lease_seconds = lease_seconds
        self._heir_seconds = look_seconds * _HEIR_BEATS
        self._epochs: dict[str, int] = {}
        self._held: set[str] = set()
        self._last: dict[str, _Last] = {}
        self._unsynced: dict[str, list[EventRow]] = {}
        """Events that the server has confirmed and may lose when it crashes."""

    @property
    def held(self) -> Collection[str]:
        """Sessions whose lease this journal has."""
        return tuple(self._held)

    def create(self, connection: Connection, session_id: str) -> Sent[bool]:
        sent = statements.create(connection, session_id)

        def outcome() -> bool:
            made, epoch = sent()
            if session_id not in self._held:  # a fenced run must not be let in again by whoever opens its session
                self._epochs[session_id] = epoch
            self._last.pop(session_id, None)
            self.deferred.forget(session_id)
            return made

        return outcome

    def claim(self, connection: Connection, session_id: str, owner: str) -> Sent[Claim]:
        sent = statements.claim(connection, session_id, owner, self._lease_seconds, self._heir_seconds)

        def outcome() -> Claim:
            claim = sent()
            if claim.epoch is not None:
                before, self._epochs[session_id] = self._epochs.get(session_id), claim.epoch
                # Invariant: a statement that has waited for the session's row sees the new head, and none of the events that came
                # with it. A sum that it did not find is asked for by itself.
                self._last.pop(session_id, None)
                if claim.sum is not None:
                    self._last[session_id] = _Last(claim.head, claim.sum)
                self._held.add(session_id)
                self._foreign.discard(session_id)
                self._transaction.claimed.append((self, session_id, before))
            return claim

        return outcome

    def forget_claim(self, session_id: str, epoch: int | None) -> None:
        """A claim was rolled back, or its answer was lost.

        Args:
            epoch: The session's number before it, which still fences what was to be written under that one.
        """
        self._held.discard(session_id)
        self._last.pop(session_id, None)
        if epoch is None:
            self._epochs.pop(session_id, None)
        else:
            self._epochs[session_id] = epoch

    def give_back(self, connection: Connection, session_id: str, epoch: int) -> Sent[None]:
        if self._epochs.get(session_id) == epoch:
            self._held.discard(session_id)
        return statements.give_back(connection, session_id, epoch)

    def append(self, connection: Connection, append: Append) -> Sent[None]:
        session_id = append.session_id
        self.deferred.refuse(session_id)
        if session_id in self._foreign:
            raise forked(session_id)
        epoch = self._epochs.get(session_id)
        lease_seconds = self._lease_seconds if session_id in self._held else None
        before = self._sum_before(connection, append)
        sent = statements.append(connection, append, epoch, before=before, lease_seconds=lease_seconds)

        def outcome() -> None:
            stored_epoch = sent()
            if stored_epoch is not None:
                self._epochs[session_id] = stored_epoch
            elif self._transaction.tries == 1 or not statements.is_stored(connection, append, epoch):
                self._last.pop(session_id, None)
                self._look_for_loss(connection, append, epoch)
                raise statements.fencing(connection, append, epoch)
            self._note(append, before)

        return outcome

    def _sum_before(self, connection: Connection, append: Append) -> bytes | None:
        if not append.rows or append.rows[0][0] == 1:
            return None
        last = self._last.get(append.session_id)
        if last is not None and last.seq == append.rows[0][0] - 1:
            return last.sum
        return queries.select_sum(connection, append.session_id, append.rows[0][0] - 1)

    def _note(self, append: Append, before: bytes | None) -> None:
        if append.rows:
            seq, _, stored_sum = append.chained(before)[-1]
            self._last[append.session_id] = _Last(seq, stored_sum)
            kept = self._unsynced.setdefault(append.session_id, [])
            kept.extend(append.rows)
            del kept[:-_MOST_UNSYNCED]

    def _look_for_loss(self, connection: Connection, append: Append, epoch: int | None) -> None:
        """See whether a crash of the server has taken events that it had confirmed: we still have those."""
        kept = self._unsynced.get(append.session_id)
        if not kept or not append.rows:
            return
        head, stored_epoch = statements.place_of(connection, append.session_id)
        missing = [row for row in kept if head < row[0] < append.rows[0][0]]
        if (
            stored_epoch == epoch
            and [row[0] for row in missing] == list(range(head + 1, append.rows[0][0]))
            and missing
        ):
            raise Behind(statements.longer(append, missing))

    def synced(self) -> None:
        """The server has all that it has confirmed so far on its disk."""
        self._unsynced.clear()

    def adopt(
        self,
        connection: Connection,
        job: Append,
        parent: tuple[str, int] | None,
        inbox: Sequence[MessageRow],
    ) -> Sent[None]:
        sent = statements.adopt(connection, job, parent, inbox)

        def outcome() -> None:
            if not sent() and (self._transaction.tries == 1 or not statements.is_stored(connection, job, 0)):
                raise exists(job.session_id)

        return outcome

    def purge(self, connection: Connection, job: Append, blobs: Sequence[str]) -> Sent[None]:
        self._last.pop(job.session_id, None)
        return statements.purge(connection, job, blobs)

    def put(self, connection: Connection, session_id: str, message: MessageRow) -> Sent[bool]:
        sent = statements.put(connection, session_id, message)

        def outcome() -> bool:
            is_new, is_there = sent()
            return is_new or (self._transaction.tries > 1 and is_there)

        return outcome
