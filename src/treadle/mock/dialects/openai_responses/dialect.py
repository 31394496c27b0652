"""Responses: how the dialect says a turn, streamed or whole, and what its server keeps. Knows no fault of the wire and no socket."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import UNSET

from treadle.messages import Finish
from treadle.mock.dialects.answers import Answer, Piece, PieceKind, Refusal
from treadle.mock.dialects.openai_errors import openai_error
from treadle.mock.dialects.openai_responses.pairing import Kept, check_responses_history
from treadle.mock.dialects.openai_responses.requests import check_responses_request
from treadle.mock.dialects.rendering import event_lines, json_bytes, used_tokens
from treadle.mock.turns import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["Responses"]

_CREATED = 1_700_000_000  # one instant for ever: equal scripts give equal bytes
_ENCRYPTED = "reasoning.encrypted_content"
_CUTS = {Finish.LENGTH: "max_output_tokens", Finish.REFUSED: "content_filter"}


class _Said(NamedTuple):
    """One event before it has its number."""

    piece: PieceKind
    value: JsonObject
    call: int | None = None
    is_last: bool = False


class Responses:
    """The dialect of `POST /v1/responses`.

    A response is kept unless the request says `store: false`, as the vendor does, so that `previous_response_id` works.

    Args:
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON.
    """

    path = "/responses"

    def __init__(self, *, lenient_arguments: bool = False) -> None:
        self._lenient_arguments = lenient_arguments
        self._kept: dict[str, Kept] = {}
        self._links: dict[str, str] = {}

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_responses_request(body)
        check_responses_history(
            checked["input"],
            before=self._before(checked),
            links=self._links,
            lenient_arguments=self._lenient_arguments,
        )
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        calls = [next(ids) if made.id is UNSET else made.id for made in turn.calls]
        items = list(_items(turn, body, calls, number=number))
        response = _response(turn, body, items, number=number)
        self._remember(response, items)
        if body.get("stream") is True:
            content_type = "text/event-stream; charset=utf-8"
            pieces = _streamed(turn, response, items, calls_at=len(items) - len(calls))
            return Answer(pieces=tuple(pieces), content_type=content_type, is_stream=True)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(response)),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": openai_error(status, error, param=param, code=code)})

    def _before(self, body: JsonObject) -> Kept:
        previous = body.get("previous_response_id")
        if previous is None:
            return Kept()
        if previous not in self._kept:
            raise Refusal(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return self._kept[previous]

    def _remember(self, response: JsonObject, items: list[JsonObject]) -> None:
        """Keep what later requests may refer to: the response itself, and which item needs which reasoning before it."""
        for item, following in itertools.pairwise(items):
            if item["type"] == "reasoning":
                self._links[following["id"]] = item["id"]
        if response["store"]:
            open_calls = tuple(
                item["call_id"] for item in items if item["type"] == "function_call" and item.get("call_id")
            )
            self._kept[response["id"]] = Kept(open_calls=open_calls, item_ids=frozenset(item["id"] for item in items))


def _items(turn: Turn, body: JsonObject, calls: list[Any], *, number: int) -> Iterator[JsonObject]:
    """Yield the output items that say the turn; the last one is cut where the turn is."""
    if turn.thinking is not None:
        seal = {"encrypted_content": f"gAAAA-mock-{number}"} if _ENCRYPTED in (body.get("include") or ()) else {}
        summary = [{"type": "summary_text", "text": turn.thinking}]
        yield {"id": f"rs_mock_{number}", "type": "reasoning", "summary": summary, **seal}
    status = "incomplete" if _cut_reason(turn) else "completed"
    is_last = not turn.calls
    if turn.text is not None or turn.refusal is not None or (is_last and turn.thinking is None):
        yield {
            "id": f"msg_mock_{number}",
            "type": "message",
            "status": status if is_last else "completed",
            "role": "assistant",
            "content": [*_content(turn)],
        }
    for index, (made, call_id) in enumerate(zip(turn.calls, calls, strict=True)):
        yield {
            "id": f"fc_mock_{number}_{index}",
            "type": "function_call",
            "status": status if index == len(calls) - 1 else "completed",
            "arguments": made.arguments,
            **({} if call_id is None else {"call_id": call_id}),
            "name": made.name,
        }


def _content(turn: Turn) -> Iterator[JsonObject]:
    if turn.text is not None or turn.refusal is None:
        yield {"type": "output_text", "annotations": [], "logprobs": [], "text": turn.text or ""}
    if turn.refusal is not None:
        yield {"type": "refusal", "refusal": turn.refusal}


def _cut_reason(turn: Turn) -> str | None:
    """Return why the vendor calls the response incomplete. A refusal in words is a whole response."""
    if turn.refusal is not None and turn.finish is UNSET:
        return None
    return _CUTS.get(finish_of(turn))


def _response(turn: Turn, body: JsonObject, items: list[JsonObject], *, number: int) -> JsonObject:
    reason = _cut_reason(turn)
    error = None if turn.error is None else _failure(turn)
    return {
        "id": f"resp_mock_{number}",
        "object": "response",
        "created_at": _CREATED,
        "status": _status(turn, reason),
        "error": error,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": body.get("instructions"),
        "model": body["model"],
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "usage": None if turn.usage is None else _usage(turn, body),
    }


def _status(turn: Turn, reason: str | None) -> str | None:
    if turn.error is not None:
        return "failed"
    if turn.finish is None:
        return None
    return "incomplete" if reason else "completed"


def _failure(turn: Turn) -> JsonObject:
    """Return the error of a failed response: a code and a message, nothing else."""
    error = openai_error(turn.status, turn.error)
    return {"code": error["code"] or "server_error", "message": error["message"]}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["input"])
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_input_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


# --- the stream ------------------------------------------------------------------------------------------------------


def _streamed(turn: Turn, response: JsonObject, items: list[JsonObject], *, calls_at: int) -> Iterator[Piece]:
    for number, said in enumerate(_events(turn, response, items, calls_at)):
        value = {**said.value, "sequence_number": number}
        content = event_lines(json_bytes(value), turn, kind=value["type"])
        yield Piece(kind=said.piece, content=content, call=said.call, is_last=said.is_last)


def _events(turn: Turn, response: JsonObject, items: list[JsonObject], calls_at: int) -> Iterator[_Said]:
    begun = {
        **response,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "output": [],
        "usage": None,
    }
    yield _Said("start", {"type": "response.created", "response": begun})
    yield _Said("start", {"type": "response.in_progress", "response": begun})
    for index, item in enumerate(items[:calls_at]):
        yield from _reasoning(index, item, turn) if item["type"] == "reasoning" else _message(index, item, turn)
    yield from _in_turns([list(_call(calls_at + at, item, at, turn)) for at, item in enumerate(items[calls_at:])], turn)
    if turn.error is not None:
        yield _Said("error", {"type": "error", **_failure(turn), "param": None})
    elif turn.finish is not None:
        yield _Said("finish", {"type": f"response.{response['status']}", "response": response})


def _reasoning(index: int, item: JsonObject, turn: Turn) -> Iterator[_Said]:
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    text = item["summary"][0]["text"]
    yield _Said("thinking", _added(index, {**item, "summary": []}))
    yield _Said("thinking", {"type": "response.reasoning_summary_part.added", **place, "part": _summary("")})
    for part in fragments(text, turn.pieces):
        yield _Said("thinking", {"type": "response.reasoning_summary_text.delta", **place, "delta": part})
    yield _Said("thinking", {"type": "response.reasoning_summary_text.done", **place, "text": text})
    yield _Said("thinking", {"type": "response.reasoning_summary_part.done", **place, "part": _summary(text)})
    yield _Said("thinking", _done(index, item))


def _message(index: int, item: JsonObject, turn: Turn) -> Iterator[_Said]:
    # The vendor counts every event around a text as its own; for a cut in the middle of it only its fragments count.
    yield _Said("start", _added(index, {**item, "status": "in_progress", "content": []}))
    for at, part in enumerate(item["content"]):
        place = {"item_id": item["id"], "output_index": index, "content_index": at}
        kind, key = ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
        yield _Said("start", {"type": "response.content_part.added", **place, "part": {**part, key: ""}})
        for delta in fragments(part[key], turn.pieces):
            yield _Said("text", {"type": f"response.{kind}.delta", **place, "delta": delta})
        yield _Said("start", {"type": f"response.{kind}.done", **place, key: part[key]})
        yield _Said("start", {"type": "response.content_part.done", **place, "part": part})
    yield _Said("start", _done(index, item))


def _call(index: int, item: JsonObject, call: int, turn: Turn) -> Iterator[_Said]:
    place = {"item_id": item["id"], "output_index": index}
    yield _Said("call", _added(index, {**item, "status": "in_progress", "arguments": ""}), call)
    for part in fragments(item["arguments"], turn.pieces):
        yield _Said("call", {"type": "response.function_call_arguments.delta", **place, "delta": part}, call)
    if item["status"] == "completed":
        whole = {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        yield _Said("call", whole, call)
    yield _Said("call", _done(index, item), call, is_last=True)


def _in_turns(by_call: list[list[_Said]], turn: Turn) -> Iterable[_Said]:
    if not turn.interleave:
        return (said for own in by_call for said in own)
    longest = max(map(len, by_call), default=0)
    return (own[place] for place in range(longest) for own in by_call if place < len(own))


def _added(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}
