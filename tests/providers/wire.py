"""The four dialects as bytes: events of streams and bodies in one piece, for servers that do not play by the rules. Reads nothing."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from chat_server import Script, answer, serving

from treadle import Agent, RunResult, Tool
from treadle.ports import Model
from treadle.providers.anthropic import Anthropic
from treadle.providers.gemini import Gemini
from treadle.providers.openai_chat import OpenAIChat
from treadle.providers.openai_responses import OpenAIResponses
from treadle.tools import JsonObject

__all__ = [
    "DIALECTS",
    "MODELS",
    "Anthropics",
    "Chats",
    "Geminis",
    "Responseses",
    "Till",
    "blocks",
    "events",
    "outcome",
    "play",
    "sse",
]

DIALECTS = ("chat", "responses", "anthropic", "gemini")

MODELS: dict[str, Callable[..., Model]] = {
    "chat": OpenAIChat,
    "responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
}


def sse(*values: Any) -> str:
    """Return one event for each JSON value; a string is one as it is."""
    return "".join(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n" for value in values)


# --- Chat Completions ------------------------------------------------------------------------------------------------


class Chats:
    """Events of Chat Completions."""

    @staticmethod
    def delta(finish: str | None = None, **delta: Any) -> JsonObject:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    @staticmethod
    def message(finish: str | None = None, **message: Any) -> JsonObject:
        return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}

    @staticmethod
    def call(call_id: str | None, arguments: str, *, index: int | None = 0, name: str = "pay") -> JsonObject:
        made: JsonObject = {"type": "function", "function": {"name": name, "arguments": arguments}}
        return {**made, **({} if call_id is None else {"id": call_id}), **({} if index is None else {"index": index})}

    @classmethod
    def calls(cls, *calls: JsonObject) -> JsonObject:
        return cls.delta(tool_calls=list(calls))


# --- Responses -------------------------------------------------------------------------------------------------------


class Responseses:
    """Events of Responses."""

    @staticmethod
    def call(call_id: str, arguments: str, *, item_id: str | None = None, name: str = "pay") -> JsonObject:
        own = {"id": f"fc_{call_id}" if item_id is None else item_id, "call_id": call_id}
        return {"type": "function_call", **own, "name": name, "arguments": arguments, "status": "completed"}

    @staticmethod
    def message(text: str, item_id: str = "msg_1") -> JsonObject:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}

    @staticmethod
    def added(index: int, item: JsonObject) -> JsonObject:
        begun = {**item, "status": "in_progress", **({"arguments": ""} if "arguments" in item else {"content": []})}
        return {"type": "response.output_item.added", "output_index": index, "item": begun}

    @staticmethod
    def piece(index: int, item_id: str, text: str) -> JsonObject:
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "output_index": index, "item_id": item_id, "delta": text}

    @staticmethod
    def done(index: int, item: JsonObject) -> JsonObject:
        return {"type": "response.output_item.done", "output_index": index, "item": item}

    @staticmethod
    def completed(*output: JsonObject, status: str = "completed", **more: Any) -> JsonObject:
        body = {"id": "resp_1", "object": "response", "status": status, "output": list(output), **more}
        return {"type": f"response.{status}", "response": body}


# --- Anthropic -------------------------------------------------------------------------------------------------------


def blocks(index: int, start: JsonObject, *pieces: JsonObject) -> list[JsonObject]:
    """Return the events of one content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]


class Anthropics:
    """Events of Anthropic Messages."""

    start: ClassVar[JsonObject] = {
        "type": "message_start",
        "message": {"id": "msg_1", "role": "assistant", "usage": {}},
    }
    stop: ClassVar[JsonObject] = {"type": "message_stop"}

    @staticmethod
    def call(index: int, call_id: str, *arguments: str, name: str = "pay") -> list[JsonObject]:
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments]
        return blocks(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, *pieces)

    @staticmethod
    def text(index: int, *words: str) -> list[JsonObject]:
        pieces = [{"type": "text_delta", "text": piece} for piece in words]
        return blocks(index, {"type": "text", "text": ""}, *pieces)

    @staticmethod
    def reason(word: str | None) -> JsonObject:
        return {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 5}}


# --- Gemini ----------------------------------------------------------------------------------------------------------


class Geminis:
    """Chunks of Gemini."""

    @staticmethod
    def call(call_id: str | None, arguments: JsonObject, name: str = "pay") -> JsonObject:
        return {"functionCall": {"name": name, "args": arguments, **({} if call_id is None else {"id": call_id})}}

    @staticmethod
    def chunk(*parts: JsonObject, finish: str | None = None) -> JsonObject:
        candidate: JsonObject = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
        return {"candidates": [{**candidate, **({} if finish is None else {"finishReason": finish})}]}


def events(dialect: str, text: str) -> str:
    """Return the stream of a plain answer."""
    match dialect:
        case "chat":
            return sse(Chats.delta("stop", content=text), "[DONE]")
        case "responses":
            return sse(Responseses.done(0, Responseses.message(text)), Responseses.completed(Responseses.message(text)))
        case "anthropic":
            return sse(Anthropics.start, *Anthropics.text(0, text), Anthropics.reason("end_turn"), Anthropics.stop)
        case _:
            return sse(Geminis.chunk({"text": text}, finish="STOP"))


@dataclass
class Till:
    """What happened in the world."""

    paid: list[Any] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    has_seen: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tools(self) -> list[Tool]:
        anything: JsonObject = {"type": "object", "additionalProperties": True}

        async def pay(arguments: JsonObject, ctx: Any) -> str:
            self.paid.append(arguments)
            return "paid"

        async def look(arguments: JsonObject, ctx: Any) -> str:
            self.seen.append(arguments)
            self.has_seen.set()
            return "seen"

        return [
            Tool(name="pay", description="Pay.", run=pay, parameters=anything, effect="unsafe", permission="allow"),
            Tool(name="look", description="Look.", run=look, parameters=anything, effect="read"),
        ]


async def play(dialect: str, *scripts: Script, till: Till | None = None, **options: Any) -> RunResult:
    """Run an agent against a server that answers with these scripts, and with a plain answer after them."""
    async with serving(*scripts, answer(events(dialect, "Done."))) as server:
        model = MODELS[dialect]("m", base_url=server.url, api_key=None, **options.pop("model", {}))
        return await Agent(model, tools=(till or Till()).tools, **options).run("go")


def outcome(result: RunResult) -> tuple[bool, list[str]]:
    """Return whether the run is completed, and the status of each call."""
    return result.completed, [record.status for record in result.tool_calls]
