"""A daemon thread that does jobs in order, in batches, and tells the event loops that wait. Knows no SQL and no event."""

import asyncio
import atexit
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from treadle.concurrency.forks import bury, watch
from treadle.errors import JournalError, TreadleError

__all__ = ["Job", "Worker"]

_T = TypeVar("_T")


class Job(Generic[_T]):
    """One thing to do with the store, and what came of it.

    Args:
        act: What to do with the thread's connection; None to learn only that all jobs before it are done.
        future: Where somebody waits, or None when nobody does.
        session_id: The session that it appends to, or empty.
        is_durable: Whether it must survive a power cut before its future is told.
        is_aside: Whether nobody asks what happened to it, now or later.
        owner: Notified of a failure, where several journals share the thread.
    """

    __slots__ = ("act", "error", "future", "is_aside", "is_durable", "outcome", "owner", "session_id")

    def __init__(
        self,
        act: Callable[[Any], _T] | None,  # Any: the connection of whichever store the thread serves
        *,
        future: "asyncio.Future[_T] | None" = None,
        session_id: str = "",
        is_durable: bool = False,
        is_aside: bool = False,
        owner: "_Owner | None" = None,
    ) -> None:
        self.act = act
        self.future = future
        self.session_id = session_id
        self.is_durable = is_durable
        self.is_aside = is_aside
        self.owner = owner
        self.outcome: _T | None = None
        self.error: TreadleError | None = None

    def fail(self, error: TreadleError) -> None:
        """Note that it failed, for whoever waits for it, else for its owner."""
        self.error = error
        if self.owner is not None:
            self.owner.deferred.fail(self, error)


class _Failures(Protocol):
    def fail(self, job: Job[Any], error: TreadleError) -> None: ...


class _Owner(Protocol):
    @property
    def deferred(self) -> _Failures: ...


class Worker:
    """Runs `serve` with whatever is queued, on one thread of its own that never keeps the interpreter from ending.

    A job that somebody waits for is done at once, and so is all that is queued before it. Others may linger: each waking
    of a thread costs the event loop more than what a job of theirs does.

    Args:
        name: Of the thread.
        serve: Does the jobs and sets each one's outcome or error. Must not raise.
        finish: Lets go of the store, on the same thread. Must not raise.
        max_batch: Jobs handed over at once.
        exit_seconds: How long the end of the interpreter waits for queued jobs.
        linger_seconds: How long a job that nobody waits for may wait for others.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[Job[Any]]], None],  # Any: jobs of all outcomes share one queue
        finish: Callable[[], None],
        *,
        max_batch: int,
        exit_seconds: float,
        linger_seconds: float = 0.0,
    ) -> None:
        self._serve = serve
        self._finish = finish
        self._max_batch = max_batch
        self._exit_seconds = exit_seconds
        self._linger_seconds = linger_seconds
        self._name = name
        self._begin()
        watch(self)

    def after_fork(self) -> None:
        """A fork has no such thread. What the parent's thread still does is not the fork's to do."""
        bury(self._queue, self._thread, self._farewells)
        atexit.unregister(self._end)
        self._begin()

    def _begin(self) -> None:
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        # Locked while nothing hurries. Neither an event nor a condition: what they hold, a collection might ask for again.
        self._calm = threading.Lock()
        self._calm.acquire()
        # Reentrant, because the garbage collector may call `stop` in the middle of anything.
        self._gate = threading.RLock()
        self._is_stopped = self._is_finished = False
        self._taken = self._served = 0
        self._farewells: list[Job[None]] = []

    @property
    def backlog(self) -> int:
        """Jobs that wait for the thread."""
        return self._queue.qsize()

    @property
    def served(self) -> int:
        """Jobs that were done so far."""
        return self._served

    @property
    def is_idle(self) -> bool:
        """Whether every job that was taken so far is done, but for those aside, and more are taken."""
        return self._served == self._taken and not self._is_stopped

    def submit(self, job: Job[Any]) -> None:
        """Queue a job. The thread starts with the first.

        Raises:
            JournalError: The journal is closed.
        """
        with self._gate:
            if self._is_stopped:
                raise JournalError("This journal is closed. Open it again.")
            if self._thread.ident is None:
                self._thread.start()
                atexit.register(self._end)
            self._taken += not job.is_aside
            self._queue.put(job)
            if job.future is not None:
                self._hurry()

    def stop(self, farewell: Job[None] | None = None) -> None:
        """Take no more jobs; do those that are queued; then finish, and tell the farewell. Returns at once.

        May be called twice, and by the garbage collector. A farewell's future belongs to the loop that calls.
        """
        with self._gate:
            is_first, self._is_stopped = not self._is_stopped, True
            if self._is_finished or self._thread.ident is None:
                _settle([] if farewell is None else [farewell])
                return
            if farewell is not None:
                self._farewells.append(farewell)
            if is_first:
                self._queue.put(None)
                self._hurry()

    def _hurry(self) -> None:
        with suppress(RuntimeError):  # it hurries already
            self._calm.release()

    def _end(self) -> None:
        """At the end of the interpreter: what was queued is still stored, as far as the time allows."""
        self.stop()
        self._thread.join(self._exit_seconds)

    def _work(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._next_batch()
            if batch:
                self._serve_all(batch)
                self._served += sum(not job.is_aside for job in batch)  # before anybody is told, who may ask at once
                _tell(batch)
        self._finish()
        atexit.unregister(self._end)
        with self._gate:
            self._is_finished = True
            _tell(self._farewells)

    def _serve_all(self, batch: Sequence[Job[Any]]) -> None:
        try:
            self._serve(batch)
        except Exception as exc:  # noqa: BLE001  # whatever it was, those who wait must be notified, and the thread continues
            for job in batch:
                job.error = JournalError(
                    f"The journal failed unexpectedly: {exc!r}. This is a bug in Treadle: please report it."
                )

    def _next_batch(self) -> tuple[list[Job[Any]], bool]:
        batch: list[Job[Any]] = []
        job = self._queue.get()
        if self._linger_seconds and job is not None and job.future is None:
            self._calm.acquire(timeout=self._linger_seconds)
        while job is not None:
            batch.append(job)
            if len(batch) == self._max_batch:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True


def _tell(jobs: Sequence[Job[Any]]) -> None:
    """Wake those who wait: one call an event loop, because each call is a system call."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[Job[Any]]] = defaultdict(list)
    for job in jobs:
        if job.future is not None:
            waiting[job.future.get_loop()].append(job)
    for loop, done in waiting.items():
        with suppress(RuntimeError):  # a closed loop: nobody waits any more
            loop.call_soon_threadsafe(_settle, done)


def _settle(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        assert job.future is not None
        if job.future.done():  # the waiting task was cancelled; what it asked for is stored anyway
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.outcome)
