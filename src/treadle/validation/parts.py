"""Parts: divide a large value and its schema, so that each part is checked by itself. Validates nothing.

A validator holds up all threads of the process until it is done. What is said of a list or object as a whole, such as how many items it
has, is compared here; where a schema says more than that, the value stays in one piece.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from treadle.tools import JsonObject
from treadle.validation.references import resolved

__all__ = ["Part", "divided", "is_divisible"]

_SLICE = 2000
"""Values of one part."""
_SAYS_NOTHING = frozenset({"$comment", "$schema", "default", "deprecated", "description", "examples", "title"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_OF_LISTS = _SAYS_NOTHING | _DEFINITIONS | {"items", "maxItems", "minItems", "type"}
_OF_OBJECTS = _SAYS_NOTHING | _DEFINITIONS | {"additionalProperties", "properties", "required", "type"}
_REFERRING = _SAYS_NOTHING | _DEFINITIONS | {"$ref"}
_NAMING = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"})
"""Words that give a meaning to a place in a schema, so that it cannot be taken apart."""


class Part(NamedTuple):
    """A part of a value that is checked by itself."""

    schema: Any
    value: Any
    path: tuple[str | int, ...]
    """Where it is."""
    start: int = 0
    """Of some items of a list: the index of the first."""


def divided(schema: JsonObject, value: Any, *, size: int = _SLICE) -> Iterator[Part]:
    """Give the parts of a value. It fits the schema exactly where each part fits its own.

    Parts of one list or object share one schema object.

    Args:
        size: Values of one part.
    """
    if not is_divisible(schema):
        yield Part(schema, value, ())
        return
    kept = {word: schema[word] for word in (*_DEFINITIONS, "$schema") if word in schema}
    yield from _Division(schema, kept, size).of(schema, value, ())


class _Division:
    def __init__(self, root: JsonObject, kept: JsonObject, size: int) -> None:
        self._root = root
        self._kept = kept
        self._most = size

    def of(self, schema: Any, value: Any, path: tuple[str | int, ...]) -> Iterator[Part]:
        is_alone = not isinstance(schema, dict) or "$ref" not in schema or _REFERRING.issuperset(schema)
        node = resolved(schema, self._root) if is_alone else schema  # drafts differ in what stands beside a reference
        if isinstance(value, list) and _fits_list(node, value):
            yield from self._of_list(node.get("items", True), value, path)
        elif isinstance(value, dict) and _fits_object(node, value):
            yield from self._of_object(node, value, path)
        else:
            yield Part(self._alone(schema), value, path)

    def _of_list(self, items: Any, value: list[Any], path: tuple[str | int, ...]) -> Iterator[Part]:
        schema = self._alone({"items": items})
        start, size = 0, 0
        for index, item in enumerate(value):
            weighs = _size(item, self._most)
            if weighs > self._most or size + weighs > self._most:
                if index > start:
                    yield Part(schema, value[start:index], path, start)
                start, size = index, 0
            if weighs > self._most:
                yield from self.of(items, item, (*path, index))
                start = index + 1
            else:
                size += weighs
        if start < len(value):
            yield Part(schema, value[start:], path, start)

    def _of_object(self, node: JsonObject, value: JsonObject, path: tuple[str | int, ...]) -> Iterator[Part]:
        keywords = {word: node[word] for word in ("properties", "additionalProperties") if word in node}
        schema = self._alone(keywords)
        fields: JsonObject = {}
        size = 0
        for name, item in value.items():
            weighs = _size(item, self._most)
            of_field = _of_field(node, name)
            if weighs > self._most and of_field is not False:
                yield from self.of(of_field, item, (*path, name))
                continue
            fields[name] = item
            size += weighs
            if size > self._most:
                yield Part(schema, fields, path)
                fields, size = {}, 0
        if fields:
            yield Part(schema, fields, path)

    def _alone(self, schema: Any) -> Any:
        return {**self._kept, **schema} if isinstance(schema, dict) else schema


def _of_field(node: JsonObject, name: str) -> Any:
    properties = node.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return node.get("additionalProperties", True)


def _fits_list(node: JsonObject, value: list[Any]) -> bool:
    return (
        _OF_LISTS.issuperset(node)
        and not isinstance(node.get("items"), list)  # in old drafts a schema for each place
        and _allows(node, "array")
        and node.get("minItems", 0) <= len(value) <= node.get("maxItems", len(value))
    )


def _fits_object(node: JsonObject, value: JsonObject) -> bool:
    return (
        _OF_OBJECTS.issuperset(node)
        and _allows(node, "object")
        and all(name in value for name in node.get("required", ()))
    )


def _allows(node: JsonObject, kind: str) -> bool:
    allowed = node.get("type", kind)
    return kind == allowed or (isinstance(allowed, list) and kind in allowed)


def is_divisible(schema: JsonObject) -> bool:
    """Whether a part of the schema means by itself what it means in its place: every reference is to a definition."""
    for node in _objects(schema):
        if not _NAMING.isdisjoint(node):
            return False
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith(("#/$defs/", "#/definitions/")):
            return False
    return True


def _objects(schema: Any) -> Iterator[JsonObject]:
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _size(value: Any, most: int) -> int:
    """Return how many values a value holds, as far as it matters here."""
    if not isinstance(value, dict | list):
        return 1
    pending, count = [value], 1
    while pending and count <= most:
        node = pending.pop()
        held = node.values() if isinstance(node, dict) else node
        count += len(node)
        if count <= most:
            pending.extend([one for one in held if isinstance(one, dict | list)])
    return count
