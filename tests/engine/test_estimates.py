"""What is estimated where no server counts: the same for a history that grew as for one that is new."""

from treadle.engine.model_calls.reservations import count_tokens, estimate
from treadle.messages import Message, Text, Usage, user_message
from treadle.ports import ModelRequest, ToolSpec


def fresh(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(Message(role=message.role, parts=message.parts) for message in messages)


def test_a_history_that_grew_is_estimated_like_a_new_one() -> None:
    messages: tuple[Message, ...] = ()
    for number in range(60):
        messages = (*messages, user_message("x" * number), Message(role="assistant", parts=(Text("y" * number),)))
        grown = estimate(ModelRequest(messages=messages), ())
        assert grown == estimate(ModelRequest(messages=fresh(messages)), ())


def test_another_history_with_the_same_end_is_estimated_by_itself() -> None:
    end = user_message("the end")
    long = estimate(ModelRequest(messages=(user_message("x" * 4000), end)), ())
    short = estimate(ModelRequest(messages=(user_message("x"), end)), ())
    assert short.input_tokens < long.input_tokens


def test_instructions_tools_messages_and_the_answer_count_four_characters_a_token() -> None:
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
