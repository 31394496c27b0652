"""What waits in a journal is read from an index: requests for consent, calls to be started again, deadlines."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from treadle import Agent, Tool, ToolContext, ask, open_journal, open_session
from treadle.errors import JournalError
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    MessageAdded,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunStarted,
    SessionChanged,
    SessionRewound,
    ToolStarted,
    ToolSuspended,
)
from treadle.journals.memory import MemoryJournal
from treadle.journals.postgres import PostgresJournal
from treadle.journals.postgres_link import VERSION
from treadle.journals.sqlite import SqliteJournal, open_sqlite
from treadle.messages import Finish, Message, ToolCall, user_message
from treadle.ports import DueItem, Journal
from treadle.resolve.archives import import_session
from treadle.state import Suspended
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Effect, JsonObject

ACT = ToolCall(id="c1", name="act", arguments="{}")


def paused(session_id: str, *, asks: bool, at: float = 1.0) -> list[AnyEvent]:
    """Return the events of a session whose call waits: for a person, or for something outside."""
    waits: AnyEvent = ToolSuspended(call_id="c1", tool="act", waits_for="the weather")
    if asks:
        waits = ApprovalRequested(
            call_id="c1", approval_id=f"a_{session_id}", tool="act", arguments={}, digest="d", effect=Effect.UNSAFE,
            expires_at=at + 100,
        )  # fmt: skip
    events: list[AnyEvent] = [
        RunStarted(task="t"),
        MessageAdded(message=user_message("t")),
        ModelFinished(step=1, message=Message(role="assistant", parts=(ACT,)), finish=Finish.CALLS),
        *([] if asks else [ToolStarted(call_id="c1", tool="act")]),
        waits,
        RunPaused(reason="approval_required"),
    ]
    return numbered(session_id, events, at=at)


def numbered(session_id: str, events: Sequence[AnyEvent], *, after: int = 0, at: float = 1.0) -> list[AnyEvent]:
    return [
        msgspec.structs.replace(event, session_id=session_id, run_id="r", seq=seq, at=at)
        for seq, event in enumerate(events, after + 1)
    ]


def counting(kind: type) -> Any:
    """Return a kind of journal that notes which sessions are read."""

    class Counting(kind):  # type: ignore[misc]  # one of the journals
        def __init__(self, *place: Any) -> None:
            super().__init__(*place)
            self.reads: list[str] = []

        async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
            self.reads.append(session_id)
            found: Sequence[AnyEvent] = await super().read(session_id, after=after)
            return found

    return Counting


@pytest.mark.row("R-DUE")
@pytest.mark.unchecked("sessions are made of few events each")
@pytest.mark.parametrize(
    ("store", "count"),
    [("memory", 1_000), ("sqlite", 1_000), ("postgres", 1_000), pytest.param("sqlite", 10_000, marks=pytest.mark.soak)],
)
async def test_among_a_thousand_paused_sessions_three_are_looked_at(
    store: str, count: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kinds = {"memory": MemoryJournal, "sqlite": SqliteJournal, "postgres": PostgresJournal}
    places = {"memory": (), "sqlite": (tmp_path / "journal.db",)}
    place = places[store] if store in places else (request.getfixturevalue("url"),)
    journal = counting(kinds[store])(*place)
    asking = {f"s{number}" for number in (count // 10, count // 2, count - 1)}
    names = [f"s{number}" for number in range(count)]
    for start in range(0, count, 1000):
        await asyncio.gather(
            *(
                journal.adopt(name, paused(name, asks=name in asking, at=float(start)), state="paused")
                for name in names[start : start + 1000]
            )
        )

    found = await journal.approvals()

    assert {one.session_id for one in found} == asking
    assert set(journal.reads) == asking
    due = await journal.due()
    assert {(one.session_id, one.kind) for one in due} == {(name, "approval") for name in asking}
    assert [one.at for one in due] == sorted(one.at for one in due)
    assert set(journal.reads) == asking
    await journal.close()


@pytest.mark.row("R-DUE")
@pytest.mark.unchecked("sessions are made of few events each")
async def test_what_is_due_comes_and_goes_with_its_events(journal: Journal) -> None:
    await journal.create("s")
    events = numbered("s", [RunStarted(task="t", deadline=50.0), *paused("s", asks=True)[1:]])
    await journal.append("s", events, state="paused", durable=True)
    await journal.create("t")
    suspended = [
        *paused("t", asks=False)[:4],
        ToolSuspended(call_id="c1", tool="act", due_at=20.0),
        RunPaused(reason="x"),
    ]
    await journal.append("t", numbered("t", suspended), state="paused", durable=True)

    assert list(await journal.due()) == [
        DueItem(session_id="t", kind="call", at=20.0, call_id="c1"),
        DueItem(session_id="s", kind="deadline", at=50.0),
        DueItem(session_id="s", kind="approval", at=101.0, call_id="c1"),
    ]
    assert [one.kind for one in await journal.due(before=50.0)] == ["call", "deadline"]
    assert [one.kind for one in await journal.due(limit=1)] == ["call"]
    assert not await journal.due(before=19.9)

    answered = ApprovalAnswered(call_id="c1", approval_id="a_s", answer="allow")
    await journal.append("s", numbered("s", [answered], after=len(events)), state="paused", durable=True)
    assert [one.kind for one in await journal.due()] == ["call", "deadline"]
    again = numbered("t", [ToolStarted(call_id="c1", tool="act")], after=len(suspended))
    await journal.append("t", again, state="running", durable=False)
    assert [one.kind for one in await journal.due()] == ["deadline"]
    ended = RunFinished(reason="completed", status="completed", completed=True)
    await journal.append("s", numbered("s", [ended], after=len(events) + 1), state="completed", durable=False)
    assert not await journal.due()


@pytest.mark.row("R-DUE")
@pytest.mark.unchecked("sessions are made of few events each")
async def test_a_rewind_and_a_purge_leave_nothing_that_waits(journal: Journal) -> None:
    for name in ("a", "b"):
        await journal.adopt(name, paused(name, asks=True), state="paused")
    assert len(await journal.due()) == 2
    await journal.append("a", numbered("a", [SessionRewound(to=2)], after=5), state="paused", durable=True)
    tombstone = numbered("b", [SessionChanged(status="deleted")])[0]
    await journal.purge("b", tombstone)

    assert not await journal.due()
    assert not await journal.approvals()


# --- by whole runs


def acting(*, due_in: float | None = None) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        if due_in is not None and not ctx.inputs:
            raise Suspended("the export", due_at=1_000_000.0 + due_in)
        return "done"

    return Tool(
        name="act", description="Act.", parameters={"type": "object"}, effect="unsafe", resumes=True, run=run,
        permission=None if due_in is None else "allow",
    )  # fmt: skip


@pytest.mark.row("R-DUE")
async def test_a_run_that_asks_and_one_that_waits_for_a_time_are_listed_until_they_go_on(durable_address: str) -> None:
    asking = Agent(
        ScriptedModel([call("act"), text("done")], follows_history=True), tools=[acting()], policy=ask("act")
    )
    waiting = Agent(ScriptedModel([call("act"), text("done")], follows_history=True), tools=[acting(due_in=30)])
    async with open_journal(durable_address) as journal:
        for name, agent in (("asks", asking), ("waits", waiting)):
            async with open_session(journal, id=name) as session:
                await agent.run("go", session=session)
        assert [(one.session_id, one.kind) for one in await journal.due()] == [("waits", "call"), ("asks", "approval")]
        assert [one.session_id for one in await journal.approvals()] == ["asks"]
        async with open_session(journal, id="asks") as session:
            (approval,) = await session.approvals()
            await session.answer(approval.id, "allow")
            assert not await journal.approvals()  # answered, though no run has taken it in yet
            assert (await asking.resume(session)).completed
        assert [(one.session_id, one.kind) for one in await journal.due()] == [("waits", "call")]
        async with open_session(journal, id="waits") as session:
            lines = await session.export()
        async with open_journal("memory:") as other:
            await import_session(other, lines, take_open=True)
            assert [one.session_id for one in await other.due()] == ["waits"]


# --- old journals


async def with_old_sessions(journal: Journal) -> None:
    for number in range(20):
        name = f"s{number}"
        await journal.adopt(name, paused(name, asks=number in (3, 7), at=float(number)), state="paused")


def make_old(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE due; PRAGMA user_version = 4;")


@pytest.mark.row("R-DUE")
@pytest.mark.unchecked("sessions are made of few events each")
async def test_an_older_file_is_looked_at_once_and_by_its_index_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_journal(path) as first:
        await with_old_sessions(first)
    make_old(path)

    reading = SqliteJournal(path, read_only=True)  # it brings nothing to the new schema
    assert [one.session_id for one in await reading.approvals()] == ["s7", "s3"]
    assert len(await reading.due()) == 2
    await reading.close()

    journal = counting(SqliteJournal)(path)
    await journal.create("s0")
    assert [one.session_id for one in await journal.approvals()] == ["s7", "s3"]
    assert len(set(journal.reads)) == 20
    journal.reads.clear()
    assert [one.session_id for one in await journal.approvals()] == ["s7", "s3"]
    assert [one.at for one in await journal.due()] == [103.0, 107.0]
    assert set(journal.reads) == {"s3", "s7"}
    await journal.close()


@pytest.mark.row("R-DUE", "Q14")
@pytest.mark.unchecked("sessions are made of few events each")
@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_older_schema_in_postgres_is_brought_to_this_one_by_whichever_opens_it_first(
    url: str, version: int
) -> None:
    async with open_journal(url) as first:
        await with_old_sessions(first)
        new = await shape(url)
    with psycopg.connect(url, autocommit=True) as connection:
        if version < 4:
            connection.execute("DROP TABLE due")
        if version < 3:
            connection.execute("DROP INDEX session_of_tenant, session_below")
        connection.execute("DROP INDEX event_naming, event_naming_more")
        connection.execute("UPDATE treadle_journal SET version = %s", (version,))

    async def look() -> list[str]:
        async with open_journal(url) as journal:
            return [one.session_id for one in await journal.approvals()]

    assert await asyncio.gather(*(look() for _ in range(4))) == [["s7", "s3"]] * 4
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT version FROM treadle_journal").fetchall() == [(VERSION,)]
    assert await shape(url) == new
    journal = counting(PostgresJournal)(url)
    assert [one.session_id for one in await journal.approvals()] == ["s7", "s3"]
    assert set(journal.reads) == {"s3", "s7"}
    await journal.close()


async def shape(url: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(
            "SELECT relname, relkind FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY relname"
        ).fetchall()


@pytest.mark.row("R-DUE")
@pytest.mark.unchecked("a session is damaged on purpose")
async def test_a_damaged_session_of_an_older_file_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_journal(path) as first:
        await with_old_sessions(first)
    make_old(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DROP TRIGGER event_is_never_changed; UPDATE event SET body = 'broken' WHERE session_id = 's7' AND seq = 2;"
        )
    journal = await open_sqlite(path)
    assert [one.session_id for one in await journal.approvals()] == ["s3"]
    with pytest.raises(JournalError):
        await journal.read("s7")
    await journal.close()
