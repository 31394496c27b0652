"""Where a doubt, a cancellation or an answer meets another feature: agents as tools, forks, moves, live runs, two persons."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from session_tools import Bank, Dead, held_tool, payer, waiting_session

from invariants import check_session
from pipeline_tools import called_through
from treadle import Agent, Done, NotDone, Run, SessionHeld, allow, ask, open_session
from treadle.errors import JournalError, NothingToResume, SessionNotActive, UnknownApproval, UnknownDoubt
from treadle.events import AnyEvent, ToolResolved
from treadle.journals.memory import MemoryJournal
from treadle.journals.store import waiting_approvals
from treadle.ports import InboxMessage, Journal
from treadle.resolve.archives import import_session, list_doubts
from treadle.testing import FaultyJournal, ScriptedModel, call, text

pytestmark = pytest.mark.parametrize(
    "journal", ["memory", *(pytest.param(one, marks=pytest.mark.soak) for one in ("sqlite", "postgres"))], indirect=True
)


async def break_off(journal: Journal, bank: Bank) -> None:
    """Leave a session `s` whose clerk has paid, and nobody was told."""
    async with open_session(Dead(journal), id="s") as session:
        agent = called_through(bank.agent([call("pay", id="p", invoice="7")]), "clerk")
        with pytest.raises(JournalError, match="gone"):
            await agent.run("Pay", session=session)


def resuming(bank: Bank, child: list[Any], *turns: Any) -> tuple[Agent, ScriptedModel, ScriptedModel]:
    below, above = ScriptedModel(child), ScriptedModel(list(turns))
    clerk = Agent(below, tools=[bank.tool()])
    return Agent(above, tools=[clerk.as_tool("clerk", "Have it paid.")], policy=allow("*")), below, above


def heard(model: ScriptedModel) -> str:
    return " ".join(
        [message.text for message in model.requests[-1].messages]
        + [part.content for message in model.requests[-1].messages for part in message.results]
    )


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("by_parent", [False, True])
async def test_a_doubt_of_an_agent_that_is_a_tool_is_resolved_before_it_goes_on(
    journal: Journal, bank: Bank, by_parent: bool
) -> None:
    await break_off(journal, bank)
    [doubt] = await list_doubts(journal)
    async with open_session(journal, id="s" if by_parent else doubt.session_id) as session:
        await session.resolve("p", Done({"receipt": 4711}), by="ada")
    assert await list_doubts(journal) == ()
    agent, below, _ = resuming(bank, [text("Paid.")], text("All done."))
    async with open_session(journal, id="s") as session:
        done = await agent.resume(session)
        await check_session(session)
    assert (done.reason, bank.paid) == ("completed", ["7"])
    assert "4711" in heard(below)


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("by_parent", [False, True])
async def test_a_doubt_of_an_agent_that_has_ended_is_told_to_its_callers_model(
    journal: Journal, bank: Bank, by_parent: bool
) -> None:
    await break_off(journal, bank)
    agent, _, _ = resuming(bank, [text("I do not know.")], text("Nobody knows."))
    async with open_session(journal, id="s") as session:
        await agent.resume(session)
    [doubt] = await list_doubts(journal)
    assert (doubt.call_id, doubt.is_told) == ("p", True)
    async with open_session(journal, id="s" if by_parent else doubt.session_id) as session:
        await session.resolve("p", Done({"receipt": 4711}), by="ada")
        with pytest.raises(UnknownDoubt):
            await session.resolve("p", NotDone)
    assert await list_doubts(journal) == ()
    agent, _, above = resuming(bank, [text("never")], text("I see."))
    async with open_session(journal, id="s") as session:
        await agent.run("And now?", session=session)
        await check_session(session)
    assert "4711" in heard(above)
    assert bank.paid == ["7"]


@pytest.mark.row("ST10")
@pytest.mark.parametrize("by_parent", [False, True])
async def test_a_doubt_of_an_agent_that_waits_for_a_person_is_told_to_its_own_model_alone(
    journal: Journal, bank: Bank, by_parent: bool
) -> None:
    await break_off(journal, bank)
    below, above = ScriptedModel([call("pay", id="q", invoice="8"), text("Paid.")]), ScriptedModel([text("I see.")])
    clerk = Agent(below, tools=[bank.tool()], policy=ask("pay"), in_doubt="tell")
    agent = Agent(above, tools=[clerk.as_tool("clerk", "Have it paid.")], policy=allow("*"), in_doubt="tell")
    async with open_session(journal, id="s") as session:
        waiting = await agent.resume(session)
    [approval] = [one for one in waiting.approvals if one.call_id == "q"]
    async with open_session(journal, id="s" if by_parent else approval.session_id) as session:
        await session.resolve("p", Done({"receipt": 4711}), by="ada")
    async with open_session(journal, id="s") as session:
        assert [event for event in await session.events() if isinstance(event, ToolResolved)] == []
        await session.answer(approval.id, "allow")
        done = await agent.resume(session)
        await check_session(session)

    assert (done.reason, bank.paid) == ("completed", ["7", "8"])
    assert "4711" in heard(below)
    assert "4711" not in heard(above)


@pytest.mark.row("ST10")
async def test_a_fork_and_its_source_resolve_a_doubt_each_for_itself(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("Unknown.")).resume(session)
        fork = await session.fork(id="f")
        await session.resolve("p", Done(1), by="ada")
        assert [doubt.session_id for doubt in await list_doubts(journal)] == ["f"]
        await fork.resolve("p", Done(1), by="ada")
        later = await session.fork(id="g")
        assert later.doubts() == ()
    assert await list_doubts(journal) == ()


@pytest.mark.row("ST10", "H06")
@pytest.mark.parametrize("is_told", [False, True])
async def test_an_exported_doubt_arrives_and_cannot_act_at_two_places(
    journal: Journal, bank: Bank, is_told: bool
) -> None:
    await bank.break_off(journal)
    target = MemoryJournal()
    async with open_session(journal, id="s") as session:
        if is_told:
            await bank.agent(text("Unknown.")).resume(session)
        await import_session(target, await session.export())
    assert [doubt.is_told for doubt in await list_doubts(target)] == [is_told]
    async with open_session(target, id="s") as session:
        await session.resolve("p", NotDone)
        if not is_told:
            with pytest.raises(SessionNotActive):
                await bank.agent(text("Paid.")).resume(session)
    assert bank.paid == ["7"]


@pytest.mark.row("ST10", "HF3")
async def test_two_persons_at_once_give_one_resolution(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as one, open_session(journal, id="s") as two:
        said = await asyncio.gather(
            one.resolve("p", Done(1), by="ada"), two.resolve("p", NotDone, by="kim"), return_exceptions=True
        )
        refused = [error for error in said if error is not None]
        assert len(refused) == 1
        assert isinstance(refused[0], SessionHeld | UnknownDoubt)
        await one.refresh()
    async with open_session(journal, id="s") as session:
        assert [event.type for event in await session.events()].count("tool.resolved") == 1


@pytest.mark.row("ST10")
async def test_a_doubt_cannot_be_resolved_while_a_run_is_live_and_can_after_it(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("Unknown.")).resume(session)
    look, entered, gate = held_tool("look", "read")
    async with open_session(journal, id="s") as session, open_session(journal, id="s") as person:
        model = ScriptedModel([call("look"), text("Seen.")])
        running = asyncio.create_task(Agent(model, tools=[look]).run("Look", session=session))
        await entered.wait()
        assert [doubt.call_id for doubt in await list_doubts(journal)] == ["p"]
        with pytest.raises(SessionHeld):
            await person.resolve("p", Done(1))
        gate.open()
        await running
        await person.resolve("p", Done(1))
        assert await list_doubts(journal) == ()


@pytest.mark.row("HF2", "H06")
@pytest.mark.parametrize("purge", [False, True])
async def test_a_deleted_session_asks_nobody_and_takes_no_answer(journal: Journal, purge: bool) -> None:
    paid: list[tuple[int, str]] = []
    session = await waiting_session(journal, "s")
    [approval] = await session.approvals()
    await session.delete(purge=purge)
    assert await journal.approvals() == await session.approvals() == ()
    with pytest.raises(UnknownApproval):
        await session.answer(approval.id, "allow")
    with pytest.raises((SessionNotActive, NothingToResume)):
        await payer(ScriptedModel([text("x")]), paid, policy=ask("pay")).resume(session)
    assert paid == []


class Cutting(FaultyJournal):
    """A journal that does all its work, and cancels a run in the middle of one operation, which takes a while."""

    run: Run | None = None

    def __init__(self, journal: Journal, at: int) -> None:
        super().__init__(journal, fail_at=0)
        self._at = at

    def _look(self) -> None:
        if self.operations == self._at and self.run is not None:
            self.run.cancel()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        events = await super().read(session_id, after=after)
        self._look()
        await asyncio.sleep(0)
        return events

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        await super().append(session_id, events, state=state, durable=durable)
        self._look()
        await asyncio.sleep(0)

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        messages = await super().inbox(session_id)
        self._look()
        await asyncio.sleep(0)
        return messages


@pytest.mark.row("ST04", "HF2")
@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_caller_cancelled_in_any_look_at_the_journal_knows_what_its_agent_did(
    journal: Journal, bank: Bank, is_allowed: bool
) -> None:
    """A call that an agent carries out is in no doubt: the session of the agent says what was done."""
    at, has_cut = 0, True
    while has_cut:
        at, name = at + 1, f"s{at + 1}"
        bank.paid.clear()
        async with open_session(journal, id=name) as session:
            [approval] = (await caller_of(bank).run("Pay", session=session)).approvals
            if is_allowed:
                await session.answer(approval.id, "allow")
        cutting = Cutting(journal, at)
        async with open_session(cutting, id=name) as session:
            run = cutting.run = caller_of(bank).stream_resume(session)
            with suppress(asyncio.CancelledError):  # it was cancelled before it began
                await run.finish()
            has_cut = cutting.operations >= at
            while session.state.run.status == "running" or (session.state.run.status == "paused" and is_allowed):
                await caller_of(bank).resume(session)
            await check_session(session)
            results = [event.result.status for event in await session.events() if event.type == "tool.finished"]
        doubts = [doubt.tool for doubt in await list_doubts(journal)]
        assert doubts in ([], ["pay"] * len(bank.paid)), f"cancelled at operation {at}"
        assert "outcome_unknown" not in results, f"cancelled at operation {at}"
    assert at > 5


def caller_of(bank: Bank) -> Agent:
    below = ScriptedModel([call("pay", id="p", invoice="7"), text("Paid.")], follows_history=True)
    return called_through(Agent(below, tools=[bank.tool()], policy=ask("pay")), "clerk")


class Between(FaultyJournal):
    """A journal in which a run continues to its end, once, between two looks of somebody else."""

    def __init__(self, journal: Journal, live: Callable[[], Awaitable[object]]) -> None:
        super().__init__(journal, fail_at=0)
        self._live: Callable[[], Awaitable[object]] | None = live

    async def _go_on(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live()

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        events = await super().read(session_id, after=after)
        await self._go_on()
        return events

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        messages = await super().inbox(session_id)
        await self._go_on()
        return messages


@pytest.mark.row("ST11", "HF2")
@pytest.mark.parametrize("of_journal", [False, True])
async def test_an_answer_that_a_run_takes_in_during_a_look_is_asked_for_no_more(
    journal: Journal, bank: Bank, of_journal: bool
) -> None:
    async with open_session(journal, id="s") as session:
        asking = bank.agent(call("pay", id="p", invoice="7"), policy=ask("pay"))
        [approval] = (await asking.run("Pay", session=session)).approvals
        await session.answer(approval.id, "allow")

    async def live() -> None:
        async with open_session(journal, id="s") as other:
            assert (await bank.agent(text("Paid."), policy=ask("pay")).resume(other)).completed

    async with open_session(journal, id="s") as looking:
        looking.journal = between = Between(journal, live)
        found = await waiting_approvals(between) if of_journal else await looking.approvals()
    assert (tuple(found), bank.paid) == ((), ["7"])
