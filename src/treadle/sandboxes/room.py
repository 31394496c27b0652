"""Room: how much of the disk a confined program takes, looked at from outside while it runs. Ends nothing itself.

A limit on each file does not bound many files, and quotas need an administrator. So the free space is looked at a few times a second. Once
it has shrunk by the limit, the files that have changed since the start are added up: what others write meanwhile does not count, unless the
space shrinks by twice the limit, as it does where a program writes to files that it has deleted.
"""

import asyncio
import os
import time
from collections.abc import Sequence

__all__ = ["Room"]

_LOOK_SECONDS = 0.1
_BLOCK = 512
"""What `st_blocks` counts in, whatever the file system."""
_COARSE_NANOSECONDS = 10_000_000
"""How far the clock of a file system may lag behind ours."""


class Room:
    """What one program has taken of the file systems of its writable folders.

    Args:
        folders: From `/`, links resolved.
        limit: Bytes that it may take.
    """

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._since = time.time_ns() - _COARSE_NANOSECONDS
        self._free = self._free_now()
        self.is_used_up = False

    async def wait_used_up(self) -> None:
        """Return once the limit is reached."""
        while not self.is_used_up:
            await asyncio.sleep(_LOOK_SECONDS)
            taken = self._free - self._free_now()
            if taken >= self._limit:
                # Adding up takes as long as the folders are large: the event loop is not to wait for it.
                self.is_used_up = taken >= 2 * self._limit or await asyncio.to_thread(self._changed) >= self._limit

    def _free_now(self) -> int:
        free: dict[int, int] = {}
        for folder in self._folders:
            found = os.statvfs(folder)
            free[os.stat(folder).st_dev] = found.f_bfree * found.f_frsize  # noqa: PTH116 - ten times a second
        return sum(free.values())

    def _changed(self) -> int:
        """Return the bytes of all files that have changed since the start. One with several names counts once."""
        found: dict[tuple[int, int], int] = {}
        for top in self._folders:
            for folder, _, names in os.walk(top):
                for name in names:
                    try:
                        status = os.lstat(f"{folder}/{name}")
                    except OSError:  # gone meanwhile
                        continue
                    if status.st_ctime_ns >= self._since:
                        found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        return sum(found.values())
