"""The floor: the tool loop by hand over aiohttp. No validation, no record, no limit, no retry: nobody can be much cheaper."""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

try:
    import orjson
except ImportError:  # a little slower: see README.md
    import msgspec

    _encode, _decode = msgspec.json.encode, msgspec.json.decode
else:
    _encode, _decode = orjson.dumps, orjson.loads

_HEADERS = {"content-type": "application/json", "authorization": "Bearer x"}
_PROPERTIES = {
    "key": {"type": "string", "description": "The key to look up."},
    "n": {"type": "integer", "description": "Its number."},
}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": ["key", "n"], "additionalProperties": False}


class _Agent(NamedTuple):
    session: aiohttp.ClientSession
    url: str
    tools: list[dict[str, Any]]
    functions: dict[str, Callable[..., Any]]


class Floor:
    """The bare loop, with a client of its own for each agent."""

    def __init__(self) -> None:
        self._sessions: list[aiohttp.ClientSession] = []

    def open(self, base_url: str, tool: Callable[..., Any]) -> _Agent:
        function = {"name": tool.__name__, "description": "Look up a key.", "parameters": _PARAMETERS}
        tools = [{"type": "function", "function": function}]
        return _Agent(self._client(), base_url + "/chat/completions", tools, {tool.__name__: tool})

    def _client(self) -> aiohttp.ClientSession:
        self._sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        return self._sessions[-1]

    async def run(self, agent: _Agent) -> str:
        messages = _opening()
        while True:
            async with self._post(agent, messages, stream=False) as response:
                message = _decode(await response.read())["choices"][0]["message"]
            if not message.get("tool_calls"):
                return message["content"]
            messages.append(message)
            messages += await _carry_out(agent, message["tool_calls"])

    async def stream(self, agent: _Agent, on_text: Callable[[str], None]) -> str:
        messages = _opening()
        while True:
            text: list[str] = []
            calls: list[dict[str, Any]] = []
            async with self._post(agent, messages, stream=True) as response:
                async for event in _events(response):
                    for choice in _decode(event)["choices"]:
                        _take(choice["delta"], text, calls, on_text)
            if not calls:
                return "".join(text)
            messages.append({"role": "assistant", "content": "".join(text) or None, "tool_calls": calls})
            messages += await _carry_out(agent, calls)

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    def _post(self, agent: _Agent, messages: list[dict[str, Any]], *, stream: bool) -> Any:
        body = {"model": "mock", "messages": messages, "tools": agent.tools}
        if stream:
            body["stream"] = True
        return agent.session.post(agent.url, data=_encode(body), headers=_HEADERS)


def _opening() -> list[dict[str, Any]]:
    return [{"role": "system", "content": harness.INSTRUCTIONS}, {"role": "user", "content": harness.TASK}]


async def _carry_out(agent: _Agent, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(calls) == 1:
        return [await _call(agent, calls[0])]
    return await asyncio.gather(*(_call(agent, call) for call in calls))


async def _call(agent: _Agent, call: dict[str, Any]) -> dict[str, Any]:
    function = agent.functions[call["function"]["name"]]
    arguments = _decode(call["function"]["arguments"])
    if inspect.iscoroutinefunction(function):
        content = await function(**arguments)
    else:
        content = await asyncio.to_thread(function, **arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    pending = b""
    async for piece in response.content.iter_any():
        *events, pending = (pending + piece).split(b"\n\n")
        for event in events:
            data = event.removeprefix(b"data: ")
            if data != b"[DONE]":
                yield data


def _take(delta: dict[str, Any], text: list[str], calls: list[dict[str, Any]], on_text: Callable[[str], None]) -> None:
    if content := delta.get("content"):
        text.append(content)
        on_text(content)
    for part in delta.get("tool_calls") or ():
        if part["index"] == len(calls):
            calls.append({"id": part["id"], "type": "function", "function": dict(part["function"])})
        else:
            calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]


if __name__ == "__main__":
    harness.main(Floor())
