"""Answers, ends and limits of a run by their values, each at its borders."""

from typing import Any

import pytest

from treadle.engine.model_calls.requests import CONTINUE, Answers, has_ignored_choice, ignored_choice_stop
from treadle.engine.model_calls.reservations import add_costs, count_tokens, encodable_call, encodable_part, estimate
from treadle.engine.tool_calls.calls import Proposal
from treadle.events import ModelFinished
from treadle.messages import Finish, Media, Message, Result, Text, ToolCall, Usage, user_message
from treadle.ports import ModelRequest, ToolSpec
from treadle.stops import Stop, StopReason
from treadle.validation.typed import Typed


def finished(words: str = "", *calls: ToolCall, finish: Finish = Finish.STOP) -> ModelFinished:
    parts = (*((Text(words),) if words else ()), *calls)
    return ModelFinished(message=Message(role="assistant", parts=parts), finish=finish)


def said(words: str) -> Message:
    return Message(role="assistant", parts=(Text(words),))


def judged(now: ModelFinished, *before: Message, choice: str = "auto", output: Any = None) -> Stop | str:
    return Answers(output=output).judge(Proposal(finished=now, tool_choice=choice), before)


def cut(times: int) -> list[Message]:
    return [one for number in range(times) for one in (said(f"{number}-"), user_message(CONTINUE))]


@pytest.mark.parametrize(("times", "goes_on"), [(0, True), (2, True), (3, False)])
def test_an_answer_that_is_cut_off_is_continued_three_times(times, goes_on):
    found = judged(finished("x", finish=Finish.LENGTH), user_message("go"), *cut(times))
    if goes_on:
        assert found == CONTINUE
    else:
        assert isinstance(found, Stop)
        assert (found.reason, found.message) == (
            StopReason.OUTPUT_TRUNCATED, "The answer was cut off by the output limit."
        )  # fmt: skip


@pytest.mark.parametrize(("choice", "words"), [("required", "any of them."), ("pay", "pay.")])
def test_a_model_that_must_call_and_answers_is_told_once(choice, words):
    told = judged(finished("x"), user_message("go"), choice=choice)
    assert told == f"You answered without calling a tool. Call a tool first: {words}"
    assert has_ignored_choice([user_message(str(told))])
    assert not has_ignored_choice([user_message(str(told)), said("x")])
    assert not has_ignored_choice([])
    found = judged(finished("x"), user_message("go"), said("x"), user_message(str(told)), choice=choice)
    assert found == Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=f"tool_choice is {choice!r}, and the model answered twice without calling a tool.",
        details={"class": "tool_choice_ignored", "tool_choice": choice},
    )


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("none", "tool_choice is 'none', and the model called a tool twice."),
        ("pay", "tool_choice is 'pay', and the model called another tool twice."),
    ],
)
def test_a_model_that_calls_what_was_forbidden_twice_ends_the_run(choice, message):
    other = ToolCall(id="c", name="look", arguments="{}")
    told = [user_message("You answered without calling a tool. Call a tool first: pay.")]
    assert ignored_choice_stop(finished("", other), told, choice) == Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=message,
        details={"class": "tool_choice_ignored", "tool_choice": choice},
    )
    assert ignored_choice_stop(finished("x"), told, choice) is None
    assert ignored_choice_stop(finished("", other), [], choice) is None
    if choice == "pay":
        mixed = finished("", other, ToolCall(id="d", name="pay", arguments="{}"))
        assert ignored_choice_stop(mixed, told, choice) is None


def test_an_answer_in_the_wrong_form_is_corrected_twice():
    form = Typed({"type": "object", "required": ["a"]}, where="output")
    before = [user_message("go")]
    for _ in range(2):
        told = judged(finished("{}"), *before, output=form)
        assert isinstance(told, str)
        assert told.startswith("Your answer does not have the required form. ")
        assert told.endswith(" Answer again with the whole JSON object and nothing else.")
        before += [said("{}"), user_message(told)]
    found = judged(finished("{}"), *before, output=form)
    assert isinstance(found, Stop)
    assert found.message.startswith("The answer does not have the required form, after 2 corrections. ")
    assert found.details is not None
    assert (found.details["class"], found.details["attempts"]) == ("output_invalid", 3)
    assert found.details["violations"]
    anew = judged(finished("{}"), *before, user_message("And now?"), output=form)
    assert isinstance(anew, str)
    good = judged(finished('{"a":1}'), output=form)
    assert good == Stop(reason=StopReason.COMPLETED, message="The model answered.", output={"a": 1})


# --- hooks, approvers
# --- asides, compactions, estimates
def test_what_nobody_counts_is_estimated_at_four_characters_a_token():
    plain = estimate(ModelRequest(messages=(), instructions="x" * 8), ())
    assert (plain.input_tokens, plain.output_tokens, plain.estimated) == (3, 1, True)
    assert estimate(ModelRequest(messages=()), ()).input_tokens == 1
    picture = Media(media_type="image/png", base64="x" * 100_000)
    notes = Media(media_type="text/plain", base64="x" * 400)
    assert estimate(ModelRequest(messages=()), (picture,)).output_tokens == 1_501
    assert estimate(ModelRequest(messages=()), (notes,)).output_tokens == 101
    result = Result(call_id="c", name="t", content="x" * 40, media=(notes,))
    assert count_tokens([Message(role="tool", parts=(result,))]) == 111
    assert (add_costs(None, None), count_tokens([])) == (None, 1)


def test_words_that_can_be_stored_stay_the_same_object_and_damaged_ones_become_text():
    whole = ToolCall(id="c", name="é", arguments='{"a":"é"}')
    assert encodable_call(whole) is whole
    text = Text("é")
    assert encodable_part(text) is text
    assert encodable_part(Text("\ud83d\ude00")) == Text("😀")
    mended = encodable_call(ToolCall(id="c", name="a\ud800", arguments='{"a":"\ud83d\ude00"}'))
    assert mended.name == "a\\ud800"
    assert mended.name.encode()
    assert mended.arguments.encode()


# --- ends
def test_another_history_with_the_same_end_is_estimated_by_itself():
    end = user_message("the end")
    long = estimate(ModelRequest(messages=(user_message("x" * 4000), end)), ())
    short = estimate(ModelRequest(messages=(user_message("x"), end)), ())
    assert short.input_tokens < long.input_tokens


def test_instructions_tools_messages_and_the_answer_count_four_characters_a_token():
    tool = ToolSpec(name="pay", description="d" * 100, parameters={"k": "v" * 92})  # as JSON: 100 characters
    messages = (user_message("x"),)
    plain = estimate(ModelRequest(messages=messages), (Text("z"),))
    full = estimate(
        ModelRequest(messages=(user_message("x" * 81),), instructions="i" * 40, tools=(tool, tool)), (Text("z" * 45),)
    )

    assert full.input_tokens - plain.input_tokens == 10 + 100 + 20
    assert full.output_tokens - plain.output_tokens == 11
    assert estimate(ModelRequest(messages=()), ()) == Usage(input_tokens=1, output_tokens=1, estimated=True)
    assert count_tokens(messages) == plain.input_tokens


def test_a_history_that_grew_is_estimated_like_a_new_one():
    grown: list[Message] = []
    for number in range(60):
        grown += [user_message("x" * number), said("y" * number)]
        new = [Message(role=message.role, parts=message.parts) for message in grown]
        assert estimate(ModelRequest(messages=tuple(grown)), ()) == estimate(ModelRequest(messages=tuple(new)), ())
