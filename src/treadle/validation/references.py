"""References: find a sub-schema within its document. Follows local `$ref`s only; fetches and validates nothing."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from treadle.tools import JsonObject

__all__ = ["lookup", "resolved"]

_MAX_HOPS = 16


def lookup(root: Any, path: Iterable[str | int]) -> Any:  # Any: a schema is an object, true or false; {} when absent
    """Return what stands at a path of keys and indices; {} when there is nothing."""
    node = root
    for part in path:
        if isinstance(node, dict) and str(part) in node:
            node = node[str(part)]
        elif isinstance(node, list) and str(part).isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return {}
    return node


def resolved(schema: Any, root: JsonObject) -> JsonObject:
    """Return a schema as an object, with its local `$ref` replaced by what it names. Its own keywords win."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, dict):
            return {} if schema is not False else {"not": {}}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        target = _target(reference, root)
        own = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **own} if isinstance(target, dict) else target
    return {}


def _target(reference: str, root: JsonObject) -> Any:  # Any: see lookup
    fragment = unquote(reference[1:])
    if not fragment or fragment.startswith("/"):
        parts = fragment.split("/")[1:]
        return lookup(root, [part.replace("~1", "/").replace("~0", "~") for part in parts])
    named = (node for node in _definitions(root) if isinstance(node, dict) and node.get("$anchor") == fragment)
    return next(named, {})


def _definitions(root: JsonObject) -> Iterable[Any]:  # Any: see lookup
    for word in ("$defs", "definitions"):
        if isinstance(root.get(word), dict):
            yield from root[word].values()
