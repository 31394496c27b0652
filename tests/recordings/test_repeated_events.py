"""Recorded streams whose events are repeated, dropped and swapped: never more calls than ids, and no call that came whole is lost."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.engine.model_calls.response import Collected, ResponseCalls
from treadle.errors import ModelError
from treadle.messages import ToolCall
from treadle.ports import CallReady, ModelEnd
from treadle.providers.anthropic.response import AnthropicResponse
from treadle.providers.gemini.response import GeminiResponse
from treadle.providers.http.reading import AnswerError, Response, SseReader
from treadle.providers.openai_chat.response import ChatResponse
from treadle.providers.openai_responses.response import ResponsesResponse

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "recordings"

READERS: dict[str, type] = {
    "openai-chat": ChatResponse,
    "openai-responses": ResponsesResponse,
    "anthropic-messages": AnthropicResponse,
    "gemini": GeminiResponse,
}

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings here")


@cache
def streams(dialect: str) -> list[tuple[bytes, ...]]:
    """Return the events of every recorded stream of a dialect that proposes a call."""
    found = [events for path in sorted(RECORDINGS.glob(f"*/{dialect}/*.json")) for events in _streams(path)]
    return [events for events in found if _calls(_collected(dialect, events))]


def _streams(path: Path) -> Iterator[tuple[bytes, ...]]:
    for exchange in json.loads(path.read_text())["interactions"]:
        body = exchange.get("body")
        if not isinstance(body, str) or exchange.get("status") != 200:
            continue
        if "data:" in body[:200]:
            yield tuple(SseReader().feed(body.encode() + b"\n\n"))
        elif "candidates" in body:  # Gemini's without a stream: a response of one chunk
            yield (body.encode(),)


def _collected(dialect: str, events: tuple[bytes, ...]) -> Collected:
    """Read a stream as the runtime does."""
    response: Response = READERS[dialect]({})
    calls = ResponseCalls(frozenset(), 1)
    for event in events:
        for part in response.add(event):
            if isinstance(part, CallReady):
                calls.ready(part.call)
    end: ModelEnd = response.end()
    return calls.collect(end.parts, cut=end.cut_calls, unnamed=end.unnamed_calls)


def _calls(collected: Collected) -> list[ToolCall]:
    return [part for part in collected.parts if isinstance(part, ToolCall)]


@pytest.mark.row("N02", "PF21", "PF22")
@pytest.mark.parametrize("dialect", READERS)
def test_there_are_recorded_streams_with_calls(dialect):
    assert streams(dialect)


@pytest.mark.row("N02", "PF21", "PF22")
@pytest.mark.parametrize("dialect", READERS)
@settings(max_examples=50)
@given(st.data())
def test_events_that_are_repeated_or_swapped_make_no_call_and_lose_none(dialect, data):
    events = data.draw(st.sampled_from(streams(dialect)))
    honest = _calls(_collected(dialect, events))
    *changed, terminal = events  # what follows the terminal is not read
    changed = changed or [terminal]
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        other = data.draw(st.integers(0, len(changed) - 1))
        match data.draw(st.sampled_from(["repeat", "repeat later", "swap"])):
            case "repeat":
                changed.insert(at, changed[at])
            case "repeat later":
                changed.insert(other, changed[at])
            case _:
                changed[at], changed[other] = changed[other], changed[at]

    try:
        collected = _collected(dialect, (*changed, terminal))
    except (ModelError, AnswerError):
        return  # reported as an error, and asked again

    _check(dialect, honest, collected)


def _check(dialect: str, honest: list[ToolCall], collected: Collected) -> None:
    made = _calls(collected)
    sure = [one for one in made if one.id not in collected.repeated | collected.cut]
    if all(one.id for one in honest) and dialect != "gemini":
        assert len(sure) <= len(honest), "more calls than ids"
    assert {one.name for one in made} >= {one.name for one in honest} or len(made) >= len(honest), "a call is lost"


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize("dialect", READERS)
def test_a_stream_whose_every_event_of_a_call_comes_twice_as_a_whole_proposes_the_same(dialect):
    """The whole stream is reported again, up to its terminal."""
    for events in streams(dialect):
        honest = _collected(dialect, events)
        body = events[:-1] if dialect in ("anthropic-messages", "openai-responses") else events
        last = events[len(body) :]
        if dialect == "openai-chat":
            body = tuple(event for event in events if event.strip() != b"[DONE]")
        again = _collected(dialect, (*body, *body, *last))
        if any(one.id.startswith("call_1_") or one.id == "call_0" for one in _calls(honest)):
            continue  # no ids: two calls may be meant
        sure = [(one.name, one.arguments) for one in _calls(again) if one.id not in again.repeated | again.cut]
        assert sure == [(one.name, one.arguments) for one in _calls(honest)]
