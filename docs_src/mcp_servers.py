"""An MCP server as a toolset: a small server is started for the run, and its tools are the agent's."""

import asyncio
import sys
import tempfile
from pathlib import Path

from treadle import Agent, allow, mcp_server
from treadle.testing import ScriptedModel, call, text

SERVER = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("stock")


@server.tool()
def count(item: str) -> int:
    """Count how many of an item are in stock."""
    return {"tea": 12}.get(item, 0)


@server.tool()
def order(item: str, number: int) -> str:
    """Order more of an item."""
    return f"Ordered {number} of {item}."


server.run("stdio")
'''


async def main(program: Path) -> None:
    stock = mcp_server("stock", [sys.executable, str(program)], effects={"count": "read"})
    count, order = call("mcp__stock__count", item="tea"), call("mcp__stock__order", item="tea", number=5)

    result = await Agent(ScriptedModel([count, order]), tools=[stock]).run("Fill up the tea")
    assert result.messages[2].results[0].content == '{"result":12}'  # counting is a read, because we say so
    assert result.reason == "approval_required"  # ordering asks a person

    model = ScriptedModel([order, text("Ordered.")])
    result = await Agent(model, tools=[stock], policy=allow("mcp__stock__*")).run("Fill up the tea")
    print(result.messages[2].results[0].content)
    assert result.completed


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "server.py")
    file.write_text(SERVER)
    asyncio.run(main(file))
