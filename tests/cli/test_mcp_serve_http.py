"""`treadle mcp serve --http` as a real process: the official client, requests of strangers, and signals."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from test_mcp_serve import ALLOW, HANGING, ends, paid, served

TOKEN = "a-token-of-24-characters"


@contextmanager
def serving(treadle: Any, *arguments: str, token: str | None = TOKEN) -> Iterator[tuple[str, Any]]:
    """Yield the address, and the process."""
    environment = {**treadle.environment, **({} if token is None else {"TREADLE_MCP_TOKEN": token})}
    process = treadle.start("mcp", "serve", "--http", "0", *arguments, environment=environment)
    try:
        said = process.stderr.readline().decode()
        assert "Serving MCP at" in said, said
        yield said.split()[3], process
    finally:
        process.kill()
        process.communicate(60)


@asynccontextmanager
async def client(url: str, token: str | None = TOKEN, answers: Any = None) -> AsyncIterator[Any]:
    """Return a session of the official client; `answers` gives the answer to each form."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write, elicitation_callback=answers) as session,
    ):
        await session.initialize()
        await session.list_tools()  # with the schemas at hand, a result needs no further request
        yield session


async def allowed(_: Any, params: Any) -> ElicitResult:
    assert "Allow the call of pay?" in params.message
    return ALLOW


@pytest.mark.row("E-MCP-HTTP")
async def test_two_clients_come_in_by_one_address_and_each_person_is_asked(paying: Any):
    pay = {"calls": [{"name": "pay", "arguments": {"amount": 40}}]}
    paying.script("pay.json", [pay, {"text": "Paid."}, pay, {"text": "Paid again."}])
    with serving(paying, *served(paying)) as (url, _):
        async with client(url, answers=allowed) as one, client(url, answers=allowed) as other:
            first = await one.call_tool("run_task", {"task": "Pay."})
            second = await other.call_tool("run_task", {"task": "Pay."})

    assert [first.structured_content["status"], second.structured_content["status"]] == ["completed"] * 2
    assert first.structured_content["session_id"] != second.structured_content["session_id"]
    assert paid(paying) == 2


@pytest.mark.row("E-MCP-HTTP")
async def test_a_client_without_forms_leaves_the_run_waiting_and_continues_it_later(paying: Any):
    with serving(paying, *served(paying)) as (url, _):
        async with client(url) as session:
            waiting = (await session.call_tool("run_task", {"task": "Pay."})).structured_content
            assert (waiting["status"], paid(paying)) == ("paused", 0)
            paying("approve", waiting["approvals"][0]["id"], code=0)
            again = await session.call_tool("resume_task", {"session_id": waiting["session_id"]})

    assert again.structured_content["status"] == "completed"
    assert paid(paying) == 1


@pytest.mark.row("E-MCP-HTTP", "AT-WEB")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
    ],
    ids=["no token", "wrong token", "no bearer", "bound name", "other page"],
)
async def test_a_stranger_is_refused_before_anything_is_read(paying: Any, headers: dict[str, str], status: int):
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    accepts = {"Accept": "application/json, text/event-stream"}
    with serving(paying, *served(paying)) as (url, _):
        async with httpx2.AsyncClient() as http:
            refused = await http.post(url, json=begin, headers={**accepts, **headers})
            let_in = await http.post(url, json=begin, headers={**accepts, "Authorization": f"Bearer {TOKEN}"})

    assert (refused.status_code, let_in.status_code) == (status, 200)
    assert TOKEN not in refused.text


@pytest.mark.row("E-MCP-HTTP")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_a_run_at_work_which_its_client_is_told(treadle: Any, number: signal.Signals):
    (treadle.folder / "tools.py").write_text(HANGING)
    script = '[{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Done."}]'
    (treadle.folder / "script.json").write_text(script)
    started = asyncio.Event()

    async def progress(_: float, __: float | None, message: str | None) -> None:
        if message == "hang has started":
            started.set()

    with serving(treadle, "-m", "script:script.json", "--tools", "tools.py") as (url, process):
        async with client(url) as session:
            calling = asyncio.create_task(session.call_tool("run_task", {"task": "Go."}, progress_callback=progress))
            await started.wait()
            process.send_signal(number)
            result = await calling
        assert await asyncio.to_thread(process.wait) == 0

    assert result.structured_content["reason"] == "cancelled"
    assert ends(treadle) == ["cancelled"]


@pytest.mark.row("E-MCP-HTTP")
async def test_a_signal_at_a_question_leaves_the_run_waiting(paying: Any):
    asked, never = asyncio.Event(), asyncio.Event()

    async def asks(_: Any, __: Any) -> ElicitResult:
        asked.set()
        await never.wait()
        return ALLOW

    with serving(paying, *served(paying)) as (url, process):
        async with client(url, answers=asks) as session:
            calling = asyncio.create_task(session.call_tool("run_task", {"task": "Pay."}))
            await asked.wait()
            process.terminate()
            await calling
        assert await asyncio.to_thread(process.wait) == 0

    assert paid(paying) == 0
    (waiting,) = paying.json("approvals", "--json")
    paying("approve", waiting["id"], code=0)
    paying("resume", "--last", code=0)
    assert paid(paying) == 1


@pytest.mark.row("E-MCP-HTTP")
async def test_without_a_token_of_its_own_a_fresh_one_is_made_and_shown(paying: Any):
    with serving(paying, *served(paying), token=None) as (url, process):
        shown = process.stderr.readline().decode()
        token = shown.split("Bearer ")[1].strip()
        async with client(url, token) as session:
            assert {tool.name for tool in (await session.list_tools()).tools} == {"run_task", "resume_task"}

    assert len(token) > 40


@pytest.mark.row("E-MCP-HTTP")
async def test_a_person_may_let_in_every_program_of_the_machine_but_no_page(paying: Any):
    with serving(paying, *served(paying), "--no-token") as (url, process):
        assert b"no token is required" in process.stderr.readline()
        async with client(url, None) as session, httpx2.AsyncClient() as page:
            refused = await page.post(url, json={}, headers={"Origin": "http://evil.example"})
            assert (await session.list_tools()).tools

    assert refused.status_code == 403


@pytest.mark.row("E-MCP-HTTP")
def test_what_is_wrong_with_the_address_or_the_token_is_said(paying: Any):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = paying("mcp", "serve", *served(paying), "--http", str(port), code=2).stderr
    assert f"Port {port} cannot be used" in said

    assert "is about --http" in paying("mcp", "serve", *served(paying), "--no-token", code=2).stderr
    assert "65535" in paying("mcp", "serve", *served(paying), "--http", "70000", code=2).stderr
    paying.environment["TREADLE_MCP_TOKEN"] = "short"
    assert "at least 16" in paying("mcp", "serve", *served(paying), "--http", "0", code=2).stderr
