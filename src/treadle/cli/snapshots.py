"""Snapshots: what a folder held before and after each run, so that its files can be put back. Knows no git and no conversation.

Contents are stored once, by their digest, in a folder of Treadle's state. Since there is a snapshot at both ends of a run, what a person
has changed between two runs is known too.
"""

import asyncio
import contextlib
import difflib
import errno
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from treadle.ports import Hook, HookContext

__all__ = ["Change", "Comparison", "Entry", "Point", "Snapshots", "Tree", "forget", "put_back"]

_MAX_ENTRIES = 100_000
_MAX_FILE_BYTES = 20_000_000
"""A larger file is noticed, and not stored."""
_MAX_NEW_BYTES = 500_000_000
"""Stored for one snapshot. Files beyond it are noticed, and not stored."""
_MAX_STORED_BYTES = 2_000_000_000
"""For one folder. The oldest runs are forgotten first."""
_MAX_TEXT_BYTES = 200_000
"""Larger contents are not shown line by line."""
_SETTLED_SECONDS = 2
_YOUNG_SECONDS = 3600
"""Another process may have stored contents and not named them yet: those are younger."""
_LEFT_OUT = (b".git", b"node_modules", b"__pycache__")
_REBUILT = (b"pyvenv.cfg", b"CACHEDIR.TAG")
"""A folder that holds one of these was made by a tool, which can make it again."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file, link or folder."""

    mode: int
    """Its kind and permissions, as in `os.stat_result.st_mode`."""
    stamp: tuple[int, int, int, int]
    """Its size, both times of change, and its inode: as long as they are equal, a file is not read again."""
    content: bytes | None = None
    """The digest of a file's content, or the target of a link; None where it is not stored, and for a folder."""

    def equals(self, other: "Entry") -> bool:
        """Whether both are the same, whenever they were written."""
        if self.mode != other.mode or self.content != other.content:
            return False
        return self.content is not None or not stat.S_ISREG(self.mode) or self.stamp == other.stamp


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """What a folder holds."""

    entries: dict[bytes, Entry]
    left_out: tuple[bytes, ...] = ()
    """Folders that were not looked into."""
    is_whole: bool = True
    """False where there are more files than are looked at."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A run that changed something, or a time at which files were put back."""

    run: str
    """The id of the run."""
    at: float
    """Seconds since 1970."""
    before: str
    """The digest of the tree."""
    after: str | None = None
    """None while it runs, and if it broke off."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """How two trees differ at one path."""

    path: bytes
    old: Entry | None
    new: Entry | None
    is_persons: bool = False
    """Whether a person changed it, between two runs."""

    @property
    def shown(self) -> str:
        return self.path.decode("utf-8", "backslashreplace")

    @property
    def kind(self) -> str:
        return "created" if self.old is None else "deleted" if self.new is None else "changed"

    @property
    def is_stored(self) -> bool:
        """Whether the older side can be put back."""
        return self.old is None or not stat.S_ISREG(self.old.mode) or self.old.content is not None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a folder between two trees."""

    changes: tuple[Change, ...]
    left_out: tuple[str, ...] = ()
    """Folders whose contents are not compared."""
    is_whole: bool = True
    """False where there are more files than are compared."""


class _Last(msgspec.Struct, frozen=True, kw_only=True):
    """The newest snapshot: what it says need not be read again."""

    tree: str
    at_ns: int


class Snapshots:
    """The snapshots of one folder.

    Args:
        folder: Whose files they are.
        store: Where the snapshots of all folders are.
        apart: Files and folders of Treadle's own. They are never put back, nor files beside them whose names begin with theirs.
    """

    def __init__(self, folder: Path, store: Path, apart: Sequence[Path] = ()) -> None:
        self._folder = os.fsencode(folder.resolve())
        self._apart = tuple(os.fsencode(one.resolve()) for one in apart)
        self._place = store / hashlib.sha256(self._folder).hexdigest()[:32]
        self._begun: set[str] = set()  # runs
        self._lock = threading.Lock()

    def hooks(self) -> tuple[Hook, ...]:
        """Return the hooks that take a snapshot before a run's first change, and at its end. Where one cannot be taken, the call runs."""
        before = Hook(at="before_tool", run=self._before, name="snapshot", timeout=None, fails="open", priority=-1000)
        return before, Hook(at="session_end", run=self._after, name="snapshot", timeout=None, fails="open")

    async def _before(self, context: HookContext) -> None:
        if context.effect != "read" and context.run_id not in self._begun:
            await asyncio.to_thread(self.begin, context.session_id, context.run_id)

    async def _after(self, context: HookContext) -> None:
        if context.run_id in self._begun:
            await asyncio.to_thread(self.end, context.session_id, context.run_id)

    # --- runs

    def begin(self, session_id: str, run: str) -> None:
        """Take the snapshot from before the changes of a run, unless there is one: of a run that is resumed."""
        with self._lock:
            if all(one.run != run for one in self.points(session_id)):
                self._add(session_id, Point(run=run, at=time.time(), before=self._take()))
            self._begun.add(run)

    def end(self, session_id: str, run: str) -> None:
        """Take the snapshot from after the changes of a run."""
        with self._lock:
            self._begun.discard(run)
            begun = next(one for one in self.points(session_id) if one.run == run)
            self._add(session_id, msgspec.structs.replace(begun, after=self._take()))
            self._forget_oldest()

    def points(self, session_id: str) -> list[Point]:
        """Return the runs of a session that changed something, and when files were put back, in their order."""
        return _points_in(self._index(session_id))

    # --- comparing and putting back

    def since(self, session_id: str, run: str) -> Comparison:
        """Return how the folder has changed since before a run. Takes a snapshot. Raises LookupError: there is none of that run."""
        with self._lock:
            points = self.points(session_id)
            place = next((at for at, one in enumerate(points) if one.run == run), None)
            if place is None:
                raise LookupError(run)
            return self._compared([*points[place:], self._now()])

    def of_session(self, session_id: str) -> Comparison:
        """Return how the folder changed from the first run of a session to its last. Raises LookupError: there is no snapshot of it."""
        points = self.points(session_id)
        if not points:
            raise LookupError(session_id)
        with self._lock:
            return self._compared(points if points[-1].after is not None else [*points, self._now()])

    def _now(self) -> Point:
        tree = self._take()
        return Point(run="", at=time.time(), before=tree, after=tree)

    def _compared(self, points: Sequence[Point]) -> Comparison:
        persons: set[bytes] = set()
        for one, following in pairwise(points):
            if one.after is not None and one.after != following.before:
                persons.update(path for path, _, _ in _differences(self._tree(one.after), self._tree(following.before)))
        old, new = self._tree(points[0].before), self._tree(points[-1].after or points[-1].before)
        changes = [
            Change(path=path, old=was, new=now, is_persons=path in persons)
            for path, was, now in _differences(old, new)
        ]  # fmt: skip
        left_out = sorted({path.decode("utf-8", "backslashreplace") for path in (*old.left_out, *new.left_out)})
        return Comparison(changes=tuple(changes), left_out=tuple(left_out), is_whole=old.is_whole and new.is_whole)

    def diff(self, change: Change) -> str:
        """Return one change as a unified diff; as one line where it is not one of text."""
        old, new = self._text(change.old), self._text(change.new)
        if old is None or new is None or old == new:
            return f"{change.kind}: {change.shown}\n"
        names = (f"a/{change.shown}" if change.old else "/dev/null", f"b/{change.shown}" if change.new else "/dev/null")
        lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), *names)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def _text(self, entry: Entry | None) -> str | None:
        if entry is None:
            return ""
        if not stat.S_ISREG(entry.mode) or entry.content is None or entry.stamp[0] > _MAX_TEXT_BYTES:
            return None
        try:
            content = self._content(entry.content)
        except OSError:
            return None
        return None if b"\0" in content else content.decode("utf-8", "replace")

    def restore(self, session_id: str, changes: Sequence[Change]) -> list[str]:
        """Put the older side of these changes back. Return what could not be done, a sentence each.

        It can be undone like a run: there is a snapshot from before it.
        """
        with self._lock:
            before = self._take()
            faults = put_back(self._folder, changes, self._content)
            point = Point(run=f"restore_{secrets.token_hex(4)}", at=time.time(), before=before, after=self._take())
            self._add(session_id, point)
        return faults

    # --- the store

    def _take(self) -> str:
        """Look at the folder, store what is new, and return the digest of its tree."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        at_ns = time.time_ns()
        tree = self._put(
            msgspec.msgpack.encode(_Scan(self._folder, self._settled(), self._put, self._apart).tree())
        ).hex()
        self._write(self._place / "last", msgspec.json.encode(_Last(tree=tree, at_ns=at_ns)))
        return tree

    def _settled(self) -> dict[bytes, Entry]:
        """Return what the newest snapshot says of files that had not just been changed then: the time of those might not show the next change."""
        try:
            last = msgspec.json.decode((self._place / "last").read_bytes(), type=_Last)
            entries = self._tree(last.tree).entries
        except (OSError, LookupError, msgspec.MsgspecError):
            return {}
        before = last.at_ns - _SETTLED_SECONDS * 10**9
        return {path: one for path, one in entries.items() if one.stamp[2] < before and one.content is not None}

    def _put(self, content: bytes) -> bytes:
        """Store a content; return its digest."""
        digest = hashlib.sha256(content).digest()
        place = self._object(digest)
        try:
            os.utime(place)  # it is young again: nobody deletes it before it is named
        except OSError:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            self._write(place, content)
        return digest

    def _write(self, place: Path, content: bytes) -> None:
        part = place.with_name(f".{secrets.token_hex(8)}")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
        part.rename(place)

    def _object(self, digest: bytes) -> Path:
        return _object_in(self._place, digest.hex())

    def _content(self, digest: bytes) -> bytes:
        return self._object(digest).read_bytes()

    def _tree(self, digest: str) -> Tree:
        """Return a stored tree. Raises LookupError: it was deleted, or is damaged."""
        return _tree_in(self._place, digest)

    def _index(self, session_id: str) -> Path:
        return self._place / _named(session_id)

    def _add(self, session_id: str, point: Point) -> None:
        with self._index(session_id).open("ab") as file:
            file.write(msgspec.json.encode(point) + b"\n")

    def _forget_oldest(self) -> None:
        """Forget the oldest runs while too much is stored, then delete what no run has any more."""
        if sum(path.stat().st_size for path in self._place.glob("??/*")) <= _MAX_STORED_BYTES:
            return
        indexes = {index: _points_in(index) for index in self._place.glob("*.jsonl")}
        times = sorted(point.at for points in indexes.values() for point in points)
        for index, points in indexes.items():
            left = [one for one in points if one.at > times[len(times) // 2]]
            self._write(index, b"".join(msgspec.json.encode(one) + b"\n" for one in left))
        _sweep(self._place, young_seconds=_YOUNG_SECONDS)


def forget(store: Path, session_id: str) -> None:
    """Delete a session's snapshots, whatever its folder, and the contents that no other session has."""
    for index in store.glob(f"*/{_named(session_id)}"):
        index.unlink(missing_ok=True)
        _sweep(index.parent, young_seconds=0)


def _named(session_id: str) -> str:
    """Return the name of a session's index. An id may hold what no file name may."""
    return f"{hashlib.sha256(session_id.encode()).hexdigest()[:32]}.jsonl"


def _object_in(place: Path, digest: str) -> Path:
    return place / digest[:2] / digest[2:]


def _tree_in(place: Path, digest: str) -> Tree:
    try:
        return msgspec.msgpack.decode(_object_in(place, digest).read_bytes(), type=Tree)
    except (OSError, ValueError) as exc:
        raise LookupError(digest) from exc


def _sweep(place: Path, *, young_seconds: float) -> None:
    """Delete the contents of one folder's snapshots that no run has any more."""
    points = [point for index in place.glob("*.jsonl") for point in _points_in(index)]
    used = {digest for point in points for digest in (point.before, point.after) if digest is not None}
    for tree in list(used):
        with contextlib.suppress(LookupError):
            used.update(one.content.hex() for one in _tree_in(place, tree).entries.values() if one.content)
    for path in place.glob("??/*"):
        if path.parent.name + path.name not in used and time.time() - path.stat().st_mtime >= young_seconds:
            path.unlink(missing_ok=True)


def _points_in(index: Path) -> list[Point]:
    found: dict[str, Point] = {}
    with contextlib.suppress(OSError):
        for line in index.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):  # a process may have died in the last line
                point = msgspec.json.decode(line, type=Point)
                found[point.run] = point
    return list(found.values())


def _differences(old: Tree, new: Tree) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """Yield what differs, as far as both trees have looked at it."""
    unseen = tuple(folder + b"/" for folder in {*old.left_out, *new.left_out})
    for path in sorted(old.entries.keys() | new.entries.keys()):
        was, now = old.entries.get(path), new.entries.get(path)
        is_seen = (old if was is None else new if now is None else old).is_whole or (
            was is not None and now is not None
        )
        if is_seen and not path.startswith(unseen) and (was is None or now is None or not was.equals(now)):
            yield path, was, now


class _Scan:
    """Looks at a folder once. Follows no link."""

    def __init__(
        self, folder: bytes, known: dict[bytes, Entry], put: Callable[[bytes], bytes], apart: tuple[bytes, ...]
    ) -> None:
        self._folder = folder
        self._apart = tuple(one.removeprefix(folder + b"/") for one in apart if one.startswith(folder + b"/"))
        self._known = known
        self._put = put
        self._entries: dict[bytes, Entry] = {}
        self._left_out: list[bytes] = []
        self._new_bytes = 0

    def tree(self) -> Tree:
        waiting = [b""]
        while waiting and len(self._entries) < _MAX_ENTRIES:
            waiting += self._look_into(waiting.pop())
        return Tree(self._entries, tuple(sorted(self._left_out)), not waiting)

    def _look_into(self, parent: bytes) -> list[bytes]:
        """Add what a folder holds; return the folders in it that are to be looked into."""
        below: list[bytes] = []
        try:
            with os.scandir(os.path.join(self._folder, parent)) as found:  # noqa: PTH118 - names are bytes here
                entries = list(found)
        except (
            OSError
        ):  # deleted meanwhile, or not readable: what it holds cannot be changed without this being noticed
            self._left_out.append(parent)
            return []
        if parent and any(one.name in _REBUILT for one in entries):
            self._left_out.append(parent)
            return []
        for one in entries:
            path = os.path.join(parent, one.name)  # noqa: PTH118 - as above
            if self._apart and path.startswith(self._apart):
                self._left_out.append(path)
                continue
            with contextlib.suppress(OSError):  # deleted meanwhile
                self._add(path, one.stat(follow_symlinks=False))
                if one.is_dir(follow_symlinks=False):
                    (self._left_out if one.name in _LEFT_OUT else below).append(path)
        return below

    def _add(self, path: bytes, status: os.stat_result) -> None:
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        known = self._known.get(path)
        if stat.S_ISDIR(status.st_mode):
            self._entries[path] = Entry(status.st_mode, (0, 0, 0, 0))
        elif stat.S_ISLNK(status.st_mode):
            self._entries[path] = Entry(status.st_mode, stamp, os.readlink(os.path.join(self._folder, path)))  # noqa: PTH115, PTH118 - as above
        elif not stat.S_ISREG(status.st_mode):
            self._entries[path] = Entry(status.st_mode, (0, 0, 0, 0))
        elif known is not None and known.stamp == stamp and known.mode == status.st_mode:
            self._entries[path] = known
        else:
            self._entries[path] = Entry(status.st_mode, stamp, self._stored(path, status))

    def _stored(self, path: bytes, status: os.stat_result) -> bytes | None:
        if status.st_size > _MAX_FILE_BYTES or self._new_bytes + status.st_size > _MAX_NEW_BYTES:
            return None
        try:
            place = os.path.join(self._folder, path)  # noqa: PTH118 - as above
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
                content = file.read(_MAX_FILE_BYTES)
        except OSError:
            return None
        self._new_bytes += len(content)
        return self._put(content)


# --- Putting back.


def put_back(folder: bytes, changes: Sequence[Change], content: Callable[[bytes], bytes]) -> list[str]:
    """Put the older side of changes back: contents, links, folders and permissions. Return what could not be done, a sentence each."""
    work = _Work(folder, content)
    for change in sorted(changes, key=lambda one: one.path, reverse=True):  # what a folder holds comes before it
        if change.new is not None and (
            change.old is None or stat.S_IFMT(change.old.mode) != stat.S_IFMT(change.new.mode)
        ):
            work.attempt(change, work.remove)
    for change in sorted(changes, key=lambda one: one.path):
        if change.old is not None:
            work.attempt(change, work.make)
    work.finish()
    return work.faults


class _Work:
    """Changes things in a folder by the open folders that they are in: a program that still runs may put a link on the way, which leads outside."""

    def __init__(self, folder: bytes, content: Callable[[bytes], bytes]) -> None:
        self._folder = folder
        self._content = content
        self._modes: dict[
            bytes, int
        ] = {}  # of folders, set at the end: one may have to be opened for writing until then
        self.faults: list[str] = []

    def attempt(self, change: Change, act: Callable[[int, Change], None]) -> None:
        above = os.path.dirname(change.path)  # noqa: PTH120 - names are bytes here
        try:
            with self._opened(above) as parent:
                self._open_for_writing(parent, above)
                act(parent, change)
        except OSError as exc:
            self.faults.append(f"{change.shown}: {exc.strerror or exc}")
        except LookupError:
            self.faults.append(f"{change.shown}: its content from before was not stored")

    @contextlib.contextmanager
    def _opened(self, path: bytes) -> Iterator[int]:
        """Open a folder, through no link."""
        at = os.open(self._folder, _FOLDER)
        try:
            for part in filter(None, path.split(b"/")):
                deeper = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = deeper
            yield at
        finally:
            os.close(at)

    def _open_for_writing(self, parent: int, path: bytes) -> None:
        """Let files of a folder be changed that a person has closed for writing; `finish` closes it again."""
        mode = os.fstat(parent).st_mode
        if not mode & stat.S_IWUSR:
            self._modes.setdefault(path, mode)
            _set_mode(parent, mode | stat.S_IRWXU)

    def remove(self, parent: int, change: Change) -> None:
        name = os.path.basename(change.path)  # noqa: PTH119 - as above
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            self._modes.pop(change.path, None)
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as exc:
                if exc.errno != errno.ENOTEMPTY:  # else it holds what is not put back
                    raise

    def make(self, parent: int, change: Change) -> None:
        old, name = change.old, os.path.basename(change.path)  # noqa: PTH119 - as above
        assert old is not None
        if stat.S_ISDIR(old.mode):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
            self._modes[change.path] = old.mode
            return
        part = f".treadle-{secrets.token_hex(8)}".encode()
        if stat.S_ISLNK(old.mode):
            assert old.content is not None
            os.symlink(old.content, part, dir_fd=parent)
        elif stat.S_ISREG(old.mode) and old.content is not None:
            content, flags = self._read(old.content), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(part, flags, 0o600, dir_fd=parent), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(content)
                os.fchmod(file.fileno(), stat.S_IMODE(old.mode))
        else:
            raise LookupError
        try:
            os.replace(part, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            os.unlink(part, dir_fd=parent)
            raise

    def _read(self, digest: bytes) -> bytes:
        try:
            return self._content(digest)
        except OSError as exc:
            raise LookupError from exc

    def finish(self) -> None:
        for path, mode in sorted(self._modes.items(), reverse=True):
            try:
                with self._opened(path) as folder:
                    _set_mode(folder, mode)
            except OSError as exc:
                self.faults.append(f"{os.fsdecode(path)}: {exc.strerror or exc}")


_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder is opened, also one that its user may not list."""


def _set_mode(folder: int, mode: int) -> None:
    """Set the mode of an open folder, which `fchmod` cannot do where it was opened by `O_PATH`."""
    os.chmod(f"/proc/self/fd/{folder}" if hasattr(os, "O_PATH") else folder, stat.S_IMODE(mode))  # noqa: PTH101 - as above
