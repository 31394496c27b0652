"""Recorded loops and quirks of Anthropic Messages: through the public face as recorded, and once more in the other form."""

import base64
import json
from typing import Any

import pytest
from _replay import Call, Exchange, Outcome, Recording, play, recorded

from treadle import resolve_model
from treadle.errors import ModelError, ModelRejected
from treadle.messages import Finish, Media, Opaque, Part, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, TextDelta, ThinkingDelta
from treadle.providers.mock.anthropic import anthropic_events
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject

HOST = "api.anthropic.com"
LOOPS = [
    *recorded("loops", "anthropic-messages"),
    *recorded("loops", "gemini", "test_cross_provider_*anthropic*.json"),  # its last part was said by Anthropic
]


# --- an oracle that shares nothing with the adapter --------------------------------------------------------------------


def message_of(body: str) -> JsonObject:
    """Put the events of a stream together, or read a whole answer."""
    if body.lstrip().startswith("{"):
        return json.loads(body)
    events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]
    message = next(event["message"] for event in events if event["type"] == "message_start")
    for event in events:
        if event["type"] == "content_block_start":
            message["content"].append(event["content_block"])
        if event["type"] == "content_block_delta":
            extend(message["content"][event["index"]], event["delta"])
        if event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    for block in message["content"]:
        if written := block.pop("written", ""):
            block["input"] = json.loads(written)
    return message


def extend(block: JsonObject, delta: JsonObject) -> None:
    match delta:
        case {"type": "input_json_delta", "partial_json": piece}:
            block["written"] = block.get("written", "") + piece
        case {"type": "signature_delta", "signature": signature}:
            block["signature"] = signature
        case {"type": "text_delta", "text": piece}:
            block["text"] += piece
        case {"type": "thinking_delta", "thinking": piece}:
            block["thinking"] += piece


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> list[tuple[str, str, JsonObject]]:
        own = [tool for tool in request.get("tools", ()) if tool.get("type", "custom") == "custom"]
        return [(tool["name"], tool.get("description", ""), tool["input_schema"]) for tool in own]

    def task(self, request: Any) -> str:
        said = [
            block["text"] if isinstance(block, dict) else block
            for message in request["messages"]
            if message["role"] == "user"
            for block in message["content"]
            if isinstance(block, str) or block["type"] == "text"
        ]
        return said[-1]

    def calls(self, body: str) -> list[Call]:
        content = message_of(body)["content"]
        return [Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]

    def text(self, body: str) -> str:
        return "".join(block["text"] for block in message_of(body)["content"] if block["type"] == "text")

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for message in request["messages"]:
            blocks = message["content"] if message["role"] == "user" and isinstance(message["content"], list) else []
            for block in blocks:
                if block["type"] == "tool_result":
                    found[block["tool_use_id"]] = outcome(block)
        return found


def outcome(block: JsonObject) -> Outcome:
    content = block.get("content", "")
    if isinstance(content, str):
        return Outcome(content, is_error=bool(block.get("is_error")))
    text = "".join(one["text"] for one in content if one["type"] == "text")
    media = tuple(media_of(one) for one in content if one["type"] in ("image", "document") and is_carried(one))
    return Outcome(text, media, bool(block.get("is_error")))


def is_carried(block: JsonObject) -> bool:
    """Whether our nouns have a word for it: not for a file that lies with the vendor."""
    return block["source"]["type"] in ("base64", "text", "url")


def media_of(block: JsonObject) -> Media:
    match block["source"]:
        case {"type": "base64", "media_type": kind, "data": content}:
            return Media(media_type=kind, base64=content)
        case {"type": "text", "media_type": kind, "data": words}:
            return Media(media_type=kind, base64=base64.b64encode(words.encode()).decode())
        case {"type": "url", "url": url}:
            return Media(media_type="image/png" if block["type"] == "image" else "application/pdf", url=url)
    raise AssertionError(block)


ORACLE = Oracle()


def anthropics(loop: Recording) -> tuple[Exchange, ...]:
    return loop.of(HOST)


def is_streamed(exchange: Exchange) -> bool:
    return exchange.body.startswith("event:")


def server_tools(loop: Recording) -> dict[str, Any]:
    tools = [
        tool
        for one in anthropics(loop)
        for tool in one.request.get("tools", ())
        if tool.get("type", "custom") != "custom"
    ]
    return {"server_tools": tools[:1]} if tools else {}


# --- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("W03", "S02")
@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_a_recorded_loop_goes_as_recorded(loop: Recording) -> None:
    exchanges = anthropics(loop)

    played = await play(
        exchanges, oracle=ORACLE, model="anthropic:m", stream=is_streamed(exchanges[0]), options=server_tools(loop)
    )

    played.check()


@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_a_recorded_loop_goes_the_same_in_the_other_form_synthetic(loop: Recording) -> None:
    exchanges = anthropics(loop)
    messages = [message_of(one.body) for one in exchanges]
    was_streamed = is_streamed(exchanges[0])

    played = await play(
        exchanges,
        oracle=ORACLE,
        model="anthropic:m",
        stream=not was_streamed,
        bodies=[json.dumps(one) if was_streamed else anthropic_events(one) for one in messages],
        options=server_tools(loop),
    )

    played.check()


@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(loop: Recording) -> None:
    for one in anthropics(loop):
        message = message_of(one.body)
        parts = await heard(one)

        assert_same(parts, message)


def assert_same(parts: list[ModelPart], message: JsonObject) -> None:
    end = parts[-1]
    assert isinstance(end, ModelEnd)
    assert list(map(as_block, end.parts)) == [without_extras(block) for block in message["content"]]
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
            return {"type": "text", "text": part.text}
        case Thinking(payload=None):
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Thinking(payload=payload) | Opaque(payload=payload):
            return payload
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": json.loads(part.arguments)}
    raise AssertionError(part)


def without_extras(block: JsonObject) -> JsonObject:
    extras = {"text": ("citations",), "tool_use": ("caller",)}.get(block["type"], ())
    return {name: value for name, value in block.items() if name not in extras}


def usage_of(counts: JsonObject) -> Usage:
    cached, written = (counts.get(f"cache_{act}_input_tokens", 0) for act in ("read", "creation"))
    return Usage(
        input_tokens=counts["input_tokens"] + written + cached,
        output_tokens=counts["output_tokens"],
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=(counts.get("output_tokens_details") or {}).get("thinking_tokens", 0),
    )


async def heard(exchange: Exchange) -> list[ModelPart]:
    """Send a request to a server that answers with the recorded bytes."""
    async with MockProvider([Turn(status=exchange.status, body=exchange.body.encode())]) as provider:
        model = resolve_model("anthropic:m", base_url=provider.base_url, stream=is_streamed(exchange))
        return [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]


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

    if isinstance(expected, list):
        parts = await heard(exchange)
        assert [type(part) for part in parts[-1].parts] == expected
        assert_same(parts, message_of(exchange.body))
    else:
        with pytest.raises(ModelError) as caught:
            await heard(exchange)
        assert type(caught.value) is expected
        assert "claude-sonet-4-5" in str(caught.value)
