"""Cohere's Chat, read without any code of its adapter: put together from events, or read whole."""

import json
from collections.abc import Iterator
from typing import Any

from _dialects import Bodied, Conversation
from _replay import Call, Outcome, Stretch

from treadle.mock.dialects.cohere import cohere_events
from treadle.tools import JsonObject

__all__ = ["ORACLE", "answer_of", "events_in", "stretch"]


def events_in(content: bytes) -> list[JsonObject]:
    """Return the JSON of each event of a stream."""
    lines = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: {")]
    return list(map(json.loads, lines))


def answer_of(one: Bodied) -> JsonObject:
    """Return a whole answer, put together where it was streamed."""
    if not one.is_stream:
        return json.loads(one.content)
    plan, content, calls, cited, end = "", dict[int, JsonObject](), dict[int, JsonObject](), list[Any](), {}
    for event in events_in(one.content):
        added = event.get("delta", {}).get("message", {})
        match event["type"]:
            case "tool-plan-delta":
                plan += added["tool_plan"]
            case "content-start":
                content[event["index"]] = dict(added["content"])
            case "content-delta":
                [(name, piece)] = added["content"].items()
                content[event["index"]][name] += piece
            case "tool-call-start":
                calls[event["index"]] = added["tool_calls"]
            case "tool-call-delta":
                calls[event["index"]]["function"]["arguments"] += added["tool_calls"]["function"]["arguments"]
            case "citation-start":
                cited.append(added["citations"])
            case "message-end":
                end = event["delta"]
    said = {
        "tool_plan": plan,
        "content": list(content.values()),
        "tool_calls": list(calls.values()),
        "citations": cited,
    }
    return {"message": {"role": "assistant", **{name: value for name, value in said.items() if value}}, **end}


class Oracle:
    """Reads recorded traffic of this dialect."""

    def tools(self, request: Any) -> Iterator[tuple[str, str, JsonObject]]:
        for tool in request.get("tools", ()):
            function = tool["function"]
            yield function["name"], function["description"], function["parameters"]

    def task(self, request: Any) -> str:
        said = [message["content"] for message in request["messages"] if message["role"] == "user"]
        return said[-1] if isinstance(said[-1], str) else said[-1][0]["text"]

    def calls(self, body: str) -> list[Call]:
        return calls_in(json.loads(body)["message"])

    def text(self, body: str) -> str:
        content = json.loads(body)["message"].get("content", ())
        return "".join(block["text"] for block in content if block["type"] == "text")

    def told(self, request: Any) -> list[Call]:
        spoken = [message for message in request["messages"] if message["role"] == "assistant"]
        return [call for message in spoken for call in calls_in(message)]

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        results = [message for message in request["messages"] if message["role"] == "tool"]
        return {one["tool_call_id"]: Outcome(said_in(one["content"])) for one in results}


ORACLE = Oracle()


def said_in(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def calls_in(message: JsonObject) -> list[Call]:
    calls = message.get("tool_calls") or ()
    return [Call(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"] or "{}")) for one in calls]


def stretch(conversation: Conversation, *, in_other_form: bool = False) -> Stretch:
    return conversation.played("cohere", ORACLE, answer_of, cohere_events, in_other_form=in_other_form)
