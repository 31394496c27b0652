"""Bedrock Converse, read without any code of its adapter: put together from events, or read whole."""

import json
import re
from collections.abc import Iterator
from typing import Any

from _dialects import Bodied, Conversation, frames
from _replay import Call, Outcome, Stretch

from treadle.mock.dialects.bedrock import converse_events
from treadle.tools import JsonObject

__all__ = ["ORACLE", "answer_of", "apart", "stretch"]


def answer_of(one: Bodied) -> JsonObject:
    """Return a whole answer, put together where it was streamed."""
    if not one.is_stream:
        return json.loads(one.content)
    content: dict[int, JsonObject] = {}
    answer: JsonObject = {}
    for headers, payload in frames(one.content):
        event = json.loads(payload)
        at = event.get("contentBlockIndex")
        match headers[":event-type"]:
            case "contentBlockStart":
                content[at] = {"toolUse": {**event["start"]["toolUse"], "written": ""}}
            case "contentBlockDelta":
                extend(content.setdefault(at, {}), event["delta"])
            case "messageStop":
                answer["stopReason"] = event["stopReason"]
            case "metadata":
                answer["usage"] = event["usage"]
    blocks = [finished(content[at]) for at in sorted(content)]
    return {"output": {"message": {"role": "assistant", "content": blocks}}, **answer}


def extend(block: JsonObject, delta: JsonObject) -> None:
    match delta:
        case {"text": piece}:
            block["text"] = block.get("text", "") + piece
        case {"toolUse": {"input": piece}}:
            block["toolUse"]["written"] += piece
        case {"citation": cited}:
            block.setdefault("citations", []).append(cited)
        case {"reasoningContent": piece}:
            for name, value in piece.items():
                block.setdefault("thought", {}).setdefault(name, "")
                block["thought"][name] += value


def finished(block: JsonObject) -> JsonObject:
    match block:
        case {"toolUse": {"written": written, **call}}:
            return {"toolUse": {**call, "input": json.loads(written or "{}")}}
        case {"thought": {"redactedContent": sealed}}:
            return {"reasoningContent": {"redactedContent": sealed}}
        case {"thought": thought}:
            return {"reasoningContent": {"reasoningText": thought}}
        case {"citations": cited}:
            return {"citationsContent": {"content": [{"text": block.get("text", "")}], "citations": cited}}
    return block


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        for tool in request.get("toolConfig", {}).get("tools", ()):
            if spec := tool.get("toolSpec"):
                yield spec["name"], spec.get("description", ""), spec["inputSchema"]["json"]

    def task(self, request: Any) -> str:
        said = [
            block["text"]
            for message in request["messages"]
            if message["role"] == "user"
            for block in message["content"]
            if "text" in block
        ]
        return said[-1]

    def calls(self, body: str) -> list[Call]:
        return calls_in(json.loads(body)["output"]["message"]["content"])

    def text(self, body: str) -> str:
        return "".join(map(words_of, apart(json.loads(body)["output"]["message"]["content"])))

    def told(self, request: Any) -> list[Call]:
        spoken = [message["content"] for message in request["messages"] if message["role"] == "assistant"]
        return [call for content in spoken for call in calls_in(content)]

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        results = [
            block["toolResult"]
            for message in request["messages"]
            for block in message["content"]
            if "toolResult" in block
        ]
        return {
            one["toolUseId"]: Outcome(
                "".join(json.dumps(shown["json"]) if "json" in shown else shown["text"] for shown in one["content"]),
                is_error=one.get("status") == "error",
            )
            for one in results
        }


ORACLE = Oracle()


def apart(content: list[JsonObject]) -> list[JsonObject]:
    """Return the blocks of an answer; thinking that stands in front of a text becomes a block of its own."""
    match content:
        case [{"text": text}, *others] if found := _THOUGHT.fullmatch(text):
            thought, words = found.groups()
            blocks = [{"reasoningContent": {"reasoningText": {"text": thought}}}, {"text": words}]
            return [*blocks[: 1 + bool(words)], *others]
    return content


_THOUGHT = re.compile(r"\s*<thinking>\s*(.*?)\s*</thinking>\s*(.*)", re.DOTALL)


def calls_in(content: list[JsonObject]) -> list[Call]:
    calls = [block["toolUse"] for block in content if "toolUse" in block]
    return [Call(one["toolUseId"], one["name"], one["input"]) for one in calls]


def words_of(block: JsonObject) -> str:
    if "citationsContent" in block:
        return "".join(piece["text"] for piece in block["citationsContent"]["content"])
    return str(block.get("text", ""))


def stretch(conversation: Conversation, *, in_other_form: bool = False) -> Stretch:
    return conversation.played("bedrock", ORACLE, answer_of, converse_events, in_other_form=in_other_form)
