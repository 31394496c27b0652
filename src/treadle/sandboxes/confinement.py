"""What a confined program may reach and use up, and which places that means when it starts. Looks only."""

import fnmatch
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.sandboxes.closing import CONTINUED, entries_of, existing, is_there, looked_into, text_of
from treadle.sandboxes.outside import (
    Identity,
    configured_names,
    git_folder_of,
    home_links,
    is_new_repository,
    is_repository,
    linked_files,
    linked_repositories,
    linked_trees,
    named_git_folder,
    names_below,
    repository_of,
    steps_of,
)
from treadle.sandboxes.own import obeyed_files, own_places
from treadle.sandboxes.private import credential_names, is_private_name, private_places
from treadle.tools import Need
from treadle.tools.needs import GIT
from treadle.tools.protected import SEALED, UNDER_WAY

__all__ = ["OWN", "TEMPORARY", "Confinement", "Places", "lies_in", "lifted_folder"]


_LIMITS = (
    "cpu_seconds",
    "memory_bytes",
    "max_processes",
    "max_file_bytes",
    "disk_bytes",
    "temporary_bytes",
    "max_output_bytes",
)


class Confinement(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What a confined program may reach and use up. Everything else is closed to it.

    Example:
        Confinement(writable=("build",), memory_bytes=2_000_000_000)
    """

    writable: tuple[str, ...] = ()
    """Folders that it may change. Their protected files (`.git`, settings of this and other programs) stay read-only. Elsewhere it may
    change nothing, and read what the person can read, but for private places such as keys, credentials and browser profiles."""
    readable: tuple[str, ...] = ()
    """Private places that it may read nevertheless, such as `~/.aws/config`."""
    hidden: tuple[str, ...] = ()
    """Files and folders that it may not read, as far as they exist when it starts: paths, or globs as in rules, below each writable folder or
    from `/` or `~/`."""
    protected: tuple[str, ...] = SEALED
    """Names below each writable folder that stay read-only where they exist. A `*` in the last part of one stands for anything."""
    network: bool = False
    """Whether it may use the network: all of it, the machine's own services too. Without it, single hosts can be lifted for a command."""
    cpu_seconds: float | None = 300.0
    """Processor time of each of its processes; None for no limit."""
    memory_bytes: int | None = 2 << 30
    """Memory that each of its processes may write, and that all use together where the system can count that; None for no limit. What is only
    reserved does not count."""
    max_processes: int | None = 128
    """Processes and threads at one moment; None for no limit."""
    max_file_bytes: int | None = 1 << 30
    """Size of each file that it writes; None for no limit."""
    disk_bytes: int | None = 8 << 30
    """Bytes that all its files together may take in the writable folders; None for no limit. Looked at ten times a second while it runs."""
    temporary_bytes: int = 256 << 20
    """Room in its own `/tmp`, `/var/tmp` and `/dev/shm`, which end with it. The limit holds for bubblewrap alone: the temporary folder of Landlock is
    one on the disk, for all commands of a sandbox."""
    max_output_bytes: int = 1_000_000
    """Bytes of each of its outputs that are kept: the beginning and the end."""

    def __post_init__(self) -> None:
        for name in ("writable", "readable", "hidden", "protected"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(
                isinstance(one, str) and one and "\0" not in one for one in value
            ):
                raise ConfigurationError(f"Confinement: {name} must be a list of paths; got {shown(value)}.")
        for name in _LIMITS:
            value = getattr(self, name)
            is_left_out = value is None and name not in ("temporary_bytes", "max_output_bytes")
            if is_left_out or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
                continue
            raise ConfigurationError(f"Confinement: {name} must be a positive number; got {shown(value)}.")

    def writable_folders(self) -> tuple[str, ...]:
        """Return the writable folders from `/`, links resolved.

        Raises:
            ConfigurationError: One does not exist.
        """
        return tuple(_existing(self.writable, "writable"))

    def opened_places(self) -> tuple[str, ...]:
        """Return the private places that may be read, from `/`, links resolved.

        Raises:
            ConfigurationError: One does not exist.
        """
        return tuple(_existing(self.readable, "readable"))

    def roots(self) -> dict[str, str]:
        """Return where each named folder and file leads, links resolved."""
        named = (*self.writable, *self.readable)
        return {one: os.path.realpath(os.path.expanduser(one)) for one in named}  # noqa: PTH111 - texts of a person


def _existing(paths: Iterable[str], name: str) -> list[str]:
    found = []
    for path in paths:
        real = os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - a text of a person
        if not Path(real).exists():
            raise ConfigurationError(f"Confinement: the {name} path {shown(path)} does not exist.")
        found.append(real)
    return found


# --- Places: what of the file system is open to one command, as it is when the command starts.

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the program's own, which nobody else sees
OWN = ("/proc", "/run", "/dev", *TEMPORARY)
"""What a command gets of its own, or not at all: processes, sockets of services, devices, and temporary files."""
_KEPT_OF_GIT = (
    *("config", "config.worktree", "commondir", "gitdir", "hooks", "remotes", "branches", "modules", "worktrees"),
    *UNDER_WAY,
)
"""What stays read-only of a repository whose history may be written: who writes it has git run a program later."""
_CLOSED_OF_GIT = ("config", "hooks", "commondir", "config.worktree", "modules", "remotes", "branches", *CONTINUED)
"""Of these, what a command may not make."""
_MOST_FOLDERS, _MOST_LOOKED_AT, _MOST_COVERED = 300, 200_000, 2_000
_NO_PROJECTS = frozenset((".git", "node_modules", "__pycache__"))
_WILD = frozenset("*?[")


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What of the file system is open to a confined program. All paths are from `/`, links resolved."""

    writable: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """What is read-only in the writable folders."""
    private: tuple[str, ...] = ()
    """The person's private places: they are empty."""
    opened: tuple[str, ...] = ()
    """What the person has opened in these."""
    covered: tuple[str, ...] = ()
    """What cannot be read, since a rule denies it."""
    closed: tuple[str, ...] = ()
    """Protected names in the writable folders, also those that nothing has."""
    fixed: tuple[str, ...] = ()
    """Writable folders in which nothing new can be made, though what is in them can be changed."""
    trees: dict[str, str] = {}
    """The working folders of the repositories whose history may be written, with the directory of git of each."""

    @staticmethod
    def of(
        about: Confinement,
        lifted: Sequence[Need] = (),
        cwd: str | None = None,
        *,
        keeps_deeper: bool = True,
        known: Mapping[str, str] | None = None,
    ) -> "Places":
        """Return the places of a command.

        Args:
            lifted: What of the border is lifted for it.
            cwd: The folder in which it starts.
            keeps_deeper: Whether protected names below the top of a folder count, too, as far as they exist.
            known: The repositories of the folders when the sandbox was made; None where nobody has looked.

        Raises:
            ConfigurationError: A folder of the confinement does not exist.
            OSError: A folder that is lifted leads elsewhere or is private, or there is too much to look at.
        """
        opened = about.opened_places()
        private = _still_there(("HOME", os.environ.get("HOME", "")), private_places(os.environ))
        private = tuple(_outermost(one for one in private if not lies_in(one, opened)))
        own = about.writable_folders()
        writable = (*own, *(_made(lifted_folder(one.value, private)) for one in lifted if one.kind == "write"))
        if shut := next((one for one in writable if looked_into(one) is None), None):
            raise OSError(f"{shut} cannot be looked into: open it with `chmod u+rx {shut}`.")
        found = _looked_for(about, writable) if about.protected else _Found()
        found = found if keeps_deeper else msgspec.structs.replace(found, deeper=[])
        kept, closed = _protected(about, writable, found) if about.protected else ((), ())
        searched = tuple(dict.fromkeys((*own, *([cwd] if cwd else []))))
        covered = _still_there((*about.hidden, "in", *searched), (*_covered(about.hidden, searched), *found.shut))
        for name, is_of_the_home in _other_names(writable, kept).items() if about.protected else ():
            kept, covered = (kept, (*covered, name)) if is_of_the_home else ((*kept, name), covered)
        trees = _trees_of(own, cwd) if GIT in lifted else {}
        _check_trees(trees, own, known)
        gits = list(dict.fromkeys(one for git in trees.values() for one in _with_common(git)))
        if GIT in lifted and not gits:  # such as `git init`
            closed = tuple(one for one in closed if not one.endswith("/.git"))
            trees = {one: f"{one}/.git" for one in own}
        if gits:
            held = [f"{git}/{name}" for git in gits for name in _KEPT_OF_GIT if about.protected]
            real = (os.path.realpath(one) for one in held)
            kept = tuple(one for one in dict.fromkeys((*kept, *real)) if one not in gits and os.path.lexists(one))
            links = (one for one in held if os.path.islink(one))  # noqa: PTH114 - as below
            closed = (*closed, *links, *(f"{git}/{name}" for git in gits for name in _CLOSED_OF_GIT))
            writable = (*writable, *gits)
        writable = tuple(dict.fromkeys(writable))
        private = tuple(one for one in private if one not in writable)
        return Places(
            writable=writable, kept=kept, private=private, opened=opened, covered=covered, closed=closed, trees=trees
        )

    def bound(self) -> list[str]:
        """Return the writable folders that lie in no other, or in one that is read-only there."""
        others = {one: [other for other in self.writable if other != one] for one in self.writable}
        return [one for one in self.writable if _nearest(one, others[one]) <= _nearest(one, self.kept)]

    def misleading(self) -> set[str]:
        """Return what these repositories have that leads git out of them.

        They are the `.git` of each folder that the index names as a repository of its own, which git enters at `git status`, links in the
        directory of a repository, through which the next commit of the person would write, a new repository that has git start programs, and
        an index that cannot be told.
        """
        inner = {one for tree, git in self.trees.items() for one in self._entered(tree, git)}
        new = (one for one in self.trees.values() if one not in self.writable and os.path.lexists(one))
        inner |= {one for one in new if not is_new_repository(one)}
        return inner.union(*(_links_below(one) for git in self.trees.values() for one in _with_common(git)))

    def _entered(self, tree: str, git: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the `.git` of each repository that git enters from another one, but for those that were read-only and have it start nothing."""
        try:
            linked = linked_repositories(git)
        except ValueError:
            yield f"{git}/index"
            return
        ours = {one for own in self.trees.values() for one in _with_common(own)}
        for inner in (f"{tree}/{name}" for name in linked):
            own = git_folder_of(inner)
            is_plain = is_new_repository(own) or not ours.isdisjoint(_with_common(own))
            if not is_plain or not lies_in(f"{inner}/.git", self.kept):
                yield f"{inner}/.git"
            elif own not in seen:
                yield from self._entered(inner, own, seen | {own})

    def identities(self) -> dict[str, Identity]:
        """Return which file each protected file is now. A folder on which something is mounted stays what it is."""
        found = {}
        for path in self.kept:
            with suppress(OSError):
                status = os.stat(path)  # noqa: PTH116 - at each start
                if not stat.S_ISDIR(status.st_mode):
                    found[path] = (status.st_dev, status.st_ino)
        return found

    def hold(self, path: str) -> bool:
        """Whether a path can be read inside."""
        real = _real(path)
        closed, opened = (*self.private, *OWN), (*self.writable, *self.opened)
        return not lies_in(real, self.covered) and _nearest(real, opened) >= _nearest(real, closed)

    def takes(self, path: str) -> bool:
        """Whether a path can be written inside."""
        real = _real(path)
        if lies_in(real, self.covered) or _nearest(real, self.writable) < _nearest(real, (*self.kept, *self.private)):
            return False
        is_new = os.path.dirname(real) in self.fixed and not os.path.lexists(real)  # noqa: PTH120 - as above
        return not is_new and lies_in(real, (*self.writable, *TEMPORARY, "/dev"))


_seen: dict[tuple[str, ...], dict[str, None]] = {}


def _still_there(looked_for: tuple[str, ...], found: Iterable[str]) -> tuple[str, ...]:
    """Return what was found, now or by an earlier look of this process, but for what has gone.

    A command may shut and open a folder all the time, so that one look finds nothing in it, and what it has started reads it.
    """
    known = _seen.setdefault(looked_for, {})
    known |= dict.fromkeys(found)
    return tuple(one for one in known if is_there(one))


def lies_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of some folders, or lies below one."""
    return any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in folders)


def _nearest(path: str, folders: Iterable[str]) -> int:
    return max((len(one) for one in folders if lies_in(path, (one,))), default=-1)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie below none of the others."""
    found = dict.fromkeys(paths)
    return [one for one in found if not lies_in(one, (other for other in found if other != one))]


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a link that we may not read
        return os.path.normpath(path)


def lifted_folder(value: str, private: Sequence[str]) -> str:
    """Return a folder outside that a command may write. It need not exist.

    Raises:
        OSError: It leads elsewhere, or is private.
    """
    named = os.path.normpath(os.path.expanduser(value))  # noqa: PTH111 - a text
    if os.path.realpath(named) != named:  # a person has allowed the folder of this name, not what a link leads to
        raise OSError(f"{value} leads elsewhere, to {os.path.realpath(named)}: nothing was run.")
    if lies_in(named, private) or (not os.path.lexists(named) and is_private_name(named, os.environ)):
        raise OSError(f"{value} is a private place that no command may write: nothing was run.")
    return named


def _made(folder: str) -> str:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


# --- Protected: what stays read-only in the writable folders, and the names that nothing may get there.


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is found in the first 300 folders of the writable ones, those near the top first."""

    repositories: list[str] = []
    """The directories of git, and those to which a `.git` leads, as they are named."""
    trees: list[tuple[str, str]] = []
    """The working folders of repositories, with the directory of each."""
    deeper: list[str] = []
    """What has a protected name in a folder that is not a writable one itself."""
    shut: list[str] = []
    """Folders that we cannot look into: the next command may open them again."""

    def add(self, tree: str) -> None:
        """Add the repository of a working folder, once, if it has one."""
        own = git_folder_of(tree)
        if os.path.lexists(f"{tree}/.git") and (tree, own) not in self.trees:
            self.repositories.extend((f"{tree}/.git", named_git_folder(tree), *_with_common(own)))
            self.trees.append((tree, own))


def _protected(about: Confinement, folders: Sequence[str], found: _Found) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what stays read-only in the writable folders, and the names that nothing may get there."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is none
    in_home = [one for name in about.protected if lies_in(one := f"{home}/{name}", folders)]
    inner = [tree for tree, _ in found.trees]
    configured = [f"{folder}/{name}" for folder in folders for name in configured_names(folder, inner)]
    obeyed = [one for one in obeyed_files() if lies_in(one, folders)]
    # A folder without a repository must not become one by itself: git would obey the `config` in it.
    bare = [
        f"{folder}/{name}" for folder in folders for name in (_CLOSED_OF_GIT if is_repository(folder) else ("HEAD",))
    ]
    entered = [f"{one}/.git" for tree, own in _trees(folders, found) for one in _linked(tree, own)]
    protected = [
        *(f"{folder.rstrip('/')}/{name}" for folder in folders for name in about.protected),
        *in_home,
        *entered,
    ]
    credentials = [one for one in credential_names(os.environ) if lies_in(one, folders)]
    closed = [*protected, *configured, *obeyed, *bare, *credentials]
    places = [*existing(protected), *configured, *obeyed, *found.repositories, *found.deeper]
    inner_links = list(_links_in(places))
    places += [*inner_links, *(one for one in own_places() if one not in folders)]
    # Nothing can be mounted on a link: one that leads to what is protected is made anew where it was replaced.
    links = [here for one in places for here in _ways_to(one, is_git=one in found.repositories)]
    led = [os.path.realpath(one) for one in (*existing(closed), *inner_links) if os.path.islink(one)]  # noqa: PTH114 - as below
    # A link that leads out of the writable folders needs none, since nothing can be written there.
    real = dict.fromkeys(os.path.realpath(one) for one in places if os.path.exists(one))  # noqa: PTH110 - of a hundred names
    kept = tuple(one for one in _outermost(real) if lies_in(one, folders) and one not in folders)
    return kept, tuple(dict.fromkeys((*closed, *(one for one in (*links, *led) if lies_in(one, folders)))))


def _ways_to(path: str, *, is_git: bool) -> Iterator[str]:
    """Yield the links on the way to a protected file, and what is missing there behind one, or to a repository: a link there would lead it elsewhere."""
    is_lost, is_behind = not os.path.exists(path), is_git  # noqa: PTH110 - of a hundred names
    for here, _, is_link in steps_of(path):
        is_behind |= is_link
        if is_link or (is_lost and is_behind and not os.path.lexists(here)):
            yield here


def _trees(folders: Sequence[str], found: _Found) -> list[tuple[str, str]]:
    """Return the repositories to which the writable folders belong, and those in them."""
    own = [one for one in map(repository_of, folders) if one is not None]
    return list(dict.fromkeys([*own, *found.trees]))


def _linked(tree: str, own: str) -> list[str]:
    with suppress(ValueError):  # git may not understand it either
        return linked_trees(tree, own)
    return []


def _other_names(folders: Sequence[str], kept: Sequence[str]) -> dict[str, bool]:
    """Return the other names (hard links), in the writable folders, of protected files, and whether it is one of the person's home."""
    of_the_home, python = home_links(), own_places()
    files = [
        path
        for one in kept
        if one not in python
        for path in ((f"{one}/config", f"{one}/hooks") if Path(one, "objects").is_dir() else (one,))
    ]
    found = names_below(folders, {**linked_files(files), **of_the_home}, but=kept)
    return {name: known in of_the_home.values() for name, known in sorted(found.items())}


def _looked_for(about: Confinement, folders: Sequence[str]) -> _Found:
    """Look for what is protected in the writable folders, wherever it lies in them."""
    found, (names, wild) = _Found(), _first_parts(tuple(about.protected))
    found.repositories.extend(f"{one}/{name}" for one in folders if is_repository(one) for name in _KEPT_OF_GIT)
    left = [*folders]
    for at in left:  # which grows meanwhile
        inner = looked_into(at)
        if inner is None:
            found.shut.append(at)
            continue
        entries = {one.name: one for one in inner}
        if ".git" in entries:
            found.add(at)
        elif "HEAD" in entries and at not in folders and ".refused-" not in at and is_repository(at):
            found.repositories.append(at)
        if at not in folders:
            named = (f"{at}/{rest}" for name in names.keys() & entries.keys() for rest in names[name])
            found.deeper.extend(one for one in named if os.path.lexists(one))
            found.deeper.extend(f"{at}/{name}" for name in entries if wild.fullmatch(name))
        if len(left) < _MOST_FOLDERS:
            left += [one.path for name, one in entries.items() if name not in _NO_PROJECTS and _is_folder(one)]
            del left[_MOST_FOLDERS:]
    _add_known(found, folders)
    return found


def _add_known(found: _Found, folders: Sequence[str]) -> None:
    """Add the repositories that were found before, and those that an index names: a command that makes many folders hides none of them."""
    _known.update(dict.fromkeys(tree for tree, _ in found.trees))
    for at in _known:
        if lies_in(at, folders):
            found.add(at)
    trees = _trees(folders, found)
    for tree, own in trees:  # which grows meanwhile
        before = len(found.trees)
        for one in _linked(tree, own):
            found.add(one)
        trees += found.trees[before:]


_known: dict[str, None] = {}
"""Working folders of repositories that this process has found."""


@lru_cache(maxsize=8)
def _first_parts(protected: tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], "re.Pattern[str]"]:
    """Return protected names by their first part, and a pattern for those whose first part is one. What belongs to git is looked for by itself."""
    found: dict[str, tuple[str, ...]] = {}
    for name in protected:
        first = name.partition("/")[0]
        found[first] = (*found.get(first, ()), name)
    wild = "|".join(fnmatch.translate(one) for one in found if "*" in one)
    return {first: names for first, names in found.items() if first != ".git"}, re.compile(wild or r"(?!)")


def _with_common(own: str) -> list[str]:
    """Return the directory of a repository, and the one that it shares with others where it is that of a worktree."""
    shared = text_of(f"{own}/commondir").strip() if own else ""
    return [one for one in (own, os.path.realpath(Path(own, shared)) if shared else "") if one]


def _links_below(git: str) -> Iterator[str]:
    """Yield the links in the directory of a repository. Git makes none, and does not overwrite an object."""
    left = [git]
    while left:
        for entry in entries_of(left.pop()):
            if entry.is_symlink():
                yield entry.path
            elif _is_folder(entry) and not entry.path.startswith(f"{git}/objects/"):
                left.append(entry.path)


def _trees_of(folders: Sequence[str], cwd: str | None) -> dict[str, str]:
    """Return the repository in which a command may write history: that in which it starts.

    Raises:
        OSError: It is another one than that of the folder, and does not lie in it as a whole.
    """
    top = repository_of(folders[0]) if folders else None
    found = (repository_of(cwd) if cwd else None) or top
    if found is None:
        return {}
    if found != top and not all(lies_in(one, folders) for one in _with_common(found[1])):
        raise OSError(f"{found[0]}/.git leads elsewhere, to {found[1]}: nothing was run.")
    return dict([found])


def _check_trees(trees: Mapping[str, str], folders: Sequence[str], known: Mapping[str, str] | None) -> None:
    """Check that the repositories whose history may be written lie in the folders, or were those of the folders all the time.

    Raises:
        OSError: One is neither: a command may have made a pointer that leads there.
    """
    for tree, git in trees.items() if known is not None else ():
        is_old = known is not None and known.get(tree) == git
        if not is_old and not all(lies_in(one, folders) for one in _with_common(git)):
            raise OSError(f"{tree}/.git leads elsewhere now, to {git}: nothing was run.")


def _links_in(places: Iterable[str]) -> Iterator[str]:
    """Yield the links in protected folders: git, an editor or an agent follows them to what is not protected by itself."""
    left = [*dict.fromkeys(places)]
    for at in left:  # which grows meanwhile
        entries = entries_of(at)
        is_git = {"objects", "refs"} <= {one.name for one in entries}
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif len(left) < _MOST_FOLDERS and (not is_git or entry.name in ("hooks", "info")) and _is_folder(entry):
                left.append(entry.path)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):
        return entry.is_dir(follow_symlinks=False)
    return False


# --- Covered: the files that globs name, in every spelling that some file system takes for one, and by every name that they have.


def _covered(globs: Sequence[str], folders: Sequence[str]) -> tuple[str, ...]:
    room = [_MOST_LOOKED_AT]
    found: dict[str, None] = {}
    links: dict[Identity, str] = {}
    for path in (
        path for glob in globs for start, rest in _starts(glob, folders) for path in _matching(start, rest, room)
    ):
        real = os.path.realpath(path)
        if not is_there(real) or any(lies_in(folder, (real,)) for folder in folders):
            continue
        found[real] = None
        with suppress(OSError):  # shut meanwhile
            status = os.stat(real)  # noqa: PTH116 - as above
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                links[status.st_dev, status.st_ino] = real
    found |= dict.fromkeys(names_below(folders, links))
    if len(found) > _MOST_COVERED:
        raise OSError(
            f"The rules deny reading {len(found)} files, more than a sandbox can cover. Deny reading their folder."
        )
    return tuple(_outermost(found))


def _starts(glob: str, folders: Sequence[str]) -> list[tuple[str, str]]:
    """Return where a glob begins, and what it says from there."""
    plain = os.path.expanduser(glob.strip())  # noqa: PTH111 - a text
    plain = re.sub("/{2,}", "/", plain.removeprefix("./"))
    return [("/", plain.strip("/"))] if plain.startswith("/") else [(one, plain.strip("/")) for one in folders]


def _matching(folder: str, glob: str, room: list[int]) -> Iterator[str]:
    """Yield what a glob matches below a folder. As in rules, `*` stands for any text, `/` too."""
    places, parts = [folder], glob.split("/")
    while parts and not _WILD & set(parts[0]):
        name = _folded(parts.pop(0))
        inner = {at: looked_into(at) for at in places}
        yield from (at for at, entries in inner.items() if entries is None)
        names = ((at, one) for at in places for one in _names(name, inner[at] or ()))
        places = [f"{at.rstrip('/')}/{one}" for at, one in names if _folded(one) == name]
    if not parts:
        yield from places
        return
    fits = _compiled("/".join(parts))
    left = [(at, "") for at in places]
    while left:
        at, prefix = left.pop()
        inner_entries = looked_into(at)
        if inner_entries is None:
            yield at
        for entry in inner_entries or ():
            room[0] -= 1
            if room[0] < 0:
                raise OSError(
                    "There are too many files to find those that a rule denies reading. Name their folder in the rule."
                )
            if fits.match(_folded(f"{prefix}{entry.name}")):
                yield entry.path
            elif _is_folder(entry):
                left.append((entry.path, f"{prefix}{entry.name}/"))


def _names(name: str, entries: "Iterable[os.DirEntry[str]]") -> Iterable[str]:
    """Return the names in a folder among which one may be."""
    return (name,) if name in ("", ".", "..") else (one.name for one in entries)


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> "re.Pattern[str]":
    forms = {form for one in (glob, glob.removeprefix("**/")) for form in (one, one.replace("/**/", "/"))}
    forms |= {one.removesuffix("/**") for one in forms if one.endswith("/**")}
    return re.compile("|".join(fnmatch.translate(_folded(one)) for one in sorted(forms)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
