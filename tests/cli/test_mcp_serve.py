"""`treadle mcp serve` as a real process, driven by the official client and by raw frames."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import ElicitResult, jsonrpc_message_adapter

HANGING = """
import asyncio
from treadle import tool

@tool(effect="read")
async def hang() -> str:
    '''Wait for ever.'''
    print("this is not for the wire")
    await asyncio.Event().wait()
    return ""

@tool(effect="read")
async def shout() -> str:
    '''Print, and say something.'''
    import os
    os.write(1, b'{"jsonrpc": "2.0"}')
    print("also not for the wire", flush=True)
    return "shouted"
"""


def parameters(treadle: Any, *arguments: str) -> StdioServerParameters:
    command = treadle.command("mcp", "serve", *arguments)
    return StdioServerParameters(command=command[0], args=command[1:], env=treadle.environment, cwd=str(treadle.folder))


@asynccontextmanager
async def wired(treadle: Any, *arguments: str) -> AsyncIterator[Any]:
    """Yield the streams of the official client over those of a server's process."""
    process = treadle.start("mcp", "serve", *arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    to_client, read = anyio.create_memory_object_stream[Any]()
    write, to_server = anyio.create_memory_object_stream[Any]()
    lines = asyncio.StreamReader(limit=2**26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), process.stdout)

    async def hear() -> None:
        async with to_client:
            async for line in lines:
                await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def tell() -> None:
        async for sent in to_server:
            process.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            process.stdin.flush()

    async with read, write, to_server, anyio.create_task_group() as group:
        group.start_soon(hear)
        group.start_soon(tell)
        yield read, write
        process.stdin.close()
        await asyncio.to_thread(process.wait, 60)
        group.cancel_scope.cancel()


@asynccontextmanager
async def client(
    treadle: Any, *arguments: str, answers: list[ElicitResult] | None = None, is_new: bool = False
) -> AsyncIterator[Any]:
    """Return a session of the official client; `answers` are those of its person, and `asked` what the person was shown.

    With `is_new` the client starts the program itself.
    """
    asked: list[Any] = []

    async def elicit(_: Any, params: Any) -> ElicitResult:
        asked.append(params)
        return (answers or [])[len(asked) - 1]

    async with (
        stdio_client(parameters(treadle, *arguments)) if is_new else wired(treadle, *arguments) as (read, write),
        ClientSession(read, write, elicitation_callback=None if answers is None else elicit) as session,
    ):
        await session.initialize()
        session.asked = asked  # type: ignore[attr-defined]  # beside the client's own names
        yield session


def served(paying: Any, *more: str) -> tuple[str, ...]:
    return ("-m", "script:pay.json", "--tools", "paying.py", *more)


def paid(paying: Any) -> int:
    file = paying.folder / "paid.txt"
    return len(file.read_text().split()) if file.exists() else 0


def sessions(treadle: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = treadle.json("sessions", "--json")
    return found


def ends(treadle: Any) -> list[str]:
    """Return the reasons for which the runs of the last session have ended, as the journal has them."""
    lines = treadle("sessions", "export", "--last", code=0).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    return [str(one["reason"]) for one in events if one.get("type") == "run.finished"]


ALLOW = ElicitResult(action="accept", content={"decision": "allow"})
TYPED = ElicitResult(action="accept", content={"decision": "allow", "reason": None})


@pytest.mark.row("E-MCP-SERVE")
async def test_a_client_gives_a_task_and_its_person_allows_the_call(paying: Any):
    seen: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        seen.append(str(message))

    async with client(paying, *served(paying), answers=[ALLOW], is_new=True) as session:
        listed = {tool.name: tool for tool in (await session.list_tools()).tools}
        result = await session.call_tool("run_task", {"task": "Pay."}, progress_callback=progress)
        asked = session.asked[0]

    assert set(listed) == {"run_task", "resume_task"}
    assert not result.is_error
    assert result.content[0].text == "It is done."
    assert result.structured_content["status"] == "completed"
    assert result.structured_content["session_id"] == sessions(paying)[0]["id"]
    assert '"amount": 40' in asked.message
    assert "Allow the call of pay?" in asked.message
    fields = asked.requested_schema["properties"]
    assert fields["decision"]["enum"] == ["deny", "allow"]
    assert fields["reason"]["default"] == ""
    assert seen == ["Step 1", "pay has started", "pay: ok", "Step 2"]
    assert paid(paying) == 1


@pytest.mark.row("E-MCP-SERVE")
@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="accept", content={"decision": "deny", "reason": "Not on a Friday."}),
    ],
    ids=["declined", "denied"],
)
async def test_a_denied_call_does_not_run_and_the_model_reads_the_reason(paying: Any, answer: ElicitResult):
    async with client(paying, *served(paying), answers=[answer]) as session:
        result = await session.call_tool("run_task", {"task": "Pay."})

    assert result.structured_content["denied"] == ["pay"]
    assert paid(paying) == 0
    if answer.content:
        assert "Not on a Friday." in json.dumps(paying.json("sessions", "show", "--last", "--json"))


@pytest.mark.row("E-MCP-SERVE")
@pytest.mark.parametrize(
    "answers",
    [None, [ElicitResult(action="cancel")], [ElicitResult(action="accept", content={})]],
    ids=["no forms", "cancelled", "empty form"],
)
async def test_where_nobody_answers_the_run_waits_and_says_how_it_continues(
    paying: Any, answers: list[ElicitResult] | None
):
    async with client(paying, *served(paying), answers=answers) as session:
        result = await session.call_tool("run_task", {"task": "Pay."})
        said = result.structured_content
        command = said["approvals"][0]["command"].split()
        assert command[:2] == ["treadle", "approve"]
        assert (said["status"], result.is_error, paid(paying)) == ("paused", False, 0)
        assert said["session_id"] in result.content[0].text
        assert " ".join(command) in result.content[0].text

        await asyncio.to_thread(paying, *command[1:], code=0)
        resumed = await session.call_tool("resume_task", {"session_id": said["session_id"]})

    assert resumed.structured_content["status"] == "completed"
    assert resumed.structured_content["session_id"] == said["session_id"]
    assert paid(paying) == 1


async def test_a_question_of_the_model_says_how_a_person_answers_it(treadle: Any):
    ask = {"calls": [{"name": "ask_user", "arguments": {"question": "Which branch?"}}]}
    model = treadle.script("ask.json", [ask, {"text": "It is main."}])
    async with client(treadle, "-m", model, "--tools", "ask_user") as session:
        result = await session.call_tool("run_task", {"task": "Go"})
        session_id = result.structured_content["session_id"]
        assert f'treadle answer {session_id} "ANSWER"' in result.content[0].text

        await asyncio.to_thread(treadle, "answer", session_id, "main", code=0)
        resumed = await session.call_tool("resume_task", {"session_id": session_id})

    assert resumed.content[0].text == "It is main."


@pytest.mark.row("E-MCP-SERVE")
async def test_a_run_may_be_told_to_deny_what_nobody_can_be_asked_about(paying: Any):
    async with client(paying, *served(paying, "--on-approval", "deny")) as session:
        result = await session.call_tool("run_task", {"task": "Pay."})

    assert (result.structured_content["status"], paid(paying)) == ("completed", 0)
    assert result.structured_content["denied"] == ["pay"]


@pytest.mark.row("E-MCP-SERVE")
@pytest.mark.parametrize("answer", ["allow", "deny", "cancel"])
async def test_a_client_of_the_newest_protocol_is_asked_by_a_result(paying: Any, answer: str):
    asked: list[Any] = []

    async def elicit(_: Any, params: Any) -> ElicitResult:
        asked.append(params)
        if answer == "cancel":
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content={"decision": answer})

    transport = wired(paying, *served(paying))
    async with Client(transport, elicitation_callback=elicit, mode="2026-07-28") as session:
        result = await session.call_tool("run_task", {"task": "Pay."})

    assert len(asked) == 1
    assert result.structured_content["status"] == ("paused" if answer == "cancel" else "completed")
    assert paid(paying) == (answer == "allow")


@pytest.mark.row("E-MCP-SERVE")
async def test_an_answer_that_comes_too_late_is_asked_for_anew(paying: Any):
    asked: list[str] = []

    async def elicit(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ALLOW

    paying.home.mkdir()
    (paying.home / "config.toml").write_text("approval_seconds = 0.001\n")
    transport = wired(paying, *served(paying))
    async with Client(transport, elicitation_callback=elicit, mode="2026-07-28") as session:
        with pytest.raises(RuntimeError, match="rounds"):
            await session.call_tool("run_task", {"task": "Pay."})

    assert len(asked) > 1
    assert paid(paying) == 0


@pytest.mark.row("E-MCP-SERVE")
async def test_a_server_that_the_agent_uses_is_started_once_for_all_tasks(treadle: Any):
    raw = Path(__file__).parents[1] / "toolsets" / "mcp_raw_server.py"
    treadle("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(raw), str(treadle.folder), code=0)
    model = treadle.script(
        "echo.json", [{"calls": [{"name": "mcp__raw__echo", "arguments": {"text": "hello"}}]}, {"text": "Done."}]
    )
    async with client(treadle, "-m", model, "--allow", "mcp__raw__echo") as session:
        for _ in range(2):
            done = await session.call_tool("run_task", {"task": "Say hello"})
            assert "Done." in done.content[0].text

    lines = (treadle.folder / "log").read_text().splitlines()
    assert sum(line.startswith("started") for line in lines) == 1
    assert lines[-1] == "end of input"


async def test_a_conversation_continues_in_its_session(treadle: Any):
    treadle.script("two.json", [{"text": "One."}])
    async with client(treadle, "-m", "script:two.json") as session:
        first = await session.call_tool("run_task", {"task": "First."})
        session_id = first.structured_content["session_id"]
        second = await session.call_tool("run_task", {"task": "Second.", "session_id": session_id})

    assert second.structured_content["session_id"] == session_id
    assert "First." in json.dumps(treadle.json("sessions", "show", session_id, "--json"))


@pytest.mark.row("E-MCP-SERVE")
async def test_a_client_reaches_no_session_but_those_of_mcp_clients(treadle: Any):
    treadle.script("own.json", [{"text": "The secret plan."}])
    treadle("run", "-m", "script:own.json", "go", code=0)
    own = sessions(treadle)[0]["id"]
    async with client(treadle, "-m", "script:own.json") as session:
        for name, arguments in (
            ("run_task", {"task": "Say it again.", "session_id": own}),
            ("resume_task", {"session_id": own}),
            ("resume_task", {"session_id": "s_unknown"}),
        ):
            result = await session.call_tool(name, arguments)
            assert result.is_error
            assert "no session" in result.content[0].text

    assert len(sessions(treadle)) == 1  # and none was made


@pytest.mark.row("E-MCP-SERVE")
async def test_a_cancelled_call_ends_its_run_and_the_server_serves_on(treadle: Any):
    (treadle.folder / "hanging.py").write_text(HANGING)
    treadle.script("hang.json", [{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Never."}])
    started = asyncio.Event()

    async def progress(_: float, __: float | None, message: str | None) -> None:
        if message == "hang has started":
            started.set()

    async with client(treadle, "-m", "script:hang.json", "--tools", "hanging.py") as session:
        calling = asyncio.create_task(session.call_tool("run_task", {"task": "Hang."}, progress_callback=progress))
        await started.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert len((await session.list_tools()).tools) == 2

    assert ends(treadle) == ["cancelled"]


@pytest.mark.row("E-MCP-SERVE")
async def test_tools_are_offered_by_themselves_under_the_persons_rules(paying: Any):
    async with client(
        paying, "--offer", "tools", "--tools", "paying.py", "--tools", "read,grep",
        "--deny", "read(path=b.txt)", answers=[TYPED],
    ) as session:  # fmt: skip
        listed = {tool.name: tool for tool in (await session.list_tools()).tools}
        read = await session.call_tool("read", {"path": "a.txt"})
        denied = await session.call_tool("read", {"path": "b.txt"})
        invalid = await session.call_tool("pay", {"amount": "many"})
        pays = await session.call_tool("pay", {"amount": 3})
        unknown = await session.call_tool("run_task", {"task": "Go."})

    assert set(listed) == {"pay", "read", "grep"}
    assert listed["read"].annotations.read_only_hint
    assert listed["pay"].annotations.destructive_hint
    assert "one error" in read.content[0].text
    assert (denied.is_error, denied.meta["treadle/status"]) == (True, "denied")
    assert (invalid.is_error, invalid.meta["treadle/status"]) == (True, "invalid_arguments")
    assert (pays.is_error, pays.content[0].text, paid(paying)) == (False, "paid", 1)
    assert pays.meta["treadle/session_id"] in {one["id"] for one in sessions(paying)}
    assert unknown.is_error


RETURNING = """
from __future__ import annotations
import msgspec
from pydantic import BaseModel
from treadle import ToolOutput, tool
from treadle.messages import Media

class Town(BaseModel):
    name: str
    near: list[Town] = []

class Row(msgspec.Struct):
    id: int

@tool(effect="read")
def number() -> int:
    '''A number.'''
    return 7

@tool(effect="read")
def table() -> dict[str, int]:
    '''A table.'''
    return {"a": 1}

@tool(effect="read")
def town() -> Town:
    '''A recursive model.'''
    return Town(name="Ulm", near=[Town(name="Aalen")])

@tool(effect="read")
def row() -> Row:
    '''A struct.'''
    return Row(id=1)

@tool(effect="read")
def rows() -> list[Town]:
    '''Models.'''
    return [Town(name="Ulm")]

@tool(effect="read")
def maybe() -> Town | None:
    '''A model, or nothing.'''
    return None

@tool(effect="read")
def long() -> str:
    '''More than a model is shown.'''
    return "x" * 300_000

@tool(effect="read")
def many() -> list[int]:
    '''More than a model is shown.'''
    return list(range(100_000))

@tool(effect="read")
def loose():
    '''An object without a schema.'''
    return {"free": True}

@tool(effect="read")
def words():
    '''Text without a schema.'''
    return "only text"

@tool(effect="read")
def picture():
    '''Media.'''
    return ToolOutput(data={"of": "a dot"}, media=(Media(media_type="image/png", base64="iVBORw0KGgo="),))
"""


@pytest.mark.row("E-MCP-SERVE")
async def test_the_structured_content_of_a_tool_is_its_own_value_by_its_own_schema(treadle: Any):
    (treadle.folder / "returning.py").write_text(RETURNING)
    async with client(treadle, "--offer", "tools", "--tools", "returning.py") as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        # The official client refuses a value that does not fit the schema that it was offered.
        found = {name: await session.call_tool(name, {}) for name in tools}

    assert {name: one.structured_content for name, one in found.items()} == {
        "number": {"result": 7},
        "table": {"a": 1},
        "town": {"name": "Ulm", "near": [{"name": "Aalen", "near": []}]},
        "row": {"id": 1},
        "rows": {"result": [{"name": "Ulm", "near": []}]},
        "maybe": {"result": None},
        "long": {"result": "x" * 300_000},
        "many": {"result": list(range(100_000))},
        "loose": {"free": True},
        "words": None,
        "picture": {"of": "a dot"},
    }
    assert {name for name, one in tools.items() if one.output_schema is None} == {"loose", "words", "picture"}
    assert all(one.output_schema["type"] == "object" for one in tools.values() if one.output_schema)
    assert tools["number"].output_schema["x-fastmcp-wrap-result"] is True
    assert found["picture"].content[1].mime_type == "image/png"
    assert len(found["many"].content[0].text) < 300_000


@pytest.mark.row("E-MCP-SERVE")
async def test_a_tool_whose_call_waits_is_no_value_and_says_what_it_waits_for(paying: Any):
    async with client(paying, "--offer", "tools", "--tools", "paying.py") as session:
        await session.list_tools()
        waits = await session.call_tool("pay", {"amount": 3})

    assert (waits.is_error, waits.structured_content, paid(paying)) == (True, None, 0)
    said = waits.content[0].text
    assert "treadle approve" in said
    assert f"treadle resume {waits.meta['treadle/session_id']}" in said
    assert "resume_task" not in said
    assert waits.meta["treadle/run"]["status"] == "paused"


class Raw:
    """The server's process and its frames."""

    def __init__(self, treadle: Any, *arguments: str) -> None:
        self.process = treadle.start("mcp", "serve", *arguments, stdin=subprocess.PIPE)
        self.said: list[dict[str, Any]] = []

    def send(self, *frames: Any) -> None:
        for frame in frames:
            line = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read().decode()
            self.said.append(json.loads(line))
            if holds(self.said[-1]):
                return self.said[-1]

    def initialize(self, **capabilities: Any) -> None:
        asked = {
            "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "raw", "version": "1"},
        }  # fmt: skip
        self.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked})
        self.until(lambda one: one.get("id") == 1)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, number: int, name: str, **arguments: Any) -> None:
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": number}}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def end(self) -> str:
        _, errors = self.process.communicate(timeout=60)
        assert b"Traceback" not in errors, errors.decode()
        assert self.process.returncode == 0, errors.decode()
        return str(errors.decode())


def says(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda one: text in json.dumps(one)


@pytest.mark.row("E-MCP-SERVE")
@pytest.mark.parametrize("how", ["closes", "signal"])
def test_a_client_that_goes_away_in_a_call_leaves_a_recorded_end(treadle: Any, how: str):
    (treadle.folder / "hanging.py").write_text(HANGING)
    treadle.script("hang.json", [{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Never."}])
    raw = Raw(treadle, "-m", "script:hang.json", "--tools", "hanging.py")
    raw.initialize()
    raw.call(2, "run_task", task="Hang.")
    raw.until(says("hang has started"))

    if how == "closes":
        raw.process.stdin.close()
        raw.process.stdin = None
    else:
        raw.process.send_signal(signal.SIGTERM)
    raw.end()

    assert ends(treadle) == ["cancelled"]


@pytest.mark.row("E-MCP-SERVE")
def test_a_client_that_goes_away_at_a_question_leaves_the_run_waiting(paying: Any):
    raw = Raw(paying, *served(paying))
    raw.initialize(elicitation={})
    raw.call(2, "run_task", task="Pay.")
    raw.until(lambda one: one.get("method") == "elicitation/create")
    raw.process.stdin.close()
    raw.process.stdin = None
    raw.end()

    (waiting,) = paying.json("approvals", "--json")
    paying("approve", waiting["id"], code=0)
    paying("resume", "--last", code=0)
    assert paid(paying) == 1


@pytest.mark.row("E-MCP-SERVE")
def test_a_cancelled_question_ends_the_run(paying: Any):
    raw = Raw(paying, *served(paying))
    raw.initialize(elicitation={})
    raw.call(2, "run_task", task="Pay.")
    raw.until(lambda one: one.get("method") == "elicitation/create")
    raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    raw.send({"jsonrpc": "2.0", "id": 3, "method": "ping"})
    raw.until(lambda one: one.get("id") == 3)
    raw.process.stdin.close()
    raw.process.stdin = None
    raw.end()

    assert not [one for one in raw.said if one.get("id") == 2]
    assert ends(paying) == ["cancelled"]
    assert paid(paying) == 0


HOSTILE: list[Any] = [
    b"", b"{", b"[]", b"null", b"7", b'"text"', b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}', {}, {"jsonrpc": "1.0", "id": 9, "method": "ping"},
    {"jsonrpc": "2.0", "id": {}, "method": "ping"}, {"jsonrpc": "2.0", "id": 10, "method": 7},
    {"jsonrpc": "2.0", "id": 11, "method": "tools/call"}, {"jsonrpc": "2.0", "id": 12, "method": "tools/call", "params": []},
    {"jsonrpc": "2.0", "id": 13, "method": "tools/call", "params": {"name": 7}},
    {"jsonrpc": "2.0", "id": 14, "method": "tools/call", "params": {"name": "run_task", "arguments": {"task": ""}}},
    {"jsonrpc": "2.0", "id": 15, "method": "tools/call", "params": {"name": "run_task", "arguments": {"task": ["x"]}}},
    {"jsonrpc": "2.0", "id": 16, "method": "tools/call", "params": {"name": "run_task", "arguments": {"task": "x", "y": 1}}},
    {"jsonrpc": "2.0", "id": 17, "method": "tools/call", "params": {"name": "rm", "arguments": {}}},
    {"jsonrpc": "2.0", "id": 18, "method": "no/such"}, {"jsonrpc": "2.0", "id": 99, "result": {}},
    {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": [], "progress": "x"}},
    b'{"jsonrpc":"2.0","id":20,"method":"ping","params":{"text":"' + b"x" * 33_000_000 + b'"}}',
]  # fmt: skip


@pytest.mark.row("E-MCP-SERVE")
def test_hostile_frames_are_answered_and_cost_nothing_else(treadle: Any):
    (treadle.folder / "hanging.py").write_text(HANGING)
    treadle.script("shout.json", [{"calls": [{"name": "shout", "arguments": {}}]}, {"text": "Done."}])
    raw = Raw(treadle, "-m", "script:shout.json", "--tools", "hanging.py")
    raw.send(*HOSTILE[:12])
    raw.initialize()
    for number, frame in enumerate(HOSTILE, 1000):
        raw.send(frame, {"jsonrpc": "2.0", "id": number, "method": "ping"})
        assert raw.until(lambda one, number=number: one.get("id") == number) == {  # type: ignore[misc]
            "jsonrpc": "2.0", "id": number, "result": {},
        }  # fmt: skip
    raw.call(2000, "run_task", task="Shout.")
    done = raw.until(lambda one: one.get("id") == 2000)
    raw.process.stdin.close()
    raw.process.stdin = None
    errors = raw.end()

    assert done["result"]["structuredContent"]["status"] == "completed"
    answered = {one["id"]: one for one in raw.said if isinstance(one.get("id"), int)}
    assert all("error" in answered[number] or answered[number]["result"]["isError"] for number in range(11, 19))
    assert "also not for the wire" in errors
    assert len(sessions(treadle)) == 1


def test_serving_needs_a_model_or_tools(treadle: Any):
    assert "No model is named" in treadle("mcp", "serve", code=2).stderr
    assert (
        "--offer tools needs tools"
        in treadle("mcp", "serve", "--offer", "tools", "--tools", "background", code=2).stderr
    )
