"""Concurrency: threads, locks, breakers, and work kept inside its limits. Knows no session and no tool."""

import asyncio
import contextvars
import inspect
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import msgspec

from treadle.errors import JournalError

__all__ = [
    "CURRENT",
    "FIRST_SECONDS",
    "NEXT_SECONDS",
    "Breaker",
    "Kept",
    "Patience",
    "Pieces",
    "StoreSilent",
    "Threads",
    "after_fork",
    "answer_of",
    "bury",
    "is_async",
    "watch",
]


# --- Callables: where one is called.


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it only makes a coroutine, so that it is called in the event loop; anything else may block.

    What a decorator wraps does not count: a plain function around a coroutine function may wait for it with `asyncio.run`.
    """
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


# --- Breakers: stop asking what keeps failing, and try it again now and then. A state machine; reads no clock, calls
# nothing.


class Breaker:
    """A circuit breaker: closed while all is well, open after so many failures in a row, half open to try once again.

    Source: M. Nygard, "Release It!" (2007), chapter 5.

    Args:
        failures: Failures in a row that open it.
        open_seconds: How long nothing is tried; then one trial is let through, and its outcome decides.
    """

    def __init__(self, *, failures: int = 5, open_seconds: float = 30.0) -> None:
        self._limit = failures
        self._open_seconds = open_seconds
        self._state = _State()

    def seconds_until_trial(self, now: float) -> float:
        """Return how long it stays shut: 0 when a call may be tried now."""
        state = self._state
        if state.opened_at is None:
            return 0.0
        if state.is_trying:
            return self._open_seconds
        return max(state.opened_at + self._open_seconds - now, 0.0)

    def begin(self, now: float) -> bool:
        """Ask to try a call. Return whether it may be; of many that ask while it is half open, only one may."""
        if self.seconds_until_trial(now) > 0:
            return False
        if self._state.opened_at is not None:
            self._state.is_trying = True
        return True

    def succeeded(self) -> None:
        """The call that was tried went well: closed, all counts at zero."""
        self._state = _State()

    def failed(self, now: float) -> None:
        """The call that was tried failed."""
        state = self._state
        state.failures += 1
        if state.is_trying or state.failures >= self._limit:
            state.opened_at, state.is_trying = now, False

    def gave_up(self) -> None:
        """The call that was tried ended without telling anything, as when it was cancelled."""
        self._state.is_trying = False


class _State(msgspec.Struct):
    failures: int = 0
    opened_at: float | None = None
    is_trying: bool = False


# --- Forks: what a process that was forked does with its parent's threads, connections and locks. Forks nothing.


class Forked(Protocol):
    """What begins anew in a fork."""

    def after_fork(self) -> None:
        """Forget the parent's threads, connections and locks. Runs in the child, on its only thread. Must not raise."""
        ...


_watched: WeakSet[Forked] = WeakSet()
_callbacks: list[Callable[[], None]] = []
_graveyard: list[Any] = []


def watch(one: Forked) -> None:
    """Have an object notified in each fork, for as long as it lives."""
    _watched.add(one)


def after_fork(callback: Callable[[], None]) -> Callable[[], None]:
    """Have a function of a module called in each fork. To be used as a decorator."""
    _callbacks.append(callback)
    return callback


def bury(*things: Any) -> None:
    """Keep what belongs to the parent until this process ends."""
    _graveyard.extend(things)


def _tell() -> None:
    for one in tuple(_watched):
        one.after_fork()
    for callback in _callbacks:
        callback()


os.register_at_fork(after_in_child=_tell)


# --- Keeping: an asynchronous context manager, held open by a task of its own. Knows no tool and sets no time limit.

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """A context manager that is being held open. Needs a running event loop, and belongs to it.

    Args:
        make: Returns the context manager; called in the task that enters it.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[_T]], *, name: str) -> None:
        self.value: _T | None = None
        """What entering returned; None until then, and after the end."""
        self.has_opened = False
        self.failure: BaseException | None = None
        """Why it could not be entered, or ended before it was told to."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is entered, or has failed to."""
        self._make = make
        self._is_closing = asyncio.Event()
        self.task = asyncio.create_task(self._hold(), name=name)
        """Done when it is left. Raises nothing."""

    def end(self) -> None:
        """Tell it to close; `task` is done when it has."""
        self._is_closing.set()

    def cut(self) -> None:
        """Cancel it, whatever it does."""
        self._is_closing.set()
        self.task.cancel()

    async def _hold(self) -> None:
        try:
            async with self._make() as self.value:
                self.has_opened = True
                self._tell()
                await self._is_closing.wait()
            if not self._is_closing.is_set():  # it swallowed what had ended it
                self.failure = RuntimeError("it closed itself")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code: its SystemExit, too, ends this task and nothing else
            self.failure = error
        finally:
            self.value = None
            self._tell()

    def _tell(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)


# --- Patience: how long a run still waits for its store once the run is to end. Knows no store.

FIRST_SECONDS = 0.4
"""How long a store may take to answer after the end of a run was asked for."""
NEXT_SECONDS = 0.03
"""The same for a store that has not answered in that time."""


class StoreSilent(JournalError):
    """The store did not answer in time. What was handed to it may still be stored."""


class Patience:
    """The patience of one run. To be used on one event loop."""

    def __init__(self, *, seconds: float | None = None) -> None:
        """Make the patience of a run.

        Args:
            seconds: How long to wait for each answer; None for as long as the store allows.
        """
        self._waiting: dict[asyncio.Future[object], str] = {}
        self._seconds = seconds

    @property
    def is_hurried(self) -> bool:
        """Whether the store is waited for a moment only."""
        return self._seconds is not None

    def hurry(self) -> None:
        """From now on wait for the store for a moment only."""
        if self._seconds is None:
            self._seconds = FIRST_SECONDS
            for future in tuple(self._waiting):
                self._limit(future)

    async def wait(self, future: "asyncio.Future[_T]", place: str) -> _T:
        """Wait for the store's answer.

        Raises:
            StoreSilent: The run is to end, and the answer did not come in time.
        """
        known: asyncio.Future[object] = future  # type: ignore[assignment]  # only whether it is done is asked
        self._waiting[known] = place
        if self._seconds is not None:
            self._limit(known)
        try:
            return await future
        finally:
            del self._waiting[known]

    def _limit(self, future: "asyncio.Future[object]") -> None:
        assert self._seconds is not None
        future.get_loop().call_later(self._seconds, self._give_up, future)

    def _give_up(self, future: "asyncio.Future[object]") -> None:
        if future.done() or future not in self._waiting:
            return
        self._seconds = NEXT_SECONDS
        future.set_exception(
            StoreSilent(
                f"The journal {self._waiting[future]} does not answer. What was handed to it may not be stored. Check its "
                "server, then resume the session."
            )
        )


CURRENT: ContextVar[Patience | None] = ContextVar("treadle_patience", default=None)
"""The patience of the run that this code belongs to."""


async def answer_of(future: "asyncio.Future[_T]", place: str, *, instead: Patience | None = None) -> _T:
    """Wait for a store's answer as long as the current run allows.

    Args:
        instead: The patience to have instead, where the store owes somebody an answer already.

    Raises:
        StoreSilent: The run is to end, and the answer did not come in time.
    """
    patience = instead or CURRENT.get()
    return await (future if patience is None else patience.wait(future, place))


# --- Pieces: a text that arrives in very many pieces. Knows no stream.

_MANY = 16_384
"""Pieces that are kept apart: to join and to free a million at once holds up all threads."""


class Pieces(list[str]):
    """The pieces of one text, in order. Join them as those of any list."""

    __slots__ = ()

    def add(self, piece: str) -> None:
        """Add a piece."""
        self.append(piece)
        if len(self) > _MANY:
            self[:] = ["".join(self)]


# --- Threads: where blocking tools run. Daemon threads, grown on demand; a stuck one is left behind and delays nothing.

IDLE_SECONDS = 10.0
"""How long a thread without work stays."""


class _Job(msgspec.Struct, eq=False):
    function: Callable[[], Any]
    context: contextvars.Context
    ends: "_Ends"
    future: "asyncio.Future[Any]"
    value: Any = None
    error: BaseException | None = None


class Threads:
    """A pool without a ceiling of its own: `max_parallel_tool_calls` bounds what runs at once."""

    def __init__(self) -> None:
        self._begin()
        watch(self)

    def after_fork(self) -> None:
        """A fork has none of these threads."""
        bury(self._jobs, self._ends)
        self._begin()

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._spare = 0  # idle threads not yet promised to a job
        self._ends: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Ends] = weakref.WeakKeyDictionary()

    def submit(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run the function in a thread, in a copy of the caller's context. The future never raises in the loop by itself."""
        loop = asyncio.get_running_loop()
        with self._lock:
            ends = self._ends.setdefault(loop, _Ends(loop))
            is_covered = self._spare > 0
            if is_covered:
                self._spare -= 1
        job = _Job(function, contextvars.copy_context(), ends, loop.create_future())
        if not is_covered:
            # Before the job is put: where no thread can be started, the job must not wait for another and act later.
            threading.Thread(target=self._work, name="treadle-tool", daemon=True).start()
        self._jobs.put(job)
        return job.future

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._spare == 0:  # promised to a job that is about to arrive
                        continue
                    self._spare -= 1
                return
            _run(job)
            del job
            with self._lock:
                self._spare += 1


class _Ends:
    """Jobs that have ended, on their way back to one event loop.

    It is woken once for all that end until it looks: a hundred wake-ups would make the threads wait for each other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._ended: deque[_Job] = deque()
        self._is_woken = False

    def put(self, job: _Job) -> None:
        self._ended.append(job)
        if self._is_woken:  # set back before the loop looks, so that what is put after that look wakes it again
            return
        self._is_woken = True
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            return  # the loop has been closed: nobody waits for this any more

    def _settle(self) -> None:
        self._is_woken = False
        while self._ended:
            _settle(self._ended.popleft())


def _run(job: _Job) -> None:
    try:
        job.value = job.context.run(job.function)
    except BaseException as raised:  # noqa: BLE001 - a tool may raise SystemExit; the thread must live on
        job.error = raised
    job.ends.put(job)


def _settle(job: _Job) -> None:
    future, error = job.future, job.error
    if future.done():
        return
    if error is None:
        future.set_result(job.value)
        return
    is_refused = isinstance(error, StopIteration)  # by every future
    future.set_exception(RuntimeError("the tool raised StopIteration") if is_refused else error)
    future.exception()  # looked at: where the loop ends before whoever waits for it, asyncio has nothing to complain about
