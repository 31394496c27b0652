"""Recorded streams cut at every byte say the same; cut before their end they are not whole. For the dialects of `dialects/`."""

from typing import Any

import pytest
from _dialects import Bodied, exchanges

from treadle.providers.anthropic.response import InvokedResponse
from treadle.providers.bedrock.response import ConverseResponse
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.http.reading import Response

SIZES = (1, 7, 64, 509)
"""Of the pieces that a stream is cut into, in bytes; the long form cuts each in two at some 500 places."""


def streams(reader: type[Response], folder: str, *needed: str) -> list[Any]:
    return [(reader, one) for one in exchanges(folder, *needed) if isinstance(one, Bodied) and one.is_stream]


COHERE = streams(CohereResponse, "cohere", "messages")
CONVERSE = streams(ConverseResponse, "bedrock_converse", "messages")
INVOKE = streams(InvokedResponse, "bedrock_invoke", "anthropic_version", "messages")


def read(reader: type[Response], *pieces: bytes) -> list[Any]:
    """Return what a response makes of a stream that comes in these pieces."""
    response = reader({})  # type: ignore[call-arg]  # a Protocol; every dialect's own takes the names
    frames = response.frames()
    parts = [part for piece in pieces for data in frames.feed(piece) for part in response.add(data)]
    assert frames.finish() is None
    return [*parts, response.is_whole, response.end()]


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


@pytest.mark.row("P-FRAMES", "P-INVOKE", "P-COHERE")
@pytest.mark.parametrize(("reader", "one"), [*COHERE, *CONVERSE, *INVOKE], ids=str)
def test_a_stream_that_is_cut_into_pieces_of_any_size_says_the_same(reader: type[Response], one: Bodied) -> None:
    whole = read(reader, one.content)

    assert whole[-2]
    assert all(read(reader, *cut(one.content, size)) == whole for size in SIZES)


@pytest.mark.soak
@pytest.mark.parametrize(("reader", "one"), [*COHERE, *CONVERSE, *INVOKE], ids=str)
def test_a_stream_that_is_cut_in_two_says_the_same(reader: type[Response], one: Bodied) -> None:
    whole = read(reader, one.content)

    places = range(0, len(one.content), 1 + len(one.content) // 500)
    assert all(read(reader, one.content[:at], one.content[at:]) == whole for at in places)


@pytest.mark.row("P-FRAMES", "P-COHERE")
@pytest.mark.parametrize(("reader", "one"), [*COHERE, *CONVERSE], ids=str)
def test_a_stream_is_whole_only_after_its_end(reader: type[Response], one: Bodied) -> None:
    last = end_of_frame(one.content) if reader is ConverseResponse else end_of_event(one.content)
    response = reader({})  # type: ignore[call-arg]  # a Protocol; every dialect's own takes the names
    frames = response.frames()

    for at, byte in enumerate(cut(one.content, 1), start=1):
        for data in frames.feed(byte):
            response.add(data)
        assert response.is_whole is (at >= last)


def end_of_event(content: bytes) -> int:
    return content.index(b"\n\n", content.index(b"event: message-end")) + 2


def end_of_frame(content: bytes) -> int:
    """Return where the one message ends that ends the stream."""
    found, place = [], 0
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        if b"messageStop" in content[place : place + size]:
            found.append(place + size)
        place += size
    [end] = found
    return end
