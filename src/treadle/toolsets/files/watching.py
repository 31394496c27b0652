"""Watching: which names of rules are links, or other names of one file. Known once, and found out anew when a folder on the way changes.

Creating, deleting and renaming change a folder's `ctime`, which nobody can set back. A folder that has changed just now may change again
without a new `ctime`, so nothing is kept until it is older than the clock of its file system is coarse.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from treadle.sandboxes.twins import home_twins, names_below
from treadle.toolsets.files.mounts import mounted_names

__all__ = ["Watched", "all_names", "home_names"]

_FINE_NANOSECONDS = 100_000_000
_COARSE_NANOSECONDS = 3_000_000_000
"""How long a change may hide behind the last one: of a file system that counts parts of a second, and of one that does not."""
_MAX_SEARCHED = 10_000
"""Files that are compared with one that has several names, for one call."""
_FEW = 50
"""Files whose names are counted faster than it takes to choose another way."""

_Identity: TypeAlias = tuple[int, int]
_Stamp: TypeAlias = tuple[int, int, int]


class _Folder(Protocol):
    """The folder to which the names of rules are relative."""

    def begin(self, name: str) -> tuple[str, tuple[str, ...]]: ...

    def both_names(self, path: str) -> tuple[str, ...]: ...


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out, and the folders that say whether it is still true."""

    stamps: tuple[tuple[str, _Stamp], ...] = ()
    linked: tuple[str, ...] = ()
    files: dict[_Identity, tuple[str, ...]] = {}
    """Paths that the rules name, by which file they are."""
    is_settled: bool = False
    """Whether none of the folders has changed just now."""


class Watched:
    """The names that one set of rules has, in one folder.

    Args:
        now: Returns the time of the file system in nanoseconds since 1970.
    """

    def __init__(
        self,
        root: _Folder,
        names: Sequence[str],
        folders: Sequence[str],
        *,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._now = now
        self._names = tuple(names)
        self._folders = tuple(folders)
        self._known = _Known()

    def linked(self, moment: dict[str, Any] | None = None) -> Collection[str]:
        """Return the names that lead through a link, or of which nobody can say."""
        return self._current({} if moment is None else moment).linked

    def twins(self, path: str, extent: str = "itself") -> Collection[str] | None:
        """Return the other names of a file, or of what a folder holds; None where there are too many files to search."""
        linked = self._linked_names(path, extent)
        mounted = [form for one in mounted_names(path, extent) for form in self._root.both_names(one)]
        return None if linked is None else [*linked, *mounted]

    def _linked_names(self, path: str, extent: str) -> Collection[str] | None:
        # A search may reach many files, and rules may name many: the smaller of the two mostly settles it alone.
        linked = _linked_files(path, extent, most=max(_FEW, len(self._names) + len(self._folders)))
        if linked is not None and not linked:
            return ()
        found = self._linked_of_rules()
        if found is not None and not found:
            return ()
        linked = _linked_files(path, extent) if linked is None else linked
        if found is None or linked is None:
            return None
        named = [name for identity, names in found.items() if identity in linked for name in names]
        return [form for one in dict.fromkeys(named) if one != path for form in self._root.both_names(one)]

    def _linked_of_rules(self) -> dict[_Identity, list[str]] | None:
        """Return the files with several names to which a rule may apply; None where there are too many files to look at."""
        known = self._current({})
        places = [one for name in known.linked if _exists(one := os.path.realpath(self._spelled(name)))]
        places += [one for named in known.files.values() for one in named]
        places += [self._place(folder) for folder in self._folders]
        return _linked_below(places)

    def _current(self, moment: dict[str, _Stamp | None]) -> _Known:
        known = self._known
        for folder, _ in known.stamps:
            if folder not in moment:
                moment[folder] = _stamp(folder)
        if not known.is_settled or any(moment[folder] != stamp for folder, stamp in known.stamps):
            known = self._known = self._look()
        return known

    def _look(self) -> _Known:
        now = self._now()
        seen: dict[str, os.stat_result | OSError] = {}
        stamps: dict[str, _Stamp | None] = {}
        linked: list[str] = []
        files: dict[_Identity, list[str]] = {}
        for name in self._names:
            place = self._walked(name, seen, stamps)
            if place is None:
                linked.append(name)
            elif isinstance(status := seen.get(place), os.stat_result):
                files.setdefault((status.st_dev, status.st_ino), []).append(place)
        known = tuple((folder, stamp) for folder, stamp in stamps.items() if stamp is not None)
        return _Known(
            stamps=known,
            linked=tuple(linked),
            files={identity: tuple(places) for identity, places in files.items()},
            is_settled=len(known) == len(stamps) and all(_is_old(stamp, now) for _, stamp in known),
        )

    def _walked(
        self, name: str, seen: dict[str, "os.stat_result | OSError"], stamps: dict[str, _Stamp | None]
    ) -> str | None:
        """Return the place that a name spells, as far as it exists; None where a link or `..` leads elsewhere."""
        start, names = self._root.begin(name)
        if ".." in names or not names:  # the folder itself is above all of its names
            return None
        here = start
        for one in names:
            folder, here = here, f"{here.rstrip('/')}/{one}"
            if folder not in stamps:
                stamps[folder] = _stamp(folder)  # before its names are looked at: what changes meanwhile is noticed
            if here not in seen:
                seen[here] = _status(here)
            status = seen[here]
            if isinstance(status, FileNotFoundError | NotADirectoryError):
                return here
            if isinstance(status, OSError) or stat.S_ISLNK(status.st_mode):
                return None
        return here

    def _place(self, folder: str) -> str:
        return os.path.realpath(self._spelled(folder))

    def _spelled(self, name: str) -> str:
        start, names = self._root.begin(name)
        return "/".join((start, *names))


def all_names(path: str, extent: str, root: str) -> Collection[str] | None:
    """Return the names below a folder of the files with several that are reached; None where there are too many files to search."""
    linked = _linked_files(path, extent)
    found = _linked_below([root]) if linked else {}
    return None if found is None or linked is None else [name for one in linked for name in found.get(one, ())]


def home_names(path: str, extent: str, root: str) -> Collection[str] | None:
    """Return the protected files of the person's home, outside of a folder, that are reached by other names; None where too many had to be searched."""
    try:
        status = os.stat(path)  # noqa: PTH116 - before every decision
    except (OSError, ValueError):
        return ()
    is_folder = stat.S_ISDIR(status.st_mode)
    if not _is_linked(status) and not (is_folder and extent == "tree"):  # a listing shows names alone
        return ()
    try:
        foreign = {one: name for one, name in home_twins().items() if not os.path.realpath(name).startswith(f"{root}/")}
        if is_folder:
            return sorted(set(names_below([path], foreign).values()))
    except OSError:
        return None
    return [name for one, name in foreign.items() if one == (status.st_dev, status.st_ino)]


def _linked_files(path: str, extent: str, *, most: int = _MAX_SEARCHED) -> frozenset[_Identity] | None:
    """Return which files with several names a call may reach; None where it may reach more than this many files."""
    try:
        status = os.stat(path)  # noqa: PTH116 - before every decision, and Path takes ten times as long
    except (OSError, ValueError):  # what does not exist has no other name
        return frozenset()
    if not stat.S_ISDIR(status.st_mode):
        return frozenset([(status.st_dev, status.st_ino)] if _is_linked(status) else [])
    if extent == "itself":
        return frozenset()
    found = _linked_below([path], is_deep=extent == "tree", most=most)
    return None if found is None else frozenset(found)


def _linked_below(
    places: Sequence[str], *, is_deep: bool = True, most: int = _MAX_SEARCHED
) -> dict[_Identity, list[str]] | None:
    """Return the files with several names that are, or lie below, these places; None where there are more files than this."""
    found: dict[_Identity, list[str]] = {}
    searched = 0
    for top in dict.fromkeys(places):
        _note(found, top)
        for folder, _, names in os.walk(top):
            searched += len(names) + 1
            if searched > most:
                return None
            for name in names:
                _note(found, f"{folder}/{name}")
            if not is_deep:
                break
    return found


def _note(found: dict[_Identity, list[str]], place: str) -> None:
    status = _status(place)
    if not isinstance(status, OSError) and _is_linked(status):
        found.setdefault((status.st_dev, status.st_ino), []).append(place)


def _is_linked(status: os.stat_result) -> bool:
    """Whether it is a file with several names."""
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode)


def _exists(path: str) -> bool:
    return not isinstance(_status(path), OSError)


def _status(path: str) -> "os.stat_result | OSError":
    try:
        return os.lstat(path)
    except OSError as error:
        return error
    except ValueError:
        return OSError()


def _stamp(folder: str) -> _Stamp | None:
    try:
        status = os.stat(folder)  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _is_old(stamp: _Stamp, now: int) -> bool:
    changed = stamp[2]
    is_fine = changed % 1_000_000_000 != 0
    return changed + (_FINE_NANOSECONDS if is_fine else _COARSE_NANOSECONDS) < now
