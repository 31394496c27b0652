"""Starting: how limits are set before a confined program: by `prlimit`, which starts in a millisecond, else by our own launcher.

Neither is `preexec_fn`: limits are set between fork and exec by a program of its own.
"""

import marshal
import os
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from treadle.sandboxes import launcher

__all__ = ["FAILED", "FILTER", "MARKS", "started", "with_filter"]

FAILED = launcher.FAILED
"""The exit status of a start that could not set a limit."""
MARKS = (launcher.MARK, "prlimit: ")
"""What the line begins with that says why."""

FILTER = 9
"""The descriptor from which a program of `with_filter` reads its filter: one digit, as every shell takes it."""

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
_HAND_OVER = (
    f'exec {FILTER}<<E\nx\nE\nread -r x <&{FILTER} && printf "$1" >> /proc/self/fd/{FILTER} '
    f"|| {{ echo '{launcher.MARK}the filter of system calls cannot be handed over' >&2; exit {FAILED}; }}; shift; exec \"$@\""
)
"""Writes its first argument into a pipe, which takes no file and no process, and becomes the program behind it. The pipe is that of a
here-document, which the shell has made; the document itself is read away."""
_RUN_CODE = "import marshal, sys; exec(marshal.loads(bytes.fromhex(sys.argv.pop(1))))"
"""Runs the launcher as the code that we have compiled already."""


def started(
    plan: Mapping[str, object], program: Sequence[str], limits: Mapping[str, int], groups: Sequence[str]
) -> list[str]:
    """Return the arguments that start a program with its limits, in its control groups.

    Args:
        plan: What else the launcher has to do, such as Landlock.
        limits: By the names of `resource`, without `RLIMIT_`.
        groups: Folders of control groups.
    """
    setter = shutil.which("prlimit", path=os.defpath)
    if plan or setter is None or not os.access(_SHELL, os.X_OK):
        whole = marshal.dumps({**plan, "limits": dict(limits), "groups": list(groups)}, 2).hex()
        if not os.access(sys.executable, os.X_OK):
            return [_SYSTEM_PYTHON, "-I", "-S", _LAUNCHER, whole, *program]
        return [sys.executable, "-I", "-S", "-c", _RUN_CODE, _launcher_code(), whole, *program]
    set_limits = [setter, "--core=0:0", *(_option(name, value) for name, value in limits.items()), "--", *program]
    return [_SHELL, "-c", _JOIN, "sh", *groups, "--", *set_limits] if groups else set_limits


def with_filter(program: Sequence[str], code: bytes) -> tuple[str, ...]:
    """Return the arguments that start a program with a filter of system calls to read from the descriptor `FILTER`."""
    return (_SHELL, "-c", _HAND_OVER, "sh", "".join(f"\\{one:03o}" for one in code), *program)


@cache
def _launcher_code() -> str:
    """Return the launcher as `marshal` in hexadecimal: this very Python need not compile it at each start."""
    return marshal.dumps(compile(Path(_LAUNCHER).read_bytes(), _LAUNCHER, "exec")).hex()


def _option(name: str, value: int) -> str:
    """Return a limit as `prlimit` takes it. One that holds already for this process is not raised."""
    soft, last = launcher.limited(name, value, resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1])
    return f"--{name.lower()}={soft}:{last}"
