"""Sync: everything asynchronous of Treadle for programs that are not: three functions over one event loop in a daemon thread.

An HTTP client dies with its loop, so there is one loop for the whole process. Not a second body of anything: it only waits.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar

from treadle.concurrency import after_fork, bury
from treadle.fields import checked

__all__ = ["each", "opened", "wait"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None

_SECONDS_TO_END = 5
"""How long what was interrupted may take to end."""


@after_fork
def _begin_anew() -> None:
    """A fork has no thread that runs the loop, and the loop's selector is the parent's."""
    global _lock, _loop
    bury(_loop)
    _lock, _loop = threading.Lock(), None


@checked
def wait(awaitable: Awaitable[T]) -> T:
    """Wait for something asynchronous, and return its value. Any thread may call it. Ctrl-C cancels it and waits for its end.

    Example:
        sync.wait(session.answer(approval.id, "allow"))

    Raises:
        RuntimeError: Called from inside a running event loop, which it would block.
    """
    if _is_in_a_loop():
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise RuntimeError(
            "This would block the event loop that runs here. In async code and in a notebook write `await`, such as `await agent.run(...)`."
        )
    started: list[asyncio.Task[Any]] = []
    is_unwanted = threading.Event()

    async def carried_out() -> T:
        started.append(_current_task())
        if is_unwanted.is_set():
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise asyncio.CancelledError
        return await awaitable

    loop = _background_loop()
    # Invariant: from here on Ctrl-C finds the run, whatever this thread has come to when it arrives.
    try:
        return asyncio.run_coroutine_threadsafe(carried_out(), loop).result()
    except BaseException:
        is_unwanted.set()
        if live := [task for task in started if not task.done()]:  # we were interrupted: let the run record its end
            loop.call_soon_threadsafe(live[0].cancel)
            asyncio.run_coroutine_threadsafe(_ended(live), loop).result()
        raise


@checked
@contextmanager
def opened(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter something asynchronous, and leave it at the end: a session, a journal, an agent's toolsets, the stream of a run.

    Example:
        with sync.opened(open_session("desk.db", id="7")) as session:
            result = agent.run_sync("Refund order 7", session=session)
    """
    begun: Future[tuple[T, asyncio.Future[None]]] = Future()
    ended: Future[None] = Future()

    async def held() -> None:
        # One task enters and leaves: what is inside may hold a time limit or a group of tasks, which belong to one.
        try:
            async with manager as value:
                leaving = asyncio.get_running_loop().create_future()
                begun.set_result((value, leaving))
                await leaving
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the caller waits
            is_end = isinstance(error, asyncio.CancelledError)
            (ended if begun.done() else begun).set_exception(CancelledError() if is_end else error)

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(held())

    task = wait(begin())  # kept: a task that nobody holds may vanish
    loop = task.get_loop()
    try:
        value, leaving = begun.result()
    except BaseException:  # Ctrl-C while it is entered
        loop.call_soon_threadsafe(task.cancel)
        raise
    try:
        yield value
    except BaseException as error:
        # What ends a program, or a generator, would end the loop: there it is a cancellation.
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            loop.call_soon_threadsafe(leaving.set_exception, error)
            ended.result()
            return
        loop.call_soon_threadsafe(leaving.cancel)
        with suppress(CancelledError):
            ended.result()
        raise
    loop.call_soon_threadsafe(leaving.set_result, None)
    ended.result()


@checked
def each(items: AsyncIterable[T]) -> Iterator[T]:
    """Go through something asynchronous: the events of a session or a run, the pieces of a text.

    Example:
        for event in sync.each(follow("desk.db", "7")):
            print(event.type)
    """
    iterator = aiter(items)
    try:
        while True:
            try:
                item = wait(anext(iterator))
            except StopAsyncIteration:
                return
            yield item
    finally:
        if isinstance(iterator, AsyncGenerator):
            wait(iterator.aclose())


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=_SECONDS_TO_END)
