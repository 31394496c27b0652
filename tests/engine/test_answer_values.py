"""Answers, ends and limits of a run by their values, each at its borders."""

from treadle.engine.model_calls.reservations import add_costs, count_tokens, encodable_call, encodable_part, estimate
from treadle.messages import Media, Message, Result, Text, ToolCall, Usage, user_message
from treadle.ports import ModelRequest, ToolSpec


def said(words: str) -> Message:
    return Message(role="assistant", parts=(Text(words),))


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
