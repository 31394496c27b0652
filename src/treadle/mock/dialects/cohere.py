"""Cohere's Chat, version 2: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Piece,
    PieceKind,
    Refusal,
    event_lines,
    finish_name,
    json_bytes,
    used_tokens,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["CohereChat", "check_cohere_history", "check_cohere_request", "cohere_events"]


# --- Requests in Cohere's Chat: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere.

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "strict_tools", "logprobs", "raw_prompting", "return_prompt")
_NUMBERS: Mapping[str, tuple[float, float | None]] = {
    "temperature": (0, 1),
    "frequency_penalty": (0, 1),
    "presence_penalty": (0, 1),
    "k": (0, 500),
    "p": (0.01, 0.99),
    "max_tokens": (0, None),
    "seed": (0, 18446744073709551615),
    "priority": (0, 999),
}
_WORDS = {
    "safety_mode": frozenset({"CONTEXTUAL", "STRICT", "OFF", "NONE"}),
    "tool_choice": frozenset({"REQUIRED", "NONE"}),
}
_OTHERS = (
    *("model", "messages", "tools", "documents", "citation_options", "response_format", "stop_sequences", "thinking"),
    "truncation_mode",
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_WORDS, *_OTHERS))
_CITING = frozenset({"ENABLED", "DISABLED", "FAST", "ACCURATE", "OFF"})
_MAX_STRICT_FIELDS = 200


def check_cohere_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("invalid json syntax: the body must be an object")
    for name in body:
        if name not in _KNOWN:
            _unknown(name)
    if not isinstance(body.get("model"), str) or not body["model"]:
        _refuse("a model parameter is required for this endpoint.")
    if "messages" not in body:
        _refuse("invalid request: message must be at least 1 token long or tool results must be specified.")
    _check_scalars(body)
    _check_choices(body)
    _check_tools(body)
    _check_form(body)
    _check_objects(body)
    return body


def _check_scalars(body: JsonObject) -> None:
    for name in _FLAGS:
        if not isinstance(body.get(name), bool | None):
            _wrong_type(name, "bool")
    for name, (least, most) in _NUMBERS.items():
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _wrong_type(name, "number")
        if value < least or (most is not None and value > most):
            _refuse(f"invalid request: {name} must be between {least} and {most} inclusive.")
    if body.get("frequency_penalty") and body.get("presence_penalty"):
        _refuse("invalid request: cannot specify both frequency_penalty and presence_penalty.")


def _check_choices(body: JsonObject) -> None:
    for name, words in _WORDS.items():
        if body.get(name) is not None and body[name] not in words:
            _refuse(f"invalid request: {name} must be one of {', '.join(sorted(words))}")
    stops = body.get("stop_sequences")
    if stops is None:
        return
    if not (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        _wrong_type("stop_sequences", "list of strings")
    if len(stops) > 5:
        _refuse("invalid request: stop_sequences must hold at most 5 strings")


def _check_tools(body: JsonObject) -> None:
    tools = body.get("tools")
    if tools is None:
        if body.get("tool_choice") is not None:
            _refuse("invalid request: tool_choice cannot be specified without tools")
        return
    if not isinstance(tools, list) or not tools:
        _refuse("invalid request: tools must not be empty")
    schemas = [_check_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        _refuse("invalid request: two tools have the same name")
    if body.get("strict_tools"):
        if not all(schema.get("required") for schema in schemas):
            _refuse("invalid request: each tool must have at least one required parameter when strict_tools is enabled")
        if sum(map(_fields, schemas)) > _MAX_STRICT_FIELDS:
            _refuse(f"invalid request: at most {_MAX_STRICT_FIELDS} fields are allowed when strict_tools is enabled")


def _check_tool(tool: Any, where: str) -> JsonObject:
    """Check one tool; return its schema."""
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
        _refuse(f"invalid request: '{where}' must be a function")
    function = tool["function"]
    for name in [*(tool.keys() - {"type", "function"}), *(function.keys() - {"name", "description", "parameters"})]:
        _unknown(name)
    if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
        _refuse(f"invalid request: invalid tool name at '{where}.function.name'")
    if not isinstance(function.get("description"), str | None):
        _wrong_type(f"{where}.function.description", "string")
    schema = function.get("parameters")
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        _refuse(f"invalid request: '{where}.function.parameters' must be a JSON schema of an object with properties")
    return schema


def _check_form(body: JsonObject) -> None:
    form = body.get("response_format")
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") not in ("text", "json_object"):
        _refuse("invalid request: response_format.type must be text or json_object")
    for name in form.keys() - {"type", "json_schema", "schema"}:
        _unknown(name)
    if form["type"] == "json_object" and body.get("documents"):
        _refuse("invalid request: response_format is not supported with RAG.")
    if form["type"] == "json_object" and body.get("tools"):
        _refuse("invalid request: response_format is not supported with tools.")
    schema = form.get("json_schema", form.get("schema"))
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        _refuse("invalid request: the top level type of response_format.json_schema must be object")


def _check_objects(body: JsonObject) -> None:
    thinking = body.get("thinking")
    if thinking is not None and (
        not isinstance(thinking, dict)
        or thinking.get("type") not in ("enabled", "disabled")
        or thinking.keys() - {"type", "token_budget"}
    ):
        _refuse("invalid request: thinking.type must be enabled or disabled")
    citing = body.get("citation_options")
    if citing is not None and (not isinstance(citing, dict) or citing.get("mode") not in _CITING):
        _refuse(f"invalid request: citation_options.mode must be one of {', '.join(sorted(_CITING))}")
    documents = body.get("documents")
    if documents is not None and (not isinstance(documents, list) or not documents):
        _refuse("invalid request: list of documents must not be empty")
    for place, document in enumerate(documents or ()):
        if not isinstance(document, str) and not (isinstance(document, dict) and "data" in document):
            _wrong_type(f"documents[{place}]", "string or an object with data")


def _fields(schema: Any) -> int:
    """Return how many properties a schema declares, at every depth."""
    if isinstance(schema, dict):
        own = schema.get("properties")
        return (len(own) if isinstance(own, dict) else 0) + sum(_fields(one) for one in schema.values())
    return sum(_fields(one) for one in schema) if isinstance(schema, list) else 0


def _unknown(name: str) -> NoReturn:
    message = f"unknown field: parameter '{name}' is not a valid field. For proper usage, please refer to https://docs.cohere.com/v2/reference/chat"
    raise Refusal(message, param=name, status=422)


def _wrong_type(name: str, expected: str) -> NoReturn:
    raise Refusal(f"invalid type: parameter '{name}' should be of type {expected}.", param=name, status=422)


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)


# --- Pairing in Cohere's Chat: refuse a history whose calls and results do not match. Repairs nothing.

_IMAGE = re.compile(r"https?://|data:image/(png|jpeg|webp|gif);base64,")
_FIELDS = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "tool_calls", "tool_plan", "citations"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PARTS = {
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image_url"}),
    "assistant": frozenset({"text", "thinking"}),
    "tool": frozenset({"text", "document"}),
}
_MAX_IMAGES = 20


@checked
def check_cohere_history(messages: Any, *, thinks: bool = True) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_cohere_history([{"role": "user", "content": "go"}])
        >>> check_cohere_history([{"role": "user", "content": ""}])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: message must not be empty in a turn: 'messages[0]'

    Args:
        messages: The value of `messages`.
        thinks: Whether the model may think in this request.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    if not isinstance(messages, list) or not messages:
        _refuse("invalid request: message must be at least 1 token long or tool results must be specified.")
    waiting: list[str] = []
    seen: set[str] = set()
    images = 0
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = _role(message, where)
        if role == "system" and index:
            _refuse("system turn must be the first in the list")
        kinds = _check_content(message, role, where)
        images += kinds.count("image_url")
        if role == "tool":
            _take_result(message, waiting, where)
            continue
        _check_answered(waiting, where)
        if role == "assistant":
            waiting = _check_assistant(message, kinds, seen, where, thinks=thinks)
    _check_answered(waiting, "the end of messages")
    if images > _MAX_IMAGES:
        _refuse(f"invalid request: at most {_MAX_IMAGES} images are allowed in one request - received {images}")


def _role(message: Any, where: str) -> str:
    if not isinstance(message, dict):
        _refuse(f"invalid type: parameter '{where}' is of type {type(message).__name__} but should be of type object.")
    role = message.get("role")
    if not isinstance(role, str) or role not in _FIELDS:
        _refuse(f"invalid request: Invalid role at '{where}'. Role must be one of the following: {', '.join(_FIELDS)}")
    for name in message:
        if name not in _FIELDS[role]:
            _unknown_in_history(f"{where}.{name}")
    return role


def _check_content(message: JsonObject, role: str, where: str) -> list[str]:
    """Check the content of a message; return the kinds of its parts."""
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        return []
    if isinstance(content, str) and content.strip():
        return ["text"]
    if not isinstance(content, list) or not content:
        _refuse(f"message must not be empty in a turn: '{where}'")
    return [_check_part(part, role, f"{where}.content[{place}]") for place, part in enumerate(content)]


def _check_part(part: Any, role: str, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS[role]:
        _refuse(f"invalid request: content of type {json.dumps(kind)} is not supported in a {role} message: '{where}'")
    value = part.get(kind)
    match kind:
        case "text" | "thinking":
            if not isinstance(value, str):
                _missing(f"{where}.{kind}")
        case "image_url":
            _check_image(value, where)
        case "document":
            if not isinstance(value, dict) or not isinstance(value.get("data"), dict | str):
                _missing(f"{where}.document.data")
    for name in part:
        if name not in ("type", kind):
            _unknown_in_history(f"{where}.{name}")
    return kind


def _check_image(value: Any, where: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str) or not value["url"]:
        _missing(f"{where}.image_url.url")
    if not _IMAGE.match(value["url"]):
        _refuse(f"invalid request: the image at '{where}' is neither a URL nor a data URL of png, jpeg, webp or gif")


def _check_assistant(message: JsonObject, kinds: list[str], seen: set[str], where: str, *, thinks: bool) -> list[str]:
    """Check what the model is said to have said; return the ids of its calls."""
    calls = message.get("tool_calls")
    if "thinking" in kinds and not thinks:
        _refuse(f"thinking content is not allowed when thinking is disabled: '{where}'")
    if calls is None:
        return []
    if not isinstance(calls, list) or not calls:
        _refuse(f"invalid request: '{where}.tool_calls' must not be empty")
    for place, part in enumerate(message.get("content") or ()):
        if isinstance(part, str) or (part["type"] == "text" and part["text"]):
            _refuse(
                "text content is not allowed when tool_calls are provided. If you wish to pass a tool plan, either pass "
                f"thinking content (with thinking enabled) or use 'tool_plan': '{where}.content[{place}]'"
            )
    if not isinstance(message.get("tool_plan"), str | None):
        _missing(f"{where}.tool_plan")
    ids = [_call_id(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls)]
    for call_id in ids:
        if call_id in seen:
            _refuse(f"invalid request: the id {call_id!r} is used by more than one tool call: '{where}'")
        seen.add(call_id)
    return ids


def _call_id(call: Any, where: str) -> str:
    if not isinstance(call, dict) or call.get("type") != "function" or not isinstance(call.get("function"), dict):
        _missing(f"{where}.function")
    if not isinstance(call.get("id"), str) or not call["id"]:
        _missing(f"{where}.id")
    function = call["function"]
    if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
        _refuse(f"invalid request: invalid tool name at '{where}.function.name'")
    if not isinstance(function.get("arguments"), str) or not isinstance(_parsed(function["arguments"]), dict):
        _refuse(f"invalid request: the arguments at '{where}.function.arguments' are not a JSON object")
    for name in [*(call.keys() - {"id", "type", "function"}), *(function.keys() - {"name", "arguments"})]:
        _unknown_in_history(f"{where}.{name}")
    return str(call["id"])


def _take_result(message: JsonObject, waiting: list[str], where: str) -> None:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        _missing(f"{where}.tool_call_id")
    if call_id not in waiting:
        _refuse(
            f"invalid request: the tool call id {call_id!r} at '{where}' is not found in the previous assistant message"
        )
    waiting.remove(call_id)


def _check_answered(waiting: list[str], where: str) -> None:
    if waiting:
        _refuse(f"invalid request: tool calls without a tool message before '{where}': {', '.join(waiting)}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _missing(where: str) -> NoReturn:
    _refuse(f"invalid request: '{where}' is required, or of another type")


def _unknown_in_history(where: str) -> NoReturn:
    name = where.rpartition(".")[2]
    message = f"unknown field: parameter '{name}' is not a valid field. For proper usage, please refer to https://docs.cohere.com/v2/reference/chat"
    raise Refusal(message, param=where, status=422)


# --- Cohere's Chat, version 2: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no
# socket.

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
