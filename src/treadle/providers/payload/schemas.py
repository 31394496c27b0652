"""Schemas: a tool's schema as vendors take it: an object at its root, strict where it can be. Knows no dialect, checks no value."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.errors import InvalidArguments
from treadle.ports import ToolSpec
from treadle.providers.payload.encoded import to_json
from treadle.tools import JsonObject
from treadle.validation import NotJson, parse_arguments

__all__ = ["nullable_schemas", "object_schema", "strict_schema", "with_schema", "without_absent"]

_REFUSED_AT_ROOT = frozenset({"oneOf", "anyOf", "allOf", "enum", "not", "$ref"})
_BRANCHES = ("oneOf", "anyOf", "allOf")

_DROPPED = frozenset({"default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"})
"""Notes that strict mode does not permit and that no value depends on."""
_KEPT = frozenset({
    *("type", "title", "description", "enum", "const", "pattern", "format", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "definitions"),
})  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_MAX_DEPTH = 10
_MAX_PROPERTIES = 5_000
_MAX_ENUM_VALUES = 1_000
_MAX_CHARS = 120_000


class _NotStrict(Exception):
    """The schema says something that strict mode cannot."""


def object_schema(schema: Mapping[str, Any]) -> JsonObject:
    """Return the schema with an object at its root, which vendors want of every tool.

    A root of alternatives becomes one object with the properties of all of them: the model sees each, and the runtime still
    checks which belong together.
    """
    root = _followed(schema)
    if root.get("type") == "object" and not _REFUSED_AT_ROOT & root.keys():
        return dict(root)
    properties: JsonObject = {}
    for branch in _branches(root, schema):
        properties |= branch.get("properties") or {}
    properties |= root.get("properties") or {}
    kept = {key: value for key, value in root.items() if key not in _REFUSED_AT_ROOT}
    return {**kept, "type": "object", "properties": properties}


def with_schema(instructions: str, schema: Mapping[str, Any] | None) -> str:
    """Return instructions that also ask for an answer of a schema, for where the vendor takes no form of answer; None for any answer."""
    if schema is None:
        return instructions
    written = to_json(schema).decode()
    instruction = (
        f"When you are done, answer with one JSON value and nothing else. It must fit this JSON Schema: {written}"
    )
    return f"{instructions}\n\n{instruction}".lstrip()


def strict_schema(schema: Mapping[str, Any], *, nullable: bool = False) -> JsonObject | None:
    """Return the schema as strict mode takes it, or None where that would change what it accepts.

    Strict mode wants every property required and no other ones, and knows few keywords.

    Args:
        nullable: Whether an optional property may become one that can be null. `without_absent` takes these nulls out again.
            Otherwise a schema with optional properties has no strict form.
    """
    compiler = _Strict(schema, nullable=nullable)
    try:
        return compiler.node(schema, depth=0)
    except _NotStrict:
        return None


def nullable_schemas(tools: Iterable[ToolSpec]) -> dict[str, JsonObject]:
    """Return the schemas of those tools whose optional properties can be null in the strict form, by the tools' names."""
    schemas = {spec.name: object_schema(spec.parameters) for spec in tools}
    return {name: schema for name, schema in schemas.items() if _has_nulls(schema)}


def _has_nulls(schema: Mapping[str, Any]) -> bool:
    return strict_schema(schema) is None and strict_schema(schema, nullable=True) is not None


def without_absent(arguments: str, schema: Mapping[str, Any]) -> str:
    """Return a call's arguments without the nulls that stand for absent properties in the strict form of this schema.

    Arguments without such a null, and arguments that are not valid JSON, are returned as they are.
    """
    if "null" not in arguments:
        return arguments
    try:
        value = parse_arguments(arguments)
    except (NotJson, InvalidArguments):
        return arguments
    pruned = _pruned(value, schema, schema)
    return arguments if pruned == value else json.dumps(pruned, ensure_ascii=False)


def _pruned(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    schema = _resolved(schema, root)
    if isinstance(value, list):
        return [_pruned(item, schema.get("items"), root) for item in value]
    if not isinstance(value, dict):
        return value
    branches = [_resolved(branch, root) for branch in schema.get("anyOf", ())]
    fitting = (branch for branch in branches if value.keys() <= branch.get("properties", {}).keys())
    chosen = schema if "properties" in schema else next(fitting, schema)
    properties, required = chosen.get("properties", {}), chosen.get("required", ())
    return {
        name: _pruned(item, properties.get(name), root)
        for name, item in value.items()
        if item is not None or name not in properties or name in required or _admits_null(properties[name], root)
    }


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    return _found(schema.get("$ref"), root) or schema


def _admits_null(schema: Any, root: Mapping[str, Any]) -> bool:
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        return any(_admits_null(branch, root) for branch in schema["anyOf"])
    if "enum" in schema:
        return None in schema["enum"]
    if "const" in schema:
        return schema["const"] is None
    return "null" in _types(schema) or "type" not in schema


class _Strict:
    """Writes the strict form of one schema, and counts what the vendor limits."""

    def __init__(self, root: Mapping[str, Any], *, nullable: bool) -> None:
        self._root = root
        self._nullable = nullable
        self._properties = 0
        self._enum_values = 0
        self._chars = 0

    def node(self, schema: Any, *, depth: int) -> JsonObject:
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or schema.keys() - _KEPT - _DROPPED:
            raise _NotStrict
        if "$ref" in schema and depth > 0:
            return self._reference(schema)
        written = {key: value for key, value in schema.items() if key in _KEPT}
        self._count(written)
        _check_words(written)
        for key in ("$defs", "definitions"):
            if key in written:
                written[key] = self._each(written[key], depth=depth)
        if "anyOf" in written:
            written["anyOf"] = [self.node(branch, depth=depth + 1) for branch in _listed(written["anyOf"])]
        if "items" in written or "array" in _types(written):
            written["items"] = self.node(written.get("items"), depth=depth + 1)
        if "properties" in written or "object" in _types(written):
            self._close(written, depth=depth)
        return written

    def _close(self, written: JsonObject, *, depth: int) -> None:
        """Close an object. Below the root, one without properties is a free map, which strict mode does not have."""
        properties = written.get("properties", {} if depth == 0 else None)
        written["properties"] = self._each(properties, depth=depth)
        self._properties += len(properties or ())
        is_open = written.get("additionalProperties", False) is not False
        if is_open or "object" not in _types(written) or self._properties > _MAX_PROPERTIES:
            raise _NotStrict
        for name in written["properties"].keys() - set(_listed(written.get("required", []))):
            written["properties"][name] = self._optional(written["properties"][name], (properties or {})[name])
        written["required"] = list(written["properties"])
        written["additionalProperties"] = False

    def _optional(self, written: JsonObject, schema: Mapping[str, Any]) -> JsonObject:
        """Return an optional property as one that can be null. Where null has a meaning of its own, nothing can say "absent"."""
        if not self._nullable:
            raise _NotStrict
        if not _admits_null(schema, self._root):
            return {"anyOf": [written, {"type": "null"}]}
        if schema.get("default") is not None or "default" not in schema:
            raise _NotStrict
        return written

    def _each(self, schemas: Any, *, depth: int) -> JsonObject:
        if not isinstance(schemas, Mapping):
            raise _NotStrict
        self._chars += sum(map(len, schemas))
        return {name: self.node(schema, depth=depth + 1) for name, schema in schemas.items()}

    def _reference(self, schema: Mapping[str, Any]) -> JsonObject:
        """Return a reference alone: strict mode permits no word beside it."""
        if schema.keys() - _DROPPED - {"$ref", "title", "description"} or _found(schema["$ref"], self._root) is None:
            raise _NotStrict
        return {"$ref": schema["$ref"]}

    def _count(self, written: Mapping[str, Any]) -> None:
        values = _listed(written.get("enum", []))
        self._enum_values += len(values)
        self._chars += sum(len(value) for value in (*values, written.get("const")) if isinstance(value, str))
        if self._enum_values > _MAX_ENUM_VALUES or self._chars > _MAX_CHARS:
            raise _NotStrict


def _check_words(written: Mapping[str, Any]) -> None:
    """Refuse a schema that says nothing of the type, a format that strict mode does not know, and look-around in patterns."""
    if not written.keys() & {"type", "anyOf", "enum", "const"}:
        raise _NotStrict
    if written.get("format", "date") not in _FORMATS or "(?" in str(written.get("pattern", "")):
        raise _NotStrict


def _types(schema: Mapping[str, Any]) -> list[Any]:
    types = schema.get("type", [])
    return types if isinstance(types, list) else [types]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NotStrict
    return value


def _followed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with what its root refers to in its place."""
    target = _found(schema.get("$ref"), schema)
    if target is None:
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _found(reference: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a reference names, where that is the root itself or a definition at the root."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith(("#/$defs/", "#/definitions/")):
        return None
    _, holder, name = reference.split("/", 2)
    definitions = root.get(holder)
    target = definitions.get(name) if isinstance(definitions, Mapping) else None
    return target if isinstance(target, Mapping) else None


def _branches(root: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = [root[key] for key in _BRANCHES if isinstance(root.get(key), list)]
    branches = [branch for group in listed for branch in group if isinstance(branch, Mapping)]
    followed = [_found(branch.get("$ref"), whole) or branch for branch in branches]
    return [branch for branch in followed if isinstance(branch.get("properties"), Mapping)]
