"""Ids of calls that are longer than Chat Completions takes: they go back to the vendor that made them unchanged."""

from typing import Any

import pytest

from treadle import Agent, resolve_model, tool
from treadle.testing import MockProvider, Turn, call

LONG = "call_" + "x" * 55


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "nothing"


@pytest.mark.row("P-LONG-IDS")
@pytest.mark.parametrize("state", ["client", "server"])
async def test_an_id_of_sixty_characters_goes_back_unchanged(state: str) -> None:
    async with MockProvider([Turn(calls=(call("look", id=LONG),)), "done"]) as mock:
        model = resolve_model("openai:m", base_url=mock.base_url, options={"state": state})
        result = await Agent(model, tools=[look]).run("go")

    assert (result.text, mock.refusals) == ("done", [])
    sent: list[Any] = mock.requests[1].body["input"]
    told = [item["call_id"] for item in sent if "call_id" in item]
    assert told == [LONG] * (2 if state == "client" else 1)
