"""A worker that carries out runs of many customers: each run has a connection of its own customer."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from treadle import Agent, ToolContext, Worker, submit, tool
from treadle.testing import ScriptedModel, call, text
from treadle.tools import SessionSnapshot
from treadle.workers import result

ORDERS = {"acme": ["a samovar"], "initech": ["two teapots"]}


@tool(effect="read")
async def orders(ctx: ToolContext[list[str]]) -> list[str]:
    """Return the customer's orders."""
    return ctx.deps


@asynccontextmanager
async def connection(session: SessionSnapshot) -> AsyncGenerator[list[str]]:
    yield ORDERS[session.tenant]  # a connection is opened before this line, and closed after it
    print(f"closed for {session.tenant}")


async def main(journal: Path) -> None:
    ids = [await submit(journal, "desk", "What have I ordered?", tenant=tenant) for tenant in ORDERS]
    model = ScriptedModel([call("orders"), text("See above.")], follows_history=True)
    worker = Worker(journal, [Agent(model, name="desk", tools=[orders])], deps=connection)
    working = asyncio.create_task(worker.run())
    for session_id in ids:
        assert (await result(journal, session_id)).status == "completed"
    worker.stop()
    await working


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "agent.db"))
