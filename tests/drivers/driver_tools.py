"""What the tests of the drivers share: an unsafe counter of effects, and turns in which a model writes decisions."""

import json
from pathlib import Path
from typing import Any

import loop_tools
from treadle import Tool
from treadle.ports import Model
from treadle.resolve import resolve_model
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject

NUMBER: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def counter_tool(path: Path, **words: Any) -> Tool:
    """An unsafe tool whose every execution leaves a line in a file."""
    return loop_tools.counter_tool(path, name="pay", effect="unsafe", **words)


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
