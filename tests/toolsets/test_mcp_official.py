"""MCP servers made with the official package, by both of the protocol's ways; and broken servers behind HTTP."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from test_mcp import results, run

from treadle import ConfigurationError, mcp_server
from treadle.testing import call

OFFICIAL = str(Path(__file__).with_name("mcp_official_server.py"))


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    """Run the official server at an address."""
    process = await asyncio.create_subprocess_exec(sys.executable, OFFICIAL, "http", stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def both_ways(way: str) -> AsyncIterator[dict]:
    """Yield what reaches the official server."""
    if way == "stdio":
        yield {"command": [sys.executable, OFFICIAL]}
        return
    async with over_http() as url:
        yield {"url": url}


@pytest.mark.row("I02")
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_an_official_server_is_used_by_either_way(way):
    asked, seen = [], []

    async def ask(question, schema):
        asked.append(question)
        return 7

    async with both_ways(way) as place:
        result, _ = await run(
            mcp_server("official", **place, trusted=True, ask=ask, connect_seconds=60, timeout=60),
            call("mcp__official__add", a=2, b=3),
            call("mcp__official__report"),
            call("mcp__official__broken"),
            call("mcp__official__ask"),
            subscribers=[seen.append],
        )

    added, reported, broken, answered = results(result)
    assert json.loads(added.content) == {"result": 5}
    assert json.loads(reported.content) == {"result": "reported"}
    assert ("half", 1, 2) in [(one.message, one.done, one.total) for one in seen if one.type == "tool.progress"]
    assert "broken" in json.loads(broken.content)["details"][0]
    assert json.loads(answered.content) == {"result": "accept: 7"}
    assert len(asked) == 1
    effects = {one.tool: one.effect for one in seen if one.type == "tool.started"}
    assert effects["mcp__official__add"] == "read"
    assert effects["mcp__official__report"] == "unsafe"


class SignsIn(httpx2.Auth):
    """What signs in as the official package's providers do: it is asked for a token when the server wants one."""

    def __init__(self) -> None:
        self.times = 0

    async def async_auth_flow(self, request):
        answer = yield request
        if answer.status_code == 401:
            self.times += 1
            request.headers["Authorization"] = "Bearer fresh"
            yield request


@pytest.mark.row("E-MCP-CONFORM")
async def test_a_server_that_asks_for_it_is_signed_in_to():
    def answer(asked):
        return respond(asked, result={"content": [{"type": "text", "text": "let in"}]})

    @web.middleware
    async def locked(request, handler):
        known = request.headers.get("Authorization") == "Bearer fresh"
        return await handler(request) if known else web.Response(status=401)

    async with broken_server(answer, locked) as url:
        signs_in = SignsIn()
        let_in, _ = await run(mcp_server("broken", url=url, auth=signs_in), call("mcp__broken__go"))
        refused, _ = await run(mcp_server("broken", url=url), call("mcp__broken__go"))

    assert results(let_in)[0].content == "let in"
    assert signs_in.times >= 1
    assert results(refused)[0].is_error


@pytest.mark.row("E-MCP-CONFORM")
def test_what_signs_in_needs_an_address_and_must_be_able_to():
    with pytest.raises(ConfigurationError, match="signs in at a url"):
        mcp_server("one", ["program"], auth=SignsIn())
    with pytest.raises(ConfigurationError, match=r"httpx2\.Auth"):
        mcp_server("one", url="http://127.0.0.1:1/mcp", auth="Bearer x")


@asynccontextmanager
async def broken_server(answer, *middlewares) -> AsyncIterator[str]:
    """Serve MCP by hand over HTTP; `answer(asked)` returns the response to a tool call."""

    async def handle(request: web.Request) -> web.StreamResponse:
        asked = await request.json() if request.method == "POST" else {}
        if "id" not in asked:
            return web.Response(status=202 if asked else 405)
        if asked["method"] == "initialize":
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "b", "version": "1"},
            }
            return respond(asked, result=about)
        if asked["method"] == "tools/list":
            tools = [{"name": "go", "inputSchema": {"type": "object"}}]
            return respond(asked, result={"tools": tools})
        if asked["method"] == "tools/call":
            return answer(asked)
        return respond(asked, error={"code": -32601, "message": "unknown"})

    app = web.Application(middlewares=middlewares)
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/mcp"
    finally:
        await runner.cleanup()


def respond(asked, **said) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": asked["id"], **said})


def large(asked) -> web.Response:
    return respond(asked, result={"content": [{"type": "text", "text": "x" * 5_000_000}]})


def squeezed(asked) -> web.Response:
    body = gzip.compress(large(asked).body)
    return web.Response(body=body, headers={"content-encoding": "gzip", "content-type": "application/json"})


def event(asked) -> web.Response:
    return web.Response(text=f"data: {large(asked).text}\n\n", content_type="text/event-stream")


def refused(asked) -> web.Response:
    return web.Response(status=503)


def garbage(asked) -> web.Response:
    return web.Response(text="<html>", content_type="application/json")


@pytest.mark.parametrize("answer", [large, squeezed, event, refused, garbage])
async def test_a_broken_answer_over_http_ends_its_call_and_nothing_else(answer):
    answers = [answer, lambda asked: respond(asked, result={"content": [{"type": "text", "text": "well"}]})]

    def in_turn(asked):
        return answers.pop(0)(asked)

    async with broken_server(in_turn) as url:
        server = mcp_server("b", url=url, max_message_bytes=1_000_000)
        result, _ = await run(server, call("mcp__b__go"), call("mcp__b__go", again=True))

    broken, well = results(result)
    assert json.loads(broken.content)["type"] in {"failed", "outcome_unknown", "unexpected_result_shape"}
    assert len(broken.content) < 5_000
    assert well.content == "well"


async def test_an_address_where_nobody_listens_is_named_in_the_reason():
    seen = []
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    result, _ = await run(mcp_server("gone", url=f"http://127.0.0.1:{port}/mcp"), subscribers=[seen.append])

    assert result.completed
    (failed,) = [one for one in seen if one.type == "toolset.failed"]
    assert "connect" in failed.message.lower()


async def test_headers_are_sent_and_hidden():
    seen = []

    def answer(asked):
        return respond(asked, result={"content": [{"type": "text", "text": seen[-1]}]})

    async with broken_server(answer) as url:
        seen.append("Bearer canary-93af0c1b77")
        server = mcp_server("b", url=url, headers={"Authorization": "Bearer canary-93af0c1b77"})
        events = []
        await run(server, call("mcp__b__go"), subscribers=[events.append])

    assert "canary" not in repr(server) + repr(events)


@pytest.mark.row("E-MCP-CONFORM")
def test_the_conformance_script_says_loudly_that_it_ran_nothing(tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "conformance.py"
    done = subprocess.run(
        [sys.executable, script, "--node", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 3
    assert done.stderr.startswith("NOT RUN: node 22 or newer")
    assert "passed" not in done.stdout
