"""What is recorded where a caller ends the session that carried out its call, and what is left alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from test_children import Told, World, children_of, lead, payer

from invariants import check_session
from pipeline_tools import DyingJournal
from treadle import Agent, allow, ask, open_journal, open_session
from treadle.errors import JournalError
from treadle.events import AnyEvent, ChildEnded, RunFinished, RunResumed
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal
from treadle.resolve.archives import import_session
from treadle.testing import FakeClock, ScriptedModel, call, text


def waiting_lead(world: World) -> Agent:
    """An agent whose child asks before it pays."""
    return lead(payer(world, policy=ask("pay")), policy=allow("clerk"))


async def pause(session: Any, clock: FakeClock | None = None) -> None:
    paused = await waiting_lead(World()).run("Pay", session=session)
    assert paused.reason == "approval_required"


def of_type(events: Any, kind: type[AnyEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_a_child_that_its_caller_ends_is_finished_as_cancelled_and_says_why(tmp_path):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        (before,) = await children_of(session)
        await Agent(Told("Never mind.")).run("Forget it", session=session)
        events = await session.journal.read(before.id, after=before.head)
        own = await session.events()

    assert [event.type for event in events] == ["run.resumed", "tool.finished", "run.finished"]
    (resumed,), (finished,) = of_type(events, RunResumed), of_type(events, RunFinished)
    assert (finished.status, finished.reason, finished.completed) == ("stopped", "cancelled", False)
    assert finished.message == "The call that this run carries out has ended."
    assert before.run is not None
    assert (finished.text, finished.profile) == (before.run.text, before.run.profile)
    assert finished.wall_seconds == before.run.spent.wall_seconds
    assert {event.run_id for event in events} == {before.run.id}
    caller = [event.run_id for event in own if event.type == "child.started"]
    assert [resumed.parent, finished.parent] == caller * 2, "a child's events name the run that called it"


async def test_the_caller_records_once_how_its_child_ended_and_what_that_had_spent(tmp_path):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        await Agent(Told("Never mind.")).run("Forget it", session=session)
        await Agent(Told("Nothing.")).run("And now?", session=session)
        (child,) = await children_of(session)
        last = of_type(await session.events(), ChildEnded)[-1]
        ends = [one for one in of_type(await session.events(), ChildEnded) if one.status == "stopped"]

    assert child.run is not None
    assert len(ends) == 1
    assert (last.call_id, last.child_id, last.status, last.reason) == ("clerk_1", child.id, "stopped", "cancelled")
    assert last.spent == child.run.spent
    assert last.spent.usage.input_tokens > 0


async def test_a_child_that_another_process_holds_is_left_to_that(tmp_path, caplog):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        (before,) = await children_of(session)
        async with open_journal(tmp_path / "a.db") as other:
            lease = await other.acquire(before.id, on_lost=lambda: None, on_message=lambda: None)
            await Agent(Told("Never mind.")).run("Forget it", session=session)
            await lease.release()
        (after,) = await children_of(session)
        ends = of_type(await session.events(), ChildEnded)

    assert after.head == before.head
    assert [one.status for one in ends] == ["paused"]
    assert before.id in caplog.text
    assert "is held" in caplog.text


async def test_a_child_that_was_left_behind_by_a_move_ends_as_gone(tmp_path):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        lines = await session.export()
        (child,) = await children_of(session)
    async with open_journal(tmp_path / "b.db") as other:
        await import_session(other, lines, take_open=True)
    async with open_session(tmp_path / "b.db", id="top") as session:
        before = of_type(await session.events(), ChildEnded)
        await Agent(Told("Never mind.")).run("Forget it", session=session)
        ends = of_type(await session.events(), ChildEnded)[len(before) :]

    assert [(one.call_id, one.child_id, one.status) for one in ends] == [("clerk_1", child.id, "gone")]
    assert ends[0].spent == before[-1].spent


async def test_a_child_is_free_again_once_its_caller_has_ended_it(tmp_path):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        await Agent(Told("Never mind.")).run("Forget it", session=session)
        (child,) = await children_of(session)
        journal: Journal = session.journal
        lease = await journal.acquire(child.id, on_lost=lambda: None, on_message=lambda: None)
        await lease.release()
        listed = {found.id: found.run_status for found in await journal.sessions()}

    assert listed[child.id] == "stopped"


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_child_that_has_ended_already_is_not_ended_again(tmp_path, *, is_allowed):
    async with open_session(tmp_path / "a.db", id="top") as session:
        await pause(session)
        await session.answer(session.approvals()[0].id, "allow" if is_allowed else "deny")
        assert (await waiting_lead(World()).resume(session)).completed
        (before,) = await children_of(session)
        await Agent(Told("Hello.")).run("Hello", session=session)
        (after,) = await children_of(session)

    assert after.head == before.head
    assert after.run is not None
    assert after.run.status == "completed"


async def test_a_child_that_ran_when_the_process_died_is_ended_when_its_caller_goes_on_without_it():
    journal = DyingJournal(after="model.started", spares="top")
    async with open_session(journal, id="top") as session:
        with pytest.raises(JournalError):
            await waiting_lead(World()).run("Pay", session=session)
    journal.dies = False
    async with open_session(journal, id="top") as session:
        (before,) = await children_of(session)
        await Agent(Told("Never mind.")).run("Forget it", session=session)
        (after,) = await children_of(session)
        await check_session(session)

    assert before.run is not None
    assert after.run is not None
    assert (before.run.status, after.run.status) == ("running", "stopped")


class Childless(MemoryJournal):
    """A journal that stores nothing of a child's run, as when the process is killed right after its session was made."""

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if session_id != "s" and any(event.type == "run.started" for event in events):
            raise JournalError("killed")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("N07", "N01")
async def test_a_child_that_never_began_its_run_is_ended_with_its_call():
    journal = Childless()
    child = Agent(ScriptedModel([text("x")])).as_tool("research", "Find out.", effect="read")
    async with open_session(journal, id="s") as session:
        turns = [call("research", task="look"), text("I could not.")]
        await Agent(ScriptedModel(turns), tools=[child]).run("go", session=session)
        (ended,) = [event for event in await session.events() if event.type == "child.ended"]
        await check_session(session)

    assert (ended.status, ended.reason) == ("stopped", "cancelled")
