"""Private: the places that a confined command does not read unless the person opens them, as `private.toml` lists them, and the state of Treadle."""

# ruff: noqa: PTH112, PTH113, PTH120, PTH207 - some hundred texts at each start

import fnmatch
import os
import pwd
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from glob import glob
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from treadle.sandboxes.closing import entries_of, is_there, looked_into
from treadle.sandboxes.own import config_folder, state_folder

__all__ = ["credential_names", "is_private_name", "is_reached", "private_places"]

_STATE = ("journal.db", "processes", "history", "keys.json")
_PASSED = (".cache", ".Trash")
"""Folders of a home with much in them, and nothing that is looked for."""
_MOST_ENTRIES = 2_000
_Look: TypeAlias = "Callable[[str], list[os.DirEntry[str]] | None]"
_MOVED = ((".config/", "XDG_CONFIG_HOME"), (".local/share/", "XDG_DATA_HOME"), (".local/state/", "XDG_STATE_HOME"))


def private_places(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files and folders that exist of them, from `/`, links resolved: also the homes of others. Takes about a millisecond.

    A folder that we cannot look into is one as a whole: a command may have shut it, and the next one may open it again.
    """
    look, homes = cache(looked_into), _homes(environment)
    found = [
        *(one for one in homes if look(one) is None),
        *_existing((*_named(homes, environment), *_state(environment), *_variables(environment)), look),
        *_anywhere_in(homes, environment, look),
        *(one for name in _listed()["system"] for one in glob(name)),
    ]
    real = dict.fromkeys(map(os.path.realpath, found))
    real |= dict.fromkeys(_led_to(real, homes))
    open_homes = [one for one in homes if look(one) is not None]
    return tuple(
        one
        for one in real
        if not any(f"{home}/".startswith(f"{one}/") for home in open_homes) and _is_plain(one) and is_reached(one)
    )


def _existing(paths: Iterable[str], look: _Look) -> Iterator[str]:
    """Yield those of some paths that something has, and in place of others the folder that is shut. Looks once into each."""
    names: dict[str, frozenset[str] | None] = {}
    for path in paths:
        folder, _, name = path.rstrip("/").rpartition("/")
        if folder not in names:
            entries = look(folder or "/")
            names[folder] = None if entries is None else frozenset(one.name for one in entries)
        known = names[folder]
        if known is None or name in known:
            yield folder if known is None else path


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for variable in _listed()["variables"]:
        yield from (one for one in environment.get(variable, "").split(os.pathsep) if one.startswith("/"))


def is_private_name(path: str, environment: Mapping[str, str]) -> bool:
    """Whether a path would be a private place of a home, or lie in one, also where it does not exist."""
    homes = _homes(environment)
    places = [*_named(homes, environment), *_state(environment)]
    for folder, begin in _searched(homes, environment):
        parts = path.removeprefix(f"{folder}/").split("/") if path.startswith(f"{folder}/") else [""]
        places += [path] if parts[0].startswith(begin) and any(map(_anywhere().match, parts[:2])) else []
    return any(path == one or path.startswith(f"{one}/") for one in places)


def credential_names(environment: Mapping[str, str]) -> list[str]:
    """Return the names of private places of a home from which a program takes keys, or the program that has them. They need not exist."""
    kinds = _kinds()["home"]
    names = " ".join(kinds[one] for one in ("keys", "clouds", "tokens", "passwords")).split()
    return [f"{home}/{name}" for home in _homes(environment) for name in names]


def is_reached(path: str) -> bool:
    """Whether a confined command could come to a path at all. Nothing can be mounted on one to which its user cannot go; root is no more than a user there."""
    if os.geteuid() != 0:
        parent = os.path.dirname(path)
        return os.access(parent, os.X_OK) or is_there(parent, ours=True)  # one of ours may be open the next moment
    return all(one.st_uid == 0 or one.st_mode & 0o001 for one in map(Path.stat, Path(path).parents))


def _state(environment: Mapping[str, str]) -> list[str]:
    """Return the state of Treadle; where one folder holds its configuration, too, just the state: commands may run skills."""
    folder = state_folder(environment)
    if folder != config_folder(environment):
        return [str(folder), str(config_folder(environment) / "keys.json")]
    return [one.path for one in entries_of(str(folder)) if one.name.startswith(_STATE)]


def _homes(environment: Mapping[str, str]) -> set[str]:
    found = [environment.get("HOME", "")]
    with suppress(KeyError):  # a user without an entry
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return {os.path.realpath(one) for one in found if one.startswith("/")} - {"/"}


@cache
def _kinds() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def _listed() -> dict[str, list[str]]:
    return {name: " ".join(kinds.values()).split() for name, kinds in _kinds().items()}


@cache
def _anywhere() -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, _listed()["anywhere"])))


def _named(homes: set[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the places that are listed by name."""
    moved = [(begin, base) for begin, variable in _MOVED if (base := environment.get(variable))]
    for name in _listed()["home"]:
        yield from (f"{home}/{name}" for home in homes)
        yield from (f"{base}/{name.removeprefix(begin)}" for begin, base in moved if name.startswith(begin))


def _searched(homes: set[str], environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the folders in which others are looked for, each with what the names of its entries begin with."""
    bases = [base for _, variable in _MOVED if (base := environment.get(variable))]
    parents = [*(f"{home}/{begin}".rstrip("/") for home in homes for begin, _ in _MOVED), *bases]
    return [*((one, ".") for one in homes), *((one, "") for one in parents)]


def _anywhere_in(homes: set[str], environment: Mapping[str, str], look: _Look) -> Iterator[str]:
    """Yield what has the name of a private file in the folders that are searched, and what of these is shut."""
    for folder, begin in _searched(homes, environment):
        entries = look(folder)
        if entries is None:
            yield folder
        for entry in entries or ():
            if entry.name.startswith(begin) and _anywhere().match(entry.name):
                yield entry.path
            elif entry.name.startswith(begin) and entry.name not in _PASSED and os.path.isdir(entry.path):
                inner = look(entry.path)
                if inner is None:
                    yield entry.path
                yield from (one.path for one in inner or () if _anywhere().match(one.name))


def _led_to(places: Iterable[str], homes: set[str]) -> Iterator[str]:
    """Yield the files of a home to which links in private folders of it lead, such as those of a folder with dotfiles. A program is not private."""
    tops = [one for one in places if any(one.startswith(f"{home}/") for home in homes)]
    inner = islice((one for top in tops for one in entries_of(top)), _MOST_ENTRIES)
    for entry in islice(_with_inner(inner), _MOST_ENTRIES):
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            is_own = any(real.startswith(f"{home}/") for home in homes)
            if is_own and os.path.isfile(real) and not os.access(real, os.X_OK):
                yield real


def _with_inner(entries: "Iterable[os.DirEntry[str]]") -> "Iterator[os.DirEntry[str]]":
    for one in entries:
        yield one
        if one.is_dir(follow_symlinks=False):
            yield from entries_of(one.path)


def _is_plain(path: str) -> bool:
    """Whether a path has a folder or a file, or may have one, since it is shut."""
    try:
        mode = os.lstat(path).st_mode
    except PermissionError:
        return True
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)
