"""The keeper: starts one program in the background, keeps what it writes, and ends it and all that it has started in time.

It runs as a program of its own (`python -I -S keeper.py FOLDER`), imports nothing of Treadle, and outlives whoever has started it: a
process that is found again after a restart has been kept all the while. Its folder holds `plan.json`, `state.json`, `output` and the
pipe `input`.
"""

# ruff: noqa: PTH105, PTH118, PTH123, PTH208 - no heavy imports in a program that is started for each process

import contextlib
import ctypes
import json
import os
import select
import signal
import stat
import sys
import time

__all__ = ["ClosedNames", "DiskUse", "entries_of", "is_repository", "limits_reached", "linked_repositories",
           "started_at"]  # fmt: skip

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHANGED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD,
                    signal.SIGPIPE, signal.SIGXFSZ)  # fmt: skip
"""Python itself ignores the last two, and a program inherits that: it is told of an error where its reader has ended."""
_PIECE, _ROUNDS = 65536, 200
_TERM_SECONDS, _LOOK_SECONDS = 2.0, 0.1
_REPOSITORY = ("HEAD", "commondir", "refs", "objects")  # what git looks for at the top of one; the rarest names first
_LINKED = b"\0\0\xe0\0"  # the mode of an entry of git's index that is a repository of its own
_BLOCK = 512  # what `st_blocks` counts in, whatever the file system
_COARSE_NANOSECONDS = 10_000_000  # how far the clock of a file system may lag behind ours


class DiskUse:
    """What one program has taken of the file systems of its writable folders since this was made. It stands here because a keeper imports nothing.

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
        """Return the bytes by which the free space has shrunk. Cheap."""
        return self._free - self._free_now()

    def is_used_up(self, taken: int) -> bool:
        """Whether the program itself has reached its limit. Takes as long as the folders are large once others may have written."""
        return taken >= 2 * self._limit or (taken >= self._limit and self._changed() >= self._limit)

    def _free_now(self) -> int:
        free: dict[int, int] = {}
        for folder in self._folders:
            found = os.statvfs(folder)
            free[os.stat(folder).st_dev] = found.f_bfree * found.f_frsize  # noqa: PTH116 - ten times a second
        return sum(free.values())

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


def entries_of(folder: str) -> "list[os.DirEntry[str]]":
    """Return what is in a folder; nothing of one that is gone, or closed to us. No walk over folders calls itself: a command makes them as deep as it likes."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


class ClosedNames:
    """Protected names that nothing had when this was made, and that one program may not give to anything. It stands here as `DiskUse` does.

    Nothing can be mounted on a name that does not exist yet without leaving something there. So what has such a name is renamed, in its own
    folder, to a name that no other program looks for, with all that is in it. A link that has or leads to such a name is made anew where
    it was replaced. A folder that would be a repository by itself (`HEAD`, `objects`, `refs`) loses its `HEAD`: git would obey its `config`.

    Args:
        folders: The writable ones, from `/`, links resolved.
        names: Below each of them.
    """

    def __init__(self, folders: "tuple[str, ...] | list[str]", names: "tuple[str, ...] | list[str]") -> None:
        self.moved: dict[str, str] = {}
        """The new path of each thing that was renamed, by its old one."""
        self._missing: list[tuple[str, list[str]]] = []
        self._links: dict[str, str] = {}
        self._plain = [one for one in folders if names and not is_repository(one)]
        self._new = {one: [name for name in _REPOSITORY if not os.path.lexists(f"{one}/{name}")] for one in self._plain}
        own = [name for name in names if name.startswith(".git/")]
        pairs = [(folder, name) for folder in folders for name in names]
        pairs += [(folder, name[5:]) for folder in folders for name in own if folder not in self._plain]
        self._indexes = {one: _index_files(one) for one in folders if own}
        self._linked = {one: linked_repositories(one) for one in self._indexes}
        self._to_close: dict[str, set[str]] = {one: set() for one in self._indexes}
        pairs += [(one, f"{way}/{name}") for one in self._linked for way in self._linked[one] for name in own]
        for folder, name in pairs:
            self._note_links(folder, name.split("/"))
            real = path = f"{folder}/{name}"
            if "/" in name or path in self._links:  # a link on the way may lead to another folder
                real = os.path.realpath(path)
            top = next((one for one in folders if real.startswith(f"{one}/")), None)
            if top is not None and not os.path.lexists(real) and _may_hold(os.path.dirname(real)):  # noqa: PTH120 - as below
                self._missing.append((top, real[len(top) + 1 :].split("/")))

    def _note_links(self, folder: str, parts: "list[str]") -> None:
        for length in range(1, len(parts) + 1):
            path = "/".join([folder, *parts[:length]])
            with contextlib.suppress(OSError):  # no link
                self._links[path] = os.readlink(path)  # noqa: PTH115 - no heavy imports, as above

    def __enter__(self) -> "ClosedNames":  # noqa: PYI034 - a program that is started often imports no typing
        return self

    def __exit__(self, *_: object) -> None:
        self.set_aside()

    def set_aside(self) -> "dict[str, str]":
        """Rename what has a closed name now, and return it. Cheap where there is nothing."""
        moved: dict[str, str] = {}
        for folder, parts in self._missing:
            with contextlib.suppress(OSError):  # nothing is there
                _set_aside(folder, parts, moved)
        for folder in filter(is_repository, self._plain):
            with contextlib.suppress(OSError):
                found = (name for name in self._new[folder] if os.path.lexists(f"{folder}/{name}"))
                _set_aside(folder, [next(found, _REPOSITORY[0])], moved)
        self._close_linked(moved)
        for path, target in self._links.items():
            with contextlib.suppress(OSError):
                if os.readlink(path) == target:  # noqa: PTH115 - as above
                    continue
            folder, name = os.path.split(path)
            with contextlib.suppress(OSError):
                _set_aside(folder, [name], moved)
            with contextlib.suppress(OSError):
                os.symlink(target, path)  # noqa: PTH211 - as above
        self.moved |= moved
        return moved

    def _close_linked(self, moved: "dict[str, str]") -> None:
        """Close the repositories that the index names since the start: git would look into each, and do what its configuration says."""
        for folder, state in self._indexes.items():
            if (now := _index_files(folder)) != state:
                self._indexes[folder] = now
                self._to_close[folder] = linked_repositories(folder) - self._linked[folder]
            for one in self._to_close[folder]:
                with contextlib.suppress(OSError):
                    _set_aside(folder, [*one.split("/"), ".git"], moved)


def _index_files(folder: str) -> "list[tuple[str, int, int]]":
    """Return the files of git's index in a folder, each with what changes when it is written."""
    found = [one for one in entries_of(f"{folder}/.git") if one.name.startswith(("index", "sharedindex."))]
    with contextlib.suppress(OSError):
        return sorted((one.path, one.stat().st_ino, one.stat().st_ctime_ns) for one in found)
    return []


def linked_repositories(folder: str) -> "set[str]":
    """Return the folders that a repository's index says to be repositories of their own, such as submodules."""
    found: set[str] = set()
    for path, _, _ in _index_files(folder):
        for size in (20, 32):  # of the names of objects: by SHA-1, by SHA-256
            with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb") as file:
                _add_linked(file.read(), size, found)
    return {one for one in found if not {"", ".", ".."} & set(one.split("/"))}


def _add_linked(data: bytes, size: int, found: "set[str]") -> None:
    """Read an index of git. Another file, or one with names of another size, ends with an error."""
    version, at, name = data[7], 12, b""
    for _ in range(int.from_bytes(data[8:12], "big") if _LINKED in data else 0):
        start, kept = at + 42 + size + (2 if version > 2 and data[at + 40 + size] & 0x40 else 0), b""
        if version == 4:  # a name is what it has in common with the one before, and the rest
            left_out = data[start] & 127
            while data[start] & 128:
                start += 1
                left_out = (left_out + 1 << 7) | (data[start] & 127)
            start, kept = start + 1, name[: len(name) - left_out]
        end = data.index(b"\0", start)
        name = kept + data[start:end]
        if data[at + 24 : at + 28] == _LINKED:
            found.add(os.fsdecode(name))
        at = end + 1 if version == 4 else at + ((end - at) // 8 + 1) * 8


def is_repository(folder: str) -> bool:
    """Whether git takes a folder for a repository by itself, without a `.git` in it."""
    has_own = os.path.isdir(f"{folder}/objects") and os.path.isdir(f"{folder}/refs")  # noqa: PTH112 - as above
    return os.path.lexists(f"{folder}/HEAD") and (has_own or os.path.lexists(f"{folder}/commondir"))


def _may_hold(path: str) -> bool:
    """Whether something can be made in a folder, which may not exist yet: no file has its name."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)  # noqa: PTH120 - no heavy imports, as above
    return os.path.isdir(path)  # noqa: PTH112 - as above


def _set_aside(folder: str, parts: "list[str]", moved: "dict[str, str]") -> None:
    """Rename the thing of a path, or the link or file that stands on its way, also in a folder that was closed to us lest we do."""
    try:
        _rename(folder, parts, moved)
    except PermissionError:
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)  # noqa: PTH101, PTH116 - as above
        _rename(folder, parts, moved)


def _rename(folder: str, parts: "list[str]", moved: "dict[str, str]") -> None:
    """Rename it. No link is followed."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place, part in enumerate(parts, 1):
            mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
            if place == len(parts) or not stat.S_ISDIR(mode):
                other = f"{part}.refused-{os.urandom(4).hex()}"
                os.rename(part, other, src_dir_fd=at, dst_dir_fd=at)
                path = "/".join([folder, *parts[:place]])
                moved[path] = f"{path[: -len(part)]}{other}"
                return
            if mode & stat.S_IRWXU != stat.S_IRWXU:  # closed to us, lest we look
                os.chmod(part, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=at)
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = deeper
    finally:
        os.close(at)


_COUNTERS = (
    ("pids.events", "max", "processes", "max_processes"),
    ("memory.events", "oom_kill", "memory", "memory_bytes"),
    ("memory.oom_control", "oom_kill", "memory", "memory_bytes"),
)
"""Where a control group counts each refusal: its file, the name in it, and the kind and name of the limit."""


def limits_reached(groups: "list[str]") -> "dict[str, str]":
    """Return the limits that a program has reached, by what they are on. Never raises. It stands here as `DiskUse` does."""
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
    parents = {one: int(stat[1]) for one, stat in stats.items() if stat and stat[0] != "Z"}
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
    """Return when a process started, in the kernel's count: a number that is given again has another one. Empty where nobody can tell."""
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
