"""What a process has seen stored of a session, kept beside its locks: so that a log which is lost is noticed.

A journal's last commits lie in its `-wal` file. Where that is removed after a kill, the journal looks whole and lacks them. The
file here outlives a kill, not a power cut; it never holds more than was synced to the disk.
"""

import os
from contextlib import suppress

from treadle.errors import JournalError

__all__ = ["Seen"]

_NAME_BYTES = 32
_HEAD_BYTES = 20


class Seen:
    """The number of a session's last event that was stored durably, in a file."""

    def __init__(self, path: str, name: str) -> None:
        """Open the file; make it where it is missing.

        Args:
            path: The file.
            name: The journal's own name: what was seen of another journal in its place does not count.

        Raises:
            OSError: It cannot be opened or made.
        """
        self._path = path
        self._name = name.encode()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._is_closed = False

    def check(self, session_id: str, head: int) -> None:
        """Compare what the journal holds with what was seen.

        Raises:
            JournalError: It holds less.
        """
        found = os.pread(self._descriptor, _NAME_BYTES + _HEAD_BYTES, 0)
        seen = found[_NAME_BYTES:]
        if found[:_NAME_BYTES] == self._name and seen.isdigit() and int(seen) > head:
            raise JournalError(
                f"Session {session_id!r} ends at event {head} in the journal, though event {int(seen)} was stored: the "
                "journal's -wal file was removed, or an older copy of the journal was put in its place. Put the newer files "
                f"back. To continue with the older events anyway, run: rm {self._path}; what was done since may be done twice."
            )

    def note(self, head: int) -> None:
        """Note that events up to this number are stored. Never raises: without it, a loss is noticed later or not at all."""
        if not self._is_closed:
            with suppress(OSError):
                os.pwrite(self._descriptor, b"%-*s%0*d" % (_NAME_BYTES, self._name, _HEAD_BYTES, head), 0)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
