"""Journals by path or address. Stores are imported on first use."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treadle.errors import ConfigurationError, UnknownSession, check_path, shown
from treadle.fields import checked
from treadle.journals.backend import check_session_id
from treadle.ports import Clock, Journal, Randomness, Timer
from treadle.sessions.maintenance import take_in
from treadle.sessions.session import Session
from treadle.state import SessionState

if TYPE_CHECKING:
    from treadle.journals.degrading import DegradingJournal

__all__ = [
    "JournalOpening",
    "SystemClock",
    "SystemRandomness",
    "memory_session",
    "open_journal",
    "open_session",
]

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


@checked
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


# --- The world as it is: the machine's clock and chance, behind their ports. The only module of the core that asks for
# either.


class SystemClock:
    """The machine's time. Spans are measured on the monotonic clock, which no clock change touches."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class SystemRandomness:
    """Chance for jitter, and names that nobody can guess."""

    def random(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def token(self) -> str:
        return secrets.token_hex(8)


# --- Sessions by id, in a journal.


@asynccontextmanager
@checked
async def open_session(
    journal: str | Path | Journal,
    *,
    id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    on_store_failure: Literal["degrade", "stop"] | None = None,
    must_exist: bool = False,
) -> AsyncIterator[Session]:
    """Open the session with an id, or create it.

    Example:
        async with open_session("agent.db", id="invoice-7") as session: ...

    Args:
        journal: A file's path, `postgresql://...`, `memory:`, or an open journal (it stays open).
        id: 1 to 200 printable characters; None to generate one.
        clock: Replaces the machine's clock, for tests.
        randomness: Replaces the machine's random numbers, for tests.
        on_store_failure: If the store fails during a run, `degrade` continues in memory as far as that is safe, stores the rest
            once the store works again, and reports it (`result.degraded`, `journal.degraded`); a call that changes the world then
            does not start. `stop` ends the run with the JournalError. None degrades if a path is given, and stops if the
            caller has opened the journal.
        must_exist: Do not create a session: a misspelt id is then an error instead of a new session.

    Raises:
        JournalError: The journal cannot be opened.
        ConfigurationError: The id is invalid.
        UnknownSession: There is no session with that id, and it must exist.
    """
    chance = randomness or SystemRandomness()
    session_id = "s_" + chance.token() if id is None else id
    check_session_id(session_id)
    is_ours = isinstance(journal, str | Path)
    if not is_ours and not callable(getattr(journal, "acquire", None)):
        raise ConfigurationError(f"journal is a path, an address or an open journal; got {shown(journal)}.")
    if must_exist and isinstance(journal, str | Path):
        _check_file(journal)
    store = await open_journal(journal) if isinstance(journal, str | Path) else journal
    time = clock or SystemClock()
    degradation: DegradingJournal | None = None
    try:
        if must_exist:
            await _check_exists(store, None if id is None else session_id)
        is_new = await store.create(session_id)
        state = await take_in(SessionState(session_id), () if is_new else await store.read(session_id))
        degrades = is_ours if on_store_failure is None else on_store_failure == "degrade"
        degradation = _degrading(store, time) if degrades else None
        async with Session(
            state=state,
            journal=degradation or store,
            clock=time,
            randomness=chance,
            degradation=degradation,
        ) as session:
            yield session
    finally:
        if is_ours:
            await (degradation or store).close()


def _check_file(journal: str | Path) -> None:
    """Refuse a journal's file that does not exist: opening it would create an empty one."""
    address = str(journal)
    has_no_file = "://" in address or address.startswith((":memory:", "memory:", "postgres:", "postgresql:"))
    with suppress(OSError, ValueError):  # a path that cannot be looked at: opening it says why
        if not has_no_file and not Path(address).exists():
            raise UnknownSession(f"There is no journal {address!r}, and so no session in it.")


async def _check_exists(store: Journal, session_id: str | None) -> None:
    if session_id is None:
        raise ConfigurationError("open_session(must_exist=True) needs the id of the session.")
    if not await store.read(session_id) and session_id not in [info.id for info in await store.sessions()]:
        raise UnknownSession(f"There is no session {session_id!r} in the journal {store.location}.")


def _degrading(store: Journal, clock: Clock) -> "DegradingJournal | None":
    """Return the store with a memory of its own; one that is nothing but memory needs none."""
    from treadle.journals.degrading import DegradingJournal
    from treadle.journals.memory import MemoryJournal

    if isinstance(store, DegradingJournal):
        return store
    return None if isinstance(store, MemoryJournal) else DegradingJournal(store, clock=clock)


async def memory_session() -> Session:
    """Make a session that lives as long as this process."""
    from treadle.journals.memory import MemoryJournal
    from treadle.state import SessionState

    journal = MemoryJournal()
    session_id = "s_" + _CHANCE.token()
    await journal.create(session_id)
    return Session(state=SessionState(session_id), journal=journal, clock=_CLOCK, randomness=_CHANCE)


_CLOCK, _CHANCE = SystemClock(), SystemRandomness()
"""Those of all sessions in memory: they hold nothing."""
