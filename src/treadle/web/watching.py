"""Watching: follows each session that somebody watches once, and tells all who do the same. Knows nobody's rights."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, suppress
from itertools import groupby, islice
from typing import Any

import msgspec

from treadle import TreadleError
from treadle.events import AnyEvent, ModelDelta, ModelFailed, ModelFinished, ModelStarted
from treadle.redaction import Redactor, redacted_logger
from treadle.web.snapshot import Snapshot
from treadle.workers import follow

__all__ = ["Watching", "server_event"]

logger = redacted_logger(__name__)

_GATHER_SECONDS = 0.05
"""How long what comes is gathered until everybody is told."""
_SILENT_SECONDS = 15.0
"""How long nothing is sent at most: a broken connection is noticed when something is."""
_MOST_BYTES = 256 * 1024
"""What is kept for people to whom it could not be sent yet. Who is further behind is told the whole state again."""
_UNDER_WAY = frozenset({"running", "paused", "queued"})
_REDACTOR = Redactor()


class Watching:
    """The sessions that are watched now, each by one task that ends with the last person who watches."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._watched: dict[str, _Watched] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def pieces(self, session_id: str) -> AsyncIterator[bytes]:
        """Yield server-sent events: `state`, then each `event` and `text` until no run is under way, and `end`.

        A `state` holds what the model has said so far of its answer. Another one comes where somebody has read too slowly.
        Where the journal fails, they stop without an `end`.
        """
        watched = self._watched.get(session_id)
        if watched is None or watched.is_over:
            watched = self._watched[session_id] = self._begin(session_id)
        watched.people += 1
        try:
            async for piece in watched.pieces():
                yield piece
        finally:
            watched.people -= 1
            if not watched.people:
                watched.task.cancel()
                if self._watched.get(session_id) is watched:
                    del self._watched[session_id]

    def head(self, session_id: str) -> int:
        """Return the number of the last event of which those who watch a session know; 0 where nobody watches."""
        watched = self._watched.get(session_id)
        return 0 if watched is None else watched.head

    def _begin(self, session_id: str) -> "_Watched":
        watched = _Watched(self._snapshot, session_id)
        self._tasks.add(watched.task)
        watched.task.add_done_callback(self._tasks.discard)
        return watched

    async def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Watched:
    """One session, and what those who watch it are told."""

    def __init__(self, snapshot: Snapshot, session_id: str) -> None:
        self._snapshot = snapshot
        self._session_id = session_id
        info = snapshot.infos[session_id]
        self.head = info.head
        self._text, self._thinking = _Text(), _Text()
        self._coming: list[AnyEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._kept: deque[bytes] = deque()
        self._told = self._bytes = 0
        self._changed = asyncio.Event()
        self._has_ended = False
        self.people = 0
        self.is_over = False
        follows = self._follow(is_under_way=info.run_status in _UNDER_WAY)
        self.task = asyncio.create_task(follows, name=f"treadle web watches {session_id}")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what one person is told: all that has come since the last time at once."""
        seen = -1
        while seen < self._told or not self.is_over:
            if seen == self._told:
                piece = await self._next()
            else:
                piece, seen = self._since(seen), self._told
            if piece:
                yield piece
        if self._has_ended:
            yield server_event("end", {})

    async def _next(self) -> bytes:
        """Wait until there is more. Return what keeps the connection alive where nothing comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENT_SECONDS):
                await self._changed.wait()
                return b""
        return b":\n\n"

    def _since(self, seen: int) -> bytes:
        missed = self._told - len(self._kept)
        if seen < missed:
            said = {"text": self._text.shown, "thinking": self._thinking.shown}
            return server_event("state", {"head": self.head, **said})
        return b"".join(islice(self._kept, seen - missed, None))

    # --- the task

    async def _follow(self, *, is_under_way: bool) -> None:
        journal = self._snapshot.journal
        try:
            if is_under_way:
                async with aclosing(follow(journal, self._session_id, after=self.head, live=True)) as events:
                    async for event in events:
                        self._take(event)
                await self._snapshot.refresh()  # who loads the page after the end is shown the end
            self._has_ended = True
        except (TreadleError, OSError) as error:
            logger.info("The session %s cannot be watched: %s", self._session_id, error)
        finally:
            self.is_over = True
            self._tell()

    def _take(self, event: AnyEvent) -> None:
        self._coming.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        """Render what has come, once for all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        coming, self._coming = self._coming, []
        if coming:
            self._keep(b"".join(self._rendered(coming)))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _keep(self, piece: bytes) -> None:
        self._kept.append(piece)
        self._told += 1
        self._bytes += len(piece)
        while self._bytes > _MOST_BYTES:
            self._bytes -= len(self._kept.popleft())

    def _rendered(self, events: Iterable[AnyEvent]) -> Iterator[bytes]:
        for is_said, some in groupby(events, lambda event: isinstance(event, ModelDelta)):
            if is_said:
                yield self._said([event for event in some if isinstance(event, ModelDelta)])
            else:
                yield from map(self._stored, some)

    def _said(self, pieces: list[ModelDelta]) -> bytes:
        text = self._text.grow("".join(piece.text for piece in pieces))
        thinking = self._thinking.grow("".join(piece.thinking for piece in pieces))
        if not text and not thinking:
            return b""
        return server_event("text", {"text": text, "thinking": thinking, "step": pieces[-1].step})

    def _stored(self, event: AnyEvent) -> bytes:
        self.head = event.seq
        if isinstance(event, ModelStarted | ModelFinished | ModelFailed):
            self._text, self._thinking = _Text(), _Text()
        return server_event("event", {"seq": event.seq, "type": event.type})


class _Text:
    """A text that grows, without secrets: what may be half of one is held back until the rest has come."""

    def __init__(self) -> None:
        self.shown = ""
        self._held = ""

    def grow(self, piece: str) -> str:
        """Add a piece. Return what can be shown since."""
        held = self._held + piece
        settled = _REDACTOR.settled(held)
        fresh = _REDACTOR.text(held[:settled])
        self.shown += fresh
        self._held = held[settled:]
        return fresh


def server_event(name: str, value: Any) -> bytes:  # Any: JSON
    """Return a server-sent event."""
    return f"event: {name}\ndata: {msgspec.json.encode(value).decode()}\n\n".encode()
