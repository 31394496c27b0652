"""Defaults: fill what valid arguments leave out with what their schema declares. Validates nothing by itself."""

import copy
from typing import Any

from treadle.runtime.validation.compiling import Validator, compiled
from treadle.runtime.validation.references import resolved
from treadle.tools import JsonObject

__all__ = ["Defaults"]


class Defaults:
    """The defaults of one schema, those of nested objects and array items included."""

    def __init__(self, schema: JsonObject) -> None:
        self._root = schema
        self._declares_any = _holds_default(schema)
        self._branches: dict[int, Validator] = {}

    def fill(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with the defaults of what is absent: the same object where there are none, else a copy."""
        if not self._declares_any:
            return arguments
        filled: JsonObject = self._filled(arguments, self._root, frozenset())
        return filled

    def _filled(self, value: Any, schema: Any, opened: frozenset[int], applied: frozenset[int] = frozenset()) -> Any:
        """Fill one value.

        Args:
            opened: The defaults that it stands in: one that holds itself is filled once.
            applied: The parts of the schema that have had this value: one that refers to itself has it once.
        """
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
            shared: JsonObject = {
                word: self._root[word] for word in ("$schema", "$defs", "definitions") if word in self._root
            }
            self._branches[id(branch)] = compiled({**shared, "allOf": [branch]}, where="alternative")
        return self._branches[id(branch)]


def _holds_default(schema: Any) -> bool:
    match schema:
        case dict():
            return "default" in schema or any(_holds_default(part) for part in schema.values())
        case list():
            return any(_holds_default(part) for part in schema)
        case _:
            return False
