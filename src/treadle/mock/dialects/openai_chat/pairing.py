"""Pairing in Chat Completions: refuse a history whose calls and results do not match. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing. Another
dialect's checker is another file beside this one.
"""

import json
from collections.abc import Iterable
from typing import Any

from treadle.fields import checked
from treadle.mock.dialects.openai_checks import (
    check_arguments,
    items_of,
    name_of,
    object_of,
    refuse,
    refuse_missing,
    refuse_type,
    refuse_value,
    text_of,
)
from treadle.tools import JsonObject

__all__ = ["check_chat_history"]

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
        treadle.mock.dialects.answers.Refusal: Invalid parameter: messages with role 'tool' must be a response to ...

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
