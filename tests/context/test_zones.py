"""The beginning of requests: it stays the same as long as nothing changes it, its hash is recorded, and a change is told."""

from typing import Any

import pytest

from loop_tools import ANYTHING, echo_tool
from treadle import Agent, Budget, Tool, open_session, resolve_model
from treadle.context import ClearResults, WholeHistory, Window
from treadle.events import ModelStarted
from treadle.testing import MockProvider, ScriptedModel, call, text


async def started(session: Any) -> list[ModelStarted]:
    return [event for event in await session.events() if isinstance(event, ModelStarted)]


@pytest.mark.row("C12")
async def test_over_twenty_steps_the_hash_is_one_and_nothing_is_told():
    model = ScriptedModel([*[call("echo", n=number) for number in range(20)], text("Done.")])
    agent = Agent(model, tools=[echo_tool()], instructions="Count.", budget=Budget(max_model_turns=25))
    result = await agent.run("Go")
    found = await started(result.session)
    assert len(found) == 21
    assert len({event.prefix for event in found}) == 1
    assert len(found[0].prefix) == 16
    assert {event.prefix_changed for event in found} == {()}
    other = await Agent(ScriptedModel([text("Done.")]), instructions="Count down.").run("Go")
    assert (await started(other.session))[0].prefix != found[0].prefix


@pytest.mark.row("C12")
async def test_a_tool_that_comes_or_goes_is_told_and_changes_the_hash():
    late = Tool(
        name="late",
        description="Late.",
        parameters=ANYTHING,
        effect="read",
        visible=lambda session: len(session.messages) > 2,
        run=echo_tool().run,
    )
    model = ScriptedModel([call("echo", n=1), call("echo", n=2), text("Done.")])
    result = await Agent(model, tools=[echo_tool(), late]).run("Go")
    found = await started(result.session)
    assert [event.prefix_changed for event in found] == [(), ("tools",), ()]
    assert found[0].prefix != found[1].prefix == found[2].prefix


@pytest.mark.row("C12")
async def test_a_compiler_that_changes_earlier_messages_is_told_and_a_compaction_is_not():
    model = ScriptedModel([*[call("echo", words="x" * 400, n=number) for number in range(9)], text("Done.")])
    result = await Agent(model, tools=[echo_tool()], compiler=Window(WholeHistory(), tokens=700)).run("Go")
    assert ("messages",) in {event.prefix_changed for event in await started(result.session)}

    model = ScriptedModel([*[call("echo", words="x" * 4000, n=number) for number in range(9)], text("Done.")])
    model.window = 8000
    result = await Agent(model, tools=[echo_tool()], compactor=ClearResults(keep=1, share=0.5)).run("Go")
    assert [event.type for event in await result.session.events()].count("context.compacted") > 0
    assert {event.prefix_changed for event in await started(result.session)} == {()}


@pytest.mark.row("C12")
async def test_another_process_with_other_instructions_is_told(tmp_path):
    def agent(*turns: Any, instructions: str) -> Agent:
        budget = Budget(max_model_turns=1)
        return Agent(
            ScriptedModel(turns), tools=[echo_tool()], instructions=instructions, budget=budget, on_limit="report"
        )

    for number, instructions in enumerate(("Count.", "Count.", "Count down.")):
        async with open_session(tmp_path / "a.db", id="s") as session:
            one = agent(call("echo", n=number), instructions=instructions)
            if number:
                await one.resume(session, budget=Budget(max_model_turns=number + 1))
            else:
                await one.run("Go", session=session)
            found = await started(session)
    assert [event.prefix_changed for event in found] == [(), (), ("restart",)]


@pytest.mark.row("C12")
async def test_requests_of_one_session_name_one_key_of_the_cache_and_an_option_replaces_or_removes_it():
    async def keys(session_id: str, **options: Any) -> list[Any]:
        async with MockProvider([call("echo", n=1), text("One."), text("Two.")]) as mock:
            model = resolve_model("openai:m", base_url=mock.base_url, api_key="k", options=options)
            async with open_session("memory:", id=session_id) as session:
                agent = Agent(model, tools=[echo_tool()])
                await agent.run("Go", session=session)
                await agent.run("Go on", session=session)
            return [request.body.get("prompt_cache_key") for request in mock.requests]

    first, other = await keys("customer-ada"), await keys("customer-bo")
    assert len(set(first)) == 1
    assert len(first[0]) == 32
    assert "ada" not in first[0]
    assert set(first).isdisjoint(other)
    assert await keys("a", prompt_cache_key="mine") == ["mine"] * 3
    assert await keys("a", prompt_cache_key=None) == [None] * 3
