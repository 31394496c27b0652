"""Leases on the sessions of one journal file: one writer at a time, known to live by its heartbeat.

A lease on epoch n is a lock file named after n, and the number n in the session's row. Whoever takes over locks a file for a
higher number first and raises the row's number then, where it still is what was seen: of many, one succeeds. The writer
before, if it only slept, finds its appends refused and its file gone. Knows no SQL.
"""

import asyncio
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from treadle.concurrency import bury, watch
from treadle.errors import JournalError
from treadle.journals.store import BEATS_A_LEASE, Holder, HolderLink, held, look_seconds
from treadle.redaction import redacted_logger

__all__ = ["Claimed", "FileLease", "LeaseRows", "Leases", "Seen", "remove"]


# --- The file by which a session's writer is known: a lock of the operating system, its holder's name, and a counter.

_BEAT_BYTES = 20


class LockFile:
    """A lock file that this process has locked."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._beats = 0

    def sign(self) -> None:
        """Write who we are. A disk that is full refuses."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, _beat_bytes(0) + msgspec.json.encode(Holder.here()), 0)

    def beat(self) -> bool:
        """Show that this process lives. Return whether the lock is still ours: whoever takes over removes the file."""
        if not _is_at(self._descriptor, self.path):
            return False
        self._beats += 1
        os.pwrite(self._descriptor, _beat_bytes(self._beats), 0)
        return True

    def leave_to_parent(self) -> None:
        """In a fork: close our copy of the descriptor, so that the lock ends with the process that took it."""
        os.close(self._descriptor)

    def drop(self) -> None:
        """Remove the file and let go of the lock."""
        if _is_at(self._descriptor, self.path):
            remove(self.path)
        os.close(self._descriptor)


def try_lock(path: str) -> LockFile | None:
    """Make the file and lock it; None when somebody holds it. Raises JournalError: the folder cannot be written, or its file system has no locks."""
    try:
        while (descriptor := _made(path)) is not None:
            if _is_at(descriptor, path):
                return _signed(LockFile(path, descriptor))
            os.close(descriptor)  # it was removed between our opening and our locking it
    except OSError as exc:
        raise untakeable(path, exc) from exc
    return None


def _signed(lock: LockFile) -> LockFile:
    try:
        lock.sign()
    except BaseException:  # a lock that nobody knows of would keep the session until this process ends
        lock.drop()
        raise
    return lock


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock. Makes no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise untakeable(path, exc) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def beat_of(path: str) -> bytes:
    """Return the counter, to be compared with itself a moment later; empty where there is none."""
    with suppress(OSError):
        return Path(path).read_bytes()[:_BEAT_BYTES]
    return b""


def holder_of(path: str) -> Holder | None:
    """Return who wrote the file, if that is known."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(Path(path).read_bytes()[_BEAT_BYTES:], type=Holder)
    return None


def remove(path: str) -> None:
    with suppress(OSError):  # a file without a lock does no harm, so a folder that forbids it changes nothing
        os.unlink(path)  # noqa: PTH108 - a Path costs more than the call, and every run makes and removes one such file


def untakeable(path: str, fault: OSError) -> JournalError:
    """Return the error of a lock that cannot be made."""
    return JournalError(
        f"The lock {path} of a session cannot be taken: {fault.strerror or fault}. Check the permissions of the journal's "
        "folder, and that its file system has locks."
    )


def _made(path: str) -> int | None:
    """Make and lock the file, and its folder where it is missing; None when somebody holds it."""
    try:
        return _locked(path)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        return _locked(path)


def _locked(path: str) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the path still names the file that we have open."""
    try:
        named = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _beat_bytes(count: int) -> bytes:
    return b"%0*d" % (_BEAT_BYTES, count)


# --- What processes have seen stored of sessions, kept beside the locks: so that a log which is lost is noticed.

_PLACES = 65_536
"""Places of the file, which so has at most 4 MB. Of two sessions with one place, the one that was written last is known."""
_NAME_BYTES, _SESSION_BYTES, _HEAD_BYTES = 32, 16, 16


class Seen:
    """The number of a session's last event that was stored durably, at the session's place in the file of its journal."""

    def __init__(self, folder: str, session: str, name: str) -> None:
        """Open the file; make it where it is missing.

        Args:
            folder: Of the journal's locks.
            session: A digest of the session's id, in hexadecimal digits.
            name: The journal's own name: what was seen of another journal in its place does not count.

        Raises:
            OSError: It cannot be opened or made.
        """
        self._path = f"{folder}/all.seen"
        self._alone = f"{folder}/{session}.seen"
        self._whose = b"%-*s%s" % (_NAME_BYTES, name.encode(), session[:_SESSION_BYTES].encode())
        self._at = int(session, 16) % _PLACES * (len(self._whose) + _HEAD_BYTES)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._is_closed = False

    def check(self, session_id: str, head: int) -> None:
        """Compare what the journal holds with what was seen. Raises JournalError: it holds less."""
        found = os.pread(self._descriptor, len(self._whose) + _HEAD_BYTES, self._at)
        self._check(session_id, head, found, self._whose, self._path)
        # Older versions kept a file a session. One that is still at work makes it again when it takes the session.
        if os.path.exists(self._alone):  # noqa: PTH110 - as in `remove`
            with suppress(OSError):
                self._check(session_id, head, Path(self._alone).read_bytes(), self._whose[:_NAME_BYTES], self._alone)
                self.note(head)
                remove(self._alone)

    def _check(self, session_id: str, head: int, found: bytes, whose: bytes, path: str) -> None:
        seen = found[len(whose) :]
        if found.startswith(whose) and seen.isdigit() and int(seen) > head:
            raise JournalError(
                f"Session {session_id!r} ends at event {head} in the journal, though event {int(seen)} was stored: the "
                "journal's -wal file was removed, or an older copy of the journal was put in its place. Put the newer files "
                f"back. To continue with the older events anyway, run: rm {path}; what was done since may be done twice."
            )

    def note(self, head: int) -> None:
        """Note that events up to this number are stored. Never raises: without it, a loss is noticed later or not at all."""
        if not self._is_closed:
            with suppress(OSError):
                os.pwrite(self._descriptor, b"%s%0*d" % (self._whose, _HEAD_BYTES, head), self._at)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)


# --- Leases on the sessions of one journal file: one writer at a time, known to live by its heartbeat.

logger = redacted_logger(__name__)

_MOST_COUNTERS = 4096
"""Counters of holders that are remembered before those not looked at for one lease are forgotten."""


class Claimed(NamedTuple):
    """A session as it was when its lease was taken."""

    head: int
    """Number of its last event."""
    has_messages: bool
    """Whether anything lay in its inbox."""
    journal: str
    """The journal's own name."""


class LeaseRows(NamedTuple):
    """What leases need of the store."""

    read: Callable[[str], Awaitable[int]]
    """Return the session's number."""
    guess: Callable[[str], int | None]
    """Return it as it was when last seen, at once; None for a session not seen yet."""
    claim: Callable[[str, int, int], Awaitable[Claimed | None]]
    """Raise it from one value to another, if it has the one. Return what the session was then, else None."""
    give_back: Callable[[str, int], None]
    """Note soon that nobody holds this number any more. Returns at once and never raises for the store's faults."""
    look: Callable[[], None]
    """Look for messages, on another thread, and tell `Leases` of them. Returns at once."""


class FileLease(HolderLink):
    """The right to write one session, until it is released or lost."""

    def __init__(
        self,
        session_id: str,
        lock: LockFile,
        seen: Seen,
        *,
        claimed: Claimed,
        on_lost: Callable[[], None],
        on_message: Callable[[], None],
        let_go: Callable[["FileLease"], None],
    ) -> None:
        super().__init__(on_message)
        self.session_id = session_id
        self.head, self.has_messages = claimed.head, claimed.has_messages
        self.seen = seen
        self._lock = lock
        self._on_lost = on_lost
        self._let_go = let_go
        self._gate = threading.Lock()  # a heartbeat may be sent while the lease is given back
        self._is_released = False
        watch(self)

    def after_fork(self) -> None:
        """The lease is the parent's."""
        self._gate = threading.Lock()
        if not self._is_released:
            self._is_released = True
            self._lock.leave_to_parent()
            self.seen.close()

    def abandon(self) -> None:
        """Give the session back for a run whose event loop is closed."""
        if self._drop():
            self._let_go(self)

    def beat(self) -> bool:
        """Show that the holder lives. Return whether the lease still holds; its loss is reported once."""
        with self._gate:
            if self._is_released:
                return False
            if self._lock.beat():
                return True
        logger.warning("A session was taken over: its holder had sent no heartbeat for a whole lease")
        self._call(self._on_lost)
        return False

    async def release(self) -> None:
        """Give the session back. May be called twice."""
        if self._drop():
            self._let_go(self)

    def _drop(self) -> bool:
        """Let go of the lock. Return whether we had it."""
        with self._gate:
            if self._is_released:
                return False
            self._is_released = True
            self._lock.drop()
            self.seen.close()
            return True


class Leases:
    """Takes and keeps the leases of one journal file."""

    def __init__(self, path: Path, rows: LeaseRows, lease_seconds: float) -> None:
        self._folder = f"{path}.locks"
        self._rows = rows
        self._lease_seconds = lease_seconds
        self._counters = _Counters(lease_seconds)
        self._heartbeat = _Heartbeat(lease_seconds / BEATS_A_LEASE, rows.look)

    def look(self) -> None:
        """Look for messages now, if anybody here waits for some."""
        if self._heartbeat.leases:
            self._rows.look()

    def tell(self, arrivals: Mapping[str, int]) -> None:
        """Tell those who hold sessions of the last message in each one's inbox."""
        for lease in self._heartbeat.leases:
            if (arrival := arrivals.get(lease.session_id)) is not None:
                lease.tell(arrival)

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> FileLease:
        """Take a session that nobody holds, or whose holder is dead. Raises SessionHeld: its holder lives."""
        files = self._files(session_id)
        guess = self._rows.guess(session_id)  # a wrong one only makes the first claim fail
        while True:
            seen = await self._rows.read(session_id) if guess is None else guess
            guess = None
            epoch, lock = await self._next_free(session_id, files, seen)
            try:
                claimed = await self._rows.claim(session_id, seen, epoch)
                known = None if claimed is None else self._checked(session_id, files, claimed)
            except BaseException:
                lock.drop()
                raise
            if claimed is not None and known is not None:
                for past in range(seen, epoch):
                    remove(f"{files}{past}")
                lease = FileLease(
                    session_id,
                    lock,
                    known,
                    claimed=claimed,
                    on_lost=on_lost,
                    on_message=on_message,
                    let_go=partial(self._let_go, epoch),
                )
                self._heartbeat.keep(lease)
                return lease
            lock.drop()  # another one came first: look again, and find it alive

    def is_held(self, session_id: str, epoch: int) -> bool:
        """Whether the holder of this number has its lock, and its counter has not been seen to stand still for one lease.

        Does not wait: it compares the counter with what earlier calls saw, so that a process which is stopped is told from one that
        lives by whoever asks again and again.

        Raises:
            JournalError: The lock cannot be looked at.
        """
        path = f"{self._files(session_id)}{epoch}"
        now = time.monotonic()  # before the look
        if not is_locked(path):
            self._counters.forget(path)
            return False
        return self._counters.look(path, now).still_seconds < self._lease_seconds

    def _checked(self, session_id: str, files: str, claimed: Claimed) -> Seen:
        """Return what was seen of a session, once the journal is known to hold that. Raises JournalError: it holds less."""
        try:
            seen = Seen(self._folder, Path(files).name.rstrip("."), claimed.journal)
        except OSError as exc:
            raise untakeable(f"{self._folder}/all.seen", exc) from exc
        try:
            seen.check(session_id, claimed.head)
        except BaseException:
            seen.close()
            raise
        return seen

    def note(self, heads: Mapping[str, int]) -> None:
        """Note what is stored durably of the sessions that are held here. For the writer's thread."""
        for lease in self._heartbeat.leases:
            if (head := heads.get(lease.session_id)) is not None:
                lease.seen.note(head)

    def _let_go(self, epoch: int, lease: FileLease) -> None:
        self._heartbeat.leave(lease)
        self._rows.give_back(lease.session_id, epoch)

    async def _next_free(self, session_id: str, files: str, seen: int) -> tuple[int, LockFile]:
        """Lock the file of the lowest number that is higher than the one seen and free, past holders that are dead."""
        epoch = seen
        while True:
            path = f"{files}{epoch}"
            if is_locked(path) and await self._is_alive(path):
                raise held(session_id, holder_of(path), journal=self._folder.removesuffix(".locks"))
            epoch += 1
            if (lock := try_lock(f"{files}{epoch}")) is not None:
                return epoch, lock

    async def _is_alive(self, path: str) -> bool:
        """Watch a holder: alive once its counter moves, dead when its lock is free or it stood still for one lease."""
        first = self._counters.look(path, time.monotonic())
        while True:
            await asyncio.sleep(look_seconds(self._lease_seconds))
            now = time.monotonic()  # before the look
            if not is_locked(path):
                return False
            counter = self._counters.look(path, now)
            if counter.beat != first.beat:
                return True
            if counter.still_seconds >= self._lease_seconds:
                return False

    def _files(self, session_id: str) -> str:
        """Return what the paths of a session's lock files begin with; the number follows."""
        name = hashlib.sha256(session_id.encode()).hexdigest()[:32]
        return f"{self._folder}/{name}."


class _Counter(NamedTuple):
    """A holder's counter, as this process has seen it."""

    beat: bytes
    since: float
    """When it was first seen to be this one."""
    looked_at: float

    @property
    def still_seconds(self) -> float:
        """For how long it has stood still."""
        return self.looked_at - self.since


class _Counters:
    """The counters of holders, as this process has seen them. Times are those of `time.monotonic`."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._seen: dict[str, _Counter] = {}

    def look(self, path: str, now: float) -> _Counter:
        """Look at a counter, and compare it with what was seen before.

        Where more than one lease has passed since the last look, the watch begins anew: this process, or the whole machine, may have
        slept.

        Args:
            now: Taken before the look: had we slept long in between, the counter that we see is a newer one.
        """
        beat, seen = beat_of(path), self._seen.get(path)
        since = now
        if seen is not None and seen.beat == beat and now - seen.looked_at <= self._lease_seconds:
            since = seen.since
        elif len(self._seen) >= _MOST_COUNTERS:
            self._seen = {one: it for one, it in self._seen.items() if now - it.looked_at <= self._lease_seconds}
        self._seen[path] = counter = _Counter(beat, since, now)
        return counter

    def forget(self, path: str) -> None:
        self._seen.pop(path, None)


class _Heartbeat:
    """A daemon thread that beats for all leases of this process on one journal, however busy its event loops are."""

    def __init__(self, every_seconds: float, look: Callable[[], None]) -> None:
        self._every_seconds = every_seconds
        self._look = look
        self._begin()
        watch(self)

    def after_fork(self) -> None:
        """The leases are the parent's, and so is the thread."""
        bury(self._leases)
        self._begin()

    def _begin(self) -> None:
        self._gate = threading.Lock()
        self._leases: set[FileLease] = set()
        self._is_beating = False

    @property
    def leases(self) -> tuple[FileLease, ...]:
        with self._gate:
            return tuple(self._leases)

    def keep(self, lease: FileLease) -> None:
        with self._gate:
            self._leases.add(lease)  # the file of a lease is made with its first beat: the next one may wait
            if not self._is_beating:
                self._is_beating = True
                threading.Thread(target=self._beat, name="treadle-heartbeat", daemon=True).start()

    def leave(self, lease: FileLease) -> None:
        with self._gate:
            self._leases.discard(lease)

    def _beat(self) -> None:
        while True:
            time.sleep(self._every_seconds)
            with self._gate:
                # It ends a while after the last lease, so that a run after the other needs no new thread each.
                if not self._leases:
                    self._is_beating = False
                    return
                leases = tuple(self._leases)
            for lease in leases:
                if lease.is_orphaned:  # its loop was closed with the run pending: nobody can resume that
                    lease.abandon()
            lost = [lease for lease in leases if not _has_beaten(lease)]
            with self._gate:
                self._leases.difference_update(lost)
            self._look()


def _has_beaten(lease: FileLease) -> bool:
    try:
        return lease.beat()
    except OSError:
        # A disk that fails for a moment has taken nothing from us; one that fails for a lease lets others take over.
        logger.warning("A session's heartbeat could not be written", exc_info=True)
        return True
