"""Small models: what the drivers do so that they get more done, and that no other model notices it."""

import json

import pytest
from driver_tools import act, answer, counter_tool, lines

from loop_tools import echo_tool
from pipeline_tools import Recorder, read
from treadle import Agent, resolve_model, tool
from treadle.drivers import NativeDriver, ReActDriver
from treadle.errors import Rejected
from treadle.ports import Driver, ModelFacts
from treadle.providers.capable import CapableModel
from treadle.resolve.models import driver_for
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text

SMALL = ModelFacts(small=True)


def small(turns: list[Turn], **facts: object) -> tuple[ScriptedModel, CapableModel]:
    model = ScriptedModel(turns)
    return model, CapableModel(model, frozenset(), facts=ModelFacts(**{"small": True, **facts}))


@tool(effect="read")
def get_stock(product: str) -> int:
    """Return how many there are."""
    if product != "lamp":
        raise Rejected({"error": "There is no such product."})
    return 9


def bare(name: str, **arguments: object) -> Turn:
    return Turn(text=json.dumps({"name": name, "arguments": arguments}))


# --- a call that is only repeated -----------------------------------------------------------------------------------
async def test_under_react_a_call_that_has_succeeded_ends_the_run_with_the_answer_and_is_not_called_completed(tmp_path):
    pay = counter_tool(tmp_path / "pay", permission="allow")
    inner, model = small([act("pay", to="a"), act("pay", to="b"), act("pay", to="a"), answer("Both are paid.")])

    result = await Agent(model, tools=[pay], driver=ReActDriver(output="json_schema")).run("Pay a and b.")

    assert (result.text, result.reason, len(lines(tmp_path / "pay"))) == ("Both are paid.", "repeated_tool_call", 2)
    assert inner.requests[3].messages[-1].text.splitlines()[:5] == [
        "The task was: Pay a and b.",
        "Done so far:",
        '- {"tool": "pay", "args": {"to":"a"}}: {"done":{"to":"a"}}',
        '- {"tool": "pay", "args": {"to":"b"}}: {"done":{"to":"b"}}',
        '- {"tool": "pay", "args": {"to":"a"}}: ERROR - pay had been called with the same arguments before, and was not run again.',
    ]
    assert inner.requests[3].output_schema["properties"]["tool"] == {"enum": ["answer"]}
    assert [call.status for call in result.tool_calls] == ["ok", "ok", "skipped"]


async def test_the_same_holds_for_calls_that_a_server_leaves_in_the_text(tmp_path):
    pay = counter_tool(tmp_path / "pay", permission="allow")
    async with MockProvider([bare("pay", to="a"), bare("pay", to="a"), text("It is paid.")]) as mock:
        model = resolve_model("llamacpp:qwen2.5-coder-0.5b-instruct", base_url=mock.base_url)
        result = await Agent(model, tools=[pay], driver=NativeDriver()).run("Pay a.")

    assert (result.text, result.reason, len(lines(tmp_path / "pay"))) == ("It is paid.", "repeated_tool_call", 1)
    assert [request.body["tool_choice"] for request in mock.requests] == ["auto", "auto", "none"]
    last = mock.requests[2].body["messages"][-1]["content"]
    assert last == "The task was: Pay a.\nTell the person now, in words, what came of it."


async def test_a_read_is_no_repetition_once_another_call_has_changed_something(tmp_path):
    pay, look = counter_tool(tmp_path / "pay", permission="allow"), read(Recorder("x"))
    turns = [act("look"), act("pay", to="a"), act("look"), act("look"), answer("Done.")]
    _, model = small(turns)

    result = await Agent(model, tools=[pay, look], driver=ReActDriver()).run("Pay, and look.")

    assert [(call.name, call.status) for call in result.tool_calls] == [
        ("look", "ok"), ("pay", "ok"), ("look", "ok"), ("look", "skipped"),
    ]  # fmt: skip


async def test_a_call_that_failed_may_be_tried_again():
    _, model = small([act("get_stock", product="cup"), act("get_stock", product="cup"), answer("None.")])

    result = await Agent(model, tools=[get_stock], driver=ReActDriver()).run("How many cups?")

    assert (result.completed, [call.status for call in result.tool_calls]) == (True, ["rejected", "rejected"])


# --- what is no answer ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (text("Make the next call that it needs, or answer in words if all is done."), "That was not an answer."),
        (
            text("Make another call, with other arguments, or answer in words if none can help."),
            "That was not an answer.",
        ),
        (bare("multiply", a=7, b=8), "There is no tool named 'multiply'."),
    ],
)
async def test_a_copied_reminder_and_a_call_of_a_tool_that_is_not_there_are_no_answers(wrong, told):
    async with MockProvider([bare("get_stock", product="lamp"), wrong, text("There are 9.")]) as mock:
        model = resolve_model("llamacpp:qwen2.5-coder-0.5b-instruct", base_url=mock.base_url)
        result = await Agent(model, tools=[get_stock], driver=NativeDriver()).run("How many lamps?")

    assert (result.text, result.completed) == ("There are 9.", True)
    assert any(told in str(message.get("content")) for message in mock.requests[2].body["messages"])


@pytest.mark.parametrize("driver", [NativeDriver(), ReActDriver()])
async def test_another_model_may_repeat_a_call(tmp_path, driver: Driver):
    pay = counter_tool(tmp_path / "pay", permission="allow")
    is_native = isinstance(driver, NativeDriver)
    turns = [call("pay", to="a"), call("pay", to="a"), text("Done.")] if is_native else [act("pay", to="a"), act("pay", to="a"), answer("Done.")]  # fmt: skip

    result = await Agent(ScriptedModel(turns), tools=[pay], driver=driver).run("Pay a twice.")

    assert (result.text, len(lines(tmp_path / "pay"))) == ("Done.", 2)


# --- what it reads -------------------------------------------------------------------------------------------------
async def test_a_small_model_reads_the_task_again_behind_each_result_and_an_error_as_a_sentence():
    inner, model = small([act("get_stock", product=3), act("get_stock", product="lamp"), answer("9")])

    result = await Agent(model, tools=[get_stock], driver=ReActDriver()).run("How many lamps?")

    wrong, again = inner.requests[1].messages[-2:]
    assert wrong.text.startswith(
        'Observation: ERROR - The arguments are invalid: `product` must be string: write "3", not 3.'
    )
    assert "next_valid_actions" not in wrong.text
    assert again.text == 'The task was: How many lamps?\nWrite this: {"tool": "get_stock", "args": {"product": "3"}}'
    third = inner.requests[2].messages[-1].text
    assert third.startswith("The task was: How many lamps?\nWrite the next step that it needs, ")
    assert inner.requests[2].messages[: len(inner.requests[1].messages) - 1] == inner.requests[1].messages[:-1]
    assert '"thought"' not in str(inner.requests[0].instructions)
    assert json.loads(result.messages[2].results[0].content)["type"] == "invalid_arguments"  # as everywhere


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"products": "lamp"}, 'Make this call: {"name": "get_stock", "arguments": {"product": "lamp"}}'),
        ({}, 'Make this call, with the right values: {"name": "get_stock", "arguments": {"product": <string>}}'),
        ({"product": "cup"}, "Make another call, with other arguments, or answer in words if none can help."),
    ],
)
async def test_a_small_model_reads_behind_an_error_the_call_that_is_wanted_or_that_another_one_is(wrong, told):
    inner, model = small([call("get_stock", **wrong), text("None.")])

    await Agent(model, tools=[get_stock], driver=NativeDriver()).run("How many lamps?")

    said = inner.requests[1].messages[-1].text.split("\n")
    is_refused = wrong == {"product": "cup"}
    assert said == [f"{'Do not make the same call again. ' if is_refused else ''}The task was: How many lamps?", told]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("sentence", "There is no such product."),
        ("json", '{"status":"error"'),
    ],
)
async def test_a_small_model_reads_what_a_service_said_or_all_fields(form, told):
    inner, model = small([act("get_stock", product="cup"), answer("None.")], error_form=form)

    await Agent(model, tools=[get_stock], driver=ReActDriver()).run("How many cups?")

    assert inner.requests[1].messages[-2].text.startswith(f"Observation: ERROR - {told}")


@pytest.mark.parametrize("error_form", ["sentence", None])
async def test_a_native_model_reads_errors_as_sentences_where_its_row_or_option_says_so(error_form):
    async with MockProvider([call("get_stock", product=3), text("None.")]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url, error_form=error_form)
        await Agent(model, tools=[get_stock]).run("How many cups?")

    told = mock.requests[1].body["messages"][-1]["content"]
    assert told.startswith("The arguments are invalid: `product`" if error_form else '{"status":"error"')


async def test_no_request_changes_for_a_model_that_is_not_small():
    async with MockProvider([call("look"), text("Done.")]) as mock:
        await Agent(resolve_model("openai-chat:m", base_url=mock.base_url), tools=[read(Recorder("x"))]).run("go")

    assert [message["role"] for message in mock.requests[1].body["messages"]] == ["user", "assistant", "tool"]


async def test_a_long_task_is_not_shown_again():
    inner, model = small([act("echo", x=1), answer("1")])

    await Agent(model, tools=[echo_tool()], driver=ReActDriver()).run("x" * 1001)

    assert inner.requests[1].messages[-1].text == 'Observation: {"x":1}'


@pytest.mark.parametrize(
    ("name", "facts", "is_react"),
    [
        ("llamacpp:qwen2.5-coder-0.5b-instruct", None, True),
        ("llamacpp:qwen2.5-coder-0.5b-instruct", ModelFacts(small=False), False),
        ("llamacpp:m", ModelFacts(small=True), True),
        ("llamacpp:qwen3-8b", None, False),
        ("vllm:Qwen/Qwen2.5-Coder-0.5B-Instruct", None, False),
    ],
)
def test_a_small_model_is_driven_by_react_where_its_server_enforces_schemas(name, facts, is_react):
    assert isinstance(driver_for(resolve_model(name, facts=facts)), ReActDriver) is is_react
