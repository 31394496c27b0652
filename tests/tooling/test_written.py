"""What a tool can be made of: everything that can be called, however its author wrote or wrapped it."""

from __future__ import annotations

import asyncio
import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, TypedDict, Union

import pytest
import typing_extensions

from treadle import Agent, allow, tool
from treadle.errors import ToolDefinitionError
from treadle.testing import ScriptedModel, call, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import treadle
    from treadle import ToolContext
    from treadle import ToolContext as Ctx


def send(to: str, words: str, sender: str = "me", ctx: ToolContext | None = None) -> str:
    """Send a message.

    Args:
        to: Who gets it.
    """
    return f"{sender} to {to}: {words}{'' if ctx is None else ' (in a run)'}"


def by_alias(to: str, ctx: Ctx) -> str:
    """Send."""
    return f"{to} {type(ctx).__name__ != 'str'}"


def by_module(to: str, about: treadle.ToolContext) -> str:
    """Send."""
    return f"{to} {about.attempt}"


def by_deps(to: str, about: ToolContext[Database]) -> str:  # type: ignore[name-defined]  # noqa: F821 - known nowhere
    """Send."""
    return f"{to} {about.attempt}"


class SendMessage:
    """Send a message."""

    def __init__(self, sender: str) -> None:
        self.sender = sender

    def __call__(self, to: str) -> str:
        return f"{self.sender} to {to}"


class SendLater:
    async def __call__(self, to: str, ctx: Ctx) -> str:
        """Send a message later."""
        return f"later to {to} {ctx.attempt}"


class Around:
    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


def in_async(function: Any) -> Any:
    @functools.wraps(function)
    async def around(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    return around


def waiting(function: Any) -> Any:
    @functools.wraps(function)
    def around(*arguments: Any, **options: Any) -> Any:
        return asyncio.run(function(*arguments, **options))

    return around


class InAsync(Around):
    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


async def send_async(to: str) -> str:
    """Send a message."""
    return f"async to {to}"


ADA = {"to": "Ada"}


@pytest.mark.parametrize(
    ("function", "name", "offered", "arguments", "content"),
    [
        (by_alias, "by_alias", ["to"], ADA, "Ada True"),
        (by_module, "by_module", ["to"], ADA, "Ada 1"),
        (by_deps, "by_deps", ["to"], ADA, "Ada 1"),
        (functools.partial(send, sender="bot"), "send", ["to", "words"], {**ADA, "words": "hi"}, "bot to Ada: hi (in a run)"),
        (functools.partial(send, "Ada"), "send", ["words", "sender"], {"words": "hi"}, "me to Ada: hi (in a run)"),
        (functools.partial(SendMessage("bot")), "send_message", ["to"], ADA, "bot to Ada"),
        (SendMessage("bot"), "send_message", ["to"], ADA, "bot to Ada"),
        (SendLater(), "send_later", ["to"], ADA, "later to Ada 1"),
        (functools.singledispatch(send), "send", ["to", "words", "sender"], {**ADA, "words": "hi"}, "me to Ada: hi (in a run)"),
        (functools.lru_cache(send), "send", ["to", "words", "sender"], {**ADA, "words": "hi"}, "me to Ada: hi (in a run)"),
        (functools.cache(operator.neg), "neg", ["a"], {"a": 2}, "-2"),
        (in_async(send), "send", ["to", "words", "sender"], {**ADA, "words": "hi"}, "me to Ada: hi (in a run)"),
        (Around(send_async), "send_async", ["to"], ADA, "async to Ada"),
        (waiting(send_async), "send_async", ["to"], ADA, "async to Ada"),
        (InAsync(send), "send", ["to", "words", "sender"], {**ADA, "words": "hi"}, "me to Ada: hi (in a run)"),
        (functools.partial(InAsync(send), "Ada"), "send", ["words", "sender"], {"words": "hi"}, "me to Ada: hi (in a run)"),
        (functools.partial(Around(in_async(SendMessage("bot").__call__)), to="Bo"), "__call__", [], {}, "bot to Bo"),
    ],
)  # fmt: skip
async def test_whatever_can_be_called_is_a_tool(function, name, offered, arguments, content) -> None:
    made = tool(function, name="call" if name == "__call__" else None)
    result = await Agent(
        ScriptedModel([call(made.name, arguments=arguments), text("Done.")]), tools=[made], policy=allow("*")
    ).run("Go")

    assert made.name == name.strip("_")
    assert list(made.parameters["properties"]) == offered
    assert made.description
    assert result.messages[-2].results[0].content == content
    assert result.tool_calls[0].status == "ok"


def test_a_parameter_named_context_is_the_models_unless_its_type_says_that_it_is_one() -> None:
    def ask(question: str, context: Sequence[str]) -> str: ...  # type: ignore[empty-body]
    def pay(amount: int, context: RunContext[int]) -> str: ...  # type: ignore[name-defined, empty-body]  # noqa: F821 - known nowhere

    with pytest.raises(ToolDefinitionError, match="'Sequence' is not defined"):
        tool(ask)
    assert list(tool(pay).parameters["properties"]) == ["amount"]


def test_a_callable_that_says_nothing_about_its_parameters_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="Tool 'max': it does not say what its parameters are"):
        tool(max)


def test_a_generator_inside_of_something_is_refused_as_one() -> None:
    def pages():
        yield 1

    with pytest.raises(ToolDefinitionError, match="Tool 'pages' is a generator"):
        tool(functools.partial(pages))


class Extended(typing_extensions.TypedDict):
    parts: list[Extended]


class Plain(TypedDict):
    parts: list[Other]


class Other(TypedDict):
    plain: Plain | None


Json = Union[str, list["Json"]]  # noqa: UP007 - a text knows no `|`
Named = typing_extensions.TypeAliasType("Named", "dict[str, Named] | list[Named] | str | None")


def extended(value: Extended) -> None: ...
def plain(value: Plain) -> None: ...
def returned() -> Other: ...
def aliased(value: Json) -> None: ...
def named(value: Named) -> None: ...


@pytest.mark.parametrize("function", [extended, plain, returned, aliased, named])
def test_a_type_that_holds_itself_is_described_or_refused_with_a_sentence(function) -> None:
    try:
        made = tool(function)
    except ToolDefinitionError as error:
        assert function.__name__ in str(error)  # noqa: PT017 - either will do
        assert "model_rebuild" not in str(error)  # noqa: PT017
        assert function is aliased or sys.version_info < (3, 12)
    else:
        assert made.parameters


def test_a_default_that_holds_itself_is_left_out_of_the_schema() -> None:
    itself: list[Any] = []
    itself.append(itself)

    def get(values: list[Any] = itself) -> str: ...  # type: ignore[empty-body]

    assert tool(get).parameters["properties"] == {"values": {"type": "array", "items": {}}}
