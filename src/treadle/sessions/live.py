"""What a model says while it says it, told to followers in other processes. Nothing here is kept.

The pieces of one answer are one text, a line each. Its number is that of the answer's `model.started`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress

import msgspec

from treadle.errors import JournalError
from treadle.events import (
    AnyEvent,
    ModelDelta,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    decode_event,
    encode_event,
)
from treadle.ports import HasLive, Journal
from treadle.ports.journals import has_live
from treadle.redaction import redacted_logger

__all__ = ["LiveTeller", "teller_of", "with_live"]


logger = redacted_logger(__name__)

FLUSH_SECONDS = 0.05
"""How long pieces of an answer are gathered until they are told."""
LOOK_SECONDS = 0.5
"""How often new followers are looked for while the model says nothing in the middle of an answer."""
GLANCE_SECONDS = 0.1
"""How often a follower looks whether something has come."""
LAST_SECONDS = 5.0
"""How long a follower waits at most for the last pieces of an answer of which some have come."""
MOST_BYTES = 4 * 1024 * 1024
"""How much of one answer is told live: the rest comes with the whole of it."""
END = ".\n"
"""The last line of an answer."""


_EDGES = frozenset({ModelStarted, ModelFinished, ModelFailed, RunFinished, RunPaused})
"""Events at which an answer begins or ends."""


class LiveTeller:
    """Tells the followers of one session what its model says. Costs next to nothing where nobody follows."""

    def __init__(self, line: HasLive, session_id: str) -> None:
        self._line = line
        self._session_id = session_id
        self._answer = _Answer()
        self._untold: list[_Answer] = []
        """Answers of which something was said since the followers were told, the earliest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False
        self._telling: asyncio.Task[None] | None = None

    def __call__(self, event: AnyEvent) -> None:
        if type(event) is ModelDelta:
            if self._answer.bytes < MOST_BYTES:
                self._say(f"{encode_event(event).decode()}\n")
        elif type(event) in _EDGES and event.act is None:
            self._end_answer()
            self._answer = _Answer(event.seq)

    def _end_answer(self) -> None:
        """Say that the answer has ended; nothing of one that ended before any of it was told: it comes as a whole."""
        answer = self._answer
        if answer.is_told:
            self._say(END)
        elif answer in self._untold:
            self._untold.remove(answer)
            if self._timer is not None and not self._untold:
                self._timer.cancel()
                self._timer = None

    def _say(self, line: str) -> None:
        answer = self._answer
        answer.bytes += len(line)
        answer.said.append(line)
        if not self._untold or self._untold[-1] is not answer:
            self._untold.append(answer)
        if self._telling is None and (self._timer is None or self._is_silent):
            self._tell_later(FLUSH_SECONDS)

    def _tell_later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._is_silent = seconds > FLUSH_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_telling)

    def _begin_telling(self) -> None:
        self._timer, self._telling = None, asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tell the followers what was said since, and those who are new all of an answer that has not ended."""
        untold, self._untold = self._untold, []
        untold = untold or [self._answer]
        for answer in untold:
            answer.is_told = True
        try:
            for answer in untold:
                answer.told = await self._line.tell_live(self._session_id, answer.number, answer.said, answer.told)
        except JournalError as error:
            logger.info("A follower could not be told what the model says: %s", error)
        self._telling = None
        if self._untold:
            self._tell_later(FLUSH_SECONDS)
        elif self._answer.said:
            self._tell_later(LOOK_SECONDS)

    async def close(self) -> None:
        """Tell what is left. The last answer has ended."""
        self._answer = _Answer()
        if self._telling is not None:
            await self._telling
        if self._timer is not None:
            self._timer.cancel()
        if self._untold:
            await self._tell()


def teller_of(journal: Journal, session_id: str) -> LiveTeller | None:
    """Return what tells the followers of a session; None where its journal cannot."""
    return LiveTeller(journal, session_id) if has_live(journal) else None


class _Answer(msgspec.Struct, eq=False):
    """What was said of one answer, and how much of it is told."""

    number: int = 0
    said: list[str] = []
    bytes: int = 0
    is_told: bool = False
    """Whether telling it has begun."""
    told: int = 0


class _Heard:
    """What a follower has heard, taken apart."""

    def __init__(self, parts: Callable[[], list[tuple[int, str]]] | None) -> None:
        self._parts = parts
        self._rest = ""
        self.latest = 0
        """The last answer of which something has come."""
        self.ended = 0
        """The last answer that has come to its end."""

    def read(self) -> list[tuple[int, ModelDelta]]:
        """Return the pieces that have come since, with the numbers of their answers."""
        found = []
        for number, part in () if self._parts is None else self._parts():
            if number != self.latest:
                self.latest, self._rest = number, ""
            *lines, self._rest = (self._rest + part).split("\n")
            for line in lines:
                if line == END.strip():
                    self.ended = number
                elif (delta := _decoded(line)) is not None:
                    found.append((number, delta))
        return found


class _Order(msgspec.Struct):
    """Which answer is under way, as the stored events say: what is live belongs between its beginning and its end.

    Answers are known by the number of their `model.started`: a process that died in mid-answer and the one that asks again have each its own.
    """

    has_seen_any: bool = False
    latest: int = 0
    """The last answer that has begun."""
    is_under_way: bool = False
    held: list[tuple[int, ModelDelta]] = []
    """Pieces of an answer whose beginning was not seen yet."""

    def store(self, event: AnyEvent) -> None:
        match event:
            case ModelStarted() if event.act is None:
                self.latest, self.is_under_way, self.has_seen_any = event.seq, True, True
            case ModelFinished() | ModelFailed() | RunFinished() | RunPaused() if event.act is None:
                self.is_under_way, self.has_seen_any = False, True

    def ends(self, event: AnyEvent) -> bool:
        """Whether an answer ends of which pieces came."""
        return self.is_under_way and isinstance(event, ModelFinished | ModelFailed) and event.act is None

    def ready(self, read: list[tuple[int, ModelDelta]]) -> list[ModelDelta]:
        """Return the pieces whose turn it is. One of an answer that has ended is discarded, one of a later answer is held."""
        pieces = self.held + read
        self.held = [(answer, delta) for answer, delta in pieces if self.has_seen_any and answer > self.latest]
        return [delta for answer, delta in pieces if self._is_next(answer)]

    def _is_next(self, answer: int) -> bool:
        return not self.has_seen_any or (self.is_under_way and answer == self.latest)


async def with_live(
    line: HasLive, session_id: str, stored: AsyncIterator[AnyEvent], *, is_whole: bool
) -> AsyncIterator[AnyEvent]:
    """Give stored events as they come, and between them what the model says live. Ends where the stored ones end.

    Args:
        is_whole: Whether the stored events begin with the session's first: each answer's beginning is seen then.
    """
    order = _Order(has_seen_any=is_whole)
    async with AsyncExitStack() as stack:
        heard = _Heard(await _hearing(line, session_id, stack))
        if not is_whole:
            order.held = [one for one in heard.read() if heard.ended < one[0] == heard.latest]
        coming = asyncio.ensure_future(anext(stored, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=GLANCE_SECONDS)
                if coming.done():
                    event = coming.result()
                    if event is None:
                        return
                    if order.ends(event):
                        async for delta in _last_pieces(order, heard):
                            yield delta
                    order.store(event)
                    coming = asyncio.ensure_future(anext(stored, None))
                    yield event
                for delta in order.ready(heard.read()):
                    yield delta
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
            if isinstance(stored, AsyncGenerator):
                await stored.aclose()


async def _last_pieces(order: _Order, heard: _Heard) -> AsyncIterator[ModelDelta]:
    """Give the last pieces of an answer, which are told within a moment, until it ends; none where none has come by then."""
    now = asyncio.get_running_loop().time
    begun = now()
    while True:
        for delta in order.ready(heard.read()):
            yield delta
        waits = LAST_SECONDS if heard.latest == order.latest else 2 * FLUSH_SECONDS
        if heard.ended == order.latest or heard.latest > order.latest or now() - begun > waits:
            return
        await asyncio.sleep(GLANCE_SECONDS)


async def _hearing(line: HasLive, session_id: str, stack: AsyncExitStack) -> Callable[[], list[tuple[int, str]]] | None:
    """Return what hears what is told; None where this process may not write next to the journal."""
    try:
        return await stack.enter_async_context(line.hear_live(session_id))
    except OSError as error:
        logger.info("Responses cannot be followed as they arrive: %s", error)
        return None


def _decoded(line: str) -> ModelDelta | None:
    try:
        event = decode_event(line.encode())
    except JournalError:
        return None
    return event if isinstance(event, ModelDelta) else None
