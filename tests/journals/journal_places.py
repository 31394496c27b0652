"""Places where journals are stored durably: a file of SQLite, a schema of PostgreSQL. Opened, locked and altered as other programs would."""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import psycopg
from journal_events import notes

from postgres_server import connect
from treadle.events import AnyEvent
from treadle.journals.postgres import PostgresJournal, open_postgres
from treadle.journals.sqlite import SqliteJournal, open_sqlite

J = TypeVar("J", SqliteJournal, PostgresJournal)


class Place(ABC, Generic[J]):
    """Where one journal is stored."""

    unguard: ClassVar[tuple[str, ...]]
    """Statements that take away what keeps events from being changed."""
    make_newer: ClassVar[str]
    damage_blobs: ClassVar[str]
    refuses: ClassVar[tuple[type[Exception], ...]]
    """What another program's statement raises where the tables refuse it."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def open(self, **options: float) -> J: ...

    @abstractmethod
    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as another program; return what the last one finds."""

    @abstractmethod
    def locked(self, session_id: str = "s") -> AbstractContextManager[None]:
        """Keep everybody from writing to a session."""

    @abstractmethod
    def one_group(self, journal: J) -> AbstractAsyncContextManager[None]:
        """Let all that is queued meanwhile become one group."""

    @asynccontextmanager
    async def opened(self, **options: float) -> AsyncIterator[J]:
        journal = await self.open(**options)
        try:
            yield journal
        finally:
            await journal.close()

    async def stored(self, session_id: str = "s") -> tuple[AnyEvent, ...]:
        async with self.opened() as journal:
            return tuple(await journal.read(session_id))

    async def store(self, events: tuple[AnyEvent, ...] = notes(1, 3), *, session_ids: Sequence[str] = ("s",)) -> None:
        """Leave a closed journal with these sessions."""
        async with self.opened() as journal:
            for session_id in session_ids:
                await journal.create(session_id)
                await journal.append(session_id, events, state="completed", durable=True)


class FilePlace(Place[SqliteJournal]):
    unguard = ("DROP TRIGGER event_is_never_changed", "DROP TRIGGER event_leaves_with_its_session")
    make_newer = "PRAGMA user_version = 7"
    damage_blobs = "UPDATE blob SET bytes = x'00'"
    refuses = (sqlite3.IntegrityError,)

    def __init__(self, path: str | Path) -> None:
        super().__init__(str(path))

    async def open(self, **options: float) -> SqliteJournal:
        return await open_sqlite(self.address, **options)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with raw(Path(self.address)) as connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]

    @contextmanager
    def locked(self, session_id: str = "s") -> Iterator[None]:
        with raw(Path(self.address)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    @asynccontextmanager
    async def one_group(self, journal: SqliteJournal) -> AsyncIterator[None]:
        with self.locked():
            yield
            await asyncio.sleep(0)  # they are queued


class SchemaPlace(Place[PostgresJournal]):
    unguard = ("DROP FUNCTION event_is_append_only CASCADE",)
    make_newer = "UPDATE treadle_journal SET version = 7"
    damage_blobs = "UPDATE blob SET bytes = 'other'"
    refuses = (psycopg.IntegrityError,)

    async def open(self, **options: float) -> PostgresJournal:
        return await open_postgres(self.address, **options)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with connect(self.address) as connection:
            found = [connection.execute(statement) for statement in statements][-1]  # type: ignore[call-overload]  # ours
            return found.fetchall() if found.description else []

    @contextmanager
    def locked(self, session_id: str = "s") -> Iterator[None]:
        with connect(self.address) as connection, connection.transaction():
            connection.execute("SELECT FROM session WHERE id = %s FOR UPDATE", (session_id,))
            yield

    @asynccontextmanager
    async def one_group(self, journal: PostgresJournal) -> AsyncIterator[None]:
        await journal.create("plug")
        with self.locked("plug"):
            plugged = asyncio.create_task(journal.append("plug", notes(1, 1), state="running", durable=True))
            await self.wait_until_locked_out()
            yield
            await asyncio.sleep(0)  # they are queued
        await plugged

    async def wait_until_locked_out(self) -> None:
        """Return once somebody waits for a lock."""
        while not self.run("SELECT 1 FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)


@asynccontextmanager
async def opened(url: str, **options: float) -> AsyncIterator[PostgresJournal]:
    async with SchemaPlace(url).opened(**options) as journal:
        yield journal


def nothing() -> None:
    """Notice nothing of a lease."""


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Reach into a file as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
