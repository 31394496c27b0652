"""The presence of workers: each holds a place in the journal as long as it lives, and writes there what it does."""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from treadle.errors import ConfigurationError, JournalError, SessionConflict, SessionHeld, WorkerNameTaken, shown
from treadle.events import AnyEvent, SessionChanged
from treadle.fields import Documented, checked
from treadle.journals.store import held_of
from treadle.ports import Clock, Journal, Lease, SessionFilter
from treadle.ports.journals import WORKER
from treadle.redaction import redacted_logger
from treadle.sessions.maintenance import fold, pass_on

__all__ = ["Presence", "WorkerInfo", "boot_id", "list_workers"]

logger = redacted_logger(__name__)

_PREFIX = "worker/"
_MOST_EVENTS = 500
"""A place that has as many events is emptied but for its last one: each says all that the worker does."""
_MOST_LEFT = 100
"""So many ends of earlier workers of this name are remembered: a session may ask later how the one ended that had it."""
_SETTLING_SECONDS = 5.0
"""A worker that had lost its place asks so long after it who else lives: the others take theirs again meanwhile."""


class WorkerInfo(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A worker, as it has said itself."""

    name: str
    """Its name, unique among those that share the journal."""
    host: str
    """The machine."""
    pid: int
    """The process."""
    agents: tuple[str, ...]
    """The agents that it has."""
    concurrency: int
    """How many sessions it runs side by side at most."""
    tenants: tuple[str, ...] | None = None
    """Whose tasks it takes; None for those of every tenant."""
    fingerprints: dict[str, dict[str, str]] = {}
    """Digests of its agents, by agent and part: a run that another version of its agent began is not continued."""
    accepts_change: bool = False
    """Whether it continues runs with agents that have changed since."""
    since: float
    """When it began, in seconds since 1970."""
    sessions: tuple[str, ...] = ()
    """The sessions that it ran when it last said so."""
    done: int = 0
    """How many runs it had brought to their end or to a pause then."""
    waiting: dict[str, int] = {}
    """How many sessions and requests waited for a limit then, by reason."""
    is_draining: bool = False
    """Whether it takes nothing new any more."""
    is_alive: bool = True
    """Whether its process seems to live."""
    boot: str = ""
    """What tells the machine's start from its other starts; empty where the machine does not say."""


class Presence:
    """A worker's place in the journal. `on_lost`: called when the place is lost, because its store did not answer or this process stood still."""

    def __init__(self, journal: Journal, clock: Clock, info: WorkerInfo, *, on_lost: Callable[[], None]) -> None:
        self._journal = journal
        self._clock = clock
        self._id = _PREFIX + info.name
        self.place = journal.location
        """Where the journal is."""
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._head: int | None = None
        self._left: tuple[str, ...] = ()
        self._lost_at = float("-inf")
        self.mark = f"{info.name} {_since(info)}"
        """Which worker it is, in the record of the runs that it carries out."""
        self.info = info
        """What the worker has said last."""

    async def died(self, worker: str) -> bool:
        """Say whether a worker has ended without having said so: it was killed, say. `worker`: its mark."""
        if worker == self.mark:
            return False
        name, _, since = worker.rpartition(" ")
        events = await self._journal.read(_PREFIX + name)
        last = _told(events[-1]) if events else None
        if since in _left(events) or (last is not None and _since(last) == since and _fell_with_its_machine(last)):
            return False
        held = await held_of(self._journal, [_PREFIX + name])
        return not (last is not None and _since(last) == since and held)

    @property
    def is_settled(self) -> bool:
        """Whether the place was not lost lately: only then is known who else has theirs."""
        return self._lease is not None and self._clock.monotonic() - self._lost_at >= _SETTLING_SECONDS

    def _lose(self) -> None:
        self._lost_at = self._clock.monotonic()
        self._on_lost()

    async def take(self) -> None:
        """Take the place, or take it again after it was lost. Raises WorkerNameTaken: a worker that lives has this name."""
        await self.leave()
        await self._journal.create(self._id)
        try:
            self._lease = await self._journal.acquire(self._id, on_lost=self._lose, on_message=pass_on)
        except SessionHeld as error:
            raise WorkerNameTaken(
                f"A worker named {self.info.name!r} is already running on this journal{await self._place_of_holder()}. "
                "Give each worker a name of its own, or none: --name, or Worker(name=...)."
            ) from error
        self._head = None
        await self._store()

    async def _place_of_holder(self) -> str:
        said = fold(self._id, await self._journal.read(self._id)).metadata.get("worker")
        return f" (process {said['pid']} on {said['host']})" if isinstance(said, dict) else ""

    async def tell(self, info: WorkerInfo) -> None:
        """Write what the worker does, where it has changed."""
        if info == self.info or self._lease is None:
            return
        before, self.info = self.info, info
        try:
            await self._store()
        except JournalError as error:
            self.info = before
            logger.info("The status of worker %s could not be stored: %s", info.name, error)

    async def leave(self) -> None:
        """Give the place back. May be called twice."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await lease.release()

    async def _store(self) -> None:
        """Store what the worker says. Raises JournalError: the store failed, or the place is lost. What was to be stored may be stored anyway."""
        head, self._head = self._head, None
        if head is None:
            events = await self._journal.read(self._id)
            head, self._left = len(events), _left(events)
        try:
            await self._append(self._said(head + 1))
            if head + 1 >= _MOST_EVENTS:
                await self._journal.purge(self._id, self._said(1))
                head = 1
                await self._append(self._said(2))
        except SessionConflict as error:
            raise JournalError(str(error)) from error
        self._head = head + 1

    def _said(self, seq: int) -> SessionChanged:
        said = {"worker": msgspec.to_builtins(self.info), "left": self._left}
        return SessionChanged(session_id=self._id, seq=seq, at=self._clock.now(), metadata=said, by=self.info.name)

    async def _append(self, event: SessionChanged) -> None:
        await self._journal.append(self._id, [event], state=WORKER, durable=False)


@checked
async def list_workers(journal: Journal, *, all: bool = False) -> tuple[WorkerInfo, ...]:  # noqa: A002 - as the command says
    """Return the workers of a journal, the one that changed last first.

    Args:
        all: Name also those whose process has ended.

    Raises:
        JournalError: The store failed.
    """
    found = []
    rows = await journal.sessions(SessionFilter(run_statuses=(WORKER,)))
    held = await held_of(journal, [row.id for row in rows])
    for row in rows:
        is_alive = row.id in held
        if not (is_alive or all):
            continue
        last = (await journal.read(row.id, after=row.head - 1))[-1:]  # each says all of it: no earlier one is asked
        if last and (info := _told(last[0])) is not None:
            found.append(replace(info, is_alive=is_alive))
    return tuple(found)


def _told(event: AnyEvent) -> WorkerInfo | None:
    """Return what a worker has said in an event of its place."""
    said = (event.metadata or {}).get("worker") if isinstance(event, SessionChanged) else None
    return msgspec.convert(said, WorkerInfo) if isinstance(said, dict) else None


def _since(info: WorkerInfo) -> str:
    return f"{info.since:.6f}"


def _left(events: Sequence[AnyEvent]) -> tuple[str, ...]:
    """Return when those workers of a place began that did not die of what they ran, as in their marks.

    They had been told to end, even where somebody then killed them; or their machine was started anew.
    """
    known = (events[0].metadata or {}).get("left", ()) if events and isinstance(events[0], SessionChanged) else ()
    infos = [info for event in events if (info := _told(event)) is not None]
    last_said = {_since(info): info for info in infos}
    left = [since for since, info in last_said.items() if info.is_draining or _fell_with_its_machine(info)]
    return tuple(dict.fromkeys((*known, *left)))[-_MOST_LEFT:]


def _fell_with_its_machine(info: WorkerInfo) -> bool:
    """Whether a worker of this machine ran before the machine's last start."""
    return info.host == socket.gethostname() and bool(info.boot) and info.boot != boot_id()


def boot_id() -> str:
    """Return what tells this start of the machine from its other starts; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def checked_worker_name(name: str | None) -> str:
    """Return a worker's name; one is made of machine and process where none is given.

    Raises:
        ConfigurationError: It is not 1 to 100 printable characters.
    """
    if name is None:
        return f"{socket.gethostname()}-{os.getpid()}"
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
        raise ConfigurationError(f"A worker's name has 1 to 100 printable characters; got {shown(name)}.")
    return name
