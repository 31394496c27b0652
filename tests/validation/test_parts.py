"""Parts: a large value is checked part by part, and what comes of it is what the whole would say."""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.validation import Schema
from treadle.validation.schema import divided

SCHEMAS: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "integer"}},
    {"type": "array", "items": {"$ref": "#/$defs/A"}, "maxItems": 9, "$defs": {"A": {"properties": {"a": {"type": "integer"}}}}},
    {"type": "array", "items": {"type": "array", "minItems": 1, "items": {"type": ["integer", "null"]}}},
    {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]},
    {"type": "object", "additionalProperties": {"$ref": "#/$defs/A"}, "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}},
    {"type": "object", "properties": {"a": {}, "b": {"maxItems": 2}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "object", "minProperties": 1, "additionalProperties": True}},
    {"$ref": "#/definitions/R", "maxItems": 1, "definitions": {"R": {"type": "array"}}, "$schema": "http://json-schema.org/draft-07/schema#"},
    {"type": "array", "items": [{"type": "integer"}], "$schema": "http://json-schema.org/draft-07/schema#"},
    {"type": "array", "items": {"$ref": "#"}},
    {"anyOf": [{"type": "array"}, {"required": ["a"]}]},
    {"type": "array", "items": False},
    {"type": ["object", "array"], "items": True},
]  # fmt: skip

VALUES = st.recursive(
    st.none() | st.integers(0, 2) | st.just(1.0) | st.just("x"),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=30,
)


def is_valid(schema: Any, value: Any) -> bool:
    return not Schema(schema if isinstance(schema, dict) else {"allOf": [schema]}, where="test").violations(value)


@pytest.mark.row("N10")
@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@settings(max_examples=100 if os.environ.get("TREADLE_SOAK") == "1" else 30)
@given(value=VALUES, size=st.integers(1, 6))
def test_a_value_fits_exactly_where_each_of_its_parts_fits(schema, value, size):
    parts = list(divided(schema, value, size=size))

    assert all(is_valid(part.schema, part.value) for part in parts) == is_valid(schema, value)


@pytest.mark.row("N10")
def test_a_large_value_is_divided_and_no_part_is_large():
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/R"}}},
        "$defs": {"R": {}},
    }
    parts = list(divided(schema, {"rows": [{"a": number} for number in range(50_000)], "name": "x"}))

    assert sum(len(part.value) for part in parts) == 50_001
    assert max(len(part.value) for part in parts) <= 1000


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([{"a": 1}] * 40_000 + [{"a": "x"}], "[40000].a"),
        ([{"a": 1}] * 40_000 + [{"a": 1.0}], "[40000].a"),
        ([{"a": 1}] * 3 + [{"b": [1] * 30_000 + ["x"]}], "[3].b[30000]"),
        ([{"a": "x"}, *[{"a": 1}] * 40_000], "[0].a"),
    ],
)
def test_the_place_of_a_violation_is_its_place_in_the_whole(value, field):
    gate = Schema(
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"items": {"type": "integer"}}}}},
        where="test",
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    for _ in gate.checking_result(value, found, is_heavy=True):
        pass

    assert [(row["field"], row["constraint"]) for row in found] == [(field, "integer")]


def test_a_list_of_just_as_many_items_as_it_needs_is_divided_too() -> None:
    schema = {"type": "array", "minItems": 4, "maxItems": 4, "items": {"type": "integer"}}
    assert [part.value for part in divided(schema, [1, 2, 3, 4], size=2)] == [[1, 2], [3, 4]]


def test_a_large_field_that_is_not_known_is_told_as_a_small_one_is() -> None:
    found: list[Any] = []
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    for _ in Schema(schema, where="test").checking_result({"b": [0] * 3_000}, found, is_heavy=True):
        pass
    assert [(one["field"], one["constraint"]) for one in found] == [("b", "no such property (known: a)")]
