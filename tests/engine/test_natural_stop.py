"""The loop's natural course: propose, execute, record, repeat, and the ways in which a response itself ends it."""

import asyncio
import itertools
from typing import Any

import pytest

from loop_tools import chat, counter_tool, echo_tool, lines
from pipeline_tools import Recorder, act, raising, read, run_calls, statuses
from treadle import Agent, Budget, Tool, open_session
from treadle.drivers.native import NativeDriver
from treadle.events import RunFinished
from treadle.messages import Finish, Text, ToolCall
from treadle.ports import Executor, Model, ModelEnd, ModelRequest
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolContext


@pytest.mark.row("L01", "S20", "M07")
@pytest.mark.parametrize("stream", [True, False])
async def test_each_request_holds_the_calls_and_results_of_all_steps_before_in_order(stream):
    async with MockProvider([call("a", x="a"), call("b", x="b"), "done"]) as mock:
        result = await Agent(chat(mock, stream=stream), tools=[echo_tool("a"), echo_tool("b")]).run("go")

    assert result.completed
    assert result.text == "done"
    assert [len(request.body["messages"]) for request in mock.requests] == [1, 3, 5]
    last = mock.requests[2].body["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [m["tool_call_id"] for m in last if m["role"] == "tool"] == [
        m["tool_calls"][0]["id"] for m in last if m["role"] == "assistant"
    ]
    assert [m["content"] for m in last if m["role"] == "tool"] == ['{"x":"a"}', '{"x":"b"}']


@pytest.mark.row("L02")
async def test_a_text_without_calls_completes_after_one_request():
    model = ScriptedModel([text("Hello.")])

    result = await Agent(model).run("greet")

    assert (result.reason, result.completed, result.text, len(model.requests)) == ("completed", True, "Hello.", 1)


@pytest.mark.row("L03", "PF19")
@pytest.mark.parametrize("stream", [True, False])
async def test_the_presence_of_calls_decides_and_not_the_finish_reason(stream):
    turns = [Turn(calls=(call("echo"),), finish="stop"), Turn(text="end", finish="tool_calls")]
    async with MockProvider(turns) as mock:
        result = await Agent(chat(mock, stream=stream), tools=[echo_tool()]).run("go")

    assert result.reason == "completed"
    assert [one.status for one in result.tool_calls] == ["ok"]


@pytest.mark.row("L04")
async def test_text_before_a_call_is_kept_and_sent_again_in_one_message():
    async with MockProvider([["I'll look", call("echo", id="c1")], "done"]) as mock:
        result = await Agent(chat(mock), tools=[echo_tool()]).run("go")

    spoken = [m for m in mock.requests[1].body["messages"] if m["role"] == "assistant"]
    assert [(m["content"], m["tool_calls"][0]["id"]) for m in spoken] == [("I'll look", "c1")]
    assert [type(part) for part in result.messages[1].parts] == [Text, ToolCall]


@pytest.mark.row("L05", "PF13")
async def test_neither_answer_nor_call_is_no_success():
    model = ScriptedModel([text("")])

    report = (await Agent(model).run("go")).report()

    assert (report["status"], report["reason"]) == ("stopped", "no_final_answer_or_tool_call")
    assert report["completed"] is False


@pytest.mark.row("L05")
async def test_a_session_goes_on_after_an_empty_answer_with_a_history_that_providers_accept():
    async with MockProvider(["", "here"]) as mock:
        first = await Agent(chat(mock)).run("go")
        second = await Agent(chat(mock)).resume(first.session)

    assert (first.completed, second.text, mock.refusals) == (False, "here", [])


@pytest.mark.row("PF14")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_cut_by_its_output_limit_starts_no_call_that_had_not_started(tmp_path, stream):
    rec = counter_tool(tmp_path / "rec", effect="unsafe", permission="allow")
    cut = Turn(calls=(call("rec", x=1), call("rec", arguments='{"x": ')), finish="length")
    async with MockProvider([cut, "sorry"]) as mock:
        result = await Agent(chat(mock, stream=stream), tools=[rec]).run("go")

    assert lines(tmp_path / "rec") == 0
    assert [one.status for one in result.tool_calls] == ["skipped", "skipped"]
    assert result.text == "sorry"


@pytest.mark.row("L26", "PF14")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_calls_that_are_cut_off_again_and_again_end_the_run_and_it_may_be_resumed(tmp_path, effect):
    rec = counter_tool(tmp_path / "rec", effect=effect, permission="allow")
    cut = Turn(calls=(call("rec", arguments='{"x": '),), finish="length")
    async with MockProvider([*[cut] * 4, "Shorter now."]) as mock:
        agent = Agent(chat(mock), tools=[rec])
        result = await agent.run("go")
        assert (result.reason, len(mock.requests)) == ("output_truncated", 4)
        assert lines(tmp_path / "rec") == 0
        assert [one.status for one in result.tool_calls] == ["skipped"] * 4

        assert (await agent.resume(result.session)).text == "Shorter now."


@pytest.mark.row("PF15", "L29")
async def test_calls_of_a_refused_response_never_start_and_end_the_run(tmp_path):
    rec = counter_tool(tmp_path / "rec", effect="unsafe", permission="allow")
    async with MockProvider([Turn(calls=(call("rec"),), finish="content_filter")]) as mock:
        result = await Agent(chat(mock), tools=[rec]).run("go")

        assert (result.reason, len(mock.requests)) == ("refused", 1)
    assert lines(tmp_path / "rec") == 0
    assert result.messages[-1].role == "tool"


@pytest.mark.row("T13", "L15")
async def test_a_tool_that_ends_the_run_completes_it_and_answers_every_call_of_its_batch():
    rec, submit = Recorder(), act(lambda arguments, ctx: arguments, "submit", effect="idempotent", ends_run=True)
    model = ScriptedModel([[call("echo", x=1), call("submit", answer=42), call("act")], text("never said")])

    result = await Agent(model, tools=[echo_tool(), submit, act(rec)]).run("go")

    report = result.report()
    assert (report["completed"], report["reason"]) == (True, "done_condition_satisfied")
    assert (report["output"], len(model.requests), rec.runs) == ({"answer": 42}, 1, 0)
    assert [one["status"] for one in report["tool_calls"]] == ["ok", "ok", "skipped"]
    assert [len(message.results) for message in result.messages] == [0, 0, 3]


@pytest.mark.row("L21")
async def test_an_abnormal_stop_gives_back_text_calls_usage_and_messages():
    model = ScriptedModel([[text("so far"), call("echo", x=1)]])

    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=1), on_limit="report").run("go")

    assert not result.completed
    assert result.text == "so far"
    assert [one.name for one in result.tool_calls] == ["echo"]
    assert result.usage.input_tokens > 0
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


@pytest.mark.row("L22")
async def test_steps_can_be_watched_one_by_one_and_end_where_the_run_ends():
    def turns() -> ScriptedModel:
        return ScriptedModel([call("echo", x=1), [call("echo", x=2), call("echo", x=3)], text("done")])

    tools = [echo_tool()]
    async with Agent(turns(), tools=tools).stream("go") as run:
        steps = [step async for step in run.steps()]
    whole = await Agent(turns(), tools=tools).run("go")

    assert len(steps) == run.result.steps == whole.steps == 3
    assert [len(step.messages) for step in steps] == [3, 5, 6]
    contents = [[part.content for part in step.results.results] if step.results else None for step in steps]
    assert contents == [['{"x":1}'], ['{"x":2}', '{"x":3}'], None]
    strip = [[(type(p), getattr(p, "text", None)) for p in m.parts] for m in run.result.messages]
    assert strip == [[(type(p), getattr(p, "text", None)) for p in m.parts] for m in whole.messages]


@pytest.mark.row("L31")
async def test_one_agent_runs_side_by_side_with_itself_without_mixing_histories():
    both = asyncio.Barrier(2)

    async def meet(arguments: JsonObject, ctx: ToolContext) -> str:
        await both.wait()  # opens only when both runs are inside
        return ctx.session.messages[0].text

    tool = Tool(name="meet", description="Meet.", parameters={"type": "object"}, effect="read", run=meet)

    def respond(request: ModelRequest) -> object:
        return [call("meet")] if len(request.messages) == 1 else [text(request.messages[0].text)]

    agent = Agent(ScriptedModel([respond]), tools=[tool])
    one, other = await asyncio.gather(agent.run("first"), agent.run("second"))

    assert (one.text, other.text) == ("first", "second")
    assert one.messages[2].results[0].content == "first"
    assert len(one.messages) == len(other.messages) == 4


async def test_a_driver_that_ends_without_a_terminal_part_gives_no_answer():
    class Mute(NativeDriver):
        def bind(self, model: Model, tools: object, executor: Executor) -> "Mute":
            return self

        async def propose(self, request: ModelRequest):
            for part in ():
                yield part

    result = await Agent(ScriptedModel([text("x")]), driver=Mute(), budget=Budget(max_retries_per_model_call=0)).run(
        "go"
    )

    assert (result.reason, result.text) == ("incomplete_stream", "")


@pytest.mark.row("M01", "M09")
async def test_every_request_begins_with_the_bytes_of_the_one_before():
    turns = [call("echo", b=n, a=[1, {"z": 1, "y": 2}]) for n in range(4)]
    async with MockProvider([*turns, "done"]) as mock:
        await Agent(chat(mock), tools=[echo_tool()], instructions="Be brief.").run("go")

    prefixes = [request.raw.partition(b'"messages":[')[2].removesuffix(b"]}") for request in mock.requests]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(prefixes))
    heads = {request.raw.partition(b'"messages":[')[0] for request in mock.requests}
    assert len(heads) == 1


@pytest.mark.row("L11", "Q02")
async def test_a_second_task_in_one_session_counts_from_zero():
    model = ScriptedModel([call("echo", x=1), call("echo", x=2), text("one"), call("echo", x=3), text("two")])
    agent = Agent(model, tools=[echo_tool()], budget=Budget(max_tool_calls=3))
    async with open_session("memory:", id="s") as session:
        first = await agent.run("first", session=session)
        second = await agent.run("second", session=session)

    assert (first.text, second.text) == ("one", "two")
    assert len(second.tool_calls) == 1
    assert [message.role for message in second.messages].count("user") == 2


# --- responses that were cut off
@pytest.mark.row("L26", "PF14")
@pytest.mark.parametrize(
    ("cut", "rest"), [(Turn(text="So", finish="length"), " be it."), (Turn(calls=(call("look", n=9),), finish="length"), "So be it.")]
)  # fmt: skip
async def test_more_room_is_asked_for_only_once_a_response_was_cut_however_many_steps_came_before(cut, rest):
    model = ScriptedModel([*(call("look", n=n) for n in range(6)), cut, text(rest)])

    result = await Agent(model, tools=[read(Recorder())]).run("go")

    assert (result.reason, result.text) == ("completed", "So be it.")
    assert [request.raise_output_limit for request in model.requests] == [False] * 7 + [True]


@pytest.mark.row("W11", "L29")
async def test_a_refusal_that_the_provider_explains_ends_the_run_with_those_words():
    class Refusing:
        name, price = "refusing", None

        async def stream(self, request: Any) -> Any:
            yield ModelEnd(parts=(), finish=Finish.REFUSED, message="Blocked: PROHIBITED_CONTENT.")

    result = await Agent(Refusing()).run("go")

    assert (result.reason, result.report()["message"]) == ("refused", "Blocked: PROHIBITED_CONTENT.")


@pytest.mark.row("L22")
async def test_a_step_is_shown_while_the_run_goes_on():
    model = ScriptedModel([call("look", n=n) for n in range(50)])
    shown: list[int] = []

    async with Agent(model, tools=[read(Recorder())]).stream("go") as run:
        async for step in run.steps():
            shown.append(len(step.messages))
            if len(shown) == 2:
                run.cancel()

    assert run.result.reason == "cancelled"
    assert shown[:2] == [3, 5]
    assert len(model.requests) < 50


@pytest.mark.row("L21")
@pytest.mark.parametrize("on_limit", ["report", "summarize"])
async def test_the_end_of_a_stopped_run_has_the_last_text_in_its_record(on_limit):
    turns = [Turn(text=f"Looking {n}", calls=(call("look", n=n),)) for n in range(9)]
    budget = Budget(max_model_turns=2)

    result = await Agent(ScriptedModel(turns), tools=[read(Recorder())], budget=budget, on_limit=on_limit).run("go")

    last = "Looking 1" if on_limit == "report" else "Looking 2"
    (ended,) = [event for event in await result.session.events() if isinstance(event, RunFinished)]
    assert (ended.text, result.text, ended.status) == (last, last, "stopped")


@pytest.mark.row("L15")
@pytest.mark.parametrize("error", [RuntimeError("broke"), ConnectionError("gone")])
async def test_a_failed_call_of_a_tool_that_ends_the_run_does_not_end_it(error):
    submit = read(raising(error), "submit", ends_run=True, retries=0)

    result = await run_calls(call("submit", answer=1), tools=[submit], answer="I could not submit.")

    assert (result.reason, result.text, statuses(result)) == ("completed", "I could not submit.", ["failed"])
