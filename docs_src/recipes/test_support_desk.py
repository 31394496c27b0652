"""Tests of the desk, without a server and without a network."""

from support_desk import Outcome, make_desk

from treadle.testing import ScriptedModel, call, text


async def test_a_refund_waits_for_a_person() -> None:
    done = Outcome(solved=True, refunded_euros=20, summary="Refunded.")
    desk = make_desk(ScriptedModel([call("refund", order="order-17", euros=20), text(done.model_dump_json())]))
    paused = await desk.run("My parcel is lost")
    await paused.session.answer(paused.approvals[0].id, "allow", by="bo")
    assert (await desk.resume(paused.session)).output == done
