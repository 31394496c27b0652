"""Background: one event loop in a daemon thread, for callers that are not async. An HTTP client dies with its loop, so
there is one loop for the whole process. Not a second body of anything: it only waits for coroutines.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from treadle.concurrency.forks import after_fork, bury

__all__ = ["run_in_background"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


@after_fork
def _begin_anew() -> None:
    """A fork has no thread that runs the loop, and the loop's selector is the parent's."""
    global _lock, _loop
    bury(_loop)
    _lock, _loop = threading.Lock(), None


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the process's background loop and wait for it. Ctrl-C cancels it and waits for its end.

    Raises:
        RuntimeError: Called from inside a running event loop, which it would block.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        raise RuntimeError("run_sync() would block this event loop. Inside async code write `await agent.run(...)`.")
    started: list[asyncio.Task[Any]] = []
    is_unwanted = threading.Event()

    async def carried_out() -> T:
        started.append(_current_task())
        if is_unwanted.is_set():
            coroutine.close()
            raise asyncio.CancelledError
        return await coroutine

    loop = _background_loop()
    # Invariant: from here on Ctrl-C finds the run, whatever this thread has come to when it arrives.
    try:
        return asyncio.run_coroutine_threadsafe(carried_out(), loop).result()
    except BaseException:
        is_unwanted.set()
        if live := [task for task in started if not task.done()]:  # we were interrupted: let the run record its end
            loop.call_soon_threadsafe(live[0].cancel)
            _drain()
        raise


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop a process is the point
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="treadle-loop", daemon=True).start()
        return _loop


def _drain() -> None:
    """Wait until what was cancelled has ended."""

    async def others() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    asyncio.run_coroutine_threadsafe(others(), _background_loop()).result()
