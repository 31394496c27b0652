"""Rows: one violation in the form that models and people read. Builds them; decides none."""

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

__all__ = ["Row", "bounded", "field_path", "placed", "row"]

Row: TypeAlias = dict[str, Any]  # Any: the offending value, JSON of strangers

_INDEX = re.compile(r"\[(\d+)\]")
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


def placed(found: Row, path: Sequence[str | int], start: int) -> Row:
    """Return the violation of a part of a value as one of the whole.

    Args:
        path: Where the part is.
        start: The index of its first item, where it is some items of a list.
    """
    field = found["field"]
    if start and (index := _INDEX.match(field)):
        field = f"[{int(index[1]) + start}]{field[index.end() :]}"
    within = field_path(path)
    dot = "." if within and field and not field.startswith("[") else ""
    return {**found, "field": f"{within}{dot}{field}"}


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
