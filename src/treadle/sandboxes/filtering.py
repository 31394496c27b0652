"""Filtering: which calls of the system a confined program may not make, as a filter that the kernel runs (seccomp). Values only.

What a call does is decided by its number and by what its arguments are, never by what they point to: a path cannot be read here. So a
call is closed for all paths or for none. A closed call fails as one without permission does.
"""

import os
import struct
from functools import cache
from typing import Literal, TypeAlias

__all__ = ["call_filter", "closed_for_age"]

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
_IOCTL, _FCNTL, _KILL, _TRUNCATE = (16, 29), (72, 25), (62, 129), (76, 45)
_SETRLIMIT, _PRLIMIT = (160, 164), (302, 261)
_RLIMIT_RTTIME = 15
"""The limit in which `lineage` marks what a program has started."""

_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_SET_USER, _DEVICE = 0o4000, 0o020000
_CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
_TYPES = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into a terminal."""
_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""FS_IOC_SETFLAGS, the same of 32 bits, and FS_IOC_FSSETXATTR: they change a file that may only be read."""
_SET_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX: who gets a signal of input


@cache
def call_filter(kind: Literal["namespaces", "files"], *, has_network: bool, landlock_abi: int = 0) -> bytes:
    """Return the filter of a sandbox: `namespaces` for bubblewrap, `files` for Landlock, which has no namespaces to hold the rest.

    Args:
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
    found += _when(_CLONE[at], [_argument(0), (_HAS, 0, 1, _NEW_NAMESPACES), _fails(_EPERM)])
    found += _modes(at)
    found += _commands(_IOCTL[at], _TYPES if kind == "namespaces" else (*_TYPES, *_FLAGS))
    if kind == "namespaces":
        # A name that begins with NUL belongs to the network: where that is the machine's, so are its sockets of such names.
        found += _sockets(_SOCKET[at], (_AF_INET, _AF_INET6) if has_network else (_AF_UNIX, _AF_INET, _AF_INET6))
    else:
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
        found += _commands(_FCNTL[at], _SET_OWNER)
    return found


def _modes(at: int) -> list[_Instruction]:
    """Close modes that let a program run as the owner of its file, and device files."""
    found: list[_Instruction] = []
    for name, (*both, mode) in _MODES.items():
        bits = _SET_USER | _DEVICE if name.startswith("mknod") else _SET_USER
        found += _when(both[at], [_argument(mode), (_HAS, 0, 1, bits), _fails(_EPERM)])
    for *both, flags in _OPENS.values():
        body = [_argument(flags), (_HAS, 0, 3, _CREATES), _argument(flags + 1), (_HAS, 0, 1, _SET_USER), _fails(_EPERM)]
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
