"""Doubts and questions of agents that are tools: who repeats, who is told, and whom an id means where several calls have it."""

from contextlib import suppress
from pathlib import Path

import pytest
from session_tools import Bank, Dead

from invariants import check_session
from pipeline_tools import called_through
from treadle import Agent, Done, NotDone, Tool, ToolContext, allow, open_session, tool
from treadle.errors import JournalError, UnknownDoubt, UnknownInput
from treadle.events import ChildStarted, ToolResolved
from treadle.ports import Journal
from treadle.resolve.archives import list_doubts
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import ask_user_tool

paid: list[int] = []


@tool(effect="unsafe", permission="allow")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    paid.append(amount)
    raise ConnectionError("the bank hung up")


def clerk() -> Agent:
    return Agent(ScriptedModel([call("pay", amount=40), text("It may be paid.")]), tools=[pay])


@pytest.mark.parametrize("who", ["the caller", "the next agent"])
async def test_who_repeats_a_doubtful_call_of_an_agent_has_to_be_allowed(tmp_path: Path, who: str) -> None:
    paid.clear()
    again = call("pay", amount=40) if who == "the caller" else call("second", task="Pay")
    tools = [clerk().as_tool(name, "Pay.", effect="read") for name in ("first", "second")]
    lead = Agent(ScriptedModel([call("first", task="Pay"), again, text("Done.")]), tools=[pay, *tools])
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await lead.run("Pay", session=session)
        assert result.reason == "approval_required"
        assert paid == [40]
        (approval,) = result.approvals
        assert (approval.tool, approval.approval_type) == ("pay", "in_doubt")
        assert "whose outcome is unknown" in approval.reason

    async with open_session(tmp_path / "j.db", id="s") as session:
        await session.answer(approval.id, "deny", reason="It was paid.")
        assert (await lead.resume(session)).completed
    assert paid == [40]


async def test_a_doubt_of_an_agent_that_a_person_has_resolved_asks_nobody() -> None:
    paid.clear()
    model = ScriptedModel([call("first", task="Pay"), text("Unknown."), call("pay", amount=40), text("Done.")])
    lead = Agent(model, tools=[pay, clerk().as_tool("first", "Pay.", effect="read")])
    async with open_session("memory:") as session:
        first = await lead.run("Pay", session=session)
        async with open_session(session.journal, id=first.children[0].session_id) as child:
            await child.resolve(child.doubts()[0].call_id, Done("not this one"))
        result = await lead.run("Pay again", session=session)
    assert [one.status for one in result.tool_calls] == ["outcome_unknown"]
    assert paid == [40, 40]


async def test_other_calls_of_the_caller_run_as_before() -> None:
    paid.clear()
    lead = Agent(
        ScriptedModel([call("first", task="Pay"), call("pay", amount=41), text("Done.")]),
        tools=[pay, clerk().as_tool("first", "Pay.", effect="read")],
    )
    assert (await lead.run("Pay")).completed
    assert paid == [40, 41]


@tool(effect="unsafe", permission="ask")
async def refund(amount: int) -> str:
    """Refund an invoice."""
    return f"{amount}"


async def test_a_doubt_of_an_agent_outlives_its_deleted_session(tmp_path: Path) -> None:
    paid.clear()
    asks = Agent(ScriptedModel([call("pay", amount=40), call("refund", amount=40), text("Done.")]), tools=[pay, refund])
    model = ScriptedModel([call("first", task="Pay"), call("pay", amount=40), text("Done.")])
    lead = Agent(model, tools=[pay, asks.as_tool("first", "Pay.", effect="read")])
    async with open_session(tmp_path / "j.db", id="s") as session:
        first = await lead.run("Pay", session=session)
        assert first.reason == "approval_required"
        async with open_session(session.journal, id=first.children[0].session_id) as child:
            await child.delete()
        again = await lead.run("Pay again", session=session)
    assert [one.approval_type for one in again.approvals] == ["in_doubt"]
    assert paid == [40]


@pytest.mark.parametrize("by_top", [False, True])
async def test_a_resolution_is_recorded_with_every_session_above(journal: Journal, bank: Bank, by_top: bool) -> None:
    model = ScriptedModel([call("pay", id="p", invoice="7"), text("Nobody knows.")], follows_history=True)
    agent = called_through(Agent(model, tools=[bank.tool()]), "clerk", "office")
    async with open_session(Dead(journal), id="s") as session:
        with pytest.raises(JournalError, match="gone"):
            await agent.run("Pay", session=session)
    async with open_session(journal, id="s") as session:
        done = await agent.resume(session)
        assert done.completed
        [middle] = done.children
    async with open_session(journal, id=middle.session_id) as between:
        [leaf] = {event.child_id for event in await between.events() if isinstance(event, ChildStarted)}

    async with open_session(journal, id="s" if by_top else leaf) as session:
        await session.resolve("p", Done({"receipt": 1}), by="ada", reason="Seen.")

    for name, child in (("s", leaf), (middle.session_id, leaf), (leaf, None)):
        told = [event for event in await journal.read(name) if isinstance(event, ToolResolved)]
        assert [(one.call_id, one.outcome, one.by, one.child_id or None) for one in told] == [
            ("p", "done", "ada", child)
        ]


# --- a caller's call and the calls of the agents that carry it out may have the same id


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
