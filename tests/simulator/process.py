"""A simulated process: its own event loop, clock and journal, which can die, stall or lose its store at any operation."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from simulator.store import SimStore
from simulator.timeline import Handle, ProcessLoop
from treadle import Agent
from treadle.agents.run import Run
from treadle.errors import JournalError
from treadle.events import AnyEvent

if TYPE_CHECKING:
    from simulator.life import Life

__all__ = ["Killed", "Process", "SimChance", "SimClock"]

EPOCH = 1_700_000_000.0


class Killed(BaseException):
    """Raised in what is left of a dead process when it is cleared away."""


class SimClock:
    """The clock of one machine: people's time may be wrong and may jump."""

    def __init__(self, loop: ProcessLoop, offset: float) -> None:
        self._loop = loop
        self._timeline = loop.timeline
        self.offset = offset

    def now(self) -> float:
        return EPOCH + self._timeline.now + self.offset

    def monotonic(self) -> float:
        return self._timeline.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        return self._loop.call_later(max(seconds, 0.0), callback)  # type: ignore[no-any-return]


class SimChance:
    """Chance from the seed; names are counted."""

    def __init__(self, life: "Life") -> None:
        self._life = life

    def random(self) -> float:
        return self._life.chance.random()

    def token(self) -> str:
        self._life.tokens += 1
        return f"{self._life.tokens:016d}"


class Process:
    """One process of a life."""

    def __init__(self, life: "Life", name: str, store: SimStore, *, offset: float = 0.0) -> None:
        self.life = life
        self.name = name
        self.store = store
        self.loop = ProcessLoop(life.timeline, self)
        self.clock = SimClock(self.loop, offset)
        self.randomness = SimChance(life)
        self.journal = life.journal_for(store, self)
        self.is_dead = False
        self.is_disposed = False
        self.is_busy = False
        self.run: Run | None = None
        self.fallback: Agent | None = None
        self.open_shops = 0
        """Toolsets that its runs hold open."""
        self.woken_at = 0.0
        self._stalled_since: float | None = None
        self._is_slow = life.chance.random() < 0.4

    # --- what may happen to it

    def kill(self, *, keep: int = 0) -> None:
        """End it as kill -9 does: at once, with so many of its waiting commits stored."""
        if self.is_dead:
            return
        self.is_dead = True
        self.life.trace(self, "KILLED")
        self.loop.kill()
        self.journal.die(keep)
        self.life.died(self)

    def stall(self, seconds: float) -> None:
        """Stop it for a while, as a laptop that sleeps."""
        if self.is_dead or self.loop.is_stalled:
            return
        self.life.trace(self, f"STALLED for {seconds:.1f} s")
        self.loop.is_stalled = True
        self._stalled_since = self.life.timeline.now
        self.life.timeline.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self.life.trace(self, "WOKEN")
        self.loop.is_stalled = False
        self.woken_at = self.life.timeline.now
        self._stalled_since = None

    def is_silent(self, seconds: float) -> bool:
        """Whether it has not been heard of for so long."""
        return self._stalled_since is not None and self.life.timeline.now - self._stalled_since >= seconds

    # --- what it does

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.loop.create_task(work)  # type: ignore[no-any-return]

    async def sleep(self, seconds: float) -> None:
        future = self.loop.create_future()
        self.loop.call_later(seconds, _finish, future)
        await future

    def coin(self, probability: float) -> bool:
        return self.life.chance.random() < probability

    async def gone(self) -> None:
        """Wait for ever: the process is dead, and what still runs of it comes to its end here."""
        if self.is_disposed:
            raise Killed
        await self.loop.create_future()

    async def operation(self, name: str) -> None:
        """Pass a port of the store: the place where faults come."""
        if self.is_dead:
            await self.gone()
        life, store = self.life, self.store
        life.operation(self, name)
        if self.is_dead:
            await self.gone()
        if self._is_slow and life.chance.random() < 0.5:
            await self.sleep(life.chance.random() * 0.004)
        while life.timeline.now < store.hangs_until:
            await self.sleep(store.hangs_until - life.timeline.now)
        if life.timeline.now < store.gone_until and name != "close":
            life.is_degraded = life.is_degraded or life.plan.degrades
            raise JournalError("The store is gone.")
        if self.is_dead:
            await self.gone()

    async def stored(self, events: Sequence[AnyEvent], *, durable: bool) -> None:
        """Note what has just been stored; the moment after a commit is a place for a crash too."""
        self.life.stored(self, events, durable=durable)
        if self.is_dead:
            await self.gone()

    def dispose(self) -> None:
        is_first_end = not self.is_dead
        self.is_dead = self.is_disposed = True
        self.loop.dispose()
        if is_first_end:
            self.journal.drop()


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
