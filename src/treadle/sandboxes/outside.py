"""Outside: what the programs of the person obey in a folder, or reach by another name: git's configuration, and hard links. Looks only."""

# ruff: noqa: PTH112, PTH118, PTH120 - texts, not places of ours

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

from treadle.sandboxes.closing import bytes_of, entries_of, text_of
from treadle.sandboxes.processes import clean_path
from treadle.tools.protected import HOME_FOLDERS, is_protected

__all__ = [
    "Identity",
    "configured_names",
    "git_folder_of",
    "home_links",
    "is_new_repository",
    "is_repository",
    "linked_files",
    "linked_repositories",
    "linked_trees",
    "named_git_folder",
    "names_below",
    "programs_of_git",
    "repository_of",
    "started_by_git",
    "started_instead",
    "steps_of",
]


# --- Configured: the files that git runs, or reads as more configuration, because its configuration names them. Starts no git.

_MOST_FILES, _MOST_NAMES = 50, 500
_SECTION = re.compile(r"\[\s*([\w.-]+)")
_SETTING = re.compile(r"(?:\[[^\]]*\]\s*)?([A-Za-z][\w-]*)\s*=\s*(.*)")
_WORDS = re.compile(r"[^\s;|&<>()=,:'\"`]+")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_HERE = re.compile(r"\$\(\s*(?:git rev-parse --show-toplevel|pwd)\s*\)|`pwd`|\$\{?PWD\}?")
_VALUES = frozenset(
    (
        *("url", "pushurl", "remote", "pushremote", "insteadof", "pushinsteadof", "merge", "fetch", "push", "rebase"),
        *("name", "email", "signingkey", "description", "worktree", "template", "file", "blob"),
        *("excludesfile", "attributesfile", "ignorerevsfile"),
    )
)
"""Keys whose values name what git neither runs nor obeys."""
_STARTS = "fsmonitor textconv command external clean smudge process program defaultkeycommand alternaterefscommand showsignature".split()  # noqa: SIM905 - read better as text
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
        try:
            linked = linked_trees(tree, own)
        except ValueError:
            return f"Git may run a program that this folder brings: what {own}/index says cannot be told."
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
    found = shutil.which(program, path=clean_path())
    if found is None or root == "/":
        return ""
    places = (os.path.realpath(found), _realpath(os.path.dirname(found), "."))
    is_own = any(f"{one}/".startswith(f"{root}/") for one in places)
    return f"`{program}` would be a program of the project: {found}." if is_own else ""


def programs_of_git(folder: str) -> dict[str, str]:
    """Return the settings that switch off hooks and the programs that git's configuration names, those of the person and of a repository.

    A filter or merge driver that is required fails then, in place of being passed over. Programs that show differences are left: they run confined.
    """
    found = repository_of(folder)
    left = [] if found is None else [f"{found[1]}/config.worktree", f"{_common(found[1])}/config"]
    left += _of_the_person()
    off = dict(_OFF)
    for number, file in enumerate(left):  # which grows meanwhile
        if number == _MOST_FILES:
            break
        for kind, quoted, plain in _NAMED.findall(settings_of(file)):
            name = quoted or plain.lower()
            off |= {f"{kind.lower()}.{name}.{key}": value for key, value in _OFF_NAMED[kind.lower()].items()}
        included = (one for one in _settings(file) if one[0].startswith("include") and one[1] == "path")
        left += [_placed(os.path.dirname(file), value) for _, _, value in included]
    return off


_OFF = {
    "core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.sshCommand": "false", "core.gitProxy": "false", "core.askPass": "false",
    "core.editor": "false", "sequence.editor": "false", "credential.helper": "",
    "commit.gpgSign": "false", "tag.gpgSign": "false", "rebase.gpgSign": "false", "gpg.program": "false", "gpg.ssh.program": "false",
    "core.alternateRefsCommand": "false",
}  # fmt: skip
_OFF_NAMED = {
    "filter": {"clean": "false", "smudge": "false", "process": ""},
    "merge": {"driver": "false"},
    "trailer": {"command": "false", "cmd": "false"},
}
_NAMED = re.compile(r'(?i)\[[ \t]*(filter|merge|trailer)(?:[ \t]+"([^"\n]+)"|\.([\w.-]+))[ \t]*\]')


def _realpath(folder: str, name: str) -> str:
    return os.path.realpath(os.path.join(folder, name))


def linked_trees(tree: str, own: str) -> list[str]:
    """Return the folders in the working folder of a repository that its index says to be repositories of their own: git enters them by itself.

    Raises:
        ValueError: As `linked_repositories` does.
    """
    return [f"{tree}/{one}" for one in _linked(own)]


def _linked(own: str) -> frozenset[str]:
    """Return the same from an index that nobody else has written: most name none, and the bytes of such a mode are found in no time."""
    index = tuple(index_files(own))
    has_one = any(_MODE_OF_LINKED in bytes_of(path, _LARGEST_INDEX) for path, _, _ in index)
    return _linked_now(own, index) if has_one else frozenset()


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
            paths = list(_paths(section, key, value, top, os.path.dirname(file)))
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
        words = _WORDS.findall(_HERE.sub(lambda _: top, value.lstrip("!")))
        for before, word in zip(("", *words), words, strict=False):
            # Of an alias, an option may be one of git, and its value a message. Git starts none by itself.
            is_value = _OPTION.fullmatch(before) is not None and section != "alias"
            for name in _named_by(word, before):
                path = _placed(top, name)
                is_path = is_value or ("/" in name.strip("/") and not name.startswith(("refs/", "origin/")))
                if os.path.isfile(path) or (is_path and not os.path.lexists(path)):  # noqa: PTH113 - as above
                    yield path


def _named_by(word: str, before: str) -> Iterator[str]:
    """Yield the names of files that a word may mean behind another: `-Fx` and `-F x` mean `x`, `-m x.y` a module."""
    yield word
    if _OPTION.match(word):
        yield word[2:]
    if before == "-m":
        yield from (f"{word.replace('.', '/')}.py", f"{word.replace('.', '/')}/__main__.py")


def _placed(folder: str, word: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(word)))  # noqa: PTH111 - as above


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


def settings_of(file: str) -> str:
    """Return what a file of git's configuration holds, with continued lines joined as git does."""
    return text_of(file).replace("\r\n", "\n").replace("\\\n", "")


def git_folder_of(tree: str) -> str:
    """Return the directory of the repository of a working folder, also where it does not exist but is named; empty where there is none."""
    named = named_git_folder(tree)
    return named and os.path.realpath(named)


def named_git_folder(tree: str) -> str:
    """Return the same as it is named: a link may be on the way."""
    own = f"{tree}/.git"
    if os.path.isfile(own):  # noqa: PTH113 - as above
        begun, named, path = text_of(own).partition("gitdir:")
        return _placed(tree, path.strip()) if named and path.strip() and not begun else ""
    return own if os.path.isdir(own) else tree if is_repository(tree) else ""


def repository_of(folder: str) -> tuple[str, str] | None:
    """Return the working folder of the repository that a folder belongs to, which may lie above it, and the repository's directory."""
    while not (own := git_folder_of(folder)):
        if folder == (folder := os.path.dirname(folder)):
            return None
    return folder, own


_NEW = re.compile(
    r"""\s*(?:\[(?:core|extensions|user|(?:remote|branch)\ "[^"\\]*")\]
    |(?:repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase|precomposeunicode|objectformat
    |name|email|url|fetch|remote|merge)[ \t]*=[^\\"\#;]*+)?\s*+""",
    re.VERBOSE | re.IGNORECASE,
)
"""A line of the configuration that `git init` and `git clone` write."""


def is_new_repository(own: str) -> bool:
    """Whether the directory of a repository has git start nothing, as one that `git init` has made."""
    text = text_of(f"{own}/config")
    is_plain = len(text) < _MOST_CHARACTERS and all(map(_NEW.fullmatch, text.split("\n")))
    has_hooks = any(not one.name.endswith(".sample") for one in entries_of(f"{own}/hooks"))
    return os.path.isdir(own) and is_plain and not has_hooks and not os.path.lexists(f"{own}/commondir")


def is_repository(folder: str) -> bool:
    """Whether git takes a folder for a repository by itself, without a `.git` in it."""
    has_own = os.path.isdir(f"{folder}/objects") and os.path.isdir(f"{folder}/refs")
    return os.path.lexists(f"{folder}/HEAD") and (has_own or os.path.lexists(f"{folder}/commondir"))


def index_files(own: str) -> list[tuple[str, int, int]]:
    """Return the files of the index in the directory of a repository, each with what changes when it is written."""
    found = [one for one in entries_of(own) if one.name == "index" or one.name.startswith("sharedindex.")]
    with contextlib.suppress(OSError):
        return sorted((one.path, one.stat().st_ino, one.stat().st_ctime_ns) for one in found)
    return []


def linked_repositories(own: str) -> frozenset[str]:
    """Return the folders that the index in the directory of a repository says to be repositories of their own, such as submodules.

    Raises:
        ValueError: A file of the index is not as git writes it, or larger than is looked at. Git may read another one from it.
    """
    return _linked_now(own, tuple(index_files(own)))


@lru_cache(maxsize=64)
def _linked_now(own: str, index: tuple[tuple[str, int, int], ...]) -> frozenset[str]:
    found = (one for path, _, _ in index for one in _linked_in(bytes_of(path, _LARGEST_INDEX), _size(own)))
    return frozenset(one for one in found if not {"", ".", ".."} & set(one.split("/")))


def _size(own: str) -> int:
    """Return the size of the names of objects in a repository: by SHA-1, or by SHA-256."""
    common = _placed(own, text_of(f"{own}/commondir").strip())
    return 32 if _SHA_256.search(settings_of(f"{common}/config")) else 20


def _linked_in(data: bytes, size: int) -> set[str]:
    """Return what an index of git names with the mode of a repository of its own.

    Raises:
        ValueError: It is not as git writes it.
    """
    version, count, at, name = data[7:8], int.from_bytes(data[8:12], "big"), 12, b""
    found, begins = set(), dict[int, int]()
    if not data.startswith(b"DIRC") or version not in (b"\2", b"\3", b"\4") or count * 43 > len(data):
        raise ValueError("not an index")
    for number in range(count):
        flags = int.from_bytes(data[at + 40 + size : at + 42 + size], "big")
        start, kept = at + 42 + size + (2 if flags & _EXTENDED else 0), b""
        if version == b"\4":  # a name is what it has in common with the one before, and the rest
            left_out, start = _number_at(data, start)
            kept = name[: max(0, len(name) - left_out)]
        if not kept:
            begins[number] = at
        end = data.find(b"\0", start)
        name = kept + data[start:end]
        is_linked = data[at + 26 : at + 27] >= b"\xe0" and data[at + 26] < 0xF0  # all that git looks at of the mode
        # Git goes by the length in the flags, unless that is too short for it. A name that is the one of another index is empty.
        if end < 0 or min(len(name), _LENGTH) != flags & _LENGTH or (is_linked and not name):
            raise ValueError("not an index as git writes it")
        if is_linked:
            found.add(os.fsdecode(name))
        at = end + 1 if version == b"\4" else at + ((end - at) // 8 + 1) * 8
    _check_blocks(data, begins)
    return found


def _number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    found = data[at] & 127 if at < len(data) else 0
    while at < len(data) and data[at] & 128:
        at += 1
        found = (found + 1 << 7) | (data[at] & 127 if at < len(data) else 0)
    return found, at + 1


def _check_blocks(data: bytes, begins: Mapping[int, int]) -> None:
    """Check the table by which several threads of git read an index: each of its blocks begins with an entry."""
    for table in re.finditer(rb"IEOT", data):
        place, number = table.end() + 8, 0
        for at in range(place, place - 4 + int.from_bytes(data[place - 8 : place - 4], "big"), 8):
            if begins.get(number) != int.from_bytes(data[at : at + 4], "big"):
                raise ValueError("not an index as git writes it")
            number += int.from_bytes(data[at + 4 : at + 8], "big")


_LARGEST_INDEX = 100_000_000
_MODE_OF_LINKED = b"\0\0\xe0\0"
_EXTENDED, _LENGTH = 0x4000, 0xFFF
_SHA_256 = re.compile(r"(?i)objectformat\s*=\s*\"?sha256")


_MOST_STEPS = 200


def steps_of(path: str) -> Iterator[tuple[str, Sequence[str], bool]]:
    """Yield each place on the way that a path from `/` leads, what follows it, and whether it is a link, which is followed then."""
    here, names = "/", [one for one in path.split("/") if one not in ("", ".")]
    for _ in range(_MOST_STEPS):
        if not names:
            return
        here, names = os.path.normpath(os.path.join(here, names[0])), names[1:]
        try:
            target = os.readlink(here)  # noqa: PTH115 - a text, which Path would make plain
        except OSError:
            yield here, names, False
            continue
        yield here, names, True
        here = "/" if target.startswith("/") else os.path.dirname(here)
        names = [*(one for one in target.split("/") if one not in ("", ".")), *names]
    yield path, (), False


# --- Links: the other names (hard links) of protected files.

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
    if not os.path.isdir(top):
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
