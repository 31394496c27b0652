"""Frames: the events of AWS and server-sent events, the same wherever the bytes are cut; exceptions inside a stream."""

import json
import struct
import zlib
from pathlib import Path

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Agent, open_session, resolve_model
from treadle.errors import (
    ContextOverflow,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.messages import Finish, user_message
from treadle.mock.dialects.shared import event_frame, exception_frame, frame
from treadle.ports import ModelEnd, ModelPart, ModelRequest
from treadle.providers.http.reading import EventStreamReader, SseReader
from treadle.testing import FixedRandomness, MockProvider, Turn

START = event_frame("messageStart", b'{"role":"assistant"}')
SAID = event_frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"Hello."}}')
STOP = event_frame("messageStop", b'{"stopReason":"end_turn"}')
METADATA = event_frame("metadata", b'{"usage":{"inputTokens":3,"outputTokens":2,"totalTokens":5}}')


async def heard(content: bytes, name: str = "bedrock") -> list[ModelPart]:
    async with MockProvider([Turn(body=content)]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k")
        return [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]


@pytest.mark.row("P-FRAMES")
@settings(max_examples=30)
@given(
    payloads=st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40)), min_size=1, max_size=4),
    data=st.data(),
)
def test_frames_are_read_as_the_vendors_own_library_reads_them(payloads, data) -> None:
    content = b"".join(event_frame("chunk", json.dumps(one).encode()) for one in payloads)
    at = data.draw(st.integers(0, len(content)))
    reader, oracle = EventStreamReader(), EventStreamBuffer()
    oracle.add_data(content)

    found = [*reader.feed(content[:at]), *reader.feed(content[at:])]

    assert [json.loads(one) for one in found] == [{"chunk": json.loads(event.payload)} for event in oracle]
    assert [json.loads(one)["chunk"] for one in found] == payloads


@pytest.mark.row("P-FRAMES")
def test_a_changed_bit_anywhere_in_a_frame_is_found() -> None:
    for at in range(len(SAID)):
        with pytest.raises(ModelResponseInvalid, match="checksum does not match"):
            EventStreamReader().feed(bytes([*SAID[:at], SAID[at] ^ 1, *SAID[at + 1 :]]))


def test_every_type_of_header_is_passed_over_and_text_is_read() -> None:
    def header(name: str, kind: int, value: bytes) -> bytes:
        return bytes([len(name)]) + name.encode() + bytes([kind]) + value

    head = b"".join((
        header("a", 0, b""), header("b", 1, b""), header("c", 2, b"1"), header("d", 3, b"12"), header("e", 4, b"1234"),
        header("f", 5, b"12345678"), header("g", 6, b"\0\x03abc"), header("h", 8, b"12345678"), header("i", 9, b"1" * 16),
        header(":event-type", 7, b"\0\x04stop"), header(":message-type", 7, b"\0\x05event"),
    ))  # fmt: skip
    prelude = struct.pack(">II", 16 + len(head) + 2, len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + b"{}"

    assert EventStreamReader().feed(message + struct.pack(">I", zlib.crc32(message))) == [b'{"stop":{}}']


@pytest.mark.parametrize(
    "content",
    [
        frame({":message-type": "event"}, b"{}"),
        frame({":message-type": "event", ":event-type": 'a":1,"b'}, b"{}"),
        frame({":message-type": "riddle", ":event-type": "a"}, b"{}"),
        frame({":message-type": "exception"}, b"{}"),
        event_frame("messageStart", b"no json"),
        event_frame("contentBlockDelta", b"{}"),
        event_frame("contentBlockDelta", b'{"contentBlockIndex":0}'),
        event_frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{}"}}}'),
        event_frame("contentBlockStart", b'{"contentBlockIndex":"0","start":{}}'),
    ],
)
async def test_a_frame_that_is_none_of_the_dialect_is_an_invalid_response(content: bytes) -> None:
    with pytest.raises(ModelResponseInvalid):
        await heard(START + content + STOP)


EXCEPTIONS = {
    "throttlingException": (ModelUnavailable, 429),
    "modelStreamErrorException": (ModelUnavailable, 424),
    "internalServerException": (ModelUnavailable, 500),
    "serviceUnavailableException": (ModelUnavailable, 503),
    "modelTimeoutException": (ModelUnavailable, 408),
    "validationException": (ModelRejected, 400),
    "accessDeniedException": (ModelRejected, 403),
}


@pytest.mark.row("P-EXCEPTIONS")
@pytest.mark.parametrize("name", ["bedrock", "bedrock-claude"])
@pytest.mark.parametrize(("kind", "expected"), EXCEPTIONS.items())
async def test_an_exception_inside_a_stream_is_told_by_its_class(name, kind, expected) -> None:
    frames = exception_frame(kind, b'{"message":"Too many tokens, please wait before trying again."}')
    with pytest.raises(ModelError, match="Too many tokens") as told:
        await heard(frames, name)

    assert (type(told.value), told.value.status) == expected
    assert told.value.may_retry is (expected[0] is ModelUnavailable)


@pytest.mark.row("P-EXCEPTIONS")
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_class_that_passes_is_tried_again_whatever_the_status(status: int) -> None:
    error = {"message": "Too many requests, please wait before trying again."}
    turns = [Turn(status=status, error=error), Turn(text="He", error=error), "done"]
    no_waits = open_session("memory:", randomness=FixedRandomness([0.0]))
    async with MockProvider(turns) as provider, no_waits as session:
        model = resolve_model("bedrock:m", base_url=provider.base_url, api_key="k")
        result = await Agent(model).run("go", session=session)

    assert (result.text, len(provider.requests)) == ("done", 3)


@pytest.mark.row("P-EXCEPTIONS")
async def test_the_class_of_an_error_stands_in_a_header() -> None:
    headers = {"x-amzn-ErrorType": "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/"}
    turn = Turn(status=400, body=b'{"message":"Too many tokens, please wait."}', headers=headers)
    async with MockProvider([turn]) as provider:
        model = resolve_model("bedrock:m", base_url=provider.base_url, api_key="k")
        with pytest.raises(ModelUnavailable):
            [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]


@pytest.mark.row("P-EXCEPTIONS")
async def test_an_overflow_inside_a_stream_is_an_overflow() -> None:
    words = b'{"message":"The model returned the following errors: Input is too long for requested model."}'
    with pytest.raises(ContextOverflow):
        await heard(exception_frame("validationException", words))


async def test_an_unmodeled_error_says_its_code_and_its_message() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "An internal fault."}
    with pytest.raises(ModelUnavailable, match="An internal fault"):
        await heard(START + frame(headers, b""))


@pytest.mark.row("P-FRAMES")
async def test_what_was_counted_before_an_exception_is_counted() -> None:
    with pytest.raises(ModelUnavailable) as told:
        await heard(START + METADATA + exception_frame("throttlingException", b"{}"))

    assert told.value.usage is not None
    assert told.value.usage.output_tokens == 2


@pytest.mark.row("P-FRAMES")
async def test_the_usage_may_be_missing_and_the_stop_may_not() -> None:
    end = (await heard(START + SAID + STOP))[-1]
    assert isinstance(end, ModelEnd)
    assert (end.finish, end.usage) == (Finish.STOP, None)

    with pytest.raises(IncompleteStream, match="without messageStop"):
        await heard(START + SAID + METADATA)
    with pytest.raises(IncompleteStream, match="without messageStop"):
        await heard(START + STOP + SAID)


# --- server-sent events ----------------------------------------------------------------------------------------------


def read(*chunks: bytes) -> list[bytes]:
    reader = SseReader()
    events = [event for piece in chunks for event in reader.feed(piece)]
    last = reader.finish()
    return events if last is None else [*events, last]


def test_each_data_line_before_a_blank_line_is_an_event():
    assert read(b"data: one\n\ndata: two\n\n") == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_works(end):
    stream = b"\n\nevent: ping\ndata: 1\ndata: 2\n\n: comment\n\ndata: 3\n\n".replace(b"\n", end)

    assert read(stream) == [b"1\n2", b"3"]


def test_one_blank_after_the_colon_is_dropped_and_no_more():
    assert read(b"data:x\n\ndata:  y\n\ndata\n\n") == [b"x", b" y", b""]


def test_comments_ids_retries_and_unknown_fields_are_skipped():
    assert read(b": OPENROUTER PROCESSING\n\nid: 7\nretry: 10\nfoo: bar\ndata: x\n\n") == [b"x"]


@pytest.mark.row("PF10")
def test_an_error_in_a_field_of_its_own_is_data_as_others_send_it():
    told = b'error: {"code":500,"message":"no room"}\n\n'

    assert read(b"data: x\n\n" + told) == [b"x", b'{"error":{"code":500,"message":"no room"}}']
    assert read(b"error: some words\n\n" + b"error:\ndata: y\n\n") == [b"y"]


def test_an_event_without_data_is_none():
    assert read(b"event: ping\n\n") == []


@pytest.mark.row("PF11")
def test_a_byte_order_mark_is_dropped_at_the_start_only():
    assert read(b"\xef\xbb\xbfdata: x\n\ndata: \xef\xbb\xbfy\n\n") == [b"x", b"\xef\xbb\xbfy"]


@pytest.mark.row("PF11")
def test_bytes_that_are_no_text_are_passed_on():
    assert read(b"data: \xff\x00\n\n") == [b"\xff\x00"]


def test_a_last_event_without_its_blank_line_is_handed_out_apart():
    reader = SseReader()

    assert reader.feed(b"data: 1\n\ndata: [DONE]") == [b"1"]
    assert reader.finish() == b"[DONE]"
    assert reader.finish() is None


@pytest.mark.row("PF11")
@pytest.mark.parametrize("end", [b"\n\n", b"", b"\n"])
def test_an_event_larger_than_the_limit_is_an_error(end):
    reader = SseReader(max_event_bytes=100)

    with pytest.raises(ModelResponseInvalid, match="more than 100 bytes"):
        reader.feed(b"data: " + b"x" * 100 + end)


def test_an_event_of_exactly_the_limit_passes_wherever_it_is_cut():
    stream = b"data: " + b"x" * 94 + b"\n\n"
    for cut in range(len(stream)):
        reader = SseReader(max_event_bytes=100)
        assert [*reader.feed(stream[:cut]), *reader.feed(stream[cut:])] == [b"x" * 94]


def test_eight_megabytes_in_small_pieces_take_linear_time():
    """Were the buffer searched again from its start, this would take hours: the guard against hanging would end it."""
    piece, reader = b"x" * 100, SseReader()
    reader.feed(b"data: ")
    for _ in range(80_000):
        reader.feed(piece)

    assert len(reader.feed(b"\n\n")[0]) == 8_000_000


STREAM = (
    '\ufeff: comment\r\n\r\nevent: a\r\ndata: {"x": "å日🙂"}\r\n\r\ndata: 1\ndata: 2\n\n\n\ndata: 3\r\rdata:4\n\rdata: 5\r\n\n'
    "data: [DONE]"
).encode()


@pytest.mark.row("W02", "PF11")
def test_two_cuts_anywhere_change_nothing():
    whole = read(STREAM)
    assert whole[1:] == [b"1\n2", b"3", b"4", b"5", b"[DONE]"]
    for first in range(len(STREAM)):
        for second in range(first, len(STREAM)):
            assert read(STREAM[:first], STREAM[first:second], STREAM[second:]) == whole


@pytest.mark.row("W02")
def test_recorded_streams_cut_at_every_byte_give_the_same_events(recordings: Path):
    bodies = [
        interaction["body"].encode()
        for path in sorted(recordings.glob("*/openai-chat/*.json"))
        for interaction in json.loads(path.read_text())["interactions"]
        if interaction["body"].startswith((":", "data:"))
    ]
    assert bodies
    for body in bodies:
        whole = read(body)
        assert read(*(body[at : at + 1] for at in range(len(body)))) == whole
        for cut in range(0, len(body), max(1, len(body) // 500)):
            assert read(body[:cut], body[cut:]) == whole


@pytest.mark.row("PF11")
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"data: ", b"\n", b"\r", b"\n\n", b":", b"event: x"])))
def test_random_bytes_give_the_same_events_whole_and_in_pieces(pieces):
    assert read(*pieces) == read(b"".join(pieces))
