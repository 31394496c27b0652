"""Anthropic's limits for strict tools: strict up to them, and plain beyond."""

from typing import Any

import pytest

from treadle.messages import user_message
from treadle.ports import ModelRequest, ToolSpec
from treadle.providers.anthropic import Anthropic
from treadle.testing import MockProvider
from treadle.tools import JsonObject


def spec(name: str, *, required: int = 1, optional: int = 0, unions: int = 0) -> ToolSpec:
    words: JsonObject = {f"r{n}": {"type": "string"} for n in range(required)}
    words |= {f"u{n}": {"anyOf": [{"type": "string"}, {"type": "integer"}]} for n in range(unions)}
    more = {f"o{n}": {"type": "string"} for n in range(optional)}
    schema = {"type": "object", "properties": words | more, "required": list(words), "additionalProperties": False}
    return ToolSpec(name=name, description="", parameters=schema)


async def strict_of(*tools: ToolSpec) -> list[str]:
    """Return the names of the tools that a request makes strict."""
    async with MockProvider(["hi", "hi"]) as mock:
        model = Anthropic("m", base_url=mock.base_url, api_key="k", options={"strict_tools": True})
        for _ in range(2):
            request = ModelRequest(messages=(user_message("go"),), tools=tools)
            assert [part async for part in model.stream(request)]
    told: list[Any] = [[tool["name"] for tool in one.body["tools"] if tool.get("strict")] for one in mock.requests]
    assert told[0] == told[1]  # each request is counted for itself
    names: list[str] = told[0]
    return names


@pytest.mark.row("P-LIMITS")
async def test_twenty_tools_are_strict_and_more_are_plain() -> None:
    assert len(await strict_of(*(spec(f"t{n:02}") for n in range(20)))) == 20
    assert await strict_of(*(spec(f"t{n:02}") for n in range(23))) == [f"t{n:02}" for n in range(20)]


@pytest.mark.row("P-LIMITS")
async def test_a_tool_that_would_exceed_the_optional_parameters_is_plain() -> None:
    assert await strict_of(spec("a", optional=24), spec("b")) == ["a", "b"]
    assert await strict_of(spec("a", optional=20), spec("b", optional=5), spec("c", optional=4)) == ["a", "c"]


@pytest.mark.row("P-LIMITS")
async def test_a_tool_that_would_exceed_the_parameters_of_several_types_is_plain() -> None:
    assert await strict_of(spec("a", unions=16), spec("b")) == ["a", "b"]
    assert await strict_of(spec("a", unions=17), spec("b", unions=16)) == ["b"]
