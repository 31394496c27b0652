"""Schemas at their edges."""

from typing import Any

import msgspec
import pydantic
import pytest

from treadle.errors import ToolDefinitionError
from treadle.validation.plain import NotData, data_of
from treadle.validation.schema import Defaults, Schema, compiled


def test_without_a_default_the_arguments_are_the_same_object() -> None:
    arguments = {"a": {"b": 1}}

    assert Defaults({"type": "object", "properties": {"a": {"type": "object"}}}).fill(arguments) is arguments
    filled = Defaults({"type": "object", "properties": {"c": {"default": 3}}}).fill(arguments)
    assert (filled, arguments) == ({"a": {"b": 1}, "c": 3}, {"a": {"b": 1}})


@pytest.mark.parametrize("schema", [{"type": "object", "x": object()}, {"enum": [{1, 2}]}, {"default": float("nan")}])
def test_a_schema_that_is_not_json_is_refused_where_it_is_given(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="The parameters cannot be used: it cannot be written as JSON: "):
        Schema(schema, where="parameters")


def test_a_value_of_very_many_parts_is_judged_by_its_first_violation() -> None:
    schema = Schema({"type": "array", "items": {"type": "integer"}}, where="result")

    assert schema.violations(list(range(100_000))) == []
    found = schema.violations([*range(100_000), "x", "y"])
    assert len(found) == 1
    assert found[0]["field"] == "[100000]"


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"required": ["a"]}, {}, "required"),
        (
            {"dependentRequired": {"card": ["name"], "iban": ["name"]}},
            {"card": 1},
            "required together with card or iban",
        ),
        ({"dependencies": {"card": ["name"]}}, {"card": 1}, "required together with card"),
    ],
)
def test_a_missing_field_says_why_it_is_required(schema: Any, value: Any, why: str) -> None:
    (found,) = Schema({"type": "object", **schema}, where="parameters").violations(value)

    assert found["constraint"] == why


class Holder(pydantic.BaseModel):
    """A model that holds anything."""

    items: Any


class Row(msgspec.Struct, array_like=True):
    """A struct that becomes an array."""

    items: Any


def test_a_struct_that_becomes_an_array_is_as_deep_as_that() -> None:
    deep: Any = 0
    for _ in range(200):
        deep = [deep]

    assert data_of(Row(deep)) == [deep]
    with pytest.raises(NotData, match="nested too deeply"):
        data_of(Row([deep]))


@pytest.mark.parametrize("make", [lambda items: {"items": items}, lambda items: Holder(items=items)])
def test_a_model_is_as_deep_as_the_object_that_it_becomes(make: Any) -> None:
    """A model itself counts as one level more."""
    own = int(isinstance(make(0), Holder))
    deep: Any = 0
    for _ in range(200 - own):
        deep = [deep]

    assert data_of(make(deep)) == {"items": deep}
    with pytest.raises(NotData, match="nested too deeply"):
        data_of(make([deep]))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {1: {}}}, "Dict key must be str or str enum. Got 'int'"),
        ({"enum": [{1, 2}]}, "Unsupported type: 'set'"),
        ({"minimum": "x"}, 'the value is not of type "number" (at minimum)'),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        compiled(schema, where="schema")

    assert str(refused.value) == f"The schema cannot be used: it is not a valid JSON Schema: {why}."
