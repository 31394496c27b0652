"""Threads: where blocking tools run. Daemon threads, grown on demand; a stuck one is left behind and delays nothing.

Not a ThreadPoolExecutor: that one joins its threads at exit, so one stuck tool would keep the process alive for ever.
"""

import asyncio
import contextvars
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.concurrency.forks import bury, watch

__all__ = ["Threads"]

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
