"""A person who is asked about a call anyway also learns why it may act a second time."""

import pytest

from treadle import Agent, RequireApproval, ToolList, allow, ask, open_session, resolve_model, tool
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    raise ConnectionError("the bank hung up")


WHY_ASKED = {
    "the default asks": {"tools": [pay]},
    "a rule asks": {"tools": [pay], "policy": ask("pay")},
    "the tool asks": {"tools": [RequireApproval(ToolList([pay], name="bank"))], "policy": allow("pay")},
}


@pytest.mark.parametrize("why", WHY_ASKED)
async def test_a_question_about_a_call_that_equals_one_in_doubt_says_so(why):
    agent = Agent(ScriptedModel([call("pay", amount=40), call("pay", amount=40), text("Done.")]), **WHY_ASKED[why])
    async with open_session("memory:") as session:
        (first,) = (await agent.run("Pay", session=session)).approvals
        await session.answer(first.id, "allow")
        (second,) = (await agent.resume(session)).approvals

        assert (first.approval_type, second.approval_type) == ("tool_call", "in_doubt")
        assert "whose outcome is unknown" in second.reason
        await session.answer(second.id, "deny")
        result = await agent.resume(session)

    assert [one.status for one in result.tool_calls] == ["outcome_unknown", "denied"]


async def test_a_question_about_a_call_that_may_be_reported_twice_says_so():
    twice = Turn(calls=(call("pay", id="same", amount=40), call("pay", id="same", amount=41)))
    async with MockProvider([twice, text("Done.")]) as provider:
        agent = Agent(resolve_model("openai-chat:any", base_url=provider.base_url), tools=[pay])
        async with open_session("memory:") as session:
            asked = (await agent.run("Pay", session=session)).approvals
    assert [one.approval_type for one in asked] == ["tool_call", "possible_repetition"]
