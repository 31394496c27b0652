"""OpenAI's checks: what both of its dialects say of a value that is missing, of another kind, too long or too large.

Knows neither dialect, and shares no code with what writes, compiles or repairs a request.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sized
from typing import Any, NoReturn, TypeAlias

from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = [
    "Bounds",
    "check_arguments",
    "check_function",
    "check_scalars",
    "did_you_mean",
    "items_of",
    "name_of",
    "object_of",
    "refuse",
    "refuse_missing",
    "refuse_schema",
    "refuse_type",
    "refuse_value",
    "text_of",
]

Bounds: TypeAlias = Mapping[str, tuple[float, float | None]]
"""The least and the most that each number may be; None for no limit."""

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_REFUSED_AT_ROOT = frozenset({"oneOf", "anyOf", "allOf", "enum", "not"})
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


# --- values


def object_of(value: Any, where: str) -> JsonObject:
    """Return a value that must be an object."""
    if not isinstance(value, dict):
        refuse_type(where, "an object", value)
    return value


def items_of(value: Any, where: str, *, most: int | None = None) -> list[Any]:
    """Return a list of objects that must not be empty."""
    if not isinstance(value, list):
        refuse_type(where, "an array of objects", value)
    _check_length(value, where, "an array", most)
    return value


def text_of(holder: JsonObject, key: str, where: str, *, longest: int | None = None) -> str:
    """Return a text that must be there and must not be empty."""
    place = f"{where}.{key}"
    value = holder.get(key)
    if value is None:
        refuse_missing(place)
    if not isinstance(value, str):
        refuse_type(place, "a string", value)
    _check_length(value, place, "a string", longest)
    return value


def _check_length(value: Sized, where: str, kind: str, most: int | None) -> None:
    """Refuse what is empty or too long.

    Args:
        kind: `an array` or `a string`.
    """
    noun = kind.split()[1]
    if not value:
        reason = f"Expected {kind} with minimum length 1, but got an empty {noun} instead."
        refuse(f"Invalid '{where}': empty {noun}. {reason}", where, f"empty_{noun}")
    if most is not None and len(value) > most:
        reason = f"Expected {kind} with maximum length {most}, but got {kind} with length {len(value)} instead."
        refuse(f"Invalid '{where}': {noun} too long. {reason}", where, f"{noun}_above_max_length")


def name_of(holder: JsonObject, where: str, *, longest: int) -> str:
    """Return the name of a function."""
    name = text_of(holder, "name", where, longest=longest)
    if not _NAME.fullmatch(name):
        reason = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        refuse(f"Invalid '{where}.name': string does not match pattern. {reason}", f"{where}.name", "invalid_value")
    return name


def check_arguments(holder: JsonObject, where: str, *, lenient: bool) -> None:
    """Check the arguments of a call in the history.

    Args:
        lenient: Take text that is not valid JSON, as some compatible servers do.
    """
    arguments = text_of(holder, "arguments", where)
    if not lenient and not _is_json(arguments):
        place = f"{where}.arguments"
        refuse(f"Invalid '{place}': the string is not valid JSON.", place, "invalid_value")


def check_scalars(body: JsonObject, *, flags: Iterable[str], texts: Iterable[str] = (), numbers: Bounds) -> None:
    """Check the fields of a body that hold a boolean, a text or a number, where they are there."""
    for key in flags:
        if not isinstance(body.get(key), bool | None):
            refuse_type(key, "a boolean", body[key])
    for key in texts:
        if not isinstance(body.get(key), str | None):
            refuse_type(key, "a string", body[key])
    for key, (least, most) in numbers.items():
        value = body.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse_type(key, "a number", value)
        if value < least:
            reason = f"Expected a value >= {least}, but got {value} instead."
            refuse(f"Invalid '{key}': below minimum value. {reason}", key, "below_min_value")
        if most is not None and value > most:
            reason = f"Expected a value <= {most}, but got {value} instead."
            refuse(f"Invalid '{key}': above maximum value. {reason}", key, "above_max_value")


def check_function(function: JsonObject, where: str) -> tuple[str, JsonObject]:
    """Return the name and the schema of a tool's function.

    The vendor lets `parameters` be absent; here that is refused: a tool that forgot its schema looks just like it.
    """
    name = name_of(function, where, longest=64)
    if not isinstance(function.get("description"), str | None):
        refuse_type(f"{where}.description", "a string", function["description"])
    place = f"{where}.parameters"
    if "parameters" not in function:
        refuse_missing(place)
    schema = object_of(function["parameters"], place)
    if schema.get("type") != "object":
        kind = json.dumps(schema.get("type"))
        refuse_schema(name, where, f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'.")
    if schema.keys() & _REFUSED_AT_ROOT:
        reason = "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        refuse_schema(name, where, f"schema must have type 'object' and not have {reason}")
    if not isinstance(function.get("strict"), bool | None):
        refuse_type(f"{where}.strict", "a boolean", function["strict"])
    return name, schema


def did_you_mean(key: str, known: Collection[str]) -> str:
    """Return the vendor's hint at the field that was meant; nothing where none is near."""
    near = difflib.get_close_matches(key, known, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


# --- refusals


def refuse_type(where: str, expected: str, value: Any) -> NoReturn:
    got = _KINDS.get(type(value), f"a {type(value).__name__}")
    refuse(f"Invalid type for '{where}': expected {expected}, but got {got} instead.", where, "invalid_type")


def refuse_missing(where: str) -> NoReturn:
    refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def refuse_value(where: str, shown: str, known: str) -> NoReturn:
    """Refuse a word that is not one of those known; both in quotes already."""
    refuse(f"Invalid value: {shown}. Supported values are: {known}.", where, "invalid_value")


def refuse_schema(name: str, where: str, fault: str) -> NoReturn:
    """Refuse the parameters of a function."""
    refuse(f"Invalid schema for function '{name}': {fault}", f"{where}.parameters", "invalid_function_parameters")


def refuse(message: str, param: str | None, code: str | None = None) -> NoReturn:
    raise Refusal(message, param=param, code=code)


def _is_json(arguments: str) -> bool:
    try:
        json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)
