"""Cohere's Chat, version 2: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind
from treadle.mock.dialects.cohere.pairing import check_cohere_history
from treadle.mock.dialects.cohere.requests import check_cohere_request
from treadle.mock.dialects.rendering import event_lines, finish_name, json_bytes, used_tokens
from treadle.mock.turns import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["CohereChat", "cohere_events"]

_FINISHES = {
    Finish.STOP: "COMPLETE",
    Finish.CALLS: "TOOL_CALL",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.REFUSED: "ERROR_TOXIC",
}


class CohereChat:
    """The dialect of `POST /v2/chat`."""

    path = "/chat"

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_cohere_request(body)
        check_cohere_history(checked["messages"], thinks=(checked.get("thinking") or {}).get("type") != "disabled")
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        whole: JsonObject = {"id": f"mock-{number}", "message": _message(turn, ids)}
        if (finish := finish_name(turn, _FINISHES)) is not None:
            whole["finish_reason"] = finish
        if turn.usage is not None:
            whole["usage"] = _usage(turn, body)
        if body.get("stream") is True:
            return Answer(pieces=tuple(_pieces(whole, turn)), content_type="text/event-stream", is_stream=True)
        said = whole if turn.error is None else _error(turn.error)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(said)),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes(_error(error))


def cohere_events(answer: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says an answer which was sent whole.

    Example:
        >>> cohere_events({"message": {"content": []}, "finish_reason": "COMPLETE"}).count(b"data: ")
        3

    Args:
        answer: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(answer, Turn(pieces=pieces)))


def _message(turn: Turn, ids: Iterator[str]) -> JsonObject:
    """Return the message of a turn. What is said beside calls is their plan."""
    message: JsonObject = {"role": "assistant"}
    said = [text for text in (turn.text, turn.refusal) if text]
    content = [{"type": "thinking", "thinking": turn.thinking}] if turn.thinking is not None else []
    if turn.calls:
        message |= {"tool_plan": "".join(said)} if said else {}
        message["tool_calls"] = [
            _call(made.name, made.arguments, next(ids) if made.id is UNSET else made.id) for made in turn.calls
        ]
    else:
        content += ({"type": "text", "text": text} for text in said)
    return {**message, **({"content": content} if content else {})}


def _call(name: str, arguments: str, call_id: object) -> JsonObject:
    named = {} if call_id is None else {"id": call_id}
    return {**named, "type": "function", "function": {"name": name, "arguments": arguments}}


def _pieces(answer: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of an answer, in order."""

    def piece(kind: PieceKind, event: str, payload: JsonObject, *, call: int | None = None) -> Piece:
        content = event_lines(json_bytes({"type": event, **payload}), turn, kind=event)
        return Piece(kind=kind, content=content, call=call, is_last=event == "tool-call-end")

    message = answer["message"]
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield piece("start", "message-start", {"id": answer.get("id", "mock"), **_delta(empty)})
    for part in fragments(message.get("tool_plan") or "", turn.pieces):
        yield piece("text", "tool-plan-delta", _delta({"tool_plan": part}))
    cited = list(enumerate(message.get("citations") or ()))
    for index, block in enumerate(message.get("content") or ()):
        kind: PieceKind = "thinking" if block["type"] == "thinking" else "text"
        about = [(place, one) for place, one in cited if one.get("content_index", 0) == index]
        for event, payload in _block_events(block, about, turn.pieces):
            yield piece(kind, event, {"index": index, **payload})
    for index, call in enumerate(message.get("tool_calls") or ()):
        for event, payload in _call_events(call, turn.pieces):
            yield piece("call", event, {"index": index, **payload}, call=index)
    if turn.error is not None:
        yield Piece(kind="error", content=event_lines(json_bytes(_error(turn.error)), turn))
        return
    end = {name: answer[name] for name in ("finish_reason", "usage") if name in answer}
    if "finish_reason" in end:
        yield piece("finish", "message-end", {"delta": end})
    yield Piece(kind="done", content=event_lines(b"[DONE]", turn))


def _delta(message: JsonObject) -> JsonObject:
    return {"delta": {"message": message}}


def _block_events(
    block: JsonObject, cited: list[tuple[int, JsonObject]], pieces: int
) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a block. What its text cites is said before its end, under an index of its own."""
    kind = block["type"]
    if kind not in ("text", "thinking"):
        yield "content-start", _delta({"content": block})
    else:
        yield "content-start", _delta({"content": {"type": kind, kind: ""}})
        for part in fragments(block[kind], pieces):
            yield "content-delta", _delta({"content": {kind: part}})
    for place, one in cited:
        yield "citation-start", {"index": place, **_delta({"citations": one})}
        yield "citation-end", {"index": place}
    yield "content-end", {}


def _call_events(call: JsonObject, pieces: int) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a call. One without arguments has no piece of them."""
    function = call["function"]
    arguments = "" if function["arguments"].strip() == "{}" else function["arguments"]
    yield "tool-call-start", _delta({"tool_calls": {**call, "function": {"name": function["name"], "arguments": ""}}})
    for part in fragments(arguments, pieces):
        yield "tool-call-delta", _delta({"tool_calls": {"function": {"arguments": part}}})
    yield "tool-call-end", {}


def _error(error: str | JsonObject) -> JsonObject:
    """Return the vendor's error: a message beside an id, or the object as it stands."""
    said = {"message": error} if isinstance(error, str) else error.get("error", error)
    return {"id": "mock", "message": "", **(said if isinstance(said, dict) else {"message": said})}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    """Return what was used. What is charged for is less: the vendor's own words around a prompt are free."""
    used = used_tokens(turn, body["messages"])
    thought = {"reasoning_tokens": used.reasoning_tokens} if used.reasoning_tokens else {}
    return {
        "billed_units": {
            "input_tokens": max(used.input_tokens - 1, 0),
            "output_tokens": max(used.output_tokens - 1, 0),
        },
        "tokens": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, **thought},
        "cached_tokens": used.cached_input_tokens,
    }
