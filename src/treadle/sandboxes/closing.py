"""Closing: takes protected names from what one program has made in some folders. It imports nothing of Treadle: the keeper reads it as a file of its own."""

# ruff: noqa: PTH101, PTH112, PTH114, PTH115, PTH119, PTH120, PTH123 - no heavy imports, as in the keeper

import contextlib
import os
import re
import stat
import time

__all__ = ["CONTINUED", "ClosedNames", "bytes_of", "entries_of", "existing", "is_there", "looked_into", "text_of"]

_MOST_BYTES = 1_000_000
_LONGEST_NAME = 255
_BEGAN = time.time() - 0.01
"""When this process began, but for how far the clock of a file system may lag behind ours."""
_LOOKING = stat.S_IRUSR | stat.S_IXUSR
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_STRATEGY = r"(?:ort|recursive|resolve|octopus|ours|subtree)?[ \t]*"
CONTINUED = {
    "rebase-merge/git-rebase-todo": re.compile(r"^[ \t\r]*(x|exec)\b", re.MULTILINE),
    "rebase-merge/strategy": re.compile(rf"\A(?!{_STRATEGY}\n?\Z)"),
    "sequencer/opts": re.compile(rf"strategy[ \t]*=[ \t]*(?!{_STRATEGY}$)", re.MULTILINE | re.IGNORECASE),
}
"""What git reads when a person continues a rebase or picks more commits, and what in it has git run a program: a strategy is one of those of git,
or the path of a program."""


def entries_of(folder: str) -> "list[os.DirEntry[str]]":
    """Return what is in a folder; nothing of one that is gone, or closed to us. No walk over folders calls itself: a command makes them as deep as it likes."""
    return looked_into(folder) or []


def looked_into(folder: str) -> "list[os.DirEntry[str]] | None":
    """Return what is in a folder; None of one of ours that is shut: what is in it is unknown, and a command may open it again at any moment."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except PermissionError:
        return None if is_there(folder, ours=True) else []
    except OSError:
        return []


def is_there(path: str, *, ours: bool = False) -> bool:
    """Whether a path leads to something that is not a link, or may do so, since its folder is shut.

    Args:
        ours: Whether it must be ours, or may be.
    """
    try:
        status = os.lstat(path)
    except PermissionError:
        return not ours or is_there(os.path.dirname(path), ours=True)
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and (not ours or status.st_uid == os.geteuid())


def existing(paths: "list[str]") -> "list[str]":
    """Return those of some paths that something has. A `*` in the last part of one stands for anything. Looks once into each folder."""
    names: dict[str, set[str]] = {}
    found = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in names:
            names[folder] = {one.name for one in entries_of(folder or "/")}
        begin, star, end = name.partition("*")
        fitting = (one for one in names[folder] if one.startswith(begin) and one.endswith(end)) if star else (name,)
        found += [
            f"{folder.rstrip('/')}/{one}" for one in fitting if one in names[folder] and len(one) >= len(begin + end)
        ]
    return found


def text_of(file: str) -> str:
    """Return what a file holds; nothing for a pipe or a device, which might never answer."""
    return os.fsdecode(bytes_of(file, _MOST_BYTES)).replace("\0", "")


def bytes_of(file: str, most: int) -> bytes:
    """Return the beginning of a file; nothing for a pipe or a device."""
    with contextlib.suppress(OSError), open(os.open(file, _READING), "rb") as content:
        if stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            return content.read(most)
    return b""


class ClosedNames:
    """Protected names that nothing had when this was made, and that one program may not give to anything.

    Nothing can be mounted on a name that does not exist yet without leaving something there. So what has such a name is renamed, in its own
    folder, to a name that no other program looks for, with all that is in it. A link with such a name is made anew where it was replaced, if it is
    older than this process: a younger one may be that of another command, which waits for us to keep it.

    A `HEAD` counts where it makes a repository of its folder, and what a rebase is continued with where it has git run a program.

    Args:
        folders: The writable ones, from `/`, links resolved.
        names: Paths in them. A `*` in the last part of one stands for anything.
    """

    def __init__(self, folders: "tuple[str, ...] | list[str]", names: "tuple[str, ...] | list[str]") -> None:
        self.moved: dict[str, str] = {}
        """The new path of each thing that was renamed, by its old one."""
        self._folders = sorted(folders, key=len, reverse=True)
        self._names = [*names]
        self._added: set[str] = set()
        self._had = set(self._found())
        self._links = {one: os.readlink(one) for one in self._had if os.path.islink(one)}
        """Links that have such a name: nothing can be mounted on one."""
        self._made_anew = {one: target for one, target in self._links.items() if _is_old(one)}
        self._folders_of_names = dict.fromkeys(map(os.path.dirname, self._names))
        self._shut = {one for one in self._folders_of_names if _is_shut(one)}
        """Folders of the person, which no command can open: they are covered."""

    def _found(self) -> "list[str]":
        """Return the paths of those names that something has now."""
        return [one for one in existing(self._names) if one in self._added or _counts(one)]

    def add(self, names: "list[str]") -> None:
        """Close more names. Each counts, also one that something had when this was made."""
        self._names += names
        self._added.update(names)
        self._folders_of_names |= dict.fromkeys(map(os.path.dirname, names))
        self._had.difference_update(names)

    def __enter__(self) -> "ClosedNames":  # noqa: PYI034 - a program that is started often imports no typing
        return self

    def __exit__(self, *_: object) -> None:
        self.set_aside()

    def set_aside(self) -> "dict[str, str]":
        """Rename what has a closed name now, and return it. Cheap where there is nothing."""
        moved: dict[str, str] = {}
        self._open()
        for path in self._found():
            folder = next((one for one in self._folders if path.startswith(f"{one.rstrip('/')}/")), None)
            target = self._links.get(path)
            is_new = path not in self._had or (target is not None and not _leads_to(path, target))
            if is_new and folder is not None:
                with contextlib.suppress(OSError):
                    _rename(folder, path[len(folder.rstrip("/")) + 1 :].split("/"), moved)
        for path, target in self._made_anew.items():
            with (
                contextlib.suppress(OSError),
                _held(os.path.dirname(path)) as at,
                _writable(at),
            ):  # it is there, or its folder is not
                os.symlink(target, os.path.basename(path), dir_fd=at)
        self.moved |= moved
        return moved

    def _open(self) -> None:
        """Open the folders of the names that were shut meanwhile, lest we look."""
        for folder in self._folders_of_names.keys() - self._shut:
            if _is_shut(folder):
                with contextlib.suppress(OSError), _held(folder) as at:
                    os.chmod(f"/proc/self/fd/{at}", stat.S_IMODE(os.fstat(at).st_mode) | stat.S_IRWXU)


@contextlib.contextmanager
def _held(folder: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as above, no typing
    """Hold a folder by its descriptor, which leads where it says: no link is on the way.

    Raises:
        OSError: There is no such folder.
    """
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{at}") != folder:
            raise OSError(f"{folder} leads elsewhere")
        yield at
    finally:
        os.close(at)


def _is_shut(folder: str) -> bool:
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        return stat.S_ISDIR(mode) and mode & _LOOKING != _LOOKING
    return False


@contextlib.contextmanager
def _writable(at: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as above
    """Write in a folder that is held, whatever its mode, which stays."""
    mode = stat.S_IMODE(os.fstat(at).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    os.chmod(f"/proc/self/fd/{at}", mode | stat.S_IRWXU)
    try:
        yield
    finally:
        os.chmod(f"/proc/self/fd/{at}", mode)


def _is_old(path: str) -> bool:
    """Whether a file is older than this process. No program sets the time of the last change of its entry."""
    with contextlib.suppress(OSError):
        return os.lstat(path).st_ctime < _BEGAN
    return False


def _leads_to(path: str, target: str) -> bool:
    return os.path.islink(path) and os.readlink(path) == target


def _counts(path: str) -> bool:
    folder, name = os.path.split(path)
    if name == "HEAD":
        has_own = os.path.isdir(f"{folder}/objects") and os.path.isdir(f"{folder}/refs")
        return has_own or os.path.lexists(f"{folder}/commondir")
    runs = CONTINUED.get("/".join(path.split("/")[-2:]))
    is_long = runs is not None and len(bytes_of(path, _MOST_BYTES)) == _MOST_BYTES
    return runs is None or is_long or runs.search(text_of(path)) is not None


def _rename(folder: str, parts: "list[str]", moved: "dict[str, str]") -> None:
    """Rename the thing of a path, or the link that is on its way: no link is followed."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place, part in enumerate(parts, 1):
            mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
            if place == len(parts) or not stat.S_ISDIR(mode):
                end = f".refused-{os.urandom(4).hex()}"
                other = os.fsdecode(os.fsencode(part)[: _LONGEST_NAME - len(end)]) + end
                with _writable(at):
                    os.rename(part, other, src_dir_fd=at, dst_dir_fd=at)
                path = "/".join([folder, *parts[:place]])
                moved[path] = f"{path[: -len(part)]}{other}"
                return
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = deeper
    finally:
        os.close(at)
