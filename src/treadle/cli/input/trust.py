"""Trust: which folders' own configuration counts, by its content. A person has looked at it and said so; a change asks again.

What comes with a folder is all that lies in its `.treadle`, and the files of it that its hooks name. Its digest is kept in the person's own folder. Before that, nothing of it
is run, and of its configuration only what tightens holds.
"""

import hashlib
import json
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.files import content_of, write_whole
from treadle.cli.input.places import user_config

__all__ = [
    "Held",
    "Trusted",
    "brought_by",
    "changes",
    "exec_line",
    "files_named",
    "held",
    "in_words",
    "read_own_json",
    "trusted_folders",
    "with_trust",
    "without_trust",
    "write_own",
]

_Kind = TypeVar("_Kind")
_FOLDER = ".treadle"
_HOOKS = Path(_FOLDER, "hooks.json")
_PLACEHOLDER = re.compile(r"\$\{(?:CLAUDE|TREADLE)_PROJECT_DIR\}")
_MAX_FILES = 500
_MAX_BYTES = 5_000_000
_MAX_PROGRAM_BYTES = 50_000_000
_MOST_NAMED = 8


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with a folder."""

    folder: str
    """From `/`, links resolved."""
    digest: str
    """Of all its files: their names, their content and whether they can be run. Empty where it brings nothing."""
    files: tuple[str, ...] = ()
    """Their names, relative to the folder."""
    contents: tuple[bytes, ...] = ()
    """What each held when the digest was made: what is shown of it is what is approved."""
    digests: Mapping[str, str] = {}
    """Of each file by its name, so that a person is told which has changed."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What came with a trusted folder when its digest was compared. The files may have changed since: only this counts."""

    folder: Path | None = None
    """Its `.treadle`, as the folder was named; None where the folder is not trusted."""
    contents: Mapping[Path, bytes] = {}
    digest: str = ""
    """Of all of it."""

    def is_approved(self) -> bool:
        """Whether the folder is as it was then, or as a person has approved it since: what a hook starts is read from the disk."""
        if self.folder is None:
            return False
        try:
            now = brought_by(self.folder.parent)
            known = trusted_folders(os.environ).get(now.folder)
        except UsageError:
            return False
        return now.digest == self.digest or (known is not None and known.digest == now.digest)

    def has(self, path: Path) -> bool:
        """Whether a file came with the folder."""
        return _absolute(path) in self.contents

    def content_of(self, path: Path) -> bytes | None:
        """Return what a file held; None for one that lies elsewhere.

        Raises:
            UsageError: It lies in the folder, and did not exist then.
        """
        place = _absolute(path)
        if self.folder is None or not place.is_relative_to(self.folder):
            return None
        if place not in self.contents:
            raise UsageError(
                f"{path} did not exist when the trust of its folder was checked. Look at it, and start again."
            )
        return self.contents[place]


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """A folder whose configuration a person has approved."""

    digest: str
    at: float
    """When, in seconds since 1970."""
    files: tuple[str, ...] = ()
    guidance: str = ""
    """Digest of its instruction files and skills, as they were approved; empty where there were none."""
    digests: dict[str, str] = {}
    """Of each file by its name, and of each instruction file and skill. Empty in a list of an earlier version."""


class _Page(msgspec.Struct, kw_only=True):
    folders: dict[str, Trusted] = {}


def brought_by(folder: Path) -> Brought:
    """Look at what comes with a folder. Nothing of it is run or believed.

    Raises:
        UsageError: It holds what is not a plain file, or too much; such a folder cannot be trusted.
    """
    root = Path(os.path.realpath(folder))
    place = root / _FOLDER
    if not os.path.lexists(place):
        return Brought(folder=str(root), digest="")
    found, size = dict[str, tuple[Path, bytes]](), 0
    too_much = f"{place} holds more than {_MAX_FILES} files and folders or {_MAX_BYTES:,} bytes: it cannot be trusted as a whole."
    for number, path in enumerate(_within(place)):
        if number > _MAX_FILES:
            raise UsageError(too_much)
        if stat.S_ISDIR(path.lstat().st_mode):
            continue
        content = _content(path, _MAX_BYTES)
        size += len(content)
        if size > _MAX_BYTES:
            raise UsageError(too_much)
        found[str(path.relative_to(root))] = (path, content)
    found = dict(sorted(found.items(), key=lambda one: one[1][0].parts))
    if (hooks := found.get(str(_HOOKS))) is not None:
        found |= {name: one for name, one in _started(root, hooks[1]) if name not in found}
    digests, whole = dict[str, str](), hashlib.sha256()
    for name, (path, content) in found.items():
        is_program = bool(path.lstat().st_mode & 0o111)
        for part in (os.fsencode(name), str(is_program).encode(), content):
            whole.update(len(part).to_bytes(8, "big") + part)
        digests[name] = f"{hashlib.sha256(content).hexdigest()}{' runs' if is_program else ''}"
    digest = f"sha256:{whole.hexdigest()}" if found else ""
    contents = tuple(content for _, content in found.values())
    return Brought(folder=str(root), digest=digest, files=tuple(found), contents=contents, digests=digests)


def _started(root: Path, hooks: bytes) -> Iterator[tuple[str, tuple[Path, bytes]]]:
    """Yield the files of the folder that commands of its hooks name: they are run later, from the disk.

    What these start or import in their turn is not known here.
    """
    try:
        commands = list(_commands_in(json.loads(hooks), str(root)))
    except (ValueError, RecursionError):
        return  # such hooks cannot be read
    for command in commands:
        for name, path in files_named(root, command).items():
            yield name, (path, _content(path, _MAX_PROGRAM_BYTES))


def _commands_in(value: object, root: str) -> Iterator[str]:
    """Yield the lines of shell of hooks, and the programs with `args` as lines."""
    if isinstance(value, dict) and isinstance(command := value.get("command"), str):
        given = value.get("args")
        arguments = given if isinstance(given, list) else None
        words = [_PLACEHOLDER.sub(lambda _: root, str(one)) for one in (command, *(arguments or ()))]
        yield command if arguments is None else exec_line(words)
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _commands_in(one, root)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Say which files are not as they were approved: `changed x`, `new y`, `gone z`; none where the list does not say how they were."""
    if not before:
        return ()
    changed = [f"changed {name}" for name in sorted(before.keys() & now.keys()) if before[name] != now[name]]
    new = [f"new {name}" for name in sorted(now.keys() - before.keys())]
    return (*changed, *new, *(f"gone {name}" for name in sorted(before.keys() - now.keys())))


def in_words(found: Sequence[str]) -> str:
    """Return changes for the middle of a sentence; nothing for none."""
    more = len(found) - _MOST_NAMED
    named = ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f" ({named})" if named else ""


def held(brought: Brought, folder: Path) -> Held:
    """Return the contents of a folder that a person trusts, by their paths as the folder is named."""
    root = _absolute(folder)
    contents = {root / name: content for name, content in zip(brought.files, brought.contents, strict=True)}
    return Held(folder=root / _FOLDER, contents=contents, digest=brought.digest)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - as it is named: a link may lead elsewhere by now


def _within(folder: Path) -> Iterator[Path]:
    """Yield a folder, and all files and folders in it. A link may lead to something else tomorrow: nobody can trust it."""
    left = [folder]
    while left:
        place = left.pop()
        mode = place.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise UsageError(
                f"{place} is a link, which may lead elsewhere later, so it cannot be trusted. Put the file itself in its place."
            )
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise UsageError(f"{place} is neither a file nor a folder: its contents cannot be trusted.")
        if any("\udc80" <= one <= "\udcff" for one in place.name):
            raise UsageError(f"{place.parent} has a file whose name is not UTF-8 text: it cannot be trusted.")
        yield place
        if stat.S_ISDIR(mode):
            try:
                left += place.iterdir()
            except OSError as error:
                raise UsageError(f"{place} cannot be read: {error.strerror}.") from error


def _content(path: Path, most: int) -> bytes:
    large = f"{path} holds more than {most:,} bytes: it cannot be trusted as a whole."
    return content_of(path, most, cannot=f"{path} cannot be read: {{}}.", large=large, flags=os.O_NOFOLLOW)


def _place(environment: Mapping[str, str]) -> Path:
    return user_config(environment).with_name("trust.json")


def _read_own(place: Path) -> bytes | None:
    """Return a file that only this person writes; None where there is none.

    Raises:
        UsageError: It cannot be read, or others can write it.
    """
    try:
        status = place.stat()
        content = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}.") from error
    if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{place} can be written by others: nothing is trusted by it. Run: chmod 600 {place}")
    return content


def trusted_folders(environment: Mapping[str, str]) -> dict[str, Trusted]:
    """Return the folders that the person trusts. A file that was damaged, or that others can write, trusts nothing.

    Raises:
        UsageError: The file is not what we have written.
    """
    page = read_own_json(_place(environment), _Page, "trust your folders again")
    return {} if page is None else page.folders


def with_trust(
    brought: Brought, environment: Mapping[str, str], *, guidance: str = "", guides: Mapping[str, str] | None = None
) -> None:
    """Remember that a person trusts a folder as it is now.

    Args:
        guidance: The digest of its instruction files and skills.
        guides: The digest of each of these, by its name.
    """
    folders = trusted_folders(environment)
    folders[brought.folder] = Trusted(
        digest=brought.digest,
        at=time.time(),
        files=brought.files,
        guidance=guidance,
        digests={**brought.digests, **(guides or {})},
    )
    _write(folders, environment)


def without_trust(folder: str, environment: Mapping[str, str]) -> bool:
    """Forget a folder. Return whether it was trusted."""
    folders = trusted_folders(environment)
    if folders.pop(folder, None) is None:
        return False
    _write(folders, environment)
    return True


def _write(folders: dict[str, Trusted], environment: Mapping[str, str]) -> None:
    write_own(_place(environment), msgspec.json.encode(_Page(folders=folders)))


def write_own(place: Path, content: bytes) -> None:
    """Write a file of JSON whole or not at all, for the person alone.

    Raises:
        UsageError: It cannot be written.
    """
    write_whole(place, msgspec.json.format(content, indent=1), cannot=f"{place} cannot be written: {{}}.")


def read_own_json(place: Path, kind: type[_Kind], then: str) -> _Kind | None:
    """Return what such a file says; None where there is none.

    Args:
        then: What a person does after they have moved a damaged one away.

    Raises:
        UsageError: It cannot be read, others can write it, or it is damaged.
    """
    if (content := _read_own(place)) is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{place} is damaged: {error}. Move it away, and {then}.") from error


# --- Named files: which files of a folder a command names literally. Starts nothing, and knows no program. What a program reads by custom
# (`make` its Makefile), or what a file starts in its turn, is not bound by its name here.

_ROOT = re.compile(r"\$\{?(?:CLAUDE_PROJECT_DIR|TREADLE_PROJECT_DIR|PWD)\b\}?|\$\(pwd\)")
_WORD = re.compile(r"[^\s;|&<>()`'\"]+")
_MOST_FOLDERS = 50


def files_named(root: Path, command: str) -> dict[str, Path]:
    """Return the files of a folder that the words of a line of shell name, by their names in the folder.

    A word names a file below the folder, or below a folder that another word names: `cd tools && ./check.py`.

    Args:
        root: From `/`, links resolved.
    """
    words = dict.fromkeys(_names(_ROOT.sub(lambda _: str(root), command)))
    folders = [root, *(place for word in words if (place := _inside(root, root / word)) and place.is_dir())]
    found = dict[str, Path]()
    for named in sorted({folder / word for folder in folders[:_MOST_FOLDERS] for word in words}):
        path = _inside(root, named)
        if path is not None and path.is_file():
            found[os.path.relpath(os.path.normpath(named), root)] = path
    return found


def _names(line: str) -> Iterator[str]:
    """Yield what may be a name in a line: its words, quoted or not, what comes after `=`, and Python's modules as files."""
    try:
        words = shlex.split(line, comments=False)
    except ValueError:  # a quote is not closed
        words = []
    words += [part for word in words if re.search(r"\s", word) for part in _WORD.findall(word)]
    words += _WORD.findall(line)
    for word in words:
        module = word.removeprefix("-m")
        for name in (word, word.rpartition("=")[2], word.rstrip(";"), f"{module.replace('.', '/')}.py"):
            if name and "\0" not in name:
                yield name


def _inside(root: Path, named: Path) -> Path | None:
    """Return the place of the folder to which a name leads; None where it leads elsewhere, or to nothing."""
    try:
        path = Path(os.path.realpath(named))
        return path if path.exists() and path.is_relative_to(root) else None
    except (OSError, ValueError):  # too long, or not a name
        return None


def exec_line(words: Sequence[str], folder: str | None = None) -> str:
    """Return the line of shell that means a program and its arguments, started in a folder."""
    return f"{f'cd {shlex.quote(folder)}; ' if folder else ''}{shlex.join(words)}"
