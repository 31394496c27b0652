"""The dialects as bytes: how each asks and answers, and events and bodies for servers that do not play by the rules."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from chat_server import Received, Script, answer, serving

from treadle import Agent, RunResult, Tool, open_session, resolve_model
from treadle.journals.memory import MemoryJournal
from treadle.messages import Message, Part, Result, user_message
from treadle.mock.dialects.anthropic import AnthropicMessages, ClaudeAtACloud, anthropic_events
from treadle.mock.dialects.bedrock import Converse, converse_events
from treadle.mock.dialects.cohere import CohereChat, cohere_events
from treadle.mock.dialects.gemini import GenerateContent
from treadle.mock.dialects.openai_chat import ChatCompletions
from treadle.mock.dialects.openai_responses import Responses
from treadle.mock.dialects.shared import Dialect, event_frame
from treadle.ports import Model, ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.providers.anthropic import Anthropic
from treadle.providers.anthropic.response import AnthropicResponse, InvokedResponse
from treadle.providers.bedrock import Bedrock
from treadle.providers.bedrock.response import ConverseResponse
from treadle.providers.cohere import Cohere
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.gemini import Gemini
from treadle.providers.gemini.response import GeminiResponse
from treadle.providers.http.reading import Response
from treadle.providers.openai_chat import OpenAIChat
from treadle.providers.openai_chat.response import ChatResponse
from treadle.providers.openai_responses import OpenAIResponses
from treadle.providers.openai_responses.response import ResponsesResponse
from treadle.testing import FixedRandomness, MockProvider, Turn
from treadle.tools import JsonObject

__all__ = [
    "ADAPTERS",
    "ASK",
    "DIALECTS",
    "GREP",
    "MODELS",
    "NAMES",
    "READERS",
    "Anthropics",
    "Chats",
    "Event",
    "Geminis",
    "Responseses",
    "Till",
    "asked",
    "assistant",
    "blocks",
    "calls_in",
    "cohere",
    "converse",
    "damaged",
    "end_of",
    "events",
    "events_of",
    "given",
    "is_framed",
    "named",
    "outcome",
    "parts_from",
    "play",
    "read",
    "results_in",
    "said",
    "sent",
    "sse",
    "stream_of",
    "streamed",
    "tool",
    "tools_in",
    "used",
    "whole",
    "written",
]

# --- every dialect, by its name before the colon ---------------------------------------------------------------------

ADAPTERS: dict[str, Callable[..., Model]] = {
    "openai-chat": OpenAIChat,
    "openai": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "cohere": Cohere,
    "bedrock": Bedrock,
}
NAMES = tuple(ADAPTERS)

READERS: dict[str, type[Response]] = {
    "openai-chat": ChatResponse,
    "openai": ResponsesResponse,
    "anthropic": AnthropicResponse,
    "gemini": GeminiResponse,
    "cohere": CohereResponse,
    "bedrock": ConverseResponse,
    "bedrock-claude": InvokedResponse,
}

ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep",
    description="Search.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def assistant(*parts: Part, origin: str | None = None) -> Message:
    return Message(role="assistant", parts=parts, origin=origin)


def tool(*results: Result) -> Message:
    return Message(role="tool", parts=results)


async def sent(name: str, request: ModelRequest, *, model: str = "m", **words: Any) -> Any:
    """Return the body of a request as the strict mock took it; Anthropic's without cache markers unless they are asked for."""
    if name == "anthropic":
        words["options"] = {"cache_control": None, **words.get("options", {})}
    async with MockProvider(["ok"]) as provider:
        adapter = resolve_model(f"{name}:{model}", base_url=provider.base_url, api_key="k", **words)
        parts = [part async for part in adapter.stream(request)]
    assert isinstance(parts[-1], ModelEnd)
    return provider.requests[0].body


async def asked(
    name: str, *scripts: Script, request: ModelRequest = ASK, model: str = "m", **words: Any
) -> tuple[list[ModelPart], list[Received]]:
    """Ask a server that answers with these scripts; return the parts, and what it was sent."""
    async with serving(*scripts) as server:
        adapter = resolve_model(f"{name}:{model}", base_url=server.url, **{"api_key": "k", **words})
        parts = [part async for part in adapter.stream(request)]
    return parts, server.requests


async def written(name: str, request: ModelRequest, **words: Any) -> Any:
    """Return the body of a request as a server gets it that takes anything."""
    return (await asked(name, answer(said(name, Turn(text="Hello"))), request=request, **words))[1][0].json


async def parts_from(name: str, script: Script, **words: Any) -> list[ModelPart]:
    return (await asked(name, script, **words))[0]


async def end_of(name: str, script: Script, **words: Any) -> ModelEnd:
    last = (await asked(name, script, **words))[0][-1]
    assert isinstance(last, ModelEnd)
    return last


def said(name: str, turn: Turn, *, stream: bool = True) -> bytes:
    """Return the body of an honest answer, as the mock writes it."""
    speakers: dict[str, Dialect] = {
        "openai-chat": ChatCompletions(),
        "openai": Responses(),
        "anthropic": AnthropicMessages(),
        "gemini": GenerateContent(is_stream=stream, signed=set()),
        "cohere": CohereChat(),
        "bedrock": Converse(is_stream=stream),
        "bedrock-claude": ClaudeAtACloud("bedrock", is_stream=stream),
    }
    body = {"model": "m", "messages": [], "input": [], "contents": [], "stream": stream}
    ids = (f"call_{number}" for number in count(1))
    return b"".join(piece.content for piece in speakers[name].answer(turn, body, number=1, ids=ids).pieces)


def whole(name: str, content: Any, finish: str | None = None) -> JsonObject:
    """Return an honest answer of one piece with this content: a list of blocks, parts or items, or a message in OpenAI's way.

    Args:
        finish: The word for its end; None for the usual one.
    """
    match name:
        case "openai" | "azure-responses":
            details = {} if finish is None else {"incomplete_details": {"reason": finish}}
            return {"status": "incomplete" if details else "completed", "output": content, **details}
        case "anthropic" | "bedrock-claude":
            return {"type": "message", "content": content, "stop_reason": finish or "end_turn"}
        case "gemini":
            candidate = {"content": {"role": "model", "parts": content}, "finishReason": (finish or "stop").upper()}
            return {"candidates": [candidate]}
        case "cohere":
            return {"message": {"role": "assistant", **content}, "finish_reason": (finish or "complete").upper()}
        case "bedrock":
            message = {"role": "assistant", "content": content}
            return {"output": {"message": message}, "stopReason": finish or "end_turn"}
        case _:
            message = {"role": "assistant", **content}
            return {"choices": [{"index": 0, "message": message, "finish_reason": finish or "stop"}]}


def streamed(name: str, answer: JsonObject) -> bytes:
    """Return the stream that says an answer of one piece."""
    match name:
        case "anthropic":
            return anthropic_events(answer)
        case "cohere":
            return cohere_events(answer)
        case "bedrock":
            return converse_events(answer)
        case "openai":
            done = [Responseses.done(index, item) for index, item in enumerate(answer["output"])]
            return sse(*done, Responseses.completed(*answer["output"])).encode()
        case _:
            return sse(answer).encode()


Event = tuple[str, Any]
"""The type of an event in its frame, which server-sent events have none of, and its JSON."""


def is_framed(name: str) -> bool:
    return name.startswith("bedrock")


def events_of(name: str, content: bytes) -> list[Event]:
    found = READERS[name]({}).frames().feed(content)
    if is_framed(name):
        return [next(iter(json.loads(data).items())) for data in found]
    return [("", json.loads(data)) for data in found if data != b"[DONE]"]


def stream_of(name: str, events: list[Event]) -> bytes:
    if is_framed(name):
        return b"".join(event_frame(kind, json.dumps(payload).encode()) for kind, payload in events)
    return b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for _, payload in events)


def damaged(name: str, content: bytes | str, damage: bytes, mark: bytes = b"DAMAGE") -> bytes:
    """Put damage in place of a mark. The frames of an event stream get sums that fit again."""
    content = content if isinstance(content, bytes) else content.encode()
    if not content.startswith(b"\0"):
        return content.replace(mark, damage)
    events = [data[2:-1].partition(b'":') for data in READERS[name]({}).frames().feed(content)]
    return b"".join(event_frame(kind.decode(), payload.replace(mark, damage)) for kind, _, payload in events)


def read(name: str, *chunks: bytes | str) -> tuple[list[ModelPart], ModelEnd]:
    """Read a stream without a server."""
    response = READERS[name]({})
    frames = response.frames()
    found = [event for piece in chunks for event in frames.feed(piece if isinstance(piece, bytes) else piece.encode())]
    last = frames.finish()
    parts = [part for event in [*found, *([last] if last else [])] for part in response.add(event)]
    return parts, response.end()


def _objects(value: Any) -> Iterator[JsonObject]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(one)


def calls_in(body: Any) -> list[tuple[str, str, Any]]:
    """Return id, name and arguments of each call in the history of a request, whatever its dialect."""
    found: list[tuple[str, str, Any]] = []
    for one in _objects(body):
        match one:
            case {"id": call_id, "function": {"name": name, "arguments": arguments}}:
                found.append((call_id, name, json.loads(arguments)))
            case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}:
                found.append((call_id, name, json.loads(arguments)))
            case {"type": "tool_use", "id": call_id, "name": name, "input": arguments}:
                found.append((call_id, name, arguments))
            case {"functionCall": {"id": call_id, "name": name, "args": arguments}}:
                found.append((call_id, name, arguments))
            case {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}:
                found.append((call_id, name, arguments))
    return found


def results_in(body: Any) -> list[str]:
    """Return the id of each result in the history of a request."""
    found: list[str] = []
    for one in _objects(body):
        match one:
            case {"role": "tool", "tool_call_id": call_id} | {"type": "function_call_output", "call_id": call_id}:
                found.append(call_id)
            case {"type": "tool_result", "tool_use_id": call_id} | {"functionResponse": {"id": call_id}}:
                found.append(call_id)
            case {"toolResult": {"toolUseId": call_id}}:
                found.append(call_id)
    return found


def tools_in(body: Any) -> dict[str, Any]:
    """Return the schemas of the functions that a request offers, by name."""
    found: dict[str, Any] = {}
    for one in _objects(body):
        match one:
            case {"name": name, "parameters": schema} | {"name": name, "input_schema": schema}:
                found[name] = schema
            case {"name": name, "parametersJsonSchema": schema} | {"name": name, "inputSchema": {"json": schema}}:
                found[name] = schema
    return found


# --- the four dialects that servers speak badly ----------------------------------------------------------------------

DIALECTS = ("chat", "responses", "anthropic", "gemini")

MODELS: dict[str, Callable[..., Model]] = {**ADAPTERS, "chat": OpenAIChat, "responses": OpenAIResponses}


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


# --- Converse and Cohere -----------------------------------------------------------------------------------------------


def converse(*pieces: tuple[str, int, Any], stop: str = "tool_use", **end: Any) -> bytes:
    """Return a stream of Converse: `start`, `delta` and `stop` of blocks, and `begin` for the message again, each with its index and what it holds."""
    names = {
        "begin": "messageStart",
        "start": "contentBlockStart",
        "delta": "contentBlockDelta",
        "stop": "contentBlockStop",
    }
    made = [(names[kind], {"contentBlockIndex": index, **held}) for kind, index, held in pieces]
    ending = [("messageStop", {"stopReason": stop}), *([("metadata", end)] if end else [])]
    return stream_of("bedrock", [("messageStart", {"role": "assistant"}), *made, *ending])


def used(call_id: str, name: str | None) -> dict[str, Any]:
    return {"start": {"toolUse": {"toolUseId": call_id, **({} if name is None else {"name": name})}}}


def given(text: str) -> dict[str, Any]:
    return {"delta": {"toolUse": {"input": text}}}


def cohere(*pieces: tuple[str, int, Any]) -> str:
    """Events of Cohere: `start`, `delta` and `end` of calls, each with its index, its name and arguments."""
    made = [
        {"type": f"tool-call-{kind}", "index": index, "delta": {"message": {"tool_calls": held}}}
        for kind, index, held in pieces
    ]
    end = {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {}}}
    return sse({"type": "message-start", "delta": {"message": {"role": "assistant"}}}, *made, end)


def named(name: str | None, arguments: str = "", call_id: str | None = "a1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


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


def events(dialect: str, text: str) -> bytes:
    """Return the stream of a plain answer."""
    return said({"chat": "openai-chat", "responses": "openai"}.get(dialect, dialect), Turn(text=text))


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
    no_waits = open_session(MemoryJournal(), randomness=FixedRandomness([0.0]))
    async with serving(*scripts, answer(events(dialect, "Done."))) as server, no_waits as session:
        model = MODELS[dialect]("m", base_url=server.url, api_key=None, **options.pop("model", {}))
        return await Agent(model, tools=(till or Till()).tools, **options).run("go", session=session)


def outcome(result: RunResult) -> tuple[bool, list[str]]:
    """Return whether the run is completed, and the status of each call."""
    return result.completed, [record.status for record in result.tool_calls]
