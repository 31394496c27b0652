"""Walking a folder, and matching what is found against globs. Reads no file and follows no link.

Left out, unless the walk begins inside: folders of tools and packages (`SKIPPED`) and hidden folders. Hidden files are
visited. A link is not followed: what it names is found at its own place, or lies outside.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from treadle.errors import Rejected
from treadle.toolsets.files.root import Root, split
from treadle.toolsets.files.seats import seated

__all__ = ["SKIPPED", "Glob", "literal_folders", "walk"]

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Folders left out beside the hidden ones (`.git`, `.venv`, `.tox`, ...)."""
_MAX_DEPTH = 100
_MAX_ALTERNATIVES = 64

Matcher = Callable[[str], object]


def walk(
    root: Root,
    names: tuple[str, ...],
    *,
    keep: frozenset[str] = frozenset(),
    on_left_out: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, ...]]:
    """Yield the names of every file below a folder, in the order of their paths.

    Args:
        root: The guard that opens each folder, from the root down, so that none is held open.
        names: The folder, below the root.
        keep: Folder names to enter although they are hidden or skipped.
        on_left_out: Called for each folder that cannot be read, or lies more than a hundred deep.
    """
    pending = [(names, True)]
    while pending:
        current, is_folder = pending.pop()
        if not is_folder:
            yield current
        elif len(current) - len(names) < _MAX_DEPTH:
            pending.extend(reversed(_children(root, current, keep, on_left_out)))
        else:
            on_left_out()


def _children(
    root: Root, names: tuple[str, ...], keep: frozenset[str], on_left_out: Callable[[], None]
) -> list[tuple[tuple[str, ...], bool]]:
    try:
        with seated(), root.open(names, place=names) as folder:
            entries = root.entries(folder) if folder.is_folder else []
    except Rejected:  # unreadable, or gone since it was listed
        on_left_out()
        return []
    return [
        ((*names, entry.name), entry.is_folder)
        for entry in entries
        if entry.is_file or (entry.is_folder and (entry.name in keep or _is_visited(entry.name)))
    ]


def _is_visited(folder: str) -> bool:
    return not folder.startswith(".") and folder not in SKIPPED


class Glob:
    """A pattern over paths: `*`, `?`, `[...]` within a name, `**` for any number of folders, `{a,b}` for alternatives.

    Takes time in proportion to pattern and path, whatever the pattern: it never backtracks.

    Example:
        Glob("src/**/*.{ts,tsx}").matches(("src", "ui", "app.tsx"))
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_compile(one) for one in _alternatives(pattern)]
        self.folders = frozenset(name for one in _alternatives(pattern) for name in split(one))
        """The names in the pattern: a walk enters a hidden folder that is among them."""

    def matches(self, names: Sequence[str]) -> bool:
        return any(_matches(parts, names) for parts in self._alternatives)


def literal_folders(pattern: str) -> tuple[str, ...]:
    """Return the folders at the beginning of a glob that it names literally: all that it matches lies below them."""
    *folders, _ = split(pattern) or ("",)
    return tuple(takewhile(lambda name: not set(name) & set("*?[]{}\\"), folders)) if ".." not in folders else ()


def _alternatives(pattern: str) -> list[str]:
    """Write out each `{a,b}`. Past a bound, the rest stays as it is and is taken literally."""
    done: list[str] = []
    pending = [pattern]
    while pending:
        one = pending.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if braces is None or len(pending) + len(done) >= _MAX_ALTERNATIVES:
            done.append(one)
        else:
            pending.extend(one[: braces.start()] + word + one[braces.end() :] for word in braces[1].split(","))
    return done


def _compile(pattern: str) -> list[Matcher | None]:
    """Return one matcher a name; None stands for `**`."""
    return [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in split(pattern)]


def _matches(parts: Sequence[Matcher | None], names: Sequence[str]) -> bool:
    # `reached` holds the places in the pattern that the names so far can have come to: a set, so nothing is tried twice.
    reached = _past_stars(parts, {0})
    for name in names:
        ahead = {at + 1 for at in reached if at < len(parts) and (part := parts[at]) is not None and part(name)}
        stays = {at for at in reached if at < len(parts) and parts[at] is None}
        reached = _past_stars(parts, ahead | stays)
    return len(parts) in reached


def _past_stars(parts: Sequence[Matcher | None], places: set[int]) -> set[int]:
    """Add the places behind each `**`, which may stand for no folder at all."""
    for place in sorted(places):
        stars = takewhile(lambda part: part is None, parts[place:])
        places.update(place + behind for behind, _ in enumerate(stars, start=1))
    return places
