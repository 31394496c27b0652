"""Recorded answers and quirks of Claude, at its vendor and at the clouds, beside what an independent reader makes of them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from _dialects import Bodied, exchanges, text_of
from _oracle_anthropic import HOST, is_streamed, message_of
from _replay import Recording, heard, recorded

from treadle.errors import ModelError, ModelRejected
from treadle.messages import Finish, Opaque, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.tools import JsonObject


def answers() -> Iterator[Any]:
    for loop in recorded("loops", "anthropic-messages"):
        for at, one in enumerate(loop.of(HOST) if isinstance(loop, Recording) else ()):
            bodied = Bodied(f"{loop}-{at}", one.path, one.request, one.status, one.body.encode())
            yield pytest.param("anthropic:m", bodied, id=str(bodied))
    for folder, needed in (("vertex_claude", ()), ("bedrock_invoke", ("anthropic_version", "messages"))):
        for one in exchanges(folder, *needed):
            if not isinstance(one, Bodied):
                yield pytest.param("", None, marks=one.marks)
            elif folder == "vertex_claude":
                yield pytest.param("vertex:" + one.path.partition("/models/")[2].partition(":")[0], one, id=str(one))
            else:
                yield pytest.param(f"bedrock-claude:{one.model}", one, id=str(one))


ANSWERS = [*answers()]


@pytest.mark.row("P-VERTEX", "P-INVOKE")
@pytest.mark.parametrize(("name", "one"), ANSWERS)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(name: str, one: Bodied) -> None:
    asking = heard(name, one.content, status=one.status, stream="stream" in one.path or one.content[:6] == b"event:")
    if one.status != 200:
        with pytest.raises(ModelError, match=json.loads(one.content)["message"][:40]):
            await asking
        return
    parts, message = await asking, message_of(text_of(one))
    if message["stop_reason"] in ("end_turn", "tool_use"):
        assert_same(parts, message)
    else:
        assert parts[-1].finish_reason == message["stop_reason"]


def assert_same(parts: list[ModelPart], message: JsonObject) -> None:
    end = parts[-1]
    assert isinstance(end, ModelEnd)
    assert list(map(as_block, end.parts)) == [without_defaults(block) for block in message["content"]]
    assert end.finish is {"tool_use": Finish.CALLS, "end_turn": Finish.STOP}[message["stop_reason"]]
    assert end.usage == usage_of(message["usage"])
    assert said(parts, TextDelta) == "".join(block.get("text", "") for block in message["content"])
    assert said(parts, ThinkingDelta) == "".join(block.get("thinking", "") for block in message["content"])
    assert [part.call for part in parts if isinstance(part, CallReady)] == [
        part for part in end.parts if isinstance(part, ToolCall)
    ]


def said(parts: list[ModelPart], kind: type) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


def as_block(part: Part) -> JsonObject:
    match part:
        case Text():
            return {"type": "text", "text": part.text, **json.loads(part.signature or "{}")}
        case Thinking(payload=None):
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Thinking(payload=payload) | Opaque(payload=payload):
            return payload
        case ToolCall():
            called = {"type": "tool_use", "id": part.id, "name": part.name, "input": json.loads(part.arguments)}
            return called | ({"caller": json.loads(part.signature)} if part.signature else {})
    raise AssertionError(part)


def without_defaults(block: JsonObject) -> JsonObject:
    """Leave out what the vendor says where there is nothing to say: that the model itself called, and that nothing is cited."""
    silent = {"tool_use": ("caller", {"type": "direct"}), "text": ("citations", None)}
    return {name: value for name, value in block.items() if (name, value) != silent.get(block["type"])}


def usage_of(counts: JsonObject) -> Usage:
    cached, written = (counts.get(f"cache_{act}_input_tokens", 0) for act in ("read", "creation"))
    return Usage(
        input_tokens=counts["input_tokens"] + written + cached,
        output_tokens=counts["output_tokens"],
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=(counts.get("output_tokens_details") or {}).get("thinking_tokens", 0),
    )


# --- quirks ------------------------------------------------------------------------------------------------------------

QUIRKS = {
    "test_anthropic_code_execution_tool_stream": [Thinking, Text, Opaque, Opaque, Text],
    "test_anthropic_mcp_servers_stream": [Thinking, Opaque, Opaque, Text],
    "test_anthropic_model_thinking_part_redacted_stream": [Thinking, Thinking, Text],
    "test_anthropic_native_tool_search": [Text, Opaque, Opaque, Text, ToolCall],
    "test_anthropic_thinking_with_events_with_no_content": [Thinking, Text],
    "test_async_anthropic_message_streaming_with_events_with_content": [Text],
    "test_model_name_suggestion_anthropic": ModelRejected,
    "test_stream_events_tool_calls": [ToolCall],
}
"""The kinds of parts that each recording comes to, or the error."""


def test_every_recorded_quirk_has_its_outcome(recordings) -> None:
    assert {path.stem for path in (recordings / "quirks" / "anthropic-messages").glob("*.json")} == QUIRKS.keys()


@pytest.mark.row("W10", "W11")
@pytest.mark.parametrize("quirk", recorded("quirks", "anthropic-messages"), ids=str)
async def test_a_recorded_quirk_has_a_clear_outcome(quirk: Recording) -> None:
    (exchange,) = quirk.exchanges
    expected = QUIRKS[quirk.name]
    asking = heard("anthropic:m", exchange.body, status=exchange.status, stream=is_streamed(exchange))

    if isinstance(expected, list):
        parts = await asking
        assert [type(part) for part in parts[-1].parts] == expected
        assert_same(parts, message_of(exchange.body))
    else:
        with pytest.raises(ModelError) as caught:
            await asking
        assert type(caught.value) is expected
        assert "claude-sonet-4-5" in str(caught.value)
