"""Closing: finds the repositories of git in some folders, and takes protected names from what one program has made there. Starts no git.

It imports nothing of Treadle: the keeper reads it as a file of its own.
"""

# ruff: noqa: PTH101, PTH112, PTH113, PTH114, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH211 - no heavy imports, as in the keeper

import contextlib
import os
import re
import stat

__all__ = ["ClosedNames", "Repositories", "entries_of", "index_files", "is_repository", "linked_repositories", "named",
           "repository_of", "settings_of", "text_of"]  # fmt: skip

_REPOSITORY = ("HEAD", "commondir", "refs", "objects")  # what git looks for at the top of one; the rarest names first
_INNER = ("modules", "worktrees")
_MOST_BYTES, _MOST_FOLDERS = 1_000_000, 300
_NO_PROJECTS = frozenset((".git", "node_modules", "__pycache__"))
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_ORDERS = {
    "rebase-merge": {
        "git-rebase-todo": re.compile(r"^[ \t\r]*(x|exec)\b", re.MULTILINE),
        "strategy": re.compile("/"),
    },
    "rebase-apply": {},
    "sequencer": {"opts": re.compile(r"strategy\s*=.*/", re.IGNORECASE)},
}
"""Folders of what git is in the middle of, files in them, and what in these has it run a program."""


def entries_of(folder: str) -> "list[os.DirEntry[str]]":
    """Return what is in a folder; nothing of one that is gone, or closed to us. No walk over folders calls itself: a command makes them as deep as it likes."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def named(folder: str, name: str) -> "list[str]":
    """Return the path of a name below a folder; where its last part has a `*`, those that exist."""
    if "*" not in name:
        return [f"{folder}/{name}"]
    folder, name = os.path.split(f"{folder}/{name}")
    begin, _, end = name.partition("*")
    found = (one.name for one in entries_of(folder) if one.name.startswith(begin) and one.name.endswith(end))
    return [f"{folder}/{one}" for one in found if len(one) >= len(begin) + len(end)]


def text_of(file: str) -> str:
    """Return what a file holds; nothing for a pipe or a device, which might never answer."""
    with contextlib.suppress(OSError), open(os.open(file, _READING), "rb") as content:
        if stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            return os.fsdecode(content.read(_MOST_BYTES)).replace("\0", "")
    return ""


def settings_of(file: str) -> str:
    """Return what a file of git's configuration holds, with continued lines joined as git does."""
    return text_of(file).replace("\r\n", "\n").replace("\\\n", "")


class Repositories:
    """The repositories that git may enter from some folders, as they are now: their own, those that these name, and others deeper in the folders.

    Others are looked for in the first 300 folders, those near the top first.

    Args:
        folders: From `/`, links resolved.
    """

    def __init__(self, folders: "tuple[str, ...] | list[str]") -> None:
        self.trees: dict[str, str] = {}
        """Each working folder, with the directory of its repository: empty where it has none yet."""
        self.own: dict[str, None] = {}
        """The directories of repositories that lie in the folders. They need not exist: something leads there."""
        self.inner: set[str] = set()
        """Those of submodules and worktrees, by the names that they have in the directory that holds them."""
        self._folders = tuple(folders)
        self._seen: set[str] = set()
        left = [one for folder in folders for one in _deeper(folder)]
        left += [above[0] for one in folders if (above := repository_of(one)) is not None]
        left += folders
        while left:
            tree = left.pop()
            if tree in self.trees:
                continue
            self.trees[tree] = own = _own(tree)
            found = [*self._add(own), *(f"{tree}/{one}" for one in linked_repositories(own))] if own else []
            left += [one for one in found if self.holds(one)]

    def holds(self, path: str) -> bool:
        """Whether a path is one of the folders, or lies below one."""
        return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in self._folders)

    def _add(self, own: str) -> "list[str]":
        """Note the directory of a repository and those that belong to it, and return the working folders of its worktrees."""
        left, trees = [own], []
        while left:
            at = os.path.realpath(left.pop())
            if at in self._seen:
                continue
            self._seen.add(at)
            if self.holds(at):
                self.own[at] = None
            inner = inner_repositories(at)
            self.inner.update(inner)
            left += inner
            if common := text_of(f"{at}/commondir").strip():
                left.append(_placed(at, common))
            if named := text_of(f"{at}/gitdir").strip():
                trees.append(os.path.dirname(_placed(at, named)))
        return trees


def _own(tree: str) -> str:
    """Return the directory of the repository of a working folder, also where it does not exist but is named; empty where there is none."""
    own = f"{tree}/.git"
    if os.path.isfile(own):
        begun, named, path = text_of(own).partition("gitdir:")
        return os.path.realpath(_placed(tree, path.strip())) if named and path.strip() and not begun else ""
    return os.path.realpath(own if os.path.isdir(own) else tree) if os.path.isdir(own) or is_repository(tree) else ""


def _placed(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _deeper(folder: str) -> "list[str]":
    """Return the folders below one that are repositories, or have one."""
    left, found = [folder], []
    for at in left:  # which grows meanwhile: those near the top come first
        entries = {one.name: one for one in entries_of(at)}
        if at != folder and (".git" in entries or ("HEAD" in entries and is_repository(at))):
            found.append(at)
        if len(left) < _MOST_FOLDERS:
            left += [one.path for name, one in entries.items() if name not in _NO_PROJECTS and _is_folder(one)]
            del left[_MOST_FOLDERS:]
    return found


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


def repository_of(folder: str) -> "tuple[str, str] | None":
    """Return the working folder of the repository that a folder belongs to, which may lie above it, and the repository's directory."""
    while not (own := _own(folder)):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder, own


def inner_repositories(own: str) -> "list[str]":
    """Return the directories of submodules and worktrees in that of a repository, but not what is in these.

    A link counts as one, and so does a folder that is closed to us: there may be some behind it.
    """
    found, left = [], [f"{own}/{kind}" for kind in _INNER]
    while left:
        for entry in entries_of(left.pop()):
            if entry.is_symlink() or os.path.lexists(f"{entry.path}/HEAD") or _is_closed(entry.path):
                found.append(entry.path)
            elif _is_folder(entry):
                left.append(entry.path)
    return found


def _is_closed(folder: str) -> bool:
    return os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK)


def is_repository(folder: str) -> bool:
    """Whether git takes a folder for a repository by itself, without a `.git` in it."""
    has_own = os.path.isdir(f"{folder}/objects") and os.path.isdir(f"{folder}/refs")
    return os.path.lexists(f"{folder}/HEAD") and (has_own or os.path.lexists(f"{folder}/commondir"))


def index_files(own: str) -> "list[tuple[str, int, int]]":
    """Return the files of the index in the directory of a repository, each with what changes when it is written."""
    found = [one for one in entries_of(own) if one.name.startswith(("index", "sharedindex."))]
    with contextlib.suppress(OSError):
        return sorted((one.path, one.stat().st_ino, one.stat().st_ctime_ns) for one in found)
    return []


def linked_repositories(own: str) -> "set[str]":
    """Return the folders that the index in the directory of a repository says to be repositories of their own, such as submodules."""
    found: set[str] = set()
    for path, _, _ in index_files(own):
        for size in _sizes(own):
            with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as file:
                _add_linked(file.read(), size, found)
    return {one for one in found if not {"", ".", ".."} & set(one.split("/"))}


def _sizes(own: str) -> "tuple[int, ...]":
    """Return the sizes that the names of objects may have in a repository: by SHA-1, by SHA-256."""
    common = _placed(own, text_of(f"{own}/commondir").strip())
    return (20, 32) if "objectformat" in settings_of(f"{common}/config").lower() else (20,)


def _add_linked(data: bytes, size: int, found: "set[str]") -> None:
    """Read an index of git. Another file, or one with names of another size, ends with an error."""
    version, at, name = data[7], 12, b""
    for _ in range(int.from_bytes(data[8:12], "big")):
        start, kept = at + 42 + size + (2 if version > 2 and data[at + 40 + size] & 0x40 else 0), b""
        if version == 4:  # a name is what it has in common with the one before, and the rest
            left_out = data[start] & 127
            while data[start] & 128:
                start += 1
                left_out = (left_out + 1 << 7) | (data[start] & 127)
            start, kept = start + 1, name[: len(name) - left_out]
        end = data.index(b"\0", start)
        name = kept + data[start:end]
        if data[at + 26] >> 4 == 0xE:  # all that git looks at, in the mode of a repository of its own
            found.add(os.fsdecode(name))
        at = end + 1 if version == 4 else at + ((end - at) // 8 + 1) * 8


class ClosedNames:
    """Protected names that nothing had when this was made, and that one program may not give to anything.

    Nothing can be mounted on a name that does not exist yet without leaving something there. So what has such a name is renamed, in its own
    folder, to a name that no other program looks for, with all that is in it. A link that has or leads to such a name is made anew where
    it was replaced. A folder that would be a repository by itself (`HEAD`, `objects`, `refs`) loses its `HEAD`: git would obey its `config`.

    Args:
        folders: The writable ones, from `/`, links resolved.
        names: Below each of them. Those in `.git` count for each repository that lies there.
        found: The repositories of the folders; None to look for them.
    """

    def __init__(
        self,
        folders: "tuple[str, ...] | list[str]",
        names: "tuple[str, ...] | list[str]",
        found: "Repositories | None" = None,
    ) -> None:
        self.moved: dict[str, str] = {}
        """The new path of each thing that was renamed, by its old one."""
        self._folders = tuple(folders)
        self._missing: dict[tuple[str, tuple[str, ...]], None] = {}
        self._patterns: dict[tuple[str, str], set[str]] = {}
        self._links: dict[str, str] = {}
        self._plain = [one for one in folders if names and not is_repository(one)]
        self._new = {one: [name for name in _REPOSITORY if not os.path.lexists(f"{one}/{name}")] for one in self._plain}
        for folder in folders:
            self._note(folder, names)
        self._trees: dict[str, str] = {}
        self._note_repositories([name[5:] for name in names if name.startswith(".git/")], found)

    def _note_repositories(self, names: "list[str]", found: "Repositories | None") -> None:
        found = (found or Repositories(self._folders)) if names else Repositories(())
        for tree in found.trees:
            self._note(tree, [f".git/{name}" for name in names])
        for own in found.own:
            self._note(own, names)
        for path in found.inner:
            self._note_links(*os.path.split(path))
        self._trees = {tree: own or f"{tree}/.git" for tree, own in found.trees.items() if not own or own in found.own}
        self._indexes = {tree: index_files(own) for tree, own in self._trees.items()}
        self._to_close: dict[str, set[str]] = {}
        self._linked, self._known = frozenset(found.trees), found.inner
        self._own = [*dict.fromkeys([*found.own, *self._trees.values()])]
        under_way = (f"{own}/{name}" for own in self._own for name in _ORDERS)
        self._not_under_way = [one for one in under_way if not os.path.lexists(one)]

    def _note(self, folder: str, names: "tuple[str, ...] | list[str]") -> None:
        top = os.path.realpath(folder) if os.path.isdir(folder) else None
        for name in names:
            if top and "*" not in name and not os.path.lexists(f"{top}/{name.partition('/')[0]}"):  # most, and quickly
                if (place := self._place(f"{top}/{name}")) is not None:
                    self._missing[place] = None
                continue
            self._note_links(folder, name)
            if "*" in name:
                at, pattern = os.path.split(f"{folder}/{name}")
                at = os.path.realpath(at)
                self._patterns[at, pattern] = {*named(at, pattern)}
                continue
            real = path = f"{folder}/{name}"
            if "/" in name or path in self._links:  # a link on the way may lead to another folder
                real = os.path.realpath(path)
            place = self._place(real)
            if place is not None and not os.path.lexists(real) and _may_hold(os.path.dirname(real)):
                self._missing[place] = None

    def _note_links(self, folder: str, name: str) -> None:
        parts = name.split("/")
        for length in range(1, len(parts) + 1):
            path = "/".join([folder, *parts[:length]])
            with contextlib.suppress(OSError):  # no link
                self._links[path] = os.readlink(path)

    def _place(self, path: str) -> "tuple[str, tuple[str, ...]] | None":
        """Return the writable folder that a path lies in, and its parts from there."""
        for one in self._folders:
            if path.startswith(f"{one.rstrip('/')}/"):
                return one, tuple(path[len(one.rstrip("/")) + 1 :].split("/"))
        return None

    def __enter__(self) -> "ClosedNames":  # noqa: PYI034 - a program that is started often imports no typing
        return self

    def __exit__(self, *_: object) -> None:
        self.set_aside()

    def set_aside(self) -> "dict[str, str]":
        """Rename what has a closed name now, and return it. Cheap where there is nothing."""
        moved: dict[str, str] = {}
        self._open()
        for folder, parts in self._missing:
            with contextlib.suppress(OSError):  # nothing is there
                _set_aside(folder, parts, moved)
        for folder in filter(is_repository, self._plain):
            with contextlib.suppress(OSError):
                found = (name for name in self._new[folder] if os.path.lexists(f"{folder}/{name}"))
                _set_aside(folder, (next(found, _REPOSITORY[0]),), moved)
        new = (path for at, known in self._patterns.items() for path in named(*at) if path not in known)
        for path in (*new, *self._new_modules(), *self._new_linked(), *self._new_orders()):
            if (place := self._place(path)) is not None:
                with contextlib.suppress(OSError):
                    _set_aside(*place, moved)
        self._known |= {*moved.values()}
        for path, target in self._links.items():
            with contextlib.suppress(OSError):
                if os.readlink(path) == target:
                    continue
            folder, name = os.path.split(path)
            with contextlib.suppress(OSError):
                _set_aside(folder, (name,), moved)
            with contextlib.suppress(OSError):
                os.symlink(target, path)
        self.moved |= moved
        return moved

    def _open(self) -> None:
        """Open the folders of git that were closed to us, lest we look. Git needs no list of what is in them."""
        ways = ("", "/modules", *(f"/{one}" for one in _ORDERS))
        for folder in (f"{own}{way}" for own in self._own for way in ways):
            if _is_closed(folder) and not os.path.islink(folder):
                with contextlib.suppress(OSError):
                    os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)

    def _new_modules(self) -> "list[str]":
        """Return the directories of submodules since the start: git uses what it finds there, once a person asks for the submodule."""
        found = [(own, one) for own in self._own for one in inner_repositories(own)]
        return [one for own, one in found if one not in self._known and one.startswith(f"{own}/modules/")]

    def _new_linked(self) -> "list[str]":
        """Return what makes repositories of the folders that an index names as such since the start: git would look into each, and do what its configuration says."""
        for tree, own in self._trees.items():
            if (now := index_files(own)) != self._indexes[tree]:
                self._indexes[tree] = now
                linked = {
                    f"{tree}/{one}/.git" for one in linked_repositories(own) if f"{tree}/{one}" not in self._linked
                }
                self._to_close[tree] = linked
        return [one for found in self._to_close.values() for one in found]

    def _new_orders(self) -> "list[str]":
        """Return the files of what git is in the middle of since the start, where they have it run a program when a person has it continue.

        A link counts as one: another program may write where it leads.
        """
        found = []
        for folder in self._not_under_way:
            orders = _ORDERS[os.path.basename(folder)]
            found += [folder] if os.path.islink(folder) else []
            found += [one.path for one in entries_of(folder) if one.is_symlink()]
            found += [file for name in orders if _names_program(file := f"{folder}/{name}", orders[name])]
        return found


def _names_program(file: str, pattern: "re.Pattern[str]") -> bool:
    with contextlib.suppress(OSError):
        return os.stat(file).st_size > _MOST_BYTES or pattern.search(settings_of(file)) is not None
    return False


def _may_hold(path: str) -> bool:
    """Whether something can be made in a folder, which may not exist yet: no file has its name."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path)


def _set_aside(folder: str, parts: "tuple[str, ...]", moved: "dict[str, str]") -> None:
    """Rename the thing of a path, or the link or file that stands on its way, also in a folder that was closed to us lest we do."""
    try:
        _rename(folder, parts, moved)
    except PermissionError:
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
        _rename(folder, parts, moved)


def _rename(folder: str, parts: "tuple[str, ...]", moved: "dict[str, str]") -> None:
    """Rename it. No link is followed."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place, part in enumerate(parts, 1):
            mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
            if place == len(parts) or not stat.S_ISDIR(mode):
                other = f"{part}.refused-{os.urandom(4).hex()}"
                os.rename(part, other, src_dir_fd=at, dst_dir_fd=at)
                path = "/".join([folder, *parts[:place]])
                moved[path] = f"{path[: -len(part)]}{other}"
                return
            if mode & stat.S_IRWXU != stat.S_IRWXU:  # closed to us, lest we look
                os.chmod(part, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=at)
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = deeper
    finally:
        os.close(at)
