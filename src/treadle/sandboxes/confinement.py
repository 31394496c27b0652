"""What a confined program may reach and use up: folders, network, time, memory, processes, disk. Values only."""

import os
import re
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.sandboxes.closing import (
    Repositories,
    entries_of,
    index_files,
    linked_repositories,
    named,
    repository_of,
    settings_of,
    text_of,
)
from treadle.sandboxes.own import obeyed_files, own_places
from treadle.sandboxes.processes import clean_environment
from treadle.tools.protected import HOME_FOLDERS, SEALED, UNDER_WAY, is_protected

__all__ = [
    "SYSTEM_FOLDERS",
    "Confinement",
    "Identity",
    "configured_names",
    "home_links",
    "linked_files",
    "names_below",
    "outermost",
    "protected_names",
    "protected_places",
    "started_by_git",
    "started_instead",
]


# --- Configured: the files that git runs, or reads as more configuration, because its configuration names them. Looks
# only, and starts no git.

_MOST_FILES, _MOST_NAMES = 50, 500
_SECTION = re.compile(r"\[\s*([\w.-]+)")
_SETTING = re.compile(r"(?:\[[^\]]*\]\s*)?([A-Za-z][\w-]*)\s*=\s*(.*)")
_WORDS = re.compile(r"[^\s;|&<>()=,:'\"`]+")
_HERE = re.compile(r"\$\(\s*(?:git rev-parse --show-toplevel|pwd)\s*\)|`pwd`|\$\{?PWD\}?")
_VALUES = frozenset(
    (
        *("url", "pushurl", "remote", "pushremote", "insteadof", "pushinsteadof", "merge", "fetch", "push", "rebase"),
        *("name", "email", "signingkey", "description", "worktree", "template", "file", "blob"),
        *("excludesfile", "attributesfile", "ignorerevsfile"),
    )
)
"""Keys whose values name what git neither runs nor obeys."""
_STARTS = [
    "fsmonitor",
    "textconv",
    "command",
    "external",
    "clean",
    "smudge",
    "process",
    "program",
    "defaultkeycommand",
    "alternaterefscommand",
    "showsignature",
]
"""Keys by which a command of git that only reads starts a program, in whatever section."""
_STARTING = re.compile(rf"(?im)(?<![\w-])({'|'.join(_STARTS)})[ \t]*(?:=[ \t]*(.*))?$")
_SIGNED = re.compile(r"%[-+ ]?G|%\(\*?signature")
_INCLUDED = re.compile(r"\[\s*(include)", re.IGNORECASE)
_WORKTREE = re.compile(r"(?im)(?<![\w-])worktree[ \t]*=[ \t]*(.*)$")
_PARTIAL = re.compile(r"(?i)(?<![\w-])(?:promisor|partialclone)[ \t]*=")
_REACHING = re.compile(r"(?i)(?<![\w-])(sshcommand|gitproxy|uploadpack|vcs|helper|askpass|allow)[ \t]*=")
"""Keys that name programs with which git reaches another repository. One that only reads does so where objects are missing."""
_SWITCH = re.compile(r"(?i)(?:true|false|yes|no|on|off|[01])?\s*(?:[#;].*)?\Z")
_MOST_CHARACTERS = 900_000


def configured_names(folder: str, trees: Iterable[str] = ()) -> tuple[str, ...]:
    """Return names, below a folder, of what git's configuration has it run or read. They need not exist. Takes less than a millisecond.

    Args:
        folder: From `/`, links resolved.
        trees: The working folders of other repositories that git may enter from there.
    """
    tops = dict.fromkeys((folder, *islice(trees, _MOST_FILES)))
    found = dict.fromkeys(islice((path for top in tops for path in _configured(top)), _MOST_NAMES))
    return tuple(os.path.relpath(one, folder) for one in found if one.startswith(f"{folder.rstrip('/')}/"))


def started_by_git(folder: str) -> str:
    """Say why a command of git that only reads may start another program in a folder, in one sentence; empty where it may not.

    What the repository and its submodules bring is looked at as text, so that no spelling hides a key: there may be a reason too many. Of
    the person's own configuration only what names a file of the repository counts.
    """
    found = repository_of(folder)
    if found is None:
        return ""
    left = [found]
    for tree, own in left:  # which grows meanwhile
        for file in (f"{own}/config.worktree", f"{_common(own)}/config"):
            if key := _key_that_starts(settings_of(file), tree, own):
                return f"Git may run a program that this folder brings: {file} sets `{key}`."
        linked = [f"{tree}/{one}" for one in _linked(own, tuple(index_files(own)))]
        left += [one for path in linked if (one := repository_of(path)) is not None and one[0] == path]
        if len(left) > _MOST_FILES:
            return "Git may run a program that this folder brings: it has more submodules than are looked at."
    for file in _of_the_person():
        for section, key, value in _settings(file):
            paths = _paths(section, key, value, found[0], "/") if key in _STARTS else ()
            if any(one.startswith(f"{found[0].rstrip('/')}/") and os.path.isfile(one) for one in paths):  # noqa: PTH113 - as above
                return f"Git may run a program that this folder brings: {file} sets `{key}` to a path in it."
    return ""


def started_instead(root: str, start: str, program: str, folder: str) -> str:
    """Say why a program that only reads would start what the project brings: its own program of that name, or one that it has git run.

    Args:
        root: The project, from `/`, links resolved.
        start: The folder that `folder` is relative to.
    """
    if program == "git" and (why := started_by_git(_realpath(start, folder))):
        return why
    found = shutil.which(program, path=clean_environment()["PATH"])
    if found is None or root == "/":
        return ""
    places = (os.path.realpath(found), _realpath(os.path.dirname(found), "."))  # noqa: PTH120 - as above
    is_own = any(f"{one}/".startswith(f"{root}/") for one in places)
    return f"`{program}` would be a program of the project: {found}." if is_own else ""


def _realpath(folder: str, name: str) -> str:
    return os.path.realpath(os.path.join(folder, name))  # noqa: PTH118 - as above


@lru_cache(maxsize=64)
def _linked(own: str, index: tuple[tuple[str, int, int], ...]) -> frozenset[str]:
    return frozenset(linked_repositories(own)) if index else frozenset()


def _key_that_starts(text: str, tree: str, own: str) -> str:
    """Return the key of a configuration by which a command that only reads may start a program, or look elsewhere; empty without one."""
    if len(text) >= _MOST_CHARACTERS:
        return "more than is looked at"
    for key, value in _STARTING.findall(text):
        if key.lower() not in ("fsmonitor", "showsignature") or not _SWITCH.match(value):
            return str(key)
        if key.lower() == "showsignature" and not re.match(r"(?i)false|no|off|0", value):
            return str(key)
    if _PARTIAL.search(text) and (reaching := _REACHING.search(text)):
        return reaching[1]
    if any(
        os.path.realpath(_placed(own, _plain(value))) != os.path.realpath(tree) for value in _WORKTREE.findall(text)
    ):
        return "worktree"
    included = _INCLUDED.search(text) or _SIGNED.search(text)
    return included[included.lastindex or 0] if included else ""


def _of_the_person() -> list[str]:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    base = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return [f"{home}/.gitconfig", f"{base}/git/config", "/etc/gitconfig"]


def _configured(folder: str) -> Iterator[str]:
    """Yield the paths that are configured for the repository of a folder, which may lie above it."""
    found = repository_of(folder)
    if found is None:
        return
    top, own = found
    left = [f"{own}/config.worktree", f"{_common(own)}/config", *_of_the_person()]
    for number, file in enumerate(left):
        for section, key, value in _settings(file) if number < _MOST_FILES else ():
            paths = list(_paths(section, key, value, top, os.path.dirname(file)))  # noqa: PTH120 - texts, not places of ours
            yield from paths
            if section.startswith("include"):
                left += [one for one in paths if one not in left]


def _paths(section: str, key: str, value: str, top: str, beside: str) -> Iterator[str]:
    """Yield the paths that a setting names: all of its value where it is one, else what of its words exists or looks like a path."""
    if section.startswith("include") and key == "path":
        yield _placed(beside, value)
    elif (section, key) in (("core", "hookspath"), ("init", "templatedir")):
        yield _placed(top, value)
    elif key not in _VALUES and not (section == "alias" and not value.startswith("!")):
        for word in _WORDS.findall(_HERE.sub(top, value.lstrip("!"))):
            path = _placed(top, word)
            is_path = "/" in word.strip("/") and not word.startswith(("refs/", "origin/"))
            if os.path.isfile(path) or (is_path and not os.path.lexists(path)):  # noqa: PTH113 - as above
                yield path


def _placed(folder: str, word: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(word)))  # noqa: PTH111, PTH118 - as above


def _common(own: str) -> str:
    """Return the folder that a worktree of a repository shares with it."""
    return _placed(own, text_of(f"{own}/commondir").strip())


def _settings(file: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, key and value of each setting in a file of git's configuration, as far as these can hold a path."""
    section = ""
    for line in settings_of(file).splitlines():
        if begun := _SECTION.match(line.strip()):
            section = begun[1].partition(".")[0].lower()
        if found := _SETTING.match(line.strip()):
            yield section, found[1].lower(), _plain(found[2])


def _plain(value: str) -> str:
    """Return a value without its quotes, escapes and comment."""
    found, is_quoted, rest = "", False, iter(value)
    for char in rest:
        if char in "#;" and not is_quoted:
            break
        is_quoted ^= char == '"'
        found += next(rest, "") if char == "\\" else "" if char == '"' else char
    return found.strip()


# --- What a confined program may reach and use up: folders, network, time, memory, processes, disk. Values only.

SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
    "/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/gitconfig", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki",
    "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone",
)  # fmt: skip
"""What programs need of a system to run. No secrets: `/etc/shadow`, host keys and the homes of people are not among them."""


class Confinement(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What a confined program may reach and use up. Everything else is closed to it.

    Example:
        Confinement(writable=("build",), memory_bytes=2_000_000_000)
    """

    writable: tuple[str, ...] = ()
    """Folders that it may read and change. Their protected files (hooks, settings of this and other programs) stay read-only."""
    readable: tuple[str, ...] = ()
    """Folders and files that it may read, beside those of the system and this Python."""
    protected: tuple[str, ...] = SEALED
    """Names below each writable folder that stay read-only where they exist. A `*` in the last part of one stands for anything."""
    network: bool = False
    """Whether it may use the network: all of it, the machine's own services too."""
    cpu_seconds: float | None = 300.0
    """Processor time of each of its processes; None for no limit."""
    memory_bytes: int | None = 2 << 30
    """Memory of each of its processes, and of all together where the system can count that; None for no limit."""
    max_processes: int | None = 128
    """Processes and threads at one moment; None for no limit."""
    max_file_bytes: int | None = 1 << 30
    """Size of each file that it writes; None for no limit."""
    disk_bytes: int | None = 8 << 30
    """Bytes that all its files together may take in the writable folders; None for no limit. Looked at ten times a second while it runs."""
    temporary_bytes: int = 256 << 20
    """Room in its own `/tmp`, and in its own `/dev/shm`; both end with it. Landlock has no folder of its own to offer: the limit holds for bubblewrap alone."""
    max_output_bytes: int = 1_000_000
    """Bytes of each of its outputs that are kept: the beginning and the end."""

    def __post_init__(self) -> None:
        for name in ("writable", "readable", "protected"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(
                isinstance(one, str) and one and "\0" not in one for one in value
            ):
                raise ConfigurationError(f"Confinement: {name} must be a list of paths; got {shown(value)}.")
        for name in (
            "cpu_seconds",
            "memory_bytes",
            "max_processes",
            "max_file_bytes",
            "disk_bytes",
            "temporary_bytes",
            "max_output_bytes",
        ):
            value = getattr(self, name)
            is_optional = name not in ("temporary_bytes", "max_output_bytes")
            if (value is None and is_optional) or (
                isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            ):
                continue
            raise ConfigurationError(f"Confinement: {name} must be a positive number; got {shown(value)}.")

    def writable_folders(self) -> tuple[str, ...]:
        """Return the writable folders from `/`, links resolved.

        Raises:
            ConfigurationError: One does not exist.
        """
        return tuple(_existing(self.writable, "writable"))

    def roots(self) -> dict[str, str]:
        """Return where each named folder and file leads, links resolved."""
        return {one: os.path.realpath(one) for one in (*self.writable, *self.readable)}

    def readable_places(self) -> tuple[str, ...]:
        """Return all that may be read, from `/`, links resolved: the system's, this Python's and what was named.

        Raises:
            ConfigurationError: A named one does not exist.
        """
        python = (sys.prefix, sys.base_prefix, str(Path(os.path.realpath(sys.executable)).parent))
        own = [one for one in (*SYSTEM_FOLDERS, *python) if os.path.lexists(one)]
        found = dict.fromkeys([*own, *_existing(self.readable, "readable")])
        return tuple(one for one in found if not any(_lies_below(one, other) for other in found))

    def own_places(self) -> tuple[str, ...]:
        """Return what Treadle itself runs and obeys, as far as it lies in a writable folder: it stays read-only too."""
        folders = self.writable_folders() if self.protected else ()
        return tuple(one for one in own_places() if any(one.startswith(f"{folder.rstrip('/')}/") for folder in folders))


def protected_names(about: Confinement, found: Repositories) -> tuple[str, ...]:
    """Return the names below each writable folder that stay as they are: the protected ones, what git's configuration names, and what Treadle obeys.

    Args:
        about: What the commands may reach.
        found: The repositories of the writable folders.
    """
    folders = about.writable_folders() if about.protected else ()
    trees = [*found.trees]
    more = [name for one in folders for name in (*configured_names(one, trees), *_obeyed_names(about, one))]
    return (*dict.fromkeys([*about.protected, *more]),)


def protected_places(about: Confinement, names: tuple[str, ...], found: Repositories) -> tuple[str, ...]:
    """Return what stays read-only in the writable folders, as far as it exists.

    Where `.git` is a file, it says which folder is the repository, and with it whose hooks run: it stays as it is.

    Args:
        about: What the commands may reach.
        names: Those of `protected_names`.
        found: The repositories of the writable folders.
    """
    folders = about.writable_folders()
    places = [path for folder in folders for name in names for path in named(folder, name)]
    ways = dict.fromkeys(str(way) for name in names if "/" in name for way in Path(name).parents if str(way) != ".")
    places += [place for folder in folders for way in ways if Path(place := f"{folder}/{way}").is_file()]
    if own := [name[5:] for name in names if name.startswith(".git/")]:
        places += [f"{one}/{name}" for one in found.own for name in (*own, *UNDER_WAY)]
        places += [place for tree in found.trees if Path(place := f"{tree}/.git").is_file()]
    # A link that leads out of the writable folders needs none, since nothing can be written there.
    real = dict.fromkeys(os.path.realpath(one) for one in places if os.path.exists(one))  # noqa: PTH110 - of a hundred names
    return tuple(one for one in real if any(one.startswith(f"{folder.rstrip('/')}/") for folder in folders))


def _obeyed_names(about: Confinement, folder: str) -> list[str]:
    """Return the names below a folder that Treadle obeys, where no folder of its own keeps them already."""
    own = about.own_places()
    files = (one for one in obeyed_files() if one.startswith(f"{folder.rstrip('/')}/"))
    return [os.path.relpath(one, folder) for one in files if not any(_lies_below(one, other) for other in own)]


def _lies_below(path: str, folder: str) -> bool:
    """Whether a folder holds a path, so that the path need not be shown beside it. A link stands for itself."""
    return path.startswith(f"{folder.rstrip('/')}/") and not os.path.islink(folder)  # noqa: PTH114 - one of many names


def outermost(paths: tuple[str, ...], *, within: tuple[str, ...] = ()) -> list[str]:
    """Return the paths that lie below none of the others, nor below some folders: a program that may write in a folder could put a link in place of one."""
    return [one for one in paths if not any(_lies_below(one, other) for other in (*paths, *within))]


def _existing(paths: Iterable[str], name: str) -> list[str]:
    found = []
    for path in paths:
        real = os.path.realpath(path)
        if not Path(real).exists():
            raise ConfigurationError(f"Confinement: the {name} path {shown(path)} does not exist.")
        found.append(real)
    return found


# --- Twins: the other names (hard links) of protected files. Looks only, and changes nothing.

Identity: TypeAlias = tuple[int, int]
"""Device and number: the same for all names of one file."""

_MAX_LOOKED_AT = 20_000
_MAX_SEARCHED = 100_000
"""Searched only where a protected file has several names: it may take a second."""


def home_links() -> dict[Identity, str]:
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
