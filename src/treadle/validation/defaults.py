"""Defaults: fill what valid arguments leave out with what their schema declares. Validates nothing by itself."""

from collections.abc import Iterator
from typing import Any

from treadle.canonical import copied
from treadle.errors import ToolDefinitionError
from treadle.tools import JsonObject
from treadle.validation.compiling import Validator, compiled
from treadle.validation.parts import is_divisible
from treadle.validation.references import resolved

__all__ = ["Defaults", "declaring", "definitions"]

_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose values hold schemas by name."""
_VALUES = ("default", "enum", "const", "examples")
"""Keywords whose values are not schemas, whatever they look like."""


class Defaults:
    """The defaults of one schema, those of nested objects and array items included. One that breaks its own schema is not filled in.

    Args:
        schema: It is copied, so that each of its parts stays the same object, whose id is known.
    """

    def __init__(self, schema: JsonObject) -> None:
        self.declares_any = _holds_default(schema)
        """Whether there is any; without one, nothing is to be filled in."""
        self._root: JsonObject = copied(schema) if self.declares_any else schema
        self._parts: dict[int, Validator | None] = {}
        self._unfit: dict[int, frozenset[str]] = {}
        """By the id of the properties of an object: those whose default does not fit."""
        self._reaching: dict[int, bool] = {}
        """By the id of a part of the schema: whether a default may stand in it."""

    def fill(self, arguments: JsonObject, *, nested: bool = True) -> JsonObject:
        """Return the arguments with the defaults of what is absent: the same object where there are none, else a copy.

        Args:
            nested: Whether objects inside get theirs too.
        """
        if not self.declares_any:
            return arguments
        if not nested:
            return self._completed(dict(arguments), self._root.get("properties", {}), frozenset(), nested=False)
        filled: JsonObject = self._filled(arguments, self._root, frozenset())
        return filled

    def unfit(self, *, nested: bool = True) -> Iterator[tuple[JsonObject, JsonObject]]:
        """Yield each default that breaks its own schema: as an object with that property, and the schema of such an object."""
        for properties in declaring(self._root, self._root) if nested else [self._root.get("properties", {})]:
            for name in filter(self._unfit_of(properties).__contains__, properties):
                declared = properties[name]
                yield {name: self._default_of(declared, frozenset())}, self._alone({"properties": {name: declared}})

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
        others = {} if "patternProperties" in schema else schema.get("additionalProperties", {})
        filled = {key: self._filled(item, properties.get(key, others), opened) for key, item in value.items()}
        return self._completed(filled, properties, opened)

    def _completed(
        self, value: JsonObject, properties: JsonObject, opened: frozenset[int], *, nested: bool = True
    ) -> JsonObject:
        """Add the defaults of absent properties to an object, which is ours."""
        for name, declared in properties.items():
            own = resolved(declared, self._root)
            is_due = name not in value and "default" in own and id(declared) not in opened
            if is_due and name not in self._unfit_of(properties):
                value[name] = self._default_of(declared, opened) if nested else copied(own["default"])
        return value

    def _default_of(self, declared: Any, opened: frozenset[int]) -> Any:
        default = copied(resolved(declared, self._root)["default"])
        return self._filled(default, declared, opened | {id(declared)})

    def _unfit_of(self, properties: JsonObject) -> frozenset[str]:
        """Return the names of the properties whose default breaks its own schema. A default is an annotation: it may be anything."""
        if id(properties) not in self._unfit:
            self._unfit[id(properties)] = frozenset()  # until it is known: a schema may hold itself
            declared = [name for name, one in properties.items() if "default" in resolved(one, self._root)]
            self._unfit[id(properties)] = frozenset(
                name
                for name in declared
                if not self._fits(self._default_of(properties[name], frozenset()), properties[name])
            )
        return self._unfit[id(properties)]

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
        return [branch for branch in branches if self._fits(value, branch)][:1]

    def _fits(self, value: Any, part: Any) -> bool:
        """Whether a value fits a part of the schema."""
        if id(part) not in self._parts:
            try:
                self._parts[id(part)] = compiled(self._alone({"allOf": [part]}), where="part")
            except ToolDefinitionError:  # it has a name for itself, which stands for something else out of its place
                self._parts[id(part)] = None
        validator = self._parts[id(part)]
        return validator is not None and validator.is_valid(value)

    def _alone(self, part: JsonObject) -> JsonObject:
        """Return a part of the schema as a schema of its own."""
        if is_divisible(self._root):
            return {**definitions(self._root), **part}
        root = {word: one for word, one in self._root.items() if word not in ("$schema", "$id")}
        draft = {word: one for word, one in self._root.items() if word == "$schema"}
        return {**draft, "$defs": {"root": _moved(root)}, **_moved(part)}


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


def _moved(schema: Any) -> Any:
    """Return a part of a schema with its references as they are where the whole stands below `$defs/root`."""
    match schema:
        case dict():
            moved = {word: _moved(part) for word, part in schema.items()}
            reference = str(schema.get("$ref"))
            return {**moved, "$ref": f"#/$defs/root{reference[1:]}"} if reference[:2] in ("#", "#/") else moved
        case list():
            return [_moved(part) for part in schema]
        case _:
            return schema


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
