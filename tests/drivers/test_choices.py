"""A choice of tools is a promise: what the request did not permit does not run, whatever driver proposed it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from driver_tools import chat

from invariants import check_session
from treadle import Agent, Tool, open_session
from treadle.drivers.native import NativeDriver
from treadle.drivers.scripted import ScriptedDriver
from treadle.ports import ModelPart, ModelRequest
from treadle.testing import Gate, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject


class Headstrong:
    """A driver of the user's own that proposes what it likes, and does not even ask its model."""

    def __init__(self, turns: Sequence[Any]) -> None:
        self._model = ScriptedModel(turns)

    def bind(self, model: Any, tools: Any, executor: Any) -> "Headstrong":
        return self

    async def propose(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        async for part in self._model.stream(request):
            yield part


def native(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel(turns), driver=NativeDriver(), **words)


def scripted(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel([text("never asked")]), driver=ScriptedDriver(ScriptedModel(turns)), **words)


def headstrong(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel([text("never asked")]), driver=Headstrong(turns), **words)


DRIVERS: list[Callable[..., Agent]] = [native, scripted, headstrong]


def counted(ran: list[str], name: str, effect: Any = "unsafe") -> Tool:
    async def run(arguments: JsonObject, ctx: Any) -> str:
        ran.append(name)
        return "done"

    return Tool(name=name, description=name, parameters={}, effect=effect, permission="allow", run=run)


@pytest.mark.row("N04", "D06")
@pytest.mark.parametrize("make", DRIVERS)
@pytest.mark.parametrize(
    ("choice", "proposed", "expected"),
    [
        ("none", ["pay"], []),
        ("none", ["look", "pay"], []),
        ("look", ["pay"], []),
        ("look", ["pay", "look"], ["look"]),
        ("pay", ["look", "pay"], ["pay"]),
        ("required", ["look", "pay"], ["look", "pay"]),
    ],
)
async def test_what_the_choice_of_tools_forbids_does_not_run(
    make: Callable[..., Agent], choice: str, proposed: list[str], expected: list[str]
) -> None:
    ran: list[str] = []
    tools = [counted(ran, "look", "read"), counted(ran, "pay")]
    async with open_session("memory:") as session:
        agent = make([[call(name) for name in proposed], text("Done.")], tools=tools, tool_choice=choice)
        result = await agent.run("go", session=session)
        await check_session(session)

    assert ran == expected
    refused = [record.name for record in result.tool_calls if record.status == "skipped"]
    assert sorted(refused) == sorted(set(proposed) - set(expected))


@pytest.mark.row("N04")
@pytest.mark.parametrize("choice", ["none", "look"])
async def test_a_read_that_the_choice_forbids_does_not_start_while_its_response_streams(choice: str) -> None:
    ran: list[str] = []
    gate = Gate()
    turn = Turn(calls=(call("peek"), call("peek", n=2)), gate=gate, hold_after_call=0)
    tools = [counted(ran, "peek", "read"), counted(ran, "look", "read")]

    def watch(event: Any) -> None:
        if event.type == "model.delta":
            gate.open()

    agent = Agent(ScriptedModel([turn, text("Done.")]), tools=tools, tool_choice=choice, subscribers=[watch])
    await agent.run("go")
    assert ran == []


@pytest.mark.row("N04", "D06")
@pytest.mark.parametrize(
    ("choice", "turns"),
    [
        ("none", [call("pay"), call("pay", n=2)]),
        ("look", [call("pay"), call("pay", n=2)]),
        ("look", [call("pay"), text("Never mind.")]),
        ("required", [text("No tool."), text("No tool.")]),
    ],
)
async def test_a_model_that_ignores_the_choice_twice_ends_the_run_and_the_reason_says_so(
    choice: str, turns: Sequence[Any]
) -> None:
    ran: list[str] = []
    model = ScriptedModel([*turns, text("never")])
    result = await Agent(model, tools=[counted(ran, "look"), counted(ran, "pay")], tool_choice=choice).run("go")

    assert (result.reason, result.completed, len(model.requests)) == ("no_final_answer_or_tool_call", False, 2)
    assert result.stop.details == {"class": "tool_choice_ignored", "tool_choice": choice}
    assert [request.tool_choice for request in model.requests] == [choice, choice]
    assert ran == []


@pytest.mark.row("N04")
async def test_after_the_wrong_tool_the_named_one_is_asked_for_again() -> None:
    ran: list[str] = []
    model = ScriptedModel([call("pay"), call("look"), call("pay"), text("Done.")])
    result = await Agent(model, tools=[counted(ran, "look"), counted(ran, "pay")], tool_choice="look").run("go")

    assert result.completed
    assert ran == ["look", "pay"]  # the choice held until it was followed
    assert [request.tool_choice for request in model.requests] == ["look", "look", "auto", "auto"]


@pytest.mark.row("N04")
async def test_a_server_that_ignores_the_field_runs_nothing_over_http() -> None:
    ran: list[str] = []
    async with MockProvider([call("pay"), text("Done.")]) as mock:
        result = await Agent(chat(mock), tools=[counted(ran, "pay")], tool_choice="none").run("go")

    assert (result.completed, ran) == (True, [])
