"""Correcting: what a schema probably means that is not valid JSON Schema: words of old drafts, null for absent. Validates nothing.

For schemas of strangers, who would lose a tool for it. What a schema forbids stays forbidden as far as it can be understood.
"""

from typing import Any

from treadle.tools import JsonObject

__all__ = ["corrected"]

_KINDS = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean",
    "dict": "object", "map": "object", "list": "array", "tuple": "array", "none": "null", "nonetype": "null", "None": "null",
}  # fmt: skip
_ANNOTATIONS: dict[str, type] = {
    "$comment": str, "deprecated": bool, "description": str, "examples": list, "format": str, "readOnly": bool, "title": str,
    "writeOnly": bool,
}  # fmt: skip
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
)
_MAY_BE_NULL = ("const", "default")


def corrected(schema: JsonObject) -> JsonObject:
    """Return a schema as one of draft 2020-12. What cannot be understood stays as it is."""
    fit: JsonObject = _corrected(schema)
    return {word: part for word, part in fit.items() if word != "$schema"}


def _corrected(schema: Any) -> Any:  # Any: what stands where a schema should
    if schema is None or schema is True or schema == []:  # languages without empty objects write them as empty lists
        return {}
    if not isinstance(schema, dict):
        return schema
    fit: JsonObject = {}
    for word, part in schema.items():
        if (part is None and word not in _MAY_BE_NULL) or (word in _LISTED and part == []):
            continue
        if word in _ANNOTATIONS and not isinstance(part, _ANNOTATIONS[word]):
            continue
        fit[word] = _part(word, part)
    _limits(fit)
    _items(fit)
    _required(fit, schema)
    _types(fit)
    return fit


def _part(word: str, part: Any) -> Any:
    if word in _NAMED:
        return (
            {name: _corrected(one) for name, one in part.items()}
            if isinstance(part, dict)
            else {}
            if part == []
            else part
        )
    if word in _LISTED and isinstance(part, list):
        return [_corrected(one) for one in part]
    if word == "items" and isinstance(part, list):
        return [_corrected(one) for one in part]
    return _corrected(part) if word in _SINGLE and isinstance(part, dict) else part


def _limits(fit: JsonObject) -> None:
    """In old drafts `exclusiveMinimum` says how `minimum` is meant."""
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(fit.get(exclusive), bool) and fit.pop(exclusive) and plain in fit:
            fit[exclusive] = fit.pop(plain)


def _items(fit: JsonObject) -> None:
    """In old drafts `items` may be a schema for each place."""
    if isinstance(fit.get("items"), list):
        first, rest = fit.pop("items"), fit.pop("additionalItems", None)
        fit |= {"prefixItems": first} if first else {}
        fit |= {"items": _corrected(rest)} if rest is not None else {}


def _required(fit: JsonObject, schema: JsonObject) -> None:
    """In the oldest drafts a property says of itself that it is required."""
    said = fit.pop("required", [])
    properties = schema.get("properties")
    own = properties if isinstance(properties, dict) else {}
    names = [name for name, one in own.items() if isinstance(one, dict) and one.get("required") is True]
    listed = [*said, *names] if isinstance(said, list) else names if isinstance(said, bool) else said
    if listed:
        fit["required"] = list(dict.fromkeys(listed)) if isinstance(listed, list) else listed


def _types(fit: JsonObject) -> None:
    if "type" not in fit:
        return
    said = fit.pop("type")
    kinds = [_KINDS.get(str(one), one) for one in (said if isinstance(said, list) else [said])]
    known = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    if known and "any" not in known:
        fit["type"] = known if isinstance(said, list) else known[0]
