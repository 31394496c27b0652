"""What a model says while it says it, told to followers in other processes. Nothing here is kept.

The pieces of one answer are one text, a line each. Its number is that of the answer's `model.started`.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

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
from treadle.redaction import redacted_logger
from treadle.resolve.journals import SystemRandomness

__all__ = ["LiveTeller", "live_line", "with_live"]


# --- What a model says while it says it, in files next to a journal that is a file. Nothing here is kept.

TOUCH_SECONDS = 2.0
"""How often a follower shows that it lives."""
STALE_SECONDS = 30.0
"""After so long without a sign of life its file is removed."""


def live_folder(location: str) -> Path | None:
    """Return where the followers of a journal leave their files; None for a journal that is not a file of this machine."""
    return Path(f"{location}-live") if Path(location).is_absolute() and Path(location).exists() else None


class FolderLine:
    """The port `HasLive`, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, tuple[int, int]] = {}
        """For each follower's file, how many pieces of which text it has."""

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        try:
            return await asyncio.to_thread(self._write, _digest(session_id), number, pieces)
        except OSError as error:
            raise JournalError(f"A follower's file cannot be written: {error}") from error

    def _write(self, beginning: str, number: int, pieces: Sequence[str]) -> int:
        count, files = len(pieces), _files(self._folder, beginning)
        for gone in {name for name in self._told if name.startswith(beginning)} - {entry.name for entry in files}:
            del self._told[gone]
        for entry in files:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                Path(entry.path).unlink(missing_ok=True)
                continue
            last, known = self._told.get(entry.name, (number, 0))
            fresh = pieces[known if last == number else 0 : count]
            descriptor = os.open(entry.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, "".join(f"{number} {piece}" for piece in fresh).encode())
            finally:
                os.close(descriptor)
            self._told[entry.name] = number, count
        return count

    @asynccontextmanager
    async def hear_live(self, session_id: str) -> AsyncIterator[Callable[[], list[tuple[int, str]]]]:
        """Leave a file for as long as it is followed. Raises OSError: this process may not write next to the journal."""
        reader = _Reader(self._folder, session_id)
        try:
            yield reader.read
        finally:
            reader.close()


class _Reader:
    """A follower's file, and what was written into it."""

    def __init__(self, folder: Path, session_id: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / f"{_digest(session_id)}.{SystemRandomness().token()}"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._rest = b""
        self._touched_at = time.monotonic()

    def read(self) -> list[tuple[int, str]]:
        """Return the lines that have come since, each with the number of its text."""
        if time.monotonic() - self._touched_at > TOUCH_SECONDS:
            os.utime(self._descriptor)
            self._touched_at = time.monotonic()
        grown = b"".join(iter(lambda: os.read(self._descriptor, 1 << 20), b""))
        *lines, self._rest = (self._rest + grown).split(b"\n")
        return [(int(number), f"{text.decode()}\n") for number, _, text in (line.partition(b" ") for line in lines)]

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()  # the last follower leaves no folder behind


def _files(folder: Path, beginning: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return [one for one in entries if one.name.startswith(beginning) and one.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]


# --- What a model says while it says it, told to followers in other processes. Nothing here is kept.

logger = redacted_logger(__name__)

FLUSH_SECONDS = 0.05
"""How long pieces of an answer are gathered until they are told."""
GLANCE_SECONDS = 0.05
"""How often a follower looks whether something has come."""
LAST_SECONDS = 5.0
"""How long a follower waits at most for the last pieces of an answer of which some have come."""
MOST_BYTES = 4 * 1024 * 1024
"""How much of one answer is told live: the rest comes with the whole of it."""
END = ".\n"
"""The last line of an answer."""


def live_line(journal: Journal) -> HasLive | None:
    """Return what tells the followers of a journal; None where there is no way to them."""
    folder = live_folder(journal.location)
    if folder is not None:
        return FolderLine(folder)
    return journal if isinstance(journal, HasLive) else None


class LiveTeller:
    """A subscriber that tells the followers of one session what its model says."""

    def __init__(self, line: HasLive, session_id: str) -> None:
        self._line = line
        self._session_id = session_id
        self._answer = _Answer()
        self._flushing: asyncio.Task[None] | None = None
        self._flushes: set[asyncio.Task[None]] = set()

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case ModelStarted() if event.act is None:
                self._begin(event.seq)
            case ModelFinished() | ModelFailed() | RunFinished() | RunPaused() if event.act is None:
                if self._answer.said:
                    self._say(END)
                self._begin(self._answer.number)
            case ModelDelta() if self._answer.bytes < MOST_BYTES:
                self._say(f"{encode_event(event).decode()}\n")

    def _begin(self, number: int) -> None:
        self._answer, self._flushing = _Answer(number), None

    def _say(self, line: str) -> None:
        self._answer.bytes += len(line)
        self._answer.said.append(line)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(self._answer))
            self._flushes.add(self._flushing)  # a loop alone does not keep a task
            self._flushing.add_done_callback(self._flushes.discard)

    async def _flush(self, answer: "_Answer") -> None:
        """Tell the followers what was said of an answer, with what comes within a moment."""
        told = -1
        try:
            while told < answer.told < len(answer.said) or told < 0:
                await asyncio.sleep(FLUSH_SECONDS)
                told = answer.told
                answer.told = await self._line.tell_live(self._session_id, answer.number, answer.said, told)
        except JournalError as error:
            logger.info("A follower could not be told what the model says: %s", error)


class _Answer(msgspec.Struct):
    """What was said of one answer, and how much of it is told."""

    number: int = 0
    said: list[str] = []
    bytes: int = 0
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


async def _last_pieces(order: _Order, heard: _Heard) -> AsyncIterator[ModelDelta]:
    """Give the last pieces of an answer, which are told within a moment, until it ends; none where none has come by then."""
    now = asyncio.get_running_loop().time
    begun = now()
    while True:
        for delta in order.ready(heard.read()):
            yield delta
        waits = LAST_SECONDS if heard.latest == order.latest else 2 * FLUSH_SECONDS
        if heard.ended == order.latest or now() - begun > waits:
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
