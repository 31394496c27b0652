"""The tools of a trial over MCP, for programs that speak it."""

import os

import mcp
from mcp.client.streamable_http import streamable_http_client

from treadle.conformance.evidence import executions_in
from treadle.conformance.service import served_tools

LOOK = {
    "name": "look",
    "description": "Look a key up.",
    "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    "effect": "read",
    "needs_approval": False,
    "behaviour": {"fails": 1, "error": "the service is down"},
}


async def test_an_mcp_client_finds_and_calls_the_tools_of_a_trial(tmp_path):
    ledger = tmp_path / "ledger"
    async with (
        served_tools([LOOK], str(ledger), os.getpid) as addresses,
        streamable_http_client(addresses.mcp_url) as (read, write),
        mcp.ClientSession(read, write) as session,
    ):
        await session.initialize()
        listed = await session.list_tools()
        failed = await session.call_tool("look", {"key": "a"})
        called = await session.call_tool("look", {"key": "b"})

    assert [one.name for one in listed.tools] == ["look"]
    assert (failed.is_error, failed.content[0].text) == (True, "RuntimeError: the service is down")
    assert (called.is_error, called.content[0].text) == (False, "look ran with key=b")
    assert [(one.arguments, one.is_done) for one in executions_in(ledger)] == [
        ({"key": "a"}, False),
        ({"key": "b"}, True),
    ]
