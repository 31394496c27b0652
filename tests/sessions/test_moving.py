"""A move closes the source first; an import of calls that may still act asks: one approval has one effect."""

from typing import Any

import pytest
from session_tools import Bank, payer, stored_session, waiting_session

from treadle import (
    Agent,
    ConfigurationError,
    Done,
    NoSuchPoint,
    SessionHeld,
    SessionMoved,
    SessionNotActive,
    allow,
    ask,
    import_session,
    list_doubts,
    open_session,
)
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text


async def resumed(journal: Journal, paid: list[tuple[int, str]], name: str = "s") -> str:
    """Resume a session; return how it ended, or the name of the error."""
    async with open_session(journal, id=name) as session:
        try:
            done = await payer(ScriptedModel([text("Paid.")]), paid, policy=ask("pay")).resume(session)
        except SessionNotActive as refused:
            return type(refused).__name__
        return done.reason.value


@pytest.mark.row("H06")
async def test_an_export_of_a_moved_session_does_not_go_on_elsewhere(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    copy = MemoryJournal()
    await import_session(target, await source.move("the other journal"), take_open=True)
    await import_session(copy, await source.export())
    async with open_session(target, id="s") as moved:
        await moved.answer(moved.approvals()[0].id, "allow")

    assert (await resumed(copy, paid), await resumed(target, paid)) == ("SessionMoved", "completed")
    assert [amount for amount, _ in paid] == [7]


@pytest.mark.row("H06")
async def test_the_lines_of_one_move_imported_at_two_places_act_at_the_one_that_a_person_names(
    journal: Journal,
) -> None:
    source, paid = await waiting_session(journal, "s"), list[tuple[int, str]]()
    await source.answer(source.approvals()[0].id, "allow")
    lines = await source.move("b")
    places = [MemoryJournal(), MemoryJournal()]
    for place in places:
        await import_session(place, lines)

    assert [await resumed(place, paid) for place in places] == ["SessionNotActive"] * 2
    async with open_session(places[1], id="s") as moved:
        await moved.change(status="active", by="ada")
    assert [await resumed(place, paid) for place in places] == ["SessionNotActive", "completed"]
    assert [amount for amount, _ in paid] == [7]


@pytest.mark.row("H06", "N14")
async def test_a_moved_session_acts_once_and_its_source_names_where_it_went(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    [approval] = source.approvals()
    lines = await source.move("the other journal", by="ada")
    assert await import_session(target, lines, take_open=True) == "s"

    for act in (
        source.answer(approval.id, "allow"),
        source.steer("Hurry"),
        source.cancel(),
        source.resolve("x", Done()),
        payer(ScriptedModel([text("x")])).run("go", session=source),
        source.move("a third journal"),
    ):
        with pytest.raises(SessionMoved, match=r"was moved to the other journal and continues there"):
            await act
    assert await source.approvals() == await journal.approvals() == ()
    async with open_session(target, id="s") as moved:
        assert [one.id for one in await moved.approvals()] == [approval.id]
        await moved.answer(approval.id, "allow")

    assert (await resumed(journal, paid), await resumed(target, paid)) == ("SessionMoved", "completed")
    assert [amount for amount, _ in paid] == [7]


@pytest.mark.row("H06", "N14")
@pytest.mark.parametrize("answered", [False, True])
async def test_an_import_of_an_open_effect_is_suspended_until_its_source_is_closed(
    journal: Journal, answered: bool
) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    [approval] = source.approvals()
    if answered:
        await source.answer(approval.id, "allow")
    lines = await source.export()
    await import_session(target, lines)
    if not answered:
        for place in (journal, target):
            async with open_session(place, id="s") as session:
                await session.answer(approval.id, "allow")

    assert [await resumed(journal, paid), await resumed(target, paid)] == ["completed", "SessionNotActive"]
    assert [amount for amount, _ in paid] == [7]
    (info,) = await target.sessions()
    assert info.status == "suspended"


@pytest.mark.row("H06")
async def test_an_open_effect_can_be_taken_on_the_word_of_whoever_imports(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    await source.answer(source.approvals()[0].id, "allow")
    await import_session(target, await source.export(), take_open=True)
    assert await resumed(target, paid) == "completed"


async def test_a_session_without_open_effects_is_imported_active(journal: Journal) -> None:
    await stored_session(journal)
    target = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await import_session(target, await session.export())
    assert [info.status for info in await target.sessions()] == ["active"]


@pytest.mark.row("H06", "ST10")
async def test_a_call_in_doubt_moves_and_is_resolved_where_it_went(journal: Journal) -> None:
    bank, target = Bank(), MemoryJournal()
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        lines = await session.move("b")
    await import_session(target, lines, take_open=True)
    async with open_session(target, id="s") as session:
        await session.resolve("p", Done({"receipt": 1}))
        done = await bank.agent(text("Paid.")).resume(session)
    assert (done.reason, bank.paid) == ("completed", ["7"])
    assert await list_doubts(target) == ()


@pytest.mark.row("HF2", "ST04")
async def test_a_cancellation_goes_along(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    await source.answer(source.approvals()[0].id, "allow")
    await source.cancel()
    await import_session(target, await source.move("b"), take_open=True)
    assert await target.approvals() == ()
    assert (await resumed(target, paid), paid) == ("cancelled", [])


@pytest.mark.row("H06")
async def test_a_move_can_be_repeated_and_taken_back(journal: Journal) -> None:
    source, paid = await waiting_session(journal, "s"), list[tuple[int, str]]()
    assert await source.move("b") == await source.move("b")
    for status in ("active", "suspended", "completed"):
        with pytest.raises(SessionMoved, match="take_back=True"):
            await source.change(status=status)
    await source.change(metadata={"team": "payments"})
    assert source.state.moved_to == "b"
    await source.change(status="active", take_back=True)
    [approval] = await source.approvals()
    await source.answer(approval.id, "allow")
    assert (await resumed(journal, paid), len(paid)) == ("completed", 1)


async def test_a_live_session_is_not_moved(journal: Journal) -> None:
    async with open_session(journal, id="s") as session, open_session(journal, id="s") as other:
        await session.hold(on_lost=lambda: None, on_message=lambda: None)
        with pytest.raises(SessionHeld):
            await other.move("b")
        await session.release()


@pytest.mark.parametrize("to", ["", " ", 5, "\ud800"])
async def test_a_move_says_where_to(journal: Journal, to: Any) -> None:
    session = await waiting_session(journal, "s")
    with pytest.raises(ConfigurationError):
        await session.move(to)
    assert session.state.moved_to == ""


@pytest.mark.row("H06", "HF3")
async def test_a_session_whose_agent_is_at_work_is_moved_once_that_call_has_ended(journal: Journal) -> None:
    bank, target = Bank(), MemoryJournal()
    clerk = bank.agent([call("pay", id="p", invoice="7")], text("Paid."), policy=ask("pay"))
    above = ScriptedModel([call("clerk", id="c", task="Pay"), text("Done.")], follows_history=True)
    agent = Agent(above, tools=[clerk.as_tool("clerk", "Have it paid.")], policy=allow("*"))
    async with open_session(journal, id="s") as session:
        await agent.run("Pay", session=session)
        with pytest.raises(NoSuchPoint, match=r"does not carry that session\. End the call first: resume the run"):
            await session.move("b")
        await session.cancel()
        assert (await agent.resume(session)).reason == "cancelled"
        await import_session(target, await session.move("b"))
    async with open_session(target, id="s") as moved:
        assert (await Agent(ScriptedModel([text("Here.")])).run("And now?", session=moved)).completed
    assert bank.paid == []
