"""Corrections: what a model reads about arguments that do not fit: one template a fault, and the form that is wanted. Checks nothing itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.tools import JsonObject
from treadle.validation.quoted import readings_of
from treadle.validation.schema import Schema, phrase, resolved

__all__ = ["Wanted", "correction", "form_of", "wanted_of"]

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
_WITH_WANTED = "`{field}` must be {constraint}: write {wanted}, not {value}."
"""Where the value itself says what is meant."""
_RENAMED = "`{field}` is not a parameter: its name is `{wanted}`."
"""Where one name is unknown, and its value is what the only missing parameter wants."""


class Wanted(NamedTuple):
    """What is wrong with arguments, and how they are wanted."""

    said: str
    """One sentence a fault; empty where nothing is wrong."""
    form: str = ""
    """The arguments with what is wanted in place of what is wrong; empty where that cannot be shown."""
    is_complete: bool = False
    """Whether the form is JSON as it stands: no value is left for the model to find."""


def correction(arguments: JsonObject, faults: Sequence[Mapping[str, Any]], schema: JsonObject) -> str:
    """Return what is wrong, and the arguments as they are wanted: with the model's own values where these fit.

    Args:
        faults: The violations, as `Schema.violations` returns them; at least one.
        schema: Of the arguments.
    """
    wanted = _wanted_of(arguments, faults, schema)
    return f"{wanted.said} The arguments must have this form: {wanted.form}" if wanted.form else wanted.said


def wanted_of(arguments: JsonObject, schema: JsonObject) -> Wanted:
    """Return what is wrong with arguments, and how they are wanted."""
    faults = Schema(schema, where="correction").violations(arguments)
    return _wanted_of(arguments, faults, schema) if faults else Wanted("")


def _wanted_of(arguments: JsonObject, faults: Sequence[Mapping[str, Any]], schema: JsonObject) -> Wanted:
    if renamed := _renamed(arguments, faults, schema):
        unknown, name = renamed
        arguments = {name if own == unknown else own: value for own, value in arguments.items()}
        return Wanted(_RENAMED.format(field=unknown, wanted=name), _form(arguments, (), {}, schema), is_complete=True)
    more = f" (and {len(faults) - _MOST_FAULTS} more)" if len(faults) > _MOST_FAULTS else ""
    wanted = {str(fault["field"]): meant for fault in faults if (meant := _meant(arguments, fault, schema)) is not None}
    said = " ".join([_said(fault, wanted.get(str(fault["field"]))) for fault in faults[:_MOST_FAULTS]])
    faulty = [str(fault["field"]) for fault in faults]
    left_out = ("no such property", "not allowed")
    is_complete = all(fault["field"] in wanted or str(fault["constraint"]).startswith(left_out) for fault in faults)
    return Wanted(f"{said}{more}", _form(arguments, faulty, wanted, schema), is_complete)


def _renamed(arguments: JsonObject, faults: Sequence[Mapping[str, Any]], schema: JsonObject) -> tuple[str, str] | None:
    """Return the one wrong name of a parameter and the right one; None where anything else is wrong, or the value would not fit."""
    unknown = [str(fault["field"]) for fault in faults if str(fault["constraint"]).startswith("no such property")]
    missing = [str(fault["field"]) for fault in faults if fault["constraint"] == "required"]
    if len(faults) != 2 or len(unknown) != 1 or len(missing) != 1 or unknown[0] not in arguments:
        return None
    named = {missing[0] if own == unknown[0] else own: value for own, value in arguments.items()}
    is_fit = len(named) == len(arguments) and not Schema(schema, where="correction").violations(named)
    return (unknown[0], missing[0]) if is_fit else None


def _said(fault: Mapping[str, Any], wanted: str | None) -> str:
    constraint = str(fault["constraint"])
    template = (
        next(words for start, words in _TEMPLATES if constraint.startswith(start)) if wanted is None else _WITH_WANTED
    )
    field = fault["field"] or "the arguments"
    return template.format(field=field, constraint=constraint, value=_quoted(fault.get("value")), wanted=wanted)


def _meant(arguments: JsonObject, fault: Mapping[str, Any], schema: JsonObject) -> str | None:
    """Return, as JSON, the one value that a wrong one can mean; None where there is none, or several, or it is deep inside."""
    properties, name = resolved(schema, schema).get("properties"), fault["field"]
    if not isinstance(properties, dict) or name not in properties or name not in arguments:
        return None
    value, one = arguments[name], resolved(properties[name], schema)
    options = one.get("enum")
    readings = [*_near(value, options)] if isinstance(options, list) else [*readings_of(value), *_text(value)]
    definitions: JsonObject = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    whole = Schema({"type": "object", "properties": {name: one}, **definitions}, where="correction")
    fitting = [reading for reading in readings if not whole.violations({name: reading})]
    return _quoted(fitting[0]) if len(fitting) == 1 else None


def _near(value: Any, options: Sequence[Any]) -> Iterator[str]:
    """Yield the words that a word may stand for: by another case, or one the beginning of the other."""
    said = value.strip().casefold() if isinstance(value, str) else ""
    words = [option for option in options if isinstance(option, str)]
    same = [option for option in words if option.casefold() == said]
    yield from same or [
        option
        for option in words
        if said and (said.startswith(option.casefold()) or option.casefold().startswith(said))
    ]


def _text(value: Any) -> Iterator[str]:
    if isinstance(value, int | float):
        yield _quoted(value)


def _quoted(value: Any) -> str:
    """Show a value as the model writes it: JSON. A value that is not JSON is shown by its repr."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _form(arguments: JsonObject, faulty: Sequence[str], meant: Mapping[str, str], schema: JsonObject) -> str:
    """Return the arguments with what is wanted in place of what is wrong; empty where that is deep inside, or too long to be read."""
    whole = resolved(schema, schema)
    properties = whole.get("properties")
    if not isinstance(properties, dict) or any(re.search(r"[.\[]", name) or not name for name in faulty):
        return ""
    required = [name for name in whole.get("required", ()) if name in properties]
    names = dict.fromkeys([*(name for name in arguments if name in properties), *required])
    wanted = [
        f"{_quoted(name)}: {meant.get(name) or f'<{phrase(properties[name], schema)}>'}"
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
