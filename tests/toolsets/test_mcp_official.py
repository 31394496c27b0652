"""MCP servers made with the official package, by both of the protocol's ways; and broken servers behind HTTP."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from test_mcp import results, run

from treadle import Agent, ConfigurationError, allow, mcp_server, tool
from treadle.testing import ScriptedModel, call, text

OFFICIAL = str(Path(__file__).with_name("mcp_official_server.py"))


@asynccontextmanager
async def over_http(port: str = "0") -> AsyncIterator[str]:
    """Run the official server at an address."""
    arguments = (OFFICIAL, "http", port)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
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
@pytest.mark.parametrize("way", [pytest.param("stdio", marks=pytest.mark.soak), "http"])
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
    answers = [answer, well]

    def in_turn(asked):
        return answers.pop(0)(asked)

    async with broken_server(in_turn) as url:
        server = mcp_server("b", url=url, max_message_bytes=1_000_000)
        result, _ = await run(server, call("mcp__b__go"), call("mcp__b__go", again=True))

    broken, after = results(result)
    assert json.loads(broken.content)["type"] in {"failed", "outcome_unknown", "unexpected_result_shape"}
    assert len(broken.content) < 5_000
    assert after.content == "well"


def error(code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": {"code": code, "message": message}})


FORGOTTEN = [
    (404, error(-32600, "Session not found"), "application/json"),  # the Python package
    (404, error(-32001, "Session not found"), "application/json"),  # the TypeScript and C# packages
    (404, error(-32603, "Session terminated"), "application/json"),
    (404, "session not found", "text/plain"),  # the Go package
    (404, "", "text/plain"),
    (404, "<html>Not Found</html>", "text/html"),
    (404, '{"error": "gone"}', "application/json"),
    (400, error(-32000, "Bad Request: No valid session ID provided"), "application/json"),  # examples in TypeScript
    (400, error(-32000, "Bad Request: Server not initialized"), "application/json"),
    (400, "Bad Request: No valid session ID provided", "text/plain"),  # the Python package of early 2025
    (401, "Unauthorized: Session not found", "text/plain"),  # the Rust package of 2025
    (410, "", "text/plain"),
]


class Sessions:
    """A middleware that gives sessions, and answers calls in turn: with a refusal, or not at all where that is None."""

    def __init__(self, answers: list[tuple[int, str, str] | None], *, together: int = 1) -> None:
        self.log: list[str] = []
        self._answers = answers
        self._asked = asyncio.Barrier(together)

    def middleware(self):
        @web.middleware
        async def handle(request, handler):
            sent = await request.json() if request.method == "POST" else {}
            name, session = sent.get("method"), request.headers.get("mcp-session-id", "")
            if name == "tools/call":
                self.log.append(f"{session} call")
                if (refusal := self._answers.pop(0)) is not None:
                    await self._asked.wait()
                    status, text, kind = refusal
                    return web.Response(status=status, text=text, content_type=kind)
            response = await handler(request)
            if name == "initialize":
                response.headers["mcp-session-id"] = f"s{self.log.count('initialize') + 1}"
                self.log.append("initialize")
            return response

        return handle


def well(asked) -> web.Response:
    return respond(asked, result={"content": [{"type": "text", "text": "well"}]})


def begun_again(times: int) -> list[str]:
    """Return the log of so many calls, each of which is sent in one session and then in a new one."""
    return [
        "initialize",
        *(line for n in range(1, times + 1) for line in (f"s{n} call", "initialize", f"s{n + 1} call")),
    ]


async def test_a_session_that_the_server_has_forgotten_is_begun_again_and_its_call_repeated():
    sessions = Sessions([one for refusal in FORGOTTEN for one in (refusal, None)])
    async with broken_server(well, sessions.middleware()) as url:
        result, _ = await run(mcp_server("b", url=url), [call("mcp__b__go", n=n) for n, _ in enumerate(FORGOTTEN)])

    assert [one.content for one in results(result)] == ["well"] * len(FORGOTTEN)
    assert sessions.log == begun_again(len(FORGOTTEN))


async def test_a_call_that_also_a_new_session_refuses_has_not_acted():
    sessions = Sessions([one for refusal in FORGOTTEN for one in (refusal, refusal)])
    async with broken_server(well, sessions.middleware()) as url:
        result, _ = await run(mcp_server("b", url=url), [call("mcp__b__go", n=n) for n, _ in enumerate(FORGOTTEN)])

    assert [json.loads(one.content)["may_have_acted"] for one in results(result)] == [False] * len(FORGOTTEN)
    assert sessions.log == begun_again(len(FORGOTTEN))


async def test_calls_side_by_side_in_a_forgotten_session_share_one_new_session():
    sessions = Sessions([FORGOTTEN[0]] * 3 + [None] * 3, together=3)
    async with broken_server(well, sessions.middleware()) as url:
        server = mcp_server("b", url=url, effects={"go": "read"})
        result, _ = await run(server, [call("mcp__b__go", number=number) for number in range(3)])

    assert [one.content for one in results(result)] == ["well"] * 3
    assert sessions.log.count("initialize") == 2
    assert sessions.log.count("s2 call") == 3


async def test_an_official_server_that_is_restarted_between_two_calls_is_used_again():
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        url = await first.enter_async_context(over_http())

        @tool(effect="unsafe")
        async def restart() -> str:
            """Restart the server at its address."""
            await first.aclose()
            return await second.enter_async_context(over_http(url.partition("127.0.0.1:")[2].partition("/")[0]))

        model = ScriptedModel([call("mcp__o__report"), call("restart"), call("mcp__o__report"), text("Done.")])
        server = mcp_server("o", url=url, connect_seconds=60, timeout=60)
        result = await Agent(model, tools=[server, restart], policy=allow("*")).run("Go")

    assert [one.content for one in results(result)] == ['{"result":"reported"}', url, '{"result":"reported"}']


REFUSALS = [
    ((401, "", "text/plain"), "auth_expired", False, "HTTP status 401 (it wants a valid sign-in"),
    ((401, '{"error": "invalid_token"}', "application/json"), "auth_expired", False, "invalid_token"),
    ((401, error(-32603, "Unauthorized"), "application/json"), "auth_expired", False, "HTTP status 401"),
    ((403, "<html>", "text/html"), "auth_expired", False, "HTTP status 403"),
    ((429, "", "text/plain"), "rate_limited", False, "HTTP status 429 (it is busy"),
    ((429, error(-32000, "slow down"), "application/json"), "rate_limited", False, "slow down"),
    ((404, "", "text/plain"), "mcp_error", False, "HTTP status 404"),
    ((400, "", "text/plain"), "mcp_error", False, "HTTP status 400"),
    ((400, error(-32603, "no paper"), "application/json"), "mcp_error", True, "no paper"),
    ((500, "", "text/plain"), "mcp_error", True, "HTTP status 500"),
    ((503, error(-32000, "overloaded"), "application/json"), "mcp_error", True, "overloaded"),
    ((200, error(-32001, "Request timed out"), "application/json"), "mcp_error", True, "error -32001"),
    ((200, error(-32000, "overloaded"), "application/json"), "mcp_error", True, "error -32000"),
    ((200, error(-32700, "odd"), "application/json"), "mcp_error", True, "error -32700"),
    ((200, error(-32600, "not so"), "application/json"), "mcp_error", False, "error -32600"),
]


async def test_what_a_servers_refusal_means_reaches_the_model():
    answers = [answer for answer, *_ in REFUSALS]

    def refuse(asked):
        status, body, kind = answers.pop(0)
        return web.Response(status=status, text=body.replace('"server-error"', str(asked["id"])), content_type=kind)

    async with broken_server(refuse) as url:
        result, _ = await run(mcp_server("b", url=url), [call("mcp__b__go", n=n) for n, _ in enumerate(REFUSALS)])

    told = [json.loads(one.content) for one in results(result)]
    assert [("failed", code, may_have_acted) for _, code, may_have_acted, _ in REFUSALS] == [
        (one["type"], one["code"], one["may_have_acted"]) for one in told
    ]
    assert [words for one, (*_, words) in zip(told, REFUSALS, strict=True) if words not in one["message"]] == []


@pytest.mark.parametrize(("status", "words"), [(401, "sign in again"), (429, "it is busy"), (503, "HTTP status 503")])
async def test_the_status_of_a_server_that_refuses_to_connect_reaches_the_person(status, words):
    @web.middleware
    async def refuse(request, handler):
        return web.Response(status=status)

    seen = []
    async with broken_server(well, refuse) as url:
        result, _ = await run(mcp_server("b", url=url), subscribers=[seen.append])

    assert result.completed
    (failed,) = [one for one in seen if one.type == "toolset.failed"]
    assert f"HTTP status {status}" in failed.message
    assert words in failed.message


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
