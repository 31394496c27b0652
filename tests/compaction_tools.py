"""What the tests of compactions share: how each dialect refuses what is too long, and a tool with long results."""

from collections.abc import Sequence
from typing import Any

from treadle import Tool, ToolContext
from treadle.errors import ContextOverflow
from treadle.events import AnyEvent, ContextCompacted
from treadle.testing import Turn, call
from treadle.tools import JsonObject

__all__ = ["DIALECTS", "TOO_LONG", "compactions", "look", "looks"]

DIALECTS = {
    "openai-chat": Turn(status=400, error={"message": "too long", "code": "context_length_exceeded"}),
    "openai": Turn(text="He", error={"message": "too long", "code": "context_length_exceeded"}),
    "anthropic": Turn(status=413, error="Request exceeds the maximum size"),
    "bedrock": Turn(text="He", error={"type": "validationException", "message": "Input is too long for requested model."}),
    "bedrock-claude": Turn(status=400, error="The model returned the following errors: prompt is too long"),
    "cohere": Turn(status=400, error={"error_type": "TOO_MANY_TOKENS", "message": "too many tokens: size limit exceeded"}),
    "gemini": Turn(status=400, error="The input token count (9) exceeds the maximum number of tokens allowed (8)."),
}  # fmt: skip

TOO_LONG = ContextOverflow("The request is longer than the model's context.", status=400)


def look(size: int = 400) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return f"found {arguments['n']} " + "x" * size

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name="look", description="Look.", parameters=parameters, effect="read", run=run)


def looks(count: int, first: int = 1) -> list[Any]:
    return [call("look", n=n) for n in range(first, first + count)]


def compactions(events: Sequence[AnyEvent]) -> list[ContextCompacted]:
    return [event for event in events if isinstance(event, ContextCompacted)]
