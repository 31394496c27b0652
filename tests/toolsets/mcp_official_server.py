"""A server made with the official package, as most servers are: python mcp_official_server.py [http [port]]. With http it prints its address."""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("official")


class Size(BaseModel):
    size: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def report(ctx: Context) -> str:
    """Say how far it is."""
    await ctx.report_progress(1, 2, "half")
    return "reported"


@server.tool()
def broken() -> str:
    """Fail."""
    raise RuntimeError("no paper")


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask how large."""
    answer = await ctx.elicit("How large?", Size)
    return f"{answer.action}: {answer.data.size}" if answer.action == "accept" else answer.action


async def serve() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if sys.argv[2:] else 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])


if sys.argv[1:2] == ["http"]:
    asyncio.run(serve())
else:
    server.run("stdio")
