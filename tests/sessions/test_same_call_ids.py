"""A caller's call and the calls of agents that carry it out may have the same id: what people say reaches the call that waits."""

from contextlib import suppress

import pytest

from invariants import check_session
from treadle import (
    Agent,
    Done,
    NotDone,
    Tool,
    ToolContext,
    UnknownDoubt,
    UnknownInput,
    allow,
    ask_user_tool,
    list_doubts,
    open_session,
)
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


async def test_two_agents_whose_questions_have_the_same_id_are_told_apart_by_the_calls_they_carry_out():
    tools = [asker(name).as_tool(name, "Ask.", effect="read") for name in ("first", "second")]
    both = [call("first", id="a", task="Ask"), call("second", id="b", task="Ask")]
    lead = Agent(ScriptedModel([both, text("Done.")]), tools=tools)
    async with open_session("memory:") as session:
        await lead.run("Go", session=session)
        for _ in range(2):  # also where one of the two has been answered
            with pytest.raises(UnknownInput, match=r"Several calls 'call_1' wait, of sessions c_.*, c_"):
                await session.input("call_1", "red")
            with suppress(UnknownInput):
                await session.input("a", "red")
        for late in ("a", "", "call", "other"):
            with pytest.raises(UnknownInput):
                await session.input(late, "blue")
        await session.input("b", "blue")
        result = await lead.resume(session)
    assert result.completed
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]


async def test_the_id_of_a_call_that_was_answered_never_means_the_call_of_an_agent():
    turns = [call("ask_user", id="call_1", question="Who?"), call("ask", id="call_2", task="Ask"), text("Done.")]
    lead = Agent(ScriptedModel(turns), tools=[ask_user_tool(), asker("red").as_tool("ask", "Ask.", effect="read")])
    async with open_session("memory:") as session:
        await lead.run("Go", session=session)
        await session.input("call_1", "ada")
        await lead.resume(session)
        with pytest.raises(UnknownInput, match="No call 'call_1'"):
            await session.input("call_1", "bob")
        await session.input("call_2", "red")
        result = await lead.resume(session)
    assert result.completed


def losing_clerk() -> Agent:
    async def lose(arguments: JsonObject, ctx: ToolContext) -> str:
        raise ConnectionError("the bank hung up")

    pay = Tool(name="pay", description="Pay.", parameters={}, effect="unsafe", run=lose)
    turns = [call("pay", id="p"), text("Nobody knows.")]
    return Agent(ScriptedModel(turns), tools=[pay], policy=allow("pay"))


async def test_a_doubt_whose_id_fits_calls_of_several_agents_is_resolved_only_where_it_is():
    tools = [losing_clerk().as_tool(name, "Pay.") for name in ("first", "second")]
    both = [call("first", id="a", task="Pay"), call("second", id="b", task="Pay")]
    lead = Agent(ScriptedModel([both, text("Done.")]), tools=tools, policy=allow("*"))
    async with open_session("memory:") as session:
        await lead.run("Go", session=session)
        doubts = await list_doubts(session.journal)
        for name in ("p", "", "pa"):
            with pytest.raises(UnknownDoubt):
                await session.resolve(name, NotDone)
        async with open_session(session.journal, id=doubts[0].session_id) as child:
            await child.resolve("p", NotDone)
        assert await list_doubts(session.journal) == doubts[1:]


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
