"""Steering a session that waits: what people say enters after the results of the open step, never between call and result."""

import pytest
from session_tools import payer, waiting_session

from invariants import check_session
from treadle import ask, open_session
from treadle.ports import Journal
from treadle.testing import ScriptedModel, text


@pytest.mark.row("H22")
@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_a_message_for_a_paused_session_follows_the_results_of_its_calls(journal: Journal, answer: str) -> None:
    model = ScriptedModel([text("Done.")])
    async with await waiting_session(journal) as session:
        await session.answer(session.approvals()[0].id, answer)  # type: ignore[arg-type]
        result = await payer(model, policy=ask("pay")).resume(session)
        await check_session(session)

    assert result.completed
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert model.requests[0].messages[-1].text == "Hurry up"
    assert "history.repaired" not in [event.type for event in await session.events()]


@pytest.mark.row("H22")
async def test_a_message_stays_while_a_session_still_waits_for_a_person(journal: Journal) -> None:
    async with await waiting_session(journal) as session:
        result = await payer(ScriptedModel([text("never")]), policy=ask("pay")).resume(session)

    assert result.reason == "approval_required"
    assert [message.kind for message in await journal.inbox("w")] == ["message"]
    async with open_session(journal, id="w") as again:
        await again.answer(again.approvals()[0].id, "allow")
        done = await payer(ScriptedModel([text("Done.")]), policy=ask("pay")).resume(again)

    assert [message.text for message in done.messages if message.role == "user"] == ["Pay 7", "Hurry up"]
    assert await journal.inbox("w") == ()
