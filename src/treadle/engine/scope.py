"""The scope of a run: what each part of its engine works with. Made once."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.budgets import Meter
from treadle.engine.hooks import Hooks
from treadle.engine.interrupts import Interrupt
from treadle.engine.offering import Offering
from treadle.engine.rules.bounds import conflicts
from treadle.engine.rules.failures import describe
from treadle.engine.spec import AgentSpec
from treadle.events import ToolLate
from treadle.ports import Clock, Model
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import SessionState
from treadle.tools import CheckedCall

__all__ = ["BatchTime", "LateCalls", "RunScope", "Slots"]

logger = redacted_logger(__name__)


# --- How many calls at once, and how long together.

_NO_LIMIT = 1_000_000


class Slots:
    """The slots of one run. Whoever takes some gives each back once.

    Args:
        limit: How many calls may be under way at once; None for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._free = asyncio.Semaphore(limit or _NO_LIMIT)

    async def wait(self) -> None:
        """Wait for one."""
        await self._free.acquire()

    async def take(self, most: int) -> int:
        """Take as many as are free, at most these, and wait for none. Return how many."""
        count = 0
        while count < most and not self._free.locked():
            await self._free.acquire()  # at once, as one is free
            count += 1
        return count

    def give_back(self, count: int = 1) -> None:
        """Give so many back."""
        for _ in range(count):
            self._free.release()


class BatchTime:
    """Runs from the first call of a response that starts until its last has ended. Waiting for a person does not count.

    Args:
        seconds: What the calls of one response may take together.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begun: float | None = None

    def begin(self) -> None:
        """A call starts. Only the first of a response begins the time."""
        if self._begun is None:
            self._begun = self._clock.monotonic()

    def end(self) -> None:
        """The calls of the response have ended, or its response is discarded: the next one has the whole time."""
        self._begun = None

    @property
    def left(self) -> float:
        """Seconds that the calls still have."""
        passed = 0.0 if self._begun is None else self._clock.monotonic() - self._begun
        return max(self.seconds - passed, 0.0)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    def within(self, seconds: float | None) -> float:
        """Return the shorter of a call's own limit and what the batch has left."""
        return self.left if seconds is None else min(seconds, self.left)


# --- Late calls: they were told to stop, did not, and run on.

_Running: TypeAlias = dict["asyncio.Future[Any]", CheckedCall]

_recording: set["asyncio.Task[None]"] = set()
"""Recordings of late ends, held so that they are not collected while they run."""


class LateCalls:
    """The late calls of one session. One that may change something keeps its resource until it ends.

    Args:
        running: Those that earlier runs of the session gave up; the next ones are added to it.
    """

    __slots__ = ("_ledger", "_running")

    def __init__(self, running: _Running, *, ledger: Ledger) -> None:
        self._running = running
        self._ledger = ledger

    def has(self, call: CheckedCall) -> bool:
        """Whether an earlier attempt of this call was given up and has not ended."""
        return any(one is call for one in self._running.values())

    def blocking(self, calls: Sequence[CheckedCall]) -> "list[asyncio.Future[Any]]":
        """Return those that hold what one of these calls needs."""
        acting = [call for call in calls if not call.effect.is_read]
        loop = asyncio.get_running_loop()  # a session may outlive a loop, whose futures nobody completes any more
        held = [
            (future, call)
            for future, call in self._running.items()
            if not call.effect.is_read and future.get_loop() is loop
        ]
        return [future for future, holder in held if any(conflicts(call, holder) for call in acting)]

    def leave(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Leave a call behind that has been told to stop. It is remembered until it ends."""
        self._running[future] = call
        logger.info("Call %s of %s was told to stop, and is still running", call.id, call.name)

        def ended(future: "asyncio.Future[Any]") -> None:
            self._running.pop(future, None)
            if future.cancelled():
                return
            task = asyncio.ensure_future(self.record(call, future))
            _recording.add(task)
            task.add_done_callback(_recording.discard)

        future.add_done_callback(ended)

    async def record(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Record how a call that had been given up ended (TF11). It is never sent to the model."""
        error = future.exception()
        outcome, content = ("returned", _shown(future.result())) if error is None else ("raised", describe(error))
        event = ToolLate(call_id=call.id, tool=call.name, outcome=outcome, content=content)
        try:
            await self._ledger.record(event)
        except Exception:
            # Nobody waits for this any more: a journal that has been closed since must not raise in the event loop.
            logger.info("Late end of call %s of %s could not be recorded", call.id, call.name, exc_info=True)


def _shown(value: Any) -> str:
    """Return a late value for operators."""
    try:
        return repr(value)[:2000].encode("utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's object may refuse to be shown
        return type(value).__name__


# --- What all parts of a run share.


class RunScope(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one run that all others share."""

    about: AgentSpec
    """Its agent, bound by the runs that called it."""
    offering: Offering
    """The tools that its requests offer."""
    states: tuple[SessionState, ...]
    """Of its session, and of those whose calls it carries out, the nearest first: what is in doubt there must not be repeated here."""
    ledger: Ledger
    """Where its events are recorded."""
    interrupt: Interrupt
    """What may end it early."""
    meter: Meter
    """What it may use."""
    model: Model
    hooks: Hooks
    slots: Slots
    """How many of its calls may be under way at once."""
    late: LateCalls
    """Calls of the session that were given up and run on."""
    batch_time: BatchTime | None = None
    """What the calls of one response may take together; None for no limit."""

    @property
    def clock(self) -> Clock:
        return self.ledger.clock

    @property
    def top(self) -> SessionState:
        """The state of the session that a person runs: its mode holds."""
        return self.states[-1]
