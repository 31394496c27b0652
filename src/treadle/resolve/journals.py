"""Journals by path or address. Stores are imported on first use."""

from collections.abc import Coroutine, Generator
from pathlib import Path
from types import TracebackType
from typing import Any

from treadle.errors import ConfigurationError
from treadle.ports import Journal

__all__ = ["JournalOpening", "open_journal"]


class JournalOpening(Coroutine[Any, Any, Journal]):
    """What `open_journal` gives: `await` it for a journal to close oneself, or use it with `async with`."""

    def __init__(self, opening: Coroutine[Any, Any, Journal]) -> None:
        self._opening = opening
        self._journal: Journal | None = None

    def __await__(self) -> Generator[Any, None, Journal]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> Journal:
        self._journal = await self._opening
        return self._journal

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            await self._journal.close()


def open_journal(path: str | Path) -> JournalOpening:
    """Open a journal: a file's path, `postgresql://...`, or `memory:`. It lists sessions and waiting approvals.

    Example:
        async with open_journal("agent.db") as journal:
            for approval in await journal.approvals(): ...

    Raises:
        JournalError: It cannot be opened. A file or database that is not ours stays untouched.
        ConfigurationError: The address of a database is none, or the extra `postgres` is not installed.
    """
    return JournalOpening(_open_journal(path))


async def _open_journal(path: str | Path) -> Journal:
    if str(path) in ("memory:", ":memory:"):
        from treadle.journals.memory import MemoryJournal

        return MemoryJournal()
    if str(path).startswith(("postgresql:", "postgres:")):
        return await _open_postgres(str(path))
    from treadle.journals.sqlite import open_sqlite

    return await open_sqlite(Path(path))


async def _open_postgres(url: str) -> Journal:
    try:
        from treadle.journals.postgres import open_postgres
    except ImportError as error:
        raise ConfigurationError(
            f"A journal in PostgreSQL needs an extra that does not work here ({error}). "
            "Install psycopg 3: pip install 'psycopg[binary]'."
        ) from error
    return await open_postgres(url)
