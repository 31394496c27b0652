"""What people make of a session: status, metadata, deletion; what it is listed as, and which acts it refuses once it was moved or deleted."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from session_tools import long_tool, payer, stored_session, waiting_session

from treadle import Agent, Budget, NotDone, Session, open_session
from treadle.canonical import digest
from treadle.errors import ModelRejected, SessionConflict, SessionExists, SessionMoved, SessionNotActive
from treadle.events import (
    AnyEvent,
    ChildStarted,
    MessageAdded,
    ModeChanged,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionRewound,
    TaskSubmitted,
    TaskWithdrawn,
)
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.messages import Message, Text, user_message
from treadle.ports import Journal
from treadle.resolve.archives import expire_sessions, import_session
from treadle.testing import FaultyModel, ScriptedModel, call, text


@pytest.mark.row("Q08")
async def test_a_run_that_failed_leaves_its_session_active(journal: Journal) -> None:
    async with open_session(journal, id="s") as session:
        faulty = FaultyModel(ScriptedModel([text("x")]), fail_at=1, error=ModelRejected("No."))
        failed = await Agent(faulty).run("go", session=session)
        assert failed.status == "failed"
        assert (session.state.status, session.state.own_status) == ("failed", "active")
        assert (await payer(ScriptedModel([text("ok")])).run("again", session=session)).completed

    (info,) = await journal.sessions()
    assert (info.status, info.own_status) == ("completed", "active")


@pytest.mark.row("Q08")
@pytest.mark.parametrize("status", ["suspended", "completed", "failed"])
async def test_no_run_begins_in_a_session_that_is_not_active_until_it_is_again(journal: Journal, status: str) -> None:
    await stored_session(journal)
    model = ScriptedModel([text("ok")])
    async with open_session(journal, id="s") as session:
        await session.change(status=status, reason="month's end", by="ops")  # type: ignore[arg-type]
        events = await session.events()
        for act in (payer(model).run("go", session=session), payer(model).resume(session)):
            with pytest.raises(SessionNotActive, match=status):
                await act
        assert await session.events() == events
        assert [info.status for info in await journal.sessions()] == [status]
        await session.change(status="active")
        assert (await payer(model).run("go", session=session)).completed

    assert [event.by for event in events if isinstance(event, SessionChanged)] == ["ops"]


@pytest.mark.row("Q06")
async def test_a_second_task_sees_the_calls_and_results_of_the_first(journal: Journal) -> None:
    model = ScriptedModel([call("look"), text("Forty."), text("As I said, forty.")])
    async with open_session(journal, id="s") as session:
        await payer(model).run("How much?", session=session)
    async with open_session(journal, id="s") as session:
        await payer(model).run("Again?", session=session)

    messages = model.requests[-1].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1].calls[0].id == messages[2].results[0].call_id
    assert messages[2].results[0].content == '{"open":40}'


@pytest.mark.row("Q12")
async def test_another_model_and_other_instructions_hold_from_the_next_request_and_are_on_record(
    journal: Journal,
) -> None:
    first, second = ScriptedModel([text("one")]), ScriptedModel([text("two")], name="second")
    async with open_session(journal, id="s") as session:
        await Agent(first, instructions="Be brief.").run("a", session=session)
        await session.change(metadata={"tier": "gold", "region": "eu"})
        await session.change(metadata={"region": None})
        await Agent(second, instructions="Be long.").run("b", session=session)

        assert second.requests[0].instructions == "Be long."
        assert [message.text for message in second.requests[0].messages] == ["a", "one", "b"]
        started = [event for event in await session.events() if isinstance(event, RunStarted)]
        asked = [event.model for event in await session.events() if isinstance(event, ModelStarted)]
        assert [event.model for event in started] == asked == [first.name, "second"]
        assert len({event.instructions for event in started}) == 2
        assert session.state.metadata == {"tier": "gold"}
    async with open_session(journal, id="s") as again:
        assert again.state.metadata == {"tier": "gold"}


@pytest.mark.row("Q12")
async def test_a_run_that_is_resumed_with_another_model_says_so(journal: Journal) -> None:
    other = ScriptedModel([text("done")], name="other")
    async with open_session(journal, id="s") as session:
        stopped = payer(ScriptedModel([call("look")]), budget=Budget(max_model_turns=1), on_limit="report")
        await stopped.run("go", session=session)
        await Agent(other, tools=stopped.tools, instructions="New.").resume(session, budget=Budget())
        (resumed,) = [event for event in await session.events() if isinstance(event, RunResumed)]

    assert resumed.model == "other"
    assert resumed.instructions
    assert other.requests[0].instructions == "New."


@pytest.mark.row("Q07")
async def test_of_two_changes_to_one_version_the_second_is_refused_and_writes_nothing(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as ours, open_session(journal, id="s") as theirs:
        seen = ours.state.head
        await ours.change(metadata={"a": 1}, if_head=seen)
        with pytest.raises(SessionConflict, match=f"not {seen}"):
            await theirs.change(metadata={"a": 2}, if_head=seen)

        assert theirs.state.metadata == {"a": 1}
    assert len([event for event in await journal.read("s") if isinstance(event, SessionChanged)]) == 1


CHANGER = """
import asyncio, sys
from treadle import SessionHeld, open_session
from treadle.errors import SessionConflict

async def main(path, head):
    async with open_session(path, id="s") as session:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            await session.change(metadata={"winner": True}, if_head=head)
            print("won")
        except (SessionConflict, SessionHeld) as exc:
            print(type(exc).__name__)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.row("Q07")
async def test_of_two_processes_that_change_one_version_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = SqliteJournal(path)
    await stored_session(journal)
    head = (await journal.read("s"))[-1].seq
    await journal.close()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHANGER, str(path), str(head)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    said = await asyncio.gather(*(asyncio.to_thread(child.communicate, "\n", 60) for child in children))

    assert sorted(out.strip() == "won" for out, _ in said) == [False, True]


@pytest.mark.row("Q08")
async def test_a_deleted_session_can_be_read_and_its_id_stays_taken(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        lines = await session.export()
        await session.delete()
        (deleted,) = [event for event in await session.events() if event.type == "session.changed"]
        assert (deleted.status, deleted.by) == ("deleted", "person")
        assert len(session.messages) == 8
        with pytest.raises(SessionExists):
            await import_session(journal, lines)

    (info,) = await journal.sessions()
    assert (info.run_status, info.status) == ("deleted", "deleted")


@pytest.mark.row("Q08")
async def test_a_purged_session_leaves_the_fact_and_no_word_of_what_was_said(journal: Journal, tmp_path: Path) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.steer("a secret")
        await session.delete(purge=True)
        assert session.messages == ()
        await session.delete(purge=True)

    (event,) = await journal.read("s")
    assert isinstance(event, SessionChanged)
    assert (event.session_id, event.seq, event.status, event.reason) == ("s", 1, "deleted", "Its events were removed.")
    assert await journal.inbox("s") == ()
    (info,) = await journal.sessions()
    assert (info.task, info.head, info.status) == ("", 1, "deleted")
    async with open_session(journal, id="s") as again:
        assert again.state.status == "deleted"


async def test_stored_bytes_leave_with_the_last_session_that_names_them(journal: Journal) -> None:
    async with open_session(journal, id="s") as session:
        model, budget = ScriptedModel([call("long"), text("ok")]), Budget(max_tool_result_chars=200)
        agent = Agent(model, tools=[long_tool()], budget=budget)
        await agent.run("go", session=session)
        child = await session.fork()
        (finished,) = [event for event in await session.events() if event.type == "tool.finished"]
        digest = finished.result.artifact  # type: ignore[union-attr]
        await session.delete(purge=True)
        assert await journal.blob(digest) is not None
        await child.delete(purge=True)
        assert await journal.blob(digest) is None


async def test_old_sessions_are_let_go_and_others_stay(journal: Journal) -> None:
    await stored_session(journal, "old")
    await stored_session(journal, "new")
    old = next(info for info in await journal.sessions() if info.id == "old")

    assert await expire_sessions(journal, before=old.updated_at) == ()
    async with open_session(journal, id="new") as session:
        await session.change(metadata={"keep": True})
    newest = max(info.updated_at for info in await journal.sessions())
    assert await expire_sessions(journal, before=newest) == ("old",)
    assert {info.id: info.own_status for info in await journal.sessions()} == {"old": "deleted", "new": "active"}


# --- acts on a session that was moved or deleted

Act = Callable[[Session], Awaitable[Any]]

LEFT: dict[str, Act] = {
    "steer": lambda session: session.steer("Hurry up"),
    "set_mode": lambda session: session.set_mode("plan"),
    "compact": lambda session: session.compact(),
    "input": lambda session: session.input("c", 1),
    "cancel": lambda session: session.cancel(),
    "answer": lambda session: session.answer("a", "allow"),
}
"""Acts that leave something for the run of a session."""
DONE: dict[str, Act] = {
    "mark": lambda session: session.mark("here"),
    "rewind": lambda session: session.rewind(1),
    "change": lambda session: session.change(status="completed"),
    "resolve": lambda session: session.resolve("c", NotDone),
    "run": lambda session: Agent(ScriptedModel([text("x")])).run("go", session=session),
}
"""Acts that change the session itself."""


@pytest.mark.row("H06", "ST07", "N14")
@pytest.mark.parametrize("act", [*LEFT.values(), *DONE.values()], ids=[*LEFT, *DONE])
async def test_every_act_on_a_session_that_was_moved_names_the_place_where_it_continues(act: Act) -> None:
    journal = MemoryJournal()
    session = await waiting_session(journal, "s")
    await session.move("the other journal", by="ada")
    before = [*await journal.read("s")], [*await journal.inbox("s")]

    with pytest.raises(SessionMoved, match="was moved to the other journal"):
        await act(session)

    assert ([*await journal.read("s")], [*await journal.inbox("s")]) == before


UNREAD = {name: LEFT[name] for name in ("steer", "set_mode", "compact")}
"""Acts whose message nobody would ever read in a deleted session. The others find nothing that waits there."""


@pytest.mark.row("ST07", "N14")
@pytest.mark.parametrize(
    "act", [*DONE.values(), *UNREAD.values(), lambda session: session.fork()], ids=[*DONE, *UNREAD, "fork"]
)
async def test_every_act_on_a_deleted_session_says_that_it_is_deleted(act: Act) -> None:
    journal = MemoryJournal()
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.delete()
        with pytest.raises(SessionNotActive, match="deleted"):
            await act(session)

    assert [*await journal.inbox("s")] == []


@pytest.mark.parametrize("name", ["steer", "set_mode", "compact"])
async def test_nothing_but_its_caller_changes_how_a_session_continues_that_carries_out_a_call(name: str) -> None:
    journal = MemoryJournal()
    child = Agent(ScriptedModel([text("Found.")]))
    caller = Agent(
        ScriptedModel([call("finder", task="Find it"), text("Done.")]),
        tools=[child.as_tool("finder", "Find things.", effect="read")],
    )
    async with open_session(journal, id="s") as session:
        await caller.run("go", session=session)
    below = next(one.child_id for one in await journal.read("s") if isinstance(one, ChildStarted))

    async with open_session(journal, id=below) as session:
        if name == "steer":
            await session.steer("Hurry up")
        else:
            with pytest.raises(SessionNotActive, match="carries out a call of session 's'"):
                await LEFT[name](session)


# --- statuses, as they are folded and as the journal lists them

STARTED = RunStarted(task="t", run_id="r1", at=10.0)
STOPPED = RunFinished(reason="cancelled", status="stopped", completed=False, message="", wall_seconds=1.0)
TASK = TaskSubmitted(message=user_message("go"), agent="clerk")


def said(words: str) -> ModelFinished:
    return ModelFinished(message=Message(role="assistant", parts=(Text(words),)))


STATUSES_OF_RUNS: dict[str, tuple[list[AnyEvent], str]] = {
    "nothing": ([], "active"),
    "a task": ([TASK], "queued"),
    "a task withdrawn": ([TASK, TaskWithdrawn()], "active"),
    "a task begun": ([TASK, STARTED], "running"),
    "a task behind a run": ([STARTED, STOPPED, TASK], "queued"),
    "one withdrawn behind a run": ([STARTED, STOPPED, TASK, TaskWithdrawn()], "stopped"),
    "paused": ([STARTED, RunPaused(reason="approval_required", wall_seconds=1.0)], "paused"),
    "resumed": ([STARTED, STOPPED, RunResumed()], "running"),
    "ended": ([STARTED, STOPPED], "stopped"),
    "closed": ([STARTED, STOPPED, SessionChanged(status="closed")], "stopped"),
    "deleted": ([STARTED, STOPPED, SessionChanged(status="deleted")], "deleted"),
    "rewound behind its task": ([MessageAdded(message=user_message("a")), STARTED, said("x"), STOPPED, SessionRewound(to=3)], "stopped"),
    "rewound before its task": ([MessageAdded(message=user_message("a")), STARTED, said("x"), STOPPED, SessionRewound(to=1)], "active"),
    "rewound without a run": ([MessageAdded(message=user_message("a")), SessionRewound(to=1)], "active"),
}  # fmt: skip


@pytest.mark.parametrize(("events", "status"), STATUSES_OF_RUNS.values(), ids=STATUSES_OF_RUNS)
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_the_run_status_of_a_session_is_the_one_that_its_journal_lists(
    events: list[AnyEvent], status: str
) -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session, session.held():
        for event in events:
            await session.ledger.record(event)
        assert session.state.run_status == status
        listed = [one.run_status for one in await journal.sessions()]
        await session.ledger.record(ModeChanged(mode="ask"))  # an event that changes no status
        listed += [one.run_status for one in await journal.sessions()]

    assert listed == [status, status]


@pytest.mark.row("N19")
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_a_task_whose_run_a_worker_has_begun_is_cancelled_as_a_run() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as worker, open_session(journal, id="s") as session:
        async with worker.held():
            await worker.ledger.record(TASK)
            await session.refresh()
            await worker.ledger.record(STARTED)
            assert await session.cancel() is True

        assert session.state.run is not None
        assert session.state.run.status == "running"
        assert [one.kind for one in await journal.inbox("s")] == ["cancel"]


# --- an agent's fingerprint


@pytest.mark.parametrize(
    ("instructions", "told"),
    [(None, ""), ("", digest("")), ("Be kind.", digest("Be kind.")), ("half \ud800", digest("half ?"))],
    ids=range(4),
)
async def test_instructions_are_recorded_by_a_digest_that_any_text_has(instructions: str | None, told: str) -> None:
    run = await Agent(ScriptedModel([text("x")]), instructions=instructions).run("go")

    (begun,) = [event for event in await run.session.events() if isinstance(event, RunStarted)]
    assert begun.instructions == told
