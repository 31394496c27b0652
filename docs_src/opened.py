"""One opening for many runs: the basket that the first run fills is there for the second."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from treadle import Agent, Tool, tool
from treadle.ports import SessionView, ToolsetContext
from treadle.testing import ScriptedModel, call, text


class Shop:
    """A toolset with a state of its own."""

    name = "shop"

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncGenerator["Basket"]:
        yield Basket()


class Basket:
    def __init__(self) -> None:
        self.items: list[str] = []

        @tool(effect="read")
        def put(item: str) -> list[str]:
            """Put something into the basket."""
            self.items.append(item)
            return self.items

        self._tools = [put]

    def tools(self, session: SessionView) -> Sequence[Tool]:
        return self._tools


async def main() -> None:
    model = ScriptedModel([call("put", item="tea"), text("Done."), call("put", item="milk"), text("Tea and milk.")])
    agent = Agent(model, tools=[Shop()])

    async with agent.open() as opened:
        first = await opened.run("Put tea into the basket")
        second = await opened.run("And milk", session=first.session)

    print(second.text)
    assert second.messages[-2].results[0].content == '["tea","milk"]'


asyncio.run(main())
