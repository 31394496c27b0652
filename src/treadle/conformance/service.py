"""Service: the tools of one trial for a program in any language, over HTTP and over MCP on HTTP. Executes them; judges nothing."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from treadle.conformance.host import JobTool

__all__ = ["ToolAddresses", "served_tools"]

_PROTOCOL = "2025-06-18"


class ToolAddresses(NamedTuple):
    """Where a program finds the tools."""

    tools_url: str
    """POST the arguments to tools_url/NAME as JSON: the answer is {"result": ...}, or {"error": ...} with status 500."""
    mcp_url: str
    """The same tools for an MCP client (streamable HTTP)."""


@contextlib.asynccontextmanager
async def served_tools(
    tools: Sequence[Mapping[str, Any]], ledger: str, subject: Callable[[], int]
) -> AsyncIterator[ToolAddresses]:
    """Serve tools on loopback while the context lasts.

    Args:
        tools: The tools of a job.
        ledger: The file that executions are written to.
        subject: Returns the process that a tool kills or interrupts, where that is its scenario.
    """
    by_name = {tool["name"]: tool for tool in tools}

    async def execute(name: str, arguments: Mapping[str, Any]) -> Any:
        return await JobTool(by_name[name], ledger, subject()).run_async(arguments)

    async def plain(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in by_name:
            return web.json_response({"error": f"There is no tool {name!r}."}, status=404)
        try:
            return _json({"result": await execute(name, await request.json())})
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - what a tool raises is its answer
            return web.json_response({"error": f"{type(exc).__name__}: {exc}"}, status=500)

    async def mcp(request: web.Request) -> web.Response:
        said = await request.json()
        if "id" not in said:
            return web.Response(status=202)
        result = await _answer(said["method"], said.get("params") or {}, by_name, execute)
        return _json({"jsonrpc": "2.0", "id": said["id"], **result})

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/tools/{name}", plain)
    app.router.add_post("/mcp", mcp)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield ToolAddresses(tools_url=f"http://{host}:{port}/tools", mcp_url=f"http://{host}:{port}/mcp")
    finally:
        await runner.cleanup()


async def _answer(method: str, about: Mapping[str, Any], tools: Mapping[str, Any], execute: Any) -> dict[str, Any]:
    """Return what an MCP server says to one request: as much as lists and calls tools."""
    match method:
        case "initialize":
            version = about.get("protocolVersion", _PROTOCOL)
            info = {"name": "treadle-conformance", "version": "1"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            listed = [
                {"name": one["name"], "description": one["description"], "inputSchema": one["parameters"]}
                for one in tools.values()
            ]
            return {"result": {"tools": listed}}
        case "tools/call" if about.get("name") in tools:
            try:
                value = await execute(about["name"], about.get("arguments") or {})
                text = value if isinstance(value, str) else json.dumps(value)
            except (Exception, SystemExit) as exc:  # noqa: BLE001 - as above
                failed = {"content": [{"type": "text", "text": f"{type(exc).__name__}: {exc}"}], "isError": True}
                return {"result": failed}
            return {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": f"Unknown method or tool in {method}."}}


def _json(value: Any) -> web.Response:
    return web.Response(text=json.dumps(value), content_type="application/json")
