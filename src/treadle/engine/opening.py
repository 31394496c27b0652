"""Opening: what holds the toolsets of an agent open, for one run or for all runs that share them. Lists no tool and runs none."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from treadle.concurrency import Kept
from treadle.engine.interrupts import wait_at_most
from treadle.errors import ConfigurationError
from treadle.ports import Clock, OpenToolset, Toolset, ToolsetContext
from treadle.redaction import redacted_logger, shown_error

__all__ = ["Opened", "failure_message", "first_of", "hold", "leave", "let_go"]

logger = redacted_logger(__name__)

_GRACE_SECONDS = 1.0
"""How long a toolset that was cancelled may still take."""
_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks that did not end when they were cancelled. They are held, so that nobody takes them for forgotten."""


def hold(toolset: Toolset, make: Callable[[], AbstractAsyncContextManager[OpenToolset]]) -> Kept[OpenToolset]:
    """Begin to open a toolset, in a task of its own."""
    return Kept(make, name=f"toolset {toolset.name}")


async def let_go(name: str, kept: Kept[OpenToolset], clock: Clock, *, seconds: float, is_known: bool) -> None:
    """Close a toolset, or give up opening it. One that does not close in time is cancelled.

    Args:
        is_known: Whether what is wrong with it was reported.
    """
    if kept.opened.done():
        kept.end()
    else:
        kept.cut()
    await wait_at_most(clock, kept.task, seconds)
    if not kept.task.done():
        logger.warning("Toolset %s did not close within %g seconds and is cancelled", name, seconds)
        kept.cut()
        await wait_at_most(clock, kept.task, _GRACE_SECONDS)
        leave(kept.task)
    elif kept.failure is not None and kept.has_opened and not is_known:
        logger.warning("Toolset %s failed while it closed: %s", name, failure_message(kept.failure))


class Opened:
    """The toolsets of an agent, open for all runs that share them. Belongs to one event loop.

    Args:
        context: What each is told when it is opened.
        seconds: What one may take to open or to close.
        is_awaited: Whether a run waits for those that still open. Without that it waits only for what it needs.
    """

    def __init__(self, context: ToolsetContext, clock: Clock, *, seconds: float, is_awaited: bool) -> None:
        self.is_awaited = is_awaited
        self._context = context
        self._clock = clock
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._kept: dict[str, Kept[OpenToolset]] = {}
        self._is_closed = False

    @property
    def opening(self) -> tuple[str, ...]:
        """Names of the toolsets that are being opened."""
        return tuple(name for name, kept in self._kept.items() if not kept.opened.done())

    @property
    def states(self) -> dict[str, str]:
        """The state of each toolset by its name: `opening`, `open` or `ended`, or why it failed."""
        return {name: _state_of(kept) for name, kept in self._kept.items()}

    def begin(self, toolset: Toolset) -> Kept[OpenToolset]:
        """Return what holds a toolset, which is opened now where it is not: for the first time, or because it has failed or ended.

        Raises:
            ConfigurationError: They are closed, or belong to another event loop.
        """
        if self._is_closed:
            raise ConfigurationError(
                "This agent was opened, and is closed now: open it again, or run the agent that it was made from."
            )
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                "The agent was opened in another event loop. Use `await opened.run(...)` where it was opened, and not run_sync."
            )
        kept = self._kept.get(toolset.name)
        if kept is None or kept.task.done():
            kept = self._kept[toolset.name] = hold(toolset, partial(_in_time, toolset, self._context, self._seconds))
        return kept

    async def wait(self) -> None:
        """Wait until each is open, or could not be opened."""
        for kept in tuple(self._kept.values()):
            await asyncio.wait({kept.opened})

    async def close(self) -> None:
        """Close all, side by side."""
        self._is_closed = True
        closing = (
            let_go(name, kept, self._clock, seconds=self._seconds, is_known=False) for name, kept in self._kept.items()
        )
        await asyncio.gather(*closing)


def _state_of(kept: Kept[OpenToolset]) -> str:
    if not kept.opened.done():
        return "opening"
    if kept.failure is not None:
        return failure_message(kept.failure)
    return "ended" if kept.task.done() else "open"


@asynccontextmanager
async def _in_time(toolset: Toolset, context: ToolsetContext, seconds: float) -> AsyncGenerator[OpenToolset]:
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(seconds) as limit:
                opened = await stack.enter_async_context(toolset.open(context))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"It did not open within {seconds:g} seconds.") from error
        yield opened


def leave(task: "asyncio.Future[Any]") -> None:
    """Hold a task that does not end until it does."""
    if isinstance(task, asyncio.Task) and not task.done():
        _left_behind.add(task)
        task.add_done_callback(_left_behind.discard)


def failure_message(error: BaseException) -> str:
    """Return what failed, in one sentence without secrets; of a group of errors, the first."""
    error = first_of(error)
    said = shown_error(error).strip().rstrip(".")
    return f"{type(error).__name__}: {said}." if said else f"{type(error).__name__}."


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group; any other as it is."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
