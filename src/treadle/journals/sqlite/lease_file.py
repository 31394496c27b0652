"""The file by which a session's writer is known: a lock of the operating system, its holder's name, and a counter.

It decides nothing and knows no SQL. The file is never the database's own: closing any descriptor of that would drop the
locks that SQLite holds on it.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.errors import JournalError
from treadle.journals.store.lease import Holder

__all__ = ["LockFile", "beat_of", "holder_of", "is_locked", "remove", "try_lock", "untakeable"]

_BEAT_BYTES = 20


class LockFile:
    """A lock file that this process has locked."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._beats = 0

    def sign(self) -> None:
        """Write who we are. A disk that is full refuses."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, _beat_bytes(0) + msgspec.json.encode(Holder.here()), 0)

    def beat(self) -> bool:
        """Show that this process lives. Return whether the lock is still ours: whoever takes over removes the file."""
        if not _is_at(self._descriptor, self.path):
            return False
        self._beats += 1
        os.pwrite(self._descriptor, _beat_bytes(self._beats), 0)
        return True

    def leave_to_parent(self) -> None:
        """In a fork: close our copy of the descriptor, so that the lock ends with the process that took it."""
        os.close(self._descriptor)

    def drop(self) -> None:
        """Remove the file and let go of the lock."""
        if _is_at(self._descriptor, self.path):
            remove(self.path)
        os.close(self._descriptor)


def try_lock(path: str) -> LockFile | None:
    """Make the file and lock it; None when somebody holds it.

    Raises:
        JournalError: The folder cannot be written, or its file system has no locks.
    """
    try:
        while (descriptor := _made(path)) is not None:
            if _is_at(descriptor, path):
                return _signed(LockFile(path, descriptor))
            os.close(descriptor)  # it was removed between our opening and our locking it
    except OSError as exc:
        raise untakeable(path, exc) from exc
    return None


def _signed(lock: LockFile) -> LockFile:
    try:
        lock.sign()
    except BaseException:  # a lock that nobody knows of would keep the session until this process ends
        lock.drop()
        raise
    return lock


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock. Makes no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise untakeable(path, exc) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def beat_of(path: str) -> bytes:
    """Return the counter, to be compared with itself a moment later; empty where there is none."""
    with suppress(OSError):
        return Path(path).read_bytes()[:_BEAT_BYTES]
    return b""


def holder_of(path: str) -> Holder | None:
    """Return who wrote the file, if that is known."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(Path(path).read_bytes()[_BEAT_BYTES:], type=Holder)
    return None


def remove(path: str) -> None:
    with suppress(OSError):  # a file without a lock does no harm, so a folder that forbids it changes nothing
        os.unlink(path)  # noqa: PTH108 - a Path costs more than the call, and every run makes and removes one such file


def untakeable(path: str, fault: OSError) -> JournalError:
    """Return the error of a lock that cannot be made."""
    return JournalError(
        f"The lock {path} of a session cannot be taken: {fault.strerror or fault}. Check the permissions of the journal's "
        "folder, and that its file system has locks."
    )


def _made(path: str) -> int | None:
    """Make and lock the file, and its folder where it is missing; None when somebody holds it."""
    try:
        return _locked(path)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        return _locked(path)


def _locked(path: str) -> int | None:
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


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the path still names the file that we have open."""
    try:
        named = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _beat_bytes(count: int) -> bytes:
    return b"%0*d" % (_BEAT_BYTES, count)
