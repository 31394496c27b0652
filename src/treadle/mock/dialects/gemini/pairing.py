"""Pairing in Gemini: refuse contents whose function calls and responses do not match. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from treadle.fields import checked
from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["STAND_IN_SIGNATURES", "check_gemini_history"]

STAND_IN_SIGNATURES = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What the vendor takes in place of a signature."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_ROLES = ("user", "model", "function")
_SNAKE = re.compile(r"_([a-z])")
_PAYLOADS: Mapping[str, type] = {
    "text": str,
    "inlineData": dict,
    "fileData": dict,
    "functionCall": dict,
    "functionResponse": dict,
    "executableCode": dict,
    "codeExecutionResult": dict,
    "toolCall": dict,
    "toolResponse": dict,
}
"""The fields of which a part has exactly one."""
_ASIDES = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_ANYONE = frozenset({"text", "inlineData", "fileData"})
_ALLOWED = {
    "user": _ANYONE | {"functionResponse"},
    "function": frozenset({"functionResponse"}),
    "model": frozenset(_PAYLOADS) - {"functionResponse"},
}
_COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


@checked
def check_gemini_history(
    contents: Any,  # Any: JSON of strangers
    *,
    signed: Collection[str] = (),
    wants_signatures: bool = False,
) -> None:
    """Check the `contents` of one request as the vendor does.

    Example:
        >>> check_gemini_history([{"role": "user", "parts": [{"text": "go"}]}])
        >>> check_gemini_history([])
        Traceback (most recent call last):
        treadle.mock.dialects.answers.Refusal: * GenerateContentRequest.contents: contents is not specified

    Args:
        contents: The value of `contents`.
        signed: Ids of calls that were given with a signature: they must come back with one.
        wants_signatures: Whether the first call of each step since the person last spoke must have a signature, whoever made
            it, as Gemini 3 wants it.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    if contents is None or contents == []:
        _refuse("* GenerateContentRequest.contents: contents is not specified")
    if not isinstance(contents, list):
        _refuse("Invalid value at 'contents' (type.googleapis.com/google.ai.generativelanguage.v1beta.Content)")
    open_calls: list[JsonObject] = []
    previous = ""
    for index, content in enumerate(contents):
        role, parts = _content(content, f"contents[{index}]")
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        _check_turn(calls, responses, open_calls, previous)
        _check_answers(responses, open_calls)
        _check_signatures(parts, signed, f"contents[{index}]")
        open_calls, previous = calls, role
    if previous == "model":
        _refuse("Please ensure that multiturn requests end with a user turn or a function response turn.")
    if wants_signatures:
        _check_open_turn(contents)


def _content(content: Any, where: str) -> tuple[str, list[JsonObject]]:
    if not isinstance(content, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Content)")
    for key in content:
        if key not in ("role", "parts"):
            _refuse(f"Invalid JSON payload received. Unknown name \"{key}\" at '{where}': Cannot find field.")
    role = content.get("role", "user")
    if not isinstance(role, str) or role not in _ROLES:
        _refuse("Please use a valid role: user, model.")
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        _refuse(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
    return role, [_part(part, role, f"{where}.parts[{index}]") for index, part in enumerate(parts)]


def _part(part: Any, role: str, where: str) -> JsonObject:
    """Return one part with its names in camel case, checked by itself."""
    if not isinstance(part, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Part)")
    named = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in part.items()}
    for key in named:
        if key not in _PAYLOADS and key not in _ASIDES:
            _refuse(f"Invalid JSON payload received. Unknown name \"{key}\" at '{where}': Cannot find field.")
    kinds = [key for key in named if key in _PAYLOADS]
    if len(kinds) > 1:
        _refuse(f"Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{kinds[1]}'")
    if not kinds or (named.get("text") == "" and "thoughtSignature" not in named):
        _refuse(f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field")
    kind = kinds[0]
    if not isinstance(named[kind], _PAYLOADS[kind]):
        _refuse(f"Invalid value at '{where}.{kind}' ({_PAYLOADS[kind].__name__}), {json.dumps(named[kind])}")
    if kind not in _ALLOWED[role]:
        _refuse(f"Please use a valid role: a part with {kind} cannot stand in a content of the role {role}.")
    _check_payload(kind, named[kind], f"{where}.{kind}")
    return named


def _check_payload(kind: str, payload: Any, where: str) -> None:
    match kind:
        case "functionCall":
            _check_name(payload, where)
            _check_struct(payload.get("args", {}), f"{where}.args")
        case "functionResponse":
            _check_name(payload, where)
            if "response" not in payload:
                _refuse(f"* GenerateContentRequest.{where}.response: Response cannot be empty.")
            _check_struct(payload["response"], f"{where}.response")
            _check_references(payload["response"], where)
        case "inlineData":
            _check_texts(payload, ("mimeType", "data"), where)
        case "fileData":
            _check_texts(payload, ("fileUri",), where)


def _check_name(payload: JsonObject, where: str) -> None:
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        _refuse(f"* GenerateContentRequest.{where}.name: Name cannot be empty.")
    if not _NAME.fullmatch(name):
        _refuse(
            f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an "
            "underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a "
            "maximum length of 64."
        )
    call_id = payload.get("id", "")
    if not isinstance(call_id, str):
        _refuse(f"Invalid value at '{where}.id' (TYPE_STRING), {json.dumps(call_id)}")


def _check_struct(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.protobuf.Struct), {json.dumps(value)}")


def _check_references(value: Any, where: str) -> None:
    """The vendor reads any `$ref` in a response as the name of one of its files."""
    match value:
        case {"$ref": str(name)}:
            _refuse(f"The referenced name `{name}` in {where}.response does not match to a display_name in parts.")
        case dict():
            for item in value.values():
                _check_references(item, where)
        case list():
            for item in value:
                _check_references(item, where)


def _check_texts(payload: JsonObject, names: tuple[str, ...], where: str) -> None:
    given = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in payload.items()}
    for name in names:
        if not isinstance(given.get(name), str) or not given[name]:
            _refuse(f"* GenerateContentRequest.{where}.{name}: {name} parameter must be a string that is not empty.")


def _check_turn(
    calls: list[JsonObject], responses: list[JsonObject], open_calls: list[JsonObject], previous: str
) -> None:
    if calls and previous not in ("user", "function"):
        _refuse(
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        )
    if responses and not open_calls:
        _refuse("Please ensure that function response turn comes immediately after a function call turn.")
    if len(responses) != len(open_calls):
        _refuse(_COUNTS)
    ids = [call["id"] for call in calls if call.get("id")]
    if len(set(ids)) < len(ids):
        _refuse("Please ensure that function call ids are unique in their turn.")


def _check_answers(responses: list[JsonObject], open_calls: list[JsonObject]) -> None:
    """Match by id where both sides have ids, else by order and name."""
    by_id = {call["id"]: call for call in open_calls if call.get("id")}
    for place, response in enumerate(responses):
        call_id = response.get("id")
        if call_id and call_id not in by_id:
            _refuse(
                f"Please ensure that the id `{call_id}` of a function response is that of an unanswered function call."
            )
        call = by_id.pop(call_id) if call_id else open_calls[place]
        if call["name"] != response["name"]:
            _refuse(
                f"Please ensure that function response `{response['name']}` answers function call `{call['name']}`."
            )


def _check_signatures(parts: list[JsonObject], signed: Collection[str], where: str) -> None:
    """Only the first call of a content is ever signed: an id that comes again behind it means another call."""
    place, part = next(((place, part) for place, part in enumerate(parts) if "functionCall" in part), (0, {}))
    call = part.get("functionCall")
    if call is not None and call.get("id") in signed and not part.get("thoughtSignature"):
        _refuse_unsigned(call, f"position {place} of {where}")


def _check_open_turn(contents: list[Any]) -> None:
    """Only the turn that continues is looked at, and in each of its steps the first call only."""
    for index, content in reversed(list(enumerate(contents))):
        role, parts = _content(content, f"contents[{index}]")
        if role == "user" and any("functionResponse" not in part for part in parts):
            return
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            _refuse_unsigned(first["functionCall"], f"contents[{index}]")


def _refuse_unsigned(call: JsonObject, where: str) -> NoReturn:
    _refuse(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and "
        f"missing thought_signature may lead to degraded model performance. Additional data, function call "
        f"`default_api:{call['name']}`, {where}."
    )


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)
