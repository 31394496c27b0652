"""Room: waits until a confined program has used up its share of the disk. Ends nothing itself, and counts nothing (`keeper.DiskUse` does)."""

import asyncio

from treadle.sandboxes.keeper import DiskUse

__all__ = ["Room"]

_LOOK_SECONDS = 0.1


class Room:
    """What one program may take of the file systems of its writable folders, watched from outside while it runs.

    Args:
        use: Made before the program starts.
    """

    def __init__(self, use: DiskUse) -> None:
        self._use = use
        self.is_used_up = False

    async def wait_used_up(self) -> None:
        """Return once the limit is reached."""
        while not self.is_used_up:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                if (taken := self._use.taken()) > 0:
                    # Adding up takes as long as the folders are large: the event loop is not to wait for it.
                    self.is_used_up = await asyncio.to_thread(self._use.is_used_up, taken)
            except OSError:  # a folder is gone: nobody can count in it any more, as in the keeper
                self.is_used_up = True
