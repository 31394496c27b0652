"""Schemas of tools as Converse takes them. Knows no request."""

from collections.abc import Mapping
from typing import Any

from treadle.providers.payload.schemas import object_schema
from treadle.tools import JsonObject

__all__ = ["input_schema"]

_MAX_DEPTH = 16
_AT_ROOT = ("type", "properties", "required")


def input_schema(schema: Mapping[str, Any], *, is_plain: bool) -> JsonObject:
    """Return a tool's schema with an object at its root.

    Args:
        is_plain: Whether the root may hold nothing but type, properties and required. Definitions then stand where they are used; one
            that refers to itself ends as a free value.
    """
    root = object_schema(schema)
    if not is_plain:
        return root
    root = {"properties": {}, **root}
    written: JsonObject = _inlined({key: root[key] for key in _AT_ROOT if key in root}, root, 0)
    return written


def _inlined(value: Any, root: Mapping[str, Any], depth: int) -> Any:
    match value:
        case {"$ref": str(reference)}:
            target = _found(reference, root)
            beside = {key: item for key, item in value.items() if key != "$ref"}
            return _inlined({**target, **beside}, root, depth + 1) if depth < _MAX_DEPTH else beside
        case dict():
            return {key: _inlined(item, root, depth + 1) for key, item in value.items()}
        case list():
            return [_inlined(item, root, depth + 1) for item in value]
        case _:
            return value


def _found(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference names; an empty schema, which takes anything, where it names nothing."""
    value: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) and value is not root else {}
