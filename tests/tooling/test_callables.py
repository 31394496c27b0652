"""Tools that are still functions: their signatures, methods, what help shows, and what `@tool` says of missing words."""

import asyncio
import inspect
import logging
from typing import TypedDict

import pytest

from treadle import Agent, FunctionTool, Tool, ToolContext, tool
from treadle.errors import ConfigurationError
from treadle.testing import ScriptedModel, call, text, tool_context


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
        "aliases", "leaves_sandbox", "ends_plan", "needs_deps",
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


def test_a_tool_of_a_tool_context_with_its_own_type_hides_it_from_the_model():
    assert find.parameters["properties"].keys() == {"number", "loud"}


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
