"""`@tool`: what a decorated function becomes, and what is refused at definition."""

import asyncio
import functools
import inspect
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import Field

from treadle.errors import ToolDefinitionError
from treadle.tooling.decorators import tool
from treadle.tools import Effect, Tool, ToolContext
from treadle.validation import Schema


@dataclass
class Box:
    width: int = "wide"  # type: ignore[assignment]  # that is the point


class Context:
    """A stand-in for the runtime's own: these tests only look at who gets it."""


@pytest.mark.row("T01")
async def test_a_function_becomes_a_tool_that_can_be_run_directly():
    @tool
    async def greet(name: str, ctx: ToolContext) -> str:
        """Say hello."""
        assert isinstance(ctx, Context)
        return f"Hello {name}"

    assert isinstance(greet, Tool)
    assert (greet.name, greet.description, greet.effect) == ("greet", "Say hello.", Effect.UNSAFE)
    assert greet.output_schema == {"type": "string"}
    assert inspect.iscoroutinefunction(greet.run)
    assert await greet.run({"name": "Sam"}, Context()) == "Hello Sam"


def test_a_plain_function_stays_plain_so_that_the_runtime_gives_it_a_thread():
    @tool(effect="read")
    def add(a: int, /, b: int = 2) -> int:
        return a + b

    assert not inspect.iscoroutinefunction(add.run)
    assert add.run({"a": 1}, Context()) == 3
    assert add.run(add.convert({"a": 1, "b": 5}), Context()) == 6


async def test_a_wrapped_coroutine_function_is_awaited():
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return name

    assert inspect.iscoroutinefunction(greet.run)
    assert await greet.run({"name": "Sam"}, Context()) == "Sam"


@pytest.mark.row("T05")
def test_each_word_reaches_the_tool():
    async def check(arguments, ctx): ...

    words = {
        "effect": "keyed",
        "timeout": 3.0,
        "retries": 0,
        "resources": lambda arguments: {"file": "write"},
        "check": check,
        "permission": "ask",
        "result_limit": 10,
        "visible": False,
        "guidance": "Pay once.",
        "ends_run": True,
        "examples": ({"amount": 3},),
    }

    @tool(name="settle", **words)
    def pay(amount: int) -> None: ...

    assert pay.name == "settle"
    assert {word: getattr(pay, word) for word in words} == words


def test_an_effect_may_be_a_function_of_the_arguments():
    @tool(effect=lambda arguments: "read" if arguments["command"] == "ls" else "unsafe")
    def shell(command: str) -> str: ...

    assert shell.effect_of({"command": "ls"}) is Effect.READ
    assert shell.effect_of({"command": "rm"}) is Effect.UNSAFE
    assert shell.effect_of({}) is Effect.UNSAFE


def test_a_bound_method_is_a_tool():
    class Shire:
        def roster(self, limit: int = 3) -> list[str]:
            """List members."""
            return ["Frodo", "Sam"][:limit]

    made = tool(Shire().roster, effect="read")

    assert list(made.parameters["properties"]) == ["limit"]
    assert made.run({"limit": 1}, Context()) == ["Frodo"]


def test_annotations_may_be_text_and_name_local_classes():
    class Local(TypedDict):
        a: int

    @tool
    def first(x: "Local") -> "Local": ...

    @tool(effect="read")
    def second(x: "list[Local]", ctx: "ToolContext") -> "None": ...

    assert first.output_schema == first.parameters["$defs"]["Local"]
    assert list(second.parameters["properties"]) == ["x"]


def test_a_tool_may_name_itself_and_what_is_bound_later():
    @tool(effect="read")
    async def walk(depth: int) -> str:
        return await walk.run({"depth": depth - 1}, Context()) if depth else later

    later = "done"

    assert asyncio.run(walk.run({"depth": 3}, Context())) == "done"


def test_a_class_of_the_author_with_one_of_our_names_stays_the_authors():
    made: dict[str, Any] = {}
    source = """
from __future__ import annotations
from typing import TypedDict
from treadle import tool

class ToolOutput(TypedDict):
    a: int

@tool
def get() -> ToolOutput: ...
"""
    exec(compile(source, "own.py", "exec"), made)

    assert made["get"].output_schema["required"] == ["a"]


def bad_kind(kind: Literal["plain", "rich"] = "pretty"): ...
def bad_number(count: Annotated[int, Field(ge=1)] = 0): ...
def bad_text(count: int = "many"): ...  # type: ignore[assignment]
def bad_flag(count: int = True): ...
def bad_list(tags: list[int] = [1, "a"]): ...  # type: ignore[list-item]  # noqa: B006


@pytest.mark.row("V07")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (bad_kind, """the default of 'kind' does not fit: expected one of "plain", "rich"; got "pretty"."""),
        (bad_number, "the default of 'count' does not fit: expected integer, at least 1; got 0."),
        (bad_text, """the default of 'count' does not fit: expected integer; got "many"."""),
        (bad_flag, "the default of 'count' does not fit: expected integer; got true."),
        (bad_list, """the default of 'tags[1]' does not fit: expected integer; got "a"."""),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_default_that_does_not_fit_its_own_parameter_is_refused_at_definition(function, words):
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function)

    assert str(refused.value) == f"Tool {function.__name__!r}: {words}"


def test_a_default_that_json_cannot_say_is_the_functions_own():
    @tool
    def get(limit: float = math.inf, missing: float = math.nan, count: float = 1) -> str:
        return f"{limit} {missing} {count}"

    assert get.parameters["properties"]["limit"] == {"type": "number"}
    assert get.parameters["properties"]["missing"] == {"type": "number"}
    assert get.run(get.convert({}), Context()) == "inf nan 1"


@pytest.mark.row("V08")
def test_the_schema_that_the_model_sees_is_the_one_that_is_enforced():
    @tool
    def summon(quantity: int, *, planet: str = "Skaro") -> None: ...

    gate = Schema(summon.parameters, where="parameters")

    assert gate.violations({"quantity": 1, "planet": "Earth"}) == []
    assert [row["field"] for row in gate.violations({"quantity": "many", "speed": 1})] == ["quantity", "speed"]
    assert gate.with_defaults({"quantity": 1}) == {"quantity": 1, "planet": "Skaro"}
    assert summon.convert({"quantity": 1}) == {"quantity": 1, "planet": "Skaro"}


async def agen():
    yield 1


def gen():
    yield 1


class Callable:
    def __call__(self): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (agen, "collect the items"),
        (gen, "collect the items"),
        (Callable, "is a class"),
        (functools.partial(print, "x"), r"Tool 'print': parameter \*args"),
        (lambda: 1, "A lambda has no name"),
        ("greet", "got a str"),
        (tool(lambda: 1, name="greet"), "'greet' is a tool already"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_function_with_one_result_is_refused(function, words):
    with pytest.raises(ToolDefinitionError, match=words):
        tool(function)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"examples": [{"a": "x"}]}, "example 1 does not fit: `a`: expected integer; got "),
        ({"examples": [{"a": 1}, {}]}, "example 2 does not fit: `a` is missing: required"),
        ({"retrys": 1}, "does not know retrys"),
        ({"retries": -1}, "retries must be 0 or more"),
        ({"result_limit": 0}, "result_limit must be 1"),
        ({"check": lambda arguments, ctx: 1}, "check must be an async function"),
        ({"resources": "x"}, "resources must be a function"),
        ({"effect": "writes"}, "effect 'writes' is not one of"),
        ({"permission": "maybe"}, "permission 'maybe'"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"name": ""}, "1 to 256 printable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # one that is the same in every process
)
def test_a_wrong_word_is_refused_at_definition(words, message):
    with pytest.raises(ToolDefinitionError, match=message):

        @tool(**words)
        def get(a: int) -> None: ...


@pytest.mark.parametrize(
    "words",
    [
        {"timeout": "5"}, {"timeout": True}, {"retries": -1}, {"retries": "2"}, {"retries": 1.5}, {"result_limit": 0},
        {"result_limit": "9"}, {"visible": "no"}, {"run": None}, {"name": 5}, {"name": None}, {"description": None},
        {"description": 5}, {"parameters": None}, {"parameters": []}, {"parameters": {"type": "string"}},
        {"parameters": {"type": ["array", "null"]}}, {"guidance": 5}, {"ends_run": "no"}, {"check": 5}, {"resources": 5},
        {"validate": 5}, {"convert": 5}, {"output_schema": "x"}, {"error_schema": 5}, {"examples": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_word_of_a_raw_tool_is_told_when_it_is_made(words):
    async def run(arguments, ctx): ...

    with pytest.raises(ToolDefinitionError, match=next(iter(words))):
        Tool(**{"name": "raw", "description": "Raw.", "parameters": {}, "run": run, **words})
