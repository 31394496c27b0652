"""Corrections: what a model reads about arguments that do not fit: one template a fault, and the form that is wanted. Checks nothing itself."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.tools import JsonObject
from treadle.validation.schema import phrase, resolved

__all__ = ["correction", "form_of"]

_MOST_FAULTS = 3
_LONGEST_VALUE = 80
_LONGEST_FORM = 400
_LONGEST_ANSWER = 1000
_DEEPEST = 4

_TEMPLATES = (
    # What the constraint begins with, and what is said of it; the last fits any other.
    ("required together", "`{field}` is missing: it is {constraint}."),
    ("required", "`{field}` is missing."),
    ("no such property", "`{field}` is not a parameter: leave it out."),
    ("not allowed", "`{field}` is not allowed here: leave it out."),
    ("", "`{field}` must be {constraint}, not {value}."),
)


def correction(arguments: JsonObject, faults: Sequence[Mapping[str, Any]], schema: JsonObject) -> str:
    """Return what is wrong, and the arguments as they are wanted: with the model's own values where these fit.

    Args:
        faults: The violations, as `Schema.violations` returns them; at least one.
        schema: Of the arguments.
    """
    more = f" (and {len(faults) - _MOST_FAULTS} more)" if len(faults) > _MOST_FAULTS else ""
    said = " ".join(map(_said, faults[:_MOST_FAULTS]))
    form = _form(arguments, [str(fault["field"]) for fault in faults], schema)
    return f"{said}{more}" + (f" The arguments must have this form: {form}" if form else "")


def _said(fault: Mapping[str, Any]) -> str:
    constraint = str(fault["constraint"])
    template = next(words for start, words in _TEMPLATES if constraint.startswith(start))
    field = fault["field"] or "the arguments"
    return template.format(field=field, constraint=constraint, value=_quoted(fault.get("value")))


def _quoted(value: Any) -> str:
    """Show a value as the model writes it: JSON. A value that is not JSON is shown by its repr."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _form(arguments: JsonObject, faulty: Sequence[str], schema: JsonObject) -> str:
    """Return the arguments with what is wanted in place of what is wrong; empty where that is deep inside, or too long to be read."""
    whole = resolved(schema, schema)
    properties = whole.get("properties")
    if not isinstance(properties, dict) or any(re.search(r"[.\[]", name) or not name for name in faulty):
        return ""
    required = [name for name in whole.get("required", ()) if name in properties]
    names = dict.fromkeys([*(name for name in arguments if name in properties), *required])
    wanted = [
        f"{_quoted(name)}: <{phrase(properties[name], schema)}>"
        if name in faulty
        else f"{_quoted(name)}: {_own(arguments[name])}"
        for name in names
    ]
    form = f"{{{', '.join(wanted)}}}"
    return form if len(form) <= _LONGEST_FORM else ""


def form_of(schema: JsonObject) -> str:
    """Return what a schema wants in the form of JSON: `{"name": <string>, "people": <integer>}`."""
    form = _wanted(schema, schema, _DEEPEST)
    return form if len(form) <= _LONGEST_ANSWER else form[: _LONGEST_ANSWER - 3] + "..."


def _wanted(schema: Any, root: JsonObject, depth: int) -> str:  # Any: an object, true or false
    whole = resolved(schema, root)
    properties, items = whole.get("properties"), whole.get("items")
    alternatives = whole.get("anyOf") or whole.get("oneOf")
    if depth and isinstance(alternatives, list):
        return " or ".join(dict.fromkeys(_wanted(one, root, depth - 1) for one in alternatives))
    if depth and isinstance(properties, dict) and properties:
        needed = whole.get("required", ())
        fields = [
            f"{_quoted(name)}: {_wanted(one, root, depth - 1)}{'' if name in needed else ' (may be left out)'}"
            for name, one in properties.items()
        ]
        return f"{{{', '.join(fields)}}}"
    if depth and isinstance(items, dict) and whole.get("type") == "array":
        return f"[{_wanted(items, root, depth - 1)}, ...]"
    return f"<{phrase(whole, root)}>"


def _own(value: Any) -> str:
    return msgspec.json.encode(value).decode()
