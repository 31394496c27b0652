"""The launcher: limits this process as its arguments say, then becomes the program. A program of its own, which imports nothing of Treadle.

Started as `python -I -S launcher.py LIMITS PROGRAM ARGUMENT...`, or as its compiled code, where LIMITS is `marshal` in hexadecimal
(other modules take longer to import than all else takes that is done here) and names the descriptor with the rest,
which may be long. It exists because limits must be set between fork and exec, and a fork of a process with threads must not run Python for that (`preexec_fn`). What cannot be set ends it with status
125 and one line, so that a program never runs with less than was asked for.
"""

import ctypes
import marshal
import os
import resource
import stat
import struct
import sys

__all__ = ["FAILED", "MARK", "STARTED", "landlock_abi", "limited", "main"]

FAILED = 125
"""The exit status of a launcher that could not set a limit."""
MARK = "treadle-launcher: "
"""What its own line begins with."""
STARTED = b"started"
"""What it tells just before it becomes the program."""

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls of Landlock: the same on every architecture
_READ_DIR = 1 << 3
_READ = 1 << 0 | 1 << 2 | _READ_DIR  # execute, read_file
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # access rights that a single file can have
_ABI_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_ABI, _SCOPE_ABI = 4, 6
_DEVICES_MADE = 1 << 6 | 1 << 11 | 1 << 15  # make_char, make_block, ioctl_dev: a device reaches past every file
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_CAPABILITIES_3, _MOST_CAPABILITIES = 0x20080522, 64
_SIGPIPE, _SIGXFSZ = 13, 25
"""Python ignores these two, and a program inherits that: it is told of an error where its reader has ended."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Limit this process, and become the program."""
    plan, program = marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:]  # noqa: S302 - written by our own process
    try:
        if plan["plan"] is not None:
            with open(plan["plan"], "rb") as file:  # noqa: PTH123 - a descriptor
                plan |= marshal.loads(file.read())  # noqa: S302 - as above
        _join_groups(plan.get("groups", []))
        _limit(plan.get("limits", {}))
        if "landlock" in plan:
            if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                raise _failure("no_new_privs")
            _confine_files(plan["landlock"])
            _drop_capabilities()
            _filter_calls(plan["landlock"]["filter"])
    except (OSError, ValueError) as error:  # a limit that cannot be set is the latter
        sys.stderr.write(f"{MARK}{error}\n")
        os._exit(FAILED)
    for number in (_SIGPIPE, _SIGXFSZ):
        _libc.signal(number, None)
    for number in plan.get("told", ()):
        os.write(number, STARTED)
        os.close(number)
    try:
        os.execvp(program[0], program)  # noqa: S606 - the point of it
    except OSError as error:
        sys.stderr.write(f"{MARK}{program[0]}: {error.strerror}\n")
        os._exit(127)


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel has; 0 for none."""
    found: int = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, found)


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def _join_groups(folders: list[str]) -> None:
    for folder in folders:
        tasks = f"{folder}/tasks"
        # A single thread that moves itself needs no lock over all processes; version 2 has no such file.
        file = tasks if os.path.exists(tasks) else f"{folder}/cgroup.procs"  # noqa: PTH110 - pathlib takes longer to import than all the rest
        with open(file, "w") as procs:  # noqa: PTH123 - as above
            procs.write("0")


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(number, limited(name, value, resource.getrlimit(number)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limited(name: str, value: int, hard: int) -> tuple[int, int]:
    """Return the soft and the hard limit to set, which are never above the hard one that holds."""
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    # At the soft limit of time comes a signal that says why, a second later the one that nobody can ignore.
    last = most if name != "CPU" else most + 1 if hard == resource.RLIM_INFINITY else min(most + 1, hard)
    # The limit that marks what a program starts: a mark of our own stays in the hard one.
    return most, hard if name == "RTTIME" and hard != resource.RLIM_INFINITY else last


def _drop_capabilities() -> None:
    """Give up what root may do beside its own files, for the programs that are started, too."""
    for one in range(_MOST_CAPABILITIES):
        is_there = _libc.prctl(_PR_CAPBSET_READ, one, 0, 0, 0) == 1
        if is_there and _libc.prctl(_PR_CAPBSET_DROP, one, 0, 0, 0) and os.geteuid() == 0:
            raise _failure("capabilities cannot be dropped")  # another user gains none: of no_new_privs
    header, none = struct.pack("Ii", _CAPABILITIES_3, 0), bytes(24)
    if _libc.capset(header, none):
        raise _failure("capset")


def _confine_files(plan: dict[str, list[str]]) -> None:
    abi = landlock_abi()
    rights = next((_ABI_RIGHTS[one] for one in sorted(_ABI_RIGHTS, reverse=True) if one <= abi), 0)
    if not rights:
        raise OSError("this kernel has no Landlock")
    net = 3 if abi >= _NET_ABI and not plan["network"] else 0
    scoped = 3 if abi >= _SCOPE_ABI else 0
    attributes = struct.pack("QQQ", rights, net, scoped)[: 8 + 8 * (abi >= _NET_ABI) + 8 * (abi >= _SCOPE_ABI)]
    ruleset = _libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise _failure("landlock_create_ruleset")
    for paths, allowed in (
        (plan["listed"], _READ_DIR),
        (plan["readable"], _READ),
        (plan["writable"], rights & ~_DEVICES_MADE),
    ):
        for path in paths:
            _allow(ruleset, path, allowed & rights)
    for path in plan["devices"]:
        _allow(ruleset, path, (1 << 1 | 1 << 2 | 1 << 15) & rights)
    if _libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)):
        raise _failure("landlock_restrict_self")
    os.close(ruleset)


def _opened(path: str) -> int:
    """Open a path of which no part is a link: another command may have put one there since the plan was made, which leads outside."""
    at = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in filter(None, path.split("/")):
        above = at
        try:
            at = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        finally:
            os.close(above)
    return at


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = _opened(path)
    except OSError:  # gone, closed to us, or a link by now
        return
    mode = os.fstat(place).st_mode
    if not stat.S_ISDIR(mode):
        rights &= _FILE
    if stat.S_ISLNK(mode) or not rights:  # where a link leads has a rule of its own
        os.close(place)
        return
    rule = struct.pack("<Qi", rights, place)
    if _libc.syscall(_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)):
        raise _failure(f"landlock_add_rule {path}")
    os.close(place)


def _filter_calls(code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filters, 0, 0):
        raise _failure("seccomp")


if __name__ == "__main__":
    main()
