"""What one run may replace of its agent, and agents made from others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from treadle import (
    Agent,
    Agents,
    Budget,
    ConfigurationError,
    RunContext,
    RunResult,
    Tool,
    ToolContext,
    allow,
    open_journal,
    open_session,
    tool,
)
from treadle.context import WholeHistory
from treadle.errors import AgentChanged, SessionConflict
from treadle.events import RunStarted, SessionChanged
from treadle.ports import SessionView, ToolsetContext
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


class Town(msgspec.Struct, frozen=True):
    people: int


@tool(effect="read")
def look(n: int) -> int:
    """Look something up."""
    return n


@tool(effect="read")
def find(n: int) -> int:
    """Find something."""
    return n


def model(*turns: Any, name: str = "mock") -> ScriptedModel:
    return ScriptedModel(list(turns) or [text("done")] * 3, name=name)


async def test_one_run_replaces_model_instructions_tools_and_output_and_the_next_one_has_the_agents_own():
    own, other = model(), model(text('{"people": 2}'), name="other")
    agent = Agent(own, name="desk", instructions="Be brief.", tools=[look])

    result = await agent.run("go", model=other, instructions="Be long.", tools=[find], output=Town)
    await agent.run("go")

    assert result.output == Town(people=2)
    (changed,), (plain,) = other.requests, own.requests
    assert (changed.instructions, [one.name for one in changed.tools]) == ("Be long.", ["find"])
    assert (plain.instructions, [one.name for one in plain.tools]) == ("Be brief.", ["look"])
    assert plain.output_schema is None


@pytest.mark.parametrize("how", ["run", "stream", "run_sync"])
async def test_every_way_to_run_takes_them(how: str) -> None:
    asked = model(text('{"people": 2}'))
    options: dict[str, Any] = {"model": asked, "instructions": "Be long.", "output": Town, "tenant": "acme"}
    agent = Agent(model())
    if how == "stream":
        result = await agent.stream("go", **options).finish()
    elif how == "run_sync":
        result = await asyncio.to_thread(agent.run_sync, "go", **options)
    else:
        result = await agent.run("go", single_turn=True, **options)

    assert result.output == Town(people=2)
    assert asked.requests[0].instructions == "Be long."
    assert result.session.state.metadata == {"tenant": "acme"}


async def test_the_instructions_of_one_run_are_what_it_sends_when_it_continues_elsewhere():
    journal = await open_journal("memory:")
    first, second = model(call("look", n=1)), model()
    agent = Agent(first, name="desk", tools=[look], budget=Budget(max_model_turns=1), on_limit="report")
    async with open_session(journal, id="s") as session:
        await agent.run("go", session=session, instructions="Only for Ada.")
    await Agents([agent.replace(model=second)]).resume(journal, "s", budget=Budget(max_model_turns=5))

    assert [one.instructions for one in (*first.requests, *second.requests)] == ["Only for Ada."] * 2


async def test_a_run_with_another_model_continues_by_id_only_with_an_agent_that_has_it():
    journal = await open_journal("memory:")
    agent = Agent(model(), name="desk", tools=[look], budget=Budget(max_model_turns=1), on_limit="report")
    async with open_session(journal, id="s") as session:
        await agent.run("go", session=session, model=model(call("look", n=1), name="other"))

    with pytest.raises(AgentChanged, match=r"Changed: model\."):
        await Agents([agent]).resume(journal, "s")
    same = agent.replace(model=model(name="other"))
    assert (await Agents([same]).resume(journal, "s", budget=Budget(max_model_turns=5))).completed


async def test_metadata_and_tenant_of_a_run_are_recorded_with_its_beginning_and_its_functions_see_them():
    seen = list[tuple[str, Any]]()

    def about(ctx: RunContext) -> str:
        seen.append((ctx.tenant, dict(ctx.metadata)))
        return ctx.tenant

    async with open_session("memory:", id="s") as session:
        await session.change(metadata={"plan": "gold", "old": 1})
        await Agent(model(), instructions=about).run(
            "go", session=session, tenant="acme", metadata={"user": "ada", "old": None}
        )
        told = [one for one in await session.events() if isinstance(one, SessionChanged | RunStarted)]

        assert session.state.metadata == {"plan": "gold", "user": "ada", "tenant": "acme"}
    assert seen == [("acme", {"plan": "gold", "user": "ada", "tenant": "acme"})]
    assert [type(one) for one in told] == [SessionChanged, SessionChanged, RunStarted]


async def test_a_run_for_another_tenant_is_refused_and_nothing_is_recorded():
    asked = model()
    async with open_session("memory:", id="s") as session:
        await session.change(metadata={"tenant": "acme"})
        before = await session.events()
        for options in (
            {"tenant": "initech"},
            {"metadata": {"tenant": "initech"}},
            {"tenant": ""},  # of a person who belongs to none
            {"metadata": {"tenant": None}},
        ):
            with pytest.raises(SessionConflict, match="belongs to another tenant than"):
                await Agent(asked).run("go", session=session, **options)  # type: ignore[arg-type]  # one of two options
        assert await session.events() == before
        assert (await Agent(asked).run("go", session=session, tenant="acme")).completed
    assert len(asked.requests) == 1


async def test_runs_of_an_opened_agent_that_replace_something_share_its_toolsets():
    agent = Agent(model(), tools=[Once()])

    async with agent.open() as opened:
        first = await opened.run("go", model=model(call("number"), text("done")))
        second = await opened.run("go", model=model(call("number"), text("done")), instructions="Be brief.")

    assert [contents(one) for one in (first, second)] == [["1"], ["1"]]


class Once:
    """A toolset whose tool says how often the toolset was opened."""

    name = "once"

    def __init__(self) -> None:
        self.opened = 0

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["Once"]:
        self.opened += 1
        yield self

    def tools(self, session: SessionView) -> list[Tool]:
        async def number(arguments: JsonObject, ctx: ToolContext) -> int:
            return self.opened

        return [Tool(name="number", description="Count.", parameters={}, effect="read", run=number)]


def contents(result: RunResult) -> list[str]:
    return [one.content for message in result.messages for one in message.results]


# --- agents made from others


def test_replace_makes_another_agent_and_leaves_this_one():
    agent = Agent(model(), name="desk", instructions="Be brief.", tools=[look], policy=allow("*"))

    other = agent.replace(name="office", tools=[look, find])

    assert [one.name for one in agent.tools] == ["look"]
    assert [one.name for one in other.tools] == ["find", "look"]
    assert {name for name, one in other.describe().items() if one != agent.describe()[name]} == {"name", "tools"}
    assert other.model is agent.model


def test_replace_chooses_between_history_and_compiler():
    agent = Agent(model(), history="current")

    assert agent.replace(compiler=WholeHistory()).describe()["compiler"] == Agent(model()).describe()["compiler"]
    assert agent.replace(compiler=WholeHistory()).replace(history="current").describe() == agent.describe()


def test_replace_refuses_what_an_agent_refuses():
    agent = Agent(model())
    with pytest.raises(TypeError, match="Write instructions="):
        agent.replace(instruction="Be brief.")  # type: ignore[call-overload]  # a misspelt option
    with pytest.raises(ConfigurationError, match="max_depth"):
        agent.replace(max_depth=-1)


def test_a_model_that_runs_name_is_resolved_once() -> None:
    agent = Agent(model())

    first, second = agent.stream("go", model="demo"), agent.stream("go", model="demo")

    assert first._life._model is second._life._model  # type: ignore[attr-defined]  # nothing else shows it
