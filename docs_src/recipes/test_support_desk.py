"""Tests of the desk, without a server and without a network."""

from support_desk import Outcome, desk

from treadle.testing import ScriptedModel, call, text


async def test_a_refund_waits_for_a_person() -> None:
    done = Outcome(solved=True, refunded_euros=20, summary="Refunded.")
    asked = call("refund", order="order-17", euros=20)
    agent = desk.replace(model=ScriptedModel([asked, text(done.model_dump_json())]))
    paused = await agent.run("My parcel is lost")
    await paused.session.answer(paused.approvals[0].id, "allow", by="bo")
    assert (await agent.resume(paused.session)).output == done
