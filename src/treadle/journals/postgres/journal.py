"""A journal in a PostgreSQL database, shared by any number of machines. It knows nothing of what its events mean."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager

from treadle.fields import checked
from treadle.journals.postgres.address import parse_address
from treadle.journals.postgres.backend import PostgresBackend
from treadle.journals.postgres.engine import Limits
from treadle.journals.store.journal import StoreJournal, opened
from treadle.journals.store.lease import LEASE_SECONDS

__all__ = ["PostgresJournal", "open_postgres"]


@checked
async def open_postgres(
    url: str, *, busy_seconds: float = 5.0, patience_seconds: float = 5.0, lease_seconds: float = LEASE_SECONDS
) -> "PostgresJournal":
    """Open a journal in a database now; make its tables when there are none.

    Example:
        journal = await open_postgres("postgresql://treadle:secret@db.example/agents")

    Args:
        url: The database, as the driver takes it. The tables lie in the first schema of its search path.
        busy_seconds: How long to wait for another program that keeps a row or table locked.
        patience_seconds: How long to wait for a server that went away in the middle, as when it is restarted. One that is
            silent while it should answer is given up after `busy_seconds` and `patience_seconds` together.
        lease_seconds: After so long without a sign of life, the process that runs a session is taken for dead.

    Raises:
        ConfigurationError: The URL is invalid.
        JournalError: The server cannot be reached, or holds tables that are not ours, or newer. Nothing was changed.
    """
    return await opened(
        PostgresJournal(url, busy_seconds=busy_seconds, patience_seconds=patience_seconds, lease_seconds=lease_seconds)
    )


class PostgresJournal(StoreJournal[PostgresBackend]):
    """The `Journal` port over one schema of a PostgreSQL database. Connects with the first call; see `open_postgres`.

    An append that was under way when the server went away is stored, exactly once, or raises.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = 5.0,
        patience_seconds: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(PostgresBackend(parse_address(url), Limits(busy_seconds, patience_seconds, lease_seconds)))

    async def now(self) -> float:
        """Return the time by the server's clock, which all machines that share the database can ask."""
        return await self._store.now()

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions on which somebody's lease has not ended, by the server's clock."""
        return await self._store.held(session_ids)

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Send what followers elsewhere do not know yet, by NOTIFY; nothing where nobody follows."""
        return await self._store.tell_live(session_id, number, pieces, told)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        """Receive the live texts of a session, over a connection of its own."""
        return self._store.hear_live(session_id)

    def hear_bell(self, ring: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Ring soon after a task or a message was left, by NOTIFY, over a connection of its own."""
        return self._store.hear_bell(ring)

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in."""
        return await self._store.with_messages()

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results."""
        return await self._store.with_unknown_outcomes()
