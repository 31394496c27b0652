"""What the author of a store writes: a handful of primitives over rows. `StoreJournal` makes a journal of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from treadle.journals.store.appends import Append
from treadle.journals.store.due import DueRow
from treadle.journals.store.rows import SessionRow
from treadle.journals.store.sums import MessageRow, SumRow
from treadle.ports import Lease, SessionFilter, SessionInfo

__all__ = ["Backend", "StoredEvents"]

_T = TypeVar("_T")


class StoredEvents(NamedTuple):
    """The events of one session after a number, as they are stored."""

    session: SessionRow
    """Read before the events: what it names was stored then."""
    before: bytes | None
    """Checksum of the event that these follow; None where it has none."""
    rows: Sequence[SumRow]
    """In the order of their numbers."""


class Backend(ABC):
    """The primitives of a store. Texts are JSON already, ids and numbers are checked, checksums are opaque.

    Each primitive is all or nothing. A store that raises `JournalError` has written nothing, or says otherwise.
    """

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the store is, for people: a path or an address without secrets."""

    # --- sessions and their events

    @abstractmethod
    async def create(self, session_id: str) -> bool:
        """Make a session without events if there is none. Return whether it was made."""

    @abstractmethod
    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        """Take the session for one run, as `Journal.acquire` says. `LocalLeases` does it for a store of one process.

        Raises:
            SessionHeld: Somebody who is alive holds it.
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def append(self, append: Append, *, durable: bool) -> None:
        """Add rows whose first number is one above the session's head; without rows, change its state alone.

        Raises:
            SessionConflict: The head is another one, or the session was taken over. `conflict` makes the error.
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        """Make a session that has all of this, durable.

        Args:
            parent: The id of the session that it is forked from, and the number of the event at which it was.

        Raises:
            SessionExists: There is one by that id. `exists` makes the error.
        """

    @abstractmethod
    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        """Remove the session's events, task and inbox, and these blobs where no event names them; then append, durable.

        Raises:
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def events(self, session_id: str, after: int, decode: Callable[[StoredEvents], _T]) -> _T:
        """Return what `decode` makes of the events with a number above `after`; of none for an unknown session.

        Decoding takes long for a long session: call it on the thread that reads, if there is one.
        """

    @abstractmethod
    async def sessions(self, where: SessionFilter) -> Sequence[SessionInfo]:
        """Return the sessions that a filter names, the last changed first. `listed` does it over values."""

    # --- what waits, for stores with an index of it

    async def due(self, before: float | None = None) -> Sequence[DueRow] | None:
        """Return the rows of all sessions whose run is paused or under way, the sessions that changed last first.

        With `before`, rows that are due later, or have no time, may be left out; those of kind `unknown`, or with the key `now`, are not.

        None for a store without an index: the sessions that are paused or under way are then looked at one by one.
        """
        return None

    async def reindex(self, session_id: str, head: int, rows: Sequence[DueRow]) -> None:  # noqa: B027 - as above
        """Replace all rows of a session by these, if its head is still this number."""

    # --- messages

    @abstractmethod
    async def put(self, session_id: str, message: MessageRow) -> bool:
        """Leave a message, durable, and tell whoever holds the session. Return False when one with its id is stored.

        Raises:
            UnknownSession: There is no such session.
        """

    @abstractmethod
    async def inbox(self, session_id: str, decode: Callable[[Sequence[MessageRow]], _T]) -> _T:
        """Return what `decode` makes of the messages that nobody has consumed, in the order of arrival."""

    @abstractmethod
    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        """Mark messages as consumed by an event. The first event that consumed one stays on record.

        Raises:
            UnknownSession: There is no such session.
        """

    # --- bytes

    @abstractmethod
    async def put_blob(self, digest: str, content: bytes) -> None:
        """Store bytes under their digest, unless they are stored."""

    @abstractmethod
    async def blob(self, digest: str) -> bytes | None:
        """Return the bytes of a digest, or None."""

    # --- for stores that answer before they have stored

    async def settle(self) -> None:  # noqa: B027 - a store that stores at once has nothing to wait for
        """Return when every append so far has been tried. Raises nothing for those that failed."""

    def check(self, session_id: str) -> None:  # noqa: B027 - as above
        """Raise what happened to a deferred append of this session, if it failed."""

    def report(self) -> None:  # noqa: B027 - as above
        """Raise, once, that deferred appends have failed.

        Raises:
            JournalError: The first of them.
        """

    async def close(self) -> None:  # noqa: B027 - a store may have nothing to let go of
        """Store what is pending and let go of the store. May be called twice."""
