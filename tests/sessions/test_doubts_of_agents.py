"""A call of unknown outcome is not repeated by the caller of the agent that made it, nor by the next agent, without a person's word."""

from pathlib import Path

import pytest

from treadle import Agent, Done, open_session, tool
from treadle.testing import ScriptedModel, call, text

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
