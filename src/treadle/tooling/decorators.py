"""Decorators: `@tool`, which makes a Tool of a typed Python function. Runs nothing, and decides nothing about a call."""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import FrameType, FunctionType, MethodType
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import msgspec

from treadle.effects import Effect
from treadle.errors import InvalidArguments, ToolDefinitionError
from treadle.tools import JsonObject, Permission, Subject, Tool, ToolContext

__all__ = ["tool"]

Function: TypeAlias = Callable[..., Any]  # the author's own signature: `describe` reads it
EffectWord: TypeAlias = Effect | Literal["read", "idempotent", "keyed", "unsafe"]
EffectOf: TypeAlias = Callable[[JsonObject], Effect | str]


class _Words(TypedDict, total=False):
    """What may be said of a tool beside its function; `Tool` says what each means."""

    effect: EffectWord | EffectOf
    timeout: float | None
    retries: int | None
    resources: Callable[[JsonObject], Mapping[str, str]] | None
    check: Callable[[JsonObject, ToolContext], Awaitable[Any]] | None
    key: Callable[[JsonObject], Any] | None
    permission: Permission | None
    result_limit: int | None
    visible: bool | Callable[[Any], bool]
    guidance: str | None
    ends_run: bool
    polling: bool
    interrupt: Literal["cancel", "block"]
    examples: Sequence[JsonObject]
    subjects: Callable[[JsonObject], Mapping[str, Subject]] | None


@overload
def tool(function: Function, /, *, name: str | None = None, **words: Unpack[_Words]) -> Tool: ...


@overload
def tool(*, name: str | None = None, **words: Unpack[_Words]) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None, /, *, name: str | None = None, **words: Unpack[_Words]
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function: its signature is the schema, its docstring the description.

    The return annotation is the output contract. A parameter annotated `ToolContext` is injected, and the model never sees
    it. The tool's `run(arguments, ctx)` calls the function, so that a test may do so as well. The words are those of `Tool`.

    Example:
        @tool(effect="read")
        async def get_character(name: str) -> dict[str, str]:
            \"\"\"Fetch one biography.

            Args:
                name: The member's name, as in the roster.
            \"\"\"

    Args:
        function: The function; left out when there are words to say.
        name: What the model calls it; None for the function's own name.
        **words: effect, timeout, retries, resources, check, key, permission, result_limit, visible, guidance, ends_run,
            polling, interrupt, examples, subjects.

    Raises:
        ToolDefinitionError: It cannot be described to a model, or a word is wrong.
    """
    known = _Words.__annotations__
    if unknown := sorted(set(words) - set(known)):
        raise ToolDefinitionError(_unknown_options(unknown, ["name", *known]))
    if function is not None:
        return _made(function, inspect.currentframe(), name, words)
    return lambda decorated: _made(decorated, inspect.currentframe(), name, words)


def _unknown_options(unknown: Sequence[str], known: Sequence[str]) -> str:
    near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"@tool does not know {', '.join(unknown)}.{hint} Its options are: {', '.join(known)}."


def _made(function: Function, frame: FrameType | None, name: str | None, words: _Words) -> Tool:
    # Pydantic is loaded with the first typed tool: `import treadle` must stay cheap (design section 8).
    from treadle.tooling.functions import describe, run_of  # noqa: PLC0415 - as said above

    _refuse_what_is_no_function(function)
    schema = describe(function, localns=_locals_around(function, frame))
    own = schema.name if name is None else name
    if own == "<lambda>":
        raise ToolDefinitionError("A lambda has no name for the model. Pass name=, or write a function.")
    made = Tool(
        name=own,
        description=schema.description,
        parameters=schema.parameters,
        output_schema=schema.output_schema,
        run=run_of(function, schema),
        convert=schema.convert,
        **words,
    )
    _refuse_wrong_words(made)
    _check_contract(made)
    return made


def _locals_around(function: Function, frame: FrameType | None) -> Mapping[str, Any]:
    """Return the names local to where the decorator stands: annotations that are text may use classes defined there."""
    caller = frame.f_back if frame is not None else None
    plain = inspect.unwrap(function)
    if caller is None or not isinstance(plain, FunctionType) or plain.__globals__ is not caller.f_globals:
        return {}
    return caller.f_locals


def _refuse_what_is_no_function(function: Function) -> None:
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.name!r} is a tool already. Use @tool once.")
    if isinstance(function, type):
        raise ToolDefinitionError(f"{function.__name__} is a class. Make tools of its bound methods, or of a function.")
    if not isinstance(function, FunctionType | MethodType):
        raise ToolDefinitionError(f"@tool needs a function; got a {type(function).__name__}. Wrap it in one.")
    plain = inspect.unwrap(function)
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise ToolDefinitionError(
            f"Tool {function.__name__!r} is a generator. A call has one result: collect the items and return them."
        )


def _refuse_wrong_words(made: Tool) -> None:
    if made.check is not None and not _is_async(made.check):
        raise ToolDefinitionError(f"Tool {made.name!r}: check must be an async function of (arguments, ctx).")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _check_contract(made: Tool) -> None:
    # The validators are loaded with the first tool, for the same reason as pydantic.
    from treadle.validation import Schema  # noqa: PLC0415 - as said above

    gate = Schema(made.parameters, where=f"parameters of tool {made.name!r}")
    if made.output_schema is not None:
        Schema(made.output_schema, where=f"output_schema of tool {made.name!r}")
    for unfit in gate.unfit_defaults():
        raise ToolDefinitionError(
            f"Tool {made.name!r}: the default of {unfit['field']!r} does not fit: expected {unfit['constraint']}; "
            f"got {msgspec.json.encode(unfit['value']).decode()}."
        )
    for number, example in enumerate(made.examples, 1):
        where = f"Tool {made.name!r}: example {number}"
        if found := gate.violations(example):
            raise ToolDefinitionError(f"{where} does not fit: `{found[0]['field']}`: {found[0]['constraint']}.")
        try:
            if made.convert is not None:
                made.convert(gate.with_defaults(example))
        except InvalidArguments as error:
            raise ToolDefinitionError(f"{where} does not fit: {error}") from error
