"""The client of `line_server.py`, as a toolset: each run that opens it has a server process of its own."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from treadle import Tool, ToolContext
from treadle.ports import SessionView, ToolsetContext
from treadle.tools import JsonObject

SERVER = Path(__file__).with_name("line_server.py")


class LineServer:
    """A toolset of the tools of a server process."""

    def __init__(self, *names: str, name: str = "lines") -> None:
        self.name = name
        self.names = names
        self.opened: list[OpenServer] = []

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["OpenServer"]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(SERVER), *self.names, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        server = OpenServer(process)
        self.opened.append(server)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(server.read())
                await server.refresh()
                yield server
                reading.cancel()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class OpenServer:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.listings = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tools: Sequence[Tool] = ()
        self._has_changed = False
        self._number = 0

    async def tools(self, session: SessionView) -> Sequence[Tool]:
        if self._has_changed:
            await self.refresh()
        return self._tools

    async def refresh(self) -> None:
        self._has_changed = False
        self.listings += 1
        self._tools = [self._tool(one) for one in await self.ask("list", {})]

    def _tool(self, described: JsonObject) -> Tool:
        name = described["name"]

        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            return await self.ask(name, arguments)

        return Tool(**described, effect="unsafe" if name == "pay" else "read", retries=0, run=run)

    async def ask(self, do: str, arguments: JsonObject) -> Any:
        assert self.process.stdin is not None
        self._number += 1
        waiting = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": self._number, "do": do, "with": arguments}).encode() + b"\n")
        return await waiting

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            said = json.loads(line)
            if said.get("changed"):
                self._has_changed = True
            else:
                self._waiting.pop(said["id"]).set_result(said["answer"])
        code = await self.process.wait()
        gone = ConnectionError(f"the server ended with {code}")
        for waiting in self._waiting.values():
            waiting.set_exception(gone)
        raise gone
