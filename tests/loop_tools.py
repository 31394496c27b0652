"""Tools that the tests of the loop share: a counter of effects, an echo, a failing one. Built as users build them."""

from pathlib import Path
from typing import Any

from treadle import Tool, ToolContext, resolve_model
from treadle.ports import Model
from treadle.testing import MockProvider, ScriptedModel
from treadle.tools import JsonObject

ANYTHING: JsonObject = {"type": "object", "additionalProperties": True}


def echo_tool(name: str = "echo", parameters: JsonObject = ANYTHING) -> Tool:
    """A read that gives back its arguments."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return arguments

    return Tool(name=name, description="Give back the arguments.", parameters=parameters, effect="read", run=run)


def counter_tool(path: Path, *, name: str = "rec", effect: str = "read", **words: Any) -> Tool:
    """A tool whose every execution leaves a line in a file outside the process's memory."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        with path.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        return {"done": arguments}

    return Tool(name=name, description="Count.", parameters=ANYTHING, effect=effect, run=run, **words)


def failing_tool(name: str = "fail", error: type[Exception] = RuntimeError) -> Tool:
    """A tool that raises."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise error("it broke")

    return Tool(name=name, description="Fail.", parameters=ANYTHING, effect="read", retries=0, run=run)


def lines(path: Path) -> int:
    """How often the counter ran."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def chat(mock: MockProvider, **options: Any) -> Model:
    """A model that asks this provider in the dialect of Chat Completions."""
    return resolve_model("openai-chat:m", base_url=mock.base_url, **options)


class Unpriced(ScriptedModel):
    """A scripted model whose price nobody knows."""

    price = None  # type: ignore[assignment]  # as that of a model of an unknown server
