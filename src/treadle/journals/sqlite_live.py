"""Files of followers next to a SQLite journal: what a model says while it says it, a line each. Nothing here is kept."""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from treadle.errors import JournalError

__all__ = ["LiveFolder"]

TOUCH_SECONDS = 2.0
"""How often a follower shows that it lives."""
STALE_SECONDS = 30.0
"""After so long without a sign of life its file is removed."""


class LiveFolder:
    """The port `HasLive`, in a folder for each session, which exists as long as somebody follows: others cost nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, tuple[int, int]] = {}
        """For each follower's file, how many pieces of which text it has."""

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        place = self._folder / _digest(session_id)
        if not place.is_dir():
            return told
        try:
            return await asyncio.to_thread(self._write, place, number, pieces)
        except OSError as error:
            raise JournalError(f"A follower's file cannot be written: {error}") from error

    def _write(self, place: Path, number: int, pieces: Sequence[str]) -> int:
        count, files = len(pieces), _files(place)
        for gone in {path for path in self._told if path.startswith(f"{place}/")} - {entry.path for entry in files}:
            del self._told[gone]
        for entry in files:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                Path(entry.path).unlink(missing_ok=True)
                continue
            last, known = self._told.get(entry.path, (number, 0))
            fresh = pieces[known if last == number else 0 : count]
            descriptor = os.open(entry.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(descriptor, "".join(f"{number} {piece}" for piece in fresh).encode())
            finally:
                os.close(descriptor)
            self._told[entry.path] = number, count
        return count

    @asynccontextmanager
    async def hear_live(self, session_id: str) -> AsyncIterator[Callable[[], list[tuple[int, str]]]]:
        """Leave a file for as long as it is followed. Raises OSError: this process may not write next to the journal."""
        reader = _Reader(self._folder / _digest(session_id))
        try:
            yield reader.read
        finally:
            reader.close()


class _Reader:
    """A follower's file, and what was written into it."""

    def __init__(self, place: Path) -> None:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        self._descriptor, path = tempfile.mkstemp(prefix="follower.", dir=place)
        self._path = Path(path)
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
        with suppress(OSError):  # the last follower leaves no folder behind
            self._path.parent.rmdir()
            self._path.parent.parent.rmdir()


def _files(place: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(place) as entries:
            return [one for one in entries if one.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]
