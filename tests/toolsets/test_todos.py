"""Todos: the list is a fact of its session, bounded, shown again while items are open, and never lost in a compaction."""

from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from treadle import Agent, ConfigurationError, Tool, ToolContext, open_session, resolve_model
from treadle.budgets import Guards
from treadle.context import ClearResults, Handoff, Summarize, Tiers
from treadle.engine.rules.tries import todos_reminder
from treadle.errors import ContextOverflow
from treadle.messages import Message, Result, Text, user_message
from treadle.ports import Compaction
from treadle.testing import MockProvider, ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import todo_tool

TOO_LONG = ContextOverflow("The request is longer than the model's context.", status=400)
NOTE = "A note from the runtime: your current to-do list:"
OPEN = {"text": "Count the jars", "state": "in_progress"}
NEXT = {"text": "Weigh the tea", "state": "pending"}
DONE = {"text": "Open the shop", "state": "done"}


def look() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return f"found {arguments['n']} " + "x" * 400

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name="look", description="Look.", parameters=parameters, effect="read", run=run)


def looks(count: int, first: int = 1) -> list[Any]:
    return [call("look", n=n) for n in range(first, first + count)]


def answer() -> Message:
    return Message(role="assistant", parts=(Text("Well."),))


def result_of(name: str) -> Message:
    return Message(role="tool", parts=(Result(call_id="c", name=name, content="[]"),))


def notes(model: ScriptedModel) -> list[str]:
    return [one.text for one in model.requests[-1].messages if NOTE in one.text]


@pytest.mark.parametrize(
    ("items", "lines"),
    [
        (None, None),
        ([], None),
        ([DONE], None),
        ("Count the jars", None),
        ({"text": "Count the jars"}, None),
        ([DONE, OPEN, NEXT], ["[x] Open the shop", "[>] Count the jars", "[ ] Weigh the tea"]),
        ([OPEN, "weigh"], ["[>] Count the jars", "[ ] weigh"]),
        ([{"text": "Weigh", "state": "later"}, {"state": "pending"}], ["[ ] Weigh", "[ ] "]),
    ],
)
def test_the_list_is_shown_where_an_item_is_open(items: Any, lines: list[str] | None) -> None:
    shown = todos_reminder({} if items is None else {"todos": items}, [user_message("Go")])

    assert shown == (
        None if lines is None else "\n".join([NOTE, *lines, "Write the whole list again after each finished item."])
    )


@pytest.mark.row("G11")
@pytest.mark.parametrize(
    ("since", "is_shown"),
    [
        ([], True),
        ([user_message(f"{NOTE} ...")], False),
        ([user_message("Summary\n## Plan and todos\n...")], False),
        ([result_of("todo")], False),
        ([result_of("my_todo")], False),
        ([result_of("look")], True),
        ([result_of("todo"), *[answer()] * 9], False),
        ([result_of("todo"), *[answer()] * 10], True),
        ([result_of("todo"), *[answer(), user_message("More")] * 9], False),
    ],
)
def test_the_list_is_shown_again_after_ten_responses_in_which_it_was_not_seen(
    since: list[Message], is_shown: bool
) -> None:
    shown = todos_reminder({"todos": [OPEN]}, [user_message("Go"), *since])

    assert (shown is not None) is is_shown


@pytest.mark.row("G11")
async def test_the_list_is_kept_replaced_and_removed() -> None:
    model = ScriptedModel(
        [call("todo", items=[OPEN, NEXT]), call("todo", items=[DONE]), call("todo", items=[]), text("Done.")]
    )
    async with open_session("memory:") as session:
        result = await Agent(model, tools=[todo_tool()]).run("Go", session=session)
        assert result.completed, result.message
        changes = [change["todos"] for _, change in session.state.facts.changes]
        assert changes == [[OPEN, NEXT], [DONE], None]
        assert "todos" not in session.state.facts.values
        assert '"in_progress":1' in session.messages[2].results[0].content
        await check_session(session)


@pytest.mark.row("G11")
async def test_too_many_items_or_two_at_once_are_refused_and_the_list_stays() -> None:
    two = [OPEN, {**NEXT, "state": "in_progress"}]
    many = [{"text": f"Item {number}", "state": "pending"} for number in range(4)]
    model = ScriptedModel(
        [call("todo", items=[OPEN]), call("todo", items=many), call("todo", items=two), text("Done.")]
    )
    async with open_session("memory:") as session:
        await Agent(model, tools=[todo_tool(max_items=3)]).run("Go", session=session)

        refused = [message.results[0].content for message in session.messages if message.results][1:]
        assert "3" in refused[0]
        assert "2 items are in_progress" in refused[1]
        assert session.state.facts.values["todos"] == [OPEN]


@pytest.mark.parametrize("wrong", [0, 201, True, "5", 2.5])
def test_a_limit_that_is_no_number_of_items_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        todo_tool(max_items=wrong)


@pytest.mark.row("G11")
async def test_open_items_are_shown_again_after_ten_steps_and_not_before() -> None:
    model = ScriptedModel([call("todo", items=[OPEN, NEXT]), *looks(25), text("Done.")])
    agent = Agent(model, tools=[look(), todo_tool()], guards=Guards(budget_warning=None))

    result = await agent.run("Go")

    assert result.completed
    shown = [number for number, request in enumerate(model.requests, start=1) if NOTE in request.messages[-1].text]
    assert shown == [12, 22]  # the list was written by the response to the first
    assert notes(model)[0].splitlines()[1:3] == ["[>] Count the jars", "[ ] Weigh the tea"]
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages  # a cache keeps all of it


async def test_a_list_that_is_done_is_not_shown_again() -> None:
    model = ScriptedModel([call("todo", items=[DONE]), *looks(15), text("Done.")])
    await Agent(model, tools=[look(), todo_tool()], guards=Guards(budget_warning=None)).run("Go")
    assert not notes(model)


@pytest.mark.row("C04")
@pytest.mark.parametrize("compactor", [Summarize(keep=1), Handoff(keep=1)], ids=["summary", "handoff"])
async def test_the_list_and_the_plan_are_in_the_first_request_after_a_compaction(compactor: Any) -> None:
    model = ScriptedModel(
        [call("todo", items=[OPEN]), *looks(6), TOO_LONG, text("Summary."), *looks(3, 7), text("Done.")]
    )

    result = await Agent(model, tools=[look(), todo_tool()], compactor=compactor).run("Go")

    assert result.completed, result.message
    after = model.requests[9]
    assert after.tools
    assert [one.text for one in after.messages if "Count the jars" in one.text and "## Plan and todos" in one.text]
    assert not notes(model)  # it is shown already
    await check_session(result.session)


@pytest.mark.row("C04")
async def test_after_a_compactor_of_ones_own_that_drops_the_list_it_is_shown_with_the_next_results() -> None:
    class Dropping:
        def is_due(self, need: Any, tokens: int) -> bool:
            return False

        async def compact(self, context: Any) -> Any:
            return Compaction(tier="own", begin=1, end=len(context.messages), messages=(user_message("Go on."),))

    model = ScriptedModel([call("todo", items=[OPEN]), *looks(3), TOO_LONG, *looks(2, 4), text("Done.")])
    await Agent(model, tools=[look(), todo_tool()], compactor=Dropping()).run("Go")

    assert [NOTE in one.messages[-1].text for one in model.requests] == [False] * 6 + [True, False]


@pytest.mark.row("G11")
async def test_the_list_goes_with_its_session_into_another_process_a_fork_and_back(tmp_path: Path) -> None:
    store = str(tmp_path / "a.db")
    model = ScriptedModel([call("todo", items=[OPEN]), text("One."), call("todo", items=[DONE]), text("Two.")])
    agent = Agent(model, tools=[todo_tool()])
    async with open_session(store, id="shop") as session:
        await agent.run("Go", session=session)
        mark = await session.mark("first")
        await agent.run("Go on", session=session)
        assert session.state.facts.values["todos"] == [DONE]
    async with open_session(store, id="shop") as session:
        fork = await session.fork(mark)
        assert fork.state.facts.values["todos"] == [OPEN]
        await session.rewind(mark)
        assert session.state.facts.values["todos"] == [OPEN]


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
async def test_the_list_and_its_reminder_are_accepted_by_strict_vendors(dialect: str) -> None:
    turns = [call("todo", items=[OPEN]), *looks(11), text("Done.")]
    async with MockProvider(turns) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        tools = [look(), todo_tool()]
        result = await Agent(model, tools=tools, compactor=Tiers(ClearResults(), Handoff())).run("Go")
        assert NOTE in str(mock.requests[-1].body)

    assert result.completed, result.message
