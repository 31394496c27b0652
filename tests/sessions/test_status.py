"""What people make of a session: status, metadata, deletion; and what a later run finds of it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from session_tools import payer, stored_session

from treadle import (
    Agent,
    ConfigurationError,
    SessionConflict,
    SessionExists,
    SessionNotActive,
    expire_sessions,
    import_session,
    open_session,
)
from treadle.errors import ModelRejected
from treadle.events import ModelStarted, RunResumed, RunStarted, SessionChanged
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.testing import FaultyModel, ScriptedModel, call, text


@pytest.mark.row("Q08")
async def test_a_run_that_failed_leaves_its_session_active(journal: Journal) -> None:
    async with open_session(journal, id="s") as session:
        faulty = FaultyModel(ScriptedModel([text("x")]), fail_at=1, error=ModelRejected("No."))
        failed = await Agent(faulty).run("go", session=session)
        assert failed.status == "failed"
        assert (session.state.phase, session.state.status) == ("failed", "active")
        assert (await payer(ScriptedModel([text("ok")])).run("again", session=session)).completed

    (info,) = await journal.sessions()
    assert (info.phase, info.status) == ("completed", "active")


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
    from treadle import Budget

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
from treadle import SessionConflict, SessionHeld, open_session

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


async def test_what_cannot_be_a_status_or_stored_is_refused(journal: Journal) -> None:
    async with open_session(journal, id="s") as session:
        with pytest.raises(ConfigurationError, match="status"):
            await session.change(status="gone")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="metadata"):
            await session.change(metadata={"n": float("nan")})

        assert session.state.head == 0


@pytest.mark.row("Q08")
async def test_a_deleted_session_can_be_read_and_nothing_more(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        lines = await session.export()
        await session.delete()
        (deleted,) = [event for event in await session.events() if event.type == "session.changed"]
        assert (deleted.status, deleted.by) == ("deleted", "person")
        for act in (
            payer(ScriptedModel([text("x")])).run("go", session=session),
            session.fork(),
            session.change(status="active"),
        ):
            with pytest.raises(SessionNotActive, match="deleted"):
                await act
        assert len(session.messages) == 8
        with pytest.raises(SessionExists):
            await import_session(journal, lines)

    (info,) = await journal.sessions()
    assert (info.phase, info.status) == ("deleted", "deleted")


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
    assert event.status == "deleted"
    assert await journal.inbox("s") == ()
    (info,) = await journal.sessions()
    assert (info.task, info.head, info.status) == ("", 1, "deleted")
    async with open_session(journal, id="s") as again:
        assert again.state.status == "deleted"


async def test_stored_bytes_leave_with_the_last_session_that_names_them(journal: Journal) -> None:
    from treadle import Budget, Tool

    async def run(arguments: object, ctx: object) -> str:
        return "line\n" * 5000

    long = Tool(name="long", description="Long.", parameters={}, effect="read", run=run)
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([call("long"), text("ok")]), tools=[long], budget=Budget(max_tool_result_chars=200))
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
    assert {info.id: info.status for info in await journal.sessions()} == {"old": "deleted", "new": "active"}
