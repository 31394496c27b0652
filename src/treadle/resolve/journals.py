"""Journals by path or address. Stores are imported on first use."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from treadle.errors import ConfigurationError, check_path
from treadle.ports import Journal

__all__ = ["JournalOpening", "open_journal"]

_Open: TypeAlias = Callable[[str], Awaitable[Journal]]

STORES = "treadle.stores"
"""Entry points by which a package says which addresses its store handles: the name is the scheme."""


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

    Other addresses, as `SCHEME://...`, belong to stores of installed packages, which name the scheme as an entry point of
    `treadle.stores`.

    Example:
        async with open_journal("agent.db") as journal:
            for approval in await journal.approvals(): ...

    Raises:
        JournalError: It cannot be opened. A file or database that is not ours stays untouched.
        ConfigurationError: The address of a database is invalid, or the extra `postgres` is not installed.
    """
    return JournalOpening(_open_journal(path))


async def _open_journal(path: str | Path) -> Journal:
    address = str(path)
    if not isinstance(path, str) or address.partition(":")[0] not in _STORES:  # an address says by itself what is wrong
        check_path("path", path)
    scheme, colon, rest = address.partition(":")
    if colon and scheme in _STORES:
        return await _STORES[scheme](address)
    if rest.startswith("//") and (opener := _installed(scheme)) is not None:
        return await opener(address)
    from treadle.journals.sqlite import open_sqlite

    return await open_sqlite(Path(path))


def _installed(scheme: str) -> _Open | None:
    """Return what opens the addresses of an installed package's store; None where no package has said so."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=STORES, name=scheme):
        opener: _Open = entry.load()
        return opener
    return None


async def _open_memory(_: str) -> Journal:
    from treadle.journals.memory import MemoryJournal

    return MemoryJournal()


async def _open_postgres(url: str) -> Journal:
    try:
        from treadle.journals.postgres import open_postgres
    except ImportError as error:
        raise ConfigurationError(
            f"A journal in PostgreSQL needs an extra that does not work here ({error}). "
            "Install psycopg 3: pip install 'psycopg[binary]'."
        ) from error
    return await open_postgres(url)


_STORES: dict[str, _Open] = {
    "memory": _open_memory,
    "": _open_memory,  # `:memory:`
    "postgres": _open_postgres,
    "postgresql": _open_postgres,
}
"""The schemes of the stores that come with Treadle. Every other address is a file's path."""
