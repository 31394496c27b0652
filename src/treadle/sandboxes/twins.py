"""Twins: the other names (hard links) of protected files. Looks only, and changes nothing."""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from treadle.sandboxes.closing import entries_of
from treadle.tools.protected import HOME_FOLDERS, is_protected

__all__ = ["Identity", "home_twins", "linked_files", "names_below"]

Identity: TypeAlias = tuple[int, int]
"""Device and number: the same for all names of one file."""

_MAX_LOOKED_AT = 20_000
_MAX_SEARCHED = 100_000
"""Searched only where a protected file has several names: it may take a second."""


def home_twins() -> dict[Identity, str]:
    """Return the protected files of the person's home that have several names. Takes less than a millisecond."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return linked_files(one for folder in (".", *HOME_FOLDERS) for one in _protected_in(home, folder))


def linked_files(paths: Iterable[str]) -> dict[Identity, str]:
    """Return those of some files, and of the files in some folders, that have several names.

    Raises:
        OSError: There are too many to look at.
    """
    found: dict[Identity, str] = {}
    for number, path in enumerate(one for top in paths for one in _files_of(top)):
        if number >= _MAX_LOOKED_AT:
            raise OSError(f"There are too many files to look for their other names (hard links): {path}")
        try:
            status = os.stat(path)  # noqa: PTH116 - some hundred times for a command
        except OSError:  # gone, or not ours to look at
            continue
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            found[status.st_dev, status.st_ino] = path
    return found


def names_below(folders: Iterable[str], files: Mapping[Identity, str], *, but: Collection[str] = ()) -> dict[str, str]:
    """Return the names that some files have below some folders, each with the name by which the file was known.

    Args:
        but: Files and folders that are not searched.

    Raises:
        OSError: There are too many files to search.
    """
    found: dict[str, str] = {}
    numbers, skipped = {number for _, number in files}, frozenset(but)
    left = [*folders] if files else []
    searched = 0
    while left:
        for entry in entries_of(left.pop()):
            searched += 1
            if searched > _MAX_SEARCHED:
                raise OSError(
                    "A protected file has several names (hard links), and there are too many files to find them all."
                )
            if entry.path in skipped or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            elif entry.inode() in numbers and (known := files.get(_identity(entry))) is not None:
                found[entry.path] = known
    return found


def _protected_in(home: str, folder: str) -> Iterator[str]:
    for entry in entries_of(os.path.normpath(f"{home}/{folder}")):
        if is_protected([os.path.relpath(entry.path, home)]) and entry.is_file():
            yield entry.path


def _files_of(top: str) -> Iterator[str]:
    if not os.path.isdir(top):  # noqa: PTH112 - as above
        yield top
    left = [top]
    while left:
        for entry in entries_of(left.pop()):
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            else:
                yield entry.path


def _identity(entry: "os.DirEntry[str]") -> Identity:
    status = entry.stat(follow_symlinks=False)
    return status.st_dev, status.st_ino
