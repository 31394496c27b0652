"""Defaults of a tool that a JSON Schema describes: the same whatever the order of the arguments, and never one that does not fit."""

import itertools
import logging

import pytest

from treadle import Agent, Tool, allow
from treadle.canonical import read_only
from treadle.testing import ScriptedModel, call, text
from treadle.validation import Schema

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


@pytest.mark.parametrize("of", [dict, read_only], ids=["plain", "read-only"])
def test_nested_defaults_do_not_depend_on_the_order_of_the_arguments(of) -> None:
    names = list(GIVEN)
    orders = [names[start:] + names[:start] for start in range(len(names))] + [names[::-1]]
    for order in [*orders, *itertools.permutations(["s", "o", "items", "any"])]:
        gate = Schema(of(NESTED), where="parameters")
        for _ in range(2):  # what was learnt from one call must not change the next
            assert gate.with_defaults({name: GIVEN[name] for name in order}) == {name: FILLED[name] for name in order}


async def test_an_agents_tool_gets_nested_defaults_in_every_order_of_its_arguments() -> None:
    seen = []
    tool = Tool(
        name="list",
        description="List.",
        effect="read",
        parameters=NESTED,
        run=lambda arguments, ctx: seen.append(arguments),
    )
    given = [{"o": {}, "s": "n"}, {"s": "n", "o": {}}, {"items": [{}], "s": "n"}, {"s": "n", "items": [{}]}]
    agent = Agent(ScriptedModel([*(call("list", **one) for one in given), text("Done.")]), tools=[tool])

    assert (await agent.run("Go")).completed
    assert seen == [{"o": {"limit": 10}, "s": "n"}] * 2 + [{"items": [{"limit": 10}], "s": "n"}] * 2


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
