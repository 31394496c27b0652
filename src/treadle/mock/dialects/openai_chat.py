"""Chat Completions: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Bounds,
    Piece,
    PieceKind,
    check_arguments,
    check_function,
    check_scalars,
    check_strict_schema,
    did_you_mean,
    event_lines,
    finish_name,
    items_of,
    json_bytes,
    name_of,
    object_of,
    openai_error,
    refuse,
    refuse_missing,
    refuse_schema,
    refuse_type,
    refuse_value,
    text_of,
    used_tokens,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["ChatCompletions", "check_chat_history", "check_chat_request"]


# --- Requests in Chat Completions: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere.

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "logprobs")
_NUMBERS: Bounds = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "max_tokens": (1, None),
    "max_completion_tokens": (1, None),
    "n": (1, 128),
    "top_logprobs": (0, 20),
}
_OTHERS = (
    *("model", "messages", "tools", "tool_choice", "stream_options", "response_format", "stop", "seed", "user"),
    *("reasoning_effort", "verbosity", "metadata", "logit_bias", "modalities", "prediction", "audio", "service_tier"),
    *("web_search_options", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_OTHERS))


def check_chat_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    _check_model(body)
    check_scalars(body, flags=_FLAGS, numbers=_NUMBERS)
    _check_stream_options(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_response_format(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key not in _KNOWN:
            hint = did_you_mean(key, _KNOWN)
            refuse(f"Unrecognized request argument supplied: {key}.{hint}", key, "unknown_parameter")
    if "messages" not in body:
        refuse_missing("messages")


def _check_model(body: JsonObject) -> None:
    if "model" not in body or body["model"] == "":
        refuse("you must provide a model parameter", "model")
    if not isinstance(body["model"], str):
        refuse_type("model", "a string", body["model"])


def _check_stream_options(body: JsonObject) -> None:
    options = body.get("stream_options")
    if options is None:
        return
    if body.get("stream") is not True:
        refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if not isinstance(options, dict) or not isinstance(options.get("include_usage"), bool | None):
        refuse_type("stream_options", "an object", options)


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the tools, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        if body.get("parallel_tool_calls") is not None:
            refuse(
                "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
                "parallel_tool_calls",
            )
        return []
    names: list[str] = []
    for index, tool in enumerate(items_of(tools, "tools", most=128)):
        where = f"tools[{index}]"
        name = _tool_name(object_of(tool, where), where)
        if name in names:
            message = f"Invalid 'tools': the function name '{name}' is used by more than one tool."
            refuse(message, f"{where}.function.name", "invalid_value")
        names.append(name)
    return names


def _tool_name(tool: JsonObject, where: str) -> str:
    if "type" not in tool:
        refuse_missing(f"{where}.type")
    if tool["type"] != "function":
        refuse_value(f"{where}.type", json.dumps(tool["type"]), "'function'")
    where = f"{where}.function"
    if not isinstance(tool.get("function"), dict):
        refuse_missing(where)
    name, schema = check_function(tool["function"], where)
    for key, kind in (("properties", dict), ("required", list)):
        if not isinstance(schema.get(key, kind()), kind):
            refuse_schema(name, where, f"{json.dumps(schema[key])} is not of type '{kind.__name__}'.")
    if tool["function"].get("strict") and (fault := check_strict_schema(schema)) is not None:
        refuse_schema(name, where, fault)
    return name


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not names:
        refuse(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", "tool_choice"
        )
    match choice:
        case "none" | "auto" | "required":
            return
        case str():
            refuse_value("tool_choice", f"'{choice}'", "'none', 'auto', and 'required'")
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                refuse(
                    f"Invalid value for 'tool_choice': tool choice 'function.name': '{name}' not found in 'tools' parameter.",
                    "tool_choice",
                )
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": list()}}:
            return
        case _:
            refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function", choice)


def _check_response_format(body: JsonObject) -> None:
    match body.get("response_format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "json_schema": {"name": str(name), "schema": dict() as schema, **more}} if (
            _NAME.fullmatch(name)
        ):
            if more.get("strict") and (fault := check_strict_schema(schema)) is not None:
                message = f"Invalid schema for response_format '{name}': {fault}"
                refuse(message, "response_format.json_schema.schema", "invalid_json_schema")
        case _:
            refuse(
                "Invalid parameter: 'response_format' must be text, json_object, or json_schema with a name and a schema.",
                "response_format",
            )


# --- Pairing in Chat Completions: refuse a history whose calls and results do not match. Repairs nothing.

_ROLES = ("system", "developer", "user", "assistant", "tool")
_CONTENT_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
_PAYLOADS = {
    "text": ("text", str),
    "refusal": ("refusal", str),
    "image_url": ("image_url", dict),
    "input_audio": ("input_audio", dict),
    "file": ("file", dict),
}


@checked
def check_chat_history(messages: Any, *, lenient_arguments: bool = False) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_chat_history([{"role": "user", "content": "go"}])
        >>> check_chat_history([{"role": "tool", "tool_call_id": "c", "content": "ok"}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: Invalid parameter: messages with role 'tool' must be a response to ...

    Args:
        messages: The value of `messages`.
        lenient_arguments: Take arguments that are not valid JSON, as some compatible servers do.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    unanswered: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(items_of(messages, "messages")):
        where = f"messages[{index}]"
        role = _role(object_of(message, where), where)
        if role == "tool":
            _check_result(message, where, unanswered, answered)
            continue
        _check_all_answered(unanswered, where)
        _check_content(message, role, where)
        if role == "assistant":
            unanswered, answered = _call_ids(message, where, lenient_arguments=lenient_arguments), set()
        else:
            unanswered, answered = [], set()
            _forbid_calls(message, role, where)
    _check_all_answered(unanswered, f"messages[{len(messages) - 1}]")


def _role(message: JsonObject, where: str) -> str:
    if "role" not in message:
        refuse_missing(f"{where}.role")
    role = message["role"]
    if not isinstance(role, str) or role not in _ROLES:
        refuse_value(f"{where}.role", json.dumps(role), ", ".join(f"'{word}'" for word in _ROLES))
    return role


def _check_result(message: JsonObject, where: str, unanswered: list[str], answered: set[str]) -> None:
    """Take one tool message off the calls that wait for an answer."""
    if not unanswered and not answered:
        refuse(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            f"{where}.role",
        )
    _check_content(message, "tool", where)
    call_id = text_of(message, "tool_call_id", where)
    if call_id in answered:
        refuse(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call_id}' in {where}.", f"{where}.tool_call_id"
        )
    if call_id not in unanswered:
        refuse(
            f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.",
            f"{where}.tool_call_id",
        )
    unanswered.remove(call_id)
    answered.add(call_id)


def _check_all_answered(unanswered: list[str], where: str) -> None:
    if unanswered:
        refuse(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(unanswered)}",
            f"{where}.role",
        )


def _call_ids(message: JsonObject, where: str, *, lenient_arguments: bool) -> list[str]:
    """Return the ids of an assistant message's calls, each checked."""
    calls = message.get("tool_calls")
    if calls is None:
        return []
    where = f"{where}.tool_calls"
    calls = items_of(calls, where)
    ids = [_call_id(call, f"{where}[{index}]", lenient=lenient_arguments) for index, call in enumerate(calls)]
    for index, call_id in enumerate(ids):
        if call_id in ids[:index]:
            refuse(
                f"Invalid parameter: Duplicate value for 'id' of '{call_id}' in {where}[{index}].",
                f"{where}[{index}].id",
            )
    return ids


def _call_id(call: Any, where: str, *, lenient: bool) -> str:
    call = object_of(call, where)
    call_id = text_of(call, "id", where, longest=40)
    if text_of(call, "type", where) != "function":
        refuse_value(f"{where}.type", f"'{call['type']}'", "'function'")
    where = f"{where}.function"
    if not isinstance(call.get("function"), dict):
        refuse_missing(where)
    name_of(call["function"], where, longest=64)
    check_arguments(call["function"], where, lenient=lenient)
    return call_id


def _check_content(message: JsonObject, role: str, where: str) -> None:
    content = message.get("content")
    where = f"{where}.content"
    match content:
        case str():
            return
        case None if role == "assistant" and any(
            message.get(key) is not None for key in ("tool_calls", "refusal", "audio")
        ):
            return
        case None if "content" not in message and role != "assistant":
            refuse_missing(where)
        case None:
            refuse("Invalid value for 'content': expected a string, got null.", where)
        case list():
            _check_parts(content, _CONTENT_PARTS[role], where)
        case _:
            refuse_type(where, "one of a string or array of objects", content)


def _check_parts(parts: list[Any], kinds: Iterable[str], where: str) -> None:
    for index, part in enumerate(items_of(parts, where)):
        place = f"{where}[{index}]"
        kind = text_of(object_of(part, place), "type", place)
        if kind not in kinds:
            refuse_value(place, f"'{kind}'", " and ".join(f"'{word}'" for word in sorted(kinds)))
        key, kind_of_payload = _PAYLOADS[kind]
        if not isinstance(part.get(key), kind_of_payload):
            refuse_missing(f"{place}.{key}")


def _forbid_calls(message: JsonObject, role: str, where: str) -> None:
    for key in ("tool_calls", "tool_call_id"):
        if message.get(key) is not None:
            refuse(f"Invalid parameter: messages with role '{role}' cannot have '{key}'.", f"{where}.{key}")


# --- Chat Completions: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket.

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
