"""Faults: a journal and a model that fail at the n-th operation. They wrap real ones and invent nothing else.

for n in itertools.count(1):
    journal = FaultyJournal(open_journal(path), fail_at=n)
    ...run and check what is promised...
    if not journal.has_failed:
        break
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal

from treadle.budgets import Deadline
from treadle.errors import ConfigurationError, JournalError, ModelUnavailable, check_kind
from treadle.events import AnyEvent
from treadle.fields import checked
from treadle.ports import (
    DueItem,
    InboxMessage,
    Journal,
    Lease,
    Model,
    ModelPart,
    ModelRequest,
    Pricing,
    SessionFilter,
    SessionInfo,
    UsageRow,
)
from treadle.ports.journals import ALL_SESSIONS
from treadle.state import Approval

__all__ = ["FaultyJournal", "FaultyModel"]


class FaultyJournal:
    """A journal whose n-th operation fails, once. `location` and `close` never do.

    Example:
        >>> import asyncio
        >>> from treadle.journals.memory import MemoryJournal
        >>> asyncio.run(FaultyJournal(MemoryJournal(), fail_at=1).flush())
        Traceback (most recent call last):
        treadle.errors.JournalError: The journal failed at operation 1, as the test asks.

    Args:
        journal: The journal that does the work.
        fail_at: The number of the operation that fails, from 1; 0 if none does.
        error: What it raises; None for a JournalError.
        when: `before` the operation, which does not happen, or `after` it, when it has happened and the caller gets the error anyway.
    """

    @checked
    def __init__(
        self,
        journal: Journal,
        *,
        fail_at: int,
        error: BaseException | None = None,
        when: Literal["before", "after"] = "before",
    ) -> None:
        self._journal = journal
        self._fault = _Fault(
            fail_at, error or JournalError(f"The journal failed at operation {fail_at}, as the test asks.")
        )
        self._when = when

    @property
    def operations(self) -> int:
        """How many operations there were so far, the failed one included."""
        return self._fault.count

    @property
    def has_failed(self) -> bool:
        """Whether the fault has happened. A run that ends without it has no fault left to test."""
        return self._fault.has_happened

    @property
    def location(self) -> str:
        return self._journal.location

    async def create(self, session_id: str) -> bool:
        self._before()
        made = await self._journal.create(session_id)
        self._after()
        return made

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        if self._when == "before":  # a lease that was taken and whose taker was not told could not be given back
            self._fault.step()
        return await self._journal.acquire(session_id, on_lost=on_lost, on_message=on_message)

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._before()
        await self._journal.append(session_id, events, state=state, durable=durable)
        self._after()

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        self._before()
        await self._journal.adopt(session_id, events, state=state, inbox=inbox)
        self._after()

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        self._before()
        await self._journal.purge(session_id, tombstone, blobs=blobs)
        self._after()

    async def flush(self) -> None:
        self._before()
        await self._journal.flush()
        self._after()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        self._before()
        events = await self._journal.read(session_id, after=after)
        self._after()
        return events

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        return self._journal.follow(session_id, after=after)

    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        self._before()
        sessions = await self._journal.sessions(where)
        self._after()
        return sessions

    @checked
    async def usage(
        self, by: Sequence[str] = ("tenant", "model", "day"), *, since: Deadline | None = None
    ) -> Sequence[UsageRow]:
        self._before()
        rows = await self._journal.usage(by, since=since)
        self._after()
        return rows

    async def approvals(self) -> Sequence[Approval]:
        self._before()
        approvals = await self._journal.approvals()
        self._after()
        return approvals

    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        self._before()
        items = await self._journal.due(before=before, limit=limit)
        self._after()
        return items

    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        self._before()
        found = await self._journal.resumable(now=now)
        self._after()
        return found

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        self._before()
        is_new = await self._journal.put(session_id, message)
        self._after()
        return is_new

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        self._before()
        messages = await self._journal.inbox(session_id)
        self._after()
        return messages

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        self._before()
        await self._journal.consume(session_id, message_ids, seq)
        self._after()

    async def put_blob(self, content: bytes) -> str:
        self._before()
        digest = await self._journal.put_blob(content)
        self._after()
        return digest

    async def blob(self, digest: str) -> bytes | None:
        self._before()
        content = await self._journal.blob(digest)
        self._after()
        return content

    async def close(self) -> None:
        await self._journal.close()

    def _before(self) -> None:
        if self._when == "before":
            self._fault.step()

    def _after(self) -> None:
        if self._when == "after":
            self._fault.step()


class FaultyModel:
    """A model that fails before its n-th part, counted over all its responses, once.

    Example:
        >>> from treadle.testing import ScriptedModel
        >>> model = FaultyModel(ScriptedModel(["Hello."]), fail_at=2)
        >>> model.name, model.has_failed
        ('scripted', False)

    Args:
        model: The model that speaks.
        fail_at: The part in whose place the fault comes, counted from 1; 0 for none.
        error: What it raises; None for a ModelUnavailable.
    """

    @checked
    def __init__(self, model: Model, *, fail_at: int, error: BaseException | None = None) -> None:
        self._model = model
        self._fault = _Fault(
            fail_at, error or ModelUnavailable(f"The model failed at part {fail_at}, as the test asks.")
        )

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Pricing | None:
        return self._model.price

    @property
    def has_failed(self) -> bool:
        """Whether the fault has happened. A run that ends without it has no fault left to test."""
        return self._fault.has_happened

    @checked
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        stream = self._model.stream(request)
        try:
            async for part in stream:
                self._fault.step()
                yield part
        finally:
            if isinstance(stream, AsyncGenerator):  # closing it is what ends a real connection
                await stream.aclose()


class _Fault:
    """Counts operations and raises at one of them."""

    def __init__(self, fail_at: int, error: BaseException) -> None:
        check_kind("fail_at", fail_at, int, "the number of an operation, from 1, or 0 for no failure")
        if fail_at < 0:
            raise ConfigurationError(
                f"fail_at is the number of an operation, from 1, or 0 for no failure; got {fail_at}."
            )
        self.count = 0
        self._fail_at = fail_at
        self._error = error

    @property
    def has_happened(self) -> bool:
        return 0 < self._fail_at <= self.count

    def step(self) -> None:
        self.count += 1
        if self.count == self._fail_at:
            raise self._error
