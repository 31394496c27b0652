"""A toolset: a server process that is started for each run, asked for its tools, and ended with the run."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treadle import Agent, Tool, ToolContext
from treadle.ports import SessionView, ToolsetContext
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import Prefixed

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = ["upper", "lower"] if asked["do"] == "list" else getattr(asked["text"], asked["do"])()
    print(json.dumps(answer), flush=True)
"""


class TextServer:
    """The toolset. What `open` yields has the method `tools`."""

    name = "text server"

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncGenerator["Connection"]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdin=pipe, stdout=pipe)
        try:
            connection = Connection(process)
            connection.names = await connection.ask(do="list")
            yield connection
        finally:
            process.kill()
            await process.wait()


class Connection:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.names: list[str] = []
        self._process = process
        self._turn = asyncio.Lock()

    def tools(self, session: SessionView) -> Sequence[Tool]:
        return [self._tool(name) for name in self.names]

    def _tool(self, name: str) -> Tool:
        async def run(arguments: dict[str, Any], ctx: ToolContext) -> str:
            return str(await self.ask(do=name, **arguments))

        parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return Tool(
            name=name, description=f"Write a text in {name} case.", parameters=parameters, effect="read", run=run
        )

    async def ask(self, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            answer = await self._process.stdout.readline()
        if not answer:
            raise ConnectionError("the server has ended")
        return json.loads(answer)


async def main() -> None:
    model = ScriptedModel([call("text_upper", text="hello"), text("It is HELLO.")])
    result = await Agent(model, tools=[Prefixed(TextServer(), "text_")]).run("Say hello loudly")

    print(result.text)
    assert [tool.name for tool in model.requests[0].tools] == ["text_lower", "text_upper"]
    assert result.messages[2].results[0].content == "HELLO"


asyncio.run(main())
