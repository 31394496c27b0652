"""Answers, ends and limits of a run by their values, each at its borders."""

import asyncio
from functools import partial
from typing import Any

import pytest

from treadle import Answer, ConfigurationError, Decision
from treadle.engine.hooks import _raised, denied_stop
from treadle.engine.model_calls.compacting import _fault_of, _whole
from treadle.engine.model_calls.requests import CONTINUE, Answers, has_ignored_choice, ignored_choice_stop
from treadle.engine.model_calls.reservations import add_costs, count_tokens, encodable_call, encodable_part, estimate
from treadle.engine.rules.endings import ended_by_results
from treadle.engine.scope import BatchTime
from treadle.engine.tool_calls.calls import Proposal
from treadle.engine.tool_calls.planning import _as_answer
from treadle.errors import ModelRejected
from treadle.events import ModelFinished
from treadle.messages import Finish, Media, Message, Result, Text, ToolCall, Usage, user_message
from treadle.ports import Compaction, Hook, ModelEnd, ModelRequest, ToolSpec
from treadle.stops import Stop, StopReason
from treadle.testing import FakeClock
from treadle.tools import CallStatus, ToolResult
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


def test_an_answer_is_whole_with_the_pieces_before_it():
    assert Answers().whole_text(finished("end"), [said("old"), user_message("go"), *cut(2)]) == "0-1-end"
    assert Answers().whole_text(finished("end"), cut(1)) == "0-end"
    found = judged(finished(""), user_message("go"), *cut(1))
    assert isinstance(found, Stop)
    assert found.reason is StopReason.COMPLETED
    found = judged(finished(" "), user_message("go"))
    assert isinstance(found, Stop)
    assert found.reason is StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL


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
def hook(run: Any) -> Hook:
    return Hook(at="prompt", run=run, name="mine")


def test_a_hook_that_fails_and_one_that_denies_are_named():
    one = hook(lambda context: None)
    found = _raised(one, ValueError("secret"))
    assert (found.kind, found.scope, found.by) == ("deny", "hook", one.title)
    assert found.reason == f"{one.title} failed (ValueError)."
    assert found.rule.endswith(" raised")
    denied = Decision(kind="deny", rule="r", reason="Why.", message="No.", by="mine")
    assert denied_stop(denied, "The run") == Stop(
        reason=StopReason.TASK_DENIED, message="The run was denied by mine: No.", details={"rule": "r", "by": "mine"}
    )
    assert denied_stop(Decision(kind="deny", reason="Why.", by="m"), "X").message == "X was denied by m: Why."
    assert denied_stop(Decision(kind="deny", by="m"), "X").message == "X was denied by m."


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (None, None),
        ("allow", Answer(answer="allow", by="me")),
        ("deny", Answer(answer="deny", by="me")),
        (Answer(answer="allow"), Answer(answer="allow", by="me")),
        (Answer(answer="deny", reason="No.", by="ada"), Answer(answer="deny", reason="No.", by="ada")),
        (Decision(kind="ask"), None),
        (Decision(kind="sandbox"), None),
        (Decision(kind="allow", reason="Why.", arguments={"n": 1}), Answer(answer="allow", reason="Why.", arguments={"n": 1}, by="me")),
        (Decision(kind="deny", reason="Why.", message="No.", interrupt=True), Answer(answer="deny", reason="No.", interrupt=True, by="me")),
    ],
)  # fmt: skip
def test_what_an_approver_says_is_an_answer_or_leaves_the_call_to_a_person(given, answer):
    assert _as_answer(given, "me") == answer


def test_another_word_of_an_approver_is_an_error_that_names_its_kind():
    with pytest.raises(ConfigurationError, match="answers with an Answer, 'allow', 'deny' or None; got a int"):
        _as_answer(7, "me")


# --- asides, compactions, estimates
def test_an_answer_beside_the_steps_that_is_cut_is_marked_and_a_refusal_is_none():
    mark = "[The answer was cut off here: it reached the output limit.]"
    assert _whole("x", ModelEnd(parts=(), finish=Finish.LENGTH)) == f"x\n{mark}"
    assert _whole("", ModelEnd(parts=(), finish=Finish.LENGTH)) == ""
    assert _whole("x", ModelEnd(parts=(), finish=Finish.STOP)) == "x"
    for end, words, why in (
        (ModelEnd(parts=(), finish=Finish.REFUSED, message="Not this."), "x", "Not this."),
        (ModelEnd(parts=(), finish=Finish.REFUSED), "x", "x"),
        (ModelEnd(parts=(), finish=Finish.REFUSED), "", "it gave no reason"),
    ):
        with pytest.raises(ModelRejected) as raised:
            _whole(words, end)
        assert str(raised.value).startswith(f"The model refused to answer: {why}")


HISTORY = (
    user_message("go"),
    Message(role="assistant", parts=(ToolCall(id="c", name="t", arguments="{}"),)),
    Message(role="tool", parts=(Result(call_id="c", name="t", content="x"),)),
    said("done"),
)


@pytest.mark.parametrize(
    ("begin", "end", "fault"),
    [
        (0, 4, None),
        (0, 1, None),
        (0, 3, None),
        (1, 3, None),
        (3, 4, None),
        (0, 2, "its range 0 to 2 separates calls from their results"),
        (2, 4, "its range 2 to 4 separates calls from their results"),
        (0, 5, "it is of the messages 0 to 5, and there are 4"),
        (1, 1, "it is of the messages 1 to 1, and there are 4"),
        (-1, 1, "it is of the messages -1 to 1, and there are 4"),
    ],
)
def test_a_compaction_separates_no_call_from_its_result(begin, end, fault):
    assert _fault_of(Compaction(tier="x", begin=begin, end=end), HISTORY) == fault


def test_what_is_no_compaction_and_what_no_provider_accepts_is_a_fault():
    assert str(_fault_of("x", HISTORY)).endswith("return a Compaction or None")
    alone = Compaction(tier="x", begin=0, end=4, messages=(HISTORY[1],))
    assert str(_fault_of(alone, HISTORY)).startswith("its messages hold a call without its result")


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
def result(name: str = "end", status: CallStatus = CallStatus.OK, **more: Any) -> ToolResult:
    return ToolResult(call_id="c", name=name, status=status, content="content", **more)


def test_a_run_ends_with_the_first_success_of_a_tool_that_ends_it():
    ended = partial(ended_by_results, ending={"end"}, required=())
    done = Stop(reason=StopReason.DONE_CONDITION_SATISFIED, output={"n": 1})
    assert ended([None, result("other"), result(data={"n": 1}), result(data={"n": 2})]) == done
    kept = ended([result(data={"n": 1}, artifact="d")])
    assert kept == Stop(reason=StopReason.DONE_CONDITION_SATISFIED, output="content")
    assert ended([result(status=CallStatus.FAILED)]) is None
    assert ended([]) is None
    assert ended_by_results([result()], ending=(), required=()) is None


def test_a_run_ends_where_a_tool_that_it_needs_is_unavailable():
    gone = result("need", CallStatus.FAILED, code="tool_unavailable", message="Gone.")
    found = ended_by_results([result(), gone], ending={"end"}, required=("need",))
    assert found is not None
    assert found.reason is not StopReason.DONE_CONDITION_SATISFIED
    assert "need" in found.message
    assert ended_by_results([gone], ending=(), required=("other",)) is None
    assert ended_by_results([result("need", CallStatus.FAILED, code="x")], ending=(), required=("need",)) is None


async def test_the_time_of_a_batch_counts_from_its_first_call():
    clock = FakeClock()
    time = BatchTime(clock, 10.0)
    assert (time.left, time.is_over, time.within(None), time.within(3.0), time.within(30.0)) == (
        10.0, False, 10.0, 3.0, 10.0,
    )  # fmt: skip
    time.begin()
    clock.advance(4.0)
    time.begin()
    assert (time.left, time.within(None), time.within(7.0)) == (6.0, 6.0, 6.0)
    clock.advance(9.0)
    await asyncio.sleep(0)
    assert (time.left, time.is_over) == (0.0, True)
    time.end()
    assert (time.left, time.is_over) == (10.0, False)


def fresh(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(Message(role=message.role, parts=message.parts) for message in messages)


def test_a_history_that_grew_is_estimated_like_a_new_one():
    messages: tuple[Message, ...] = ()
    for number in range(60):
        messages = (*messages, user_message("x" * number), Message(role="assistant", parts=(Text("y" * number),)))
        grown = estimate(ModelRequest(messages=messages), ())
        assert grown == estimate(ModelRequest(messages=fresh(messages)), ())


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
