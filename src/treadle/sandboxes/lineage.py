"""Lineage: finds and ends all that one program has started, whatever group or session it is in now. Linux; elsewhere it finds nothing.

A process that has left its group (`setsid`) and whose parent has ended belongs to nobody any more. But it has inherited two things: the
environment and the limits. So each program gets a mark of its own in both: as a variable, and as the limit on the time of real-time
processes, which is too large to limit anything. A program that cleans its environment keeps the other one. The program `prlimit` sets the
limit before the program begins.

Whoever does away with both is not found, and neither is what another service was asked to start (`at`, `systemd-run`, `docker`).
"""

import os
import resource
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["VARIABLE", "Lineage", "is_over"]

VARIABLE = "TREADLE_CALL"
"""The variable that holds the mark, behind the marks of programs that have started us."""

_LEAST, _MOST = 10**15, 10**18
"""Microseconds: 31 years and more. All marks have so many digits that no other number is taken for one."""
_QUICK_SECONDS = 1.0
"""In which time the numbers of processes cannot all have been given."""
_END_SECONDS = 1.0
"""How long all may take to end. What waits for a device ends once that answers."""
_POLL_SECONDS = 0.005


class Lineage:
    """All that one program starts.

    Args:
        mark: Of a program that was started before; None for a new one.
    """

    def __init__(self, mark: str | None = None) -> None:
        self._hard = _hard_limit()
        self.mark = mark or str(_LEAST + secrets.randbelow(max(self._hard - _LEAST, _LEAST)))
        """The same unguessable number in both places."""
        self._began = time.monotonic()
        self._first = 0

    def marked(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the mark."""
        others = os.environ.get(VARIABLE, "")
        return {**env, VARIABLE: f"{others} {self.mark}".strip()} if sys.platform == "linux" else dict(env)

    def starting(self, arguments: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> list[str]:
        """Return the arguments that start a program with the mark as its limit, where it is sure to start: else its own error is to be told."""
        setter = _setter() if self._hard and _is_binary(arguments[0], env, cwd) else None
        return [*arguments] if setter is None else [setter, f"--rttime={self.mark}:{self._last}", "--", *arguments]

    def begin(self, program: int) -> None:
        """Mark a program that was started just now, and not by `prlimit`. What it has started already has the mark as a variable alone."""
        self._first = program
        if sys.platform == "linux" and self._hard:
            with suppress(OSError):  # it has ended, or is another user's
                resource.prlimit(program, resource.RLIMIT_RTTIME, (int(self.mark), self._last))

    @property
    def _last(self) -> int:
        """The hard limit. Where we have a mark ourselves it is that one, and stays with what we start."""
        return self._hard if self._hard < _MOST else int(self.mark)

    def end(self) -> set[int]:
        """End what is left, and return the processes that do not end. Takes a millisecond where nothing is left; never raises."""
        stopped: set[int] = set()
        while (
            new := self._members() - stopped
        ):  # before any is killed: one that forks faster than that would stay ahead
            stopped |= _signalled(new, signal.SIGSTOP)
        until, left = time.monotonic() + _END_SECONDS, stopped
        while left and time.monotonic() < until:
            _signalled(self._members(), signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
            # One that is ending has lost its environment already, and with it a mark.
            left = self._members() | {one for one in left if not is_over(one)}
        return {one for one in left if self._is_marked(one)}

    def _members(self) -> set[int]:
        """Return the processes with the mark that have not ended."""
        if sys.platform != "linux":
            return set()
        return {one for one in self._candidates() if self._is_marked(one) and not is_over(one)}

    def _candidates(self) -> list[int]:
        """Return the processes that may have been started since: in a short time, those with higher numbers alone."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - after every program
        is_short = time.monotonic() - self._began < _QUICK_SECONDS and _last_number() >= self._first
        return [one for one in found if one >= self._first] if is_short else found

    def _is_marked(self, process: int) -> bool:
        return any(self.mark.encode() in _read(f"/proc/{process}/{name}") for name in ("limits", "environ"))


def _hard_limit() -> int:
    """Return the largest mark that can be set as a limit here; 0 where none can, since there is no such limit or it is in use."""
    if sys.platform != "linux" or not _shows_limits():
        return 0
    soft, hard = (_MOST if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(resource.RLIMIT_RTTIME))
    return min(hard, _MOST) if min(soft, hard) > _LEAST and _may_set_limits() else 0


@cache
def _may_set_limits() -> bool:
    """Whether the limit can be set: it cannot where we run in a sandbox ourselves, which keeps the mark that we have."""
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, resource.getrlimit(resource.RLIMIT_RTTIME))
    except (OSError, ValueError):  # which Python makes of a missing permission
        return False
    return True


@cache
def _shows_limits() -> bool:
    return b"realtime timeout" in _read("/proc/self/limits")


@cache
def _setter() -> str | None:
    return shutil.which("prlimit", path=os.defpath)


def _is_binary(program: str, env: Mapping[str, str], cwd: str | Path | None) -> bool:
    """Whether a program is one that the kernel starts by itself: a script may lack its interpreter."""
    is_path = "/" in program
    place = str(Path(cwd or "", program)) if is_path else shutil.which(program, path=env.get("PATH", os.defpath)) or ""
    if not (os.access(place, os.X_OK) and (is_path or place.startswith("/"))):
        return False
    with suppress(OSError), open(place, "rb") as file:  # noqa: PTH123 - as above
        return file.read(4) == b"\x7fELF"
    return False


def _signalled(processes: set[int], number: signal.Signals) -> set[int]:
    for one in processes:
        with suppress(ProcessLookupError, PermissionError):  # another user's, such as after sudo
            os.kill(one, number)
    return processes


def is_over(process: int) -> bool:
    """Whether nothing of a process is left but its entry, which its parent has not taken yet. Linux; elsewhere nobody can tell."""
    if sys.platform != "linux":
        return False
    return _read(f"/proc/{process}/stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"], [b"X"])


def _last_number() -> int:
    """Return the number that was given last; 0 where nobody can tell."""
    last = _read("/proc/loadavg").split()[-1:]
    return int(last[0]) if last else 0


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - after every program
        return file.read()
    return b""
