"""Bedrock Converse: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind, Refusal
from treadle.mock.dialects.aws_errors import aws_error, aws_exception
from treadle.mock.dialects.bedrock.pairing import check_converse_history
from treadle.mock.dialects.bedrock.requests import check_converse_request
from treadle.mock.dialects.event_stream import event_frame, exception_frame
from treadle.mock.dialects.rendering import arguments_text, finish_name, json_bytes, used_tokens
from treadle.mock.turns import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["Converse", "converse_dialects", "converse_events"]

_FINISHES = {
    Finish.STOP: "end_turn",
    Finish.CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.REFUSED: "content_filtered",
}
_SIGNATURE = "bW9jaw=="
_PATH = re.compile(r"/model/(?P<model>[^/]+)/converse(-stream)?$")
_MODEL = re.compile(r"([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}")
"""The id of a model as one segment of a path: what is reserved there is percent-encoded."""


class Converse:
    """The dialect of `POST /model/{model}/converse`, and of its streamed sister.

    Args:
        is_stream: Whether it is the streamed one: the path says so, not the body.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self.path = "/converse-stream" if is_stream else "/converse"
        self._is_stream = is_stream

    def with_head(self, path: str, headers: Mapping[str, str]) -> "Converse":
        found = _PATH.search(path)
        if found is None or not _MODEL.fullmatch(found["model"]):
            raise Refusal("The provided model identifier is invalid.")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_converse_request(body)
        check_converse_history(checked.get("messages"), has_tools="toolConfig" in checked)
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        whole = {
            "metrics": {"latencyMs": 1},
            "output": {"message": {"content": _content(turn, ids), "role": "assistant"}},
            "stopReason": finish_name(turn, _FINISHES),
            "usage": None if turn.usage is None else _usage(turn, body),
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        if self._is_stream:
            pieces = tuple(_pieces(whole, turn))
            return Answer(pieces=pieces, content_type="application/vnd.amazon.eventstream", is_stream=True)
        if turn.error is not None:
            return Answer(pieces=(Piece(kind="whole", content=aws_error(turn.status, turn.error)),))
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(_parsed(whole))),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return aws_error(status, error)


def converse_dialects() -> list[Converse]:
    """Return both sisters."""
    return [Converse(is_stream=is_stream) for is_stream in (True, False)]


def converse_events(answer: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says an answer which was sent whole.

    Example:
        >>> converse_events({"output": {"message": {"content": []}}, "stopReason": "end_turn"}).count(b"messageStop")
        1

    Args:
        answer: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(answer, Turn(pieces=pieces)))


def _content(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the blocks of a turn; the input of a call is its raw text."""
    content: list[JsonObject] = []
    if turn.thinking is not None:
        content.append({"reasoningContent": {"reasoningText": {"text": turn.thinking, "signature": _SIGNATURE}}})
    content += ({"text": text} for text in (turn.text, turn.refusal) if text)
    for made in turn.calls:
        call_id = next(ids) if made.id is UNSET else made.id
        named = {} if call_id is None else {"toolUseId": call_id}
        content.append({"toolUse": {"input": made.arguments, "name": made.name, **named}})
    return content


def _parsed(answer: JsonObject) -> JsonObject:
    """Return an answer with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    message = answer["output"]["message"]
    content = [
        {"toolUse": {**block["toolUse"], "input": _object(block["toolUse"]["input"])}} if "toolUse" in block else block
        for block in message["content"]
    ]
    return {**answer, "output": {"message": {**message, "content": content}}}


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _pieces(answer: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of an answer, in order."""

    def piece(kind: PieceKind, event: str, payload: JsonObject, *, call: int | None = None) -> Piece:
        content = event_frame(event, json_bytes(payload))
        return Piece(kind=kind, content=content, call=call, is_last=call is not None and event == "contentBlockStop")

    yield piece("start", "messageStart", {"role": "assistant", "p": "abcd"})
    call = -1
    for index, block in enumerate(answer["output"]["message"]["content"]):
        call += "toolUse" in block
        kind = _piece_kind(block)
        for event, payload in _block_events(block, turn.pieces):
            position = call if kind == "call" else None
            yield piece(kind, event, {"contentBlockIndex": index, **payload, "p": "ab"}, call=position)
    if turn.error is not None:
        yield Piece(kind="error", content=exception_frame(*aws_exception(turn.status, turn.error)))
        return
    if "stopReason" in answer:
        yield piece("finish", "messageStop", {"stopReason": answer["stopReason"], "p": "abc"})
    if "usage" in answer:
        yield piece("done", "metadata", {"metrics": {"latencyMs": 1}, "usage": answer["usage"], "p": "a"})


def _piece_kind(block: JsonObject) -> PieceKind:
    if "toolUse" in block:
        return "call"
    return "thinking" if "reasoningContent" in block else "text"


def _block_events(block: JsonObject, pieces: int) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a block. Only a call has a start."""
    deltas: list[JsonObject] = []
    match block:
        case {"toolUse": call}:
            yield "contentBlockStart", {"start": {"toolUse": {key: call[key] for key in call if key != "input"}}}
            deltas += ({"toolUse": {"input": part}} for part in ["", *fragments(arguments_text(call["input"]), pieces)])
        case {"reasoningContent": {"reasoningText": thought}}:
            deltas += ({"reasoningContent": {"text": part}} for part in fragments(thought["text"], pieces))
            if "signature" in thought:
                deltas.append({"reasoningContent": {"signature": thought["signature"]}})
        case {"reasoningContent": sealed}:
            deltas.append({"reasoningContent": sealed})
        case {"citationsContent": cited}:
            deltas += ({"text": part} for one in cited["content"] for part in fragments(one["text"], pieces))
            deltas += ({"citation": one} for one in cited["citations"])
        case {"text": text}:
            deltas += ({"text": part} for part in ["", *fragments(text, pieces)])
    yield from (("contentBlockDelta", {"delta": delta}) for delta in deltas)
    yield "contentBlockStop", {}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "cacheReadInputTokens": used.cached_input_tokens,
        "cacheWriteInputTokens": used.cache_written_tokens,
        "inputTokens": used.input_tokens - used.cached_input_tokens - used.cache_written_tokens,
        "outputTokens": used.output_tokens,
        "totalTokens": used.input_tokens + used.output_tokens,
    }
