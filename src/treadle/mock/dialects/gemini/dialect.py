"""Gemini: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind
from treadle.mock.dialects.gemini.pairing import check_gemini_history
from treadle.mock.dialects.gemini.requests import check_gemini_request
from treadle.mock.dialects.rendering import event_lines, json_bytes, used_tokens
from treadle.mock.turns import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["GenerateContent", "gemini_dialects"]

_FINISHES = {Finish.STOP: "STOP", Finish.CALLS: "STOP", Finish.LENGTH: "MAX_TOKENS", Finish.REFUSED: "SAFETY"}
_OLDER = re.compile(r"/(gemini-[12][.-]|gemma-)")
"""The models that want no signatures."""
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GenerateContent:
    """The dialect of `POST /v1beta/models/{model}:generateContent`, and of its streamed sister.

    Like Gemini 3 it gives every call an id, signs the first call of a response, and refuses a history that lost the signature.

    Args:
        is_stream: Whether it is the streamed one: the path says so, not the body.
        signed: Ids of the calls that were signed; both sisters share it.
        wants_signatures: Whether the model wants signatures of calls that others made, too: the path says so.
    """

    def __init__(self, *, is_stream: bool, signed: set[str], wants_signatures: bool = True) -> None:
        self.path = ":streamGenerateContent" if is_stream else ":generateContent"
        self._is_stream = is_stream
        self._signed = signed
        self._wants_signatures = wants_signatures

    def with_head(self, path: str, headers: Mapping[str, str]) -> "GenerateContent":
        wants = _OLDER.search(path) is None
        return GenerateContent(is_stream=self._is_stream, signed=self._signed, wants_signatures=wants)

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_gemini_request(body)
        check_gemini_history(checked.get("contents"), signed=self._signed, wants_signatures=self._wants_signatures)
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        calls = [_call(made.name, made.arguments, next(ids) if made.id is UNSET else made.id) for made in turn.calls]
        if calls and (call_id := calls[0]["functionCall"].get("id")):
            self._signed.add(call_id)
            calls[0]["thoughtSignature"] = base64.b64encode(f"signature of {call_id}".encode()).decode()
        head: JsonObject = {"modelVersion": "mock", "responseId": f"mock-{number}"}
        if turn.usage is not None:
            head["usageMetadata"] = _usage(turn, body)
        if self._is_stream:
            return _streamed(turn, head, calls)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(_whole(turn, head, calls))),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": _error(status, error)})


def gemini_dialects() -> list[GenerateContent]:
    """Return both sisters."""
    signed: set[str] = set()
    return [GenerateContent(is_stream=is_stream, signed=signed) for is_stream in (True, False)]


def _error(status: int, error: str | JsonObject) -> JsonObject:
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    status = status if status >= 400 else 503
    word = _STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    return {
        "code": status,
        "message": "",
        "status": word,
        **(body if isinstance(body, dict) else {"message": body}),
    }


def _whole(turn: Turn, head: JsonObject, calls: list[JsonObject]) -> JsonObject:
    if turn.error is not None:
        return {"error": _error(turn.status, turn.error)}
    texts = [
        *([{"text": turn.thinking, "thought": True}] if turn.thinking else []),
        *({"text": said} for said in (turn.text, turn.refusal) if said),
    ]
    content: JsonObject = {"role": "model", **({"parts": [*texts, *calls]} if texts or calls else {})}
    return {"candidates": [{"content": content, **_finish(turn), "index": 0}], **head}


def _streamed(turn: Turn, head: JsonObject, calls: list[JsonObject]) -> Answer:
    def piece(kind: PieceKind, part: JsonObject, *, call: int | None = None, **ending: Any) -> Piece:
        candidate = {"content": {"role": "model", "parts": [part]}, **ending, "index": 0}
        content = event_lines(json_bytes({"candidates": [candidate], **head}), turn)
        # A call comes whole, in one event.
        return Piece(kind=kind, content=content, call=call, is_last=call is not None)

    pieces = [
        piece("thinking", {"text": part, "thought": True}) for part in fragments(turn.thinking or "", turn.pieces)
    ]
    pieces += (piece("text", {"text": part}) for part in fragments(turn.text or "", turn.pieces))
    pieces += (piece("text", {"text": part}) for part in fragments(turn.refusal or "", turn.pieces))
    pieces += (piece("call", call, call=index) for index, call in enumerate(calls))
    if turn.error is not None:
        event = event_lines(json_bytes({"error": _error(turn.status, turn.error)}), turn)
        pieces.append(Piece(kind="error", content=event))
    else:
        pieces.append(piece("finish", {"text": ""}, **_finish(turn)))
    return Answer(pieces=tuple(pieces), content_type="text/event-stream", is_stream=True)


def _call(name: str, arguments: str, call_id: object) -> JsonObject:
    named = {} if call_id is None else {"id": call_id}
    return {"functionCall": {"name": name, "args": _args(arguments), **named}}


def _args(arguments: str) -> Any:
    """Return the arguments as an object. Broken ones go out as the text that they are: no honest server sends them."""
    try:
        value = json.loads(arguments, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    if len(result := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _finish(turn: Turn) -> JsonObject:
    if turn.finish is None:
        return {}
    finish = finish_of(turn)
    return {"finishReason": _FINISHES[finish] if finish in _FINISHES else str(turn.finish)}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["contents"])
    return {
        "promptTokenCount": used.input_tokens,
        "candidatesTokenCount": used.output_tokens - used.reasoning_tokens,
        "thoughtsTokenCount": used.reasoning_tokens,
        "cachedContentTokenCount": used.cached_input_tokens,
        "totalTokenCount": used.input_tokens + used.output_tokens,
    }
