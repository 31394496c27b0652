"""What the tests of the drivers share: an echo, a counter of effects, and turns in which a model writes decisions."""

import json
from pathlib import Path
from typing import Any

from treadle import Tool, ToolContext
from treadle.ports import Model
from treadle.resolve import resolve_model
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject

NUMBER: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
ANYTHING: JsonObject = {"type": "object", "additionalProperties": True}


def echo_tool(name: str = "echo", parameters: JsonObject = ANYTHING) -> Tool:
    """A read that gives back its arguments."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return arguments

    return Tool(name=name, description="Give back the arguments.", parameters=parameters, effect="read", run=run)


def counter_tool(path: Path, **words: Any) -> Tool:
    """An unsafe tool whose every execution leaves a line in a file."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        with path.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        return {"done": arguments}

    return Tool(name="pay", description="Pay.", parameters=ANYTHING, effect="unsafe", run=run, **words)


def failing_tool() -> Tool:
    """A read that raises."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise ValueError("it broke")

    return Tool(name="fail", description="Fail.", parameters=ANYTHING, effect="read", run=run)


def lines(path: Path) -> list[str]:
    """The keys under which the counter ran."""
    return path.read_text().splitlines() if path.exists() else []


def decision(**fields: Any) -> str:
    """One decision as a model writes it."""
    return json.dumps(fields)


def act(tool: str, thought: str | None = None, **args: Any) -> Turn:
    """A turn that decides to call a tool."""
    return Turn(text=decision(thought=thought, type="call_tool", tool=tool, args=args, answer=None))


def answer(words: Any, thought: str | None = None) -> Turn:
    """A turn that decides to answer."""
    return Turn(text=decision(thought=thought, type="final_answer", tool=None, args=None, answer=words))


def chat(mock: MockProvider, *, stream: bool = True) -> Model:
    return resolve_model("openai-chat:m", base_url=mock.base_url, stream=stream)
