"""Sessions spread by pgqueuer on the PostgreSQL of the journal. The queue only says where to look: all of it may be lost at any time.

One worker at a time keeps watch: it reads from the journal what is to be done, and puts it into the queue. Every worker takes
from the queue. A session may be in it twice, or although there is nothing to do: its lease and its events decide.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, JournalError, shown
from treadle.fields import checked
from treadle.journals.store import held_of
from treadle.ports import Clock, Journal
from treadle.redaction import redacted_logger
from treadle.resolve import open_journal
from treadle.resolve.journals import SystemClock
from treadle.workers.health import tell_away, tell_back
from treadle.workers.worker import Delivered, Finder, Work

if TYPE_CHECKING:
    from treadle.workers.queue_place import Place

__all__ = ["PgQueuerDispatcher"]

logger = redacted_logger(__name__)

_T = TypeVar("_T")

LOOK_SECONDS = 0.25
"""How often the journal is asked, where no bell has rung."""
POLL_SECONDS = 0.5
"""How often the queue is asked, where it has sent no notification."""
AGAIN_SECONDS = 30.0
"""What still waits in the journal is put into the queue again after so long, whatever became of it there."""
CONTINUES_AGAIN_SECONDS = 1.0
"""The same, for what continues: the answer to a second question may follow the first at once."""
PRUNE_SECONDS = 600.0
"""How often the queue's log is emptied."""
AWAY_SECONDS = (0.1, 2.0)
"""How long a session rests in the queue where a worker could not run it: it doubles from the first to the last."""
TRIES = 10
"""After so many, it leaves the queue; who keeps watch puts it there again, if it still waits."""
RECONNECT_SECONDS = (0.1, 1.0)
SILENCE_SECONDS = 15.0
"""A server that does not answer for so long is given up; the next question goes over a new connection."""
_SHARE = 5
LONGEST_REST_SECONDS = 1.0
"""Who rested longer might lose the watch."""
_CONTINUES = "session"
"""The entry point of what continues; that of a tenant's tasks is `task:` and its name."""
_LONGEST_STALE_SECONDS = 86_400.0
_END_OF_TIME = 1e11
_FIRST = 1_000_000_000
"""The priority of what continues."""


class PgQueuerDispatcher:
    """The `Dispatcher` of workers that share a queue of pgqueuer beside their journal in PostgreSQL. Each worker has one of its own.

    The extras `postgres` and `workers` are needed. The queue's tables lie in the journal's schema; they are made by the first worker.

    Example:
        worker = Worker(url, agents, dispatcher=PgQueuerDispatcher(url))

    Args:
        address: The journal's: `postgresql://...`.
        tenants: Whose tasks it delivers; None for those of every tenant.
        stale_seconds: What a worker holds that gave no sign of life for so long is delivered to another.
        clock: In place of the machine's clock, for tests.

    Raises:
        ConfigurationError: The address is invalid, or pgqueuer is not installed.
    """

    @checked
    def __init__(
        self,
        address: str,
        *,
        tenants: Collection[str] | None = None,
        stale_seconds: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < stale_seconds <= _LONGEST_STALE_SECONDS:
            raise ConfigurationError(
                f"PgQueuerDispatcher(stale_seconds=...) is a number of seconds above 0, at most a day; got {shown(stale_seconds)}."
            )
        self._place = _place_of(address)
        self._address = address
        self._tenants = None if tenants is None else frozenset(tenants)
        self._stale = timedelta(seconds=stale_seconds)
        self._clock = clock or SystemClock()
        self._id = uuid.uuid4()
        self._stack = AsyncExitStack()
        self._queries: Any = None  # Any: pgqueuer's; imported on first use
        self._lock = asyncio.Lock()
        self._nudge, self._bell = asyncio.Event(), asyncio.Event()
        self._held: dict[int, Any] = {}  # Any: pgqueuer's job
        self._served: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._resting: dict[str, float] = {}
        self._picking: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    @checked
    async def send(
        self, session_id: str, *, at: float | None = None, priority: int = 0, tenant: str | None = None
    ) -> None:
        """Put a session into the queue.

        Args:
            session_id: The session that is to be run.
            at: When at the earliest, in seconds since 1970; None for now.
            priority: Sessions with a higher number come first.
            tenant: Whose task begins; None for what continues.

        Raises:
            ConfigurationError: A value is invalid.
            JournalError: The database cannot be reached. What waits in the journal is found anyway.
        """
        for name, value in (("session_id", session_id), ("tenant", tenant)):
            if find_unencodable(value) is not None:
                raise ConfigurationError(f"send({name}=...) cannot be stored: {find_unencodable(value)}.")
        if at is not None and not abs(at) < _END_OF_TIME:
            raise ConfigurationError(f"send(at=...) is in seconds since 1970; got {shown(at)}.")
        delay = None if at is None else timedelta(seconds=max(0.0, at - self._clock.now()))
        entry = _entry(Work(session_id, tenant or "", priority, is_task=tenant is not None))
        await self._enqueue([(session_id, *entry, delay)])

    async def next(self) -> Delivered:
        self._begin()
        pauses, place = _pauses(), self._place.address.location
        while True:
            self._nudge.clear()
            try:
                job = await self._picked()
            except JournalError as error:
                tell_away(
                    logger, place, "The queue cannot be asked what is to be done: %s The worker waits for it.", error
                )
                await asyncio.sleep(next(pauses))
                continue
            if job is not None:
                session_id = (job.payload or b"").decode(errors="replace")
                return Delivered(session_id, partial(self._give_back, job))
            tell_back(place)
            pauses = _pauses()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._nudge.wait()

    async def close(self) -> None:
        """Give back what was taken and not delivered, and close the connections. May be called twice."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        if self._picking is not None:
            with suppress(JournalError):
                if (job := await self._picking) is not None:
                    await self._give_back(job, is_done=False)
            self._picking = None
        await self._drop()

    # --- taking

    async def _picked(self) -> Any:
        """Return a job of the queue, or None. A cancelled caller loses none: the next one gets it."""
        if self._picking is None:
            self._picking = asyncio.create_task(self._asked(self._pick))
        picking = self._picking
        await asyncio.wait([picking])
        self._picking = None
        return picking.result()

    async def _pick(self, queries: Any) -> Any:
        """Take what continues, or else a task of the tenant of which least is under way."""
        from treadle.workers.queue_place import take

        await self._count(queries)
        for entry in self._by_turn():
            job = await take(queries, entry, owner=self._id, stale=self._stale)
            if job is not None:
                self._served[entry] += 1
                self._held[job.id] = job
                return job
        return None

    async def _count(self, queries: Any) -> None:
        self._waiting.clear()
        self._running.clear()
        for row in await queries.queue_size():
            counts = self._running if row.status == "picked" else self._waiting
            counts[row.entrypoint] += row.count

    def _by_turn(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        resting = {entry for entry, until in self._resting.items() if until > now}
        found = [entry for entry in {*self._waiting, *self._running} if self._is_wanted(entry) and entry not in resting]
        return sorted(found, key=lambda one: (one != _CONTINUES, self._running[one], self._served[one], one))

    def _is_wanted(self, entry: str) -> bool:
        return entry == _CONTINUES or self._tenants is None or entry.removeprefix("task:") in self._tenants

    @property
    def waiting(self) -> int:
        """How many sessions waited in the queue at the last look."""
        return self._waiting.total()

    async def _give_back(self, job: Any, *, is_done: bool, waits: bool = False) -> None:
        """Say what happened to a job. A failure is harmless: it is delivered again, and there is nothing to do any more."""
        self._held.pop(job.id, None)
        if waits and job.entrypoint != _CONTINUES:
            self._resting[job.entrypoint] = asyncio.get_running_loop().time() + POLL_SECONDS

        async def say(queries: Any) -> None:
            if is_done or (job.attempts >= TRIES and not waits):
                await queries.log_jobs([(job, "successful", None)])
            else:
                seconds = AWAY_SECONDS[0] if waits else min(AWAY_SECONDS[0] * 2**job.attempts, AWAY_SECONDS[1])
                await queries.retry_job(job, timedelta(seconds=seconds), None)

        try:
            await self._asked(say)
        except JournalError as error:
            logger.info(
                "The queue was not notified of what happened to a session: %s It delivers the session again.", error
            )

    # --- the connection

    async def _asked(self, act: Callable[[Any], Awaitable[_T]]) -> _T:
        """Ask the queue something; a connection that was lost is opened anew by the next question. Raises JournalError."""
        from treadle.workers.queue_place import FAULTS

        async with self._lock:
            try:
                if self._queries is None:
                    self._queries = await self._stack.enter_async_context(self._place.connected())
                async with asyncio.timeout(SILENCE_SECONDS):
                    return await act(self._queries)
            except FAULTS as error:
                await self._drop_locked()
                raise self._place.failure(error) from error

    async def _drop(self) -> None:
        async with self._lock:
            await self._drop_locked()

    async def _drop_locked(self) -> None:
        self._queries = None
        stack, self._stack = self._stack, AsyncExitStack()
        with suppress(Exception):  # a connection that is lost cannot be closed well
            await stack.aclose()

    # --- beside

    def _begin(self) -> None:
        if not self._tasks and not self._is_closed:
            self._tasks = [asyncio.create_task(one) for one in (self._beat(), self._hear(), self._watch())]

    async def _beat(self) -> None:
        """Say of what is held here that this worker lives."""
        while True:
            await asyncio.sleep(self._stale.total_seconds() / 3)
            if self._held:
                with suppress(JournalError):
                    await self._asked(lambda queries: queries.update_heartbeat(list(self._held)))

    async def _hear(self) -> None:
        """Listen to the queue, and to the bell of the journal, which rings when something is left there."""
        pauses = _pauses()
        while True:
            try:
                async with self._place.heard() as notes:
                    self._nudge.set()
                    self._bell.set()
                    async for is_of_queue in notes:
                        pauses = _pauses()
                        (self._nudge if is_of_queue else self._bell).set()
            except JournalError as error:
                logger.info("The queue sends no notifications: %s It is asked every %g s instead.", error, POLL_SECONDS)
            await asyncio.sleep(next(pauses))

    async def _watch(self) -> None:
        """Put what is to be done into the queue, as long as no other worker does."""
        pauses = _pauses()
        while True:
            try:
                async with self._place.on_watch(str(self._id)) as keep:
                    if await keep():
                        pauses = _pauses()
                        await self._feed(keep)
            except JournalError as error:
                logger.info("This worker cannot keep watch over the journal: %s", error)
            await asyncio.sleep(next(pauses))

    async def _feed(self, keep: Callable[[], Awaitable[bool]]) -> None:
        loop, sent = asyncio.get_running_loop(), dict[str, float]()
        async with open_journal(self._address) as journal:
            await self._place.create_notification()
            finder, prune_at = Finder(journal, self._clock), loop.time() + PRUNE_SECONDS
            while await keep():
                self._bell.clear()
                begun = loop.time()
                found = await self._unheld(journal, await finder.find())
                fresh = [work for work in found if sent.get(_key(work), 0.0) <= begun - _again_seconds(work)]
                await self._enqueue([(one.session_id, *_entry(one), None) for one in fresh])
                sent |= {_key(one): begun for one in fresh}
                sent = {key: sent[key] for key in map(_key, found)}
                if begun > prune_at:
                    prune_at = begun + PRUNE_SECONDS
                    await self._asked(_prune)
                await self._rest(loop.time() - begun)

    async def _unheld(self, journal: Journal, found: list[Work]) -> list[Work]:
        """Leave out what a process runs: it takes its messages by itself."""
        held = await held_of(journal, [one.session_id for one in found if not one.is_task])
        return [one for one in found if one.is_task or one.session_id not in held]

    async def _rest(self, took: float) -> None:
        """Wait for the bell, or the next look. Looks take at most their share of the time."""
        await asyncio.sleep(min(took * (_SHARE - 1), LONGEST_REST_SECONDS))
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._bell.wait()

    async def _enqueue(self, rows: list[tuple[str, str, int, timedelta | None]]) -> None:
        if not rows:
            return
        ids, entries, priorities, delays = map(list, zip(*rows, strict=True))
        payloads = [one.encode() for one in ids]
        keys = [f"{entry}/{one}" for one, entry in zip(ids, entries, strict=True)]

        async def put(queries: Any) -> None:
            await queries.enqueue(entries, payloads, priorities, delays, keys, on_conflict="skip")

        await self._asked(put)


def _place_of(address: str) -> "Place":
    """Return where the queue of a journal lies.

    Raises:
        ConfigurationError: It is not the address of a PostgreSQL database, or what is needed is not installed.
    """
    if not address.startswith(("postgresql://", "postgres://")):
        raise ConfigurationError(
            "pgqueuer spreads the sessions of a journal in PostgreSQL: PgQueuerDispatcher('postgresql://...'). Workers on a "
            "journal in a file need no queue: leave `dispatcher` out."
        )
    try:
        from treadle.workers.queue_place import Place
    except ImportError as error:
        raise ConfigurationError(
            f"Workers on pgqueuer need an extra that does not work here ({error}). "
            "Install it: pip install '.[postgres,workers]' in the project's folder."
        ) from error
    return Place.of(address)


async def _prune(queries: Any) -> None:
    """Keep the queue's statistics, and empty its log."""
    await queries.aggregate_logs()
    await queries.clear_queue_log()


def _entry(work: Work) -> tuple[str, int]:
    """Return the entry point and the priority of what is to be done."""
    return (f"task:{work.tenant}", max(-_FIRST, min(work.priority, _FIRST))) if work.is_task else (_CONTINUES, _FIRST)


def _key(work: Work) -> str:
    return f"{_entry(work)[0]}/{work.session_id}"


def _again_seconds(work: Work) -> float:
    return AGAIN_SECONDS if work.is_task else CONTINUES_AGAIN_SECONDS


def _pauses() -> Iterator[float]:
    """Give longer and longer pauses, in seconds."""
    seconds, longest = RECONNECT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, longest)
