"""From signatures to schemas and back: a table of what each kind of annotation becomes. Runs no tool."""

import dataclasses
import datetime as dt
import decimal
import enum
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Unpack

import msgspec
import pydantic
import pytest
import typing_extensions
from pydantic import Field

from treadle.errors import InvalidArguments, ToolDefinitionError
from treadle.tooling.functions import describe
from treadle.tools import ToolContext, ToolOutput
from treadle.validation import Schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Line(pydantic.BaseModel):
    """Two points."""

    title: str
    start: Point


class Filter(TypedDict):
    word: str
    limit: NotRequired[int]


class Span(NamedTuple):
    low: int
    high: int


class Rate(msgspec.Struct):
    value: float


def no_parameters(): ...
def plain(a: int, b: float, c: str, d: bool): ...
def unannotated(a, b=1): ...
def optional(a: int | None, b: Optional[str] = None, c: int = None): ...  # noqa: RUF013, UP045 - what people write
def literal(mode: Literal["fast", "slow"] = "fast"): ...
def limited(n: Annotated[int, Field(ge=1, le=12, description="How many.")]): ...
def noted(n: Annotated[str, "The name."]): ...
def by_field(n: int = Field(default=3, le=9, description="Up to nine.")): ...
def enumerated(colour: Colour = Colour.RED): ...
def lists(a: list[int], b: dict[str, float], c: tuple[int, str]): ...
def union(a: int | str | list[str]): ...
def dates(day: dt.date, at: dt.datetime): ...
def of_dataclass(point: Point): ...
def nested(line: Line): ...
def typed_dict(filters: list[Filter]): ...
def positional(a: int, /, *, b: int): ...
def unfortunate(json: str, copy: str, _x: int, model_config: int): ...


MARK = object()


def sentinel(a: list[int] = MARK): ...  # type: ignore[assignment]
def with_context(a: int, ctx: ToolContext): ...
def with_text_context(a: int, ctx: "ToolContext | None" = None): ...


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}
ANY_STRING = {"type": "string"}
INTEGER = {"type": "integer"}

# function, properties, required, $defs
SNAPSHOTS: list[tuple[Callable[..., Any], dict[str, Any], list[str] | None, dict[str, Any] | None]] = [
    (no_parameters, {}, None, None),
    (
        plain,
        {"a": INTEGER, "b": {"type": "number"}, "c": ANY_STRING, "d": {"type": "boolean"}},
        ["a", "b", "c", "d"],
        None,
    ),
    (unannotated, {"a": {}, "b": {"default": 1}}, ["a"], None),
    (
        optional,
        {
            "a": {"anyOf": [INTEGER, {"type": "null"}]},
            "b": {"anyOf": [ANY_STRING, {"type": "null"}], "default": None},
            "c": {"anyOf": [INTEGER, {"type": "null"}], "default": None},
        },
        ["a"],
        None,
    ),
    (literal, {"mode": {"enum": ["fast", "slow"], "type": "string", "default": "fast"}}, None, None),
    (limited, {"n": {"type": "integer", "minimum": 1, "maximum": 12, "description": "How many."}}, ["n"], None),
    (noted, {"n": {"type": "string", "description": "The name."}}, ["n"], None),
    (by_field, {"n": {"type": "integer", "maximum": 9, "default": 3, "description": "Up to nine."}}, None, None),
    (
        enumerated,
        {"colour": {"$ref": "#/$defs/Colour", "default": "red"}},
        None,
        {"Colour": {"enum": ["red", "blue"], "type": "string"}},
    ),
    (
        lists,
        {
            "a": {"type": "array", "items": INTEGER},
            "b": {"type": "object", "additionalProperties": {"type": "number"}},
            "c": {"type": "array", "prefixItems": [INTEGER, ANY_STRING], "minItems": 2, "maxItems": 2},
        },
        ["a", "b", "c"],
        None,
    ),
    (union, {"a": {"anyOf": [INTEGER, ANY_STRING, {"type": "array", "items": ANY_STRING}]}}, ["a"], None),
    (
        dates,
        {"day": {"type": "string", "format": "date"}, "at": {"type": "string", "format": "date-time"}},
        ["day", "at"],
        None,
    ),
    (of_dataclass, {"point": {"$ref": "#/$defs/Point"}}, ["point"], {"Point": POINT}),
    (
        nested,
        {"line": {"$ref": "#/$defs/Line"}},
        ["line"],
        {
            "Point": POINT,
            "Line": {
                "type": "object",
                "description": "Two points.",
                "properties": {"title": ANY_STRING, "start": {"$ref": "#/$defs/Point"}},
                "required": ["title", "start"],
                "additionalProperties": False,
            },
        },
    ),
    (
        typed_dict,
        {"filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}},
        ["filters"],
        {
            "Filter": {
                "type": "object",
                "properties": {"word": ANY_STRING, "limit": INTEGER},
                "required": ["word"],
                "additionalProperties": False,
            }
        },
    ),
    (positional, {"a": INTEGER, "b": INTEGER}, ["a", "b"], None),
    (
        unfortunate,
        {"json": ANY_STRING, "copy": ANY_STRING, "_x": INTEGER, "model_config": INTEGER},
        ["json", "copy", "_x", "model_config"],
        None,
    ),
    (sentinel, {"a": {"type": "array", "items": INTEGER}}, None, None),
    (with_context, {"a": INTEGER}, ["a"], None),
    (with_text_context, {"a": INTEGER}, ["a"], None),
]


@pytest.mark.row("T02")
@pytest.mark.parametrize(
    ("function", "properties", "required", "defs"), SNAPSHOTS, ids=[row[0].__name__ for row in SNAPSHOTS]
)
def test_a_signature_becomes_a_schema(function, properties, required, defs):
    expected = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        expected["required"] = required
    if defs:
        expected["$defs"] = defs

    parameters = describe(function).parameters

    assert parameters == expected
    assert list(parameters["properties"]) == list(properties)


@pytest.mark.parametrize("function", [with_context, with_text_context])
def test_the_context_is_found_and_never_shown(function):
    assert describe(function).context_parameter == "ctx"


GOOGLE = """Fetch one biography.

    Independent calls may be issued in parallel.

    Args:
        name: The member's name,
            as in the roster.
        ctx: Given by the runtime.

    Returns:
        What is known.

    Example:
        get("Sam")
"""
NUMPY = """Fetch one biography.

    Parameters
    ----------
    name : str
        The member's name,
        as in the roster.

    Returns
    -------
    dict
        What is known.
"""
REST = """Fetch one biography.

    :param name: The member's name,
        as in the roster.
    :returns: What is known.
"""


@pytest.mark.row("T02")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        (
            GOOGLE,
            (
                "Fetch one biography.\n\nIndependent calls may be issued in parallel.\n\n"
                'Returns:\n    What is known.\n\nExample:\n    get("Sam")'
            ),
        ),
        (NUMPY, "Fetch one biography.\n\nReturns\n-------\ndict\n    What is known."),
        (REST, "Fetch one biography.\n\n:returns: What is known."),
    ],
    ids=["google", "numpy", "rest"],
)
def test_the_docstring_is_the_description_and_its_arguments_describe_the_parameters(text, description):
    def get(name: str, ctx: ToolContext): ...

    get.__doc__ = text
    found = describe(get)

    assert found.description == description
    assert found.parameters["properties"]["name"]["description"] == "The member's name, as in the roster."


def test_an_annotation_says_more_than_the_docstring():
    def get(name: Annotated[str, Field(description="From the annotation.")]):
        """Get.

        Args:
            name: From the docstring.
        """

    assert describe(get).parameters["properties"]["name"]["description"] == "From the annotation."


@pytest.mark.row("V11")
@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, INTEGER),
        (None, {"type": "null"}),
        (Any, None),
        (ToolOutput, None),
        (int | ToolOutput, None),
        (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}, "$defs": {"Point": POINT}}),
        (Span, {"type": "array", "prefixItems": [INTEGER, INTEGER], "minItems": 2, "maxItems": 2}),
    ],
    ids=repr,
)
def test_the_return_annotation_is_the_output_contract(annotation, schema):
    def get(): ...

    get.__annotations__["return"] = annotation

    assert describe(get).output_schema == schema
    assert describe(no_parameters).output_schema is None


def test_a_struct_is_an_output_contract_too():
    def get() -> Rate: ...

    schema = Schema(describe(get).output_schema, where="output")

    assert schema.check_result({"value": 1.5}) == []
    assert schema.check_result({"rate": 1.5}) != []


@pytest.mark.row("V07")
def test_json_becomes_the_values_of_the_annotations():
    def get(day: dt.date, point: Point, colour: Colour, line: Line, price: decimal.Decimal, filters: list[Filter]): ...

    values = describe(get).convert(
        {
            "day": "2024-01-02",
            "point": {"x": 1},
            "colour": "blue",
            "line": {"title": "a", "start": {"x": 2}},
            "price": "1.10",
            "filters": [{"word": "w"}],
        }
    )

    assert values == {
        "day": dt.date(2024, 1, 2),
        "point": Point(1),
        "colour": Colour.BLUE,
        "line": Line(title="a", start=Point(2)),
        "price": decimal.Decimal("1.10"),
        "filters": [{"word": "w"}],
    }


def test_a_declared_default_gives_the_function_its_own_value():
    mark = object()

    def get(a: int = 3, b: Point = Point(7), c: Any = mark, d: list[int] = Field(default_factory=list)): ...  # noqa: B008 - what people write

    described = describe(get)
    filled = Schema(described.parameters, where="parameters").with_defaults({})

    assert filled == {"a": 3, "b": {"x": 7, "y": 0}}
    assert described.convert(filled) == {"a": 3, "b": Point(7), "c": mark, "d": []}


def test_what_does_not_convert_is_invalid_arguments_with_every_row():
    def positive(value: int) -> int:
        if value < 0:
            raise ValueError("must not be negative")
        return value

    def get(n: Annotated[int, pydantic.AfterValidator(positive)], points: list[Point], day: dt.date): ...

    with pytest.raises(InvalidArguments, match="`n`: must not be negative") as caught:
        describe(get).convert({"n": -1, "points": [{"x": 1}], "day": "2024-02-30"})

    rows = list(caught.value.details)
    assert rows[0] == {"field": "n", "constraint": "must not be negative", "value": -1}
    assert [row["field"] for row in rows] == ["n", "day"]
    assert {frozenset(row) for row in rows} == {frozenset({"field", "constraint", "value"})}


def arguments(*names): ...
def keywords(**names: int): ...
def unpacked(a: int, **options: Unpack[Filter]): ...
def unpacked_by_extensions(**options: typing_extensions.Unpack[Filter]): ...
def callback(then: Callable[[], None]): ...
def method(self, a: int): ...
def twice(a: ToolContext, b: ToolContext): ...
def unknown(a: "Nowhere"): ...  # noqa: F821 - that is the point
def returns_callable() -> Callable[[], None]: ...
def looks_around(a: Annotated[str, pydantic.Field(pattern="(?=a)b")]): ...


@pytest.mark.row("T02")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (arguments, r"parameter \*names .* write `names: list\[str\]`"),
        (keywords, r"parameter \*\*names .* write `names: dict\[str, int\]`"),
        (unpacked, r"parameter \*\*options .* Write `options: Filter`, without stars and Unpack"),
        (unpacked_by_extensions, r"Write `options: Filter`"),
        (callback, "parameter 'then'"),
        (method, "bound method"),
        (twice, "'a' and 'b' are both a ToolContext"),
        (unknown, "'Nowhere' is not defined"),
        (returns_callable, "return annotation"),
        (looks_around, "parameter 'a' .*look-around, including look-ahead and look-behind, is not supported"),
    ],
)
def test_what_cannot_be_described_is_a_definition_error_that_names_it(function, words):
    with pytest.raises(ToolDefinitionError, match=words) as caught:
        describe(function)

    assert repr(function.__name__) in str(caught.value)


def test_a_function_that_is_not_written_in_python_is_described_by_its_signature():
    found = describe(operator.add)

    assert (found.name, found.positional) == ("add", ("a", "b"))
    assert found.parameters["required"] == ["a", "b"]


def test_a_value_with_parts_that_does_not_convert_is_told_by_its_kind():
    def refuse(values: list[int]) -> list[int]:
        raise ValueError("must ascend")

    def get(values: Annotated[list[int], pydantic.AfterValidator(refuse)]): ...

    with pytest.raises(InvalidArguments) as caught:
        describe(get).convert({"values": [2, 1]})

    assert list(caught.value.details) == [{"field": "values", "constraint": "must ascend", "value": "list"}]
