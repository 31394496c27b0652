"""Refusing: tell what a sandbox kept from a program from what the program failed at by itself. Runs nothing.

No sandbox reports what it refused. The system's words for it stand in the program's output, its signals and the counters of its
control group. A word alone proves nothing: a path that the program named is compared with what was open to it.
"""

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from treadle.sandboxes.closing import Repositories
from treadle.sandboxes.confinement import Confinement, protected_names, protected_places
from treadle.tools import ProcessResult, Refusal

__all__ = ["Places", "refusals"]

_OWN = ("/tmp", "/dev")  # noqa: S108 - the program's own, which nobody else sees
_MOST = 5
_MOST_LINES = 2000
_LONGEST_LINE = 300

_WRITING = ("Read-only file system", "EROFS")
_REPLACING = ("Device or resource busy", "EBUSY")  # to rename a file over one that is mounted read-only
_CLOSED = ("Permission denied", "Operation not permitted", "PermissionError", "EACCES", "EPERM")
_MISSING = ("No such file or directory", "FileNotFoundError", "ENOENT")
_WORDS: tuple[tuple[Literal["network", "processes", "memory", "disk"], tuple[str, ...]], ...] = (
    ("network", ("Network is unreachable", "Could not resolve host", "Temporary failure in name resolution", "Name or service not known",
                 "ENETUNREACH", "EAI_AGAIN", "socket: Operation not permitted", "Couldn't connect to server", "Failed to connect")),
    ("processes", ("fork: retry", "Cannot fork", "fork: Resource temporarily unavailable", "can't start new thread",
                   "Resource temporarily unavailable")),
    ("memory", ("Cannot allocate memory", "MemoryError", "std::bad_alloc", "out of memory", "Out of memory")),
    ("disk", ("No space left on device", "File too large", "file size limit exceeded", "File size limit exceeded")),
)  # fmt: skip
_SIGNALS: Mapping[int, tuple[Literal["time", "disk"], str]] = {
    signal.SIGXCPU: ("time", "cpu_seconds"),
    signal.SIGXFSZ: ("disk", "max_file_bytes"),
}
_REPLACED = "Another program replaced it while the command ran, so that the command may have changed it too. A person should look at it."
_UNANSWERED = ("Connection refused", "ECONNREFUSED")
_PORT = re.compile(r"(?:\bport |[:,] ?|/)(\d{2,5})\b", re.IGNORECASE)
_LISTENS = "0A"
"""A socket that listens, in the kernel's tables."""
_CONNECTING = re.compile(r"\b(socket|connect)")
_QUOTED = re.compile(r"""['"\u2018`]([^'"\u2019`\n]{1,500})['"\u2019`]""")
_NAMED = re.compile(r"[\s:]([^\s:'\"\u2018\u2019`]{1,500})(?=:\s)")


class Places(msgspec.Struct, frozen=True):
    """What of the file system is open to a confined program."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    protected: tuple[str, ...]
    own: tuple[str, ...] = ()
    """What Treadle itself runs and obeys, in the writable folders: it is read-only, too."""
    hidden: tuple[str, ...] = ()
    """Files in these folders that cannot be read."""
    names: tuple[str, ...] = ()
    """The protected names below each writable folder, also those that nothing has."""
    repositories: Repositories | None = None
    """The repositories of git in the writable folders."""

    @staticmethod
    def of(about: Confinement) -> "Places":
        """Return the places of a confinement. Raises ConfigurationError where one does not exist."""
        writable = about.writable_folders()
        found = Repositories(writable if about.protected else ())
        names = protected_names(about, found)
        protected = protected_places(about, names, found)
        return Places(about.readable_places(), writable, protected, about.own_places(), names=names, repositories=found)

    @property
    def kept(self) -> tuple[str, ...]:
        """What is read-only in the writable folders."""
        return (*self.protected, *self.own)

    def identities(self) -> dict[str, tuple[int, int]]:
        """Return which file has each protected name now."""
        found = {}
        for path in self.protected:
            with suppress(OSError):
                status = Path(path).stat()
                found[path] = (status.st_dev, status.st_ino)
        return found

    def hold(self, path: str) -> bool:
        """Whether a path can be read inside."""
        real = _real(path)
        if real in self.hidden:
            return False
        return any(real == one or real.startswith(f"{one.rstrip('/')}/") for one in (*self.readable, *self.writable))

    def takes(self, path: str) -> bool:
        """Whether a path can be written inside."""
        real = _real(path)
        if real in self.hidden or any(real == one or real.startswith(f"{one}/") for one in self.kept):
            return False
        return any(real == one or real.startswith(f"{one.rstrip('/')}/") for one in (*self.writable, *_OWN))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a link that we may not read
        return os.path.normpath(path)


def refusals(
    result: ProcessResult,
    places: Places,
    *,
    cwd: str,
    about: Confinement,
    counted: Mapping[str, str],
    moved: Mapping[str, str],
    replaced: Sequence[str] = (),
) -> tuple[Refusal, ...]:
    """Return what the sandbox kept from a program; nothing where the program ended well, or failed by itself.

    Args:
        cwd: The folder that relative paths of the program start from.
        about: What it was held to: what is not closed has not been refused.
        counted: Limits that were counted from outside and that it has reached, by kind.
        moved: What it gave a protected name, with the path that this has now.
        replaced: Protected files that another program has replaced meanwhile, which ends their protection.
    """
    found = [Refusal(kind=_kind(kind), target=limit) for kind, limit in counted.items()]
    found += [Refusal(kind="write", target=path, line=f"Moved aside to {new}.") for path, new in moved.items()]
    found += [Refusal(kind="write", target=path, line=_REPLACED) for path in replaced]
    number = -result.exit_code if result.exit_code < 0 else result.exit_code - 128
    if number in _SIGNALS:
        kind, limit = _SIGNALS[number]
        found.append(Refusal(kind=kind, target=limit))
    if result.exit_code == 0 and not found:
        return ()
    for line in _lines(result):
        refusal = _refused(line, places, cwd, about)
        if refusal is not None and refusal.kind == "other" and _CONNECTING.search(result.stderr):
            refusal = msgspec.structs.replace(refusal, kind="network")
        if refusal is not None and not any(
            one.kind == refusal.kind and refusal.target in ("", one.target) for one in found
        ):
            found.append(refusal)
    return tuple(found[:_MOST])


def _kind(word: str) -> Literal["processes", "memory", "disk"]:
    return "disk" if word == "disk" else "processes" if word == "processes" else "memory"


def _lines(result: ProcessResult) -> Iterator[str]:
    text = f"{result.stderr[-100_000:]}\n{result.stdout[-100_000:]}"
    return (line.strip()[:_LONGEST_LINE] for line in text.splitlines()[-_MOST_LINES:] if line.strip())


def _refused(line: str, places: Places, cwd: str, about: Confinement) -> Refusal | None:
    is_open = {"network": about.network, "memory": about.memory_bytes is None, "processes": about.max_processes is None}
    for kind, markers in _WORDS:
        if any(word in line for word in markers):
            return None if is_open.get(kind) else Refusal(kind=kind, line=line)
    if not about.network and _first(_UNANSWERED, line) and any(map(_is_listened_on, _PORT.findall(line))):
        return Refusal(kind="network", line=line)
    if word := _first((*_WRITING, *_REPLACING), line):
        path = _path(line, word, cwd)
        is_own = places.takes(path) if path else word in _REPLACING
        return None if is_own else Refusal(kind="write", target=path, line=line)
    if word := _first(_CLOSED, line):
        return _closed(line, _path(line, word, cwd), places)
    if word := _first(_MISSING, line):
        path = _path(line, word, cwd)
        is_hidden = bool(path) and os.path.lexists(path) and not places.hold(path)
        return Refusal(kind="read", target=path, line=line) if is_hidden else None
    return None


def _is_listened_on(port: str) -> bool:
    """Whether a program of this machine answers at a port, which has an empty network inside: nothing there ever does."""
    at = f":{int(port):04X} "
    tables = (_read(f"/proc/net/{name}") for name in ("tcp", "tcp6"))
    return any(at in line and f" {_LISTENS} " in line for table in tables for line in table.splitlines())


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text()
    return ""


def _first(markers: Sequence[str], line: str) -> str:
    return next((word for word in markers if word in line), "")


def _closed(line: str, path: str, places: Places) -> Refusal | None:
    """A permission was missing: the sandbox's word where the path is closed inside, the file's own mode where it is open."""
    if not path:
        return Refusal(kind="other", line=line)
    if not places.hold(path):
        return Refusal(kind="read" if os.path.lexists(path) else "write", target=path, line=line)
    is_unreadable = os.path.lexists(path) and not os.access(path, os.R_OK)
    if places.takes(path) or is_unreadable:
        return None
    return Refusal(kind="write", target=path, line=line)


def _path(line: str, word: str, cwd: str) -> str:
    """Return the path of which a program says something, from `/`: quoted behind the system's words, or the last one before them."""
    before, _, after = line.partition(word)
    quoted = _QUOTED.search(after)
    if quoted is None:
        ends = sorted([*_QUOTED.finditer(before), *_NAMED.finditer(before)], key=lambda one: one.end())
        quoted = ends[-1] if ends else None
    if quoted is None:
        return ""
    return os.path.normpath(os.path.join(cwd, quoted[1]))  # noqa: PTH118 - a text, not a place of ours
