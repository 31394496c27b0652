"""What processes hear from each other by NOTIFY, and nobody stores: that something was left in the journal, and texts that grow.

A follower of a text listens, and shows that it does by a shared advisory lock, which ends with its connection. Whoever tells asks for the
locks of all sessions that speak here, twice a second in one query, and sends nothing where there is none. A second lock says that
a follower has missed the beginning: then all of the text is sent again.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from treadle.journals.postgres_link import Address, Connection
from treadle.redaction import redacted_logger

__all__ = ["LiveTexts", "create_notification", "digest_of", "hearing", "hearing_notification", "notification_channels"]

logger = redacted_logger(__name__)

RECONNECT_SECONDS = 1.0


async def _listening(
    address: Address, use: Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]], what: str
) -> None:
    """Use a connection for ever; another one where it is lost."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                make_conninfo(**address.parameters), autocommit=True, prepare_threshold=None
            ) as connection:
                await use(connection)
        except (psycopg.Error, OSError) as error:
            logger.info("%s: %s", what, address.cleaned(str(error)))
        await asyncio.sleep(RECONNECT_SECONDS)


async def _end(listening: asyncio.Task[None]) -> None:
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


# --- The bell of a journal: it rings in every process that listens when a task or a message is left there. Nobody has
# to listen.

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


async def create_notification(connection: psycopg.AsyncConnection[Any]) -> None:
    """Let the journal ring from now on. It has its tables. Raises what the driver raises."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_HANGING,))
        found = await connection.execute(
            "SELECT FROM pg_trigger WHERE tgname = 'treadle_ring' AND tgrelid = 'inbox'::regclass"
        )
        if await found.fetchone() is None:
            for statement in _BELL:
                await connection.execute(statement)


async def notification_channels(connection: psycopg.AsyncConnection[Any]) -> list[str]:
    """Return the channels on which the journal rings: one for each of its tables that do."""
    found = await connection.execute(
        "SELECT oid::bigint FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname IN ('inbox', 'due')"
    )
    return [f"treadle_bell_{oid}" for (oid,) in await found.fetchall()]


@asynccontextmanager
async def hearing_notification(address: Address, ring: Callable[[], None]) -> AsyncIterator[None]:
    """Call back on this event loop at each ring, and whenever one may have been missed."""

    async def listen(connection: psycopg.AsyncConnection[Any]) -> None:
        with suppress(psycopg.errors.InsufficientPrivilege):  # another process may have hung it
            await create_notification(connection)
        for channel in await notification_channels(connection):
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        ring()
        async for _ in connection.notifies():
            ring()

    listening = asyncio.create_task(_listening(address, listen, "Notifications of the journal cannot be received"))
    try:
        yield
    finally:
        await _end(listening)


# --- Texts that grow.

ASK_SECONDS = 0.5
"""How often the server is asked who follows, while anything is told."""
LISTEN_SECONDS = 0.25
"""How often a follower looks whether it has missed something."""
MOST_CHARACTERS = 1_900
"""Of one notification: PostgreSQL takes less than 8,000 bytes, and a character has up to four."""

# A channel is named by its schema too: two journals of one database may have sessions of one name.
_CHANNEL = "SELECT 'treadle_live_' || current_schema()::regnamespace::oid::bigint::text || '_' || %s::text"
_FOLLOWED = """
SELECT digest, NOT pg_try_advisory_xact_lock(hashtextextended(channel, 0)), NOT pg_try_advisory_xact_lock(hashtextextended(channel, 1))
FROM unnest(%s::text[]) AS digest,
    LATERAL (SELECT 'treadle_live_' || current_schema()::regnamespace::oid::bigint::text || '_' || digest) AS named (channel)
"""
_SEND = """
SELECT pg_notify('treadle_live_' || current_schema()::regnamespace::oid::bigint::text || '_' || %s::text, payload)
FROM unnest(%s::text[]) AS payload
"""
_FOLLOW = "SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))"
_MISS = "SELECT pg_advisory_lock_shared(hashtextextended(%s, 1))"
_MISS_NOTHING = "SELECT pg_advisory_unlock_shared(hashtextextended(%s, 1))"

_Asker: TypeAlias = Callable[[Callable[[Connection], Any]], Awaitable[Any]]  # Any: what the question comes to


class LiveTexts:
    """The telling half. `ask`: does something with a connection to the journal, on the thread that reads."""

    def __init__(self, ask: _Asker) -> None:
        self._ask = ask
        self._gate = asyncio.Lock()
        self._asked_at = float("-inf")
        self._speaking: dict[str, float] = {}
        self._followed: dict[str, tuple[bool, bool]] = {}

    async def tell(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Tell those who follow what they do not know yet. Return how many pieces they know now."""
        digest, count = digest_of(session_id), len(pieces)
        is_followed, misses_some = await self._look(digest)
        if not is_followed:
            return told
        begin = 0 if misses_some else told
        payloads = _payloads(number, sum(map(len, pieces[:begin])), "".join(pieces[begin:count]))
        if payloads:
            await self._ask(partial(_send, digest=digest, payloads=payloads))
        return count

    async def _look(self, digest: str) -> tuple[bool, bool]:
        """Return whether somebody follows, and whether one of them has missed the beginning. Says the latter once for each look."""
        async with self._gate:
            now = asyncio.get_running_loop().time()
            self._speaking[digest] = now
            if now - self._asked_at >= ASK_SECONDS:
                self._asked_at = now
                self._speaking = {one: at for one, at in self._speaking.items() if now - at < 2 * ASK_SECONDS}
                self._followed = dict(await self._ask(partial(_followed, digests=tuple(self._speaking))))
            is_followed, misses_some = self._followed.get(digest, (False, False))
            self._followed[digest] = is_followed, False
            return is_followed, misses_some


class _Hearing(msgspec.Struct):
    """What a follower has received of the latest text."""

    number: int = -1
    length: int = 0
    misses_some: bool = True
    heard: list[tuple[int, str]] = []

    def take(self, payload: str) -> None:
        """Take one notification, and cut off what is known."""
        number, offset, text = _parts(payload)
        if number < self.number:
            return
        if number > self.number:
            self.number, self.length = number, 0
        if offset > self.length:
            self.misses_some = True
            return
        self.misses_some = self.misses_some and offset > 0
        if fresh := text[self.length - offset :]:
            self.length += len(fresh)
            self.heard.append((number, fresh))

    def give(self) -> list[tuple[int, str]]:
        """Return what has come since."""
        heard, self.heard = self.heard, []
        return heard


@asynccontextmanager
async def hearing(address: Address, session_id: str) -> AsyncIterator[Callable[[], list[tuple[int, str]]]]:
    """Follow the live texts of a session; give what returns the new parts, each with the number of its text."""
    heard = _Hearing()

    async def listen(connection: psycopg.AsyncConnection[Any]) -> None:
        try:
            await _listen_over(connection, digest_of(session_id), heard)
        finally:
            heard.misses_some = True

    listening = asyncio.create_task(_listening(address, listen, "Responses cannot be followed as they arrive"))
    try:
        yield heard.give
    finally:
        await _end(listening)


async def _listen_over(connection: psycopg.AsyncConnection[Any], digest: str, heard: _Hearing) -> None:
    found = await connection.execute(_CHANNEL, (digest,))
    ((channel,),) = await found.fetchall()
    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    await connection.execute(_FOLLOW, (channel,))
    says_so = False
    while True:
        if says_so != heard.misses_some:
            says_so = heard.misses_some
            await connection.execute(_MISS if says_so else _MISS_NOTHING, (channel,))
        async for note in connection.notifies(timeout=LISTEN_SECONDS):
            heard.take(note.payload)


def digest_of(session_id: str) -> str:
    """Return what stands for a session in the name of a channel, which is short."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]


def _followed(connection: Connection, digests: Sequence[str]) -> Mapping[str, tuple[bool, bool]]:
    rows = connection.execute(_FOLLOWED, (list(digests),))
    return {digest: (is_followed, misses_some) for digest, is_followed, misses_some in rows}


def _send(connection: Connection, digest: str, payloads: Sequence[str]) -> None:
    connection.execute(_SEND, (digest, list(payloads)))


def _payloads(number: int, offset: int, text: str) -> list[str]:
    """Return notifications that are short enough: the number of the text, where the part begins, and the part."""
    starts = range(0, len(text), MOST_CHARACTERS)
    return [f"{number} {offset + start} {text[start : start + MOST_CHARACTERS]}" for start in starts]


def _parts(payload: str) -> tuple[int, int, str]:
    """Return the number, the beginning and the part. A notification of strangers has number -1."""
    number, _, rest = payload.partition(" ")
    offset, _, text = rest.partition(" ")
    try:
        return int(number), int(offset), text
    except ValueError:
        return -1, 0, ""
