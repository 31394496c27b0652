"""Anthropic's JSON Schema: a tool's schema in the words that the vendor takes. Checks nothing: the gate enforces the original.

Any schema of an object is taken as it is, but for its top: it must say `object`, and may not be a choice of several. A strict tool
constrains what the model can write at all, and takes a closed subset; whatever that subset cannot say goes into the description.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.tools import JsonObject
from treadle.validation.references import resolved

__all__ = ["StrictLimits", "input_schema", "strict_schema"]

_CHOICES = ("allOf", "anyOf", "oneOf")

_COPIED = frozenset({"const", "description", "title", "type"})
_TOLD = frozenset(
    {
        *("exclusiveMaximum", "exclusiveMinimum", "format", "maximum", "minimum", "multipleOf"),
        *("maxItems", "maxLength", "minItems", "minLength", "pattern", "uniqueItems"),
    }
)
"""Limits that the gate enforces anyway."""
_CLOSING = frozenset({"$defs", "additionalProperties", "properties", "required"})
"""What makes an object, written together."""
_IGNORED = frozenset({"$comment", "$id", "$schema", "default", "deprecated", "discriminator", "examples"})
_FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"},
)


class _NotStrict(Exception):
    """The schema says something that a strict tool cannot."""


class StrictLimits:
    """Counts what the vendor limits in the strict tools of one request: tools, optional parameters, and parameters of several types.

    The limits are those of platform.claude.com/docs/en/build-with-claude/structured-outputs ("Schema complexity limits").
    """

    def __init__(self) -> None:
        self._left: tuple[int, ...] = (20, 24, 16)

    def take(self, schema: JsonObject) -> bool:
        """Return whether a tool of this strict schema still fits, and count it if so."""
        left = tuple(most - used for most, used in zip(self._left, (1, *_counted(schema)), strict=True))
        if min(left) < 0:
            return False
        self._left = left
        return True


def _counted(schema: Any) -> tuple[int, int]:
    """Return how many optional parameters a schema has, and how many of several types, at every depth."""
    optional = unions = 0
    if isinstance(schema, Mapping):
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, Mapping):
            optional = len(properties.keys() - set(required if isinstance(required, list) else ()))
        unions = int("anyOf" in schema or isinstance(schema.get("type"), list))
    inner = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for one in inner:
        more = _counted(one)
        optional, unions = optional + more[0], unions + more[1]
    return optional, unions


def input_schema(schema: JsonObject) -> JsonObject:
    """Return the schema with a top that the vendor takes: an object whose properties stand open."""
    top = _opened(schema, schema)
    choices = [word for word in _CHOICES if isinstance(top.get(word), list)]
    if not choices:
        return {**top, "type": "object"}
    properties: JsonObject = {}
    for word in choices:
        for one in top[word]:
            properties |= _properties(_opened(one, schema))
    written = {word: value for word, value in top.items() if word not in choices}
    return {**written, "type": "object", "properties": {**properties, **_properties(top)}}


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """Return the schema in the strict subset, or None where it cannot be said there.

    What fits the strict schema fits the original, but for limits such as `maximum`: those are stated in the description.
    """
    if any(word in schema for word in _CHOICES):
        return None
    top = {**_opened(schema, schema), "type": "object"}
    try:
        written = _node(top, is_top=True)
        if definitions := schema.get("$defs"):
            written["$defs"] = {name: _node(one) for name, one in dict(definitions).items()}
        _check_references(written)
    except (
        _NotStrict,
        TypeError,
        RecursionError,
    ):  # a TypeError: what should be a list is not a list, and the gate says so
        return None
    return written


def _opened(schema: Any, root: JsonObject) -> JsonObject:
    """Return a schema whose top is not a reference."""
    top = resolved(schema, root)
    kept = {"$defs": root["$defs"]} if "$defs" in root and schema is root else {}
    return {word: value for word, value in {**top, **kept}.items() if word != "$ref"}


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _node(schema: Any, *, is_top: bool = False) -> JsonObject:
    if not isinstance(schema, dict):
        raise _NotStrict
    if "$ref" in schema:
        return _reference(schema["$ref"])
    written: JsonObject = {}
    described: JsonObject = {}
    for word, value in schema.items():
        if word in _TOLD and not _is_taken(word, value):
            described[word] = value
        elif word not in _IGNORED and word not in _CLOSING:
            written |= _word(word, value)
    if "object" in _types(schema):
        written |= _closed(schema, is_top=is_top)
    return _with_told(written, described)


def _word(word: str, value: Any) -> JsonObject:
    match word:
        case "anyOf" | "oneOf":
            return {"anyOf": [_node(one) for one in value]}
        case "items":
            return {"items": _node(value)}
        case "enum" if not any(isinstance(one, dict | list) for one in value):
            return {"enum": value}
        case _ if word in _COPIED or word in _TOLD:
            return {word: value}
        case _:
            raise _NotStrict


def _is_taken(word: str, value: Any) -> bool:
    """Whether the strict subset has this limit after all."""
    return (word == "format" and value in _FORMATS) or (word == "minItems" and value in (0, 1))


def _closed(schema: JsonObject, *, is_top: bool) -> JsonObject:
    """Return an object without further properties. One that is meant to be open cannot be strict."""
    properties = _properties(schema)
    if schema.get("additionalProperties", False) is not False or not (properties or is_top):
        raise _NotStrict
    return {
        "properties": {name: _node(one) for name, one in properties.items()},
        "required": [name for name in schema.get("required", ()) if name in properties],
        "additionalProperties": False,
    }


def _types(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    found = schema.get("type", "object" if "properties" in schema else ())
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def _reference(target: Any) -> JsonObject:
    if not isinstance(target, str) or not target.startswith("#/$defs/"):
        raise _NotStrict
    return {"$ref": target}


def _with_told(written: JsonObject, described: JsonObject) -> JsonObject:
    if not described:
        return written
    text = ", ".join(f"{word}: {msgspec.json.encode(described[word]).decode()}" for word in sorted(described))
    said = written.get("description")
    return {**written, "description": f"{said} ({text})" if said else f"({text})"}


def _check_references(schema: JsonObject) -> None:
    """Refuse definitions that are missing or contain themselves: the vendor compiles a grammar without recursion."""
    definitions = schema.get("$defs", {})
    reached = {name: _references(one) for name, one in definitions.items()}
    if not _references(schema) <= definitions.keys():
        raise _NotStrict
    for name, nearest in reached.items():
        waiting, seen = set(nearest), set[str]()
        while waiting:
            current = waiting.pop()
            seen.add(current)
            waiting |= reached[current] - seen
        if name in seen:
            raise _NotStrict


def _references(schema: Any) -> set[str]:
    """Return the names of the definitions that a written schema refers to."""
    match schema:
        case {"$ref": str(target)}:
            return {target.removeprefix("#/$defs/")}
        case dict():
            return set[str]().union(*map(_references, schema.values()))
        case list():
            return set[str]().union(*map(_references, schema))
        case _:
            return set()
