"""The sandboxes: bubblewrap, and Landlock with a filter of system calls. Each runs a command confined, or not at all."""

import asyncio
import marshal
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from treadle.concurrency import Threads
from treadle.errors import SandboxUnavailable, check_kind
from treadle.fields import checked
from treadle.sandboxes import groups, launcher
from treadle.sandboxes.closing import ClosedNames, entries_of
from treadle.sandboxes.confinement import OWN, TEMPORARY, Confinement, Places, lies_in
from treadle.sandboxes.keeper import DiskUse, limits_reached
from treadle.sandboxes.outside import repository_of
from treadle.sandboxes.private import is_reached
from treadle.sandboxes.processes import TOOLCHAINS, Lineage, clean_environment, run_until
from treadle.sandboxes.proxy import CONNECTOR, Proxy
from treadle.tools import Command, Detached, Need, ProcessResult, Refusal, parse_needs
from treadle.tools.needs import GIT, UNCONFINED

__all__ = [
    "FAILED",
    "Bubblewrap",
    "Landlock",
    "Room",
    "call_filter",
    "closed_for_age",
    "find_sandbox",
    "refusals",
    "started",
]


# --- Filtering: which calls of the system a confined program may not make, as a filter that the kernel runs (seccomp).
# Values only.

_Instruction: TypeAlias = tuple[int, int, int, int]

_LOAD, _EQUAL, _AT_LEAST, _HAS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOWED, _KILLED, _FAILS = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER: _Instruction = (_LOAD, 0, 0, 0)
_EPERM, _EACCES, _ENOSYS, _EAFNOSUPPORT, _EOPNOTSUPP = 1, 13, 38, 97, 95

_MACHINES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
    "riscv64": (0xC00000F3, 1),
    "loongarch64": (0xC0000102, 1),
}
"""What the kernel calls each, and which of the numbers below are its own: all but the oldest machines share the second."""
_X32 = 0x40000000
"""Calls of x32 have other numbers for the same acts."""

_KERNEL = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "move_mount": (429, 429),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116),
    "fanotify_init": (300, 262), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
}  # fmt: skip
"""Namespaces, mounts, keys, and what belongs to the kernel or to the whole machine."""
_OTHERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "file_setattr": (469, 469),
}  # fmt: skip
"""What reaches another process, or what processes share by number or by name. A namespace holds these, where there is one."""
_ATTRIBUTES = {
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "setxattrat": (463, 463), "removexattrat": (466, 466),
}  # fmt: skip
"""Extended attributes, access lists among them: Landlock does not look at who changes them."""
_OF_A_PROCESS = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip
"""Calls whose first argument is a process; 0 is the caller."""
_OF_A_KIND = {"setpriority": (141, 140, 0), "ioprio_set": (251, 30, 1)}
"""Calls whose first argument says what the second is; the last value stands for a process, and 0 is the caller."""
_SIGNALS = {
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}  # fmt: skip
_MODES = {
    "chmod": (90, None, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2), "fchmodat2": (452, 452, 2), "creat": (85, None, 1),
    "mknod": (133, None, 1), "mknodat": (259, 33, 2),
}  # fmt: skip
"""Calls with the mode of a file, and which argument it is."""
_OPENS = {"open": (2, None, 1), "openat": (257, 56, 2)}
"""Calls that open, and which argument holds the flags; the mode is behind them."""
_CLONE, _CLONE3, _SOCKET, _IO_URING, _OPENAT2 = (56, 220), (435, 435), (41, 198), (425, 425), (437, 437)
_SOCKETPAIR = (53, 199)
_IOCTL, _FCNTL, _KILL, _TRUNCATE = (16, 29), (72, 25), (62, 129), (76, 45)
_SETRLIMIT, _PRLIMIT = (160, 164), (302, 261)
_RLIMIT_RTTIME = 15
"""The limit in which `lineage` marks what a program has started."""

_NOT_CLONED = (
    0x7E020080 | 0x8000
)  # every CLONE_NEW* flag; CLONE_PARENT, with which a child would be ours, that nobody takes
_SET_ID, _DEVICE = 0o6000, 0o020000
_CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_PAIRED, _KIND_OF_SOCKET = (1, 5), 0xF
"""Streams and packets: one of another kind sends to any socket that it names."""
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
_TYPES = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into a terminal."""
_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS, the same of 32 bits, and FS_IOC_FSSETXATTR: they change a file that may only be read."""
_BTRFS, _BCACHEFS = 0x9400, 0xBC00
_SHARING = (0x40049409, 0x4020940D, 0xC0189436)
"""FICLONE, FICLONERANGE and FIDEDUPERANGE, whose numbers are among those of btrfs."""
_LEASE = (1024,)  # F_SETLEASE: whoever opens the file waits, also for one that may only be read
_SET_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX: who gets a signal of input
_OWNER_BY_IOCTL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: the same of a socket


@cache
def call_filter(
    kind: Literal["namespaces", "files"], *, has_network: bool, has_unix: bool = False, landlock_abi: int = 0
) -> bytes:
    """Return the filter of a sandbox: `namespaces` for bubblewrap, `files` for Landlock, which has no namespaces to hold the rest.

    Args:
        has_unix: Whether there are Unix sockets, beside pairs. Only namespaces hold those with names that begin with NUL.
        landlock_abi: What this kernel's Landlock holds by itself. An older one has its gaps closed here.

    Raises:
        OSError: The numbers of this machine's calls are not known.
    """
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(f"no filter of system calls is known for {machine}")
    architecture, at = _MACHINES[machine]
    found: list[_Instruction] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILLED), _NUMBER]
    found += [(_AT_LEAST, 0, 1, _X32), _fails(_ENOSYS)] if machine == "x86_64" else []
    found += [one for numbers in _KERNEL.values() for one in _closed(numbers[at])]
    found += _closed(_CLONE3[at], _ENOSYS) + _closed(_IO_URING[at], _ENOSYS) + _closed(_OPENAT2[at], _ENOSYS)
    found += _when(_CLONE[at], [_argument(0), (_HAS, 0, 1, _NOT_CLONED), _fails(_EPERM)])
    found += _modes(at)
    found += _commands(_IOCTL[at], _TYPES if kind == "namespaces" else (*_TYPES, *_FLAGS))
    found += _of_btrfs(at) + _commands(_FCNTL[at], _LEASE)
    if kind == "namespaces":
        found += _sockets(_SOCKET[at], (_AF_UNIX, _AF_INET, _AF_INET6) if has_unix else (_AF_INET, _AF_INET6))
        found += [] if has_unix else _pairs(at)
    else:
        found += _pairs(at)
        found += _sockets(_SOCKET[at], (_AF_INET, _AF_INET6)) if has_network else _closed(_SOCKET[at], _EACCES)
        found += _others(at) + _mark(at) + _gaps(at, landlock_abi)
    return b"".join(struct.pack("HBBI", *one) for one in (*found, (_RETURN, 0, 0, _ALLOWED)))


def closed_for_age(landlock_abi: int) -> tuple[str, ...]:
    """Return what programs cannot do under a Landlock of some version, because that one could not tell their own things from others'."""
    found = (
        (2, "move a file to another folder (they copy it)"),
        (3, "shorten a file by its name"),
        (6, "send signals to processes"),
    )
    return tuple(what for since, what in found if landlock_abi < since)


def _others(at: int) -> list[_Instruction]:
    """Close other processes, what processes share, and attributes of files."""
    found = [one for numbers in _OTHERS.values() for one in _closed(numbers[at])]
    found += [one for numbers in _ATTRIBUTES.values() for one in _closed(numbers[at], _EOPNOTSUPP)]
    for numbers in _OF_A_PROCESS.values():
        found += _when(numbers[at], [_argument(0), (_EQUAL, 1, 0, 0), _fails(_EPERM)])
    for *both, process in _OF_A_KIND.values():
        body = [_argument(0), (_EQUAL, 0, 2, process), _argument(1), (_EQUAL, 1, 0, 0), _fails(_EPERM)]
        found += _when(both[at], body)
    return found


def _mark(at: int) -> list[_Instruction]:
    """Close changing the limit that marks a program's processes: without it, one that has left its group would not be found and ended."""
    found = _when(_SETRLIMIT[at], [_argument(0), (_EQUAL, 0, 1, _RLIMIT_RTTIME), _fails(_EPERM)])
    new, rest = _argument(2), (_LOAD, 0, 0, 36)  # both halves of an address, which is 0 where a limit is only read
    body = [
        _argument(1),
        (_EQUAL, 0, 5, _RLIMIT_RTTIME),
        new,
        (_EQUAL, 0, 2, 0),
        rest,
        (_EQUAL, 1, 0, 0),
        _fails(_EPERM),
    ]
    return found + _when(_PRLIMIT[at], body)


def _gaps(at: int, abi: int) -> list[_Instruction]:
    """Close what an older Landlock lets through: shortening files (before version 3), signals to others (before version 6)."""
    found: list[_Instruction] = []
    if abi < 3:
        found += _closed(_TRUNCATE[at])
        for *both, flags in _OPENS.values():  # opened to be read, and emptied
            body = [
                _argument(flags),
                (_AND, 0, 0, os.O_TRUNC | os.O_ACCMODE),
                (_EQUAL, 0, 1, os.O_TRUNC),
                _fails(_EPERM),
            ]
            found += _when(both[at], body)
    if abi < 6:
        found += [one for numbers in _SIGNALS.values() for one in _closed(numbers[at])]
        found += _when(_KILL[at], [_argument(0), (_EQUAL, 1, 0, 0), _fails(_EPERM)])
        found += _commands(_FCNTL[at], _SET_OWNER) + _commands(_IOCTL[at], _OWNER_BY_IOCTL)
    return found


def _modes(at: int) -> list[_Instruction]:
    """Close modes that let a program run as the owner of its file, and device files."""
    found: list[_Instruction] = []
    for name, (*both, mode) in _MODES.items():
        bits = _SET_ID | _DEVICE if name.startswith("mknod") else _SET_ID
        found += _when(both[at], [_argument(mode), (_HAS, 0, 1, bits), _fails(_EPERM)])
    for *both, flags in _OPENS.values():
        body = [_argument(flags), (_HAS, 0, 3, _CREATES), _argument(flags + 1), (_HAS, 0, 1, _SET_ID), _fails(_EPERM)]
        found += _when(both[at], body)
    return found


def _sockets(number: int, families: tuple[int, ...]) -> list[_Instruction]:
    """Leave sockets of some families, and questions about the machine's own addresses."""
    body = [_argument(0)]
    ends = len(families) + 4
    for place, family in enumerate(families):
        body.append((_EQUAL, ends - place - 1, 0, family))
    body += [(_EQUAL, 0, 2, _AF_NETLINK), _argument(2), (_EQUAL, 1, 0, _NETLINK_ROUTE), _fails(_EAFNOSUPPORT)]
    return _when(number, body)


def _of_btrfs(at: int) -> list[_Instruction]:
    """Close what a file system such as btrfs does by itself, such as a snapshot of a private folder, but for sharing the content of files."""
    body = [_argument(1), *((_EQUAL, 6 - place, 0, one) for place, one in enumerate(_SHARING))]
    body += [(_AND, 0, 0, 0xFF00), (_EQUAL, 1, 0, _BTRFS), (_EQUAL, 0, 1, _BCACHEFS), _fails(_EPERM)]
    return _when(_IOCTL[at], body)


def _pairs(at: int) -> list[_Instruction]:
    """Close pairs of sockets for datagrams: each end can send to any socket that has a name."""
    body = [
        _argument(1),
        (_AND, 0, 0, _KIND_OF_SOCKET),
        (_EQUAL, 2, 0, _PAIRED[0]),
        (_EQUAL, 1, 0, _PAIRED[1]),
        _fails(_EACCES),
    ]
    return _when(_SOCKETPAIR[at], body)


def _commands(number: int, commands: tuple[int, ...]) -> list[_Instruction]:
    """Close a call for some values of its second argument."""
    body = [_argument(1)]
    for one in commands:
        body += [(_EQUAL, 0, 1, one), _fails(_EPERM)]
    return _when(number, body)


def _argument(place: int) -> _Instruction:
    """Load the lower half of an argument: none of those that are looked at has another."""
    return (_LOAD, 0, 0, 16 + 8 * place)


def _fails(error: int) -> _Instruction:
    return (_RETURN, 0, 0, _FAILS | error)


def _closed(number: int | None, error: int = _EPERM) -> list[_Instruction]:
    return [] if number is None else [(_EQUAL, 0, 1, number), _fails(error)]


def _when(number: int | None, body: list[_Instruction]) -> list[_Instruction]:
    return [] if number is None else [(_EQUAL, 0, len(body) + 1, number), *body, _NUMBER]


# --- Refusing: tell what a sandbox kept from a program from what the program failed at by itself. Runs nothing.

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
    ("memory", ("Cannot allocate memory", "MemoryError", "std::bad_alloc", "out of memory", "Out of memory", "Sanitizer failed to allocate")),
    ("disk", ("No space left on device", "File too large", "file size limit exceeded", "File size limit exceeded")),
)  # fmt: skip
_REFUSAL_SIGNALS: Mapping[int, tuple[Literal["time", "disk"], str]] = {
    signal.SIGXCPU: ("time", "cpu_seconds"),
    signal.SIGXFSZ: ("disk", "max_file_bytes"),
}
_REPLACED = "Another program replaced it while the command ran, so that the command may have changed it too. A person should look at it."
_UNANSWERED = ("Connection refused", "ECONNREFUSED")
_PORT = re.compile(r"(?:\bport |[:,] ?|/)(\d{2,5})\b", re.IGNORECASE)
_LISTENS = "0A"
"""A socket that listens, in the kernel's tables."""
_CONNECTING = re.compile(r"\b(socket|connect)")
_BUS = re.compile(r"\b(?:to|message) bus\b|\bd-?bus\b", re.IGNORECASE)
_LOCAL = re.compile(
    rf"{_BUS.pattern}|unix:/|\bsocket '?\"?/|connect\w* .*/\S*(?:\.sock\b|socket\b|\.s\.)", re.IGNORECASE
)
"""How a program says that it has not reached a Unix socket, such as that of D-Bus or of a database."""
_ABSOLUTE = re.compile(r"/(?!/)[^\s'\":,;()]+")
_QUOTED = re.compile(r"""['"\u2018`]([^'"\u2019`\n]{1,500})['"\u2019`]""")
_NAMED = re.compile(r"[\s:]([^\s:'\"\u2018\u2019`]{1,500})(?=:\s)")


def refusals(
    result: ProcessResult,
    places: Places,
    *,
    cwd: str,
    about: Confinement,
    counted: Mapping[str, str],
    moved: Mapping[str, str],
    replaced: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> tuple[Refusal, ...]:
    """Return what the sandbox kept from a program; nothing where the program ended well, or failed by itself.

    Args:
        cwd: The folder that relative paths of the program start from.
        about: What it was held to: what is not closed has not been refused.
        counted: Limits that were counted from outside and that it has reached, by kind.
        moved: What it gave a protected name, with the path that this has now.
        replaced: Protected files that another program has replaced meanwhile, which ends their protection.
        hosts: Hosts that it has asked for in vain.
    """
    found = [Refusal(kind=_kind(kind), target=limit) for kind, limit in counted.items()]
    found += [Refusal(kind="write", target=path, line=f"Moved aside to {new}.") for path, new in moved.items()]
    found += [Refusal(kind="write", target=path, line=_REPLACED) for path in replaced]
    found += [Refusal(kind="network", target=host) for host in hosts]
    number = -result.exit_code if result.exit_code < 0 else result.exit_code - 128
    if number in _REFUSAL_SIGNALS:
        kind, limit = _REFUSAL_SIGNALS[number]
        found.append(Refusal(kind=kind, target=limit))
    if result.exit_code == 0 and not found:
        return ()
    for line in _lines(result):
        is_local = _LOCAL.search(line) is not None
        refusal = _unreached(line, cwd) if is_local else _refused(line, places, cwd, about)
        if refusal is not None and refusal.kind == "other" and not is_local and _CONNECTING.search(result.stderr):
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
        return _refusal_closed(line, _path(line, word, cwd), places)
    if word := _first(_MISSING, line):
        path = _path(line, word, cwd)
        is_hidden = bool(path) and os.path.lexists(path) and not places.hold(path)
        return Refusal(kind="read", target=path, line=line) if is_hidden else None
    return None


def _unreached(line: str, cwd: str) -> Refusal | None:
    """Return the Unix socket of this machine that a program has not reached, which only one outside of the sandbox does."""
    buses = ("/run/dbus/system_bus_socket", f"/run/user/{os.getuid()}/bus") if _BUS.search(line) else ()
    named = (*(path.rstrip(".") for path in _ABSOLUTE.findall(line)), *buses)
    found = next((one for one in named if _is_socket(Path(one)) and not one.startswith(f"{cwd}/")), None)
    return None if found is None else Refusal(kind="other", target=found, line=line)


def _is_listened_on(port: str) -> bool:
    """Whether a program of this machine answers at a port, which has an empty network inside: nothing there ever does."""
    at = f":{int(port):04X} "
    tables = (_read(f"/proc/net/{name}") for name in ("tcp", "tcp6"))
    return any(at in line and f" {_LISTENS} " in line for table in tables for line in table.splitlines())


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    return ""


def _first(markers: Sequence[str], line: str) -> str:
    return next((word for word in markers if word in line), "")


def _refusal_closed(line: str, path: str, places: Places) -> Refusal | None:
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


# --- Room: waits until a confined program has used up its share of the disk. Ends nothing itself, and counts nothing
# (`keeper.DiskUse` does).

_LOOK_SECONDS = 0.1
_threads = Threads()


class Room:
    """What one program may take of the file systems of its writable folders, watched from outside while it runs.

    Args:
        use: Made before the program starts.
    """

    def __init__(self, use: DiskUse) -> None:
        self._use = use
        self.is_used_up = False

    async def wait_used_up(self) -> None:
        """Return once the limit is reached."""
        while not self.is_used_up:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                if (taken := self._use.taken()) > 0:
                    # Adding up takes as long as the folders are large: the event loop is not to wait for it.
                    self.is_used_up = await self._counted(taken)
            except OSError:  # a folder is gone: nobody can count in it any more, as in the keeper
                self.is_used_up = True

    async def _counted(self, taken: int) -> bool:
        try:
            counting = _threads.submit(partial(self._use.is_used_up, taken))
        except RuntimeError:  # there is no room for a thread
            return self._use.is_used_up(taken)
        return bool(await counting)


# --- Starting: how limits are set before a confined program: by `prlimit`, which starts in a millisecond, else by our
# own launcher.

FAILED = launcher.FAILED
"""The exit status of a start that could not set a limit."""

_LAUNCHER = str(Path(launcher.__file__).resolve())
_SYSTEM_PYTHON = "/usr/bin/python3"
"""Starts the launcher where our own Python is closed to the user that we have become since we started."""
_SHELL = "/bin/sh"
_JOIN = (
    'while [ "$1" != -- ]; do file="$1/tasks"; [ -e "$file" ] || file="$1/cgroup.procs"; { echo 0 > "$file"; } 2>/dev/null '
    f"|| {{ echo '{launcher.MARK}a control group cannot be joined' >&2; exit {FAILED}; }}; shift; done; shift; exec \"$@\""
)
"""Joins the control groups that it is given, and becomes the program behind `--`. A single thread that moves itself (`0` to `tasks`, which
version 1 has) needs no lock over all processes, for which the kernel waits up to 20 ms."""
_RUN_CODE = "import marshal, sys; exec(marshal.loads(bytes.fromhex(sys.argv.pop(1))))"
"""Runs the launcher as the code that we have compiled already."""


def started(plan: int | None, program: Sequence[str], limits: Mapping[str, int], groups: Sequence[str]) -> list[str]:
    """Return the arguments that start a program with its limits, in its control groups.

    Args:
        plan: The descriptor from which the launcher reads what else it has to do, such as Landlock; None for nothing else.
        limits: By the names of `resource`, without `RLIMIT_`.
        groups: Folders of control groups.
    """
    setter = shutil.which("prlimit", path=os.defpath)
    if plan is None and setter is not None and os.access(_SHELL, os.X_OK):
        joining = [_SHELL, "-c", _JOIN, "sh", *groups, "--"] if groups else []
        set_limits = (_option(name, value) for name, value in limits.items())
        return [setter, "--core=0:0", *set_limits, "--", *joining, *program]
    words = marshal.dumps({"limits": dict(limits), "groups": list(groups), "plan": plan}, 2).hex()
    if not os.access(sys.executable, os.X_OK):
        return [_SYSTEM_PYTHON, "-I", "-S", _LAUNCHER, words, *program]
    return [sys.executable, "-I", "-S", "-c", _RUN_CODE, _launcher_code(), words, *program]


@contextmanager
def _descriptors() -> Iterator[tuple[list[int], int]]:
    """Make what a start reads from, files without a name, and the pipe in which it tells that the command was started; return both ends."""
    opened: list[int] = []
    try:
        opened += (os.memfd_create("treadle") for _ in _DETACHED)
        told, tell = os.pipe()
        opened += [tell, told]
        os.set_blocking(told, False)
        yield opened[:-1], told
    finally:
        for one in opened:
            os.close(one)


class _NotStarted(OSError):
    """Raised where the sandbox ended before the command began."""


def _has_started(told: int) -> bool:
    try:
        said = os.read(told, 4096)
    except BlockingIOError:
        return False
    return b"exit-code" in said or launcher.STARTED in said


@cache
def _launcher_code() -> str:
    """Return the launcher as `marshal` in hexadecimal: this very Python need not compile it at each start."""
    return marshal.dumps(compile(Path(_LAUNCHER).read_bytes(), _LAUNCHER, "exec")).hex()


def _option(name: str, value: int) -> str:
    """Return a limit as `prlimit` takes it. One that holds already for this process is not raised."""
    soft, last = launcher.limited(name, value, resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1])
    return f"--{name.lower()}={soft}:{last}"


# --- The sandboxes: bubblewrap, and Landlock with a filter of system calls. Each runs a command confined, or not at
# all.

_HANDED_DOWN = ("LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", *TOOLCHAINS)
_NAMESPACES = shlex.split(
    "--die-with-parent --new-session --unshare-user --unshare-pid --unshare-ipc --unshare-cgroup-try --cap-drop ALL"
)
"""Not those of names of the machine, and no word against more of them: the filter of system calls closes both, in less time."""
_DETACHED = (100, 101)
"""The descriptors that a process in the background reads from when it starts: its keeper has none with such numbers."""
_CHECK = f"""
while read -r _ _ device root point flags _; do
  case $1 in "$device $root ${{flags%%,*}} $point" | "${{flags%%,*}} $point") shift;; esac
done < /proc/self/mountinfo
[ "$1" = -- ] || {{
  printf '%s\n' "{launcher.MARK}the command was not run, since another one moved a folder while it was started. Not mounted: $1" >&2
  exit {FAILED}
}}
shift
exec "$@"
"""
"""Run inside, before the command: bwrap mounts by names, which another command may give to something else at that moment. So each thing must be
mounted at its place, and be what lies there. The kernel lists mounts in the order in which they were made."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What is started for a confined command: the launcher with its plan, the sandbox's own program, the command."""

    limits: dict[str, int]
    program: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    places: Places
    """What is open to it."""
    handed: dict[int, bytes] = {}
    """What it reads when it starts, by descriptor. Arguments would be too long: a command makes as many files as it likes."""
    plan: int | None = None
    """The descriptor from which the launcher reads what it has to do beside the limits."""

    def hand_over(self) -> None:
        """Write what it reads into its descriptors."""
        for number, content in self.handed.items():
            with open(number, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(number, 0, os.SEEK_SET)


class _Confined:
    """What both sandboxes share: limits, control groups, the launcher, and what happens to its failures."""

    name = ""
    _keeps_deeper = True

    def __init__(self, confinement: Confinement | None) -> None:
        check_kind("confinement", confinement, (Confinement, type(None)), "a Confinement, or None")
        self.confinement = confinement or Confinement()
        self._led_to = self.confinement.roots()
        self._writable = self.confinement.writable_folders()
        self._trees = dict(one for one in map(repository_of, self._writable) if one is not None)
        self.confinement.opened_places()

    @checked
    def hiding(self, globs: Sequence[str]) -> "_Confined":
        """Return the same sandbox in which a command cannot read what some more globs name: see `Confinement.hidden`."""
        return type(self)(msgspec.structs.replace(self.confinement, hidden=(*self.confinement.hidden, *globs)))

    def _places_now(self, command: Command) -> Places:
        """Return what is open now: files may have come, but no folder leads elsewhere, as one does that a command replaced by a link."""
        for name, path in self.confinement.roots().items():
            if self._led_to[name] != path:
                raise OSError(f"{name} leads elsewhere now, to {path}: it is open to no command.")
        cwd = None if command.cwd is None else os.path.realpath(command.cwd)
        lifted = parse_needs(command.lifted)
        return Places.of(self.confinement, lifted, cwd, keeps_deeper=self._keeps_deeper, known=self._trees)

    @checked
    async def run(self, command: Command) -> ProcessResult:
        """Run a command confined, to its end. Being cancelled ends it and all that it has started.

        Raises:
            OSError: It cannot be run confined. It was not run at all then.
        """
        hosts = self._hosts(command)
        if not hosts:
            return await self._run(command, None)
        async with Proxy(hosts) as proxy:
            return await self._run(command, proxy)

    async def _run(self, command: Command, proxy: Proxy | None) -> ProcessResult:
        try:
            return await self._run_once(command, proxy)
        except _NotStarted:  # something to be mounted has gone meanwhile, such as the socket of another program
            return await self._run_once(command, proxy)

    async def _run_once(self, command: Command, proxy: Proxy | None) -> ProcessResult:
        with _descriptors() as (numbers, told):
            return await self._run_handed(command, proxy, numbers, told)

    async def _run_handed(
        self, command: Command, proxy: Proxy | None, numbers: Sequence[int], told: int
    ) -> ProcessResult:
        channel, about = () if proxy is None else (proxy.descriptor,), self.confinement
        launch = self._launch(command, numbers, *channel)
        launch.hand_over()
        before, misleading = launch.places.identities(), launch.places.misleading()
        lineage = Lineage()
        room = None if about.disk_bytes is None else Room(DiskUse(launch.places.writable, about.disk_bytes))
        with ClosedNames(launch.places.writable, launch.places.closed) as closed, self._groups() as joined:
            result = await run_until(
                None if room is None else room.wait_used_up,
                _arguments(launch, joined, lineage.limit()),
                lineage=lineage,
                stdin=command.stdin,
                cwd=launch.cwd,
                env=launch.env,
                timeout=command.timeout,
                max_bytes=about.max_output_bytes,
                on_output=command.on_output,
                on_exit=partial(groups.end_all, joined.values()),
                descriptors=(*launch.handed, *numbers[2:], *channel),
            )
            counted = limits_reached([*joined.values()])
            closed.add([*(launch.places.misleading() - misleading)])
        if result.exit_code > 0 and not result.timed_out and not _has_started(told):
            raise _NotStarted(result.stderr.removeprefix(launcher.MARK).strip())
        if room is not None and room.is_used_up:
            counted["disk"] = "disk_bytes"
            result = msgspec.structs.replace(result, timed_out=False)
        now = launch.places.identities()
        found = refusals(
            result,
            launch.places,
            cwd=_folder(command, launch.places),
            about=msgspec.structs.replace(about, network=self._has_network(command)),
            counted=counted,
            moved=closed.moved,
            replaced=[one for one, identity in before.items() if now.get(one) != identity and one not in closed.moved],
            hosts=() if proxy is None else tuple(proxy.refused),
        )
        return msgspec.structs.replace(result, refused=found) if found else result

    @checked
    def detached(self, command: Command) -> Detached:
        """Return a command as it runs confined, for a process that outlives a call. Its control groups stay until they are empty.

        Raises:
            OSError: It cannot be confined.
        """
        if self._hosts(command):
            raise OSError("A command in the background cannot reach single hosts. It needs: network *")
        if GIT in parse_needs(command.lifted):
            raise OSError("A command in the background cannot write the git history. Run it in the foreground.")
        launch, about = self._launch(command, _DETACHED), self.confinement
        joined = groups.lasting_group(max_processes=about.max_processes, memory_bytes=about.memory_bytes)
        self._check_groups(joined)
        return Detached(
            arguments=tuple(_arguments(launch, joined)),
            cwd=launch.cwd,
            env=launch.env,
            groups=tuple(joined.values()),
            handed=launch.handed,
            disk_folders=launch.places.writable,
            closed_names=launch.places.closed,
            disk_bytes=None if about.disk_bytes is None else int(about.disk_bytes),
        )

    def _has_network(self, command: Command) -> bool:
        return self.confinement.network or Need("network", "*") in parse_needs(command.lifted)

    def _hosts(self, command: Command) -> list[Need]:
        """Return the single hosts that a command may reach."""
        if self._has_network(command):
            return []
        return [one for one in parse_needs(command.lifted) if one.kind == "network"]

    def _launch(self, command: Command, numbers: Sequence[int], channel: int | None = None) -> Launch:
        """Return what is started for a command.

        Args:
            numbers: Two descriptors that it reads from when it starts, and one in which it tells that the command was started; without the last
                it tells nobody.
            channel: The number of the open file of a proxy that it reaches its hosts by.
        """
        raise NotImplementedError

    def problem(self) -> str | None:
        """Say why this sandbox cannot run even an empty command here; None if it can. Takes some 50 ms."""
        try:
            with _descriptors() as (numbers, _), self._groups() as joined:
                launch = self._launch(Command(arguments=(_SHELL, "-c", ":")), numbers)
                launch.hand_over()
                done = subprocess.run(  # noqa: S603 - our own arguments
                    _arguments(launch, joined),
                    cwd=launch.cwd,
                    env=launch.env,
                    pass_fds=(*launch.handed, *numbers[2:]),
                    capture_output=True,
                    text=True,
                    timeout=10,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        said = done.stderr.removeprefix(launcher.MARK).strip()[-200:]
        return None if done.returncode == 0 else f"an empty command ended with status {done.returncode}: {said}"

    @contextmanager
    def _groups(self) -> Iterator[dict[str, str]]:
        about = self.confinement
        with groups.group(max_processes=about.max_processes, memory_bytes=about.memory_bytes) as joined:
            self._check_groups(joined)
            yield joined

    def _check_groups(self, joined: Mapping[str, str]) -> None:
        if self.confinement.max_processes is not None and os.geteuid() == 0 and "pids" not in joined:
            raise OSError(
                "The number of processes cannot be limited: for root it takes a control group, and none can be made here. "
                "Run as another user, or pass Confinement(max_processes=None)."
            )


class Bubblewrap(_Confined):
    """Runs commands in namespaces of their own, made by the program `bwrap`: own processes, network, `/tmp`, and view of the files.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=tools, sandbox=Bubblewrap(Confinement(writable=("build",))))

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: `bwrap` is not installed.
        ConfigurationError: A folder of the confinement does not exist.
    """

    name = "bubblewrap"

    def __init__(self, confinement: Confinement | None = None) -> None:
        super().__init__(confinement)
        # Not one that a command has put into a writable folder of our PATH, such as that of a project's Python.
        real = {one: os.path.realpath(one) for one in os.get_exec_path() if one.startswith("/")}
        folders = [one for one in real if not lies_in(real[one], self._writable)]
        program = shutil.which("bwrap", path=os.pathsep.join(folders))
        if program is None:
            raise SandboxUnavailable("The program bwrap is not installed. Install the package bubblewrap.")
        self._program = program

    @checked
    def _launch(self, command: Command, numbers: Sequence[int], channel: int | None = None) -> Launch:
        about, places, has_network = self.confinement, self._places_now(command), self._has_network(command)
        reads, calls, *told = numbers
        options = [*_NAMESPACES, "--uid", str(os.getuid() or 1000), "--gid", str(os.getgid() or 1000)]
        options += ["--seccomp", str(calls), *(word for one in told for word in ("--json-status-fd", str(one)))]
        options += [] if has_network else ["--unshare-net"]
        # A name that begins with NUL belongs to the network: where that is the machine's, so are its sockets of such names.
        answering = None if has_network else _answering(places)
        mounts = _mounts(places, has_network=has_network, size=about.temporary_bytes)
        mounts |= {one: _closed_to_all(one) for one in answering or ()}
        options += [*_options(mounts), "--chdir", _folder(command, places), "--clearenv"]
        for name, value in _environment(command, places, temporary=TEMPORARY[0]).items():
            options += ["--setenv", name, value]
        # Where it really is: a virtual environment in a temporary folder is not seen inside.
        own = os.path.realpath(sys.executable) if places.hold(sys.executable) else _SYSTEM_PYTHON
        connector = () if channel is None else (own, "-I", "-S", "-c", CONNECTOR, str(channel))
        checked_first = (_SHELL, "-c", _CHECK, "sh", *_expected(mounts), "--", *connector, *command.arguments)
        return Launch(
            limits=_limits(about),
            program=(*_apart(), self._program, "--args", str(reads), "--", *checked_first),
            cwd="/",
            env={"PATH": os.defpath},
            places=places,
            handed={
                reads: os.fsencode("".join(f"{word}\0" for word in options)),
                calls: call_filter("namespaces", has_network=has_network, has_unix=answering is not None),
            },
        )


@cache
def _apart() -> tuple[str, ...]:
    """Return what starts bwrap where it sees nothing that is mounted later; nothing where none is needed, or none works.

    Shared mounts, which systemd makes, have what is mounted on them appear in copies of them, too, where it can be written.
    """
    program = shutil.which("unshare", path=os.defpath)
    if program is None or not _FOLLOWED.search(_read("/proc/self/mountinfo")):
        return ()
    for user in ((), ("--user", "--map-current-user")):
        words = (program, *user, "--mount", "--propagation", "private", "--")
        with suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([*words, "/bin/true"], capture_output=True, timeout=10, check=False).returncode == 0:  # noqa: S603 - our own arguments
                return words
    return ()


_FOLLOWED = re.compile(r" (?:shared|master):\d")


class Landlock(_Confined):
    """Runs commands under Landlock, which closes files, and a filter of system calls, which closes the network and ways around.

    It needs no program and no namespace, only a kernel with Landlock (Linux 5.13 or newer). It can do less than bubblewrap: a command makes no new
    file at the top of a folder that has protected files, no single host and no git history is lifted, and the temporary folder is one for
    all commands of a sandbox.

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: The kernel has no Landlock.
        ConfigurationError: A folder of the confinement does not exist.
    """

    name = "landlock"
    _keeps_deeper = False  # in a folder that has one of them, nothing new could be made

    @staticmethod
    @checked
    def lifts(need: Need) -> Need:
        """Return what it lifts for a need: nothing but the whole network, folders, and the sandbox itself."""
        if need == GIT:
            return UNCONFINED
        return Need("network", "*") if need.kind == "network" else need

    @staticmethod
    def closed_for_age() -> tuple[str, ...]:
        """Return what programs cannot do because this kernel's Landlock is older than Linux 6.12: a filter closes it for all of them."""
        return closed_for_age(launcher.landlock_abi())

    def __init__(self, confinement: Confinement | None = None) -> None:
        super().__init__(confinement)
        if sys.platform != "linux" or not launcher.landlock_abi():
            raise SandboxUnavailable(
                "This system has no Landlock: it needs Linux 5.13 or newer, with Landlock enabled."
            )
        self._temporary = ""

    @checked
    def _launch(self, command: Command, numbers: Sequence[int], channel: int | None = None) -> Launch:
        about, has_network = self.confinement, self._has_network(command)
        if self._hosts(command):
            raise OSError("The sandbox landlock cannot lift single hosts. It needs: network *, or unconfined")
        if GIT in parse_needs(command.lifted):
            raise OSError("The sandbox landlock cannot lift git alone. It needs: unconfined")
        places = self._places_now(command)
        temporary = self._temporary_folder()
        readable, listed = _split("/", (*OWN, *places.private, *places.covered))
        listed.remove("/")  # with it come the names of everything, processes too
        writable, fixed = [temporary], list[str]()
        for folder in places.writable:
            shut = (*places.covered, *places.private)
            shown, more = _split(folder, shut)
            taken, split = _split(folder, (*places.kept, *shut))
            readable, listed, writable, fixed = readable + shown, listed + more, writable + taken, fixed + split
        for place in (*places.opened, *(["/etc/resolv.conf"] if has_network else [])):
            shown, more = _split(os.path.realpath(place), places.covered)
            readable, listed = readable + shown, listed + more
        landlock = {
            "listed": listed,
            "readable": readable,
            "writable": writable,
            "devices": _DEVICES,
            "network": has_network,
            "filter": call_filter("files", has_network=has_network, landlock_abi=launcher.landlock_abi()),
        }
        places = msgspec.structs.replace(places, writable=(*places.writable, temporary), fixed=tuple(fixed))
        return Launch(
            plan=numbers[0],
            handed={numbers[0]: marshal.dumps({"landlock": landlock, "told": [*numbers[2:]]}, 2)},
            limits=_limits(about),
            program=command.arguments,
            cwd=_folder(command, places),
            env=_environment(command, places, temporary=temporary),
            places=places,
        )

    def _temporary_folder(self) -> str:
        """Return a folder that only these commands write in. It goes with the sandbox."""
        if not os.path.isdir(self._temporary):  # noqa: PTH112 - a text
            self._temporary = os.path.realpath(tempfile.mkdtemp(prefix="treadle-"))
            weakref.finalize(self, _remove, self._temporary, os.getpid())
        return self._temporary


def _remove(folder: str, process: int) -> None:
    if os.getpid() != process:  # a fork has the same, and ends before us
        return
    left = [folder]
    for at in left:  # which grows meanwhile; a command may have shut them
        with suppress(OSError):
            opened = os.open(at, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            held = Path(f"/proc/self/fd/{opened}")
            if str(held.readlink()) == at:
                held.chmod(0o700)
                left += [one.path for one in entries_of(at) if one.is_dir(follow_symlinks=False)]
            os.close(opened)
    shutil.rmtree(folder, ignore_errors=True)


@checked
def find_sandbox(confinement: Confinement | None = None) -> Bubblewrap | Landlock:
    """Return the best sandbox of this machine: bubblewrap, else Landlock. Its kind has run a program, which takes some 50 ms.

    What lies in the folders does not decide: a command makes that. Where one cannot be confined there, it is not run.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=tools, sandbox=find_sandbox(Confinement(writable=(".",))))

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: There is none. The message says what is missing for each.
        ConfigurationError: A folder of the confinement does not exist.
    """
    problems: list[str] = []
    on_any_folder = msgspec.structs.replace(confinement or Confinement(), writable=(), readable=(), hidden=())
    for kind in (Bubblewrap, Landlock):
        try:
            sandbox = kind(confinement)
            problem = kind(on_any_folder).problem()
        except SandboxUnavailable as error:
            problem = str(error)
        else:
            if problem is None:
                return sandbox
        problems.append(f"{kind.name}: {problem}")
    raise SandboxUnavailable(f"A sandbox is required but unavailable. {' '.join(problems)}")


def _mounts(places: Places, *, has_network: bool, size: int) -> dict[str, tuple[str, ...]]:
    """Return what is mounted where, each with its option: all of the files read-only, and what is mounted on parts of that.

    Args:
        size: Bytes of each temporary folder.
    """
    temporary = ("--size", str(size), "--tmpfs")
    mounts: dict[str, tuple[str, ...]] = {"/": ("--ro-bind", "/")}
    mounts |= {one: temporary for one in TEMPORARY if os.path.realpath(one) == one and Path(one).is_dir()}
    mounts |= {one: ("--bind", one) for one in (*places.bound(), *_ways(places))}
    mounts |= {one: ("--ro-bind", one) for one in places.kept}
    mounts |= {one: _emptied(one) for one in places.private}
    mounts |= {one: ("--ro-bind", one) for one in places.opened if not lies_in(one, places.writable)}
    mounts |= {one: _closed_to_all(one) for one in places.covered}
    # Settings of the kernel stand in /proc, and root's number is root's for them in every namespace.
    mounts |= {"/run": ("--tmpfs",), "/proc": ("--proc",), "/dev": ("--dev",), TEMPORARY[-1]: temporary}
    if has_network and (resolver := os.path.realpath("/etc/resolv.conf")).startswith("/run/"):
        mounts[resolver] = ("--ro-bind-try", resolver)
    return mounts


def _options(mounts: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the options that make these mounts, the outer ones first."""
    found = [word for place in _ordered(mounts) for word in (*mounts[place], place)]
    closed = [
        "/proc",
        "/dev",
        *(one for one, words in mounts.items() if words[-1] == "--tmpfs" and words[0] != "--size"),
    ]
    return [*found, *(word for one in closed for word in ("--remount-ro", one))]


def _ordered(mounts: Iterable[str]) -> list[str]:
    return sorted(mounts, key=lambda one: (one != "/", one.count("/")))


def _expected(mounts: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return what must be mounted: where, whether it can be written, and of what lies at its own place its device and path there."""
    known, found = _mounted(), list[str]()
    for place in _ordered(mounts):
        option, source = mounts[place][0], mounts[place][-1]
        if place == "/" or option in _OWN_MOUNTS:
            continue
        of, flag = _lying_at(place if source == place else os.devnull, known)
        flag = flag if option in ("--bind", "--dev-bind") else "ro"
        found.append(f"{of} {flag} {_escaped(place)}" if source == place else f"{flag} {_escaped(place)}")
    if sum(map(len, found)) > _MOST_EXPECTED:
        raise OSError(
            f"There are {len(found)} places to protect or to cover in the folder, more than can be: {found[-1]}"
        )
    return found


_MOST_EXPECTED = 1_500_000
"""Characters of the list of what must be mounted: it is handed over as arguments."""
_OWN_MOUNTS = ("--size", "--proc", "--dev", "--ro-bind-try")
"""Of these mounts nothing depends on what lies below: the command's own, and a file that may be missing."""


def _mounted() -> dict[str, list[tuple[str, str, str, str, str]]]:
    """Return what is mounted where we are: number, device, path on it, place and `rw` or `ro` of each, by the number of what it is mounted on."""
    found: dict[str, list[tuple[str, str, str, str, str]]] = {}
    lines = [line.split(" ") for line in _read("/proc/self/mountinfo").splitlines()]
    numbers = {line[0] for line in lines}
    for number, parent, device, root, point, options, *_ in lines:
        is_first = parent not in numbers or parent == number
        found.setdefault("" if is_first else parent, []).append((number, device, root, point, options[:2]))
    return found


def _lying_at(place: str, known: Mapping[str, Sequence[tuple[str, str, str, str, str]]]) -> tuple[str, str]:
    """Return the device on which a place lies with its path there, and whether it can be written: found as the kernel does, from mount to mount."""
    escaped, at = _escaped(place), ("", "", "", "", "")
    while below := [one for one in known.get(at[0], ()) if lies_in(escaped, (one[3],))]:
        at = min(below, key=lambda one: len(one[3]))
    _, device, root, point, flag = at
    path = f"{root.rstrip('/')}{escaped.removeprefix(point.rstrip('/'))}" or "/"
    return f"{device} {path}", flag


def _escaped(place: str) -> str:
    """Return a path as the kernel lists it."""
    return re.sub(r"[ \t\n\\]", lambda one: f"\\{ord(one[0]):03o}", place)


def _emptied(place: str) -> tuple[str, ...]:
    """Return what is mounted on a private place. A file of a home is empty, since a tool may fail that cannot read its own settings."""
    if Path(place).is_dir():
        return ("--tmpfs",)
    return _closed_to_all(place) if place.startswith("/etc/") else ("--dev-bind", "/dev/null")


def _closed_to_all(place: str) -> tuple[str, ...]:
    """Return what is mounted on a place so that it cannot be read: a folder of which nobody has the rights, a device where none can be opened."""
    return ("--perms", "0000", "--tmpfs") if Path(place).is_dir() else ("--ro-bind", "/dev/null")


def _answering(places: Places) -> list[str] | None:
    """Return the sockets in the file system on which programs of the machine answer: a file that may only be read can be connected to.

    Beside the name of one, all sockets in its folder count, since many a program renames its own. None where one may have a name that is
    not found: it was bound by a relative path or has gone elsewhere. A command has no Unix sockets then.
    """
    found: list[str] = []
    rows = [_SOCKET_ROW.fullmatch(row) for row in _read("/proc/net/unix").split("\n")[1:-1]]
    for name in dict.fromkeys(row[1] if row else "two lines" for row in rows):
        if name is None or name.startswith("@"):
            continue
        folder = os.path.realpath(os.path.dirname(name))  # noqa: PTH120 - a text
        if name.startswith("/") and not places.hold(folder):
            continue
        here = [one.path for one in entries_of(folder) if _is_socket(one)] if name.startswith("/") else []
        if not here or any(os.lstat(one).st_nlink > 1 for one in here):
            return None
        found += filter(is_reached, here)
    return found


_SOCKET_ROW = re.compile(r"[0-9a-f]+: (?:[0-9A-F]+ +){5}\d+(?: (.*))?")
"""A row of the kernel's table of Unix sockets. `@` stands for the NUL that begins a name of the network; a name may hold a line's end."""


def _is_socket(entry: "os.DirEntry[str] | Path") -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    return False


def _ways(places: Places) -> list[str]:
    """Return the folders between the writable ones and what is mounted in them, which a command cannot move away then."""
    return [
        str(way)
        for place in (*places.kept, *places.covered)
        for folder in places.writable
        for way in Path(place).parents
        if way.is_relative_to(folder) and str(way) != folder
    ]


def _split(top: str, holes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what of a folder is open, where some of what is in it is not; and the folders on the way, of which only the names are."""
    inner = [one for one in holes if lies_in(one, (top,))]
    if not inner:
        return [top], []
    if top in inner:
        return [], []
    found, listed = [], [top]
    for entry in entries_of(top):
        if not entry.is_symlink():  # where it leads is open, or is not
            more, names = _split(entry.path, inner)
            found += more
            listed += names
    return found, listed


def _folder(command: Command, places: Places) -> str:
    if command.cwd is not None:
        return os.path.realpath(command.cwd)
    return places.writable[0] if places.writable else "/"


def _environment(command: Command, places: Places, *, temporary: str) -> dict[str, str]:
    if command.env is not None:
        return dict(command.env)
    ours = clean_environment()
    own = {name: value for name, value in ours.items() if name in _HANDED_DOWN or name.startswith(("LC_", "TRACE"))}
    path = [one for one in ours["PATH"].split(os.pathsep) if places.hold(one)]
    home = ours.get("HOME", "/")
    # Caches that a tool must be able to write; the others of the home can be read.
    caches = {name: f"{temporary}/{folder}" for name, folder in _CACHES.items()}
    return {
        **own,
        **caches,
        "PATH": os.pathsep.join(path),
        "HOME": home,
        "TMPDIR": temporary,
        "npm_config_userconfig": "/dev/null",
    }


_CACHES = {"GOCACHE": "go-build", "UV_CACHE_DIR": "uv", "npm_config_cache": "npm", "PIP_CACHE_DIR": "pip"}


def _limits(about: Confinement) -> dict[str, int]:
    # What is written, and not the address space: Java and WebAssembly reserve many times what they use.
    limits = {"CPU": about.cpu_seconds, "DATA": about.memory_bytes, "FSIZE": about.max_file_bytes}
    if os.geteuid() != 0:
        # Does not bind root: a control group does. It counts all that the user runs, a desktop's hundreds of threads too.
        limits["NPROC"] = None if about.max_processes is None else about.max_processes + groups.threads_of_user()
    return {name: max(1, int(value)) for name, value in limits.items() if value is not None}


def _arguments(launch: Launch, joined: dict[str, str], mark: Mapping[str, int] = MappingProxyType({})) -> list[str]:
    # A group counts what is written alone: programs such as AddressSanitizer reserve more than any machine has.
    limits = {name: value for name, value in launch.limits.items() if not (name == "DATA" and "memory" in joined)}
    return started(launch.plan, launch.program, {**limits, **mark}, list(joined.values()))
