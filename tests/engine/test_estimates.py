"""What is estimated where no server counts: the same for a history that grew as for one that is new."""

from treadle.engine.model_calls.usage import estimate
from treadle.messages import Message, Text, user_message
from treadle.ports import ModelRequest


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
