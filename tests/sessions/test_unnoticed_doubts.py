"""What a survey of mutations showed that no test noticed: outcomes that stay unknown, and what a person says of them."""

import pytest
from session_tools import Bank

from invariants import check_session
from treadle import Agent, NotDone, Unknown, open_session
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, text


@pytest.mark.row("HF3")
async def test_a_call_that_a_person_resolves_as_unknown_is_reported_so_and_never_runs_again() -> None:
    bank, journal = Bank(), MemoryJournal()
    await bank.break_off(journal)

    async with open_session(journal, id="s") as session:
        await session.resolve("p", Unknown, by="ada", reason="The bank does not answer.")
        done = await bank.agent(text("I do not know.")).resume(session)
        await check_session(session)
        [event] = [one for one in await session.events() if one.type == "tool.resolved"]

    assert [(one.id, one.status) for one in done.tool_calls] == [("p", "outcome_unknown")]
    assert (done.text, bank.paid) == ("I do not know.", ["7"])
    assert (event.outcome, event.by, event.reason) == ("unknown", "ada", "The bank does not answer.")


@pytest.mark.row("HF3")
async def test_a_cancelled_run_decides_on_no_call_that_was_not_done_and_the_next_one_reports_what_the_person_said() -> (
    None
):
    bank, journal = Bank(), MemoryJournal()
    await bank.break_off(journal)

    async with open_session(journal, id="s") as session:
        await session.resolve("p", NotDone, by="ada")
        await session.cancel()
        before = session.state.head
        done = await bank.agent(text("x")).resume(session)
        recorded = [one.type for one in await session.events() if one.seq > before]
        model = ScriptedModel([text("I see.")])
        await Agent(model, tools=[bank.tool()]).run("And now?", session=session)
        await check_session(session)

    assert (done.reason, bank.paid) == ("cancelled", ["7"])
    assert recorded == ["run.resumed", "tool.in_doubt", "tool.finished", "run.finished"]
    assert any("was not carried out" in message.text for message in model.requests[0].messages)
