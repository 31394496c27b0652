"""Where pgqueuer's queue lies: its tables, its connections, and who keeps watch over the journal. Decides nothing."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
import psycopg
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder
from pgqueuer.db import PsycopgDriver
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel, QueueEntrypoint, QueueManagerId
from pgqueuer.models import Job
from pgqueuer.queries import EntrypointExecutionParameter, Queries
from psycopg import sql
from psycopg.conninfo import make_conninfo

from treadle.errors import JournalError
from treadle.journals.postgres_link import Address, describe, describe_unreachable, parse_address
from treadle.journals.postgres_live import create_notification, notification_channels

__all__ = ["FAULTS", "Place", "take"]

FAULTS = (psycopg.Error, OSError)
"""What the driver and the network raise."""

WATCH_SECONDS = 2.0
"""Who keeps watch says so more often than that; after it another may."""
PREFIX = "treadle_"

_BUILDING = 0x54524451
"""The advisory lock of whoever makes the queue's tables: `TRDQ`."""

_WATCH = "CREATE TABLE IF NOT EXISTS treadle_watch (place int PRIMARY KEY, owner text, until timestamptz)"

_KEEP = """
INSERT INTO treadle_watch (place, owner, until) VALUES (1, %(me)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (place) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE treadle_watch.owner = excluded.owner OR treadle_watch.until < clock_timestamp()
RETURNING owner
"""


class Place(msgspec.Struct):
    """One schema of a database. Its methods raise `JournalError` where the database cannot be reached or does not take what is asked."""

    address: Address

    @classmethod
    def of(cls, address: str) -> Self:
        """Return the place of a journal's queue. Raises ConfigurationError: the address is invalid."""
        return cls(parse_address(address))

    def failure(self, error: Exception) -> JournalError:
        """Return what is raised for a fault of the driver or the network."""
        if isinstance(error, psycopg.Error):
            return describe(self.address, error)
        return describe_unreachable(self.address, error)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Queries]:
        """Give pgqueuer's queries over a connection; its tables are made where there are none. What is asked raises what the driver raises."""
        async with self._connection() as connection:
            settings = DBSettings(prefix=PREFIX, channel=Channel(f"treadle_queue_{await _schema_of(connection)}"))
            queries = Queries(
                PsycopgDriver(connection), qbe=QueryBuilderEnvironment(settings), qbq=QueryQueueBuilder(settings)
            )
            await _build(connection, queries)
            yield queries

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[AsyncIterator[bool]]:
        """Give True where something was put into the queue, and False where the journal's bell rings."""
        async with self._connection() as connection:
            queue = f"treadle_queue_{await _schema_of(connection)}"
            for channel in (queue, *await notification_channels(connection)):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

            async def notes() -> AsyncIterator[bool]:
                async for note in connection.notifies():
                    if note.channel != queue:
                        yield False
                    elif json.loads(note.payload).get("operation") == "insert":
                        yield True

            yield notes()

    @asynccontextmanager
    async def on_watch(self, me: str) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        """Give what keeps the watch, or takes it when nobody keeps it: it returns whether it is kept here."""
        async with self._connection() as connection:
            await connection.execute(_WATCH)

            async def keep() -> bool:
                found = await connection.execute(_KEEP, {"me": me, "seconds": WATCH_SECONDS})
                return await found.fetchone() is not None

            yield keep

    async def create_notification(self) -> None:
        """Let the journal ring when something is left in it. The journal has its tables."""
        async with self._connection() as connection:
            await create_notification(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        try:
            async with await psycopg.AsyncConnection.connect(
                make_conninfo(**self.address.parameters), autocommit=True, prepare_threshold=None
            ) as connection:
                yield connection
        except FAULTS as error:
            raise self.failure(error) from error


async def take(queries: Queries, entry: str, *, owner: UUID, stale: timedelta) -> Job | None:
    """Take the first job of an entry point, or one whose worker gave no sign of life for too long; None where there is none."""
    jobs = await queries.dequeue(
        batch_size=1,
        entrypoints={QueueEntrypoint(entry): EntrypointExecutionParameter(concurrency_limit=0)},
        queue_manager_id=QueueManagerId(owner),
        global_concurrency_limit=None,
        heartbeat_timeout=stale,
    )
    return jobs[0] if jobs else None


async def _schema_of(connection: psycopg.AsyncConnection[Any]) -> int:
    found = await connection.execute("SELECT coalesce(current_schema()::regnamespace::oid::bigint, 0)")
    row = await found.fetchone()
    return 0 if row is None else int(row[0])


async def _build(connection: psycopg.AsyncConnection[Any], queries: Queries) -> None:
    """Make the queue's tables where there are none; lead older ones to pgqueuer's version. One process at a time."""
    await connection.execute("SELECT pg_advisory_lock(%s)", (_BUILDING,))
    try:
        if await queries.schema_is_installed():
            await queries.upgrade()
        else:
            await queries.install(create_schema=False)
    finally:
        await connection.execute("SELECT pg_advisory_unlock(%s)", (_BUILDING,))
