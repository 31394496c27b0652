"""Recorded loops and quirks of Anthropic Messages: through the public face as recorded, and once more in the other form."""

import json

import pytest
from _oracle_anthropic import HOST, is_streamed, message_of, stretch
from _replay import Recording, heard, play, recorded

from treadle.errors import ModelError, ModelRejected
from treadle.messages import Finish, Opaque, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.tools import JsonObject

LOOPS = [
    *recorded("loops", "anthropic-messages"),
    *recorded("loops", "gemini", "test_cross_provider_*anthropic*.json"),  # its last part was said by Anthropic
]


# --- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("W03", "S02")
@pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_a_recorded_loop_goes_as_recorded(loop: Recording, in_other_form: bool) -> None:
    played = await play(stretch(loop.of(HOST), in_other_form=in_other_form))

    played.check()


@pytest.mark.row("W03", "W06", "W10")
@pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_each_recorded_answer_goes_back_as_it_came(loop: Recording, in_other_form: bool) -> None:
    exchanges = loop.of(HOST)
    played = await play(stretch(exchanges, in_other_form=in_other_form))

    for number, request in enumerate(played.requests):
        spoken = [message["content"] for message in request.body["messages"] if message["role"] == "assistant"]
        assert spoken == [
            [without_defaults(block) for block in message_of(one.body)["content"]] for one in exchanges[:number]
        ]


@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(loop: Recording) -> None:
    for one in loop.of(HOST):
        message = message_of(one.body)
        parts = await heard("anthropic:m", one.body, status=one.status, stream=is_streamed(one))

        assert_same(parts, message)


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
