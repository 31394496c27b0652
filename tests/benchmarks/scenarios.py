"""Fixed scenarios whose work is counted: a script for a process of its own, which prints one JSON object. It judges nothing.

    python tests/benchmarks/scenarios.py read_turn

What is counted depends on neither the machine nor its load: calls of Treadle's functions, calls that these functions make (of C functions
too), and the blocks of memory that stay allocated. The event loop's own work is left out, because it depends on when bytes arrive.
"""

import asyncio
import gc
import itertools
import json
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "treadle") + os.sep

REPEATS = 16
"""Runs whose blocks are counted together; one alone would mostly show what is reused."""
LONG = 250
"""Calls of the session that is resumed: some 1,000 events."""
CHUNKS = 1_000

Act = Callable[[], Awaitable[Any]]


class Counter:
    """Counts calls in all threads while it is on."""

    def __init__(self) -> None:
        self._ticks = itertools.count()  # `next` of it is atomic, unlike `+= 1`
        self._own: dict[CodeType, bool] = {}

    def on(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def off(self) -> int:
        """Stop, and return how many calls there were."""
        sys.setprofile(None)
        threading.setprofile(None)
        return next(self._ticks)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back if event == "call" else frame
        is_call = event in ("call", "c_call")
        if is_call and (self._is_own(frame) or (caller is not None and self._is_own(caller))):
            next(self._ticks)

    def _is_own(self, frame: FrameType) -> bool:
        code = frame.f_code
        if (known := self._own.get(code)) is None:
            known = self._own[code] = code.co_filename.startswith(SOURCE)
        return known


# --- the scenarios


@asynccontextmanager
async def read_turn() -> AsyncIterator[Act]:
    """A run of one call that only reads, in memory, over HTTP."""
    async with _vendor() as address:
        yield partial(_looked, _agent(address, "read"))


@asynccontextmanager
async def acting_turn() -> AsyncIterator[Act]:
    """A run of one call that changes something, in memory, over HTTP."""
    async with _vendor() as address:
        yield partial(_looked, _agent(address, "idempotent"))


@asynccontextmanager
async def streamed_response() -> AsyncIterator[Act]:
    """A response in 1,000 pieces, each of which is shown."""
    async with _vendor() as address:
        agent = _agent(address, "read", stream=True)

        async def show() -> Any:
            async with agent.stream("Talk.") as run:
                async for event in run:
                    del event
            assert run.result.text.count("word") == CHUNKS
            return run.result

        yield show


@asynccontextmanager
async def journaled_turn() -> AsyncIterator[Act]:
    """A run of one call that changes something, in a session of a SQLite file."""
    from treadle import open_journal, open_session

    with tempfile.TemporaryDirectory() as folder:
        async with _vendor() as address, open_journal(Path(folder) / "journal.db") as journal:
            agent = _agent(address, "idempotent")

            async def run() -> Any:
                async with open_session(journal) as session:
                    return await _looked(agent, session=session)

            yield run


@asynccontextmanager
async def resumed_session() -> AsyncIterator[Act]:
    """A session of 1,000 events in a SQLite file is opened, and answers one more question."""
    from treadle import open_journal, open_session

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        async with open_journal(path) as journal, open_session(journal, id="long") as session:
            await _own_agent(LONG).run("Look.", session=session)
        agent = _own_agent(0)

        async def resume() -> Any:
            async with open_journal(path) as journal, open_session(journal, id="long") as session:
                await agent.run("And?", session=session)
                return session

        yield resume


SCENARIOS = {act.__name__: act for act in (read_turn, acting_turn, streamed_response, journaled_turn, resumed_session)}
IMPORTS = ("import_treadle", "import_all_names")
NAMES = (*SCENARIOS, *IMPORTS)


# --- what they are made of


def _agent(address: str, effect: Any, *, stream: bool = False) -> Any:
    from treadle import Agent, allow, resolve_model, tool

    async def look(key: str, n: int) -> str:
        """Look up a key."""
        return "~R~" + key * 100

    model = resolve_model("openai-chat:mock", base_url=address, api_key="x", stream=stream)
    return Agent(model, tools=[tool(effect=effect)(look)], instructions="Be brief.", policy=allow("*"))


async def _looked(agent: Any, **options: Any) -> Any:
    """Carry out a run, and check that its call was carried out: a refused one is cheaper."""
    result = await agent.run("Look.", **options)
    assert result.text == "done"
    assert "~R~k1" in str(result.messages[-2]), result.messages[-2]
    return result


def _own_agent(calls: int) -> Any:
    from treadle import Agent, Budget, tool
    from treadle.testing import ScriptedModel, call, text

    async def look(key: str) -> str:
        """Look up a key."""
        return key * 100

    turns = [call("look", key=f"k{at}") for at in range(calls)]
    budget = Budget(max_model_turns=None, max_tool_calls=None, max_wall_time_seconds=None)
    return Agent(ScriptedModel([*turns, text("done")]), tools=[tool(effect="read")(look)], budget=budget)


@asynccontextmanager
async def _vendor() -> AsyncIterator[str]:
    """Answer Chat Completions on loopback with bytes made beforehand: the first request with a call, all after a result with a text."""
    called, spoken, streamed = _whole(is_call=True), _whole(is_call=False), _streamed()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(called, spoken, streamed), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


class _Connection(asyncio.Protocol):
    """Answers requests, which come one at a time."""

    def __init__(self, called: bytes, spoken: bytes, streamed: bytes) -> None:
        self._called, self._spoken, self._streamed = called, spoken, streamed
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if end and len(body) == int(size or 0):
            self._received = b""
            whole = self._spoken if b"~R~" in body else self._called
            self._transport.write(self._streamed if b'"stream":true' in body else whole)


def _whole(*, is_call: bool) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": None if is_call else "done"}
    if is_call:
        function = {"name": "look", "arguments": '{"key": "k1", "n": 1}'}
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    body = _event({"message": message, "finish_reason": "tool_calls" if is_call else "stop"})
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _streamed() -> bytes:
    deltas = [_event({"delta": {"content": f"word{at} "}, "finish_reason": None}) for at in range(CHUNKS)]
    end = _event({"delta": {}, "finish_reason": "stop"})
    body = b"".join(b"data: %s\n\n" % event for event in (*deltas, end, b"[DONE]"))
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _event(choice: dict[str, Any]) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return json.dumps({"id": "1", "model": "mock", "choices": [{"index": 0, **choice}], "usage": usage}).encode()


# --- counting


async def _count(scenario: Callable[[], Any]) -> dict[str, int]:
    counter = Counter()
    async with scenario() as act:
        for _ in range(3):  # imports, compiled schemas, caches, the connection
            await act()
        blocks = await _blocks(act)
        counter.on()
        await act()
        calls = counter.off()
    return {"calls": calls, "blocks": blocks}


async def _blocks(act: Act) -> int:
    """Return the blocks of memory that a run keeps as long as its result is kept."""
    kept: list[Any] = [None] * REPEATS
    gc.collect()
    before = sys.getallocatedblocks()
    for at in range(REPEATS):
        kept[at] = await act()
    gc.collect()
    return (sys.getallocatedblocks() - before) // REPEATS


def _count_import(*, names: bool) -> dict[str, int]:
    """Count what importing loads: modules, and the blocks of memory that they keep."""
    gc.collect()
    modules, blocks = len(sys.modules), sys.getallocatedblocks()
    import treadle

    if names:
        for name in treadle.__all__:
            getattr(treadle, name)
    gc.collect()
    return {"modules": len(sys.modules) - modules, "blocks": sys.getallocatedblocks() - blocks}


def main(name: str) -> dict[str, int]:
    """Return the counts of one scenario."""
    if name in IMPORTS:
        return _count_import(names=name == IMPORTS[1])
    return asyncio.run(_count(SCENARIOS[name]))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
