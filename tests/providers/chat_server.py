"""A server on loopback that says exactly the bytes it is told, and shows what it was sent. Knows no dialect."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Script = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    url: str = ""
    requests: list[Received] = field(default_factory=list)
    connections: int = 0


@contextlib.asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[Server]:
    """Answer the first request with the first script, and so on; the last one continues for ever."""
    server, tasks = Server(), set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        server.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                server.requests.append(await _received(reader))
                script = scripts[min(len(server.requests), len(scripts)) - 1]
                if callable(script):
                    await script(writer)
                else:
                    writer.write(script)
                    await writer.drain()
                    if b"Connection: close" in script:
                        break
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _received(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Received(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def answer(
    body: bytes | str,
    *,
    status: int = 200,
    content_type: str = "text/event-stream",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """An answer that leaves the connection open for the next."""
    body = body.encode() if isinstance(body, str) else body
    return _head(status, {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}) + body


def until_closed(body: bytes | str, *, content_type: str = "text/event-stream") -> bytes:
    """An answer that ends when the connection does."""
    body = body.encode() if isinstance(body, str) else body
    return _head(200, {"Content-Type": content_type, "Connection": "close"}) + body


def json_answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    return answer(json.dumps(value), status=status, content_type="application/json", headers=headers)


def then_silence(start: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Send this much, and then nothing more while the connection stays open."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        await asyncio.Event().wait()

    return script


def then_reset(start: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    """Send this much, and then break the connection."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        writer.transport.abort()
        raise ConnectionResetError

    return script


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Words\r\n{lines}\r\n".encode()


STREAM_HEAD = _head(200, {"Content-Type": "text/event-stream", "Connection": "close"})


def event(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"


def chunk(finish: str | None = None, **delta: Any) -> str:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def fragment(index: Any, arguments: Any = None, *, call_id: Any = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


DONE = "data: [DONE]\n\n"
HELLO = chunk(content="Hello") + chunk("stop") + DONE
