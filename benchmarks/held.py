"""Measure for how long the event loop is held by what a server, a tool or a file can contain. Loopback only.

Each scenario runs an agent (or a tool) on hostile input beside a task that only watches the clock. Printed is the longest time
that the loop did not come round to that task, and what the run ended with.

    python benchmarks/held.py                   every scenario
    python benchmarks/held.py comments escapes  some of them
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_MS = 100.0
"""What is promised of all that servers send and files contain. Results of tools, and stored sessions, are looked at in threads."""
_SECONDS = 120.0
_MIB = 1024 * 1024


class Watch:
    """Measures the longest time between two turns of the event loop, in seconds.

    Of the time that passed and the processor time of this process, the smaller counts: what other processes of the machine take
    is not the program's, and neither is waiting.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        gc.collect()
        self._before = time.perf_counter(), time.process_time()
        self._watching = asyncio.create_task(self._run())

    def __exit__(self, *_: object) -> None:
        assert self._watching is not None
        self._watching.cancel()
        self._look(pause=0.0)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0.002)
            self._look(pause=0.002)

    def _look(self, pause: float) -> None:
        now, before = (time.perf_counter(), time.process_time()), self._before
        self.longest = max(self.longest, min(now[0] - before[0] - pause, now[1] - before[1]))
        self._before = now


# --- what servers send ------------------------------------------------------------------------------------------------


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _chunk(delta: Any, finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


_END = _chunk({}, "stop") + b"data: [DONE]\n\n"


def _whole(message: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


BODIES: dict[str, Callable[[], bytes]] = {
    "comments": lambda: b": keep-alive\n" * (60 * _MIB // 13),
    "empty events": lambda: b"data:\n\n" * (60 * _MIB // 7),
    "blank events": lambda: b"\n" * (60 * _MIB),
    "unknown fields": lambda: b"x:1\n" * (15 * _MIB) + b"\n" + _END,
    "one long line": lambda: b"data: " + b"x" * (60 * _MIB),
    "blanks before the body": lambda: b" " * (60 * _MIB) + b"{}",
    "an error inside a 200": lambda: _event({"error": {"message": "x" * (60 * _MIB)}}),
    "an error of 10 MB": lambda: _event({"error": {"message": "\u0001" * (10_000_000 // 6)}}),
    "a whole error": lambda: json.dumps({"error": {"message": "x " * (30 * _MIB)}}).encode(),
    "escapes, cut": lambda: b'{"choices":[{"message":{"content":"' + b"\\u0041" * (10 * _MIB),
    "lone surrogates": lambda: b'{"choices":[{"message":{"content":"' + b"\\ud800" * (10 * _MIB) + b'"}}]}',
    "surrogates in events": lambda: _END[:0] + (b'data: {"choices":[{"delta":{"content":"' + b"\\ud800" * 20000 + b'"}}]}\n\n') * 80 + _END,
    "control characters": lambda: b'{"choices":[{"message":{"content":"' + b"\x01" * (60 * _MIB) + b'"}}]}',
    "brackets": lambda: b"[" * (60 * _MIB),
    "braces": lambda: b'{"a":' * (12 * _MIB),
    "small items": lambda: b'{"choices":[],"x":[' + b"{}," * (20 * _MIB) + b"1]}",
    "usage of small items": lambda: b'{"choices":[],"usage":{"x":[' + b"{}," * (20 * _MIB) + b"1]}}",
    "small events": lambda: _chunk({"content": "a"}) * (60 * _MIB // 90) + _END,
    "a long answer": lambda: _whole({"content": "x" * 4_000_000}),
    "a long answer, streamed": lambda: _chunk({"content": "word " * 1000}) * 800 + _END,
    "an answer that is too long": lambda: _chunk({"content": "word " * 1000}) * 2400 + _END,
    "many calls": lambda: b"".join(
        _chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "echo", "arguments": "{}"}}]})
        for n in range(20_000)
    ) + _chunk({}, "tool_calls"),
    "a thousand calls": lambda: b"".join(
        _chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "echo", "arguments": f'{{"x":[{n}]}}'}}]})
        for n in range(1000)
    ) + _chunk({}, "tool_calls"),
    "arguments in pieces": lambda: b"".join(
        _chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}} | ({"id": "c"} if not n else {})]})
        for n, piece in enumerate(['{"x":[', *["1," * 1000] * 60, "1]}"])
    ).replace(b'"arguments": "{', b'"name": "echo", "arguments": "{', 1) + _chunk({}, "tool_calls"),
    "long arguments": lambda: _whole(
        {"tool_calls": [{"id": "c", "function": {"name": "echo", "arguments": '{"x":[' + "1," * (5 * _MIB) + "1]}"}}]}
    ),
    "arguments of 900 KB": lambda: _whole(
        {"tool_calls": [{"id": "c", "function": {"name": "echo", "arguments": '{"x":[' + "1," * 450_000 + "1]}"}}]}
    ),
    "a long name": lambda: _whole(
        {"tool_calls": [{"id": "c" * (4 * _MIB), "function": {"name": "e" * (4 * _MIB), "arguments": "{}"}}]}
    ),
}  # fmt: skip


def _serve(listening: socket.socket, make: Callable[[], bytes], encoding: str) -> None:
    """Answer every request with one body, for ever. A process of its own, so that its work is not measured."""
    body = make()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    if encoding:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = packer.compress(body) + packer.flush()
        head += b"Content-Encoding: gzip\r\n"
    while True:
        connection, _ = listening.accept()
        with connection:
            try:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                connection.sendall(head + b"\r\n" + body)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(5)
                while connection.recv(65536):
                    pass
            except OSError:
                pass


async def _ask(watch: Watch, body: str, encoding: str) -> str:
    from treadle import Agent, Budget, resolve_model, tool

    @tool(effect="read")
    async def echo(x: list[int] | None = None) -> int:
        """Return a number."""
        return len(x or [])

    listening = socket.create_server(("127.0.0.1", 0), backlog=16)
    context = multiprocessing.get_context("fork")
    server = context.Process(target=_serve, args=(listening, BODIES[body], encoding), daemon=True)
    server.start()
    port = listening.getsockname()[1]
    listening.close()
    try:
        model = resolve_model("openai-chat:m", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
        budget = Budget(max_model_turns=2, max_retries_per_model_call=0, max_wall_time_seconds=_SECONDS)
        agent = Agent(model, tools=[echo], budget=budget)
        with watch:
            return f"{(await agent.run('go')).reason}"
    finally:
        server.kill()
        server.join()


# --- what tools return ------------------------------------------------------------------------------------------------


def _tree(depth: int) -> Any:
    return [_tree(depth - 1) for _ in range(10)] if depth else 1


def _report(rows: int) -> Any:
    import pydantic

    class Row(pydantic.BaseModel):
        number: int
        name: str = "x"

    class Report(pydantic.BaseModel):
        title: str = "all"
        rows: list[Row]

    return Report(rows=[Row(number=number) for number in range(rows)])


def _directory(names: int) -> Any:
    import pydantic

    class Person(pydantic.BaseModel):
        number: int

    class Directory(pydantic.BaseModel):
        people: dict[str, Person]

    return Directory(people={str(number): Person(number=number) for number in range(names)})


RESULTS: dict[str, Callable[[], Any]] = {
    "a model of 500,000 rows": lambda: _report(500_000),
    "a model of 500,000 names": lambda: _directory(500_000),
    "a million integers": lambda: list(range(1_000_000)),
    "a million objects": lambda: [{"a": 1} for _ in range(1_000_000)],
    "a tree of a million": lambda: _tree(6),
    "50 MB of text": lambda: "x" * 50_000_000,
    "50 MB of text in an object": lambda: {"output": "é" * 25_000_000, "n": 1},
    "50 MB of escapes": lambda: {"output": "\n" * 50_000_000, "more": "\x01" * 1_000_000},
    "50 MB of text beyond ASCII": lambda: "é" * 25_000_000,
    "a million fields": lambda: {str(number): "x" for number in range(1_000_000)},
    "many long texts": lambda: {str(n): "x\n" * 5000 for n in range(5000)},
    "50 MB of media": lambda: "media",
    "an error of 50 MB": lambda: ValueError("x\n" * 25_000_000),
    "a rejection of 50 MB": lambda: "rejected",
}


_TYPED = ", typed"
TYPES: dict[str, Any] = {
    "a million objects": {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
    "a tree of a million": {"type": "array"},
    "a million fields": {"type": "object", "additionalProperties": {"type": "string"}},
    "a million integers": {"type": "array", "items": {"type": "integer"}},
}  # fmt: skip
"""What some of them promise: a schema looks at each value."""


async def _return(watch: Watch, result: str, _: str) -> str:
    from treadle import Agent, Budget, Rejected, Tool
    from treadle.messages import Media
    from treadle.testing import ScriptedModel, call, text
    from treadle.tools import ToolOutput

    made, is_typed = [RESULTS[result.removesuffix(_TYPED)]()], result.endswith(_TYPED)

    async def run(arguments: Any, ctx: Any) -> Any:
        value = made.pop()  # nobody else holds it: that it is freed is part of what it costs
        if isinstance(value, BaseException):
            raise value
        if value == "rejected":
            raise Rejected({"words": ["x\n" * 1000] * 25_000})
        if value == "media":
            return ToolOutput(data="picture", media=(Media(data=b"x" * 50_000_000, mime_type="image/png"),))
        return value

    produce = Tool(name="produce", description="Return it.", parameters={"type": "object"}, effect="read", run=run,
                   output_schema=TYPES[result.removesuffix(_TYPED)] if is_typed else None)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        from treadle import open_session

        async with open_session(Path(folder) / "held.db") as session:
            agent = Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce], budget=Budget())
            with watch:
                ended = await agent.run("go", session=session)
            return f"{ended.reason}, {ended.tool_calls[0].status}"


# --- what is redacted, and what a journal holds -----------------------------------------------------------------------

_HOSTILE = "key " + "a_" * 500_000
_WORDS = "token = a_b-c, password: " * 2_000_000
"""50 MB of what looks like secrets everywhere."""


async def _redact(watch: Watch, name: str, _: str) -> str:
    from treadle import Agent, Budget, Tool, open_session
    from treadle.redaction import Redactor, remember
    from treadle.testing import ScriptedModel, call, text

    remember([f"key-in-use-{number}" for number in range(20)])
    value = {"large result, keys in use": "x key-in-use-7 " * 3_300_000}.get(name, _WORDS)

    def run(arguments: Any, ctx: Any) -> str:
        if name == "an error that is logged":
            raise ValueError(_WORDS)
        return value

    def hear(event: Any) -> None:
        if name == "a listener's error is logged" and event.type == "tool.finished":
            raise ValueError(_WORDS)

    tools = [Tool(name="produce", description="Return it.", parameters={"type": "object"}, effect="read", run=run)]
    with tempfile.TemporaryDirectory() as folder:
        async with open_session(Path(folder) / "held.db") as session:
            agent = Agent(
                ScriptedModel([call("produce"), text(_HOSTILE)]), tools=tools, subscribers=[hear], budget=Budget()
            )
            if name in ("explain", "export", "exact export", "import"):
                for _ in range(3):
                    agent = Agent(ScriptedModel([call("produce"), text(_HOSTILE)]), tools=tools)
                    await agent.run(_HOSTILE, session=session)
                if name == "import":
                    return await _import(watch, await session.export())
                with watch:
                    if name == "exact export":
                        return f"{len(await session.export())} lines"
                    if name == "explain":
                        return f"{len((await session.explain()).runs)} runs"
                    return f"{len(await session.export(redactor=Redactor()))} lines"
            with watch:
                ended = await agent.run("go", session=session)
            return f"{ended.reason}, {ended.tool_calls[0].status}"


async def _import(watch: Watch, lines: Any) -> str:
    from treadle import open_journal
    from treadle.resolve.archives import import_session

    with tempfile.TemporaryDirectory() as folder:
        journal = await open_journal(Path(folder) / "other.db")
        with watch:
            await import_session(journal, lines)
        await journal.close()
    return f"{len(lines)} lines"


async def _write_long(path: Path, name: str) -> None:
    from treadle import open_session
    from treadle.events import ModelFinished, RunStarted
    from treadle.messages import Message, Text

    def said(text: str) -> ModelFinished:
        return ModelFinished(message=Message(role="assistant", parts=(Text(text),)))

    async with open_session(path, id="long") as session:
        await session.ledger.record(RunStarted(task="go"))
        if name.endswith("of 100,000 events"):
            for start in range(0, 100_000, 1000):
                await session.ledger.record(*[said(f"{start + number}") for number in range(1000)])
        else:
            for _ in range(4):
                await session.ledger.record(said("x\n" * 10_000_000))


async def _open_long(watch: Watch, name: str, _: str) -> str:
    from treadle import open_session

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "held.db"
        await _write_long(path, name)
        if name in ("export of 100,000 events", "import of 100,000 events", "explain of 100,000 events"):
            async with open_session(path, id="long") as again:
                if name.startswith("import"):
                    return await _import(watch, await again.export())
                with watch:
                    if name.startswith("explain"):
                        return f"{len((await again.explain()).runs)} runs"
                    return f"{len(await again.export())} lines"
        with watch:
            async with open_session(path, id="long") as again:
                return f"{again.state.head} events"


REDACTED = (
    "large result, keys in use",
    "large result, words",
    "an error that is logged",
    "a listener's error is logged",
    "explain",
    "export",
    "exact export",
    "import",
)
JOURNALS = (
    "a session of 100,000 events",
    "a session of four events of 20 MB",
    "explain of 100,000 events",
    "export of 100,000 events",
    "import of 100,000 events",
)


# --- what files hold --------------------------------------------------------------------------------------------------


def _long_lines(folder: Path) -> None:
    (folder / "long.txt").write_text(("a" * 30_000_000 + "!\n") * 2)


def _many_files(folder: Path) -> None:
    for number in range(20_000):
        (folder / f"f{number}.txt").write_text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n")


FILES: dict[str, tuple[Callable[[Path], None], str, dict[str, Any]]] = {
    "grep, hostile pattern": (_long_lines, "grep", {"pattern": "(a|aa|aaa)+(b|c|d){50}" + "(a?){100}" + "x"}),
    "grep, (a{0,99}){0,9}!": (_long_lines, "grep", {"pattern": "((a{0,30}){0,30}){0,5}b"}),
    "grep, many files": (_many_files, "grep", {"pattern": "(a+)+b"}),
    "glob, many files": (_many_files, "glob", {"pattern": "**/*[!a]*?*x*"}),
    "list, many files": (_many_files, "list", {}),
    "read, long lines": (_long_lines, "read", {"path": "long.txt"}),
}


async def _work_on(watch: Watch, name: str, _: str) -> str:
    from treadle import Agent, Budget
    from treadle.testing import ScriptedModel, call, text
    from treadle.toolsets.files import file_tools

    prepare, tool, arguments = FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(prepare, Path(folder))
        calls = [call(tool, **arguments) for _ in range(16 if tool == "grep" else 2)]
        agent = Agent(ScriptedModel([calls, text("done")]), tools=file_tools(folder),
                      budget=Budget(max_wall_time_seconds=20))  # fmt: skip
        with watch:
            ended = await agent.run("go")
        return f"{ended.reason}, {sorted({str(one.status) for one in ended.tool_calls})}"


SCENARIOS: dict[str, tuple[Callable[[Watch, str, str], Any], str, str]] = {
    **{name: (_ask, name, "") for name in BODIES},
    **{f"{name}, gzip": (_ask, name, "gzip") for name in ("comments", "blank events", "small events", "brackets")},
    **{name: (_return, name, "") for name in RESULTS},
    **{f"{name}{_TYPED}": (_return, f"{name}{_TYPED}", "") for name in TYPES},
    **{name: (_work_on, name, "") for name in FILES},
    **{f"redaction: {name}": (_redact, name, "") for name in REDACTED},
    **{name: (_open_long, name, "") for name in JOURNALS},
}


async def _measured(name: str) -> tuple[float, float, str]:
    work, what, how = SCENARIOS[name]
    watch = Watch()
    began = time.perf_counter()
    try:
        async with asyncio.timeout(_SECONDS):
            ended = await work(watch, what, how)
    except Exception as exc:  # noqa: BLE001 - a scenario that fails is a line of the table
        ended = f"{type(exc).__name__}: {exc}"[:80]
    return watch.longest, time.perf_counter() - began, ended


def _one(name: str) -> None:
    """Measure one scenario in this process and print it as JSON. Collections of garbage are part of what holds the loop."""
    import aiohttp  # noqa: F401 - the first import is no work that input makes

    import treadle.providers.openai_chat
    import treadle.validation.schema  # noqa: F401

    gc.freeze()
    longest, seconds, ended = asyncio.run(_measured(name))
    print(json.dumps({"scenario": name, "longest_ms": longest * 1000, "seconds": seconds, "ended": ended}))


def _names(words: list[str]) -> Iterator[str]:
    for name in SCENARIOS:
        if not words or any(word in name for word in words):
            yield name


async def _run(name: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--one", name, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    if process.returncode:
        return {"scenario": name, "longest_ms": float("inf"), "seconds": 0, "ended": err.decode()[-200:]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of the names of scenarios; all without")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one:
        _one(wanted.words[0])
        return
    worst = 0.0
    for name in _names(wanted.words):
        found = asyncio.run(_run(name))
        is_promised = SCENARIOS[name][0] in (_ask, _work_on)
        worst = max(worst, found["longest_ms"] if is_promised else 0.0)
        mark = " " if found["longest_ms"] <= LIMIT_MS else "!" if is_promised else "-"
        print(
            f"{mark} {name:34} {found['longest_ms']:9.1f} ms  {found['seconds']:6.1f} s  {found['ended']}", flush=True
        )
    print(f"longest: {worst:.1f} ms (limit {LIMIT_MS:.0f} ms)")
    sys.exit(worst > LIMIT_MS)


if __name__ == "__main__":
    main()
