"""Chat Completions: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind
from treadle.mock.dialects.openai_chat.pairing import check_chat_history
from treadle.mock.dialects.openai_chat.requests import check_chat_request
from treadle.mock.dialects.openai_errors import openai_error
from treadle.mock.dialects.rendering import event_lines, finish_name, json_bytes, used_tokens
from treadle.mock.turns import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["ChatCompletions"]

_CREATED = 1_700_000_000  # one instant for ever: equal scripts give equal bytes
_FINISHES = {Finish.STOP: "stop", Finish.CALLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter"}


class ChatCompletions:
    """The dialect of `POST /v1/chat/completions`.

    Args:
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON.
    """

    path = "/chat/completions"

    def __init__(self, *, lenient_arguments: bool = False) -> None:
        self._lenient_arguments = lenient_arguments

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_chat_request(body)
        check_chat_history(checked["messages"], lenient_arguments=self._lenient_arguments)
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        calls = [_call(made.name, made.arguments, next(ids) if made.id is UNSET else made.id) for made in turn.calls]
        head = {"id": f"chatcmpl-mock-{number}", "created": _CREATED, "model": body["model"]}
        if body.get("stream") is True:
            return _streamed(turn, body, head, calls)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(_whole(turn, body, head, calls))),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": openai_error(status, error, param=param, code=code)})


def _whole(turn: Turn, body: JsonObject, head: JsonObject, calls: list[JsonObject]) -> JsonObject:
    if turn.error is not None:
        return {"error": openai_error(turn.status, turn.error)}
    message: JsonObject = {"role": "assistant", "content": turn.text, "refusal": turn.refusal}
    if turn.thinking is not None:
        message["reasoning_content"] = turn.thinking
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}
    usage = {} if turn.usage is None else {"usage": _usage(turn, body)}
    return {**head, "object": "chat.completion", "choices": [choice], **usage}


def _streamed(turn: Turn, body: JsonObject, head: JsonObject, calls: list[JsonObject]) -> Answer:
    wants_usage = (body.get("stream_options") or {}).get("include_usage") is True
    head = {**head, "object": "chat.completion.chunk", **({"usage": None} if wants_usage else {})}

    def piece(
        kind: PieceKind, delta: JsonObject, *, finish: str | None = None, call: int | None = None, is_last: bool = False
    ) -> Piece:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Piece(
            kind=kind, content=event_lines(json_bytes({**head, "choices": [choice]}), turn), call=call, is_last=is_last
        )

    pieces = [
        piece("start", {"role": "assistant", "content": None if calls and turn.text is None else "", "refusal": None})
    ]
    pieces += (piece("thinking", {"reasoning_content": part}) for part in fragments(turn.thinking or "", turn.pieces))
    pieces += (piece("text", {"content": part}) for part in fragments(turn.text or "", turn.pieces))
    pieces += (piece("text", {"refusal": part}) for part in fragments(turn.refusal or "", turn.pieces))
    pieces += (
        piece("call", {"tool_calls": [part]}, call=part["index"], is_last=is_last)
        for part, is_last in _call_parts(turn, calls)
    )
    if turn.error is not None:
        event = event_lines(json_bytes({"error": openai_error(turn.status, turn.error)}), turn)
        pieces.append(Piece(kind="error", content=event))
        return Answer(pieces=tuple(pieces), content_type="text/event-stream; charset=utf-8", is_stream=True)
    pieces.append(piece("finish", {}, finish=_finish(turn)))
    if turn.usage is not None and (wants_usage or turn.usage is not UNSET):
        event = event_lines(json_bytes({**head, "choices": [], "usage": _usage(turn, body)}), turn)
        pieces.append(Piece(kind="done", content=event))
    pieces.append(Piece(kind="done", content=event_lines(b"[DONE]", turn)))
    return Answer(pieces=tuple(pieces), content_type="text/event-stream; charset=utf-8", is_stream=True)


def _finish(turn: Turn) -> str | None:
    """Return why a turn ended. The vendor's model refuses in a field of its own and ends as with any answer."""
    is_plain_refusal = turn.finish is UNSET and turn.refusal is not None and not turn.calls
    return "stop" if is_plain_refusal else finish_name(turn, _FINISHES)


def _call_parts(turn: Turn, calls: list[JsonObject]) -> Iterable[tuple[JsonObject, bool]]:
    """Yield the deltas of all calls in order of sending, and whether each is the last one of its call."""
    by_call = [list(_deltas_of(index, call, turn.pieces)) for index, call in enumerate(calls)]
    if not turn.interleave:
        order = [(index, place) for index, deltas in enumerate(by_call) for place in range(len(deltas))]
    else:
        longest = max(map(len, by_call), default=0)
        order = [
            (index, place) for place in range(longest) for index, deltas in enumerate(by_call) if place < len(deltas)
        ]
    for index, place in order:
        yield by_call[index][place], place == len(by_call[index]) - 1


def _deltas_of(index: int, call: JsonObject, pieces: int) -> Iterable[JsonObject]:
    function = call["function"]
    yield {"index": index, **call, "function": {"name": function["name"], "arguments": ""}}
    for part in fragments(function["arguments"], pieces):
        yield {"index": index, "function": {"arguments": part}}


def _call(name: str, arguments: str, call_id: object) -> JsonObject:
    named = {} if call_id is None else {"id": call_id}
    return {**named, "type": "function", "function": {"name": name, "arguments": arguments}}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens, "audio_tokens": 0},
    }
