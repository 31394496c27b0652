"""Decorators: `@tool`, which makes a tool from a typed Python function. Runs nothing, and decides nothing about a call."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import FrameType, FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from treadle.concurrency import is_async
from treadle.errors import InvalidArguments, ToolDefinitionError, suggestion
from treadle.redaction import redacted_logger
from treadle.tooling.callables import FunctionTool, MethodTool, is_method, name_of, written
from treadle.tooling.toolbox import violation_text
from treadle.tools import Command, Effect, JsonObject, Permission, Review, Risk, Subject, Tool, ToolContext, ToolExample
from treadle.tools.tool import Run

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from treadle.tooling.functions import FunctionSchema

__all__ = ["tool"]

logger = redacted_logger(__name__)

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Deps = TypeVar("Deps")

Function: TypeAlias = Callable[..., Any]  # the author's own signature: `describe` reads it
EffectWord: TypeAlias = Effect | Literal["read", "idempotent", "keyed", "unsafe"]
EffectOf: TypeAlias = Callable[[JsonObject], Effect | str]


class ToolOptions(TypedDict, total=False):
    """The options of `tool`, which says what each means."""

    name: str | None
    effect: EffectWord | EffectOf
    timeout: float | None
    retries: int | None
    resources: Callable[[JsonObject], Mapping[str, str]] | None
    check: Callable[[JsonObject, ToolContext], Awaitable[Any]] | None
    key: Callable[[JsonObject], Any] | None
    permission: Permission | Callable[[Any], Permission | None] | None
    risk: Risk | str | Callable[[JsonObject], Risk | str] | None
    review: Callable[[JsonObject, JsonObject], Review] | None
    draft: str | None
    requires_approval: bool | Callable[[Any], bool]
    result_limit: int | None
    visible: bool | Callable[[Any], bool]
    guidance: str | None
    ends_run: bool
    strict: bool
    polling: bool
    interrupt: Literal["cancel", "block"]
    examples: Sequence[JsonObject | ToolExample]
    subjects: Callable[[JsonObject], Mapping[str, Subject]] | None
    sandbox: Callable[[JsonObject], Command] | Literal["runner"] | None


class _Both(Protocol[P, Q, R_co]):
    """A function that may be called in two ways. By the first, type checkers keep its signature; by the second, they find its context."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


# What a context is preceded by. That of a tool with more parameters before it is not found: such a tool takes any deps.
_First: TypeAlias = _Both[P, Concatenate[ToolContext[Deps], ...], R]
_Second: TypeAlias = _Both[P, Concatenate[Any, ToolContext[Deps], ...], R]
_Third: TypeAlias = _Both[P, Concatenate[Any, Any, ToolContext[Deps], ...], R]
_Fourth: TypeAlias = _Both[P, Concatenate[Any, Any, Any, ToolContext[Deps], ...], R]
_Fifth: TypeAlias = _Both[P, Concatenate[Any, Any, Any, Any, ToolContext[Deps], ...], R]


class _ToolDecorator(Protocol):
    """`tool` as type checkers see it: the tool has the signature of its function, and needs what the context of its function has."""

    @overload
    def __call__(self, f: _First[P, Deps, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, Deps]: ...

    @overload
    def __call__(self, f: _Second[P, Deps, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, Deps]: ...

    @overload
    def __call__(self, f: _Third[P, Deps, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, Deps]: ...

    @overload
    def __call__(self, f: _Fourth[P, Deps, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, Deps]: ...

    @overload
    def __call__(self, f: _Fifth[P, Deps, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, Deps]: ...

    @overload
    def __call__(self, f: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R, object]: ...

    @overload
    def __call__(self, /, **options: Unpack[ToolOptions]) -> "_ToolDecorator": ...


def _as_type(kind: "TypeForm[T]") -> Callable[[Function], T]:
    """Give a function a type that its signature cannot say."""
    return lambda function: function  # type: ignore[return-value]  # its author vouches for it


@_as_type(_ToolDecorator)
def tool(function: Function | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool from a typed function. The function stays callable with its own signature.

    The signature becomes the schema, the docstring the description, the return annotation the output contract. A parameter
    annotated `ToolContext` is injected, and the model never sees it. The result is a `Tool`: pass it to `Agent(tools=...)`.
    Calling it calls the function itself, as a unit test does; `tool.run(arguments, ctx)` calls it as the runtime does.
    On a method, `thing.method` is the tool that is bound to `thing`.

    Example:
        @tool(effect="read")
        async def get_character(name: str) -> dict[str, str]:
            \"\"\"Fetch one biography.

            Args:
                name: The member's name, as in the roster.
            \"\"\"

    Args:
        function: The function or bound method; left out when options are given, as in the example.
        name: Its name for the model; None for the function's own name.
        effect: What a call does to the world: `read`, `idempotent`, `keyed`, `unsafe`, or a function of the arguments that
            returns one of these.
        timeout: Seconds that one attempt may take; None for the run's own limit only.
        retries: Attempts beyond the first, if the effect allows any; None for the budget's.
        resources: A function of the arguments that returns what a call touches, such as `{"file:/a": "write"}`. Calls on
            different resources may run in parallel.
        check: An async function of (arguments, ctx) that finds out whether a call of unknown outcome was done: it returns
            `Done(value)`, `NotDone` or `Unknown`. It needs a `timeout`.
        key: A function of the arguments that returns what a call is about, such as an invoice's number: a JSON value.
            A call with the key of a call in doubt needs approval first.
        permission: `allow`, `ask` or `deny`, if no policy decides; `always_ask` even if a policy allows the call; None for the
            effect's default. Or a function of the checked call that returns one of these; if it raises, a person is asked.
        risk: Its risk class, such as `financial`, or a function of the arguments that returns one. It sets the default, and people see it.
        review: What a person sees who is asked: a function of the arguments and the session's facts that returns a `Review`.
        draft: The tool that prepares what this one commits; a decision `draft` runs that tool instead.
        requires_approval: The old spelling of `permission="always_ask"`. It works for one version.
        result_limit: Characters of a result that the model sees, if fewer than the budget's.
        visible: Whether the tool is offered, or a function of the session's view that decides before each request.
        guidance: Longer advice for the model, placed in the instructions.
        ends_run: Whether a successful result ends the run, with its value as the output.
        strict: Whether a scalar in quotes, such as `"42"` for a number, is refused; otherwise it is read as what the schema wants.
        polling: Whether the model is meant to call it repeatedly until something has happened; its calls never count as
            repetition.
        interrupt: What cancelling the run does to a running call: `cancel` cuts it off, `block` waits for it up to its
            time limit.
        examples: Arguments of good calls, shown to the model; or recorded calls, each a `ToolExample`, which `treadle tools check`
            compares with the contracts.
        subjects: A function of the arguments that returns what some of them name once they are resolved, such as
            `{"path": Subject(names=("src/a.py",))}`: policies match that.
        sandbox: How a call runs if it is decided as `sandbox`: a function of the arguments that returns the `Command` to run
            instead, or `runner` if the function runs everything through `ctx.runner`. None: it cannot.

    Raises:
        ToolDefinitionError: An option is invalid, or the function cannot be described to a model: it has `*args`, or a
            parameter that JSON Schema cannot describe. A missing docstring, and a parameter with no annotation, default or
            description, are allowed and logged as warnings.
    """
    if unknown := sorted(options.keys() - ToolOptions.__annotations__.keys()):
        raise ToolDefinitionError(_unknown_options(unknown, list(ToolOptions.__annotations__)))
    if function is not None:
        return _made(function, inspect.currentframe(), options)
    return lambda decorated: _made(decorated, inspect.currentframe(), options)


def _signature() -> inspect.Signature:
    """Return the signature that `help` and a notebook show: each option with its default, which is that of `Tool`."""
    defaults = {"name": None} | dict(
        zip(Tool.__struct_fields__[-len(Tool.__struct_defaults__) :], Tool.__struct_defaults__, strict=True)
    )
    function = inspect.Parameter(
        "function", inspect.Parameter.POSITIONAL_ONLY, default=None, annotation=Function | None
    )
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in ToolOptions.__annotations__.items()
    ]
    return inspect.Signature([function, *options])


tool.__signature__ = _signature()  # type: ignore[attr-defined]  # inspect looks there first


def _unknown_options(unknown: Sequence[str], known: Sequence[str]) -> str:
    hint = f" {said}" if (said := suggestion(unknown[0], known, of_tool=True)) else ""
    return f"@tool does not know {', '.join(unknown)}.{hint} Its options are: {', '.join(known)}."


def _made(function: Function, frame: FrameType | None, options: ToolOptions) -> Any:
    _refuse_what_is_no_function(function)
    localns = _locals_around(function, frame)
    if is_method(function):
        return MethodTool(function, lambda bound: _tool_of(bound, localns, options))
    return _tool_of(function, localns, options)[0]


def _tool_of(
    function: Function, localns: Mapping[str, Any], options: ToolOptions
) -> tuple[FunctionTool[..., Any, Any], Callable[[Function], Run]]:
    """Return the tool, and what runs a function of the same signature."""
    # Pydantic is loaded with the first typed tool: `import treadle` must stay cheap (design section 8).
    from treadle.tooling.functions import describe, run_of  # noqa: PLC0415 - as said above

    schema = describe(function, localns=localns)
    name = options.get("name")
    if name is None and schema.name == "<lambda>":
        raise ToolDefinitionError("A lambda has no name for the model. Pass name=, or write a function.")
    own: dict[str, Any] = {**options, "name": schema.name if name is None else name}
    made = FunctionTool[..., Any, Any](
        description=schema.description,
        parameters=schema.parameters,
        output_schema=schema.output_schema,
        function=function,
        run=run_of(function, schema),
        convert=schema.convert,
        needs_deps=schema.needs_deps,
        **own,
    )
    if made.check is not None and not is_async(made.check):
        raise ToolDefinitionError(f"Tool {made.name!r}: check must be an async function of (arguments, ctx).")
    _check_contract(made)
    _report_missing_documentation(made, schema)
    return made, functools.partial(run_of, schema=schema)


def _report_missing_documentation(made: Tool, schema: "FunctionSchema") -> None:
    if not made.description:
        logger.warning(
            "Tool %r has no description, so the model must guess from its name what it does. Add a docstring: "
            '"""What it does, and when to use it."""',
            made.name,
        )
    for name in schema.unexplained:
        logger.warning(
            "Tool %r: parameter %r has no annotation, no default and no description, so the model may pass any JSON value. "
            "Annotate it, such as `%s: str`.",
            made.name,
            name,
            name,
        )


def _locals_around(function: Function, frame: FrameType | None) -> Mapping[str, Any]:
    """Return the names local to where the decorator stands: annotations that are text may use classes defined there.

    Args:
        frame: Of what the author called or wrote above the function.
    """
    caller = frame.f_back if frame is not None else None
    inner = written(function)
    plain = inner.__func__ if isinstance(inner, MethodType) else inner
    if caller is None or not isinstance(plain, FunctionType) or plain.__globals__ is not caller.f_globals:
        return {}
    is_class_body = not caller.f_code.co_flags & inspect.CO_OPTIMIZED and caller.f_locals is not caller.f_globals
    outer = caller.f_back if is_class_body else None
    if outer is None or outer.f_globals is not caller.f_globals:
        return caller.f_locals
    return {**outer.f_locals, **caller.f_locals}


def _refuse_what_is_no_function(function: Function) -> None:
    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.name!r} is a tool already. Use @tool once.")
    if isinstance(function, type):
        raise ToolDefinitionError(f"{function.__name__} is a class. Make tools of its bound methods, or of a function.")
    if not callable(function):
        raise ToolDefinitionError(f"@tool needs a function; got a {type(function).__name__}.")
    plain = written(function)
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise ToolDefinitionError(
            f"Tool {name_of(function)!r} is a generator. A call has one result: collect the items and return them."
        )


def _check_contract(made: Tool) -> None:
    # The validators are loaded with the first tool, for the same reason as pydantic.
    from treadle.validation import Schema  # noqa: PLC0415 - as said above

    gate = Schema(made.parameters, where=f"parameters of tool {made.name!r}")
    if made.output_schema is not None:
        Schema(made.output_schema, where=f"output_schema of tool {made.name!r}")
    for unfit in gate.unfit_defaults(nested=False):  # those inside are of types, which decide for themselves
        raise ToolDefinitionError(
            f"Tool {made.name!r}: the default of {unfit['field']!r} does not fit: expected {unfit['constraint']}; "
            f"got {msgspec.json.encode(unfit['value']).decode()}."
        )
    for number, recorded in enumerate(made.recorded, 1):
        example = recorded.arguments
        where = f"Tool {made.name!r}: example {number}"
        if found := gate.violations(example):
            raise ToolDefinitionError(f"{where} does not fit: {violation_text(found[0], 'the arguments')}.")
        try:
            if made.convert is not None:
                made.convert(gate.with_defaults(example, nested=False))
        except InvalidArguments as error:
            raise ToolDefinitionError(f"{where} does not fit: {error}") from error
