"""Defaults that a schema declares: filled in at every level, the same whatever the order of the arguments, and never one that does not fit."""

import itertools
import logging

import pytest

from treadle import Agent, Tool, allow
from treadle.canonical import read_only
from treadle.testing import ScriptedModel, call, text
from treadle.validation.schema import Defaults, Schema

LIMIT = {"type": "object", "properties": {"limit": {"type": "integer", "default": 10}}}
NESTED = {
    "type": "object",
    "$defs": {"Limit": LIMIT, "Tree": {"type": "object", "properties": {"n": {"default": 1}, "in": {"$ref": "#/$defs/Tree"}}}},
    "properties": {
        "s": {"type": "string"},
        "o": LIMIT,
        "items": {"type": "array", "items": LIMIT},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, LIMIT]},
        "ref": {"$ref": "#/$defs/Limit"},
        "any": {"anyOf": [{"$ref": "#/$defs/Limit"}, {"type": "null"}]},
        "all": {"allOf": [LIMIT, {"type": "object", "properties": {"more": {"default": True}}}]},
        "map": {"type": "object", "additionalProperties": LIMIT},
        "tree": {"$ref": "#/$defs/Tree"},
    },
}  # fmt: skip
GIVEN = {
    "s": "n", "o": {}, "items": [{}, {"limit": 2}, {}], "pair": ["a", {}], "ref": {}, "any": {}, "all": {}, "map": {"k": {}},
    "tree": {"in": {"in": {}}},
}  # fmt: skip
FILLED = {
    "s": "n",
    "o": {"limit": 10},
    "items": [{"limit": 10}, {"limit": 2}, {"limit": 10}],
    "pair": ["a", {"limit": 10}],
    "ref": {"limit": 10},
    "any": {"limit": 10},
    "all": {"limit": 10, "more": True},
    "map": {"k": {"limit": 10}},
    "tree": {"n": 1, "in": {"n": 1, "in": {"n": 1}}},
}


def obj(properties, **more):
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


@pytest.mark.row("V07")
@pytest.mark.parametrize("of", [dict, read_only], ids=["plain", "read-only"])
def test_nested_defaults_do_not_depend_on_the_order_of_the_arguments(of) -> None:
    names = list(GIVEN)
    orders = [names[start:] + names[:start] for start in range(len(names))] + [names[::-1]]
    for order in [*orders, *itertools.permutations(["s", "o", "items", "any"])]:
        gate = Schema(of(NESTED), where="parameters")
        for _ in range(2):  # what was learnt from one call must not change the next
            assert gate.with_defaults({name: GIVEN[name] for name in order}) == {name: FILLED[name] for name in order}


UNFIT = {
    "folder": {"type": "string", "default": None},
    "deep": {"type": "boolean", "default": "true"},
    "depth": {"type": "integer", "minimum": 1, "default": 0},
    "kind": {"enum": ["a", "b"], "default": "c"},
    "day": {"type": "string", "format": "date", "default": "today"},
    "same": {"$ref": "#/properties/depth", "default": "x"},
    "box": {"type": "object", "required": ["w"], "properties": {"w": {"type": "integer", "default": "1"}}, "default": {}},
    "tags": {"type": "array", "items": {"type": "string"}, "default": [1]},
}  # fmt: skip
FITTING = {
    "limit": {"type": "integer", "default": 5},
    "other": {"$ref": "#/properties/depth", "default": 2},
    "size": {
        "type": "object",
        "required": ["w"],
        "properties": {"w": {"type": "integer", "default": 1}},
        "default": {},
    },
}


async def test_a_default_that_does_not_fit_takes_no_tool_away_and_is_not_filled_in(caplog) -> None:
    seen = []
    parameters = {"type": "object", "properties": {**UNFIT, **FITTING}}
    tool = Tool(
        name="find_odd", description="Find.", parameters=parameters, run=lambda arguments, ctx: seen.append(arguments)
    )
    model = ScriptedModel([call("find_odd"), call("find_odd", box={"w": 3}, tags=["a"]), text("Done.")])
    with caplog.at_level(logging.WARNING, "treadle"):
        agent = Agent(model, tools=[tool], policy=allow("*"))
        agent.check()
        assert (await agent.run("Go")).completed

    filled = {"limit": 5, "other": 2, "size": {"w": 1}}
    assert seen == [filled, {"box": {"w": 3}, "tags": ["a"], **filled}]
    told = [one.getMessage() for one in caplog.records if "find_odd: a default" in one.getMessage()]
    assert [one.split("`")[1] for one in told] == [
        "folder",
        "deep",
        "depth",
        "kind",
        "day",
        "same",
        "box.w",
        "tags[0]",
        "w",
    ]
    assert told[0] == (
        "Tool find_odd: a default does not fit and is not filled in: `folder`: expected string; got null."
    )


def test_without_a_default_the_arguments_are_the_same_object() -> None:
    arguments = {"a": {"b": 1}}

    assert Defaults({"type": "object", "properties": {"a": {"type": "object"}}}).fill(arguments) is arguments
    filled = Defaults({"type": "object", "properties": {"c": {"default": 3}}}).fill(arguments)
    assert (filled, arguments) == ({"a": {"b": 1}, "c": 3}, {"a": {"b": 1}})


def test_a_default_is_a_new_value_each_time():
    schema = Schema(obj({"tags": {"type": "array", "default": []}}), where="parameters")

    schema.with_defaults({})["tags"].append("x")

    assert schema.with_defaults({}) == {"tags": []}


CITY = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"default": 3}}, "required": ["name"]}
HOLDS_ITSELF = {"type": "object", "properties": {"child": {"$ref": "#/$defs/N", "default": {}}}}
REFERS_TO_ITSELF = obj({"n": {"default": 1}, "child": {"$ref": "#/$defs/N"}}, allOf=[{"$ref": "#/$defs/N"}])
CAT = obj({"kind": {"const": "cat"}, "lives": {"default": 9}})
DOG = obj({"kind": {"const": "dog"}, "legs": {"default": 4}})


def city_in(place):
    return obj({"a": {"anyOf": [{"type": "null"}, {"$ref": f"#/{place}/City"}]}}, **{place: {"City": CITY}})


def node(definition):
    return obj({"a": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": definition}})


ONCE = [
    (city_in("$defs"), {"name": "Bree"}, {"name": "Bree", "size": 3}),
    (city_in("definitions"), {"name": "Bree"}, {"name": "Bree", "size": 3}),
    (node(HOLDS_ITSELF), {}, {"child": {}}),
    (node(REFERS_TO_ITSELF), {"child": {}}, {"n": 1, "child": {"n": 1}}),
    (obj({"a": {"oneOf": [CAT, DOG]}}), {"kind": "dog"}, {"kind": "dog", "legs": 4}),
]


@pytest.mark.parametrize(("schema", "given", "filled"), ONCE)
def test_the_schema_that_fits_fills_each_level_once_wherever_it_is_defined(schema, given, filled):
    assert Schema(schema, where="parameters").with_defaults({"a": given}) == {"a": filled}


@pytest.mark.row("V07")
@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        (obj({"a": {"type": "integer", "default": "x"}, "b": {"type": "integer"}}, required=["b"]), ["a"]),
        (obj({"a": obj({"b": {"type": "integer", "default": "x"}}, required=["c"])}), ["b"]),
        (obj({"a": {"items": obj({"b": {"minimum": 2, "default": 1}})}}), ["b"]),
        (obj({"a": {"$ref": "#/$defs/A", "default": "z"}}, **{"$defs": {"A": {"enum": ["x"]}}}), ["a"]),
        (obj({"a": {"anyOf": [obj({"b": {"type": "null", "default": 0}}), {"type": "null"}], "default": None}}), ["b"]),
        (obj({"a": {"properties": {"b": {"type": "integer"}}, "default": {"b": "x"}}}), ["a.b"]),
        (obj({"default": {"type": "integer", "default": "x"}}), ["default"]),
        (obj({"a": {"enum": [1, {"properties": {"b": {"type": "integer", "default": "x"}}}], "default": 1}}), []),
        (obj({"a": {"type": "integer", "default": 1}, "b": {"default": None}}, required=["c"], minProperties=5), []),
    ],
)
def test_declared_defaults_that_do_not_fit_are_found_at_every_level(schema, fields):
    assert [row["field"] for row in Schema(schema, where="parameters").unfit_defaults()] == fields
