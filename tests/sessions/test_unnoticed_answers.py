"""What mutations by hand showed that no test noticed: what people say to a session, and what is told of it."""

import msgspec
import pytest
from session_tools import Bank, payer

from treadle import Done, Unknown, UnknownApproval, ask, open_session
from treadle.errors import JournalError
from treadle.journals.memory import MemoryJournal
from treadle.sessions.transfer import Parcel, unpack
from treadle.state import InboxMessage, LeftAnswer
from treadle.testing import ScriptedModel, call, text


@pytest.mark.row("R-MODE")
async def test_the_mode_that_was_set_last_holds_before_a_run_has_taken_either_in() -> None:
    async with open_session("memory:") as session:
        await session.set_mode("plan")
        await session.set_mode("bypass")
        assert session.mode == "bypass"


class Outrun(MemoryJournal):
    """A store in which somebody else's answer arrives a moment before ours."""

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        if isinstance(message, LeftAnswer) and message.approved_by != "bob":
            await super().put(session_id, msgspec.structs.replace(message, approved_by="bob"))
        return await super().put(session_id, message)


async def test_an_answer_that_comes_a_moment_after_another_is_refused_and_names_who_was_first() -> None:
    async with open_session(Outrun()) as session:
        paused = await payer(ScriptedModel([call("pay", amount=7)]), policy=ask("pay")).run("Pay", session=session)
        with pytest.raises(UnknownApproval, match="by bob"):
            await session.answer(paused.approvals[0].id, "allow", by="ada")


async def test_what_nobody_knew_for_a_while_can_be_said_once_a_receipt_turns_up(bank: Bank) -> None:
    journal = MemoryJournal()
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("Nobody knows.")).resume(session)
        await session.resolve("p", Unknown)
        assert session.doubts() == ()
        await session.resolve("p", Done({"receipt": 1}), by="kim")
        outcomes = [one.outcome for one in (await session.explain()).resolved]
    assert outcomes == ["unknown", "done"]


async def test_a_run_of_a_session_that_people_have_suspended_cannot_be_resumed_says_its_explanation() -> None:
    async with open_session("memory:") as session:
        await payer(ScriptedModel([call("pay", amount=7)]), policy=ask("pay")).run("Pay", session=session)
        assert (await session.explain()).rerun.can_resume
        await session.change(status="suspended")
        assert not (await session.explain()).rerun.can_resume


async def test_a_request_that_was_replaced_twice_is_answered_by_its_newest_id_alone() -> None:
    paid: list[tuple[int, str]] = []
    model = ScriptedModel([call("pay", amount=7), text("Paid.")])
    async with open_session("memory:") as session:
        agent = payer(model, paid, policy=ask("pay"))
        first = waiting = (await agent.run("Pay", session=session)).approvals[0]
        for _ in range(2):
            await session.answer(waiting.id, "allow", arguments={"amount": "many"})
            waiting = (await agent.resume(session)).approvals[0]
            assert waiting.replaces == first.id
        with pytest.raises(UnknownApproval, match=f"could not be used, so '{waiting.id}' has replaced it"):
            await session.answer(first.id, "allow")
        await session.answer(waiting.id, "allow", arguments={"amount": 8})
        done = await agent.resume(session)
    assert done.completed
    assert [amount for amount, _ in paid] == [8]


async def test_an_export_with_an_event_that_is_never_stored_cannot_be_read() -> None:
    async with open_session("memory:") as session:
        await payer(ScriptedModel([text("Hello.")])).run("Hi", session=session)
        lines = list(await session.export())
    parcel: Parcel = unpack(lines)
    live = b'{"type":"model.delta","seq":2,"session_id":"%b","text":"x","step":1}' % parcel.session_id.encode()
    with pytest.raises(JournalError, match="event 2 is missing"):
        unpack([lines[0], lines[1], live, *lines[3:]])
