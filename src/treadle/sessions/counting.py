"""Counts that all processes of a journal keep together: each in a place of its own, changed by one of them at a time.

A place is a session that no list names. It is changed under its lease, which is held for a moment.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from treadle.errors import SessionExists, SessionHeld
from treadle.events import AnyEvent, SessionChanged
from treadle.ports import Clock, HasOverview, Journal, Lease, SessionFilter
from treadle.ports.journals import WORKER
from treadle.sessions.answering import time_of
from treadle.sessions.maintenance import pass_on

__all__ = ["SharedCounts", "counted_everywhere"]

_TURN_SECONDS = 0.05
"""How soon another process asks again whether it may count now."""
_MOST_EVENTS = 100
"""A place that has as many events is emptied but for its last one: each says all that is counted."""

Counts = TypeVar("Counts", bound=msgspec.Struct)

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()
"""Whose turn it is in this process: without it, each run would ask the journal twenty times a second."""


class SharedCounts(Generic[Counts]):
    """The counts of one kind in a journal.

    Args:
        key: What they are stored under, such as `limit`.
        kind: What is counted; made without arguments where nothing is counted yet.
    """

    def __init__(self, journal: Journal, clock: Clock, key: str, kind: type[Counts]) -> None:
        self._journal = journal
        self._clock = clock
        self._key = key
        self._kind = kind
        self._heads: dict[str, int] = {}
        self._made: set[str] = set()

    @asynccontextmanager
    async def counting(self, place: str) -> AsyncIterator[tuple[Counts, float]]:
        """Yield what all processes have counted, and the time in seconds since 1970; store what happens to it.

        Raises:
            JournalError: The store failed. What was changed is not counted, or nobody knows whether it is.
        """
        turns = _turns.setdefault(asyncio.get_running_loop(), {})
        async with turns.setdefault(f"{self._journal.location} {place}", asyncio.Lock()):
            while (lease := await self.taken(place)) is None:  # noqa: ASYNC110 - other processes tell nobody
                await asyncio.sleep(_TURN_SECONDS)
            try:
                head, counts = await self._counted(place)
                before = msgspec.json.encode(counts)
                now = await time_of(self._journal, self._clock)  # all processes share it, where the store has a clock
                yield counts, now
                if msgspec.json.encode(counts) != before:
                    await self._store(place, head, counts, now)
            finally:
                await lease.release()

    async def taken(self, place: str) -> Lease | None:
        """Take a place that nobody holds; None where somebody does. What is lost in a stall is not stopped here."""
        if place not in self._made:
            made = SessionChanged(
                session_id=place, seq=1, at=self._clock.now(), metadata={self._key: True}, by="worker"
            )
            with suppress(SessionExists):
                await self._journal.adopt(place, [made], state=WORKER)
            self._made.add(place)
        if isinstance(self._journal, HasOverview) and await self._journal.held([place]):
            return None
        try:
            return await self._journal.acquire(place, on_lost=pass_on, on_message=pass_on)
        except SessionHeld:
            return None

    async def _counted(self, place: str) -> tuple[int, Counts]:
        known = self._heads.get(place, 1)
        found = await self._journal.read(place, after=known - 1) or await self._journal.read(place)
        (last,) = found[-1:]  # it says all, so what came before it need not be read
        self._heads[place] = last.seq
        return last.seq, _read(last, self._key, self._kind)

    async def _store(self, place: str, head: int, counts: Counts, now: float) -> None:
        said = {self._key: msgspec.to_builtins(counts, str_keys=True)}
        event = SessionChanged(session_id=place, seq=head + 1, at=now, metadata=said, by="worker")
        await self._journal.append(place, [event], state=WORKER, durable=False)
        if head + 1 >= _MOST_EVENTS:
            await self._journal.purge(place, msgspec.structs.replace(event, seq=1))
            await self._journal.append(place, [msgspec.structs.replace(event, seq=2)], state=WORKER, durable=False)


async def counted_everywhere(
    journal: Journal, key: str, kind: type[Counts], *, since: float | None = None
) -> list[Counts]:
    """Return what is counted in each place below the key, such as `spending/...`, that has changed at this time or later."""
    infos = await journal.sessions(SessionFilter(run_statuses=(WORKER,), text=f"{key}/", since=since))
    found = [await journal.read(info.id, after=info.head - 1) for info in infos]
    return [_read(events[-1], key, kind) for events in found if events]


def _read(event: AnyEvent, key: str, kind: type[Counts]) -> Counts:
    said = (event.metadata or {}).get(key) if isinstance(event, SessionChanged) else None
    return msgspec.convert(said, kind, strict=False) if isinstance(said, dict) else kind()
