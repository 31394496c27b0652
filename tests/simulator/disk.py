"""The same lives on real SQLite files: what the simulated store says is compared with what a file says, operation by operation.

The simulated store decides when something is stored and whom a crash takes; every process has a connection of its own to the file.
A process that dies loses its connection and its locks at that commit. Engines read what the file says.
"""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simulator.store import SimJournal, SimLease, SimStore
from treadle.errors import SessionConflict
from treadle.events import AnyEvent
from treadle.journals.sqlite import SqliteJournal
from treadle.journals.sqlite_leases import FileLease
from treadle.ports import InboxMessage, SessionFilter, SessionInfo
from treadle.ports.journals import ALL_SESSIONS

if TYPE_CHECKING:
    from simulator.process import Process

__all__ = ["Disk", "FileJournal", "compare"]

_T = TypeVar("_T")
_PATIENCE_SECONDS = 60.0


class Disk:
    """A folder with a file for each store of a life, and the thread in which their journals live."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for something that is done to a file. No simulated time passes."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_SECONDS)

    def open(self, store: SimStore) -> SqliteJournal:
        return SqliteJournal(self._folder / f"{store.name}.db")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_SECONDS)
        self._loop.close()


def compare(seed: int) -> str | None:
    """Live a life in memory and on a file; return what differs, "" for nothing, None for a life with a power cut.

    A power cut takes from a file what the kernel had not written, and no process on a running machine can show that.
    """
    from simulator.life import Life

    in_memory = Life(seed)
    outcome = in_memory.run()
    if outcome.has_power_cut:
        return None
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        on_file = Life(seed, disk=disk)
        violations = on_file.run().violations
        disk.close()
    if violations != outcome.violations:
        return f"violations {violations}, in memory {outcome.violations}"
    if on_file.world.side_effects != in_memory.world.side_effects:
        return "other things were done in the world"
    return "" if _stored(on_file.stores) == _stored(in_memory.stores) else "other events were stored"


def _stored(stores: Sequence[SimStore]) -> list[dict[str, list[AnyEvent]]]:
    return [{name: shelf.events for name, shelf in store.shelves.items()} for store in stores]


class FileJournal(SimJournal):
    """The journal of one simulated process over a real file."""

    def __init__(self, store: SimStore, process: "Process", disk: Disk) -> None:
        super().__init__(store, process)
        self._disk = disk
        self._file: SqliteJournal | None = None
        self._leases: dict[str, FileLease] = {}

    # --- its connection

    @property
    def _real(self) -> SqliteJournal:
        if self._file is None:
            self._file = self._disk.open(self._store)
        return self._file

    def drop(self) -> None:
        """Lose the connection and the locks, as a process that dies does."""
        file, self._file = self._file, None
        for lease in self._leases.values():
            lease._drop()
        self._leases.clear()
        if file is not None:
            self._disk.do(file.close())

    def die(self, keep: int) -> None:
        super().die(keep)
        self.drop()

    def _same(self, what: str, ours: object, files: object) -> None:
        if ours != files:
            self._process.life.judge.blame(f"{what}: the file says {files}, the simulated store {ours}"[:300])

    # --- writing: what the simulated store has taken in, the file takes in too

    def _keep(self, session_id: str, events: list[AnyEvent], state: str) -> None:
        super()._keep(session_id, events, state)
        self._disk.do(self._real.append(session_id, events, state=state, durable=False))
        self._disk.do(self._real.flush())

    def _refuse(self, session_id: str, events: list[AnyEvent], state: str) -> None:
        if self._file is None:
            return  # its connection is gone, and so is what it knew
        try:
            self._disk.do(self._file.append(session_id, events, state=state, durable=True))
        except SessionConflict:
            return
        self._process.life.judge.blame(f"the file took events of {session_id} from a process that had been taken over")

    async def create(self, session_id: str) -> bool:
        is_new = await super().create(session_id)
        self._same("create", is_new, self._disk.do(self._real.create(session_id)))
        return is_new

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> SimLease:
        before = self._store.shelves[session_id].lease if session_id in self._store.shelves else None
        lease = await super().acquire(session_id, on_lost=on_lost, on_message=on_message)
        if before is not None and isinstance(before.process.journal, FileJournal):
            before.process.journal.lose(session_id)
        real = self._disk.do(self._real.acquire(session_id, on_lost=_nothing, on_message=_nothing))
        self._leases[session_id] = real
        self._same("head", lease.head, real.head)
        if real.has_messages is not None:
            self._same("has_messages", lease.has_messages, real.has_messages)
        lease.on_release = lambda: self._release(session_id, real)
        return lease

    def lose(self, session_id: str) -> None:
        """Another process takes this session over: the lock is free, and nothing else is reported to the file."""
        if (lease := self._leases.pop(session_id, None)) is not None:
            lease._drop()

    def _release(self, session_id: str, real: FileLease) -> None:
        if self._leases.get(session_id) is real:
            del self._leases[session_id]
            self._disk.do(real.release())

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        await super().adopt(session_id, events, state=state, inbox=inbox)

    def _made(self, session_id: str, events: Sequence[AnyEvent], state: str, inbox: Sequence[InboxMessage]) -> None:
        super()._made(session_id, events, state, inbox)
        self._disk.do(self._real.adopt(session_id, events, state=state, inbox=inbox))

    def _purged(self, session_id: str, tombstone: AnyEvent, blobs: Sequence[str]) -> None:
        super()._purged(session_id, tombstone, blobs)
        self._disk.do(self._real.purge(session_id, tombstone, blobs=blobs))

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        is_new = await super().put(session_id, message)
        self._same("put", is_new, self._disk.do(self._real.put(session_id, message)))
        return is_new

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        await super().consume(session_id, message_ids, seq)
        self._disk.do(self._real.consume(session_id, message_ids, seq))

    async def put_blob(self, content: bytes) -> str:
        digest = await super().put_blob(content)
        self._same("put_blob", digest, self._disk.do(self._real.put_blob(content)))
        return digest

    # --- reading: the engine is given what the file says

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        ours = await super().read(session_id, after=after)
        files = self._disk.do(self._real.read(session_id, after=after))
        self._same(f"read after {after}", [*ours], [*files])
        return files

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        ours = await super().inbox(session_id)
        files = self._disk.do(self._real.inbox(session_id))
        self._same("inbox", [*ours], [*files])
        return files

    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        ours = await super().sessions(where)
        files = self._disk.do(self._real.sessions(where))
        self._same("sessions", sorted(map(_row, ours)), sorted(map(_row, files)))
        return ours  # in this order: the file sorts by a clock of its own

    async def blob(self, digest: str) -> bytes | None:
        ours = await super().blob(digest)
        self._same("blob", ours, self._disk.do(self._real.blob(digest)))
        return ours

    async def close(self) -> None:
        await super().close()
        self.drop()


def _row(info: SessionInfo) -> tuple[str, int, str, str]:
    return info.id, info.head, info.task, str(info.status)


def _nothing() -> None:
    """Nobody has to be told: the simulated store tells."""
