"""Events with texts of megabytes: read as any others, in slices."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journals.journal_events import one_of_each

from treadle.events import AnyEvent, MessageAdded, decode_event, encode_event
from treadle.events.codec import decode_slowly
from treadle.messages import Message, Text

LONG = 300_000


def as_told(value: object, *, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only)


@pytest.mark.row("N10")
@given(
    st.lists(st.sampled_from(["a", '"', "\\", "\\u", "\\\\", "\n", "é", "\U0001f600", "\ud7ff", "\x01", "u0041"]), min_size=1, max_size=7),
    st.integers(0, 13),
    st.booleans(),
)  # fmt: skip
def test_a_long_text_is_read_as_the_decoder_reads_it(unit, shift, ascii_only):
    long = "x" * shift + "".join(unit) * (2 * LONG // len("".join(unit)))
    value = {"a": 1, "long": long, "more": [long[:LONG], "short", {long[:LONG]: None}]}
    body = as_told(value, ascii_only=ascii_only)

    assert decode_slowly(body) == msgspec.json.decode(body)


@pytest.mark.parametrize(
    "body",
    [
        '{"a":"' + "x" * 2 * LONG,
        '{"a":"' + "x" * 2 * LONG + '\x01"}',
        '{"a":"' + "x" * 2 * LONG + '\\ud800"}',
        '{"a":"' + "\\" * (2 * LONG + 1) + '"}',
        '{"a":"' + "x" * 2 * LONG + '"}}',
        '"' + "\\q" * LONG + '"',
    ],
)
def test_a_long_text_that_is_not_json_is_refused_in_the_decoders_words(body):
    with pytest.raises(msgspec.DecodeError) as expected:
        msgspec.json.decode(body)
    with pytest.raises(msgspec.DecodeError) as caught:
        decode_slowly(body)

    assert str(caught.value) == str(expected.value)


def test_a_text_that_looks_like_our_stand_in_stays():
    value = ["\ufdd0long text 0", "y" * LONG, "\ufdd0long text 9"]

    assert decode_slowly(as_told(value, ascii_only=False)) == value


@pytest.mark.row("N10")
@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
def test_an_event_of_megabytes_is_the_event_that_was_written(event: AnyEvent):
    """Each kind is made large by a field that it does not know, so that all that it knows is read the other way."""
    body = encode_event(event)
    padded = body[:-1] + b',"pad":"' + b"x" * (2 * 1024 * 1024) + b'"}'

    assert decode_event(padded) == decode_event(padded.decode()) == event


def test_a_message_of_megabytes_comes_back():
    event = MessageAdded(message=Message(role="user", parts=(Text("x\n" * 2_000_000), Text("\U0001f600" * LONG))))

    assert decode_event(encode_event(event)) == event
