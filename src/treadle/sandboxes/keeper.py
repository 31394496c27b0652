"""The keeper: starts one program in the background, keeps what it writes, and ends it and all that it has started in time.

It runs as a program of its own (`python -I -S keeper.py FOLDER`), imports only the file `closing.py` beside it, and outlives whoever has started
it: a process that is found again after a restart has been kept all the while. Its folder holds `plan.json`, `state.json`, `output` and the
pipe `input`.
"""

# ruff: noqa: PTH100, PTH105, PTH118, PTH120, PTH123, PTH208 - no heavy imports in a program that is started for each process

import contextlib
import ctypes
import json
import os
import select
import signal
import stat
import sys
import time

if __name__ == "__main__":  # `-I` leaves out its folder, which comes last: a file in it has the name of no other module
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from closing import ClosedNames, entries_of  # type: ignore[import-not-found]  # only found like this
else:
    from treadle.sandboxes.closing import ClosedNames, entries_of

__all__ = ["DiskUse", "limits_reached", "started_at"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHANGED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD,
                    signal.SIGPIPE, signal.SIGXFSZ)  # fmt: skip
"""Python itself ignores the last two, and a program inherits that: it is told of an error where its reader has ended."""
_PIECE, _ROUNDS = 65536, 200
_TERM_SECONDS, _LOOK_SECONDS = 2.0, 0.1
_BLOCK = 512  # what `st_blocks` counts in, whatever the file system
_COARSE_NANOSECONDS = 10_000_000  # how far the clock of a file system may lag behind ours


class DiskUse:
    """What one program has taken of the file systems of its writable folders since this was made. It is here because a keeper imports nothing.

    A limit on each file does not bound many files, and quotas need an administrator. So the free space is looked at. Once it has shrunk by
    the limit, the files that have changed since the start are added up: what others write meanwhile does not count, unless the space
    shrinks by twice the limit, as it does where a program writes to files that it has deleted.

    Args:
        folders: From `/`, links resolved.
        limit: Bytes that it may take.
    """

    def __init__(self, folders: "tuple[str, ...] | list[str]", limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._since = time.time_ns() - _COARSE_NANOSECONDS
        self._free = self._free_now()

    def taken(self) -> int:
        """Return the bytes by which the free space has shrunk. Cheap.

        Raises:
            OSError: All of the folders are gone. One of several that is gone has no room that could be used up.
        """
        now = self._free_now()
        if not now:
            raise OSError("The writable folders are gone.")
        return sum(free - now[one] for one, free in self._free.items() if one in now)

    def is_used_up(self, taken: int) -> bool:
        """Whether the program itself has reached its limit. Takes as long as the folders are large once others may have written."""
        return taken >= 2 * self._limit or (taken >= self._limit and self._changed() >= self._limit)

    def _free_now(self) -> "dict[int, int]":
        free: dict[int, int] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found = os.statvfs(folder)
                free[os.stat(folder).st_dev] = found.f_bfree * found.f_frsize  # noqa: PTH116 - ten times a second
        return free

    def _changed(self) -> int:
        """Return the bytes of all files that have changed since the start. One with several names counts once."""
        found: dict[tuple[int, int], int] = {}
        left = [*self._folders]
        while left:
            for entry in entries_of(left.pop()):
                with contextlib.suppress(OSError):  # gone meanwhile
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        left.append(entry.path)
                    elif status.st_ctime_ns >= self._since:
                        found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        return sum(found.values())


_COUNTERS = (
    ("pids.events", "max", "processes", "max_processes"),
    ("memory.events", "oom_kill", "memory", "memory_bytes"),
    ("memory.oom_control", "oom_kill", "memory", "memory_bytes"),
)
"""Where a control group counts each refusal: its file, the name in it, and the kind and name of the limit."""


def limits_reached(groups: "list[str]") -> "dict[str, str]":
    """Return the limits that a program has reached, by what they are on. Never raises. It is here as `DiskUse` does."""
    found: dict[str, str] = {}
    for folder in groups:
        for name, counter, kind, limit in _COUNTERS:
            words = _text(f"{folder}/{name}").split()
            if counter in words[:-1] and words[words.index(counter) + 1] != "0":
                found[kind] = limit
    return found


class _Watch:
    """Looks ten times a second at what the program has made in its folders; at their size more seldom where that takes long."""

    def __init__(self, folder: str, plan: dict) -> None:  # type: ignore[type-arg]  # JSON of ours
        self._output = os.path.join(folder, "output")
        self._closed = ClosedNames(plan["disk_folders"], plan.get("closed_names", []))
        limit = plan.get("disk_bytes")
        self._use = None if limit is None else DiskUse(plan["disk_folders"], limit)
        self._next, self._next_sum = 0.0, 0.0

    def look(self, now: float) -> bool:
        """Rename what has a closed name, and return whether the room on the disk is used up. Does nothing before it is time."""
        if now < self._next:
            return False
        self._next = now + _LOOK_SECONDS
        self.set_aside()
        if self._use is None or now < self._next_sum:
            return False
        began = time.monotonic()
        try:
            return self._use.is_used_up(self._use.taken())
        except OSError:  # a folder is gone: nobody can count in it any more
            return True
        finally:
            self._next_sum = now + 5 * (time.monotonic() - began)

    def set_aside(self) -> None:
        """Rename what has a closed name now, and say so in the program's output: whoever reads it asks for another way."""
        for old, new in self._closed.set_aside().items():
            with contextlib.suppress(OSError), open(self._output, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"\n[The sandbox keeps programs from making {old}. It is {new} now.]\n")


class _Asked:
    """What signals have asked for."""

    end = False
    close_input = False


def main() -> "str | None":
    """Start the program of a folder, and leave once it runs: the keeper itself continues in the background."""
    folder = sys.argv[1]
    os.umask(0o077)
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        report = os.read(ready, 4096)
        return None if report == b"ok" else report.decode("utf-8", "replace") or "The keeper ended before it began."
    os.close(ready)
    os.setsid()
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: setattr(_Asked, "end", True))
    signal.signal(signal.SIGUSR1, lambda *_: setattr(_Asked, "close_input", True))
    signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    try:
        watch = _Watch(folder, plan)
        run = _start(folder, plan)
    except OSError as error:
        os.write(tell, f"{plan['arguments'][0]}: {error.strerror}".encode())
        os._exit(1)
    state = {"status": "running", "pid": run[0], "pid_started": started_at(run[0]), "keeper": os.getpid(),
             "keeper_started": started_at(os.getpid()), "began": time.time()}  # fmt: skip
    _write_state(folder, state)
    os.write(tell, b"ok")
    os.close(tell)
    _silence()
    status, code, left_out = _keep(folder, plan, run, keep, watch)
    _end_all(run[0], plan.get("groups", []))
    watch.set_aside()
    limits = [*limits_reached(plan.get("groups", [])).values(), *(["disk_bytes"] if status == "over_limit" else [])]
    state |= {"status": status, "exit_code": code, "limits": limits, "left_out_bytes": left_out, "ended": time.time()}
    _write_state(folder, state)
    return None


def _start(folder: str, plan: dict) -> tuple[int, int, int]:  # type: ignore[type-arg]  # JSON of ours
    output, theirs = os.pipe()
    given = os.open(os.path.join(folder, "input"), os.O_RDONLY | os.O_NONBLOCK)
    feed = os.open(os.path.join(folder, "input"), os.O_WRONLY)
    os.set_blocking(given, True)
    failing, failed = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        try:
            for stream in (0, 1, 2):
                os.dup2(theirs if stream else given, stream)
            for number in plan.get("handed", []):
                os.dup2(os.open(os.path.join(folder, f"handed-{number}"), os.O_RDONLY), number)
            os.umask(0o022)
            os.chdir(plan["cwd"])
            os.execvp(plan["arguments"][0], plan["arguments"])  # noqa: S606 - the point of it
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        os._exit(127)
    for one in (theirs, given, failed):
        os.close(one)
    if reason := os.read(failing, 16):
        os.waitpid(child, 0)
        raise OSError(int(reason), os.strerror(int(reason)))
    os.close(failing)
    return child, output, feed


def _keep(folder: str, plan: dict, run: tuple[int, int, int], wake: int, watch: _Watch) -> tuple[str, int | None, int]:  # type: ignore[type-arg]  # as above
    """Write down what the program writes until it ends, its time or its room is used up, or somebody asks for its end."""
    (child, output, feed), deadline = run, time.monotonic() + plan["seconds"]
    room, left_out, open_pipe = plan["max_bytes"], 0, True
    kept = os.open(os.path.join(folder, "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    code = None
    while True:
        code = _ended(child) if code is None else code
        left = deadline - time.monotonic()
        watched = [wake, output] if open_pipe else [wake]
        ready = select.select(watched, [], [], 0 if code is not None else max(0.0, min(left, _LOOK_SECONDS)))[0]
        if output in ready:
            piece = os.read(output, _PIECE)
            open_pipe = bool(piece)
            taken = piece[:room]
            room -= len(taken)
            left_out += len(piece) - len(taken)
            with contextlib.suppress(OSError):  # the disk is full: the program continues, and its words are left out
                os.write(kept, taken)
        if wake in ready:
            os.read(wake, 64)
        if _Asked.close_input and feed >= 0:
            os.close(feed)
            feed = -1
        # What it has started may write on for ever: that counts for nothing once its time is over.
        if code is not None and (output not in ready or left <= 0 or _Asked.end):
            return "exited", code, left_out
        if code is None and left <= 0:
            return "timed_out", None, left_out
        if code is None and watch.look(time.monotonic()):
            return "over_limit", None, left_out
        if code is None and _Asked.end:
            return "killed", None, left_out


def _ended(child: int) -> int | None:
    with contextlib.suppress(ChildProcessError):
        found, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None
    return 0


def _end_all(child: int, groups: list[str]) -> None:
    """End the program's group, and whatever has left it: what has lost its parent is ours."""
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, 0.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, number)
        for one in _children():  # what has left the group may have something to tidy up, too
            if _stat(one)[2:3] != [str(child)]:  # not a second signal for the group: some programs end at once then
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, number)
        end = time.monotonic() + seconds
        while time.monotonic() < end and _children():
            _reap()
            time.sleep(0.02)
    for _ in range(_ROUNDS):
        found = {*_children(), *(int(one) for group in groups for one in _text(f"{group}/cgroup.procs").split())}
        for one in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        _reap()
        if not found:
            return
        time.sleep(0.01)


def _children() -> set[int]:
    """Return all processes that descend from this one."""
    stats = {int(one): _stat(one) for one in os.listdir("/proc") if one.isdigit()} if sys.platform == "linux" else {}
    # The first thread of a process may have ended before the others, which run on.
    parents = {one: int(stat[1]) for one, stat in stats.items() if stat and (stat[0] != "Z" or int(stat[17]) > 1)}
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {one for one, parent in parents.items() if parent in new and one not in found}
        found |= new
    return found


def _stat(pid: "int | str") -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing where there is none."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def started_at(pid: int) -> str:
    """Return when a process started, in the kernel's count: a number that is given again has another one. Empty where that is unknown."""
    return "".join(_stat(pid)[19:20])


def _control(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # no Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _silence() -> None:
    """Let go of what belongs to whoever has started us: its pipes would never end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)


def _write_state(folder: str, state: dict) -> None:  # type: ignore[type-arg]  # as above
    place = os.path.join(folder, "state.json")
    with open(f"{place}.new", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{place}.new", place)


if __name__ == "__main__":
    sys.exit(main())
