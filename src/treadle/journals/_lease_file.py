"""The file by which a session's writer is known: a lock of the operating system, its holder's name, and a counter.

It decides nothing and knows no SQL. The file is never the database's own: closing any descriptor of that would drop the
locks that SQLite holds on it.
"""

import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.errors import JournalError

__all__ = ["Holder", "LockFile", "beat_of", "holder_of", "is_locked", "remove", "try_lock"]

_BEAT_BYTES = 20


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a session."""

    host: str
    pid: int
    since: float
    """Seconds since 1970, by the holder's clock. For people only."""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


class LockFile:
    """A lock file that this process has locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._beats = 0
        holder = Holder(host=socket.gethostname(), pid=os.getpid(), since=time.time())
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _beat_bytes(0) + msgspec.json.encode(holder), 0)

    def beat(self) -> bool:
        """Show that this process lives. Return whether the lock is still ours: whoever takes over removes the file."""
        if not _is_at(self._descriptor, self.path):
            return False
        self._beats += 1
        os.pwrite(self._descriptor, _beat_bytes(self._beats), 0)
        return True

    def drop(self) -> None:
        """Remove the file and let go of the lock."""
        if _is_at(self._descriptor, self.path):
            remove(self.path)
        os.close(self._descriptor)


def try_lock(path: Path) -> LockFile | None:
    """Make the file and lock it; None when somebody holds it.

    Raises:
        JournalError: The folder cannot be written, or its file system has no locks.
    """
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        while (descriptor := _locked(path)) is not None:
            if _is_at(descriptor, path):
                return LockFile(path, descriptor)
            os.close(descriptor)  # it was removed between our opening and our locking it
    except OSError as exc:
        raise _untakeable(path, exc) from exc
    return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock. Makes no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise _untakeable(path, exc) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def beat_of(path: Path) -> bytes:
    """Return the counter, to be compared with itself a moment later; empty where there is none."""
    with suppress(OSError):
        return path.read_bytes()[:_BEAT_BYTES]
    return b""


def holder_of(path: Path) -> Holder | None:
    """Return who wrote the file, if it can be told."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes()[_BEAT_BYTES:], type=Holder)
    return None


def remove(path: Path) -> None:
    with suppress(OSError):  # a file without a lock does no harm, so a folder that forbids it changes nothing
        path.unlink()


def _untakeable(path: Path, fault: OSError) -> JournalError:
    return JournalError(
        f"The lock {path} of a session cannot be taken: {fault.strerror or fault}. Check the rights of the journal's "
        "folder, and that its file system has locks."
    )


def _locked(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the path still names the file that we have open."""
    try:
        named = path.stat()
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _beat_bytes(count: int) -> bytes:
    return b"%0*d" % (_BEAT_BYTES, count)
