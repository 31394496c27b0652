"""Configured: the files that git runs, or reads as more configuration, because its configuration names them. Looks only, and starts no git.

A repository's configuration is protected, but what it names lies elsewhere in the folder: `core.hooksPath = tools/hooks`,
`include.path = ../team.gitconfig`, `filter.x.clean = ./clean.sh`. Git runs these when somebody asks for the state of the repository.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from treadle.sandboxes.closing import index_files, linked_repositories, repository_of, settings_of, text_of
from treadle.sandboxes.processes import clean_environment

__all__ = ["configured_names", "started_by_git", "started_instead"]

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
