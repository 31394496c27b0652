"""Facts that tools leave in their session: an editor remembers what it has read, and refuses where the file has changed."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from loop_tools import ANYTHING
from treadle import Agent, Rejected, Session, Tool, ToolContext, ToolOutput, open_session
from treadle.journals.memory import MemoryJournal
from treadle.resolve.archives import import_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def editor(folder: Path) -> list[Tool]:
    async def read(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        path = folder / arguments["path"]
        return ToolOutput(data=path.read_text(), facts={"read": {arguments["path"]: hash_of(path)}})

    async def write(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        path = folder / arguments["path"]
        if ctx.facts.get("read", {}).get(arguments["path"]) != hash_of(path):
            raise Rejected("The file has changed since it was read. Read it again.", code="stale")
        path.write_text(arguments["text"])
        return ToolOutput(data="written", facts={"read": {arguments["path"]: hash_of(path)}})

    words: dict[str, Any] = {"description": "A file.", "parameters": ANYTHING, "permission": "allow"}
    return [
        Tool(name="read", effect="read", run=read, **words),
        Tool(name="write", effect="unsafe", run=write, **words),
    ]


async def act(session: Session, tools: list[Tool], *calls: Any) -> list[str]:
    """Run these calls, one step each; return what the model was shown of each."""
    model = ScriptedModel([*([one] for one in calls), text("done")])
    done = await Agent(model, tools=tools).run("go", session=session)
    return [result.content for message in done.messages for result in message.results][-len(calls) :]


def written(words: str) -> Any:
    return call("write", path="a", text=words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    return tmp_path


async def test_what_one_run_has_read_another_process_may_write_until_the_file_changes(folder: Path) -> None:
    tools = editor(folder)
    async with open_session(folder / "j.db", id="s") as session:
        await act(session, tools, call("read", path="a"), call("read", path="b"))
        assert session.state.facts.values["read"].keys() == {"a", "b"}
    async with open_session(folder / "j.db", id="s") as session:
        assert await act(session, tools, written("mine")) == ["written"]
        (folder / "a").write_text("theirs")
        [refused] = await act(session, tools, written("mine again"))
        await check_session(session)

    assert "stale" in refused
    assert (folder / "a").read_text() == "theirs"


def noting(run: Any) -> Tool:
    return Tool(name="note", description="Note.", parameters=ANYTHING, effect="read", permission="allow", run=run)


async def test_facts_of_calls_side_by_side_are_merged_and_none_removes_one() -> None:
    async def note(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(facts=arguments)

    tool = noting(note)
    async with open_session(MemoryJournal(), id="s") as session:
        both = [call("note", plan={"a": 1, "b": [1]}), call("note", plan={"c": {"d": 2}}, goal="win")]
        model = ScriptedModel([both, [call("note", plan={"a": None, "b": [2]})], text("done")])
        await Agent(model, tools=[tool]).run("go", session=session)

        assert session.state.facts.values == {"plan": {"b": [2], "c": {"d": 2}}, "goal": "win"}


@pytest.mark.row("N18")
async def test_a_fork_and_an_export_take_the_facts_along_and_a_rewind_goes_back_to_those_of_its_point(
    folder: Path,
) -> None:
    tools = editor(folder)
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await act(session, tools, call("read", path="b"))
        point = await session.mark("before")
        before = session.state.facts.values
        await act(session, tools, call("read", path="a"))
        after = session.state.facts.values
        assert before != after
        earlier, now = await session.fork(point), await session.fork()
        other = MemoryJournal()
        await import_session(other, await session.export())
        await session.rewind("before")

        assert (earlier.state.facts.values, now.state.facts.values) == (before, after)
        assert session.state.facts.values == before
        [refused] = await act(session, tools, written("unread"))
        assert "stale" in refused
        assert await act(now, tools, written("read")) == ["written"]
    async with open_session(other, id="s") as arrived:
        assert arrived.state.facts.values == after


@pytest.mark.parametrize("facts", [["a"], {"a": {1, 2}}, {"a": float("nan")}, {1: "a"}, "a"])
async def test_facts_that_are_no_json_object_break_the_contract_and_are_not_kept(facts: Any) -> None:
    async def note(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(data="noted", facts=facts)

    tool = noting(note)
    async with open_session(MemoryJournal(), id="s") as session:
        [told] = await act(session, [tool], call("note"))

        assert "unexpected_result_shape" in told
        assert session.state.facts.values == {}


async def test_a_tool_that_changes_what_it_was_given_changes_no_fact() -> None:
    kept = {"list": [1]}

    async def note(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        ctx.facts.get("list", []).append(2)
        kept["list"].append(3)
        return ToolOutput(data=ctx.facts, facts={"list": [1]} if not ctx.facts else None)

    tool = noting(note)
    async with open_session(MemoryJournal(), id="s") as session:
        await act(session, [tool], call("note"), call("note", again=True))

        assert session.state.facts.values == {"list": [1]}
