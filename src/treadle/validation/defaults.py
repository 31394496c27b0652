"""Defaults: fill what valid arguments leave out with what their schema declares. Validates nothing by itself."""

import copy
from collections.abc import Iterator
from typing import Any

from treadle.tools import JsonObject
from treadle.validation.compiling import Validator, compiled
from treadle.validation.references import resolved

__all__ = ["Defaults", "declaring", "definitions"]

_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose values hold schemas by name."""
_VALUES = ("default", "enum", "const", "examples")
"""Keywords whose values are not schemas, whatever they look like."""


class Defaults:
    """The defaults of one schema, those of nested objects and array items included."""

    def __init__(self, schema: JsonObject) -> None:
        self._root = schema
        self.declares_any = _holds_default(schema)
        """Whether there is any; without one, nothing is to be filled in."""
        self._branches: dict[int, Validator] = {}
        self._reaching: dict[int, bool] = {}
        """By the id of a part of the schema: whether a default may stand in it."""

    def fill(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with the defaults of what is absent: the same object where there are none, else a copy."""
        if not self.declares_any:
            return arguments
        filled: JsonObject = self._filled(arguments, self._root, frozenset())
        return filled

    def _filled(self, value: Any, schema: Any, opened: frozenset[int], applied: frozenset[int] = frozenset()) -> Any:
        """Fill one value.

        Args:
            opened: The defaults that it stands in: one that holds itself is filled once.
            applied: The parts of the schema that have had this value: one that refers to itself has it once.
        """
        if not self._reaches(schema):  # most items of large arrays
            return value
        schema = resolved(schema, self._root)
        parts = [*schema.get("allOf", ()), *self._branch(value, schema)]
        for part in parts:
            if id(part) not in applied:
                value = self._filled(value, part, opened, applied | {id(part)})
        match value:
            case dict():
                return self._object(value, schema, opened)
            case list():
                return self._array(value, schema, opened)
            case _:
                return value

    def _reaches(self, schema: Any) -> bool:
        """Whether a part of the schema holds a default, or refers to what may hold one."""
        if not isinstance(schema, dict) or not schema:
            return False
        known = self._reaching.get(id(schema))
        if known is None:
            known = self._reaching[id(schema)] = _holds_default(schema) or _refers(schema)
        return known

    def _object(self, value: JsonObject, schema: JsonObject, opened: frozenset[int]) -> JsonObject:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", {})
        filled = {key: self._filled(item, properties.get(key, others), opened) for key, item in value.items()}
        for name, declared in properties.items():
            own = resolved(declared, self._root)
            if name not in filled and "default" in own and id(declared) not in opened:
                filled[name] = self._filled(copy.deepcopy(own["default"]), declared, opened | {id(declared)})
        return filled

    def _array(self, value: list[Any], schema: JsonObject, opened: frozenset[int]) -> list[Any]:
        first = schema.get("prefixItems", ())
        rest = schema.get("items", {})
        return [
            self._filled(item, first[index] if index < len(first) else rest, opened) for index, item in enumerate(value)
        ]

    def _branch(self, value: Any, schema: JsonObject) -> list[Any]:
        """Return the alternative that an object or array fits, if there is one: its defaults count."""
        if not isinstance(value, dict | list):
            return []
        branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        return [branch for branch in branches if self._validator(branch).is_valid(value)][:1]

    def _validator(self, branch: Any) -> Validator:
        if id(branch) not in self._branches:
            whole = {**definitions(self._root), "allOf": [branch]}
            self._branches[id(branch)] = compiled(whole, where="alternative")
        return self._branches[id(branch)]


def definitions(root: JsonObject) -> JsonObject:
    """Return what every part of a schema may refer to."""
    return {word: root[word] for word in ("$schema", "$defs", "definitions") if word in root}


def declaring(schema: Any, root: JsonObject) -> Iterator[JsonObject]:  # Any: an object, true or false
    """Yield the properties of every object in a schema, at whatever depth, of which one has a default."""
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    if isinstance(properties, dict) and any("default" in resolved(one, root) for one in properties.values()):
        yield properties
    for word, part in schema.items():
        if word in _VALUES:
            continue
        parts = part if isinstance(part, list) else list(part.values()) if word in _NAMED else [part]
        for one in parts:
            yield from declaring(one, root)


def _refers(schema: Any) -> bool:
    match schema:
        case dict():
            return "$ref" in schema or any(map(_refers, schema.values()))
        case list():
            return any(map(_refers, schema))
        case _:
            return False


def _holds_default(schema: Any) -> bool:
    match schema:
        case dict():
            return "default" in schema or any(_holds_default(part) for part in schema.values())
        case list():
            return any(_holds_default(part) for part in schema)
        case _:
            return False
