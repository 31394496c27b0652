"""Files next to a SQLite journal in which followers read what a model says while it says it. Nothing here is kept."""

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from treadle.errors import JournalError

__all__ = ["LiveFolder"]

MOST_BYTES = 1 << 20
"""A file that has grown beyond this begins anew with the next answer."""
SPOILED = b"!\n"
"""What each write begins with: it ends a line that a full disk has cut off, so that nobody reads it. That line is written again."""
AGAIN_SECONDS = 0.01
"""A follower tries again after so long where another process removes the file at that moment."""


class LiveFolder:
    """The port `HasLive`: one file for each session that is followed, written once for all who do. Other sessions cost nothing.

    Each follower holds a shared lock on the file, which ends with its process. Who gets the lock alone removes the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Write in this thread: it is not synced, and takes less time than another thread would need to begin."""
        path = self._folder / _digest(session_id)
        try:
            with ExitStack() as stack:
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, file)
                return _write(path, file, number, pieces, told)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise JournalError(f"The file of followers cannot be written: {error}") from error

    @asynccontextmanager
    async def hear_live(self, session_id: str) -> AsyncIterator[Callable[[], list[tuple[int, str]]]]:
        """Make the file that the followers share. Raises OSError: this process may not write next to the journal."""
        path = self._folder / _digest(session_id)
        while (file := _shared(path)) is None:  # noqa: ASYNC110 - the other process tells nobody that it has removed it
            await asyncio.sleep(AGAIN_SECONDS)
        try:
            yield _Reader(file).read
        finally:
            if _is_alone(file):
                _remove(path)
            os.close(file)


def _write(path: Path, file: int, number: int, pieces: Sequence[str], told: int) -> int:
    if _is_alone(file):  # those who followed have died
        _remove(path)
        return 0
    size = os.fstat(file).st_size
    if not told and size > MOST_BYTES:
        os.ftruncate(file, 0)
    known = told if size else 0  # an empty file is that of a new follower, who knows nothing
    lines = "".join(f"{number} {piece}" for piece in pieces[known:]).encode()
    written = os.write(file, SPOILED + lines) - len(SPOILED)
    return known + lines.count(b"\n", 0, max(written, 0))


def _shared(path: Path) -> int | None:
    """Open the file that all followers of a session share; None where another process removes it at this moment."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(BlockingIOError, FileNotFoundError), ExitStack() as stack:
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file), path.stat()):
            stack.pop_all()
            return file
    return None


def _is_alone(file: int) -> bool:
    """Whether no other process follows. If so, none can begin to until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # others are followed
        path.parent.rmdir()


class _Reader:
    """What one follower has read of the file."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._rest = b""

    def read(self) -> list[tuple[int, str]]:
        """Return the lines that have come since, each with the number of its text."""
        if os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR):  # it has begun anew
            os.lseek(self._file, 0, os.SEEK_SET)
            self._rest = b""
        grown = b"".join(iter(lambda: os.read(self._file, 1 << 20), b""))
        *lines, self._rest = (self._rest + grown).split(b"\n")
        parts = [line.partition(b" ") for line in lines]
        return [(int(number), f"{text.decode(errors='replace')}\n") for number, _, text in parts if number.isdigit()]


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]
