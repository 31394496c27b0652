"""Gates: where a turn waits for a test, and counts that a test waits for. They replace sleeping; they know no turn."""

import asyncio
import contextlib
import threading

__all__ = ["Count", "Gate", "Gates"]


class Gate:
    """A gate that stands shut until somebody opens it. Any thread and any event loop may use it.

    A test awaits `wait_reached()`, looks at what has happened so far, and opens it.

    Example:
        >>> gate = Gate()
        >>> gate.open()
        >>> gate.is_open, gate.is_reached
        (True, False)
    """

    def __init__(self) -> None:
        self._opened = _Latch()
        self._reached = _Latch()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set

    @property
    def is_reached(self) -> bool:
        """Whether a turn stands or stood here."""
        return self._reached.is_set

    def open(self) -> None:
        """Let everything pass, now and later."""
        self._opened.set()

    async def wait(self) -> None:
        """Stand at the gate: what a turn does."""
        self._reached.set()
        await self._opened.wait()

    async def wait_reached(self) -> None:
        """Return when a turn stands at the gate: what a test does."""
        await self._reached.wait()


class Gates:
    """Gates by name, made when first named."""

    def __init__(self) -> None:
        self._by_name: dict[str, Gate] = {}

    def named(self, name: str) -> Gate:
        return self._by_name.setdefault(name, Gate())


class Count:
    """A number that only grows, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.value = 0
        self._latches: dict[int, _Latch] = {}

    def add(self) -> None:
        self.value += 1
        self._latch(self.value).set()

    async def wait(self, value: int) -> None:
        """Return when the number is at least this."""
        if self.value < value:
            await self._latch(value).wait()

    def _latch(self, value: int) -> "_Latch":
        return self._latches.setdefault(value, _Latch())


class _Latch:
    """A flag that is set once and wakes its waiters on their own event loops."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def set(self) -> None:
        with self._lock:
            self.is_set = True
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(_wake, future)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.is_set:
                return
            future = loop.create_future()
            self._waiting.append((loop, future))
        await future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
