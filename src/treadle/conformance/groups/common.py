"""What the groups share: tools, turns in the vendors' own events, and sources."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from treadle.conformance.scenario import DialectName, tool
from treadle.testing import ScriptedCall, Turn

__all__ = [
    "LOOK",
    "PAY",
    "SEED_LOOPS",
    "SEED_PRACTICE",
    "STREAMED",
    "TEXTS",
    "answer_after",
    "pay",
    "streamed",
]

TEXTS: tuple[DialectName, ...] = ("chat", "responses", "anthropic")
"""The dialects in which the arguments of a call are a text, which may be anything and come in pieces."""
STREAMED = frozenset({"stream"})

SEED_LOOPS = "seed 000, Tool Loops: Multi-Step and Parallel Calls"
SEED_PRACTICE = "seed 004, The agentic loop"

PAY = tool(
    "pay",
    {"invoice": {"type": "integer"}, "note": {"type": "string"}},
    required=["invoice"],
    effect="write",
    describes="Pay an invoice.",
)
LOOK = tool("look", "key", describes="Look a key up.")


def pay(invoice: Any, id: str = "call_1", **more: Any) -> ScriptedCall:  # noqa: A002 - the word of every wire format
    """A call of the payment."""
    return ScriptedCall(name="pay", arguments=json.dumps({"invoice": invoice, **more}), id=id)


def answer_after(*calls: ScriptedCall, says: str = "All done.") -> tuple[Any, ...]:
    """One response with these calls, then the answer."""
    return (Turn(calls=calls), says)


# --- Streams in the vendors' own events, where their order or their ids are what a scenario is about.

_Event: TypeAlias = tuple[str, int, str, str] | tuple[str, int, str] | tuple[str, int]


def streamed(dialect: DialectName, *events: _Event) -> Turn:
    """Return a streamed response of calls whose parts come just so.

    An event is `begin` with an index, an id and a name; `text` with an index and a piece of the arguments; or `end` with an index.
    """
    said = {"chat": _chat, "responses": _responses, "anthropic": _anthropic}[dialect](events)
    lines = ((f"event: {one['type']}\n" if "type" in one else "") + f"data: {json.dumps(one)}\n\n" for one in said)
    end = "data: [DONE]\n\n" if dialect == "chat" else ""
    return Turn(body=("".join(lines) + end).encode(), headers={"content-type": "text/event-stream"})


def _chat(events: Iterable[_Event]) -> Iterable[Mapping[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "mock"}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> Mapping[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": None})
    for event in events:
        match event:
            case ("begin", index, call_id, name):
                function = {"name": name, "arguments": ""}
                yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
            case ("text", index, text):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
    yield chunk({}, "tool_calls")


def _responses(events: Iterable[_Event]) -> Iterable[Mapping[str, Any]]:
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "mock"}
    response |= {"status": "in_progress", "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    items: dict[int, dict[str, Any]] = {}
    said: list[dict[str, Any]] = [{"type": "response.created", "response": dict(response)}]
    for event in events:
        index = event[1]
        match event:
            case ("begin", _, call_id, name):
                items[index] = {"id": f"fc_{index}", "type": "function_call", "status": "in_progress", "name": name}
                items[index] |= {"call_id": call_id, "arguments": ""}
                said.append({"type": "response.output_item.added", "output_index": index, "item": dict(items[index])})
            case ("text", _, text):
                items[index]["arguments"] += text
                place = {"item_id": f"fc_{index}", "output_index": index}
                said.append({"type": "response.function_call_arguments.delta", **place, "delta": text})
            case ("end", _):
                items[index]["status"] = "completed"
                said.append({"type": "response.output_item.done", "output_index": index, "item": dict(items[index])})
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {**response, "status": "completed", "output": list(items.values()), "usage": usage}
    said.append({"type": "response.completed", "response": whole})
    return [{**one, "sequence_number": number} for number, one in enumerate(said)]


def _anthropic(events: Iterable[_Event]) -> Iterable[Mapping[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mock", "content": [], "usage": usage}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    for event in events:
        match event:
            case ("begin", index, call_id, name):
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                yield {"type": "content_block_start", "index": index, "content_block": block}
            case ("text", index, text):
                delta = {"type": "input_json_delta", "partial_json": text}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            case ("end", index):
                yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}
