"""The root guard: opens what lies below one folder, and nothing else. Reads no content and knows no tool.

Every path is walked one name at a time, each name opened relative to the folder opened before it and never through a
symbolic link; links are read and walked the same way. So what was checked is what is open, whatever has its name later.
`openat2(RESOLVE_BENEATH)` does the same in one system call, but Linux alone has it and Python does not expose it.
"""

import contextlib
import difflib
import errno
import fnmatch
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, Rejected
from treadle.errors import shown as shown_value
from treadle.sandboxes.outside import Identity, configured_names, home_links, names_below, repository_of
from treadle.sandboxes.own import obeyed_files
from treadle.tools import JsonObject, Subject, Tool, ToolContext
from treadle.tools.tool import closed_schema

__all__ = [
    "ERROR_SCHEMA",
    "FOLDER_ROOTED",
    "PATH_NAMES",
    "PATTERN",
    "SKIPPED",
    "Entry",
    "Glob",
    "Opened",
    "Place",
    "Root",
    "Watched",
    "check_place",
    "from_os_error",
    "give_way",
    "listed_as",
    "listing_schema",
    "literal_folders",
    "looking",
    "place",
    "place_of",
    "refusal",
    "replace",
    "seated",
    "shown",
    "spelled",
    "split",
    "walk",
]


# --- Watching: which names of rules are links. Known once, and found out anew when a folder on the way changes.

_FINE_NANOSECONDS = 100_000_000
_COARSE_NANOSECONDS = 3_000_000_000
"""How long a change may hide behind the last one: of a file system that counts parts of a second, and of one that does not."""

_Stamp: TypeAlias = tuple[int, int, int]


class _Folder(Protocol):
    """The folder to which the names of rules are relative."""

    def begin(self, name: str) -> tuple[str, tuple[str, ...]]: ...

    def both_names(self, path: str) -> tuple[str, ...]: ...


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out, and the folders that say whether it is still true."""

    stamps: tuple[tuple[str, _Stamp], ...] = ()
    linked: tuple[str, ...] = ()
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
        """Return the names that lead through a link, or may."""
        return self._current({} if moment is None else moment).linked

    def linked_names(self, path: str) -> Collection[str]:
        """Return the other names (hard links) of a file that the rules mean. Looks for them only where the file has several names.

        Raises:
            OSError: The folders that the rules name have too many files to search.
        """
        identity = _linked_file(path)
        if identity is None:
            return ()
        places = [self._place(one) for one in self._folders]
        found = {one for one in places if _linked_file(one) == identity} | names_below(places, {identity: path}).keys()
        return [form for one in sorted(found) if one != path for form in self._root.both_names(one)]

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
        linked = tuple(name for name in self._names if self._is_linked(name, seen, stamps))
        known = tuple((folder, stamp) for folder, stamp in stamps.items() if stamp is not None)
        return _Known(
            stamps=known,
            linked=linked,
            is_settled=len(known) == len(stamps) and all(_is_old(stamp, now) for _, stamp in known),
        )

    def _is_linked(
        self, name: str, seen: dict[str, "os.stat_result | OSError"], stamps: dict[str, _Stamp | None]
    ) -> bool:
        """Whether a link or `..` in a name leads elsewhere, or may."""
        start, names = self._root.begin(name)
        if ".." in names or not names:  # the folder itself is above all of its names
            return True
        here = start
        for one in names:
            folder, here = here, f"{here.rstrip('/')}/{one}"
            if folder not in stamps:
                stamps[folder] = _stamp(folder)  # before its names are looked at: what changes meanwhile is noticed
            if here not in seen:
                seen[here] = _watched_status(here)
            status = seen[here]
            if isinstance(status, FileNotFoundError | NotADirectoryError):
                return False
            if isinstance(status, OSError) or stat.S_ISLNK(status.st_mode):
                return True
        return False

    def _place(self, name: str) -> str:
        start, names = self._root.begin(name)
        return os.path.realpath("/".join((start, *names)))


def _linked_file(path: str) -> Identity | None:
    """Return which file a path leads to, if that has several names (hard links)."""
    try:
        status = os.stat(path)  # noqa: PTH116 - before every decision, and Path takes ten times as long
    except (OSError, ValueError):  # what does not exist has no other name
        return None
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) else None


def _watched_status(path: str) -> "os.stat_result | OSError":
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


# --- The root guard: opens what lies below one folder, and nothing else. Reads no content and knows no tool.

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

    def has_other_names(self, path: str) -> bool:
        """Whether a file has several names (hard links)."""
        return _linked_file(path) is not None

    def home_name(self, path: str) -> str:
        """Return the protected file of the person's home that a file is by another name (hard link); empty for any other."""
        name = "" if (identity := _linked_file(path)) is None else home_links().get(identity, "")
        is_foreign = not f"{os.path.realpath(name)}/".startswith(f"{self._path.rstrip('/')}/")
        return name if name and is_foreign else ""

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


# --- Put a file in its place below the root: whole or not at all, whatever happens in between. Knows no tool and no
# text.

_MAX_PLACING_DETOURS = 40
_PIECE_BYTES = 1 << 20
_SHOWN_OF_NAME = 50
"""Characters of a file's name that the name of its successor has: of four bytes each, with all else still below 255."""
_ACCESS_LIST = "system.posix_acl_access"
_CAPABILITIES = "security.capability"
_ELSE_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
"""What the system says where a name has become something else between two looks at it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file is, or will be: a folder that is open, and a name in it."""

    folder: int
    """The descriptor of the folder, open as long as the `with` block."""
    name: str
    names: tuple[str, ...]
    """Where it really is below the root, links resolved."""
    status: os.stat_result | None
    """What is there; None for a new file."""

    def read(self, *, max_bytes: int) -> bytes | None:
        """Return what is there now; None for a new file.

        Raises:
            Rejected: It is larger than the limit, cannot be read, or has become something else.
        """
        if self.status is None:
            return None
        if self.status.st_size > max_bytes:
            raise refusal(
                f"{shown('/'.join(self.names))} has {self.status.st_size:,} bytes; at most {max_bytes:,} can be edited.",
                "too_large",
            )
        try:
            opened = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self.folder)
        except OSError as error:
            raise _refused(self, error) from error
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise _stale(self)
        with os.fdopen(opened, "rb") as file:
            return file.read(max_bytes + 1)


@contextmanager
def place(root: Root, path: str, *, makes_folders: bool = False, names: Sequence[str] | None = None) -> Iterator[Place]:
    """Open the folder that a file is in, or will be in.

    Args:
        makes_folders: Whether folders that do not exist are made.
        names: Where the file must really be, below the root; None for anywhere below it.

    Raises:
        Rejected: The path leads outside, or elsewhere, is a folder or a device, or its folder does not exist.
    """
    way = root.names(path)
    for _ in range(_MAX_PLACING_DETOURS):
        if not way or way[-1] == "..":
            raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
        if makes_folders:
            _make_folders(root, way if names is None else tuple(names), is_exact=names is not None)
        with root.open(way[:-1]) as opened:
            found = _look(root, path, opened, way[-1])
            if isinstance(found, Place):
                check_place(path, found.names, names)
                yield found
                return
            way = found
    raise refusal(f"Too many links on the way to {shown(path)}", "invalid_path")


def _look(root: Root, path: str, folder: Opened, name: str) -> Place | tuple[str, ...]:
    """Return the place in an open folder; for a link, the names of what it leads to."""
    if not folder.is_folder:
        raise refusal(f"{shown('/'.join(folder.names))} is a file, not a folder.", "not_a_folder")
    try:
        status = _status(name, folder.descriptor)
        if status is None and (listed := listed_as(name, folder.descriptor)) is not None:
            name, status = listed, _status(listed, folder.descriptor)
        if status is None or not stat.S_ISLNK(status.st_mode):
            _check_kind(path, status)
            return Place(folder=folder.descriptor, name=name, names=(*folder.names, name), status=status)
        target = os.readlink(name, dir_fd=folder.descriptor)
    except OSError as error:
        raise from_os_error(path, error) from error
    return root.names(target) if target.startswith("/") else (*folder.names, *split(target))


def replace(at: Place, content: bytes) -> None:
    """Put a content in a place: afterwards the file is the new one, or, where this raises or the process dies, the old one.

    Mode, owner and extended attributes of the old file are kept, but nothing that lets a program do more than who starts it: another content
    does not inherit that. A new file gets the mode that the process's umask leaves.

    Raises:
        Rejected: The folder is read-only, the disk is full, or the file belongs to somebody else and would change its owner.
    """
    temporary = f".{at.name[:_SHOWN_OF_NAME]}.{secrets.token_hex(6)}.treadle-new"
    has_name = False
    try:
        descriptor, has_name = _nameless(at.folder, temporary)
        try:
            _write(descriptor, content)
            _keep(descriptor, at)
            os.fsync(descriptor)
            if not has_name:
                os.link(f"/proc/self/fd/{descriptor}", temporary, dst_dir_fd=at.folder, follow_symlinks=True)
                has_name = True
        finally:
            os.close(descriptor)
        _check_unchanged(at)
        os.rename(temporary, at.name, src_dir_fd=at.folder, dst_dir_fd=at.folder)
        has_name = False
        os.fsync(at.folder)
    except OSError as error:
        raise _refused(at, error) from error
    finally:
        if has_name:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=at.folder)


def _nameless(folder: int, name: str) -> tuple[int, bool]:
    """Open a new file, without a name where the system can: a process that dies leaves nothing behind then. True if it has the name."""
    kind = getattr(os, "O_TMPFILE", None)
    if kind is not None and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - asked once, no path of the person's
        try:
            return os.open(".", kind | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o666, dir_fd=folder), True


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view[:_PIECE_BYTES]) :]


def _keep(descriptor: int, at: Place) -> None:
    """Give the new file the owner, the attributes and the mode of the old one, in this order: a change of owner clears mode bits."""
    if at.status is None:
        return
    # Opened for writing: a file that is read-only for this person is not replaced by way of its folder.
    old = os.open(at.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=at.folder)
    try:
        own = os.fstat(descriptor)
        if (own.st_uid, own.st_gid) != (at.status.st_uid, at.status.st_gid):
            os.fchown(descriptor, at.status.st_uid, at.status.st_gid)
        kept = _attributes(old)
        if _ACCESS_LIST not in kept and _ACCESS_LIST in _attributes(descriptor):
            os.removexattr(descriptor, _ACCESS_LIST)  # the folder's default for new files, which this is not
        for name in (name for name in kept if name != _CAPABILITIES):
            with contextlib.suppress(OSError):  # such as one of the system's own
                os.setxattr(descriptor, name, os.getxattr(old, name))
    finally:
        os.close(old)
    os.fchmod(descriptor, stat.S_IMODE(at.status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _attributes(descriptor: int) -> list[str]:
    return os.listxattr(descriptor) if hasattr(os, "listxattr") else []


def _check_unchanged(at: Place) -> None:
    now = _status(at.name, at.folder)
    if _identity(now) != _identity(at.status):
        raise _stale(at)


def _stale(at: Place) -> Rejected:
    return refusal(f"{shown('/'.join(at.names))} was changed by somebody else just now. Read it again.", "stale")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _check_kind(path: str, status: os.stat_result | None) -> None:
    if status is None or stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
    raise refusal(f"Neither a file nor a folder: {shown(path)}", "not_a_file")


def _make_folders(root: Root, way: tuple[str, ...], *, is_exact: bool) -> None:
    """Make the folders of a file that do not exist, one in the other. A `..` behind a missing folder is refused, as it leads nowhere.

    Args:
        is_exact: Whether the names are those of the place itself, so that none of them is a link.
    """
    names = way[:-1]
    for count in range(len(names), -1, -1):
        try:
            with root.open(names[:count], place=names[:count] if is_exact else None) as opened:
                missing = names[count:]
                if missing and (".." in missing or not opened.is_folder):
                    raise refusal(f"Folder not found: {shown('/'.join(names))}", "not_found")
                _make(opened.descriptor, missing)
                return
        except Rejected as error:
            if error.code != "not_found" or count == 0 or (".." in names[count:]):
                raise


def _make(folder: int, names: tuple[str, ...]) -> None:
    here = os.dup(folder)
    try:
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
    except OSError as error:
        raise refusal(
            f"The folder {shown(error.filename or '')} cannot be created: {error.strerror}.", "cannot_write"
        ) from error
    finally:
        os.close(here)


def _refused(at: Place, error: OSError) -> Rejected:
    path = shown("/".join(at.names))
    match error.errno:
        case errno.EPERM if at.status is not None and at.status.st_uid != os.geteuid():
            return refusal(
                f"{path} belongs to another user, and writing it would change its owner.", "permission_denied"
            )
        case number if number in _ELSE_THERE:
            return _stale(at)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return refusal(f"Permission denied: {path}", "permission_denied")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return refusal(f"There is no space left to write {path}. The file is unchanged.", "no_space")
        case errno.ENAMETOOLONG:
            return refusal(f"Not a path: {path}", "invalid_path")
        case _:
            return refusal(f"{path} could not be written: {error.strerror}. The file is unchanged.", "cannot_write")


# --- Seats: how many threads work on files at one moment. Knows no file.

_SEATS = 2


def _row() -> "SimpleQueue[None]":
    row: SimpleQueue[None] = SimpleQueue()
    for _ in range(_SEATS):
        row.put(None)
    return row


class _Free:
    row = _row()


def _after_fork() -> None:
    _Free.row = _row()  # who sat there in the parent does not exist in the child


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def seated() -> Generator[None]:
    """Wait for a seat, and keep it for the block. Not to be nested."""
    row = _Free.row
    row.get()
    try:
        yield
    finally:
        row.put(None)


def give_way() -> None:
    """Let another thread have our seat, and wait for the next free one. For long work, every few milliseconds."""
    row = _Free.row
    row.put(None)
    row.get()


# --- The contracts that the file tools share: the form of their results and of their errors. Values only.

FOLDER_ROOTED = "Paths are relative to the root folder and must stay in it; `~` and variables are not expanded."

PATH_NAMES = {"file_path": "path"}
"""How other programs call the one parameter that names a file: models that have learned those names use them here, too."""

PATTERN: JsonObject = {"type": "string", "minLength": 1, "maxLength": 500}

ERROR_SCHEMA: JsonObject = closed_schema(
    ["error"], error={"type": "string"}, did_you_mean={"type": "array", "items": {"type": "string"}}
)


def listing_schema(**more: JsonObject) -> JsonObject:
    """Return the schema of `{"output": ..., "count": ...}`: lines as text, their number, and what a tool adds."""
    return closed_schema(
        ["output", "count"],
        output={"type": "string"},
        count={"type": "integer", "minimum": 0},
        truncated={"const": True},
        hint={"type": "string"},
        **more,
    )


# --- Looking: what grep, glob, read and list have in common as tools. Opens nothing itself.


def looking(root: Root, **own: Any) -> Tool:  # Any: the fields in which the four differ
    """Return a tool that only looks at what its path names, or at the root folder where it names nothing."""
    return Tool(
        error_schema=ERROR_SCHEMA,
        effect="read",
        timeout=60.0,
        aliases=PATH_NAMES,
        validate=lambda given: root.check(given.get("path", ".")),
        **own,
    )


# --- Walking a folder, and matching what is found against globs. Reads no file and follows no link.

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
        if entry.is_file
        or (entry.is_folder and (entry.name in keep or not (entry.name.startswith(".") or entry.name in SKIPPED)))
    ]


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
