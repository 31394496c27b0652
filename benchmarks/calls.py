"""Count the calls of Treadle's functions in one turn over HTTP with one read, by file or by function. Depends on no clock.

    python benchmarks/calls.py                 in memory, and in a SQLite file
    python benchmarks/calls.py --by function   which functions they are
    python benchmarks/calls.py --stream        of a model that streams: a word first, then a call in four pieces

A turn is what a longer run adds: the difference between runs of 30 and of 10 turns, divided by 20.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import treadle
from treadle import Agent, Budget, allow, open_journal, open_session, resolve_model, tool
from treadle.budgets import Guards

SOURCE = str(Path(treadle.__file__).resolve().parent) + os.sep
SHORT, LONG = 10, 30


class Profile:
    """Counts the calls of functions, in all threads. A coroutine that goes on, or a generator that is asked again, counts again."""

    def __init__(self) -> None:
        self.counts: Counter[CodeType] = Counter()
        self.others = 0

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(SOURCE):
            self.counts[code] += 1
        elif code.co_filename != __file__:
            self.others += 1


class Vendor(asyncio.Protocol):
    """Answers Chat Completions: a call, until a request holds as many results as the run has turns."""

    turns = 0
    is_streaming = False

    def connection_made(self, transport: Any) -> None:
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if end and len(body) == int(size or 0):
            self._received = b""
            done = body.count(b'"role":"tool"')
            answer = _streamed if Vendor.is_streaming else _answer
            self._transport.write(answer(done, is_call=done < Vendor.turns))


def _answer(at: int, *, is_call: bool) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": None if is_call else "done"}
    if is_call:
        function = {"name": "look", "arguments": json.dumps({"key": f"k{at}", "n": at})}
        message["tool_calls"] = [{"id": f"c{at}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if is_call else "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    body = json.dumps({"id": str(at), "model": "mock", "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _streamed(at: int, *, is_call: bool) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "Looking" if is_call else "done"}]
    if is_call:
        arguments = json.dumps({"key": f"k{at}", "n": at})
        pieces = [arguments[start : start + 8] for start in range(0, len(arguments), 8)]
        begun = {"index": 0, "id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "tool_calls" if is_call else "stop"}])
    chunks: list[dict[str, Any]] = [{"id": str(at), "model": "mock", "choices": choice} for choice in choices]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    chunks.append({"id": str(at), "model": "mock", "choices": [], "usage": usage})
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


async def _run(address: str, turns: int, journal: Any) -> Profile:
    async def look(key: str, n: int) -> str:
        """Look up a key."""
        return f"{key}: {n}"

    Vendor.turns = turns
    model = resolve_model("openai-chat:mock", base_url=address, api_key="x", stream=Vendor.is_streaming)
    agent = Agent(
        model,
        tools=[tool(effect="read")(look)],
        policy=allow("*"),
        budget=Budget(max_model_turns=None, max_tool_calls=None),
        guards=Guards(repeats=None),
    )
    if journal is None:
        with Profile() as profile:
            result = await agent.run("Look.")
    else:
        async with open_session(journal) as session:
            with Profile() as profile:
                result = await agent.run("Look.", session=session)
    assert result.text == "done", result.report()
    return profile


async def _turn(address: str, journal: Any) -> tuple[Counter[CodeType], float]:
    for _ in range(2):  # imports, caches, the connection
        await _run(address, SHORT, journal)
    short, long = await _run(address, SHORT, journal), await _run(address, LONG, journal)
    more = Counter({code: count - short.counts.get(code, 0) for code, count in long.counts.items()})
    return more, (long.others - short.others) / (LONG - SHORT)


def _show(name: str, more: Counter[CodeType], others: float, by: str | None) -> None:
    turns = LONG - SHORT
    print(f"{name}: {sum(more.values()) / turns:,.0f} calls of Treadle's functions a turn, {others:,.0f} of others")
    if by is None:
        return
    groups: Counter[str] = Counter()
    for code, count in more.items():
        place = code.co_filename.removeprefix(SOURCE)
        groups[place if by == "file" else f"{place}:{code.co_qualname}"] += count
    for place, count in groups.most_common():
        if count * 2 > turns:
            print(f"{count / turns:8.1f}  {place}")


async def _main(by: str | None) -> None:
    server = await asyncio.get_running_loop().create_server(Vendor, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        _show("memory", *await _turn(address, None), by)
        with tempfile.TemporaryDirectory() as folder:
            async with open_journal(Path(folder) / "journal.db") as journal:
                _show("SQLite", *await _turn(address, journal), by)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", choices=["file", "function"])
    parser.add_argument("--stream", action="store_true", help="let the model stream")
    options = parser.parse_args()
    Vendor.is_streaming = options.stream
    asyncio.run(_main(options.by))
