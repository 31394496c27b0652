"""The native driver and its choices of tools: its order of events, forced and forbidden tools, leaked arguments, cut answers."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from driver_tools import chat, counter_tool, lines

from invariants import check_session
from loop_tools import echo_tool
from treadle import Agent, ConfigurationError, Tool, open_session
from treadle.budgets import Budget, Guards
from treadle.drivers.native import NativeDriver
from treadle.drivers.scripted import ScriptedDriver
from treadle.events import AnyEvent, ModelFinished
from treadle.messages import Text
from treadle.ports import ModelPart, ModelRequest
from treadle.testing import Gate, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject


@pytest.mark.row("D03")
async def test_the_moves_of_a_step_show_as_events_in_order():
    events: list[str] = []
    async with MockProvider([[text("I look."), call("echo", x=1)], text("end")]) as mock:
        await Agent(chat(mock), tools=[echo_tool()], subscribers=[lambda event: events.append(event.type)]).run("go")

    first = ["run.started", "message.added", "model.started", "model.delta"]
    assert events[:4] == first
    acts = [event for event in events if event != "model.delta"]
    assert sorted(acts[3:7]) == ["call.decided", "model.finished", "tool.finished", "tool.started"]
    assert acts.index("call.decided") < acts.index("tool.started") < acts.index("tool.finished")
    assert acts[7:] == ["model.started", "model.finished", "run.finished"]


# --- forced choices --------------------------------------------------------------------------------------------------


@pytest.mark.row("D05")
@pytest.mark.parametrize("choice", ["required", "glob"])
async def test_a_forced_choice_holds_for_the_first_request_only(choice):
    async with MockProvider([call("glob", x=1), text("end")]) as mock:
        await Agent(chat(mock), tools=[echo_tool("glob"), echo_tool("grep")], tool_choice=choice).run("go")

    told = [request.body["tool_choice"] for request in mock.requests]
    forced = "required" if choice == "required" else {"type": "function", "function": {"name": "glob"}}
    assert told == [forced, "auto"]


@pytest.mark.row("D06")
async def test_a_text_under_required_is_noticed_and_the_model_asked_once_more():
    model = ScriptedModel([text("No tool."), call("echo", x=1), text("end")])

    result = await Agent(model, tools=[echo_tool()], tool_choice="required").run("go")

    assert (result.text, [one.name for one in result.tool_calls]) == ("end", ["echo"])
    assert [request.tool_choice for request in model.requests] == ["required", "required", "auto"]
    assert "Call a tool first" in model.requests[1].messages[-1].text


# --- leaked arguments ------------------------------------------------------------------------------------------------


@pytest.mark.row("D07")
@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ('{"x": 1}', [{"x": 1}]),
        (' {"x":1.0}\n', [{"x": 1}]),
        ('{"b": [1, {"c": null}], "a": "é"}', [{"a": "é", "b": [1, {"c": None}]}]),
        ('{"x": 2}', [{"x": 1}, {"x": 2}]),
        ("{}", [{}]),
    ],
)
async def test_text_that_only_repeats_a_calls_arguments_is_dropped(said, calls):
    events: list[AnyEvent] = []
    turn = [text(said), *(call("echo", arguments=arguments) for arguments in calls)]
    async with MockProvider([turn, text("end")]) as mock:
        result = await Agent(chat(mock), tools=[echo_tool()], subscribers=[events.append]).run("go")

    assert result.text == "end"
    spoken = mock.requests[1].body["messages"][1]
    assert spoken.get("content") in (None, "")
    assert len(spoken["tool_calls"]) == len(calls)
    assert [event.dropped_text for event in events if isinstance(event, ModelFinished)] == [said, ""]


@pytest.mark.row("D07")
@pytest.mark.parametrize(
    "said",
    ['{"x": 2}', '{"x": true}', '{"x": "1"}', '{"x": 1', 'I call it with {"x": 1}', "[1]", "1", '{"x": 1}{"x": 1}', "{" * 5000],
    ids=range(9),
)  # fmt: skip
async def test_any_other_text_is_kept(said):
    model = ScriptedModel([[text(said), call("echo", x=1)], text("end")])

    result = await Agent(model, tools=[echo_tool()]).run("go")

    assert result.messages[1].parts[0] == Text(said)


@pytest.mark.row("D07")
async def test_json_without_a_call_is_an_answer():
    result = await Agent(ScriptedModel([text('{"x": 1}')]), tools=[echo_tool()]).run("go")

    assert (result.text, result.completed) == ('{"x": 1}', True)


# --- answers that are cut off ----------------------------------------------------------------------------------------


@pytest.mark.row("L26")
async def test_an_answer_that_was_cut_off_is_continued_and_told_as_one():
    turns = [text("One ", finish="length"), text("two ", finish="length"), text("three.")]
    async with MockProvider(turns) as mock, open_session("memory:") as session:
        result = await Agent(chat(mock)).run("count", session=session)
        told = session.state.run.text if session.state.run else ""

    assert (result.text, result.completed, told) == ("One two three.", True, "One two three.")
    roles = [message["role"] for message in mock.requests[2].body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.row("L26")
async def test_after_three_continuations_the_run_says_that_the_answer_is_truncated():
    model = ScriptedModel([text("more ", finish="length")])

    result = await Agent(model).run("count")

    assert (result.reason, result.completed, len(model.requests)) == ("output_truncated", False, 4)
    assert result.text == "more " * 4


@pytest.mark.row("L26")
async def test_calls_between_two_cut_answers_begin_the_count_anew():
    cut = text("x", finish="length")
    model = ScriptedModel([cut, cut, cut, call("echo", x=1), cut, cut, cut, text("end")])

    result = await Agent(model, tools=[echo_tool()]).run("go")

    assert (result.text, result.completed) == ("xxxend", True)


# --- finish reasons that end a run -----------------------------------------------------------------------------------


@pytest.mark.row("L29")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_finish_reason_that_the_user_names_ends_the_run_as_refused(stream):
    async with MockProvider([Turn(text="x", finish="odd_word")]) as mock:
        agent = Agent(chat(mock, stream=stream), guards=Guards(finish_reasons=("odd_word",)))
        guarded = await agent.run("go")
        free = await Agent(chat(mock, stream=stream), budget=Budget(max_retries_per_model_call=0)).run("go")

    assert (guarded.reason, guarded.stop.details) == ("refused", {"finish_reason": "odd_word"})
    assert (free.reason, free.text) == ("completed", "x")


@pytest.mark.row("L29")
async def test_calls_beside_such_a_finish_reason_do_not_run(tmp_path):
    pay = counter_tool(tmp_path / "pay", permission="allow")
    model = ScriptedModel([Turn(calls=(call("pay", x=1),), finish="odd"), text("never asked")])

    result = await Agent(model, tools=[pay], guards=Guards(finish_reasons=("odd",))).run("go")

    assert (result.reason, len(model.requests), lines(tmp_path / "pay")) == ("refused", 1, [])
    assert [one.status for one in result.tool_calls] == ["skipped"]


@pytest.mark.parametrize("words", ["recitation", (1,), None])
def test_finish_reasons_are_words(words):
    with pytest.raises(ConfigurationError):
        Guards(finish_reasons=words)


@pytest.mark.row("L26")
async def test_each_piece_of_a_continued_answer_is_a_step():
    model = ScriptedModel([text("One ", finish="length"), call("echo", x=1), text("two.")])

    async with Agent(model, tools=[echo_tool()]).stream("count") as run:
        steps = [(step.number, step.message.text, step.results is not None) async for step in run.steps()]

    assert steps == [(1, "One ", False), (2, "", True), (3, "two.", False)]
    assert run.result.text == "two."


# --- a choice of tools is a promise: what the request did not permit does not run, whatever driver proposed it


class Headstrong:
    """A driver of the user's own that proposes what it likes, and does not even ask its model."""

    def __init__(self, turns: Sequence[Any]) -> None:
        self._model = ScriptedModel(turns)

    def bind(self, model: Any, tools: Any, executor: Any) -> "Headstrong":
        return self

    async def propose(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        async for part in self._model.stream(request):
            yield part


def native(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel(turns), driver=NativeDriver(), **words)


def scripted(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel([text("never asked")]), driver=ScriptedDriver(ScriptedModel(turns)), **words)


def headstrong(turns: Sequence[Any], **words: Any) -> Agent:
    return Agent(ScriptedModel([text("never asked")]), driver=Headstrong(turns), **words)


DRIVERS: list[Callable[..., Agent]] = [native, scripted, headstrong]


def counted(ran: list[str], name: str, effect: Any = "unsafe") -> Tool:
    async def run(arguments: JsonObject, ctx: Any) -> str:
        ran.append(name)
        return "done"

    return Tool(name=name, description=name, parameters={}, effect=effect, permission="allow", run=run)


@pytest.mark.row("N04", "D06")
@pytest.mark.parametrize("make", DRIVERS)
@pytest.mark.parametrize(
    ("choice", "proposed", "expected"),
    [
        ("none", ["pay"], []),
        ("none", ["look", "pay"], []),
        ("look", ["pay"], []),
        ("look", ["pay", "look"], ["look"]),
        ("pay", ["look", "pay"], ["pay"]),
        ("required", ["look", "pay"], ["look", "pay"]),
    ],
)
async def test_what_the_choice_of_tools_forbids_does_not_run(make, choice, proposed, expected):
    ran: list[str] = []
    tools = [counted(ran, "look", "read"), counted(ran, "pay")]
    async with open_session("memory:") as session:
        agent = make([[call(name) for name in proposed], text("Done.")], tools=tools, tool_choice=choice)
        result = await agent.run("go", session=session)
        await check_session(session)

    assert ran == expected
    refused = [record.name for record in result.tool_calls if record.status == "skipped"]
    assert sorted(refused) == sorted(set(proposed) - set(expected))


@pytest.mark.row("N04")
@pytest.mark.parametrize("choice", ["none", "look"])
async def test_a_read_that_the_choice_forbids_does_not_start_while_its_response_streams(choice):
    ran: list[str] = []
    gate = Gate()
    turn = Turn(calls=(call("peek"), call("peek", n=2)), gate=gate, hold_after_call=0)
    tools = [counted(ran, "peek", "read"), counted(ran, "look", "read")]

    def watch(event: Any) -> None:
        if event.type == "model.delta":
            gate.open()

    agent = Agent(ScriptedModel([turn, text("Done.")]), tools=tools, tool_choice=choice, subscribers=[watch])
    await agent.run("go")
    assert ran == []


@pytest.mark.row("N04", "D06")
@pytest.mark.parametrize(
    ("choice", "turns"),
    [
        ("none", [call("pay"), call("pay", n=2)]),
        ("look", [call("pay"), call("pay", n=2)]),
        ("look", [call("pay"), text("Never mind.")]),
        ("required", [text("No tool."), text("No tool.")]),
    ],
)
async def test_a_model_that_ignores_the_choice_twice_ends_the_run_and_the_reason_says_so(choice, turns):
    ran: list[str] = []
    model = ScriptedModel([*turns, text("never")])
    result = await Agent(model, tools=[counted(ran, "look"), counted(ran, "pay")], tool_choice=choice).run("go")

    assert (result.reason, result.completed, len(model.requests)) == ("no_final_answer_or_tool_call", False, 2)
    assert result.stop.details == {"class": "tool_choice_ignored", "tool_choice": choice}
    assert [request.tool_choice for request in model.requests] == [choice, choice]
    assert ran == []


@pytest.mark.row("N04")
async def test_after_the_wrong_tool_the_named_one_is_asked_for_again():
    ran: list[str] = []
    model = ScriptedModel([call("pay"), call("look"), call("pay"), text("Done.")])
    result = await Agent(model, tools=[counted(ran, "look"), counted(ran, "pay")], tool_choice="look").run("go")

    assert result.completed
    assert ran == ["look", "pay"]  # the choice held until it was followed
    assert [request.tool_choice for request in model.requests] == ["look", "look", "auto", "auto"]


@pytest.mark.row("N04")
async def test_a_server_that_ignores_the_field_runs_nothing_over_http():
    ran: list[str] = []
    async with MockProvider([call("pay"), text("Done.")]) as mock:
        result = await Agent(chat(mock), tools=[counted(ran, "pay")], tool_choice="none").run("go")

    assert (result.completed, ran) == (True, [])
