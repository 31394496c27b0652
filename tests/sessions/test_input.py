"""What people say to a session that waits: the input of a call, and messages. One process leaves it in the inbox, another finds it."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from session_tools import payer, waiting_session

from invariants import check_session
from loop_tools import ANYTHING
from treadle import Agent, Suspended, Tool, ToolContext, ask, open_session
from treadle.errors import ConfigurationError, SessionConflict, UnknownInput
from treadle.events import ToolInput, ToolResumed, ToolStarted
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.sessions.inbox import Inbox
from treadle.state import LeftAnswer, LeftInput, LeftMode, LeftUnknown, inbox_message
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


async def ask_person(arguments: JsonObject, ctx: ToolContext) -> str:
    if not ctx.inputs:
        raise Suspended("the colour")
    return f"painted {ctx.inputs[-1]['colour']} with key {ctx.idempotency_key}"


PAINT = Tool(
    name="paint", description="Paint it.", parameters=ANYTHING, effect="unsafe", permission="allow", run=ask_person
)

_LEAVE = """
import asyncio, sys
from treadle import open_session

async def main():
    async with open_session(sys.argv[1], id="s") as session:
        await session.input("a", {"colour": "red"}, by="Ada")
        await session.steer("Use little paint")

asyncio.run(main())
"""


async def pause(journal: object, *, model: ScriptedModel | None = None) -> str | None:
    async with open_session(journal, id="s") as session:  # type: ignore[arg-type]  # a journal or its path
        paused = await Agent(model or ScriptedModel([[call("paint", id="a")]]), tools=[PAINT]).run(
            "go", session=session
        )
        assert session.doubts() == ()
        return paused.reason


@pytest.mark.row("N17")
async def test_an_input_that_another_process_left_is_found_by_the_tool_that_waits_for_it(tmp_path: Path) -> None:
    place = tmp_path / "j.db"
    assert await pause(str(place)) == "input_required"
    subprocess.run([sys.executable, "-c", _LEAVE, str(place)], check=True, timeout=60)

    async with open_session(str(place), id="s") as session:
        model = ScriptedModel([text("done")])
        done = await Agent(model, tools=[PAINT]).resume(session)
        events = await session.events()
        await check_session(session)

    [started] = [event for event in events if isinstance(event, ToolStarted)]
    [given] = [event for event in events if isinstance(event, ToolInput)]
    assert [event.key for event in events if isinstance(event, ToolResumed)] == [started.key]
    assert (done.status, given.by, given.value) == ("completed", "Ada", {"colour": "red"})
    told = [result.content for message in done.messages for result in message.results]
    assert told == [f"painted red with key {started.key}"]
    assert "Use little paint" in [message.text for message in done.messages]


async def test_the_first_input_of_a_suspension_wins_and_the_next_suspension_takes_another() -> None:
    async def twice(arguments: JsonObject, ctx: ToolContext) -> str:
        if len(ctx.inputs) < 2:
            raise Suspended(f"part {len(ctx.inputs) + 1}")
        return "+".join(ctx.inputs)

    tool = Tool(name="add", description="Add.", parameters=ANYTHING, effect="keyed", permission="allow", run=twice)
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([[call("add", id="a")]]), tools=[tool]).run("go", session=session)
        await session.input("a", "one")
        with pytest.raises(UnknownInput, match="first one wins"):
            await session.input("a", "other")
        paused = await Agent(ScriptedModel([text("never")]), tools=[tool]).resume(session)
        assert paused.reason == "input_required"
        await session.input("a", "two")
        done = await Agent(ScriptedModel([text("done")]), tools=[tool]).resume(session)
        await check_session(session)

    assert [one.content for message in done.messages for one in message.results] == ["one+two"]


async def test_an_input_for_a_call_that_does_not_wait_or_that_is_no_json_is_refused() -> None:
    journal = MemoryJournal()
    await pause(journal)
    async with open_session(journal, id="s") as session:
        with pytest.raises(UnknownInput, match="Suspended: a"):
            await session.input("b", 1)
        with pytest.raises(ConfigurationError, match="must be JSON"):
            await session.input("a", {1, 2})
        await session.cancel()
        with pytest.raises(UnknownInput, match="was cancelled"):
            await session.input("a", 1)
        with pytest.raises(UnknownInput) as ended:
            async with open_session("memory:", id="t") as other:
                await other.input("a", 1)
        assert str(ended.value) == "No call 'a' of session 't' waits for an input. Suspended: none."
        assert [message.kind for message in await journal.inbox("s")] == ["cancel"]


@pytest.mark.unchecked("the inbox alone is read, where no run is under way")
async def test_an_input_that_arrives_again_is_taken_in_once() -> None:
    journal = MemoryJournal()
    await pause(journal)
    async with open_session(journal, id="s") as session:
        for name in ("one", "one", "of no call", "another"):
            call_id = "b" if name == "of no call" else "a"
            await journal.put("s", LeftInput(id=name, call_id=call_id, value=1, by="ada", at=50.0))
            await Inbox(session.ledger).read(at_once=True)
        taken = [event for event in await session.events() if isinstance(event, ToolInput)]

    assert [(one.message_id, one.value, one.by, one.given_at) for one in taken] == [
        ("one", 1, "ada", 50.0),
        ("another", 1, "ada", 50.0),
    ]


@pytest.mark.unchecked("what lies in the inbox is left there by hand")
async def test_what_no_run_understands_yet_stays_in_the_inbox() -> None:
    journal = MemoryJournal()
    await pause(journal)
    left = [LeftMode(id="mode", mode="dream"), LeftUnknown(id="new", stored_kind="vote", stored_body={"for": "red"})]
    for message in left:
        await journal.put("s", message)
    async with open_session(journal, id="s") as session:
        await session.input("a", {"colour": "blue"})
        done = await Agent(ScriptedModel([text("done")]), tools=[PAINT]).resume(session)

    assert done.status == "completed"
    assert list(await journal.inbox("s")) == left


def test_every_kind_of_message_is_read_back_from_its_stored_form_and_a_damaged_field_has_its_default() -> None:
    for message in (LeftInput(id="i", call_id="a", value=[1], at=2.0), LeftMode(id="m", mode="plan")):
        assert inbox_message(message.id, message.kind, message.body) == message
    damaged = inbox_message("i", "input", {"call_id": 7, "value": 8, "at": "noon"})
    assert damaged == LeftInput(id="i", value=8)
    assert inbox_message("v", "vote", {"x": 1}) == LeftUnknown(id="v", stored_kind="vote", stored_body={"x": 1})


async def test_an_input_that_was_taken_in_before_a_crash_and_a_move_is_the_one_that_counts() -> None:
    journal, moved = MemoryJournal(), MemoryJournal()
    await pause(journal)
    async with open_session(journal, id="s") as session:
        await session.input("a", {"colour": "red"})
        await Agent(ScriptedModel([text("done")]), tools=[PAINT]).resume(session)
        events = await session.events()
    taken = next(place for place, event in enumerate(events) if isinstance(event, ToolInput))
    await moved.adopt(
        "s", events[: taken + 1], state="running"
    )  # a move leaves behind what the inbox had brought before

    async with open_session(moved, id="s") as session:
        with pytest.raises(UnknownInput, match="first one wins"):
            await session.input("a", {"colour": "blue"})
        done = await Agent(ScriptedModel([text("done")]), tools=[PAINT]).resume(session)
        await check_session(session)

    [painted] = [result.content for message in done.messages for result in message.results]
    assert painted.startswith("painted red")


# --- messages: they enter after the results of the open step, never between call and result


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
@pytest.mark.unchecked("its status is written by hand, without an event")
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
