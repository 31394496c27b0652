"""Step 5: tests of the chat, without a server, a key or a network. Run them with: MODEL=demo pytest -o asyncio_mode=auto test_chat.py"""

import pytest
from chat_3 import REFUNDS, find_orders, make_agent, refund

from treadle import Rejected
from treadle.testing import ScriptedModel, call, text, tool_context


async def test_a_customer_sees_no_orders_of_others() -> None:
    assert list(await find_orders(tool_context(deps="ada"))) == ["17"]
    assert await find_orders(tool_context(deps="bo")) == {}


async def test_an_order_of_somebody_else_is_refused() -> None:
    with pytest.raises(Rejected):
        await refund("17", tool_context(deps="bo"))


async def test_a_refund_waits_for_a_person_and_happens_once() -> None:
    REFUNDS.clear()
    agent = make_agent(ScriptedModel([call("refund", order="17"), text("It is refunded.")]))
    paused = await agent.run("My teapot never came", deps="ada")
    assert paused.reason == "approval_required"
    assert REFUNDS == {}

    await paused.session.answer(paused.approvals[0].id, "allow", by="bo")
    result = await agent.resume(paused.session, deps="ada")

    assert result.text == "It is refunded."
    assert list(REFUNDS.values()) == ["order 17 is refunded"]


async def test_a_refusal_reaches_the_model_with_its_reason() -> None:
    model = ScriptedModel([call("refund", order="17"), text("I am sorry.")])
    paused = await make_agent(model).run("My teapot never came", deps="ada")

    await paused.session.answer(paused.approvals[0].id, "deny", by="bo", reason="It came yesterday.")
    await make_agent(model).resume(paused.session, deps="ada")

    assert "It came yesterday." in model.requests[-1].messages[-1].results[0].content
