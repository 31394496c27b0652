"""Schema: one compiled JSON Schema, and every way in which a value breaks it. Knows no tool and changes no value."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote

import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from treadle.canonical import MAX_SCHEMA_VALUES, copied, find_unencodable, holds_more
from treadle.errors import ToolDefinitionError
from treadle.tools import JsonObject

__all__ = [
    "Defaults",
    "Path",
    "Row",
    "Schema",
    "Validator",
    "bounded",
    "compiled",
    "corrected",
    "declaring",
    "definitions",
    "field_path",
    "is_divisible",
    "lookup",
    "phrase",
    "resolved",
    "row",
    "shape",
    "shape_mismatch",
    "shape_of_schema",
]


# --- References: find a sub-schema within its document. Follows local `$ref`s only; fetches and validates nothing.

_MAX_HOPS = 16


def lookup(root: Any, path: Iterable[str | int]) -> Any:  # Any: a schema is an object, true or false; {} when absent
    """Return what is at a path of keys and indices; {} when there is nothing."""
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


# --- Names: what gives a meaning to a place in a schema.

_NAMING = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"})


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


# --- Compiling: from a JSON Schema to a validator that fetches nothing and never hangs. Explains no violation.

Validator: TypeAlias = jsonschema_rs.Validator

_MAX_BACKTRACKS = 100_000


def compiled(schema: JsonObject, *, where: str) -> Validator:
    """Return the validator of a schema.

    Patterns run in linear time. One that looks around or back cannot: it may take so many steps, and then it fits nothing.

    Raises:
        ToolDefinitionError: It is not a valid schema, or refers to something outside of itself.
    """
    refused: list[str] = []
    schema = copied(schema)  # the compiler takes plain lists only, and a tool's own are read-only
    try:
        try:
            return _compile(schema, jsonschema_rs.RegexOptions(), refused)
        except jsonschema_rs.ValidationError:
            return _compile(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS), refused)
    except (ValueError, TypeError, RecursionError) as error:  # ValidationError is a ValueError
        if refused:
            reason = f"the schema refers to {refused[0]!r}, and only references within the schema (#/...) are followed"
        else:
            reason = f"it is not a valid JSON Schema: {_reason(error)}"
        raise ToolDefinitionError(f"The {where} cannot be used: {reason}.") from error


def _compile(schema: JsonObject, patterns: Any, refused: list[str]) -> Validator:  # Any: either kind of options
    def refuse(uri: str) -> Any:
        refused.append(uri)
        raise LookupError(uri)

    return jsonschema_rs.validator_for(
        schema,
        validate_formats=True,
        formats=dict(_OFFSET_OPTIONAL),
        retriever=refuse,
        mask="the value",
        pattern_options=patterns,
    )


def _reason(error: Exception) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return str(error).splitlines()[0].rstrip(".")
    place = "/".join(str(part) for part in error.instance_path)
    at = f" (at {place})" if place else ""
    return error.message.splitlines()[0].rstrip(".") + at


class _OffsetOptional:
    """A time format that may leave out its offset, as Python's and everybody's local times do; RFC 3339 wants one."""

    def __init__(self, name: str) -> None:
        self._strict = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)

    def __call__(self, text: str) -> bool:
        return self._strict.is_valid(text) or self._strict.is_valid(f"{text}Z")


_OFFSET_OPTIONAL = {name: _OffsetOptional(name) for name in ("date-time", "time")}


# --- Defaults: fill what valid arguments leave out with what their schema declares. Validates nothing by itself.

_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose values hold schemas by name."""
_MAY_FILL = ("default", "$ref")
_VALUES = ("default", "enum", "const", "examples")
"""Keywords whose values are not schemas, whatever they look like."""


class Defaults:
    """The defaults of one schema, those of nested objects and array items included. One that breaks its own schema is not filled in.

    Args:
        schema: It must not change: its parts are known by their ids.
    """

    def __init__(self, schema: JsonObject) -> None:
        self.declares_any = _holds_default(schema)
        """Whether there is any; without one, nothing is to be filled in."""
        self._root = schema
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
            opened: The defaults that it is in: one that holds itself is filled once.
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
            known = self._reaching[id(schema)] = any(not node.keys().isdisjoint(_MAY_FILL) for node in _objects(schema))
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
    """Return a part of a schema with its references as they are where the whole is below `$defs/root`."""
    match schema:
        case dict():
            moved = {word: _moved(part) for word, part in schema.items()}
            reference = str(schema.get("$ref"))
            return {**moved, "$ref": f"#/$defs/root{reference[1:]}"} if reference[:2] in ("#", "#/") else moved
        case list():
            return [_moved(part) for part in schema]
        case _:
            return schema


def _holds_default(schema: Any) -> bool:
    return any("default" in node for node in _objects(schema))


# --- Shapes: a schema or a value in a few words, for models and people. Describes; validates nothing.

_MAX_NAMES = 20
_MAX_DEPTH = 3
_MAX_CHARS = 300


def shape(value: Any) -> str:  # Any: any JSON value
    """Say what a value is made of, without what it holds: `an object with severity, loss`."""
    match value:
        case dict():
            return _object(list(value))
        case [first, *_]:
            return f"an array of {len(value)}, the first {shape(first)}"
        case _:
            return _KINDS[type(value)]


_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an empty array",
    tuple: "an empty array",
}


def shape_of_schema(schema: Any) -> str:  # Any: an object, true or false
    """Say what a schema wants in the words of `shape`."""
    return _wanted(schema, schema if isinstance(schema, dict) else {}, _MAX_DEPTH)


def shape_mismatch(schema: Any, value: Any) -> str:  # Any: an object, true or false; any JSON value
    """Say in one sentence what was expected and what came: `Expected an object with a; got an object with b.`"""
    return f"Expected {shape_of_schema(schema)}; got {shape(value)}."


def _object(names: Sequence[str]) -> str:
    return f"an object with {_listed([name[:60] for name in names])}" if names else "an empty object"


def _wanted(schema: Any, root: JsonObject, depth: int) -> str:
    schema = resolved(schema, root)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(alternatives, list) and depth:
        return _either([_wanted(one, root, depth - 1) for one in alternatives])
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        return _object(list(properties))
    if schema.get("type") == "array" and schema.get("items") and depth:
        return f"an array, each item {_wanted(schema['items'], root, depth - 1)}"
    if not schema:
        return "any value"
    phrases = phrase(schema, root)
    article = _ARTICLES.get(phrases.split(",", 1)[0].split(" ", 1)[0], "")
    return f"{article}{phrases}"


_ARTICLES = {
    "array": "an ",
    "boolean": "a ",
    "integer": "an ",
    "number": "a ",
    "object": "an ",
    "string": "a ",
}


# --- the constraint of one field -------------------------------------------------------------------------------------


def phrase(schema: Any, root: JsonObject, depth: int = _MAX_DEPTH) -> str:  # Any: an object, true or false
    """Return the constraint of one field in a few words: `integer 1..12`, `one of "a", "b"`."""
    schema = resolved(schema, root)
    if "const" in schema:
        return f"exactly {_literal(schema['const'])}"
    if isinstance(schema.get("enum"), list):
        return f"one of {_listed([_literal(option) for option in schema['enum']])}"
    phrases = [_typed(schema), *_text_limits(schema), *_array_limits(schema, root, depth), *_object_limits(schema)]
    if depth:
        phrases += _combinations(schema, root, depth - 1)
    text = ", ".join(word for word in phrases if word) or "a value that fits the schema"
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."


def _typed(schema: JsonObject) -> str:
    types = schema.get("type", "")
    kind = _either(types) if isinstance(types, list) else str(types)
    numbers = _number_limits(schema)
    if numbers[:1].isdigit() or numbers.startswith("-"):
        return f"{kind} {numbers}".strip()
    return ", ".join(word for word in (kind, numbers) if word)


def _number_limits(schema: JsonObject) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        phrases = [f"{low}..{high}"]
    else:
        phrases = [f"{word} {limit}" for word, limit in (("at least", low), ("at most", high)) if limit is not None]
    phrases += [
        f"{word} {schema[keyword]}"
        for keyword, word in (("exclusiveMinimum", "more than"), ("exclusiveMaximum", "less than"))
        if not isinstance(schema.get(keyword), bool | None)  # in old drafts it says only how `minimum` is meant
    ]
    if "multipleOf" in schema:
        phrases.append(f"a multiple of {schema['multipleOf']}")
    return ", ".join(phrases)


def _text_limits(schema: JsonObject) -> list[str]:
    phrases = [_span(schema, "minLength", "maxLength", "character")]
    if "pattern" in schema:
        phrases.append(f"pattern {schema['pattern']}")
    if "format" in schema:
        phrases.append(f"format {schema['format']}")
    return phrases


def _array_limits(schema: JsonObject, root: JsonObject, depth: int) -> list[str]:
    phrases = [_span(schema, "minItems", "maxItems", "item")]
    if schema.get("uniqueItems") is True:
        phrases.append("no item twice")
    if "contains" in schema and depth:
        phrases.append(f"at least {schema.get('minContains', 1)} of them {phrase(schema['contains'], root, depth - 1)}")
    return phrases


def _object_limits(schema: JsonObject) -> list[str]:
    names = schema.get("propertyNames")
    phrases = [_span(schema, "minProperties", "maxProperties", "property")]
    return [*phrases, f"names {phrase(names, schema, 1)}"] if names else phrases


def _combinations(schema: JsonObject, root: JsonObject, depth: int) -> list[str]:
    phrases = [
        _either([phrase(one, root, depth) for one in schema[keyword]])
        for keyword in ("anyOf", "oneOf")
        if isinstance(schema.get(keyword), list)
    ]
    if isinstance(schema.get("allOf"), list):
        phrases += [phrase(one, root, depth) for one in schema["allOf"]]
    if "not" in schema:
        phrases.append(f"not {phrase(schema['not'], root, depth)}" if schema["not"] else "nothing")
    return phrases


def _span(schema: JsonObject, least: str, most: str, noun: str) -> str:
    low, high = schema.get(least), schema.get(most)
    match low, high:
        case None, None:
            return ""
        case _, None:
            return f"at least {_counted(low, noun)}"
        case None, _:
            return f"at most {_counted(high, noun)}"
        case _:
            return f"exactly {_counted(low, noun)}" if low == high else f"{low}..{_counted(high, noun)}"


def _counted(number: Any, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _literal(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _listed(phrases: Sequence[str]) -> str:
    more = f", and {len(phrases) - _MAX_NAMES} more" if len(phrases) > _MAX_NAMES else ""
    return ", ".join(phrases[:_MAX_NAMES]) + more


def _either(phrases: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(phrases[:_MAX_NAMES]))


# --- Rows: one violation in the form that models and people read. Builds them; decides none.

Row: TypeAlias = dict[str, Any]  # Any: the offending value, JSON of strangers

_VALUE_CHARS = 200
_LONGEST_INTEGER_BITS = 14_000
"""About 4,200 digits: what Python turns into text without a limit being raised."""


def row(field: str, constraint: str, value: Any) -> Row:
    """Return one violation: where, what was expected, and what came (bounded)."""
    return {"field": field, "constraint": constraint, "value": value}


def field_path(parts: Sequence[str | int]) -> str:
    """Return a path as people write it: `items[0].quantity`; "" for the whole value."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.replace("-", "_").isidentifier():
            path += f".{part}" if path else part
        else:
            path += f"[{msgspec.json.encode(part[:_VALUE_CHARS]).decode()}]"
    return path


def bounded(value: Any) -> Any:
    """Return a value that is short enough to be repeated: itself, or words about it."""
    match value:
        case str() if len(value) > _VALUE_CHARS:
            return f"{value[:_VALUE_CHARS]}... ({len(value)} characters)"
        case int() if value.bit_length() > _LONGEST_INTEGER_BITS:
            return f"an integer of about {value.bit_length() * 30103 // 100_000} digits"
        case dict() | list():
            return _bounded_container(value)
        case _:
            return value


def _bounded_container(value: dict[str, Any] | list[Any]) -> Any:
    kind = "an object with" if isinstance(value, dict) else "an array of"
    noun = "properties" if isinstance(value, dict) else "items"
    description = f"{kind} {len(value)} {noun}"
    if len(value) > _VALUE_CHARS:
        return description
    try:
        text = msgspec.json.encode(value)
    except (ValueError, TypeError, RecursionError):  # an integer too long, or too deep: words will do
        return description
    return value if len(text) <= _VALUE_CHARS else description


# --- Schema: one compiled JSON Schema, and every way in which a value breaks it. Knows no tool and changes no value.

Path: TypeAlias = tuple[str | int, ...]

_MAX_ROWS = 50
# jsonschema-rs makes every error before it gives the first: a hostile array of 300,000 wrong items takes seconds.
_MAX_NODES_FOR_ALL = 5_000

_encoder = msgspec.json.Encoder()
_WHOLE_FLOAT = re.compile(rb"\d(?:\.0|[eE])")
"""What a whole float looks like in JSON, and some other numbers and texts do."""


class Schema:
    """A JSON Schema (draft 2020-12 unless it names another) as a gate.

    Example:
        Schema({"type": "object", "properties": {"name": {"type": "string"}}}, where="parameters of tool 'greet'")

    Args:
        schema: The schema. Formats are checked; no remote `$ref` is fetched.
        where: What it belongs to, for messages to the programmer.

    Raises:
        ToolDefinitionError: It is not a valid schema, or refers to something outside of itself.
    """

    def __init__(self, schema: JsonObject, *, where: str) -> None:
        problem = find_unencodable(schema, max_values=MAX_SCHEMA_VALUES)  # an encoder writes NaN as null
        if problem is not None:
            raise ToolDefinitionError(f"The {where} cannot be used: it cannot be written as JSON: {problem}.")
        self._schema: JsonObject = copied(schema)
        self._validator: Validator = compiled(self._schema, where=where)
        self._defaults = Defaults(self._schema)
        self._may_want_integers = b'"integer"' in _encoder.encode(schema)

    def violations(self, value: Any) -> list[Row]:
        """Return every violation (the first 50), one row for one wrong field; none when the value fits.

        A row is {"field": "items[0].quantity", "constraint": "integer 1..12", "value": "many"}.
        """
        try:
            _encoder.encode(value)  # finds in C what the validator would misread: integers beyond 4,300 digits, for one
            if self._validator.is_valid(value):
                return []
        except (TypeError, ValueError, RecursionError):
            return [_unfit(value)]
        return self._explained(self._errors(value), value)

    def misfits(self, value: Any) -> list[Path]:
        """Return the places of the values that do not fit, each once; the whole where it holds too much to be looked at in full."""
        if self._validator.is_valid(value):
            return []
        if holds_more(value, _MAX_NODES_FOR_ALL):
            return [()]
        return list(dict.fromkeys(place for error in self._errors(value) for place in _places(error, value)))

    def check_result(self, value: Any) -> list[Row]:
        """Return the violations of a tool's result. Stricter: 3.0 is not an integer."""
        found = self.violations(value)
        if found or not self._may_want_integers or not _WHOLE_FLOAT.search(_encoder.encode(value)):
            return found
        nudged: set[Path] = set()
        changed = _nudge(value, (), nudged)
        return self._explained([error for error in self._errors(changed) if _wants_integer(error, nudged)], value)

    def with_defaults(self, arguments: JsonObject, *, nested: bool = True) -> JsonObject:
        """Return valid arguments with the defaults of absent properties that fit. Its input stays as it is.

        Args:
            nested: Whether objects inside get theirs too. Those of a Python type are the type's own business.
        """
        return self._defaults.fill(arguments, nested=nested) if self._defaults.declares_any else arguments

    def unfit_defaults(self, *, nested: bool = True) -> list[Row]:
        """Return the violations of every declared default that breaks its own schema; a row's field begins at its property."""
        unfit = self._defaults.unfit(nested=nested)
        return [found for value, own in unfit for found in Schema(own, where="defaults").violations(value)]

    def _errors(self, value: Any) -> Iterable[ValidationError]:
        if not holds_more(value, _MAX_NODES_FOR_ALL):
            return self._validator.iter_errors(value)
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []

    def _explained(self, errors: Iterable[ValidationError], value: Any) -> list[Row]:
        by_field: dict[str, Row] = {}
        for error in errors:
            for found in self._rows(error, value):
                _merge(by_field, found)
            if len(by_field) >= _MAX_ROWS:
                break
        return list(by_field.values())[:_MAX_ROWS]

    def _rows(self, error: ValidationError, value: Any) -> Iterator[Row]:
        path = error.instance_path
        match error.kind:
            case Kind.Required(property=name):
                yield row(field_path([*path, name]), self._why_required(error, name), None)
            case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
                for name in names:
                    yield row(field_path([*path, name]), self._known(error), bounded(_at(value, [*path, name])))
            case Kind.PropertyNames(error=inner):
                name = str(inner.instance)
                yield row(field_path([*path, name]), f"a property name: {self._phrase(error)}", bounded(name))
            case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
                meant = _meant(branches, error, value)
                for inner in meant:
                    yield from self._rows(inner, value)
                if not meant:
                    yield row(field_path(path), self._phrase(error), bounded(_at(value, path)))
            case Kind.OneOfMultipleValid():
                constraint = f"only one of these, not several: {self._phrase(error)}"
                yield row(field_path(path), constraint, bounded(_at(value, path)))
            case Kind.FalseSchema():
                yield row(field_path(path), "not allowed here", bounded(_at(value, path)))
            case _:
                yield row(field_path(path), self._phrase(error), bounded(_at(value, path)))

    def _phrase(self, error: ValidationError) -> str:
        return phrase(lookup(self._schema, error.schema_path[:-1]), self._schema)

    def _why_required(self, error: ValidationError, name: str) -> str:
        if error.schema_path[-1:] not in (["dependentRequired"], ["dependencies"]):
            return "required"
        rules = lookup(self._schema, error.schema_path)
        causes = [cause for cause, needs in rules.items() if isinstance(needs, list) and name in needs]
        return f"required together with {' or '.join(causes)}"

    def _known(self, error: ValidationError) -> str:
        owner = resolved(lookup(self._schema, error.schema_path[:-1]), self._schema)
        names = list(owner.get("properties", ()))
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return f"no such property (known: {', '.join(names[:_MAX_NAMES]) or 'none'}{more})"


def _places(error: ValidationError, value: Any) -> Iterator[Path]:
    """Yield where a value does not fit: inside the one alternative that it was meant to be, where that is clear."""
    match error.kind:
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches) if meant := _meant(
            branches, error, value
        ):
            for inner in meant:
                yield from _places(inner, value)
        case _:
            yield tuple(error.instance_path)


def _unfit(value: Any) -> Row:
    problem = find_unencodable(value, max_depth=200)
    return row("", "plain JSON", problem or "a value that cannot be checked")


def _merge(by_field: dict[str, Row], found: Row) -> None:
    """Keep one row for one field: a second constraint joins the first."""
    known = by_field.setdefault(found["field"], found)
    constraint = found["constraint"]
    # A property that is wrong counts as unevaluated too, and there is no more to say of it.
    if known is not found and constraint not in known["constraint"] and not constraint.startswith("no such property"):
        known["constraint"] = f"{known['constraint']}; {constraint}"


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


# --- alternatives ----------------------------------------------------------------------------------------------------


def _meant(
    branches: Sequence[Sequence[ValidationError]], error: ValidationError, value: Any
) -> Sequence[ValidationError]:
    """Return the errors of the one alternative that an object or array was meant to be; none when that is not clear."""
    here = error.instance_path
    if not isinstance(_at(value, here), dict | list):
        return ()
    likely = [branch for branch in branches if not any(_is_other_kind(inner, here) for inner in branch)]
    if len(likely) > 1:
        likely = [branch for branch in likely if not any(_is_other_tag(inner, here) for inner in branch)]
    return likely[0] if len(likely) == 1 else ()


def _is_other_kind(error: ValidationError, here: list[str | int]) -> bool:
    return error.instance_path == here and isinstance(error.kind, Kind.Type | Kind.Enum | Kind.Constant)


def _is_other_tag(error: ValidationError, here: list[str | int]) -> bool:
    """Whether a property that tells the alternatives apart says that it is another one."""
    return error.instance_path[:-1] == here and isinstance(error.kind, Kind.Enum | Kind.Constant)


# --- strict results --------------------------------------------------------------------------------------------------


def _nudge(value: Any, path: Path, nudged: set[Path]) -> Any:
    """Copy a value with every whole float made a fraction, so that a validator who takes 3.0 for 3 sees a float."""
    match value:
        case float() if value.is_integer():
            nudged.add(path)
            return 0.5 if abs(value) >= 2**51 else value + 0.5
        case dict():
            return {key: _nudge(item, (*path, key), nudged) for key, item in value.items()}
        case list() | tuple():
            return [_nudge(item, (*path, index), nudged) for index, item in enumerate(value)]
        case _:
            return value


def _wants_integer(error: ValidationError, nudged: set[Path]) -> bool:
    """Whether an error is about a float where an integer belongs, and not about the nudge."""
    match error.kind:
        case Kind.Type():
            return tuple(error.instance_path) in nudged
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            return all(any(_is_real(inner, nudged) for inner in branch) for branch in branches)
        case _:
            return False


def _is_real(error: ValidationError, nudged: set[Path]) -> bool:
    if isinstance(error.kind, Kind.AnyOf | Kind.OneOfNotValid | Kind.Type):
        return isinstance(error.kind, Kind.Type) or _wants_integer(error, nudged)
    here = tuple(error.instance_path)
    return not any(path[: len(here)] == here for path in nudged)


# --- Correcting: what a schema probably means that is not valid JSON Schema: words of old drafts, null for absent.
# Validates nothing.

_CORRECTED_KINDS = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean",
    "dict": "object", "map": "object", "list": "array", "tuple": "array", "none": "null", "nonetype": "null",
}  # fmt: skip
_ANNOTATIONS: dict[str, type] = {
    "$comment": str, "deprecated": bool, "description": str, "examples": list, "format": str, "readOnly": bool, "title": str,
    "writeOnly": bool,
}  # fmt: skip
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
_PLAIN = frozenset({
    *("additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
    *("exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength"),
    *("minProperties", "minimum", "multipleOf"),
})  # fmt: skip
"""Keywords whose value is a number or a boolean, and is written as text by some."""
_MOST_DROPPED = 100


def corrected(schema: JsonObject) -> JsonObject:
    """Return a schema as one of draft 2020-12, without the keywords in it that cannot be read."""
    fit: JsonObject = _corrected(copied(schema))
    fit.pop("$schema", None)
    for _ in range(_MOST_DROPPED):
        try:
            compiled(fit, where="schema")
            break
        except ToolDefinitionError as error:
            if not _drop_unread(fit, error.__cause__):
                break
    return fit


def _drop_unread(fit: JsonObject, error: BaseException | None) -> bool:
    """Take out of a schema what a validator cannot read: one keyword, or all names that lead nowhere. Return whether there was any."""
    path = list(error.instance_path) if isinstance(error, jsonschema_rs.ValidationError) else []
    while path and isinstance(path[-1], int):  # a list that holds what it may not
        path.pop()
    if not path:
        lost = [(one, "$ref") for one in _objects(fit) if "$ref" in one and not _target(str(one["$ref"]), fit)]
        lost = lost or [(one, word) for one in _objects(fit) for word in _NAMING.intersection(one)]
        for one, word in lost:
            del one[word]
        return bool(lost)
    owner = lookup(fit, path[:-1])
    if path[-2:-1] and path[-2] in ("properties", "$defs", "definitions"):
        owner[path[-1]] = {}  # it is where a schema should
    else:
        del owner[path[-1]]
    return True


def _corrected(schema: Any) -> Any:  # Any: what is where a schema should
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
    if word in (*_LISTED, "items") and isinstance(part, list):
        return [_corrected(one) for one in part]
    if word in _PLAIN and isinstance(part, str):
        return _read(part)
    return _corrected(part) if word in _SINGLE and isinstance(part, dict) else part


def _read(text: str) -> Any:
    """Return a number or a boolean that was written as text; the text where it is neither."""
    try:
        read = msgspec.json.decode(text.strip().lower())
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, bool | int | float) else text


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
    said = [said] if isinstance(said, str) and said.lower() not in ("true", "false") else said
    properties = schema.get("properties")
    own = properties if isinstance(properties, dict) else {}
    names = [name for name, one in own.items() if isinstance(one, dict) and str(one.get("required")).lower() == "true"]
    listed = [*said, *names] if isinstance(said, list) else names
    if listed := [one for one in listed if isinstance(one, str)]:
        fit["required"] = list(dict.fromkeys(listed))


def _types(fit: JsonObject) -> None:
    if "type" not in fit:
        return
    said = fit.pop("type")
    kinds = [one.lower() for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)]
    known = list(dict.fromkeys(_CORRECTED_KINDS.get(kind, kind) for kind in kinds))
    if known and "any" not in known:
        fit["type"] = known if isinstance(said, list) else known[0]
