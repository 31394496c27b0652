"""Mounts: the other places at which a file or folder is mounted (`mount --bind`). Linux tells them; elsewhere there are none. Mounts nothing."""

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

__all__ = ["Mount", "mounted_names", "other_names", "parsed"]

_TABLE = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which a part of a file system is seen."""

    device: str
    """Which file system."""
    inside: str
    """The folder or file of it that is seen there; empty for all of it."""
    place: str
    """Where, from `/`; empty for `/` itself."""


def mounted_names(path: str, extent: str) -> list[str]:
    """Return the other paths of a file or folder, and of what is mounted below it as far as a call reaches.

    Args:
        path: From `/`, links resolved.
        extent: How much below it the call may reach: `itself`, `children` or `tree`.
    """
    return other_names(path, extent, _mounts(int(time.monotonic())))


def other_names(path: str, extent: str, mounts: Sequence[Mount]) -> list[str]:
    """Return the same, of these mounts, of which a later one hides an earlier one at its place."""
    path = path.rstrip("/")
    own = next((one for one in reversed(mounts) if _is_within(path, one.place)), None)
    seen = [] if own is None else [(own.device, own.inside + path[len(own.place) :])]
    if extent != "itself":
        seen += [(one.device, one.inside) for one in mounts if one.place != path and _is_within(one.place, path)]
    found = [
        one.place + inside[len(one.inside) :]
        for device, inside in seen
        for one in mounts
        if one.device == device and _is_within(inside, one.inside)
    ]
    return [one for one in dict.fromkeys(found) if one != path]


def parsed(table: str) -> tuple[Mount, ...]:
    """Read a table of mounts, in the form of `/proc/self/mountinfo`."""
    rows = (line.split(" ") for line in table.splitlines())
    return tuple(
        Mount(device=row[2], inside=_plain(row[3]), place=_plain(row[4]))
        for row in sorted(rows, key=_depth)
        if len(row) > 4
    )


@lru_cache(maxsize=1)
def _mounts(second: int) -> tuple[Mount, ...]:
    """Return the mounts, where a file system is seen at several places.

    The table is read once in a second: that takes longer than a decision, and who mounts is the administrator.
    """
    try:
        found = parsed(_TABLE.read_text("utf-8", "surrogateescape"))
    except OSError:
        return ()
    return found if len({one.device for one in found}) < len(found) else ()


def _depth(row: Sequence[str]) -> int:
    return len(row[4]) if len(row) > 4 else 0  # the longest place that a path lies in is where it is


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text).rstrip("/")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
