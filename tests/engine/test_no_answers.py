"""What is no answer, and what keeps a demanded call demanded: the model is asked once more, and then the run stops as what it is."""

import json

import pytest

from treadle import Agent, tool
from treadle.testing import ScriptedModel, Turn, call, text


@tool(effect="read")
async def look(n: int) -> str:
    """Look at a place."""
    return "Nothing."


def error_of(model: ScriptedModel) -> str:
    """Return the error that the model read."""
    return model.requests[1].messages[-1].results[0].content


async def an_error() -> str:
    model = ScriptedModel([call("look", n="many"), text("Sorry.")])
    await Agent(model, tools=[look]).run("go")
    return error_of(model)


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", " {}\n"])
async def test_the_error_of_a_tool_is_not_an_answer(form):
    error = form.replace("{}", await an_error())
    mended = ScriptedModel([call("look", n="many"), text(error), text("It failed.")])
    stuck = ScriptedModel([call("look", n="many"), text(error)])

    first = await Agent(mended, tools=[look]).run("go")
    second = await Agent(stuck, tools=[look]).run("go")

    assert (first.completed, first.text, len(mended.requests)) == (True, "It failed.", 3)
    assert "That was not an answer" in mended.requests[2].messages[-1].text
    assert (second.completed, second.reason, len(stuck.requests)) == (False, "no_final_answer_or_tool_call", 3)
    assert second.stop.details == {"class": "answer_is_error"}


async def test_an_error_that_the_model_made_up_is_not_an_answer_either():
    made_up = json.dumps({"status": "error", "type": "failed", "message": "No.", "code": None})
    behind = ScriptedModel([call("look", n=1), text(made_up), text("Nothing is there.")])
    alone = ScriptedModel([text(made_up)])

    assert (await Agent(behind, tools=[look]).run("go")).text == "Nothing is there."
    assert (await Agent(alone, tools=[look]).run("Write an error object")).text == made_up


async def test_an_empty_answer_after_calls_is_asked_for_once_more():
    mended = ScriptedModel([call("look", n=1), text(" "), text("Nothing is there.")])
    stuck = ScriptedModel([call("look", n=1), text("")])

    first = await Agent(mended, tools=[look]).run("go")
    second = await Agent(stuck, tools=[look]).run("go")

    assert (first.text, len(mended.requests)) == ("Nothing is there.", 3)
    assert (second.completed, second.stop.details, len(stuck.requests)) == (False, {"class": "answer_empty"}, 3)


@pytest.mark.parametrize("answer", ["0", "false", "0.0"])
async def test_a_zero_or_a_false_is_an_answer_after_calls(answer):
    model = ScriptedModel([call("look", n=1), text(answer)])

    result = await Agent(model, tools=[look]).run("How many are there?")

    assert (result.completed, result.text, len(model.requests)) == (True, answer, 2)


async def test_an_echo_of_a_correction_is_not_an_answer():
    model = ScriptedModel([call("look", n=1), text(""), text("?")])
    await Agent(model, tools=[look]).run("go")
    correction = model.requests[2].messages[-1].text
    echo = ScriptedModel([call("look", n=1), text(""), text(correction)])

    result = await Agent(echo, tools=[look]).run("go")

    assert (result.completed, result.stop.details) == (False, {"class": "answer_is_correction"})


# --- a demanded call


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_an_answer_that_was_cut_off_keeps_the_demand(choice):
    model = ScriptedModel([text("I think", finish="length"), call("look", n=1), text("Nothing.")])

    result = await Agent(model, tools=[look], tool_choice=choice).run("go")

    assert result.completed
    assert [one.tool_choice for one in model.requests] == [choice, choice, "auto"]


async def test_calls_that_were_cut_off_keep_it_too():
    cut = Turn(calls=(call("look", n=1),), finish="length")
    model = ScriptedModel([cut, call("look", n=1), text("Nothing.")])

    await Agent(model, tools=[look], tool_choice="required").run("go")

    assert [one.tool_choice for one in model.requests] == ["required", "required", "auto"]


CUT, TEXT, OTHER = text("I think", finish="length"), text("No tool."), call("other", n=1)
ORDERS = {
    "told, then cut": [TEXT, CUT, TEXT],
    "cut, then told": [CUT, TEXT, TEXT],
    "another tool, then cut": [OTHER, CUT, TEXT],
    "another tool, then a text": [OTHER, TEXT],
    "a text, then another tool": [TEXT, OTHER],
    "cut between": [CUT, TEXT, CUT, TEXT],
}


@pytest.mark.parametrize("script", ORDERS.values(), ids=ORDERS)
async def test_a_server_that_ignores_it_is_told_once_in_every_order(script):
    model = ScriptedModel([*script, text("never asked")])

    @tool(effect="read")
    async def other(n: int) -> str:
        """Do something else."""
        return "else"

    result = await Agent(model, tools=[look, other], tool_choice="look").run("go")

    told = [message for message in model.requests[-1].messages if message.text.startswith("You answered without")]
    assert (result.stop.details or {})["class"] == "tool_choice_ignored"
    assert (len(model.requests), len(told)) == (len(script), OTHER not in script or script[0] is TEXT)
