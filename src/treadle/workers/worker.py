"""A worker: takes sessions from its dispatcher, runs them side by side, and says that it is there. Knows no queue."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from treadle.agents.agent import Agent
from treadle.errors import ConfigurationError, JournalError, WorkerNameTaken, shown
from treadle.fields import checked_but
from treadle.ports import Clock, Delivery, Dispatcher, Journal
from treadle.redaction import redacted_logger
from treadle.resolve.system import SystemClock
from treadle.sessions.answering import store_time
from treadle.workers.carrying import AgentMaker, Carrier, makers_of
from treadle.workers.finding import JournalDispatcher
from treadle.workers.health import Condition, HealthServer, Queue, WorkerCondition, worker_samples
from treadle.workers.limits import Limit, LimitReachedNow, Limits, checked_limit
from treadle.workers.logs import tell_away, tell_back
from treadle.workers.metrics import Metrics, Sample
from treadle.workers.presence import Presence, WorkerInfo, boot_id, checked_worker_name
from treadle.workers.stranding import Watch
from treadle.workers.submitting import shared_journal

__all__ = ["Worker"]

logger = redacted_logger(__name__)

TELL_SECONDS = 1.0
"""How often a worker writes what it does, where that has changed."""
_REMEMBERED_SECONDS = 10.0
"""How long a session that had to wait is counted."""
_APART_SECONDS = 5.0
"""A clock that differs by more from that of the database is reported."""
_TRIES_TO_BEGIN = 10
"""How often it asks a journal that was opened, and is away since, for its place, a second apart."""


class Worker:
    """Runs the sessions of a journal for which it has the agents, until it is stopped. Any number of workers can share a journal.

    Example:
        worker = Worker("agent.db", agents={"support": make_agent}, concurrency=8)
        await worker.run()

    Args:
        journal: A file's path, `postgresql://...`, or an open journal (it stays open).
        agents: Functions that create the agents, by the names under which tasks are submitted; or agents with names.
        concurrency: The maximum number of sessions that run in parallel.
        tenants: The tenants whose tasks it begins; None for all.
        name: Its name, unique among the workers of the journal; None for machine and process.
        dispatcher: Where sessions come from, closed at the end; None for the journal itself.
        deps: Your own object; tools read it as `ctx.deps`.
        tries: How often a session's worker may die at one point before the session is tried alone, and set aside if it dies again.
        drain_seconds: How long runs may continue after `stop`, before they are handed over to other workers.
        limits: How much may run at once, and in a minute, over all workers that share the journal.
        health_port: The port of 127.0.0.1 on which it answers `/live`, `/health` and `/metrics`; 0 for any free port, None for none.
        live: Whether followers can see answers as they stream; if the journal is a file, only on this machine.
        accepts_change: Whether it continues runs with its agents as they are now, if they have changed since: other instructions, tools,
            model or output. By default such a run waits for a worker that has the agent as it was.
        clock: Replaces the machine's clock, for tests.

    Raises:
        ConfigurationError: A value is invalid.
    """

    @checked_but("agents")
    def __init__(
        self,
        journal: str | Path | Journal,
        agents: Mapping[str, AgentMaker] | Iterable[Agent],
        *,
        concurrency: int = 4,
        tenants: Collection[str] | None = None,
        name: str | None = None,
        dispatcher: Dispatcher | None = None,
        deps: Any = None,  # Any: the application's own object
        tries: int = 3,
        drain_seconds: float = 30.0,
        limits: Collection[Limit] = (),
        health_port: int | None = None,
        live: bool = True,
        accepts_change: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._journal = journal
        self._makers = makers_of(agents)
        _check_counts(concurrency, tries, drain_seconds)
        self._concurrency = concurrency
        self._tenants = _checked_tenants(tenants)
        self._name = checked_worker_name(name)
        self._dispatcher = dispatcher
        self._deps = deps
        self._tries = tries
        self._drain_seconds = drain_seconds
        self._limits = _checked_limits(limits)
        self._live = live
        self._accepts_change = accepts_change
        self._clock = clock or SystemClock()
        self._waiting: dict[str, tuple[str, float]] = {}
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._is_superseded = False
        self._done = 0
        self._carries: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()
        self._info: WorkerInfo | None = None
        self._carrier: Carrier | None = None
        self._queue: Queue | None = None
        self._watch: Watch | None = None
        self._metrics = Metrics()
        self._health = None if health_port is None else self._health_on(health_port)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of its agents."""
        return tuple(self._makers)

    @property
    def info(self) -> WorkerInfo | None:
        """Its state; None before it has begun."""
        return None if self._info is None else replace(self._info, done=self._done)

    @property
    def health_address(self) -> str:
        """Where it answers, such as `http://127.0.0.1:9464`; empty while it does not."""
        return "" if self._health is None else self._health.address

    def stop(self) -> None:
        """Start no new work. Active runs have `drain_seconds` to end; then other workers take them over."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop` is called. Cancelling it hands all sessions over at once.

        Raises:
            ConfigurationError: An agent could not be made, or the port for its health is taken.
            WorkerNameTaken: A live worker of the journal has this name.
            JournalError: The journal cannot be opened.
        """
        async with AsyncExitStack() as stack:
            if self._health is not None:
                stack.push_async_callback(self._health.close)
                await self._health.start()
                logger.info("Worker %s answers at %s: /live, /health, /metrics.", self._name, self._health.address)
            journal = await stack.enter_async_context(shared_journal(self._journal))
            limits = Limits(journal, self._limits, self._clock)
            carrier = self._carrier_on(journal, limits)
            await carrier.check_agents()
            await _check_clock(journal, self._clock, self._name)
            carrier.presence = presence = await self._present(journal, carrier)
            self._watch = watch = Watch(journal, self._name)
            carrier.on_refused = watch.refused
            stack.push_async_callback(presence.leave)
            dispatcher = self._dispatcher or JournalDispatcher(journal, clock=self._clock, tenants=self._tenants)
            self._carrier, self._queue = carrier, Queue(journal, self._clock)
            telling = asyncio.create_task(self._tell(presence, carrier, limits, watch))
            try:
                await self._take(dispatcher, carrier)
                await self._drain(carrier)
            finally:
                await self._end(carrier, telling)
                await presence.tell(replace(presence.info, sessions=(), done=self._done, is_draining=True))
                await dispatcher.close()

    def _carrier_on(self, journal: Journal, limits: Limits) -> Carrier:
        return Carrier(
            journal,
            self._makers,
            clock=self._clock,
            tries=self._tries,
            deps=self._deps,
            limits=limits,
            metrics=self._metrics,
            live=self._live,
            accepts_change=self._accepts_change,
        )

    # --- its health

    def _health_on(self, port: int) -> HealthServer:
        if type(port) is not int or not 0 <= port < 1 << 16:
            raise ConfigurationError(f"Worker(health_port=...) is a port from 0 to 65535, or None; got {shown(port)}.")
        return HealthServer(port, self._metrics, self._condition, self._gauges)

    def _condition(self) -> WorkerCondition:
        status: Condition = "ready"
        if self._is_superseded:
            status = "superseded"
        elif self._stopping.is_set():
            status = "draining"
        elif self._carrier is None:
            status = "beginning"
        elif self._lost.is_set():
            status = "waiting_for_journal"
        running = () if self._carrier is None else self._carrier.sessions
        return WorkerCondition(status=status, worker=self._name, sessions=len(running), done=self._done)

    async def _gauges(self) -> list[Sample]:
        waiting = [] if self._queue is None else await self._queue.samples()
        stranded = [] if self._watch is None else self._watch.samples()
        return worker_samples(self._info, self._condition()) + waiting + stranded

    # --- its place

    async def _present(self, journal: Journal, carrier: Carrier) -> Presence:
        self._info = WorkerInfo(
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            agents=tuple(self._makers),
            concurrency=self._concurrency,
            tenants=self._tenants,
            since=self._clock.now(),
            boot=boot_id(),
            fingerprints=carrier.fingerprints,
            accepts_change=self._accepts_change,
        )
        presence = Presence(journal, self._clock, self._info, on_lost=self._lost.set)
        for left in reversed(range(_TRIES_TO_BEGIN)):
            try:
                await presence.take()
                break
            except JournalError as error:
                if not left:
                    raise
                logger.warning("Worker %s cannot take its place yet: %s", self._name, error)
                await asyncio.sleep(TELL_SECONDS)
        return presence

    async def _take_again(self, presence: Presence) -> None:
        """Take the place again after the journal was away, or this process stood still: what it ran is others' by now.

        It ends where another worker has its name.
        """
        self._lost.clear()
        try:
            await presence.take()
            tell_back(presence.place)
            logger.warning("Worker %s had lost its place, and has it again: it continues.", self._name)
        except JournalError as error:
            self._lost.set()
            tell_away(
                logger, presence.place, "Worker %s has lost its place, and waits for its journal: %s", self._name, error
            )
        except WorkerNameTaken:
            logger.warning("Worker %s has lost its place: another worker has its name. It ends.", self._name)
            self._is_superseded = True
            self._stopping.set()

    async def _tell(self, presence: Presence, carrier: Carrier, limits: Limits, watch: Watch) -> None:
        while not self._is_superseded:
            await asyncio.sleep(TELL_SECONDS)
            assert self._info is not None
            if self._lost.is_set():
                await self._take_again(presence)
                continue
            is_draining = self._stopping.is_set()
            self._info = replace(
                self._info,
                sessions=carrier.sessions,
                done=self._done,
                is_draining=is_draining,
                waiting=self._reasons(limits),
            )
            await presence.tell(self._info)
            await watch.look(self._clock.now())

    def _reasons(self, limits: Limits) -> dict[str, int]:
        """Return how many sessions and requests wait for a limit, by reason, as this worker has seen it lately."""
        since = asyncio.get_running_loop().time() - _REMEMBERED_SECONDS
        self._waiting = {one: told for one, told in self._waiting.items() if told[1] > since}
        return dict(Counter(reason for reason, _ in self._waiting.values()) + limits.waiting)

    # --- its work

    async def _take(self, dispatcher: Dispatcher, carrier: Carrier) -> None:
        """Take sessions, as many as may run side by side, until the worker is stopped."""
        while (delivery := await self._next(dispatcher)) is not None:
            carry = asyncio.create_task(self._carry(delivery, carrier))
            self._carries.add(carry)
            carry.add_done_callback(self._let_go)

    def _let_go(self, carry: "asyncio.Task[None]") -> None:
        self._carries.discard(carry)
        self._free.set()

    async def _next(self, dispatcher: Dispatcher) -> Delivery | None:
        """Return the next session; None where the worker is stopped."""
        while len(self._carries) >= self._concurrency:
            self._free.clear()
            if await self._or_stopped(self._free.wait()) is None:
                return None
        return None if self._stopping.is_set() else await self._or_stopped(dispatcher.next())

    async def _or_stopped(self, waiting: Any) -> Any:  # Any: what is waited for, and what it gives
        """Return what comes first; None where that is the end of the worker."""
        wanted, stopped = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({wanted, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return wanted.result() if wanted.done() else None
        finally:
            stopped.cancel()
            wanted.cancel()

    async def _carry(self, delivery: Delivery, carrier: Carrier) -> None:
        is_done = waits = False
        self._waiting.pop(delivery.session_id, None)
        try:
            is_done = await carrier.carry(delivery.session_id) is not None
            self._done += is_done
        except LimitReachedNow as reason:
            waits = True
            self._waiting[delivery.session_id] = (str(reason), asyncio.get_running_loop().time())
        except Exception:
            logger.exception("Session %s could not be run", delivery.session_id)
        finally:
            await delivery.end(is_done=is_done, waits=waits)

    # --- its end

    async def _drain(self, carrier: Carrier) -> None:
        """Let the runs under way end by themselves for a while, then wait for a moment at which no call may be acting."""
        if self._carries and not self._is_superseded:
            logger.info("Worker %s ends: %d sessions may still end by themselves.", self._name, len(self._carries))
            await asyncio.wait(self._carries, timeout=self._drain_seconds)

    async def _end(self, carrier: Carrier, telling: "asyncio.Task[None]") -> None:
        """Hand over what still runs, and end."""
        telling.cancel()
        carrier.hand_over()
        while self._carries:
            await asyncio.wait(set(self._carries))
        with suppress(asyncio.CancelledError):
            await telling


async def _check_clock(journal: Journal, clock: Clock, name: str) -> None:
    """Warn where this machine's clock is not that of the database: what is due at a time is begun by the worker's clock."""
    try:
        told = await store_time(journal)
    except JournalError:
        return  # it is away: the worker waits for it when it takes its place
    apart = 0.0 if told is None else clock.now() - told
    if abs(apart) > _APART_SECONDS:
        side, when = ("ahead of", "early") if apart > 0 else ("behind", "late")
        logger.warning(
            "The clock of worker %s is %.0f seconds %s the database's: what is due at a time begins so much too %s here. "
            "Set the machine's clock.",
            name, abs(apart), side, when,
        )  # fmt: skip


def _check_counts(concurrency: object, tries: object, drain_seconds: object) -> None:
    for name, value in (("concurrency", concurrency), ("tries", tries)):
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"Worker({name}=...) is a whole number above 0; got {shown(value)}.")
    if type(drain_seconds) not in (int, float) or not 0 <= drain_seconds < float("inf"):  # type: ignore[operator]  # a number, by its type
        raise ConfigurationError(
            f"Worker(drain_seconds=...) is a number of seconds, 0 or more; got {shown(drain_seconds)}."
        )


def _checked_limits(limits: Collection[Limit]) -> tuple[Limit, ...]:
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ConfigurationError(f"Worker(limits=...) is a list of limits: [Limit(name=...)]; got {shown(limit)}.")
        checked_limit(limit)
    if len({limit.name for limit in limits}) < len(limits):
        raise ConfigurationError("Two limits of the worker have the same name. Give each a name of its own.")
    return tuple(limits)


def _checked_tenants(tenants: Collection[str] | None) -> tuple[str, ...] | None:
    if tenants is None:
        return None
    if isinstance(tenants, str) or not all(isinstance(one, str) for one in tenants):
        raise ConfigurationError(f"Worker(tenants=...) is a list of names; got {shown(tenants)}.")
    return tuple(tenants)
