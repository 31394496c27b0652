"""Agents that are called by name: where they are defined, what they may, how deep they go, and what comes back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from test_children import Told, World, check_family, children_of, proposed, results

from loop_tools import ANYTHING, echo_tool
from pipeline_tools import hang, read
from treadle import (
    Agent,
    Budget,
    ConfigurationError,
    Session,
    Tool,
    ToolContext,
    allow,
    ask,
    deny,
    open_journal,
    open_session,
)
from treadle.agents import Subagent, load_subagents, subagent_tool
from treadle.events import AnyEvent, ModelDelta, ToolFinished, ToolStarted
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock
from treadle.tools import JsonObject

REVIEWER = """---
name: reviewer
description: Reads a change, and lists what is wrong.
tools: echo, rec
deny: [write]
model: small
effect: read
budget: {max_model_turns: 3, max_total_cost: 0.5}
output: {type: object}
---
You review code.

--- is a line of a diff.
"""


def spawned(agent: str, task: str = "Go", call_id: str = "") -> Any:
    return proposed("spawn_agent", call_id or f"{agent}_{task}", agent=agent, task=task)


def helper(name: str = "helper", **words: Any) -> Subagent:
    return Subagent(name=name, description="Helps.", instructions=f"You are {name}.", **{"model": name, **words})


def lead(*turns: Any, tools: Any = (), **words: Any) -> Agent:
    return Agent(Told(*turns, name="lead"), tools=tools, **words)


async def deepest(session: Session, depth: int) -> tuple[Any, int]:
    """Return what the last agent of a chain was told, and how many stand above it."""
    for child in await children_of(session):
        async with open_session(session.journal, id=child.id) as opened:
            return await deepest(opened, depth + 1)
    (told,) = results(session).values()
    return told, depth


# --- definitions


@pytest.mark.row("U07")
def test_the_same_definition_is_read_from_markdown_yaml_and_json_and_written_back(tmp_path):
    (tmp_path / "one.md").write_text(REVIEWER)
    (first,) = load_subagents(tmp_path)
    assert (first.name, first.tools, first.deny, first.effect) == ("reviewer", ("echo", "rec"), ("write",), "read")
    assert first.budget == Budget(max_model_turns=3, max_total_cost=0.5)
    assert first.instructions == "You review code.\n\n--- is a line of a diff.\n"
    for form, ending in (("markdown", "md"), ("yaml", "yml"), ("json", "json")):
        text = first.to_text(form)
        assert Subagent.from_text(text, form) == first
        (tmp_path / f"two.{ending}").write_text(text, encoding="utf-8")
        assert load_subagents(tmp_path / f"two.{ending}") == (first,)
    plain = Subagent(name="a", description="b: c", instructions="Ünï: 'x'\n# y")
    for form in ("markdown", "yaml", "json"):
        assert Subagent.from_text(plain.to_text(form), form) == plain


@pytest.mark.row("U07")
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("a.md", "You help.", "no fields"),
        ("a.md", "---\ndescription: x\ntol: y\n---\nHelp.", "no option 'tol'"),
        ("a.md", "---\ndescription: x\n---\n", "has no instructions"),
        ("a.md", "---\n[x\n---\nHelp.", "not valid markdown"),
        ("a.yaml", "- x", "must have fields"),
        ("a.json", "{", "not valid json"),
        ("a.json", '{"name": "a b", "description": "x", "instructions": "y"}', "letters, digits"),
        ("a.json", '{"description": "x", "instructions": "y", "budget": {"max_turns": 1}}', "max_model_turns"),
        ("a.json", '{"description": "x", "instructions": "y", "effect": "all"}', "'read' or 'unsafe'"),
        ("a.json", '{"description": "x", "instructions": "y", "tools": [1]}', "a list of strings"),
        ("a.txt", "x", "with the ending"),
    ],
)
def test_a_definition_that_is_wrong_is_refused_with_its_file_and_what_is_wrong(tmp_path, file, text, words):
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        load_subagents(tmp_path / file)
    assert file in str(caught.value)


@pytest.mark.row("U07")
def test_a_file_without_a_name_has_that_of_the_file_and_two_of_one_name_are_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text("---\ndescription: Helps.\n---\nHelp.")
    assert [one.name for one in load_subagents(tmp_path)] == ["one", "two"]
    (tmp_path / "three.json").write_text('{"name": "one", "description": "x", "instructions": "y"}')
    with pytest.raises(ConfigurationError, match="Two subagents are named 'one'"):
        load_subagents(tmp_path)
    with pytest.raises(ConfigurationError, match="no definition"):
        load_subagents(Path(__file__).parent)


# --- what one may


@pytest.mark.row("U02")
async def test_an_agent_begins_with_its_task_and_its_own_instructions_alone():
    inner = Told("It is 42.", name="helper")
    top = lead([spawned("helper", "Find it")], "42.", tools=[subagent_tool([helper()], models={"helper": inner})])
    result = await top.run("Ask")
    assert result.text == "42."
    assert result.messages[2].results[0].content == "It is 42."
    (request,) = inner.requests
    assert [message.text for message in request.messages] == ["Find it"]
    assert request.instructions == "You are helper."
    await check_family(result.session)


@pytest.mark.row("U03")
async def test_an_agent_has_no_tool_that_its_caller_lacks_and_none_that_its_definition_denies():
    inner = Told([proposed("secret"), proposed("pay"), proposed("echo")], "Done.", name="helper")
    world = World()
    definition = helper(tools=("echo", "pay", "secret", "hidden"), deny=("pay",))
    tools = [echo_tool(), echo_tool("other"), world.pay(), subagent_tool([definition], models={"helper": inner})]
    hidden = Tool(
        name="hidden", description="", parameters=ANYTHING, effect="read", visible=lambda _: False, run=echo_tool().run
    )
    result = await lead([spawned("helper")], "Done.", tools=[*tools, hidden], policy=allow("pay")).run("Ask")
    assert result.completed
    assert [tool.name for tool in inner.requests[0].tools] == ["echo"]
    (child,) = await children_of(result.session)
    assert [one.status for one in child.call_records()] == ["unknown_tool", "unknown_tool", "ok"]
    assert world.paid == []


@pytest.mark.row("U03")
async def test_what_the_caller_denies_is_denied_and_an_agent_that_reads_changes_nothing():
    inner = Told([proposed("echo"), proposed("pay", at="once"), proposed("look")], "Done.", name="helper")
    world = World()

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        world.paid.append("changed")
        return "done"

    by_arguments = Tool(
        name="look",
        description="",
        parameters=ANYTHING,
        effect=lambda given: "unsafe" if not given else "read",
        run=run,
    )
    tools = [echo_tool(), world.pay(permission="allow"), by_arguments]
    spawn = subagent_tool([helper(effect="read")], models={"helper": inner})
    result = await lead([spawned("helper")], "Done.", tools=[*tools, spawn], policy=deny("echo")).run("Ask")
    assert result.completed
    (child,) = await children_of(result.session)
    assert [one.status for one in child.call_records()] == ["denied", "unknown_tool", "denied"]
    assert world.paid == []
    assert {tool.name for tool in inner.requests[0].tools} == {"echo", "look", "spawn_agent"}


@pytest.mark.row("U04")
@pytest.mark.parametrize("max_depth", [0, 1, 3])
async def test_agents_that_call_each_other_for_ever_are_refused_at_the_limit_and_their_callers_end(max_depth):
    inner = Told([spawned("helper")], "Done.", name="helper")
    spawn = subagent_tool([helper()], models={"helper": inner})
    result = await lead([spawned("helper")], "Done.", tools=[spawn], max_depth=max_depth).run("Ask")
    assert result.completed
    told, depth = await deepest(result.session, 0)
    assert depth == max_depth
    assert (told["status"], told["code"]) == ("error", "subagent_depth_exceeded")
    assert told["details"] == [{"error": "too deep", "depth": max_depth + 1, "limit": max_depth}]
    await check_family(result.session)


@pytest.mark.row("U04")
async def test_an_agent_as_a_tool_counts_to_the_depth_and_a_callers_limit_holds_below_it():
    lowest = Agent(Told("Low."), max_depth=9)
    middle = Agent(Told([proposed("low", task="Go")], "Middle."), tools=[lowest.as_tool("low", "L.", effect="read")])
    top = lead(
        [proposed("middle", task="Go")], "Top.", tools=[middle.as_tool("middle", "M.", effect="read")], max_depth=1
    )
    result = await top.run("Go")
    assert result.completed
    (child,) = await children_of(result.session)
    assert [one.status for one in child.call_records()] == ["rejected"]
    assert not child.run.children


@pytest.mark.row("U05")
async def test_an_unknown_agent_is_an_error_that_lists_those_there_are_and_a_failed_one_says_why():
    broken = Told([proposed("echo")], name="broken")
    tools = [
        echo_tool(),
        subagent_tool(
            [helper("broken", budget=Budget(max_model_turns=0)), helper("away", model="openai-chat:none")],
            models={"broken": broken},
        ),
    ]
    result = await lead([spawned("nobody"), spawned("broken"), spawned("away")], "Sorry.", tools=tools).run("Ask")
    assert result.text == "Sorry."
    told = results(result.session)
    assert [one["type"] for one in told.values()] == ["invalid_arguments", "rejected", "rejected"]
    assert all(name in json.dumps(told["nobody_Go"]) for name in ("broken", "away"))
    assert told["broken_Go"]["code"] == "subagent_step_limit_reached"
    assert told["away_Go"]["code"] == "subagent_unavailable"
    await check_family(result.session)


# --- questions, events, money


@pytest.mark.row("U06")
async def test_a_question_of_a_grandchild_reaches_the_top_with_its_path_and_is_answered_in_another_process(tmp_path):
    world = World()

    def top() -> Agent:
        models = {
            "clerk": Told([spawned("payer")], "Clerk is done.", name="clerk"),
            "payer": Told([proposed("pay", amount=40)], "I paid.", name="payer"),
        }
        spawn = subagent_tool([helper("clerk"), helper("payer")], models=models)
        return lead([spawned("clerk")], "All is done.", tools=[spawn, world.pay()], policy=ask("pay"))

    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().run("Pay", session=session)
        assert result.reason == "approval_required"
        (approval,) = result.approvals
        assert approval.path == ("clerk", "payer")
        assert result.report()["approvals"][0]["path"] == ["clerk", "payer"]
        assert [one["status"] for one in result.report()["children"]] == ["paused"]
    async with open_journal(tmp_path / "a.db") as journal:
        (listed,) = await journal.approvals()
        assert (listed.path, listed.root_id, listed.expires_at) == (("clerk", "payer"), "top", approval.expires_at)
        async with open_session(journal, id="top") as other:
            await other.answer(listed.id, "allow")
    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().resume(session)
        assert result.text == "All is done."
        assert len(world.paid) == 1
        (child,) = result.report()["children"]
        assert (child["agent"], child["status"], child["call_id"]) == ("clerk", "completed", "clerk_Go")
        await check_family(session)


@pytest.mark.row("U01")
async def test_whoever_watches_a_run_sees_the_events_of_all_agents_below_it_with_the_call_they_belong_to():
    inner = Told([proposed("echo", n=1)], "Done.", name="helper")
    top = lead([spawned("helper")], "Done.", tools=[echo_tool(), subagent_tool([helper()], models={"helper": inner})])
    seen: list[AnyEvent] = []
    own: list[AnyEvent] = []
    run = top.stream("Ask")
    run.subscribe(seen.append, children=True)
    run.subscribe(own.append)
    result = await run.finish()
    below = [event for event in seen if event.session_id != result.session_id]
    assert [event.tool for event in below if isinstance(event, ToolStarted)] == ["echo"]
    assert {(event.parent, event.parent_step, event.parent_call) for event in below if event.seq > 1} == {
        (own[0].run_id, 1, "helper_Go")
    }
    assert [event.seq for event in seen if event.session_id == result.session_id] == [event.seq for event in own]
    assert not [event for event in own if event.session_id != result.session_id]
    assert all(isinstance(event, ModelDelta) or event.seq >= 0 for event in seen)


@pytest.mark.row("U08")
@pytest.mark.row("B13")
async def test_agents_that_read_run_side_by_side_and_draw_from_one_budget():
    under_way = 0
    both = asyncio.Event()

    async def meet(arguments: JsonObject, ctx: ToolContext) -> str:
        nonlocal under_way
        under_way += 1
        if under_way == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 30)
        return "met"

    tool = Tool(name="meet", description="", parameters=ANYTHING, effect="read", run=meet)
    inner = Told([proposed("meet")], *[[proposed("echo", f"e{n}", n=n)] for n in range(30)], name="helper")
    spawn = subagent_tool([helper(effect="read")], models={"helper": inner})
    top = lead(
        [spawned("helper", "a"), spawned("helper", "b")],
        "Done.",
        tools=[tool, echo_tool(), spawn],
        budget=Budget(max_model_turns=7),
        on_limit="report",
    )
    result = await top.run("Ask")
    assert both.is_set()
    assert result.reason == "step_limit_reached"
    assert result.spent.model_turns == 7
    assert sum(child.spent.model_turns for child in result.children) == 6
    await check_family(result.session)


@pytest.mark.row("S17")
async def test_the_time_of_a_batch_cuts_the_agent_that_hangs_and_keeps_the_answers_of_the_others():
    tool = read(hang, "hang", timeout=None)
    models: Any = {"slow": Told([proposed("hang")], "Never.", name="slow"), "fast": Told("Fast.", name="fast")}
    spawn = subagent_tool([helper("slow", effect="read"), helper("fast", effect="read")], models=models)
    top = lead(
        [spawned("fast", "1"), spawned("slow"), spawned("fast", "2")], "Done.", tools=[tool, spawn], batch_seconds=20
    )
    async with open_session(MemoryJournal(), clock=FakeClock(auto=True)) as session:
        result = await top.run("Ask", session=session)
        assert [one.status for one in result.tool_calls] == ["ok", "timeout", "ok"]
        assert result.completed
        assert [child.status for child in result.children] == ["completed", "stopped", "completed"]
        await check_family(session)


async def test_a_long_answer_of_an_agent_is_bounded_and_kept_whole():
    inner = Told("x" * 90_000, name="helper")
    top = lead([spawned("helper")], "Long.", tools=[subagent_tool([helper()], models={"helper": inner})])
    result = await top.run("Ask")
    (told,) = result.messages[2].results
    assert len(told.content) <= 50_000
    (finished,) = [event for event in await result.session.events() if isinstance(event, ToolFinished)]
    assert finished.result.artifact is not None
    assert b"x" * 90_000 in (await result.session.journal.blob(finished.result.artifact) or b"")


async def test_an_agent_has_the_model_of_its_caller_where_it_names_none():
    top = lead([spawned("helper")], "Same.", tools=[subagent_tool([helper(model=None)])])
    model: Any = top.model
    # The model sees no call in the child's history, so it calls again there, until the depth ends it.
    result = await top.run("Ask")
    assert result.completed
    assert {request.instructions for request in model.requests} == {None, "You are helper."}


def test_what_is_not_a_list_of_subagents_is_refused():
    with pytest.raises(ConfigurationError, match="at least one"):
        subagent_tool([])
    with pytest.raises(ConfigurationError, match="Two subagents"):
        subagent_tool([helper(), helper()])
    with pytest.raises(ConfigurationError):
        subagent_tool([helper(), "x"])
    with pytest.raises(ConfigurationError, match="models"):
        subagent_tool([helper()], models={"helper": "x"})
    with pytest.raises(ConfigurationError, match="max_depth"):
        Agent("demo", max_depth=-1)
