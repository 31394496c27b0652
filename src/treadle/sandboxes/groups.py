"""Control groups: count and limit the processes and the memory of a confined program as a whole. Linux, where we may make groups."""

import os
import secrets
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["end_all", "group", "lasting_group", "threads_of_user"]

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "treadle-"
_ROUNDS = 10
"""A process that forks while its group is being killed leaves a child for the next round."""


_active: set[Path] = set()


@contextmanager
def group(*, max_processes: int | None, memory_bytes: int | None) -> Iterator[dict[str, str]]:
    """Make a group for one program, and remove it afterwards. Yields the folders that the program has to join, by controller."""
    made = _made(max_processes=max_processes, memory_bytes=memory_bytes)
    _active.update(made.values())
    try:
        yield {controller: str(one) for controller, one in made.items()}
    finally:
        for one in made.values():
            _active.discard(one)
            end_all([str(one)])
            with suppress(OSError):  # the last of its processes is still ending: the next sweep takes it
                one.rmdir()


def lasting_group(*, max_processes: int | None, memory_bytes: int | None) -> dict[str, str]:
    """Make a group for a program that outlives us. Once it is empty and we have ended, the next sweep takes it."""
    made = _made(max_processes=max_processes, memory_bytes=memory_bytes)
    _active.update(made.values())
    return {controller: str(one) for controller, one in made.items()}


def _made(*, max_processes: int | None, memory_bytes: int | None) -> dict[str, Path]:
    made: dict[str, Path] = {}
    for controller, value in (("pids", max_processes), ("memory", memory_bytes)):
        place = _place(controller)
        if value is not None and place is not None:
            _sweep(place)
            with suppress(OSError):
                made[controller] = _make(place, controller, value)
    return made


def end_all(folders: Iterable[str]) -> None:
    """Kill what is left of a program: a process that left its process group cannot leave its control group. Never raises."""
    for folder in folders:
        for _ in range(_ROUNDS):
            with suppress(OSError):
                left = Path(folder, "cgroup.procs").read_text().split()
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                if not left:
                    break


def threads_of_user() -> int:
    """Return how many processes and threads our user has now, as the kernel counts them for its limit; 0 where that is unknown."""
    user, found = b"\nUid:\t%d\t" % os.getuid(), 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError, ValueError, IndexError):  # it has ended
            about = status.read_bytes()
            found += int(about.split(b"\nThreads:\t")[1].split()[0]) if user in about else 0
    return found


def _make(place: Path, controller: str, value: int) -> Path:
    made = place / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    made.mkdir()
    names = {"pids": ("pids.max",), "memory": ("memory.max", "memory.limit_in_bytes")}[controller]
    limit = next(made / name for name in names if (made / name).exists())
    limit.write_text(str(value))
    return made


def _place(controller: str) -> Path | None:
    """Return the folder in which groups of a controller can be made: of version 1, or of version 2 where it is handed down to us."""
    first = _ROOT / controller
    if (first / "cgroup.procs").exists():
        return first if os.access(first, os.W_OK) else None
    own = _own_group()
    if own is None or not os.access(own, os.W_OK):
        return None
    with suppress(OSError):
        if controller in (own / "cgroup.subtree_control").read_text().split():
            return own
    return None


def _own_group() -> Path | None:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        return _ROOT / next(line for line in lines if line.startswith("0::"))[3:].lstrip("/")
    return None


def _sweep(place: Path) -> None:
    """Remove the groups whose program has ended: of processes that were killed, and our own that were still ending."""
    for one in place.glob(f"{_PREFIX}*"):
        holder = one.name.removeprefix(_PREFIX).partition("-")[0]
        is_over = holder.isdigit() and (int(holder) == os.getpid() or not Path(f"/proc/{holder}").exists())
        if is_over and one not in _active:
            with suppress(OSError):
                one.rmdir()
