"""What a survey of mutations showed that no test noticed: nobody who is shown the tool of a toolset can change it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipeline_tools import Recorder, read
from treadle import Agent, Decision, Tool
from treadle.ports import SessionView, ToolsetContext
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CheckedCall


class Set:
    """A toolset of tools that are there already."""

    name = "set"

    def __init__(self, *tools: Tool) -> None:
        self._tools = tools

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["Set"]:
        yield self

    def tools(self, session: SessionView) -> Sequence[Tool]:
        return self._tools


class Vandal:
    """A policy that tries to change the tool of a call, and allows it."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def decide(self, call: CheckedCall, session: SessionView) -> Decision:
        tool: Any = call.tool
        for name, change in {
            "parameters": lambda: tool.parameters.update(type="string"),
            "properties": lambda: tool.parameters["properties"].update(n={}),
            "aliases": lambda: tool.aliases.update(m="n"),
            "examples": lambda: tool.examples[0].update(n="x"),
        }.items():
            try:
                change()
            except (TypeError, AttributeError):
                self.failed.append(name)
        return Decision(kind="allow")


@pytest.mark.parametrize("own", [True, False])
async def test_a_policy_cannot_change_a_tool_of_the_agent_or_of_a_toolset(own: bool) -> None:
    tool = read(
        Recorder(),
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
        aliases={"number": "n"},
        examples=[{"n": 1}],
    )
    vandal = Vandal()
    model = ScriptedModel([call("look", n=1), call("look", n=2), text("Done.")])
    result = await Agent(model, tools=[tool if own else Set(tool)], policy=vandal).run("go")

    assert vandal.failed == ["parameters", "properties", "aliases", "examples"] * 2
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert model.requests[2].tools[0].parameters == model.requests[0].tools[0].parameters
