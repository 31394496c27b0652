"""The launcher: limits this process as its arguments say, then becomes the program. A program of its own, which imports nothing of Treadle.

Started as `python -I -S launcher.py PLAN PROGRAM ARGUMENT...`, or as its compiled code, where PLAN is `marshal` in hexadecimal
(its modules take longer to import than all else takes that is done here). It exists because limits must be set between fork
and exec, and a fork of a process with threads must not run Python for that (`preexec_fn`). What cannot be set ends it with status
125 and one line, so that a program never runs with less than was asked for.
"""

import ctypes
import marshal
import os
import resource
import struct
import sys

__all__ = ["FAILED", "MARK", "landlock_abi", "limited", "main"]

FAILED = 125
"""The exit status of a launcher that could not set a limit."""
MARK = "treadle-launcher: "
"""What its own line begins with."""

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls of Landlock: the same on every architecture
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read_file, read_dir
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # access rights that a single file can have
_ABI_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_ABI, _SCOPE_ABI = 4, 6

_ARCHITECTURES = {
    "x86_64": (0xC000003E, {"socket": 41, "clone": 56, "clone3": 435, "unshare": 272, "setns": 308, "ptrace": 101, "mount": 165,
        "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250,
        "add_key": 248, "request_key": 249, "io_uring_setup": 425, "process_vm_readv": 310, "process_vm_writev": 311,
        "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175, "finit_module": 313, "delete_module": 176, "reboot": 169,
        "swapon": 167, "swapoff": 168, "fsopen": 430, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "pidfd_getfd": 438, "syslog": 103}),
    "aarch64": (0xC00000B7, {"socket": 198, "clone": 220, "clone3": 435, "unshare": 97, "setns": 268, "ptrace": 117, "mount": 40,
        "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219,
        "add_key": 217, "request_key": 218, "io_uring_setup": 425, "process_vm_readv": 270, "process_vm_writev": 271,
        "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105, "finit_module": 273, "delete_module": 106, "reboot": 142,
        "swapon": 224, "swapoff": 225, "fsopen": 430, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "pidfd_getfd": 438, "syslog": 116}),
}  # fmt: skip
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Limit this process, and become the program."""
    plan, program = marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:]  # noqa: S302 - written by our own process
    try:
        _join_groups(plan.get("groups", []))
        _limit(plan.get("limits", {}))
        if "landlock" in plan:
            if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                raise _failure("no_new_privs")
            _confine_files(plan["landlock"])
            _filter_calls(has_network=plan["landlock"]["network"])
    except OSError as error:
        sys.stderr.write(f"{MARK}{error}\n")
        os._exit(FAILED)
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
    return most, last


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
    for paths, allowed in ((plan["readable"], _READ), (plan["writable"], rights)):
        for path in paths:
            _allow(ruleset, path, allowed & rights)
    for path in plan["devices"]:
        _allow(ruleset, path, (1 << 1 | 1 << 2 | 1 << 15) & rights)
    if _libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)):
        raise _failure("landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - this program has no need of pathlib's
        rights &= _FILE
    rule = struct.pack("<Qi", rights, place)
    if _libc.syscall(_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)):
        raise _failure(f"landlock_add_rule {path}")
    os.close(place)


def _filter_calls(*, has_network: bool) -> None:
    """Install a filter of system calls: no sockets but pairs, no namespaces, no tracing, no mounts, and nothing that walks around these."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(f"no filter of system calls is known for {machine}")
    architecture, numbers = _ARCHITECTURES[machine]
    program = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, 0x80000000), (0x20, 0, 0, 0)]
    if machine == "x86_64":  # the calls of x32 have other numbers for the same acts
        program += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, 0x00050000 | _ENOSYS)]
    for name, number in numbers.items():
        if name == "socket" and has_network:
            continue
        if name == "clone":  # allowed, but without a new namespace
            program += [
                (0x15, 0, 3, number),
                (0x20, 0, 0, 16),
                (0x45, 0, 1, _NEW_NAMESPACES),
                (0x06, 0, 0, 0x00050000 | _EPERM),
            ]
            program += [(0x20, 0, 0, 0)]
            continue
        error = {"clone3": _ENOSYS, "io_uring_setup": _ENOSYS, "socket": _EACCES}.get(name, _EPERM)
        program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
    program += [(0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filters, 0, 0):
        raise _failure("seccomp")


if __name__ == "__main__":
    main()
