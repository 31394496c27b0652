"""Shared: a toolset that several runs use while it is open once. Knows no run; each counts itself in and out."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from treadle.concurrency.forks import bury, watch
from treadle.concurrency.keeping import Kept
from treadle.ports import OpenToolset, Toolset, ToolsetContext
from treadle.tools import Tool
from treadle.toolsets.reshaped import toolset_of

__all__ = ["Shared"]


class Shared:
    """A toolset that is opened for the first of the runs that use it side by side, and closed after the last.

    `ctx` is that of the first run: what depends on a run's `deps` or session must not be shared. Each event loop and each
    forked process opens its own. A toolset that has failed is opened anew for the next run.

    Example:
        browser = Shared(Browser())
        agent = Agent(model, tools=[browser])
    """

    def __init__(self, source: Toolset | Sequence[Tool]) -> None:
        self._source = toolset_of(source)
        self.name = self._source.name
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}
        watch(self)

    def after_fork(self) -> None:
        """Leave what is open to the parent: it is neither used nor closed here."""
        bury(self._held)
        self._held = {}

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        """Open the toolset inside, unless another run has."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None or held.kept.failure is not None:
            held = self._held[loop] = _Held(Kept(lambda: self._source.open(ctx), name=f"shared toolset {self.name}"))
        held.users += 1
        try:
            async with _in_use(held.kept) as opened:
                yield opened
        finally:
            held.users -= 1
            if not held.users:
                if self._held.get(loop) is held:
                    del self._held[loop]
                await _close(held.kept)


class _Held:
    """A toolset that is open, and how many runs use it."""

    def __init__(self, kept: Kept[OpenToolset]) -> None:
        self.kept = kept
        self.users = 0


@asynccontextmanager
async def _in_use(kept: Kept[OpenToolset]) -> AsyncIterator[OpenToolset]:
    """Use what is being opened. Its failure, then or later, is raised in each run that uses it."""
    await asyncio.shield(kept.opened)  # a run that gives up must not cancel what others wait for
    if (opened := kept.value) is None:
        raise _failure(kept)
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(_watch(kept))
        yield opened
        watcher.cancel()


async def _watch(kept: Kept[OpenToolset]) -> None:
    await asyncio.wait({kept.task})
    raise _failure(kept)


def _failure(kept: Kept[OpenToolset]) -> BaseException:
    failure = kept.failure
    return RuntimeError("It was closed.") if failure is None or isinstance(failure, asyncio.CancelledError) else failure


async def _close(kept: Kept[OpenToolset]) -> None:
    if kept.has_opened:
        kept.end()
    else:
        kept.cut()
    try:
        await asyncio.wait({kept.task})
    except asyncio.CancelledError:
        kept.cut()
        raise
