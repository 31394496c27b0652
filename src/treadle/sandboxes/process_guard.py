"""The guard: ends the programs of this process when it dies without a word, as `kill -9` makes it. Starts no program but itself.

The guard is a shell that reads the groups of the programs under way, and their marks (`lineage`), from a pipe, whose other end only this
process holds. When this process ends, however it does, the pipe ends too, and the guard kills the groups that it was told last, and what
has their marks. So it needs nothing of one kernel for the groups: `PR_SET_PDEATHSIG` of Linux ends only the direct child, and ends it when the thread ends that started it.
"""

import os
import threading
from contextlib import suppress

from treadle.concurrency import after_fork
from treadle.redaction import redacted_logger

__all__ = ["keep", "leave"]

logger = redacted_logger(__name__)

_SHELL = "/bin/sh"
_SCRIPT = (
    'trap "" HUP INT TERM; while read -r now; do programs=$now; done; marks=; '
    'for one in $programs; do kill -s KILL -- "-${one%:*}"; [ -z "${one#*:}" ] || marks="$marks -e ${one#*:}"; done; '
    '[ -n "$marks" ] && [ -r /proc/self/limits ] || exit 0; '
    "for signal in STOP STOP STOP KILL KILL KILL KILL; do "
    "for file in $(grep -lsaF $marks /proc/[0-9]*/limits /proc/[0-9]*/environ); do "
    'file=${file#/proc/}; kill -s "$signal" -- "${file%/*}"; done; done'
)
"""Stopped first, as in `lineage`: one that forks faster than it is killed would stay ahead."""


class _Guard:
    """The guard of one process. It is started with the first program, and ends with the process."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.groups: dict[int, str] = {}
        self.pipe: int | None = None
        self._is_missing = False

    def tell(self) -> None:
        """Tell the guard which programs there are now. Never raises: a program runs without a guard, too."""
        if self.pipe is None:
            self._start()
        try:
            self._write()
        except BrokenPipeError:  # somebody has ended it
            self._close()
            self._start()
            with suppress(OSError):
                self._write()
        except BlockingIOError:  # somebody has stopped it: it is told with the next program
            return

    def _write(self) -> None:
        if self.pipe is not None:
            programs = " ".join(f"{group}:{mark}" for group, mark in sorted(self.groups.items()))
            os.write(self.pipe, f"{programs}\n".encode())

    def _close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def _start(self) -> None:
        if self._is_missing:
            return
        ours, theirs = None, None
        try:
            theirs, ours = os.pipe()
            os.set_blocking(ours, False)
            os.posix_spawn(
                _SHELL,
                [_SHELL, "-c", _SCRIPT],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,  # a Ctrl-C of the terminal is for us
            )
            self.pipe, ours = ours, None
        except OSError as error:
            self._is_missing = True
            logger.info(
                "Programs of tools would outlive a kill -9 of this process: %s cannot be started (%s).", _SHELL, error
            )
        finally:
            for descriptor in (ours, theirs):
                if descriptor is not None:
                    os.close(descriptor)


_guard = _Guard()


def _hold() -> None:
    """Let no fork happen while the guard is being started: the child would have its pipe without knowing it."""
    _guard.gate.acquire()


def _release() -> None:
    _guard.gate.release()


os.register_at_fork(before=_hold, after_in_parent=_release)


@after_fork
def _begin_anew() -> None:
    """The programs are the parent's. Its guard must not wait for the child's end of the pipe."""
    global _guard  # noqa: PLW0603 - what the parent holds locked stays locked here
    with suppress(OSError):
        if _guard.pipe is not None:
            os.close(_guard.pipe)
    _guard = _Guard()


def keep(group: int, mark: str = "") -> None:
    """Have a process group, and what has the mark, killed when this process ends before `leave`."""
    guard = _guard
    with guard.gate:
        guard.groups[group] = mark
        guard.tell()


def leave(group: int) -> None:
    """Forget a process group: it has ended, and its number may become another one's."""
    guard = _guard
    with guard.gate:
        guard.groups.pop(group, None)
        guard.tell()
