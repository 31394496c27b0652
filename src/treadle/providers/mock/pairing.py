"""Pairing in Chat Completions: refuse a history whose calls and results do not match. Mends nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing. Another
dialect's checker is another file beside this one.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from treadle.providers.mock.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_chat_history"]

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
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
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
}
"""What the vendor calls each type that JSON can hold."""


def check_chat_history(messages: Any, *, lenient_arguments: bool = False) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_chat_history([{"role": "user", "content": "go"}])
        >>> check_chat_history([{"role": "tool", "tool_call_id": "c", "content": "ok"}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        treadle.providers.mock.answers.Refusal: Invalid parameter: messages with role 'tool' must be a response to ...

    Args:
        messages: The value of `messages`.
        lenient_arguments: Take arguments that are text but no JSON, as some compatible servers do.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    if not isinstance(messages, list):
        _refuse(
            f"Invalid type for 'messages': expected an array of objects, but got {_kind(messages)} instead.",
            "messages",
            "invalid_type",
        )
    if not messages:
        _refuse_empty("messages")
    unanswered: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = _role(message, where)
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


def _role(message: Any, where: str) -> str:
    if not isinstance(message, dict):
        _refuse(
            f"Invalid type for '{where}': expected an object, but got {_kind(message)} instead.", where, "invalid_type"
        )
    if "role" not in message:
        _refuse(f"Missing required parameter: '{where}.role'.", f"{where}.role", "missing_required_parameter")
    role = message["role"]
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(f"'{word}'" for word in _ROLES)
        _refuse(f"Invalid value: {json.dumps(role)}. Supported values are: {known}.", f"{where}.role", "invalid_value")
    return role


def _check_result(message: JsonObject, where: str, unanswered: list[str], answered: set[str]) -> None:
    """Take one tool message off the calls that wait for an answer."""
    if not unanswered and not answered:
        _refuse(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            f"{where}.role",
        )
    _check_content(message, "tool", where)
    call_id = _text_of(message, "tool_call_id", where)
    if call_id in answered:
        _refuse(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call_id}' in {where}.", f"{where}.tool_call_id"
        )
    if call_id not in unanswered:
        _refuse(
            f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.",
            f"{where}.tool_call_id",
        )
    unanswered.remove(call_id)
    answered.add(call_id)


def _check_all_answered(unanswered: list[str], where: str) -> None:
    if unanswered:
        _refuse(
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
    if not isinstance(calls, list):
        _refuse(
            f"Invalid type for '{where}': expected an array of objects, but got {_kind(calls)} instead.",
            where,
            "invalid_type",
        )
    if not calls:
        _refuse_empty(where)
    ids = [_call_id(call, f"{where}[{index}]", lenient_arguments) for index, call in enumerate(calls)]
    for index, call_id in enumerate(ids):
        if call_id in ids[:index]:
            _refuse(
                f"Invalid parameter: Duplicate value for 'id' of '{call_id}' in {where}[{index}].",
                f"{where}[{index}].id",
            )
    return ids


def _call_id(call: Any, where: str, lenient_arguments: bool) -> str:
    if not isinstance(call, dict):
        _refuse(
            f"Invalid type for '{where}': expected an object, but got {_kind(call)} instead.", where, "invalid_type"
        )
    call_id = _text_of(call, "id", where)
    _check_length(call_id, f"{where}.id", 40)
    if _text_of(call, "type", where) != "function":
        _refuse(f"Invalid value: '{call['type']}'. Supported values are: 'function'.", f"{where}.type", "invalid_value")
    function = call.get("function")
    if not isinstance(function, dict):
        _refuse(f"Missing required parameter: '{where}.function'.", f"{where}.function", "missing_required_parameter")
    name = _text_of(function, "name", f"{where}.function")
    _check_length(name, f"{where}.function.name", 64)
    if not _NAME.fullmatch(name):
        _refuse(
            f"Invalid '{where}.function.name': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'.",
            f"{where}.function.name",
            "invalid_value",
        )
    _check_arguments(_text_of(function, "arguments", f"{where}.function"), where, lenient_arguments)
    return call_id


def _check_arguments(arguments: str, where: str, lenient: bool) -> None:
    if not lenient and not _is_json(arguments):
        _refuse(
            f"Invalid '{where}.function.arguments': the string is not valid JSON.",
            f"{where}.function.arguments",
            "invalid_value",
        )


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
            _refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
        case None:
            _refuse("Invalid value for 'content': expected a string, got null.", where)
        case list():
            _check_parts(content, _CONTENT_PARTS[role], where)
        case _:
            _refuse(
                f"Invalid type for '{where}': expected one of a string or array of objects, but got {_kind(content)} instead.",
                where,
                "invalid_type",
            )


def _check_parts(parts: list[Any], kinds: Iterable[str], where: str) -> None:
    if not parts:
        _refuse_empty(where)
    for index, part in enumerate(parts):
        place = f"{where}[{index}]"
        if not isinstance(part, dict):
            _refuse(
                f"Invalid type for '{place}': expected an object, but got {_kind(part)} instead.", place, "invalid_type"
            )
        kind = _text_of(part, "type", place)
        if kind not in kinds:
            known = " and ".join(f"'{word}'" for word in sorted(kinds))
            _refuse(f"Invalid value: '{kind}'. Supported values are: {known}.", place, "invalid_value")
        key, kind_of_payload = _PAYLOADS[kind]
        if not isinstance(part.get(key), kind_of_payload):
            _refuse(f"Missing required parameter: '{place}.{key}'.", f"{place}.{key}", "missing_required_parameter")


def _forbid_calls(message: JsonObject, role: str, where: str) -> None:
    for key in ("tool_calls", "tool_call_id"):
        if message.get(key) is not None:
            _refuse(f"Invalid parameter: messages with role '{role}' cannot have '{key}'.", f"{where}.{key}")


def _text_of(holder: JsonObject, key: str, where: str) -> str:
    """Return a text that must be there and must not be empty."""
    place = f"{where}.{key}"
    value = holder.get(key)
    if value is None:
        _refuse(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")
    if not isinstance(value, str):
        _refuse(
            f"Invalid type for '{place}': expected a string, but got {_kind(value)} instead.", place, "invalid_type"
        )
    if not value:
        _refuse(
            f"Invalid '{place}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
            place,
            "empty_string",
        )
    return value


def _check_length(value: str, where: str, longest: int) -> None:
    if len(value) > longest:
        _refuse(
            f"Invalid '{where}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(value)} instead.",
            where,
            "string_above_max_length",
        )


def _is_json(arguments: str) -> bool:
    try:
        json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _refuse_empty(where: str) -> NoReturn:
    _refuse(
        f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        where,
        "empty_array",
    )


def _refuse(message: str, param: str, code: str | None = None) -> NoReturn:
    raise Refusal(message, param=param, code=code)
