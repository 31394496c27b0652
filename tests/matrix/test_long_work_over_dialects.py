"""Long work over every dialect and under every driver: one round of calls, tools on demand, a handoff, a helper, a goal's own end."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from invariants import check_session
from treadle import Agent, Handoff, OnDemand, ReActDriver, Tool, ToolContext, allow, open_session, resolve_model
from treadle.ports import Model, RequestNeed
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject

DIALECTS = ("openai-chat", "openai", "anthropic", "gemini", "bedrock", "cohere")
DRIVERS = ("native", "react")
every_way = [
    pytest.param(dialect, driver, marks=() if driver == "native" or dialect == "anthropic" else pytest.mark.soak)
    for dialect in DIALECTS
    for driver in DRIVERS
]


def turn(driver: str, *calls: Any, text: str = "") -> Any:
    """Return what a model answers: by the dialect's own calls, or in words that the driver reads."""
    if driver == "native":
        return Turn(calls=tuple(calls)) if calls else text
    if calls:
        (one,) = calls
        arguments = one.arguments if isinstance(one.arguments, dict) else json.loads(one.arguments)
        return json.dumps({"thought": None, "type": "call_tool", "tool": one.name, "args": arguments})
    return json.dumps({"thought": None, "type": "final_answer", "answer": text})


def driver_of(name: str) -> Any:
    return ReActDriver() if name == "react" else None


def model_of(dialect: str, mock: MockProvider) -> Model:
    return resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")


def look(ran: list[Any], name: str = "look") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(arguments["n"])
        return f"found {arguments['n']} " + "x" * 400

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name=name, description=f"Look into {name}.", parameters=parameters, effect="read", run=run)


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_one_round_of_calls_is_completed_as_such(dialect, driver):
    ran: list[Any] = []
    async with MockProvider([turn(driver, call("look", n=1)), turn(driver, text="Seen.")]) as mock:
        result = await Agent(model_of(dialect, mock), tools=[look(ran)], driver=driver_of(driver)).single_turn("Look")
        await check_session(result.session)

    assert (result.completed, ran) == (True, [1])


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_tools_are_found_on_demand(dialect, driver):
    ran: list[Any] = []
    tools = [look(ran, f"look_{number}") for number in range(60)]
    turns = [
        turn(driver, call("search_tools", query="look_37")),
        turn(driver, call("look_37", n=7)),
        turn(driver, text="Found."),
    ]
    async with MockProvider(turns) as mock:
        agent = Agent(model_of(dialect, mock), tools=[OnDemand(tools)], driver=driver_of(driver))
        result = await agent.run("Look into 37")
        first = json.dumps(mock.requests[0].body)

    assert (result.text, ran) == ("Found.", [7])
    assert sum(f"look_{number}" in first for number in range(60)) < 10


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_a_handoff_keeps_the_task_and_what_was_done(dialect, driver):
    class AtSix(Handoff):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return need.step == 6

    ran: list[Any] = []
    looks = [turn(driver, call("look", n=number)) for number in range(1, 6)]
    turns = [*looks, "The next thing is to answer.", turn(driver, text="Done.")]
    async with MockProvider(turns) as mock, open_session("memory:") as session:
        agent = Agent(model_of(dialect, mock), tools=[look(ran)], driver=driver_of(driver), compactor=AtSix())
        result = await agent.run("Look everywhere: never in the cellar", session=session)
        compacted = [event for event in await session.events() if event.type == "context.compacted"]
        bodies = [json.dumps(request.body) for request in mock.requests]
        await check_session(session)

    assert (result.text, ran, len(compacted)) == ("Done.", [1, 2, 3, 4, 5], 1)
    assert "never in the cellar" in bodies[-1]
    assert "The next thing is to answer." in bodies[-1]
    assert ["found 1 x" in body for body in (bodies[4], bodies[-1])] == [True, False]


@pytest.mark.parametrize(("dialect", "driver"), every_way)
async def test_a_helper_works_below_the_budget_and_answers_its_caller(dialect, driver):
    ran: list[Any] = []
    turns: Sequence[Any] = [
        turn(driver, call("helper", task="Look")),
        turn(driver, call("look", n=3)),
        turn(driver, text="Three."),
        turn(driver, text="It is three."),
    ]
    async with MockProvider(turns) as mock:
        model = model_of(dialect, mock)
        helper = Agent(model, tools=[look(ran)], driver=driver_of(driver)).as_tool("helper", "Looks.", effect="read")
        result = await Agent(model, tools=[helper], driver=driver_of(driver), policy=allow("*")).run("How many?")
        await check_session(result.session)

    assert (result.text, ran) == ("It is three.", [3])
    assert len(mock.requests) == 4
