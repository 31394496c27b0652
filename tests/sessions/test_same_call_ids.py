"""A caller's call and the calls of agents that carry it out may have the same id: what people say reaches the call that waits."""

import pytest

from invariants import check_session
from treadle import Agent, Done, Tool, ToolContext, UnknownInput, allow, ask_user_tool, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


def asker(answer: str) -> Agent:
    return Agent(
        ScriptedModel([call("ask_user", id="call_1", question="Which?"), text(answer)]), tools=[ask_user_tool()]
    )


async def test_an_input_reaches_the_call_of_the_agent_that_asks():
    lead = Agent(
        ScriptedModel([call("ask", id="call_1", task="Ask"), text("Done.")]),
        tools=[asker("red").as_tool("ask", "Ask.", effect="read")],
    )
    async with open_session("memory:") as session:
        assert (await lead.run("Go", session=session)).reason == "input_required"
        await session.input("call_1", "red")
        with pytest.raises(UnknownInput, match="already has its input"):
            await session.input("call_1", "blue")
        result = await lead.resume(session)
        await check_session(session)
    assert result.completed


async def test_two_agents_whose_questions_have_the_same_id_are_answered_one_after_the_other():
    tools = [asker(name).as_tool(name, "Ask.", effect="read") for name in ("first", "second")]
    both = [call("first", id="call_1", task="Ask"), call("second", id="call_2", task="Ask")]
    lead = Agent(ScriptedModel([both, text("Done.")]), tools=tools)
    async with open_session("memory:") as session:
        await lead.run("Go", session=session)
        await session.input("call_1", "red")
        await session.input("call_1", "blue")
        result = await lead.resume(session)
    assert result.completed
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]


async def test_a_doubt_of_an_agent_is_resolved_from_the_session_of_its_caller():
    async def lose(arguments: JsonObject, ctx: ToolContext) -> str:
        raise ConnectionError("the bank hung up")

    pay = Tool(name="pay", description="Pay.", parameters={}, effect="unsafe", run=lose)
    child = Agent(
        ScriptedModel([call("pay", id="call_1"), call("ask_user", id="call_2", question="Which?"), text("Paid.")]),
        tools=[pay, ask_user_tool()],
        policy=allow("pay"),
    )
    lead = Agent(
        ScriptedModel([call("clerk", id="call_1", task="Pay"), text("Done.")]),
        tools=[child.as_tool("clerk", "Pay.")],
        policy=allow("clerk", "pay"),
    )
    async with open_session("memory:") as session:
        await lead.run("Go", session=session)
        await session.resolve("call_1", Done("paid"), by="ada")
        await session.input("call_2", "red")
        result = await lead.resume(session)
    assert result.completed
    assert result.in_doubt == ()
