"""Anthropic Messages: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind, Refusal
from treadle.mock.dialects.anthropic.pairing import check_anthropic_history
from treadle.mock.dialects.anthropic.requests import check_anthropic_request
from treadle.mock.dialects.rendering import arguments_text, event_lines, finish_name, json_bytes, used_tokens
from treadle.mock.turns import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["AnthropicMessages", "anthropic_events"]

_FINISHES = {Finish.STOP: "end_turn", Finish.CALLS: "tool_use", Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SIGNATURE = "bW9jaw=="


class AnthropicMessages:
    """The dialect of `POST /v1/messages`."""

    path = "/messages"

    def with_head(self, path: str, headers: Mapping[str, str]) -> Self:
        if "anthropic-version" not in headers:
            raise Refusal("anthropic-version: header is required")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_anthropic_request(body)
        check_anthropic_history(checked["messages"])
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        message = {
            "id": f"msg_mock_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": _content(turn, ids),
            "stop_reason": finish_name(turn, _FINISHES),
            "stop_sequence": None,
            **({} if turn.usage is None else {"usage": _usage(turn, body)}),
        }
        if body.get("stream") is True:
            pieces = tuple(_pieces(message, turn))
            return Answer(pieces=pieces, content_type="text/event-stream; charset=utf-8", is_stream=True)
        whole = _error(turn.status, turn.error) if turn.error is not None else {**message, "content": _whole(message)}
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(whole)),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes(_error(status, error))


def anthropic_events(message: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says a message which was sent whole.

    Example:
        >>> anthropic_events({"content": [], "stop_reason": "end_turn", "usage": {}}).count(b"event: ")
        3

    Args:
        message: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(message, Turn(pieces=pieces)))


def _error(status: int, error: str | JsonObject) -> JsonObject:
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    kind = _ERRORS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": "", **(body if isinstance(body, dict) else {"message": body})},
        "request_id": "req_mock",
    }


def _content(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the blocks of a turn; the input of a call is its raw text."""
    content: list[JsonObject] = []
    if turn.thinking is not None:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": _SIGNATURE})
    content += ({"type": "text", "text": text} for text in (turn.text, turn.refusal) if text)
    for made in turn.calls:
        call_id = next(ids) if made.id is UNSET else made.id
        named = {} if call_id is None else {"id": call_id}
        content.append({"type": "tool_use", **named, "name": made.name, "input": made.arguments})
    return content


def _whole(message: JsonObject) -> list[JsonObject]:
    """Return the blocks with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    return [{**block, "input": _parsed(block["input"])} if "input" in block else block for block in message["content"]]


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _pieces(message: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of a message, in order."""

    def piece(kind: PieceKind, event: JsonObject, *, call: int | None = None, is_last: bool = False) -> Piece:
        content = event_lines(json_bytes(event), turn, kind=event["type"])
        return Piece(kind=kind, content=content, call=call, is_last=is_last)

    usage = message.get("usage", {})
    head = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": min(1, len(usage))}}
    yield piece("start", {"type": "message_start", "message": head if usage else {**head, "usage": {}}})
    call = -1
    for index, block in enumerate(message["content"]):
        call += block["type"] == "tool_use"
        kind = _piece_kind(block)
        for event in _block_events(block, turn.pieces):
            is_last = event["type"] == "content_block_stop"
            position = call if kind == "call" else None
            yield piece(kind, {**event, "index": index}, call=position, is_last=is_last)
    if turn.error is not None:
        yield piece("error", _error(turn.status, turn.error))
        return
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield piece("finish", {"type": "message_delta", "delta": delta, "usage": usage})
    yield piece("done", {"type": "message_stop"})


def _piece_kind(block: JsonObject) -> PieceKind:
    match block["type"]:
        case "text":
            return "text"
        case "tool_use":
            return "call"
        case _:
            return "thinking"


def _block_events(block: JsonObject, pieces: int) -> Iterator[JsonObject]:
    kind, deltas = block["type"], list[JsonObject]()
    match kind:
        case "text":
            start = {**block, "text": "", **({"citations": []} if "citations" in block else {})}
            deltas += ({"type": "citations_delta", "citation": one} for one in block.get("citations") or ())
            deltas += ({"type": "text_delta", "text": part} for part in fragments(block["text"], pieces))
        case "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas += ({"type": "thinking_delta", "thinking": part} for part in fragments(block["thinking"], pieces))
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            start = {**block, "input": {}}
            parts = ["", *fragments(arguments_text(block["input"]), pieces)]
            deltas += ({"type": "input_json_delta", "partial_json": part} for part in parts)
        case _:
            start = block
    yield {"type": "content_block_start", "content_block": start}
    yield from ({"type": "content_block_delta", "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop"}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "input_tokens": used.input_tokens - used.cached_input_tokens - used.cache_written_tokens,
        "cache_creation_input_tokens": used.cache_written_tokens,
        "cache_read_input_tokens": used.cached_input_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
    }
