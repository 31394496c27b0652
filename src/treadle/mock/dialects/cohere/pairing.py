"""Pairing in Cohere's Chat: refuse a history whose calls and results do not match. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing.
"""

import json
import re
from typing import Any, NoReturn

from treadle.fields import checked
from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_cohere_history"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
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
        treadle.mock.dialects.answers.Refusal: message must not be empty in a turn: 'messages[0]'

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
            _unknown(f"{where}.{name}")
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
            _unknown(f"{where}.{name}")
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
        _unknown(f"{where}.{name}")
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


def _unknown(where: str) -> NoReturn:
    name = where.rpartition(".")[2]
    message = f"unknown field: parameter '{name}' is not a valid field. For proper usage, please refer to https://docs.cohere.com/v2/reference/chat"
    raise Refusal(message, param=where, status=422)


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)
