"""Recorded streams cut at every byte say the same; cut before their end they are not whole. For the dialects of `dialects/`."""

from typing import Any

import pytest
from _dialects import Bodied, exchanges

from treadle.providers.anthropic.response import InvokedResponse
from treadle.providers.bedrock.response import ConverseResponse
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.http.reading import Response

MAX_CUTS = 500
"""Places at which one stream is cut in two; a longer one is cut at every second byte, or third. Byte by byte all are."""


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


def cuts(content: bytes) -> range:
    return range(0, len(content) + 1, 1 + len(content) // MAX_CUTS)


@pytest.mark.row("P-FRAMES", "P-INVOKE", "P-COHERE")
@pytest.mark.parametrize(("reader", "one"), [*COHERE, *CONVERSE, *INVOKE], ids=str)
def test_a_stream_that_is_cut_at_any_byte_says_the_same(reader: type[Response], one: Bodied) -> None:
    whole = read(reader, one.content)

    assert whole[-2]
    assert all(read(reader, one.content[:at], one.content[at:]) == whole for at in cuts(one.content))
    assert read(reader, *(one.content[at : at + 1] for at in range(len(one.content)))) == whole


@pytest.mark.row("P-FRAMES", "P-COHERE")
@pytest.mark.parametrize(("reader", "one"), [*COHERE, *CONVERSE[:4]], ids=str)
def test_a_stream_that_ends_early_is_whole_only_after_its_end(reader: type[Response], one: Bodied) -> None:
    last = end_of_frame(one.content) if reader is ConverseResponse else end_of_event(one.content)

    near = [*cuts(one.content), *range(last - 3, last + 4), len(one.content)]
    response = [reader({}) for _ in near]  # type: ignore[call-arg]
    for at, each in zip(near, response, strict=True):
        for data in each.frames().feed(one.content[:at]):
            each.add(data)
        assert each.is_whole is (at >= last)


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
