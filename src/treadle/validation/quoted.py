"""Quoted: read what a model has put in quotes, or not in a list, as what the schema wants. Guesses nothing: one reading must fit, and no other."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from treadle.canonical import copied
from treadle.tools import JsonObject
from treadle.validation.schema import Path, Schema

__all__ = ["readings_of", "unquoted"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_WORDS = {"true": True, "True": True, "false": False, "False": False}
_LONGEST = 40
_MOST_PLACES = 20


def unquoted(arguments: JsonObject, schema: Schema) -> JsonObject | None:
    """Return arguments that fit: `42` for `"42"` where only a number fits, a list of one for its one item. None where that is not enough.

    Args:
        arguments: They do not fit, and stay as they are.
    """
    places = schema.misfits(arguments)
    if not 0 < len(places) <= _MOST_PLACES or () in places:
        return None
    read: JsonObject = copied(arguments)
    for path in places:
        fitting = [one for one in readings_of(_at(read, path)) if _fits(_put(copied(read), path, one), path, schema)]
        if len(fitting) != 1:
            return None
        _put(read, path, fitting[0])
    return None if schema.misfits(read) else read


def readings_of(value: Any) -> Iterator[Any]:
    """Yield what a value may mean beside itself, without anything lost."""
    scalars = [_WORDS[value]] if isinstance(value, str) and value in _WORDS else list(_numbers(value))
    yield from scalars
    if not isinstance(value, list):
        yield from ([one] for one in (value, *scalars))


def _numbers(value: Any) -> Iterator[int | float]:
    if not isinstance(value, str) or len(value) > _LONGEST or not _NUMBER.fullmatch(value):
        return
    number = float(value) if "." in value else int(value)
    if Decimal(value) == Decimal(repr(number)):
        yield number


def _fits(value: JsonObject, path: Path, schema: Schema) -> bool:
    """Whether nothing is wrong at a place and below it."""
    return not any(place[: len(path)] == path for place in schema.misfits(value))


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _put(value: JsonObject, path: Path, new: Any) -> JsonObject:
    """Put a value at a place, and return the whole."""
    _at(value, path[:-1])[path[-1]] = new
    return value
