"""Gemini's JSON Schema: a schema in the words that the vendor takes. Checks nothing: the gate enforces the original.

Declarations go out as `parametersJsonSchema`, which is JSON Schema, and not as `parameters`, a small OpenAPI dialect whose parser
refuses a whole request for one unknown keyword (`exclusiveMinimum`, `uniqueItems`, `$schema`). What that field refuses all the
same is repaired here: references (`$ref` together with other keywords, `$defs` out of reach), `const`, values without a type, and formats that
it does not know.
"""

from collections.abc import Mapping
from typing import Any

from treadle.providers.payload.schemas import object_schema
from treadle.tools import JsonObject
from treadle.validation.references import resolved

__all__ = ["gemini_parameters", "gemini_schema"]

_MAX_EXPANSIONS = 500
"""References replaced in one schema: a small document can name itself a million times."""

_DROPPED = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "const", "discriminator"}
)
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLES = frozenset({"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"})
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_FORMATS = frozenset({"date", "date-time", "double", "duration", "enum", "float", "int32", "int64", "time"})


def gemini_schema(schema: JsonObject) -> JsonObject:
    """Return the schema without references; one that contains itself goes one level deep, and then tells the type only."""
    return _Writer(schema).node(schema)


def gemini_parameters(schema: JsonObject) -> JsonObject:
    """Return the schema of a tool: the vendor asks for an object at the top, and older models for its properties."""
    top = object_schema({**schema, **resolved(schema, schema)})
    return {"properties": {}, **_Writer(schema).node(top)}


class _Writer:
    """Writes one document."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._expansions_left = _MAX_EXPANSIONS

    def node(self, schema: Any, inside: tuple[str, ...] = ()) -> JsonObject:
        """Return one sub-schema. `inside` are the references that led to it."""
        if not isinstance(schema, dict):
            return {} if schema is not False else {"not": {}}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in inside or not self._expansions_left:
                return self._closed(schema)
            self._expansions_left -= 1
            schema, inside = resolved(schema, self._root), (*inside, reference)
        written = {word: self._value(word, value, inside) for word, value in schema.items() if word not in _DROPPED}
        if "const" in schema:
            written["enum"] = [schema["const"]]
        return _with_known_format(_with_type(written))

    def _value(self, word: str, value: Any, inside: tuple[str, ...]) -> Any:
        if word in _MAPS and isinstance(value, dict):
            return {name: self.node(one, inside) for name, one in value.items()}
        if word in _LISTS and isinstance(value, list):
            return [self.node(one, inside) for one in value]
        if word in _SINGLES and isinstance(value, dict):
            return self.node(value, inside)
        return value

    def _closed(self, schema: Mapping[str, Any]) -> JsonObject:
        """Return what is left of a reference that is not followed: the kind of value, and its words."""
        target = resolved(schema, self._root)
        return {word: target[word] for word in ("type", "title", "description") if word in target}


def _with_type(node: JsonObject) -> JsonObject:
    """Say of which type the values are that a node lists. The vendor misses it."""
    values = node.get("enum")
    if "type" in node or not isinstance(values, list):
        return node
    types = list(dict.fromkeys(_TYPES[type(value)] for value in values if type(value) in _TYPES))
    return {"type": types[0] if len(types) == 1 else types, **node} if types else node


def _with_known_format(node: JsonObject) -> JsonObject:
    """Move a format that the vendor does not know into the description, where the model reads it."""
    format_name = node.get("format")
    if not isinstance(format_name, str) or format_name in _FORMATS:
        return node
    described = f"{node.get('description', '')} (format: {format_name})".lstrip()
    return {word: value for word, value in node.items() if word != "format"} | {"description": described}
