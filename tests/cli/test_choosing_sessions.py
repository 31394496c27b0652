"""`treadle sessions`: chosen by tenant, parent and time; compared with their events; explained with inputs, facts and agent."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pexpect
import pytest

from treadle import Agent, Tool, ToolContext, ToolOutput, ask, open_journal, open_session, submit
from treadle.resolve.archives import check_sessions
from treadle.state import Suspended
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


def asking() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        if not ctx.inputs:
            raise Suspended("a date")
        return ToolOutput(data="noted", facts={"date": ctx.inputs[0]})

    return Tool(
        name="when", description="Ask for a date.", parameters={"type": "object"}, effect="unsafe", permission="allow",
        resumes=True, run=run,
    )  # fmt: skip


async def fill(path: Path) -> None:
    agent = Agent(ScriptedModel([text("Hello.")]))
    async with open_journal(path) as journal:
        for name, tenant in (("one", "blue"), ("two", "red"), ("three", "")):
            async with open_session(journal, id=name) as session:
                await agent.run(f"Task {name}", session=session)
                if tenant:
                    await session.change(metadata={"tenant": tenant})
        async with open_session(journal, id="one", must_exist=True) as session:
            await session.fork(id="copy")
        clerk = Agent(ScriptedModel([call("when"), text("Done.")]), name="clerk", tools=[asking()])
        async with open_session(journal, id="given") as session:
            await clerk.run("Ask", session=session)
            ((call_id, _),) = session.state.open.items()
            await session.input(call_id, "2026-12-01", by="Ada")
            assert (await clerk.resume(session)).completed


def ids(listed: Any) -> set[str]:
    return {one["id"] for one in listed}


def test_sessions_are_listed_by_tenant_parent_and_time(treadle: Any) -> None:
    asyncio.run(fill(treadle.folder / "j.db"))

    def listed(*flags: str) -> set[str]:
        return ids(treadle.json("sessions", "list", "--json", "--journal", "j.db", *flags, code=0))

    assert listed("--tenant", "blue") == {"one", "copy"}
    assert listed("--tenant", "blue", "--parent", "one") == {"copy"}
    assert listed("--tenant", "") == {"three", "given"}
    assert listed("--parent", "one") == {"copy"}
    assert listed("--since", "1h") == {"one", "two", "three", "copy", "given"}
    assert listed("--since", "2199-01-01") == set()
    assert listed("--since", "2000-01-01T10:00", "--tenant", "red") == {"two"}
    assert "No sessions match" in treadle("sessions", "--journal", "j.db", "--tenant", "green", code=0).stderr
    refused = treadle("sessions", "--journal", "j.db", "--since", "soon", code=2).stderr
    assert "a time such as 2026-11-30T18:00, or an age such as 90m" in refused


@pytest.mark.row("E-LISTS")
def test_a_list_is_read_page_by_page_and_says_how_it_continues(treadle: Any) -> None:
    asyncio.run(fill(treadle.folder / "j.db"))
    place = ("--journal", "j.db")

    every = [one["id"] for one in treadle.json("sessions", "--json", *place, code=0)]
    first = treadle("sessions", *place, "--limit", "2", code=0)
    pages, last = [first.stdout.split("\n")[:-1]], every[1]
    while len(pages[-1]) == 2:
        pages.append(treadle("sessions", *place, "--limit", "2", "--after", last, code=0).stdout.split("\n")[:-1])
        last = pages[-1][-1].split()[0]

    assert [line.split()[0] for page in pages for line in page] == every
    assert (
        f"3 more are not shown: --after {every[1]} shows the sessions after that; --limit N shows more." in first.stderr
    )
    assert ids(treadle.json("sessions", "--json", *place, "--after", every[0], "--tenant", "blue")) <= {"one", "copy"}
    assert "No sessions match" in treadle("sessions", *place, "--after", every[-1], code=0).stderr
    assert "'nobody'" in treadle("sessions", *place, "--after", "nobody", code=2).stderr


@pytest.mark.row("E-LISTS")
def test_a_list_that_is_longer_than_the_terminal_is_shown_in_the_pager(treadle: Any) -> None:
    asyncio.run(fill(treadle.folder / "j.db"))

    def seen(*flags: str, rows: int) -> str:
        command = treadle.command("sessions", "--journal", "j.db", *flags)
        environment = {**treadle.environment, "PAGER": "sed s/^/PAGED-/", "TERM": "xterm"}
        child = pexpect.spawn(
            command[0], command[1:], env=environment, cwd=str(treadle.folder), dimensions=(rows, 80), encoding="utf-8"
        )
        child.expect(pexpect.EOF, timeout=60)
        return str(child.before)

    assert seen(rows=4).count("PAGED-") == 5
    assert "PAGED-" not in seen(rows=40)
    assert "PAGED-" not in seen("--no-pager", rows=4)


def test_inputs_facts_and_the_agents_name_are_told(treadle: Any) -> None:
    asyncio.run(fill(treadle.folder / "j.db"))

    shown = treadle.json("sessions", "show", "given", "--json", "--journal", "j.db", code=0)
    about = treadle.json("sessions", "explain", "given", "--json", "--journal", "j.db", code=0)
    for told in (shown, about):
        assert told["agent"] == "clerk"
        assert told["facts"] == {"date": "2026-12-01"}
    assert [(one["value"], one["by"]) for one in shown["calls"][0]["inputs"]] == [("2026-12-01", "Ada")]
    assert [(one["value"], one["by"]) for one in about["inputs"]] == [("2026-12-01", "Ada")]
    for action in ("show", "explain"):
        said = treadle("sessions", action, "given", "--journal", "j.db", code=0).stdout
        assert "clerk" in said
        assert 'date: "2026-12-01"' in said
        assert "Ada" in said


@pytest.mark.row("R-CHECK")
@pytest.mark.unchecked("the list of sessions is changed behind the journal's back")
def test_a_list_that_says_something_else_than_the_events_is_found(treadle: Any) -> None:
    path = treadle.folder / "j.db"
    asyncio.run(fill(path))
    well = treadle("sessions", "check", "--journal", "j.db", code=0)
    assert "5 sessions checked: the list matches the events." in well.stderr

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE session SET state = 'paused' WHERE id = 'one'")
        connection.execute("UPDATE session SET parent_id = 'two' WHERE id = 'copy'")
        connection.execute("UPDATE session SET tenant = 'blue' WHERE id = 'two'")
        connection.execute("INSERT INTO due (session_id, key, kind, at) VALUES ('one', 'deadline', 'deadline', 5.0)")
        connection.execute("UPDATE session SET status = 'suspended' WHERE id = 'three'")
    found = treadle.json("sessions", "check", "--json", "--journal", "j.db", code=1)
    assert {(one["session_id"], one["what"]) for one in found} == {
        ("one", "run_status"), ("one", "due"), ("copy", "parent"), ("two", "tenant"), ("three", "events")
    }  # fmt: skip
    said = treadle("sessions", "check", "--journal", "j.db", code=1)
    assert "Session 'one' is listed with the run status 'paused', and its events say 'completed'." in said.stdout
    assert json.dumps(found)


@pytest.mark.row("R-CHECK")
async def test_what_waits_and_what_was_purged_is_listed_as_its_events_say(tmp_path: Path) -> None:
    for address in (str(tmp_path / "j.db"), "memory:"):
        async with open_journal(address) as journal:
            act = Tool(name="act", description="Act.", parameters={"type": "object"}, effect="unsafe", run=print)
            below = Agent(ScriptedModel([call("act"), text("x")]), tools=[act], policy=ask("act"))
            top = Agent(ScriptedModel([call("help", task="t")]), tools=[below.as_tool("help", "Help.")], policy=None)
            async with open_session(journal, id="top") as session:
                await Agent(ScriptedModel([call("act")]), tools=[act], policy=ask("act")).run("go", session=session)
                await session.change(metadata={"tenant": "blue"})
            async with open_session(journal, id="family") as session:
                await top.run("go", session=session)
                await session.fork(id="fork", at=2)
            async with open_session(journal, id="gone") as session:
                await Agent(ScriptedModel([text("x")])).run("go", session=session)
                await session.change(metadata={"tenant": "blue"})
                await session.delete(purge=True)
            async with open_session(journal, id="back") as session:
                await Agent(ScriptedModel([text("x")])).run("go", session=session)
                await session.rewind(2)
            await submit(journal, "a", "At once.", priority=3, tenant="blue")
            await submit(journal, "a", "Later.", at=4e9)
            withdrawn = await submit(journal, "a", "Never.")
            async with open_session(journal, id=withdrawn) as session:
                await session.cancel()

            assert await check_sessions(journal) == ()
