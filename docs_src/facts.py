"""An editor that remembers what it has read, and refuses to overwrite a file that has changed since."""

import asyncio
import hashlib
import tempfile
from pathlib import Path

from treadle import Agent, Rejected, Tool, ToolContext, ToolOutput, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject

NOTES = Path(tempfile.mkdtemp()) / "notes.txt"


def digest() -> str:
    return hashlib.sha256(NOTES.read_bytes()).hexdigest()


async def read(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    return ToolOutput(data=NOTES.read_text(), facts={"read": {NOTES.name: digest()}})


async def write(arguments: JsonObject, ctx: ToolContext) -> str:
    if ctx.facts.get("read", {}).get(NOTES.name) != digest():
        raise Rejected("The notes have changed since they were read. Read them again.")
    NOTES.write_text("from the model")
    return "written"


TOOLS = [
    Tool(name="read", description="Read the notes.", parameters={}, effect="read", run=read),
    Tool(name="write", description="Write the notes.", parameters={}, effect="unsafe", permission="allow", run=write),
]


async def main() -> None:
    NOTES.write_text("from a person")
    async with open_session(NOTES.parent / "agent.db", id="notes") as session:
        await Agent(ScriptedModel([call("read"), text("Read.")]), tools=TOOLS).run("Read", session=session)
        NOTES.write_text("from another person")  # days later
        done = await Agent(ScriptedModel([call("write"), text("Oh.")]), tools=TOOLS).run("Write", session=session)
    print([one.status for one in done.tool_calls])
    assert NOTES.read_text() == "from another person"


asyncio.run(main())
