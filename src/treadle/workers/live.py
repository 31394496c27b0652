"""What a model says while it says it, told to followers in other processes of the same machine. Nothing here is kept.

A follower leaves an empty file beside the journal, in the folder `<journal>-live`. Whoever runs the session finds it and writes
the live events into it, a line each. Without a file nothing is written. A file that its follower has not touched for a while is
removed: its process has died.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
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
from treadle.redaction import redacted_logger
from treadle.resolve.system import SystemRandomness

__all__ = ["LiveReader", "LiveTeller", "live_folder", "with_live"]

logger = redacted_logger(__name__)

FLUSH_SECONDS = 0.05
"""How long pieces of an answer are gathered until they are written."""
GLANCE_SECONDS = 0.05
"""How often a follower looks whether its file has grown."""
TOUCH_SECONDS = 2.0
"""How often a follower shows that it lives."""
STALE_SECONDS = 30.0
"""After so long without a sign of life its file is removed."""
MOST_BYTES = 4 * 1024 * 1024
"""How much of one answer is told live: the rest comes with the whole of it."""


def live_folder(location: str) -> Path | None:
    """Return where the followers of a journal leave their files; None for a journal that is not a file of this machine."""
    return Path(f"{location}-live") if Path(location).is_absolute() and Path(location).exists() else None


class LiveTeller:
    """A subscriber that tells the followers of one session what its model says."""

    def __init__(self, folder: Path, session_id: str) -> None:
        self._folder = folder
        self._beginning = _digest(session_id)
        self._answer = 0
        """The number of the `model.started` whose pieces are told."""
        self._said: list[bytes] = []
        self._bytes = 0
        self._told: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._flushes: set[asyncio.Task[None]] = set()

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case ModelStarted() if event.act is None:
                self._begin(event.seq)
            case ModelFinished() | ModelFailed() | RunFinished() | RunPaused():
                self._begin(self._answer)
            case ModelDelta() if self._bytes < MOST_BYTES:
                line = b"%d %s\n" % (self._answer, encode_event(event))
                self._bytes += len(line)
                self._said.append(line)
                if self._flushing is None or self._flushing.done():
                    self._flushing = asyncio.create_task(self._flush(self._said, self._told))
                    self._flushes.add(self._flushing)  # a loop alone does not keep a task
                    self._flushing.add_done_callback(self._flushes.discard)

    def _begin(self, answer: int) -> None:
        self._answer, self._bytes = answer, 0
        self._said, self._told, self._flushing = [], {}, None

    async def _flush(self, said: list[bytes], told: dict[str, int]) -> None:
        """Write what was said to every follower, from the beginning of this answer on, with what comes within a moment."""
        await asyncio.sleep(FLUSH_SECONDS)
        try:
            await asyncio.to_thread(self._write, said, told)
        except OSError as error:
            logger.info("A follower could not be told what the model says: %s", error)

    def _write(self, said: list[bytes], told: dict[str, int]) -> None:
        count = len(said)
        for entry in _files(self._folder, self._beginning):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                Path(entry.path).unlink(missing_ok=True)
                continue
            descriptor = os.open(entry.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"".join(said[told.get(entry.name, 0) : count]))
            finally:
                os.close(descriptor)
            told[entry.name] = count


class LiveReader:
    """A follower's file, and what was written into it."""

    def __init__(self, folder: Path, session_id: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / f"{_digest(session_id)}.{SystemRandomness().token()}"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._rest = b""
        self._touched_at = time.monotonic()

    def read(self) -> list[tuple[int, ModelDelta]]:
        """Return what has come since, with the number of the `model.started` that they belong to."""
        if time.monotonic() - self._touched_at > TOUCH_SECONDS:
            os.utime(self._descriptor)
            self._touched_at = time.monotonic()
        grown = b"".join(iter(lambda: os.read(self._descriptor, 1 << 20), b""))
        if not grown:
            return []
        *lines, self._rest = (self._rest + grown).split(b"\n")
        return [found for line in lines if (found := _read(line)) is not None]

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()  # the last follower leaves no folder behind


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
    folder: Path, session_id: str, stored: AsyncIterator[AnyEvent], *, is_whole: bool
) -> AsyncIterator[AnyEvent]:
    """Give stored events as they come, and between them what the model says live. Ends where the stored ones end.

    Args:
        is_whole: Whether the stored events begin with the session's first: each answer's beginning is seen then.
    """
    order = _Order(has_seen_any=is_whole)
    with _reading(folder, session_id) as reader:
        coming = asyncio.ensure_future(anext(stored, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=GLANCE_SECONDS)
                if coming.done():
                    event = coming.result()
                    if event is None:
                        return
                    if order.ends(event):  # its last lines are written within a moment
                        await asyncio.sleep(2 * FLUSH_SECONDS)
                        for delta in order.ready(_pieces(reader)):
                            yield delta
                    order.store(event)
                    coming = asyncio.ensure_future(anext(stored, None))
                    yield event
                for delta in order.ready(_pieces(reader)):
                    yield delta
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming


@contextmanager
def _reading(folder: Path, session_id: str) -> Iterator[LiveReader | None]:
    """Leave a file for as long as it is followed; none where this process may not write beside the journal."""
    try:
        reader = LiveReader(folder, session_id)
    except OSError as error:
        logger.info("Answers are not followed while they come, because %s cannot be written: %s", folder, error)
        yield None
        return
    try:
        yield reader
    finally:
        reader.close()


def _pieces(reader: LiveReader | None) -> list[tuple[int, ModelDelta]]:
    return [] if reader is None else reader.read()


def _files(folder: Path, beginning: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return [one for one in entries if one.name.startswith(beginning) and one.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]


def _read(line: bytes) -> tuple[int, ModelDelta] | None:
    answer, _, body = line.partition(b" ")
    try:
        event = decode_event(body)
        return (int(answer), event) if isinstance(event, ModelDelta) else None
    except (JournalError, ValueError):
        return None
