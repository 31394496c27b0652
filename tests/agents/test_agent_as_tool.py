"""An agent as another's tool, and a journal as people open it."""

import json
from pathlib import Path

from loop_tools import echo_tool
from treadle import Agent, Budget, Tool, ToolContext, ask, open_journal, open_session
from treadle.events import AnyEvent
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


async def test_an_agent_carries_out_a_task_of_another_with_a_session_of_its_own() -> None:
    events: list[AnyEvent] = []

    async def who(arguments: JsonObject, ctx: ToolContext) -> str:
        return str(ctx.deps)

    tool = Tool(name="who", description="Who.", parameters={}, effect="read", run=who)
    inner = ScriptedModel([call("who"), text("42")], name="inner")
    child = Agent(inner, tools=[tool], subscribers=[events.append])
    outer = ScriptedModel([call("research", task="Find it"), text("It is 42.")])
    lead = Agent(outer, tools=[child.as_tool("research", "Find out one thing.", effect="read")])

    result = await lead.run("Ask", deps="me")

    assert result.text == "It is 42."
    assert result.messages[2].results[0].content == "42"
    assert [message.text for message in inner.requests[0].messages] == ["Find it"]
    assert {event.parent for event in events} == {result.messages[2].results[0].execution_id.split(".")[0]}
    assert inner.requests[1].messages[2].results[0].content == "me"


async def test_an_agent_that_does_not_complete_is_a_refusal_that_says_why() -> None:
    child = Agent(ScriptedModel([call("echo", n=1)]), tools=[echo_tool()], budget=Budget(max_model_turns=0))
    outer = ScriptedModel([call("research", task="Find it"), call("research", task=""), text("Sorry.")])
    result = await Agent(outer, tools=[child.as_tool("research", "Find out.", effect="read")]).run("Ask")

    assert [one.status for one in result.tool_calls] == ["rejected", "invalid_arguments"]
    told = json.loads(result.messages[2].results[0].content)
    assert told["code"] == "subagent_step_limit_reached"


async def test_an_agent_as_a_tool_asks_by_default() -> None:
    child = Agent(ScriptedModel([text("x")])).as_tool("act", "Act.")
    result = await Agent(ScriptedModel([call("act", task="go")]), tools=[child]).run("go")
    assert result.reason == "approval_required"


async def test_a_journal_lists_what_waits_until_somebody_answers(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("echo", n=1)]), tools=[echo_tool()], policy=ask("echo"))
    for name in ("one", "two"):
        async with open_session(tmp_path / "a.db", id=name) as session:
            await agent.run("go", session=session)

    async with open_journal(tmp_path / "a.db") as journal:
        waiting = await journal.approvals()
        assert [one.session_id for one in waiting] == ["two", "one"]
        async with open_session(journal, id="two") as session:
            await session.answer(waiting[0].id, "allow")
        assert [one.session_id for one in await journal.approvals()] == ["one"]

    journal = await open_journal(tmp_path / "a.db")
    assert len(await journal.sessions()) == 2
    await journal.close()
