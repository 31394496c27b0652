"""A journal around a journal: when the store fails in mid-run, what is safe continues in memory, and is stored when the store is back.

Safe is what can be lost: reads, the model's words, results. The start of a call that changes the world is never only in
memory. It knows nothing of how the store works, and repairs nothing in it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from treadle.budgets import Deadline
from treadle.errors import IntentNotStored, JournalError, SessionConflict
from treadle.events import ActionDecided, AnyEvent, JournalDegraded, ToolResumed, ToolStarted
from treadle.fields import checked
from treadle.journals.backend import digest_of
from treadle.journals.store import held_of, with_messages
from treadle.ports import (
    Clock,
    DueItem,
    HasOverview,
    InboxMessage,
    Journal,
    Lease,
    SessionFilter,
    SessionInfo,
    UsageRow,
)
from treadle.ports.journals import ALL_SESSIONS, has_clock, has_live
from treadle.redaction import redacted_logger
from treadle.state import Approval

__all__ = ["DegradingJournal"]

logger = redacted_logger(__name__)


class DegradingJournal:
    """The `Journal` port over another journal. Sessions are opened by the store as it is; only a run that is under way degrades.

    Args:
        journal: The store.
        retry_seconds: How long a store that has failed is left alone. Calls that change the world ask it at once.
        clock: Measures that time; the time of the process where it is None.
    """

    @checked
    def __init__(self, journal: Journal, *, retry_seconds: float = 1.0, clock: Clock | None = None) -> None:
        self._journal = journal
        self._monotonic = time.monotonic if clock is None else clock.monotonic
        self._retry_seconds = retry_seconds
        self._tails: dict[str, _Tail] = {}
        self._blobs: dict[str, bytes] = {}
        self._listeners: dict[str, Callable[[JournalDegraded], None]] = {}

    @property
    def location(self) -> str:
        return self._journal.location

    def listen(self, session_id: str, on_event: Callable[[JournalDegraded], None]) -> None:
        """Report this session's store: that it failed, and that it is back. The last listener counts."""
        self._listeners[session_id] = on_event

    def waiting(self, session_id: str) -> int:
        """Return how many events of a session are in memory only."""
        tail = self._tails.get(session_id)
        return len(tail.events) if tail is not None and tail.is_degraded else 0

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """As `HasLive` says; tells nobody where the store cannot."""
        if not has_live(self._journal):
            return told
        return await self._journal.tell_live(session_id, number, pieces, told)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        """As `HasLive` says; nothing comes where the store cannot."""
        return self._journal.hear_live(session_id) if has_live(self._journal) else nullcontext(list)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        """As the port says, but for a store that fails: then the events wait in memory.

        Raises:
            IntentNotStored: A call that changes the world is to start, and that cannot be stored. Nothing waits of it.
        """
        tail = self._tails.setdefault(session_id, _Tail())
        async with tail.order:
            fault = None if tail.is_degraded else await self._try(session_id, tail, events, state, durable=durable)
            if fault is None and not tail.is_degraded:
                return
            is_intent = any(map(_may_change_the_world, events))
            tail.keep(events, state)
            if is_intent or self._is_due(tail):
                await self._catch_up_others(tail)
                fault = await self._catch_up(session_id, tail) or None
                if fault is None:
                    return
            if is_intent:
                tail.forget(len(events))
            self._degrade(session_id, tail, fault)
            if is_intent:
                raise IntentNotStored(
                    f"A call that changes the world did not start, because its start could not be stored. {fault}"
                ) from fault

    def _is_due(self, tail: "_Tail") -> bool:
        return self._monotonic() - tail.tried_at >= self._retry_seconds

    async def _try(
        self, session_id: str, tail: "_Tail", events: Sequence[AnyEvent], state: str, *, durable: bool
    ) -> JournalError | None:
        """Append as long as the store is well. What is not known to be stored is kept: a deferred append fails later."""
        try:
            await self._journal.append(session_id, events, state=state, durable=durable)
        except JournalError as exc:
            return exc
        if durable:
            tail.clear()
        else:
            tail.keep(events, state)
        return None

    async def _catch_up_others(self, tail: "_Tail") -> None:
        """Store what waits of other sessions, before an event of this one tells how they ended. One that is being written does so itself."""
        for session_id, other in tuple(self._tails.items()):
            if other is not tail and other.is_degraded and not other.order.locked():
                async with other.order:
                    await self._catch_up(session_id, other)

    async def _catch_up(self, session_id: str, tail: "_Tail") -> JournalError | None:
        """Store what waits; return why not."""
        tail.tried_at = self._monotonic()
        try:
            for content in self._blobs.values():
                await self._journal.put_blob(content)
            await self._journal.create(session_id)  # a store refuses what follows a failure until it is opened anew
            stored = await self._journal.read(session_id, after=tail.events[0].seq - 1) if tail.events else ()
            if tuple(tail.events[: len(stored)]) != tuple(stored):
                raise SessionConflict(
                    f"Session {session_id!r} was written by another process while its store could not be reached here."
                )
            if missing := tail.events[len(stored) :]:
                await self._journal.append(session_id, missing, state=tail.state, durable=True)
            for message_ids, seq in tail.consumed:
                await self._journal.consume(session_id, message_ids, seq)
        except JournalError as exc:
            return exc
        self._blobs.clear()
        was_degraded = tail.is_degraded
        tail.clear()
        if was_degraded:
            logger.warning("The journal %s is back; everything is stored", self.location)
            self._tell(session_id, JournalDegraded(is_over=True, message="The journal is back; everything is stored."))
        return None

    def _degrade(self, session_id: str, tail: "_Tail", fault: JournalError | None) -> None:
        if tail.is_degraded or fault is None:
            return
        tail.is_degraded = True
        tail.tried_at = self._monotonic()
        logger.warning(
            "The journal %s failed; the run continues in memory where that is safe: %s", self.location, fault
        )
        self._tell(session_id, JournalDegraded(waiting=len(tail.events), message=str(fault)))

    def _tell(self, session_id: str, event: JournalDegraded) -> None:
        if (on_event := self._listeners.get(session_id)) is not None:
            on_event(event)

    async def flush(self) -> None:
        """Store what waits, if the store is back. What cannot be stored continues waiting, and has been reported."""
        for session_id, tail in self._tails.items():
            async with tail.order:
                if tail.is_degraded:
                    await self._catch_up(session_id, tail)
        try:
            await self._journal.flush()
        except JournalError as exc:
            await self._settle(exc)

    async def _settle(self, fault: JournalError) -> None:
        """A deferred append has failed after all: store it from memory, or let it wait."""
        for session_id, tail in self._tails.items():
            async with tail.order:
                if tail.events and await self._catch_up(session_id, tail) is not None:
                    self._degrade(session_id, tail, fault)

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        tail = self._tails.get(session_id)
        if tail is None or not tail.is_degraded:
            return await self._journal.read(session_id, after=after)
        waiting = [event for event in tail.events if event.seq > after]
        first = tail.events[0].seq if tail.events else after + 1
        if after >= first - 1:
            return tuple(waiting)
        stored = await self._journal.read(session_id, after=after)
        return (*(event for event in stored if event.seq < first), *waiting)

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        tail = self._tails.get(session_id)
        try:
            messages = await self._journal.inbox(session_id)
        except JournalError:
            if tail is None or not tail.is_degraded:
                raise
            return ()  # nothing can have been left there; when the store is back, it is looked at again
        gone = {message_id for ids, _ in tail.consumed for message_id in ids} if tail is not None else set()
        return tuple(message for message in messages if message.id not in gone)

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        tail = self._tails.setdefault(session_id, _Tail())
        if not tail.is_degraded:
            with suppress(JournalError):  # the append after it finds out; the events hold the messages' ids
                await self._journal.consume(session_id, message_ids, seq)
                return
        tail.consumed.append((tuple(message_ids), seq))

    async def put_blob(self, content: bytes) -> str:
        try:
            return await self._journal.put_blob(content)
        except JournalError:
            digest = await digest_of(content)
            self._blobs[digest] = bytes(content)
            return digest

    async def blob(self, digest: str) -> bytes | None:
        kept = self._blobs.get(digest)
        return kept if kept is not None else await self._journal.blob(digest)

    async def close(self) -> None:
        """Store what waits, and close the store, whether that succeeds or not. What is lost with this process is reported to operators.

        Raises:
            SessionConflict: Another process has continued with a session of which events wait here.
        """
        try:
            await self.flush()
        finally:
            lost = sum(len(tail.events) for tail in self._tails.values() if tail.is_degraded)
            if lost:
                logger.error("%d events could not be stored in the journal %s and are lost", lost, self.location)
            with suppress(*([JournalError] if lost else [])):
                await self._journal.close()

    # --- as they are

    async def create(self, session_id: str) -> bool:
        return await self._journal.create(session_id)

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        return await self._journal.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        await self._journal.adopt(session_id, events, state=state, inbox=inbox)

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        await self._journal.purge(session_id, tombstone, blobs=blobs)
        self._tails.pop(session_id, None)

    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        return await self._journal.sessions(where)

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        """Give what is stored: events that are in memory only are no other process's to see."""
        return self._journal.follow(session_id, after=after)

    async def now(self) -> float | None:
        return await self._journal.now() if has_clock(self._journal) else None

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        return await held_of(self._journal, session_ids)

    async def with_messages(self) -> Collection[str]:
        return list(await with_messages(self._journal))

    async def with_unknown_outcomes(self) -> Collection[str]:
        if isinstance(self._journal, HasOverview):
            return await self._journal.with_unknown_outcomes()
        return [info.id for info in await self._journal.sessions()]

    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        return await self._journal.resumable(now=now)

    async def usage(
        self, by: Sequence[str] = ("tenant", "model", "day"), *, since: Deadline | None = None
    ) -> Sequence[UsageRow]:
        return await self._journal.usage(by, since=since)

    async def approvals(self) -> Sequence[Approval]:
        return await self._journal.approvals()

    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        return await self._journal.due(before=before, limit=limit)

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        return await self._journal.put(session_id, message)


class _Tail:
    """The end of one session: events that are not known to be stored."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.state = ""
        self.consumed: list[tuple[tuple[str, ...], int]] = []
        self.is_degraded = False
        self.tried_at = 0.0
        self.order = asyncio.Lock()

    def keep(self, events: Sequence[AnyEvent], state: str) -> None:
        self.events.extend(events)
        self.state = state

    def forget(self, count: int) -> None:
        if count:
            del self.events[-count:]

    def clear(self) -> None:
        self.events.clear()
        self.consumed.clear()
        self.is_degraded = False


def _may_change_the_world(event: AnyEvent) -> bool:
    """Whether a call that acts starts or continues with this event, or a tool may carry out an action of its own after it."""
    if isinstance(event, ActionDecided):
        return event.decision == "allow" and (event.effect is None or not event.effect.is_read)
    return isinstance(event, ToolStarted | ToolResumed) and not event.effect.is_read
