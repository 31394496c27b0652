"""Drivers around drivers: one counts and logs, one caches equal requests, one limits the rate."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from treadle import Agent, Tool, ToolCall, tool
from treadle.drivers import NativeDriver
from treadle.ports import BoundDriver, Driver, Executor, Model, ModelEnd, ModelPart, ModelRequest
from treadle.testing import ScriptedModel, call, text

logger = logging.getLogger(__name__)


class Counting:
    """Logs each step, and counts the requests and the calls that come of them."""

    def __init__(self, inner: Driver) -> None:
        self._inner = inner
        self.requests = self.calls = 0

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        return _Counting(self, self._inner.bind(model, tools, executor))


class _Counting:
    def __init__(self, totals: Counting, inner: BoundDriver) -> None:
        self._totals = totals
        self._inner = inner

    async def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self._totals.requests += 1
        async for part in self._inner.propose(request):
            if isinstance(part, ModelEnd):
                calls = [piece.name for piece in part.parts if isinstance(piece, ToolCall)]
                self._totals.calls += len(calls)
                logger.info("The model calls %s", calls or "nothing")
            yield part


class Caching:
    """Answers a request that it has seen before from memory. It binds itself: the memory outlives a run."""

    def __init__(self, inner: Driver) -> None:
        self._inner = inner
        self._seen: list[tuple[tuple[object, ...], list[ModelPart]]] = []

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        self._bound = self._inner.bind(model, tools, executor)
        return self

    async def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        asked = (request.instructions, request.messages, request.tools, request.tool_choice)
        known = next((parts for key, parts in self._seen if key == asked), None)
        if known is None:
            known = [part async for part in self._bound.propose(request)]
            self._seen.append((asked, known))
        for part in known:
            yield part


class Paced:
    """Lets so many requests wait for the provider at the same time, over all runs of all agents that share it."""

    def __init__(self, inner: Driver, at_once: int) -> None:
        self._inner = inner
        self._slots = asyncio.Semaphore(at_once)

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        return _Paced(self._inner.bind(model, tools, executor), self._slots)


class _Paced:
    def __init__(self, inner: BoundDriver, slots: asyncio.Semaphore) -> None:
        self._inner = inner
        self._slots = slots

    async def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        async with self._slots:
            async for part in self._inner.propose(request):
                yield part


@tool(effect="read")
async def look(place: int) -> str:
    """Look at one place."""
    return f"Nothing at {place}."


async def main() -> None:
    counting = Counting(NativeDriver())
    driver = Caching(Paced(counting, at_once=2))
    model = ScriptedModel([call("look", place=1), text("Nothing there.")])
    agent = Agent(model, tools=[look], driver=driver)

    first = await agent.run("Look")
    again = await agent.run("Look")

    print(first.text, again.text, counting.requests, counting.calls)
    assert first.text == again.text == "Nothing there."
    assert counting.calls == 1
    assert counting.requests == 3  # the second run's first request had been answered before


asyncio.run(main())
