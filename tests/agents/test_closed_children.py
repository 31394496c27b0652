"""A person suspends or deletes the session of an agent that carries out a call: its caller waits for it, or learns that it is lost."""

from pathlib import Path

from treadle import Agent, allow, open_session, tool
from treadle.testing import ScriptedModel, call, text

paid: list[int] = []


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    paid.append(amount)
    return "paid"


def lead() -> Agent:
    clerk = Agent(ScriptedModel([call("pay", amount=40), text("Paid.")]), tools=[pay])
    model = ScriptedModel([call("clerk", task="Pay"), text("Done.")])
    return Agent(model, tools=[clerk.as_tool("clerk", "Pay.")], policy=allow("clerk"))


async def test_a_suspended_session_of_an_agent_keeps_its_caller_waiting(tmp_path: Path) -> None:
    paid.clear()
    agent = lead()
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("Go", session=session)
        async with open_session(tmp_path / "j.db", id=paused.children[0].session_id) as child:
            await child.change(status="suspended")
            await session.answer(paused.approvals[0].id, "allow")

            waits = await agent.resume(session)
            assert (waits.status, paid) == ("paused", [])
            assert f"treadle sessions activate {child.id}" in waits.message

            await child.change(status="active")
        assert (await agent.resume(session)).completed
    assert paid == [40]


async def test_a_deleted_session_of_an_agent_leaves_its_call_of_unknown_outcome(tmp_path: Path) -> None:
    paid.clear()
    agent = lead()
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("Go", session=session)
        async with open_session(tmp_path / "j.db", id=paused.children[0].session_id) as child:
            await child.delete()
        result = await agent.resume(session)
    assert [one.status for one in result.tool_calls] == ["outcome_unknown"]
    assert "subagent_session_missing" in result.messages[-2].results[0].content
    assert paid == []
