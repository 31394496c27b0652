"""Threads: where blocking tools run. Daemon threads, grown on demand; a stuck one is left behind and delays nothing.

Not a ThreadPoolExecutor: that one joins its threads at exit, so one stuck tool would keep the process alive for ever.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["Threads"]

IDLE_SECONDS = 10.0
"""How long a thread without work stays."""


class _Job(msgspec.Struct, eq=False):
    function: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class Threads:
    """A pool without a ceiling of its own: `max_parallel_tool_calls` bounds what runs at once."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._spare = 0  # idle threads not yet promised to a job

    def submit(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run the function in a thread, in a copy of the caller's context. The future never raises in the loop by itself."""
        loop = asyncio.get_running_loop()
        job = _Job(function, contextvars.copy_context(), loop, loop.create_future())
        with self._lock:
            is_covered = self._spare > 0
            if is_covered:
                self._spare -= 1
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


def _run(job: _Job) -> None:
    try:
        value, error = job.context.run(job.function), None
    except BaseException as raised:  # noqa: BLE001 - a tool may raise SystemExit; the thread must live on
        value, error = None, raised
    try:
        job.loop.call_soon_threadsafe(_settle, job.future, value, error)
    except RuntimeError:
        return  # the loop has been closed: nobody waits for this any more


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the tool raised StopIteration"))  # a future refuses StopIteration
    else:
        future.set_exception(error)
