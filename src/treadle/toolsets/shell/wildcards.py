"""Wildcards: which names a pattern of the shell matches in a folder, and which links are in it, by a bounded look. Opens no file."""

import fnmatch
import os
from collections.abc import Iterator, Sequence

__all__ = ["links_in", "names_matching"]

_MAX_LOOKED_AT = 5000
"""Names that are looked at for one pattern."""
_MAX_WALKED = 20_000
"""Names that are looked at for links."""
_WILD = frozenset("*?[")


def names_matching(folder: str, pattern: str) -> Sequence[str] | None:
    """Return the names that a pattern may become, and the pattern's own text, which it stays where nothing matches.

    None where there are too many names to look at. Hidden names count only where the pattern begins with a dot, as for the shell.

    Args:
        folder: Where the line starts.
        pattern: As `glob.glob` reads it. `~` is the home folder.
    """
    room = [_MAX_LOOKED_AT]
    expanded = os.path.expanduser(pattern)  # noqa: PTH111 - a pattern is not a path
    found = list(_matching(folder, "/" if expanded.startswith("/") else "", expanded.lstrip("/").split("/"), room))
    return [*found, _literal(expanded)] if room[0] > 0 else None


def links_in(folder: str, *, is_deep: bool) -> Sequence[str] | None:
    """Return the links in a folder, from `/`. None where there are too many names to look at.

    Args:
        is_deep: Whether the folders in it are looked through, too.
    """
    found: list[str] = []
    waiting, room = [folder], _MAX_WALKED
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    room -= 1
                    if room <= 0:
                        return None
                    if entry.is_symlink():
                        found.append(entry.path)
                    elif is_deep and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # not a folder, or nobody's to read
            continue
    return found


def _matching(folder: str, before: str, parts: Sequence[str], room: list[int]) -> Iterator[str]:
    if not parts or room[0] <= 0:
        yield before
        return
    first, rest = parts[0], parts[1:]
    if not _WILD & set(first):
        yield from _matching(folder, f"{before}{first}/" if rest else f"{before}{first}", rest, room)
        return
    for name in _names(os.path.join(folder, before), room):  # noqa: PTH118 - one of many names
        if fnmatch.fnmatchcase(name, first) and (not name.startswith(".") or first.startswith(".")):
            yield from _matching(folder, f"{before}{name}/" if rest else f"{before}{name}", rest, room)


def _names(place: str, room: list[int]) -> Iterator[str]:
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                room[0] -= 1
                if room[0] <= 0:
                    return
                yield entry.name
    except (OSError, ValueError):  # not a folder, or nobody's to read: the pattern matches nothing there
        return


def _literal(pattern: str) -> str:
    return pattern.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")
