"""The bell of a journal: it rings in every process that listens when a task or a message is left there. Nobody has to listen.

It is two triggers, hung by the first process that wants to hear them, and a connection that listens.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from treadle.journals.postgres.address import Address
from treadle.redaction import redacted_logger

__all__ = ["bell_channels", "hang_bell", "hearing_bell"]

logger = redacted_logger(__name__)

RECONNECT_SECONDS = 1.0

_HANGING = 0x5452424C
"""The advisory lock of whoever hangs it: `TRBL`."""

_BELL = (
    """
    CREATE OR REPLACE FUNCTION treadle_ring() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('treadle_bell_' || TG_RELID::text, '');
        RETURN NULL;
    END
    $$
    """,
    "CREATE TRIGGER treadle_ring AFTER INSERT ON inbox FOR EACH STATEMENT EXECUTE FUNCTION treadle_ring()",
    "CREATE TRIGGER treadle_ring AFTER INSERT ON due FOR EACH ROW WHEN (NEW.kind = 'task') EXECUTE FUNCTION treadle_ring()",
)


async def hang_bell(connection: psycopg.AsyncConnection[Any]) -> None:
    """Let the journal ring from now on. It has its tables. Raises what the driver raises."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_HANGING,))
        found = await connection.execute(
            "SELECT FROM pg_trigger WHERE tgname = 'treadle_ring' AND tgrelid = 'inbox'::regclass"
        )
        if await found.fetchone() is None:
            for statement in _BELL:
                await connection.execute(statement)


async def bell_channels(connection: psycopg.AsyncConnection[Any]) -> list[str]:
    """Return the channels on which the journal rings: one for each of its tables that do."""
    found = await connection.execute(
        "SELECT oid::bigint FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname IN ('inbox', 'due')"
    )
    return [f"treadle_bell_{oid}" for (oid,) in await found.fetchall()]


@asynccontextmanager
async def hearing_bell(address: Address, ring: Callable[[], None]) -> AsyncIterator[None]:
    """Call back on this event loop at each ring, and whenever one may have been missed."""
    listening = asyncio.create_task(_listen(address, ring))
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


async def _listen(address: Address, ring: Callable[[], None]) -> None:
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                make_conninfo(**address.parameters), autocommit=True, prepare_threshold=None
            ) as connection:
                with suppress(psycopg.errors.InsufficientPrivilege):  # another process may have hung it
                    await hang_bell(connection)
                for channel in await bell_channels(connection):
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                ring()
                async for _ in connection.notifies():
                    ring()
        except (psycopg.Error, OSError) as error:
            logger.info("Notifications of the journal cannot be received: %s", address.cleaned(str(error)))
        await asyncio.sleep(RECONNECT_SECONDS)
