"""Scalars in quotes: read as what the schema wants where one reading fits, and refused where none does or several do."""

from typing import Any

import pytest

from treadle.validation import Schema, unquoted


def read(kind: Any, given: Any) -> Any:
    """Return what is read where the schema of one property is of a kind; the word "refused" for nothing."""
    schema = Schema({"type": "object", "properties": {"x": kind}}, where="test")
    arguments = {"x": given}
    found = unquoted(arguments, schema)

    assert arguments == {"x": given}
    return "refused" if found is None else found["x"]


INTEGER, NUMBER, BOOLEAN, TEXT = ({"type": kind} for kind in ("integer", "number", "boolean", "string"))
NUMBERS = {"type": "array", "items": INTEGER}


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        (INTEGER, "42", 42),
        (INTEGER, "-7", -7),
        (INTEGER, "0", 0),
        (NUMBER, "3.5", 3.5),
        (NUMBER, "3.50", 3.5),
        (NUMBER, "42", 42),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False", False),
        ({"type": ["integer", "null"]}, "42", 42),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "42", 42),
        ({"enum": [1, 2]}, "2", 2),
        ({"type": "array", "items": TEXT}, "a", ["a"]),
        (NUMBERS, 42, [42]),
        (NUMBERS, "42", [42]),
        (NUMBERS, ["1", 2, "3"], [1, 2, 3]),
        ({"type": "array", "items": {"type": "object", "required": ["a"]}}, {"a": 1}, [{"a": 1}]),
        ({"type": "object", "properties": {"a": INTEGER}}, {"a": "1"}, {"a": 1}),
        ({"anyOf": [{"type": "object", "properties": {"a": INTEGER}}, {"type": "null"}]}, {"a": "1"}, {"a": 1}),
    ],
)
def test_what_is_read_of_it(kind, given, wanted):
    found = read(kind, given)

    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (INTEGER, "many"),
        (INTEGER, "3.5"),
        (INTEGER, "042"),
        (INTEGER, " 42"),
        (INTEGER, "1e3"),
        (INTEGER, "٤٢"),
        (INTEGER, ""),
        (INTEGER, "9" * 41),
        (INTEGER, [42]),
        (INTEGER, None),
        (INTEGER, True),
        (NUMBER, "NaN"),
        (NUMBER, "0.12345678901234567890123"),
        (NUMBER, "9007199254740993.0"),
        (BOOLEAN, "yes"),
        (BOOLEAN, "1"),
        (BOOLEAN, 1),
        (TEXT, 42),
        ({**INTEGER, "minimum": 50}, "42"),
        ({"anyOf": [INTEGER, NUMBERS]}, "42"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "42"),
        ({**NUMBERS, "minItems": 2}, "42"),
        (NUMBERS, ["1", "many"]),
    ],
)
def test_what_is_refused(kind, given):
    assert read(kind, given) == "refused"


def test_what_else_is_wrong_with_the_arguments_is_not_lost():
    schema = Schema({"type": "object", "properties": {"x": INTEGER}, "required": ["x", "y"]}, where="test")

    assert unquoted({"x": "42"}, schema) is None
    assert unquoted({"x": "42", "y": "42"}, schema) == {"x": 42, "y": "42"}


def test_a_large_value_is_refused_and_not_searched():
    schema = Schema({"type": "object", "properties": {"x": NUMBERS}}, where="test")

    assert unquoted({"x": ["1"] * 6_000}, schema) is None
