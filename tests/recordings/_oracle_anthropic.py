"""Anthropic Messages, read without any code of its adapter: put together from events, or read whole."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from _replay import Call, Exchange, Outcome, Stretch

from treadle.messages import Media, Opaque, Part, Text, Thinking, ToolCall
from treadle.mock.dialects.anthropic import anthropic_events
from treadle.tools import JsonObject

HOST = "api.anthropic.com"


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
        case {"type": "citations_delta", "citation": cited}:
            block["citations"] = [*(block.get("citations") or ()), cited]
        case {"type": "text_delta", "text": piece}:
            block["text"] += piece
        case {"type": "thinking_delta", "thinking": piece}:
            block["thinking"] += piece


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        for tool in request.get("tools", ()):
            if tool.get("type", "custom") == "custom":
                yield tool["name"], tool.get("description", ""), tool["input_schema"]

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
        return calls_in(message_of(body)["content"])

    def text(self, body: str) -> str:
        return "".join(block["text"] for block in message_of(body)["content"] if block["type"] == "text")

    def told(self, request: Any) -> list[Call]:
        spoken = [message["content"] for message in request["messages"] if message["role"] == "assistant"]
        return [call for content in spoken if isinstance(content, list) for call in calls_in(content)]

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for message in request["messages"]:
            blocks = message["content"] if message["role"] == "user" and isinstance(message["content"], list) else []
            for block in blocks:
                if block["type"] == "tool_result":
                    found[block["tool_use_id"]] = outcome(block)
        return found


ORACLE = Oracle()


def calls_in(content: list[JsonObject]) -> list[Call]:
    return [Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]


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


# --- playing ---------------------------------------------------------------------------------------------------------


def is_streamed(exchange: Exchange) -> bool:
    return exchange.body.startswith("event:")


def stretch(exchanges: tuple[Exchange, ...], *, in_other_form: bool = False) -> Stretch:
    """Return how exchanges are played: as recorded, or what was streamed whole and the other way round."""
    was_streamed = is_streamed(exchanges[0])
    other = [json.dumps(message_of(one.body)) if was_streamed else events_of(one) for one in exchanges]
    return Stretch(
        exchanges=exchanges,
        oracle=ORACLE,
        model="anthropic:m",
        stream=was_streamed is not in_other_form,
        bodies=other if in_other_form else None,
        options=server_tools(exchanges),
    )


def events_of(exchange: Exchange) -> bytes:
    return anthropic_events(message_of(exchange.body))


def server_tools(exchanges: tuple[Exchange, ...]) -> dict[str, Any]:
    every = [tool for one in exchanges for tool in one.request.get("tools", ())]
    tools = [tool for tool in every if tool.get("type", "custom") != "custom"]
    return {"server_tools": tools[:1]} if tools else {}
