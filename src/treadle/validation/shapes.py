"""Shapes: a schema or a value in a few words, for models and people. Describes; validates nothing."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.tools import JsonObject
from treadle.validation.references import resolved

__all__ = ["phrase", "shape", "shape_mismatch", "shape_of_schema"]

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
