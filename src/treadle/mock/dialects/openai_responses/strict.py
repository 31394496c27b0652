"""Strict schemas: say what the vendor's strict mode refuses in a schema. Compiles nothing, and shares nothing with what does."""

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["check_strict_schema"]

_KEYWORDS = frozenset({
    *("type", "title", "description", "enum", "const", "properties", "required", "additionalProperties", "items"),
    *("anyOf", "$ref", "$defs", "definitions", "pattern", "format", "multipleOf", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
})  # fmt: skip
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def check_strict_schema(schema: Any) -> str | None:  # Any: JSON of strangers
    """Return the first thing that strict mode refuses, in the vendor's words; None where it takes the schema."""
    return next(_faults(schema, schema, ()), None)


def _faults(schema: Any, root: Any, at: tuple[str, ...]) -> Iterator[str]:
    where = f"In context={json.dumps(at).replace('[', '(').replace(']', ')')}, "
    if not isinstance(schema, dict):
        yield f"{where}schema must be an object."
        return
    yield from (f"{where}'{key}' is not permitted." for key in schema if key not in _KEYWORDS)
    if "$ref" in schema:
        yield from _reference_faults(schema, root, where)
        return
    yield from _keyword_faults(schema, where)
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "object" in kinds:
        yield from _object_faults(schema, where)
    if "array" in kinds and "items" not in schema:
        yield f"{where}array schema missing items."
    for path, below in _below(schema):
        yield from _faults(below, root, (*at, *path))


def _keyword_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        yield f"{where}schema must have a 'type' key."
    if schema.get("format", _FORMATS[0]) not in _FORMATS:
        yield f"{where}'{schema['format']}' is not a valid format."
    if "(?" in str(schema.get("pattern", "")):
        yield f"{where}regex lookaround is not supported."


def _object_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False:
        yield f"{where}'additionalProperties' is required to be supplied and to be false."
    if not isinstance(properties, dict):
        yield f"{where}object schema missing properties."
        return
    message = "'required' is required to be supplied and to be an array including every key in properties."
    if not isinstance(required, list):
        yield f"{where}{message}"
        return
    for name in properties:
        if name not in required:
            yield f"{where}{message} Missing '{name}'."
    for name in required:
        if name not in properties:
            yield f"{where}{message} Extra required key '{name}' supplied."


def _reference_faults(schema: dict[str, Any], root: Any, where: str) -> Iterator[str]:
    if len(schema) > 1:
        yield f"{where}$ref cannot have keywords {sorted(schema.keys() - {'$ref'})}."
    target = schema["$ref"]
    if target == "#":
        return
    _, _, path = str(target).partition("#/")
    found = root
    for step in path.split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None or not str(target).startswith("#/"):
        yield f"{where}reference can only point to definitions of the schema; got '{target}'."


def _below(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key in ("properties", "$defs", "definitions"):
        held = schema.get(key)
        for name, below in held.items() if isinstance(held, dict) else ():
            yield (key, name), below
    for index, below in enumerate(schema["anyOf"] if isinstance(schema.get("anyOf"), list) else ()):
        yield ("anyOf", str(index)), below
    if "items" in schema:
        yield ("items",), schema["items"]
