"""`@tool`: what a decorated function becomes and still is, what help shows of it, and what is refused at definition."""

import asyncio
import functools
import inspect
import logging
import math
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import Field

from treadle import Agent, Tool, ToolContext, tool
from treadle.errors import ConfigurationError, ToolDefinitionError
from treadle.testing import ScriptedModel, call, text, tool_context
from treadle.tooling import FunctionTool
from treadle.tools import Effect
from treadle.validation import Schema


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
        ({"permission": "maybe"}, "permission must be allow, ask, deny, always_ask or a function; got 'maybe'"),
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


# --- tools that are still functions


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(effect="read")
async def find(number: int, ctx: ToolContext[dict[int, str]], *, loud: bool = False) -> str:
    """Find a name."""
    name = ctx.deps[number]
    return name.upper() if loud else name


class Account:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    @tool(effect="read")
    def balance(self, month: int = 1) -> str:
        """Return a balance."""
        return f"{self.owner} {month}"

    @tool(effect="read", name="twin")
    async def other(self, month: "Month | None" = None) -> str:
        """Name the owner."""
        return self.owner

    @staticmethod
    @tool(effect="read")
    def currency() -> str:
        """Name the currency."""
        return "EUR"


class Month(TypedDict):
    number: int


async def answers(made: Tool, arguments: dict[str, object], deps: object = None) -> str:
    model = ScriptedModel([call(made.name, **arguments), text("done")])
    result = await Agent(model, tools=[made]).run("go", deps=deps)
    assert result.completed
    return model.requests[1].messages[-1].results[0].content


@pytest.mark.row("M-CALLABLE")
async def test_a_decorated_function_is_called_with_its_own_signature_and_is_the_tool_of_an_agent():
    assert double(4) == double(number=4) == 8
    assert isinstance(double, Tool)
    assert isinstance(double, FunctionTool)
    assert inspect.signature(double) == inspect.signature(double.function)
    assert double.__name__ == "double"
    assert await find(7, tool_context({7: "Ada"}), loud=True) == "ADA"
    assert await answers(find, {"number": 7}, deps={7: "Ada"}) == "Ada"


@pytest.mark.row("M-CALLABLE")
async def test_a_decorated_method_is_a_tool_of_its_object():
    ada, bob = Account("ada"), Account("bob")

    assert ada.balance(3) == Account.balance(ada, 3) == "ada 3"
    assert ada.balance.parameters["properties"].keys() == {"month"}
    assert (await ada.other(), await bob.other()) == ("ada", "bob")
    assert await answers(bob.balance, {"month": 2}) == "bob 2"
    assert await answers(ada.other, {}) == "ada"
    assert await answers(Account.currency, {}) == "EUR"


def test_a_method_without_its_object_is_refused_with_the_code_that_works():
    with pytest.raises(ConfigurationError, match=r"balance is a method: .*tools=\[thing\.balance\]"):
        Agent("demo", tools=[Account.balance])


def test_a_class_local_to_a_function_may_have_tools_whose_annotations_are_local_too():
    class Word(TypedDict):
        a: str

    class Kit:
        @tool
        def first(self, word: "str", more: "list[Word] | None" = None) -> str:
            """Return it."""
            return word

    assert Kit().first.parameters["required"] == ["word"]


@pytest.mark.row("M-CALLABLE")
def test_the_options_of_tool_are_named_in_its_signature_with_the_defaults_of_a_tool():
    named = {name: one.default for name, one in inspect.signature(tool).parameters.items() if name != "function"}
    raw = {name: one.default for name, one in inspect.signature(Tool).parameters.items()}
    documented = inspect.getdoc(tool) or ""

    assert named.pop("name") is None
    assert named == {name: raw[name] for name in named}
    assert set(raw) - set(named) == {
        "name", "description", "parameters", "run", "convert", "validate", "output_schema", "error_schema", "resumes", "line",
        "aliases", "leaves_sandbox", "needs", "ends_plan", "needs_deps",
    }  # fmt: skip
    assert [name for name in named if f"\n    {name}: " not in documented] == []


@pytest.mark.row("M-CALLABLE")
def test_a_tool_without_a_docstring_says_so_and_one_with_it_does_not(caplog):
    caplog.set_level(logging.WARNING)

    @tool
    def silent(a: int) -> None: ...

    @tool
    def spoken(a: int) -> None:
        """Do it."""

    assert [record.getMessage() for record in caplog.records] == [
        (
            "Tool 'silent' has no description, so the model must guess from its name what it does. Add a docstring: "
            '"""What it does, and when to use it."""'
        )
    ]


@pytest.mark.row("M-CALLABLE")
def test_a_parameter_of_which_the_model_does_not_know_what_to_pass_is_reported(caplog):
    @tool
    def get(place, limit=3, described=None, typed: int = 0):
        """Get it.

        Args:
            described: Name of a city.
        """

    assert [record.getMessage() for record in caplog.records] == [
        (
            "Tool 'get': parameter 'place' has no annotation, no default and no description, so the model may pass any "
            "JSON value. Annotate it, such as `place: str`."
        )
    ]


def test_a_context_for_unit_tests_says_whose_session_it_is():
    session = tool_context(metadata={"tenant": "acme", "plan": "gold"}).session

    assert (session.tenant, session.metadata["plan"], session.status) == ("acme", "gold", "running")


async def test_a_context_for_unit_tests_answers_and_records():
    ctx = tool_context({1: "x"}, arguments={"a": 1}, attempt=2, inputs=["yes"], decisions={"delete": "deny"})

    ctx.progress("half", done=1, total=2)
    denied, allowed = await ctx.decide("delete", {"path": "a"}), await ctx.decide("list", {})

    assert (ctx.call.arguments, ctx.attempt, ctx.inputs, ctx.cancelled) == ('{"a":1}', 2, ("yes",), False)
    assert [(one.message, one.done, one.total) for one in ctx.progress_events] == [("half", 1, 2)]
    assert (denied.kind, allowed.kind) == ("deny", "allow")
    assert ctx.asked_actions == [("delete", {"path": "a"}), ("list", {})]
    assert (ctx.session.id, ctx.facts, ctx.deps) == ("session", {}, {1: "x"})
    with pytest.raises(ConfigurationError, match="must be a JSON object"):
        tool_context(arguments={"a": object()})


def test_contexts_of_two_tests_share_nothing():
    first, second = tool_context(), tool_context()

    first.progress("x")
    first.facts["a"] = 1
    asyncio.run(first.decide("a", {}))

    assert (second.progress_events, second.facts, second.asked_actions) == ([], {}, [])
