"""Leases for a store that one process uses: whoever holds a session lives as long as the process. Knows no store."""

from collections.abc import Callable

from treadle.errors import SessionHeld
from treadle.fields import explained

__all__ = ["LocalLease", "LocalLeases"]


class LocalLeases:
    """The leases on all sessions of one store, on one event loop."""

    def __init__(self) -> None:
        self._holders: dict[str, Callable[[], None]] = {}

    @explained
    def acquire(
        self,
        session_id: str,
        on_message: Callable[[], None],
        *,
        head: int | None = None,
        has_messages: bool | None = None,
    ) -> "LocalLease":
        """Take a session that nobody holds.

        Args:
            head: Number of its last event, where the store knows it.
            has_messages: Whether anything lies in its inbox, where the store knows that.

        Raises:
            SessionHeld: A run of this process holds it.
        """
        if session_id in self._holders:
            raise SessionHeld(f"Session {session_id!r} is already running in this process. Wait for that run.")
        self._holders[session_id] = on_message
        return LocalLease(self._holders, session_id, head, has_messages)

    @explained
    def is_held(self, session_id: str) -> bool:
        """Return whether a run of this process holds the session."""
        return session_id in self._holders

    @explained
    def tell(self, session_id: str) -> None:
        """Tell whoever holds the session, if anybody does, that a message has arrived."""
        if (on_message := self._holders.get(session_id)) is not None:
            on_message()


class LocalLease:
    """The right to write one session. Nobody can take it away: it ends with its run, or with the process."""

    def __init__(
        self, holders: dict[str, Callable[[], None]], session_id: str, head: int | None, has_messages: bool | None
    ) -> None:
        self.head, self.has_messages = head, has_messages
        self._holders: dict[str, Callable[[], None]] | None = holders
        self._session_id = session_id

    async def release(self) -> None:
        if self._holders is not None:
            del self._holders[self._session_id]
            self._holders = None
