"""Timeline: one virtual time for several event loops, one loop for each simulated process. Knows no agent and no store.

Everything is decided by the seed: which loop runs next, and when. A process that dies leaves its loop as it stands.
"""

import asyncio
import contextvars
import heapq
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Self

__all__ = ["Deadlock", "Livelock", "ProcessLoop", "Timeline"]

MOST_STEPS = 60_000
"""Callbacks in one life after which it is taken for endless."""


class Deadlock(Exception):
    """Everything waits, and nothing will ever happen."""


class Livelock(Exception):
    """A life does not end."""


class Handle:
    """A callback that waits for its turn."""

    __slots__ = ("_args", "_callback", "_context", "is_cancelled")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def run(self) -> None:
        if not self.is_cancelled:
            self._context.run(self._callback, *self._args)


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set does not depend on its address: sets of tasks have the same order in every replay."""

    _number = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._number = _Task._number
        _Task._number += 1
        return self

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class Timeline:
    """Virtual time, and who does something next."""

    def __init__(self, chance: Random) -> None:
        self.now = 0.0
        self.steps = 0
        self._chance = chance
        self._heap: list[tuple[float, int, ProcessLoop | None, Handle]] = []
        self._count = 0
        self._loops: list[ProcessLoop] = []
        self._context = contextvars.copy_context()
        _Task._number = 0

    def add(self, loop: "ProcessLoop") -> None:
        self._loops.append(loop)

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Handle:
        """Call back at a later time, outside of every process: the world continues whoever dies."""
        return self.schedule(self.now + seconds, None, Handle(callback, args, self._context))

    def schedule(self, due: float, loop: "ProcessLoop | None", handle: Handle) -> Handle:
        self._count += 1
        heapq.heappush(self._heap, (max(due, self.now), self._count, loop, handle))
        return handle

    def run(self, until: "asyncio.Future[Any]") -> None:
        """Let everything happen until the future is done.

        Raises:
            Deadlock: Nothing can happen any more.
            Livelock: It takes too many steps.
        """
        try:
            while not until.done():
                self._advance()
        finally:
            asyncio._set_running_loop(None)

    def _advance(self) -> None:
        ready = [loop for loop in self._loops if loop.ready and not loop.is_stalled]
        if ready:
            loop = ready[0] if len(ready) == 1 else self._chance.choice(ready)
            self.steps += loop.turn()
            if self.steps > MOST_STEPS:
                raise Livelock(f"The life had not ended after {self.steps} steps.")
            return
        if not self._heap:
            raise Deadlock(f"Nothing can happen any more at {self.now:.3f} s.")
        due, _, owner, handle = heapq.heappop(self._heap)
        if handle.is_cancelled or (owner is not None and owner.is_dead):
            return
        self.now = due
        if owner is None:
            handle.run()
        else:
            owner.ready.append(handle)

    def remove(self, loop: "ProcessLoop") -> None:
        if loop in self._loops:
            self._loops.remove(loop)


class ProcessLoop(AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, timeline: Timeline, process: Any) -> None:
        self.timeline = timeline
        self.process = process  # Any: whatever the life calls a process
        self.ready: deque[Handle] = deque()
        self.is_stalled = False
        self.is_dead = False
        self.faults: list[str] = []
        self.tasks: list[_Task] = []
        timeline.add(self)

    def turn(self) -> int:
        """Run what is ready now; what becomes ready meanwhile waits for the next turn."""
        asyncio._set_running_loop(self)
        ready = self.ready
        count = len(ready)
        for done in range(count):
            if self.is_dead or self.is_stalled:
                return done
            ready.popleft().run()
        return count

    def kill(self) -> None:
        """Nothing of this process runs any more, as after kill -9."""
        self.is_dead = True
        self.ready.clear()
        self.timeline.remove(self)

    def dispose(self) -> None:
        """Let go of what was under way in a process that died, so that it costs no memory."""
        self.is_dead = True
        self.timeline.remove(self)
        for task in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())  # type: ignore[arg-type]
        self.tasks.clear()
        self.ready.clear()

    # --- what asyncio asks of a loop

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(callback, args, context or contextvars.copy_context())
        if not self.is_dead:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(callback, args, context or contextvars.copy_context())
        return self.timeline.schedule(when, self, handle)

    def time(self) -> float:
        return self.timeline.now

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = _Task(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return self.is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that nobody asked for is a fault of the program under test."""
        if not self.is_dead:
            error = context.get("exception")
            self.faults.append(f"{context.get('message')}: {type(error).__name__} {error}")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError("A simulated life has no threads.")


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    with suppress(BaseException):  # it belongs to a process that is dead: nobody hears how it ends
        coroutine.close()
