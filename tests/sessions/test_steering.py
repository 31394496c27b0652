"""Steering a session that waits: what people say enters after the results of the open step, never between call and result."""

import sqlite3
from pathlib import Path

import pytest
from session_tools import payer, waiting_session

from invariants import check_session
from treadle import ask, open_session
from treadle.errors import SessionConflict
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.sessions.inbox import Inbox
from treadle.state import LeftAnswer
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


@pytest.mark.row("H22")
@pytest.mark.unchecked("its phase is written by hand, without an event")
async def test_a_run_whose_session_was_taken_over_consumes_no_answer(tmp_path: Path) -> None:
    """Found by the simulator: it woke up, found answers to questions that it had never seen, and consumed them."""
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    async with open_session(journal, id="s") as session:
        await journal.append("s", (), state="running", durable=True)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE session SET epoch = epoch + 1")
        connection.close()
        await journal.put("s", LeftAnswer(id="answer:ap_1", answer="allow"))

        with pytest.raises(SessionConflict, match="taken over"):
            await Inbox(session.ledger).read()

    assert [message.id for message in await journal.inbox("s")] == ["answer:ap_1"]
    await journal.close()
