"""The SSE reader: the same events wherever the bytes are cut."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import ModelResponseInvalid
from treadle.providers.http.reading import SseReader


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
