"""The root guard: opens what lies below one folder, and nothing else. Reads no content and knows no tool.

Every path is walked one name at a time, each name opened relative to the folder opened before it and never through a
symbolic link; links are read and walked the same way. So what was checked is what is open, whatever has its name later.
`openat2(RESOLVE_BENEATH)` does the same in one system call, but Linux alone has it and Python does not expose it.
"""

import difflib
import errno
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, Rejected
from treadle.errors import shown as shown_value
from treadle.sandboxes.closing import repository_of
from treadle.sandboxes.configured import configured_names
from treadle.sandboxes.own import obeyed_files
from treadle.tools import Subject, ToolContext
from treadle.toolsets.files.watching import Watched, all_names, home_names

__all__ = [
    "Entry",
    "Opened",
    "Root",
    "check_place",
    "from_os_error",
    "listed_as",
    "place_of",
    "refusal",
    "shown",
    "spelled",
    "split",
]

_MAX_PATH_CHARS = 4096
_MAX_DETOURS = 100  # links and `..` of one path: enough for people, an end for a ring of links
_MAX_WRITTEN = 50  # paths of one call whose repositories are looked for
_MAX_SIBLINGS = 2000  # names compared with a misspelt one
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a FIFO would block without NONBLOCK
_KERNEL_FOLDERS = frozenset({"dev", "proc", "sys"})  # not files, though some look like them; matters for the root "/"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder that was checked and is open."""

    descriptor: int
    """Closed by the guard, when its `with` block ends."""
    names: tuple[str, ...]
    """Where it really is below the root, links resolved."""
    is_folder: bool
    size: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One name in a folder. A link is neither file nor folder here."""

    name: str
    is_file: bool
    is_folder: bool
    is_link: bool
    size: int = 0
    """Bytes, of a file."""


class Root:
    """One folder, and everything below it.

    Example:
        with Root("docs").open("guide/start.md") as opened: ...

    Args:
        folder: The folder. `~` and variables are not expanded, here or in any path below it.

    Raises:
        ConfigurationError: There is no such folder.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | Path):
            raise ConfigurationError(f"The root of the file tools must be a path; got {shown_value(folder)}.")
        if find_unencodable(str(folder)) is not None or "\0" in str(folder):
            raise ConfigurationError(
                f"The root of the file tools is not a path of a file system: {shown_value(folder)}."
            )
        given = os.path.abspath(folder)  # noqa: PTH100 - Path.absolute keeps `..`, which must go without reading links
        self._path = os.path.realpath(given)
        if not Path(self._path).is_dir():
            raise ConfigurationError(f"The root of the file tools is not a folder: {given}")
        self._spellings = tuple(split(path) for path in dict.fromkeys((self._path, given)))

    @property
    def path(self) -> str:
        """The folder, from `/`, links resolved."""
        return self._path

    @contextmanager
    def open(self, path: str | Sequence[str], *, place: Sequence[str] | None = None) -> Iterator[Opened]:
        """Open a file or folder for reading, and close it after the block.

        Args:
            path: As the model wrote it (relative to the root, or absolute within it), or names below the root.
            place: Where it must really be, as names below the root; None for anywhere below it.

        Raises:
            Rejected: It is outside, elsewhere, missing, unreadable, or neither a file nor a folder.
        """
        asked = path if isinstance(path, str) else "/".join(path)
        names = self.names(path) if isinstance(path, str) else tuple(path)
        try:
            opened = self._resolve(asked, names)
        except OSError as error:
            raise from_os_error(asked, error) from error
        try:
            check_place(asked, opened.names, place)
            yield opened
        finally:
            os.close(opened.descriptor)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names below the root that a path spells, `..` and links not yet resolved.

        Raises:
            Rejected: The path is absolute and not below the root, or can be no path.
        """
        if "\0" in path or len(path) > _MAX_PATH_CHARS or not _is_encodable(path):
            raise refusal(
                f"This is not a valid path: {shown(path)}. Use at most {_MAX_PATH_CHARS:,} characters of UTF-8, without a zero byte.",
                "invalid_path",
            )
        return self._below(path, asked=path) if path.startswith("/") else split(path)

    def canonical(self, path: str) -> tuple[str, ...]:
        """Return the names below the root of what a path really is: links and `..` resolved, also where it does not exist yet.

        Raises:
            Rejected: It lies outside the root, or can be no path.
        """
        try:
            with self.open(path) as opened:
                return opened.names
        except Rejected as refused:
            if isinstance(refused, _Missing) and ".." not in refused.names:
                return refused.names
            try:
                place = os.path.realpath(Path(self._path, *self.names(path)))
            except OSError as error:  # what was a link became something else between two looks at it
                raise from_os_error(path, error) from error
            return self._below(place, asked=path)

    def resource(self, path: str) -> str:
        """Return what calls on the same file claim, by whichever name or root: `file:` and where it really is.

        Raises:
            Rejected: It lies outside the root, or can be no path.
        """
        return f"file:{Path(self._path, *self.canonical(path))}"

    def check(self, path: str) -> None:
        """Look where a path leads, before anybody is asked about it. What is open later is checked again.

        Raises:
            Rejected: It lies outside the root, or can be no path.
        """
        self.canonical(path)

    def subject(
        self, path: str, *, extent: Literal["itself", "children", "tree"] = "itself", below: Sequence[str] = ()
    ) -> Subject:
        """Return what rules on paths see: the path relative to the root, and from `/`.

        A path that is outside keeps its own spelling from `/`: the tool will refuse it.

        Args:
            extent: How much below it the call may reach.
            below: Names of folders below it to which the call confines itself.
        """
        return Subject(
            names=self._names_of(path),
            extent=extent,
            below="/".join(below),
            resolve=self._as_named,
            among=self,
        )

    def watch(self, names: Sequence[str], folders: Sequence[str]) -> Watched:
        """Return what is known of the names that rules have, kept true cheaply."""
        return Watched(self, names, folders)

    def all_names(self, path: str, extent: Literal["itself", "children", "tree"] = "itself") -> Collection[str] | None:
        """Return the names below the root of the files with several that a call reaches; None where there are too many files to search."""
        found = all_names(path, extent, self._path)
        return None if found is None else [one.removeprefix(self._path).lstrip("/") for one in found]

    def home_names(
        self, path: str | None, extent: Literal["itself", "children", "tree"] = "itself"
    ) -> Collection[str] | None:
        """Return the protected files of the person's home that a call reaches by other names; None where there are too many files to search."""
        return home_names(path or self._path, "tree" if path is None else extent, self._path)

    def obeyed_files(self, paths: Sequence[str] = ()) -> Sequence[str]:
        """Return the files that say what Treadle itself may do, wherever they lie, and those here that git is configured to run or read.

        Args:
            paths: From `/`: what a call writes. The repositories in which it lies count, too.
        """
        found = (repository_of(os.path.dirname(one)) for one in dict.fromkeys(paths[:_MAX_WRITTEN]))  # noqa: PTH120 - texts
        trees = [top for one in found if one is not None and (top := one[0]).startswith(f"{self._path.rstrip('/')}/")]
        named = [f"{self._path.rstrip('/')}/{one}" for one in configured_names(self._path, trees)]
        return (*obeyed_files(), *named, *map(os.path.realpath, named))

    def begin(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the folder at which the path of a rule begins, and its names from there: the root, or `/` for one outside of it."""
        try:
            return self._path, self.names(name)
        except Rejected:
            return "/", split(name) if name.startswith("/") else ("..",)  # what is not a path is never known

    def both_names(self, path: str) -> tuple[str, ...]:
        """Return a path from `/` as rules on paths see it: relative to the root, where it lies below it, and from `/`."""
        names = split(path)
        own = self._spellings[0]
        return ("/".join(names[len(own) :]) or ".", path) if names[: len(own)] == own else (path,)

    def _names_of(self, path: str) -> tuple[str, ...]:
        try:
            names = self.canonical(path)
        except Rejected:
            names = (*self._spellings[0], *split(path)) if not path.startswith("/") else split(path)
            return ("/" + "/".join(names),)
        return ("/".join(names) or ".", "/" + "/".join((*self._spellings[0], *names)))

    def _as_named(self, other: str) -> tuple[str, ...]:
        """Return the names of the path of a rule, links resolved."""
        start, names = self.begin(other)
        if start != self._path:
            return self.both_names(os.path.realpath("/".join(("", *names))))
        return self._plain_names(names) or self._names_of(other)

    def _plain_names(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the names of a path none of whose parts is a link or `..`, without opening it; None for any other."""
        if ".." in names:
            return None
        here = self._path
        for name in names:
            here = f"{here}/{name}"
            try:
                if stat.S_ISLNK(os.lstat(here).st_mode):
                    return None
            except OSError:
                break  # what does not exist links to nothing
        return ("/".join(names) or ".", "/" + "/".join((*self._spellings[0], *names)))

    def entries(self, opened: Opened) -> list[Entry]:
        """Return what an opened folder holds, in the order of the full paths below it."""
        with os.scandir(opened.descriptor) as scan:
            found = [_entry(item) for item in scan]
        return sorted(found, key=lambda entry: entry.name + "/" if entry.is_folder else entry.name)

    def _below(self, path: str, *, asked: str) -> tuple[str, ...]:
        names = split(path)
        for root in self._spellings:
            if names[: len(root)] == root:  # names, not characters: the sibling `root_evil` is outside
                return names[len(root) :]
        raise _outside(asked)

    def _resolve(self, asked: str, names: tuple[str, ...]) -> Opened:
        for _ in range(_MAX_DETOURS):
            found = self._descend(asked, names)
            if isinstance(found, Opened):
                return found
            names = found
        raise refusal(
            f"The path {shown(asked)} leads through too many symbolic links. Use the path of the file itself.",
            "invalid_path",
        )

    def _descend(self, asked: str, names: tuple[str, ...]) -> Opened | tuple[str, ...]:
        """Walk down from the root. Return what is open there, or, at a link or `..`, the names to walk instead."""
        if self._path == "/" and names[:1] and names[0] in _KERNEL_FOLDERS:
            raise refusal(
                f"The path {shown(asked)} belongs to the kernel (/proc, /sys, /dev) and is never opened.",
                "outside_root",
            )
        folder = os.open(self._path, _FOLDER)
        try:
            for index, name in enumerate(names):
                before, rest = names[:index], names[index + 1 :]
                if name == "..":
                    if not before:
                        raise _outside(asked)
                    return before[:-1] + rest
                status = _status(name, folder)
                if status is None:
                    return (*before, _spelled_so(name, folder, asked, before, rest), *rest)
                if stat.S_ISLNK(status.st_mode):
                    return self._detour(asked, before, os.readlink(name, dir_fd=folder)) + rest
                inner = _open_checked(name, folder, status, asked)
                os.close(folder)
                folder = inner
            return _opened(folder, names)
        finally:
            os.close(folder)

    def _detour(self, asked: str, before: tuple[str, ...], target: str) -> tuple[str, ...]:
        return self._below(target, asked=asked) if target.startswith("/") else before + split(target)


def split(path: str) -> tuple[str, ...]:
    """Return the names of a path, empty ones and `.` left out."""
    return tuple(name for name in path.split("/") if name not in ("", "."))


def spelled(path: str) -> str:
    """Return a path as text that any encoder takes, on one line. `Root.open` takes it again."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shown(path: str) -> str:
    """Return a path as `spelled` does, of bounded length."""
    text = spelled(path)
    return text if len(text) <= 300 else text[:300] + "…"


def refusal(message: str, code: str, near: Sequence[str] = ()) -> Rejected:
    """Return the one form of error that these tools raise."""
    body: dict[str, object] = {"error": message}
    if near:
        body["did_you_mean"] = list(near)
    return Rejected(body, code=code)


def check_place(asked: str, names: Sequence[str], place: Sequence[str] | None) -> None:
    """Refuse a path that leads elsewhere than to where it led when it was decided on.

    Args:
        names: Where it leads now, below the root.
        place: Where it led; None where nobody has said.
    """
    if place is not None and tuple(names) != tuple(place):
        raise refusal(
            f"{shown(asked)} leads to {shown('/'.join(names) or '.')} now, and led to {shown('/'.join(place) or '.')} when the call was "
            "decided on. Call again.",
            "stale",
        )


def place_of(ctx: ToolContext, argument: str = "path") -> tuple[str, ...] | None:
    """Return where the path of a call led when the call was decided on, as names below the root; None where nobody has said."""
    names = ctx.subjects.get(argument)
    return None if names is None else split(names[0])


class _Missing(Rejected):
    """Nothing is where a path leads."""

    def __init__(self, asked: str, names: tuple[str, ...], *, near: Sequence[str]) -> None:
        found = refusal(f"File not found: {shown(asked)}", "not_found", near)
        super().__init__(found.body, code=found.code)
        self.names = names
        """Where it would be, below the root, links resolved as far as it exists."""


def _outside(asked: str) -> Rejected:
    return refusal(f"Outside the root folder: {shown(asked)}. Paths are relative to the root folder.", "outside_root")


def from_os_error(asked: str, error: OSError) -> Exception:
    """Return what a tool raises for an error of the system: a refusal that names the path; the error itself where it has nothing to do with the path."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.ELOOP | errno.EINVAL:
            # The last two: what was a file became a link, or the reverse, between two looks at it.
            return refusal(f"File not found: {shown(asked)}", "not_found")
        case errno.EACCES | errno.EPERM:
            return refusal(f"Permission denied: {shown(asked)}", "permission_denied")
        case errno.ENAMETOOLONG:
            return refusal(f"Not a path: {shown(asked)}", "invalid_path")
        case _:
            return error


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def listed_as(name: str, folder: int) -> str | None:
    """Return the name that listings spell like this one, which does not exist: a line end in it is shown as `\\n`."""
    if "\\" not in name:
        return None
    with os.scandir(folder) as scan:
        return next((item.name for item in scan if spelled(item.name) == name), None)


def _spelled_so(name: str, folder: int, asked: str, before: tuple[str, ...], rest: tuple[str, ...]) -> str:
    found = listed_as(name, folder)
    if found is not None:
        return found
    raise _Missing(asked, (*before, name, *rest), near=_near(name, folder, before))


def _near(name: str, folder: int, before: tuple[str, ...]) -> list[str]:
    with os.scandir(folder) as scan:
        siblings = {item.name.casefold(): item.name for item in islice(scan, _MAX_SIBLINGS)}
    close = difflib.get_close_matches(name.casefold(), siblings, n=3, cutoff=0.75)
    return [spelled("/".join((*before, siblings[key]))) for key in close]


def _open_checked(name: str, folder: int, status: os.stat_result, asked: str) -> int:
    """Open a file or folder that `status` describes. The kind is asked again of what is open: names may change."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise refusal(f"Neither a file nor a folder: {shown(asked)}", "not_a_file")
    flags = _FOLDER if stat.S_ISDIR(status.st_mode) else _FILE
    opened = os.open(name, flags, dir_fd=folder)
    if stat.S_IFMT(os.fstat(opened).st_mode) != stat.S_IFMT(status.st_mode):
        os.close(opened)
        raise refusal(f"File not found: {shown(asked)}", "not_found")
    return opened


def _opened(descriptor: int, names: tuple[str, ...]) -> Opened:
    status = os.fstat(descriptor)
    return Opened(
        descriptor=os.dup(descriptor), names=names, is_folder=stat.S_ISDIR(status.st_mode), size=status.st_size
    )


def _entry(item: "os.DirEntry[str]") -> Entry:
    is_file = item.is_file(follow_symlinks=False)
    return Entry(
        name=item.name,
        is_file=is_file,
        is_folder=item.is_dir(follow_symlinks=False),
        is_link=item.is_symlink(),
        size=_size(item) if is_file else 0,
    )


def _size(item: "os.DirEntry[str]") -> int:
    try:
        return item.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # deleted since it was listed
        return 0
