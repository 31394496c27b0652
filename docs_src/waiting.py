"""A call that waits for a person's input, which may come a week later, from another process."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, Suspended, Tool, ToolContext, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject

JOURNAL = Path(tempfile.mkdtemp()) / "agent.db"


async def order(arguments: JsonObject, ctx: ToolContext) -> str:
    if not ctx.inputs:
        raise Suspended("the number of chairs")
    return f"{ctx.inputs[-1]} chairs ordered"


TOOLS = [Tool(name="order", description="Order chairs.", parameters={}, effect="keyed", permission="allow", run=order)]


async def main() -> None:
    async with open_session(JOURNAL, id="office") as session:
        model = ScriptedModel([call("order", id="call_1")])
        paused = await Agent(model, tools=TOOLS).run("Order chairs", session=session)
        print(paused.reason)  # input_required

    async with open_session(JOURNAL, id="office") as session:  # a web server, say: it runs nothing
        await session.input("call_1", 12, by="ada@example.org")

    async with open_session(JOURNAL, id="office") as session:  # a worker
        done = await Agent(ScriptedModel([text("Done.")]), tools=TOOLS).resume(session)
    assert [one.content for message in done.messages for one in message.results] == ["12 chairs ordered"]


asyncio.run(main())
