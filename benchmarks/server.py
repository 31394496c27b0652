"""A scripted Chat Completions server on loopback. It does as little as it can, so that clients are measured and not it.

The scenario stands in the path, and the turn is told by counting the marks that tool results carry, so nothing is parsed and any
number of runs may share the server:

    http://127.0.0.1:PORT/s/turns=10,calls=1,tool=fast/v1/chat/completions
"""

import asyncio
import json
import os
import sys
from functools import cache
from typing import NamedTuple

MARK = b"~R~"
"""Every tool result of the harness begins with it, once."""

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: "
_STREAM_HEAD = _HEAD + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


class Scenario(NamedTuple):
    """What the model does."""

    turns: int = 1
    """Responses with calls before the final text."""
    calls: int = 1
    """Calls of each response."""
    tool: str = "fast"
    latency_ms: int = 0
    """Before each response."""
    chunks: int = 8
    """Pieces of the final text, where it streams."""
    answer: str = ""
    """A tool whose call ends the run, for libraries that have one; empty for a final text."""

    @staticmethod
    def of(path: str) -> "Scenario":
        """Read `/s/turns=10,tool=fast/...`."""
        words = dict(word.split("=", 1) for word in path.split("/")[2].split(","))
        return Scenario(**{name: value if name in ("tool", "answer") else int(value) for name, value in words.items()})


_scenario_of = cache(Scenario.of)


@cache
def reply(scenario: Scenario, turn: int, *, is_stream: bool) -> bytes:
    """Return the whole HTTP answer of one turn; made once."""
    calls = [_call(scenario, turn, index) for index in range(scenario.calls)] if turn < scenario.turns else []
    is_last = not calls
    if is_last and scenario.answer:
        calls = [_call_of("final", scenario.answer, {"answer": "done"})]
    return _streamed(scenario, calls, speaks=is_last) if is_stream else _whole(calls)


def _call(scenario: Scenario, turn: int, index: int) -> dict:
    number = turn * scenario.calls + index
    key = f"k{number}-".ljust(32, "a")
    arguments = {"command": f"true #{key}"} if scenario.tool == "bash" else {"key": key, "n": number}
    return _call_of(f"call_{turn}_{index}", scenario.tool, arguments)


def _call_of(call_id: str, name: str, arguments: dict) -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": _json(arguments).decode()}}


def _whole(calls: list[dict]) -> bytes:
    message = {"role": "assistant", "content": None if calls else "done: all tool results were read."}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    body = _json(_envelope("chat.completion", choices=[choice], usage=_USAGE))
    return _HEAD + b"application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _streamed(scenario: Scenario, calls: list[dict], *, speaks: bool) -> bytes:
    deltas = [{"role": "assistant", "content": "" if speaks else None}]
    if speaks:
        deltas += [{"content": f"tok{number} "} for number in range(scenario.chunks)] + [{"content": "done"}]
    deltas += [fragment for index, call in enumerate(calls) for fragment in _fragments(index, call)]
    events = [_event(delta) for delta in deltas] + [_event({}, "tool_calls" if calls else "stop")]
    events.append(_json(_envelope("chat.completion.chunk", choices=[], usage=_USAGE)))
    # Each event is an HTTP chunk of its own, as real servers send them.
    return _STREAM_HEAD + b"".join(_http_chunk(event) for event in [*events, b"[DONE]"]) + b"0\r\n\r\n"


def _fragments(index: int, call: dict) -> list[dict]:
    """Cut a call into its head and four pieces of its arguments."""
    arguments = call["function"]["arguments"]
    size = -(-len(arguments) // 4)
    heads = [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    return [
        {"tool_calls": [part]} for part in [*heads, *({"index": index, "function": {"arguments": p}} for p in pieces)]
    ]


def _event(delta: dict, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _json(_envelope("chat.completion.chunk", choices=[choice]))


def _envelope(kind: str, **fields: object) -> dict:
    return {"id": "chatcmpl-1", "object": kind, "created": 1700000000, "model": "mock", **fields}


def _http_chunk(event: bytes) -> bytes:
    block = b"data: " + event + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(block), block)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Connection(asyncio.Protocol):
    """One connection of one client, which sends one request at a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._received = bytearray()
        self._body_at = 0
        self._ends_at = 0

    def data_received(self, piece: bytes) -> None:
        self._received += piece
        if not self._ends_at and not self._has_head():
            return
        if len(self._received) >= self._ends_at:
            request = bytes(self._received)
            self._received.clear()
            self._ends_at = 0
            self._answer(request)

    def _has_head(self) -> bool:
        at = self._received.find(b"\r\n\r\n")
        if at < 0:
            return False
        head = bytes(self._received[:at]).lower()
        _, _, rest = head.partition(b"content-length:")
        self._body_at = at + 4
        self._ends_at = self._body_at + int(rest.split(b"\r\n", 1)[0] or 0)
        return True

    def _answer(self, request: bytes) -> None:
        scenario = _scenario_of(request[: request.index(b"\r\n")].split(b" ")[1].decode())
        turn = request.count(MARK, self._body_at) // scenario.calls
        answer = reply(scenario, turn, is_stream=b'"stream":true' in request)
        if scenario.latency_ms:
            asyncio.get_running_loop().call_later(scenario.latency_ms / 1000, self._transport.write, answer)
        else:
            self._transport.write(answer)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        # Whoever started us holds the other end of our standard input: when they end, however they end, so do we.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve())
