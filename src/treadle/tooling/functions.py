"""Functions: from a typed Python function to what a model reads of it, from JSON to its values, and to the call."""

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
)

import docstring_parser
import msgspec
import pydantic
import typing_extensions
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError

from treadle.canonical import find_unencodable
from treadle.concurrency import is_async
from treadle.errors import InvalidArguments, ToolDefinitionError
from treadle.tooling.callables import layers, name_of, written
from treadle.tools import JsonObject, ToolContext, ToolOutput
from treadle.tools.tool import Run, closed_schema
from treadle.validation.given import GivenSchema

__all__ = [
    "FunctionSchema",
    "describe",
    "run_of",
]


# --- Functions: from a typed Python function to what a model reads of it, from JSON to its values, and to the call.

_UNDESCRIBED = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)
"""What pydantic raises for a type that it cannot describe, or a pattern that it cannot run."""

Annotation: TypeAlias = Any  # Any: whatever may stand behind a colon; Python has no type for it


class FunctionSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What a function's signature and docstring say."""

    name: str
    description: str
    """The docstring without its section on arguments."""
    parameters: JsonObject
    """JSON Schema of the arguments; nothing else is accepted."""
    output_schema: JsonObject | None
    """JSON Schema of what is returned; None where the annotation promises nothing."""
    context_parameter: str | None
    """The parameter that gets the ToolContext."""
    needs_deps: str
    """The type that its annotation gives `ctx.deps`; empty where it may be None."""
    positional: tuple[str, ...]
    """Parameters that can only be passed by position, in order."""
    unexplained: tuple[str, ...]
    """Parameters with no annotation, no default and no description: the model does not know what to pass."""
    convert: Callable[[JsonObject], JsonObject]
    """Turns checked JSON arguments into Python values, all defaults included. Raises InvalidArguments."""


def describe(function: Callable[..., Any], *, localns: Mapping[str, Any] | None = None) -> FunctionSchema:
    """Read a function's signature and docstring.

    Args:
        function: A function or a bound method.
        localns: Names that its annotations may use beside its module's, such as classes local to the caller.

    Raises:
        ToolDefinitionError: A parameter cannot be described to a model; the message names it.
    """
    name = name_of(function)
    try:
        return _described(name, function, _hints(name, function, localns or {}))
    except RecursionError as error:
        raise ToolDefinitionError(f"Tool {name!r}: {_HOLDS_ITSELF}") from error


_HOLDS_ITSELF = (
    "a type in its signature holds itself in a way that cannot be described. Write it as a class, such as a pydantic model or a "
    "dataclass, with a field whose annotation is the name of the class in quotes."
)


def _described(name: str, function: Callable[..., Any], hints: Mapping[str, Annotation]) -> FunctionSchema:
    own = _signature(name, function).parameters
    decided = function.keywords if isinstance(function, partial) else {}
    parameters = {key: one for key, one in own.items() if key not in decided}
    context = _context_parameter(name, list(parameters), hints)
    documentation = _documentation(function)
    documented = _documented(documentation)
    fields: dict[str, tuple[Annotation, FieldInfo]] = {}
    for parameter in parameters.values():
        _refuse_nameless(name, parameter, is_first=not fields, hint=hints.get(parameter.name))
        if parameter.name != context:
            said = documented.get(parameter.name)
            fields[parameter.name] = _field(parameter, hints.get(parameter.name, Any), said)
    model = _model(name, fields)
    schema = {"type": "object", "properties": {}, **_json_schema(model, "validation", f"Tool {name!r}")}
    return FunctionSchema(
        name=name,
        description=_without_arguments(documentation),
        parameters=schema,
        output_schema=_output_schema(name, hints.get("return", Any)),
        context_parameter=context,
        needs_deps="" if context is None else _deps_of(hints.get(context)),
        positional=tuple(_positional(function, parameters)),
        unexplained=tuple(
            key
            for key, one in parameters.items()
            if key not in hints and one.default is one.empty and key not in documented
        ),
        convert=_Converter(model, list(fields), schema["properties"]),
    )


def _positional(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    """Yield the parameters that are passed by position: by the first one, `functools.singledispatch` chooses what runs."""
    dispatches = any(hasattr(one, "dispatch") and hasattr(one, "registry") for one in layers(function))
    for place, (name, one) in enumerate(parameters.items()):
        is_chosen_by = dispatches and not place and one.kind is not one.KEYWORD_ONLY
        if one.kind is one.POSITIONAL_ONLY or is_chosen_by:
            yield name


def _signature(tool: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:  # written in C, and it does not say what it takes
        raise ToolDefinitionError(
            f"Tool {tool!r}: it does not say what its parameters are. Call it in a function that has annotations."
        ) from error


def run_of(function: Callable[..., Any], schema: FunctionSchema) -> Run:
    """Return run(arguments, ctx): a coroutine function for one, else a plain function, which the runtime runs in a thread."""
    context, positional = schema.context_parameter, schema.positional

    def call(values: JsonObject, ctx: ToolContext) -> Any:
        named = dict(values) if context is None else {**values, context: ctx}
        return function(*[named.pop(name) for name in positional if name in named], **named)

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        result = call(arguments, ctx)
        return await result if inspect.isawaitable(result) else result

    return run if is_async(function) else call


# --- annotations -----------------------------------------------------------------------------------------------------


def _hints(tool: str, function: Callable[..., Any], localns: Mapping[str, Any]) -> dict[str, Annotation]:
    function = written(function)
    here, around = _surroundings(function)
    # ToolContext is often imported for type checkers only.
    ours = {word.__name__: word for word in (ToolContext, ToolOutput) if word.__name__ not in here}
    names = {**ours, **localns, **around}
    try:
        said = _without_context(function, here, names)
        hints = typing.get_type_hints(said, dict(here) if said is not function else None, names, include_extras=True)
        return {key: _portable(hint, names) for key, hint in hints.items()}
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise ToolDefinitionError(
            f"Tool {tool!r}: an annotation cannot be read: {error}. "
            "It must be a type, and its names must exist at run time, not only under TYPE_CHECKING."
        ) from error


def _without_context(
    function: Any, here: Mapping[str, Any], names: Mapping[str, Any]
) -> Any:  # Any: what has annotations
    """Return a function's annotations with the context's in a form that can be read, though it is known to type checkers only."""
    said: dict[str, Any] = dict(getattr(function, "__annotations__", {}))
    # A tool may well have a `context` that the model writes: there the type must say that it is ours.
    for name, text in said.items():
        if isinstance(text, str) and (
            "ToolContext" in text or name in _CONTEXT_NAMES or (name == "context" and "Context" in text)
        ):
            try:
                typing.get_type_hints(types.SimpleNamespace(__annotations__={name: text}), dict(here), dict(names))
            except (NameError, AttributeError):
                return types.SimpleNamespace(__annotations__={**said, name: ToolContext})
    return function


_CONTEXT_NAMES = ("ctx", "tool_context")
"""A parameter of such a name whose annotation does not exist at run time is the context."""


_UNPACK = (typing.Unpack, typing_extensions.Unpack)


def _surroundings(function: Callable[..., Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the names of a function's module, and what it takes from the functions around it."""
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):  # wrapped, and not written in Python
        return {}, {}
    around = {}
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty: it is bound later, as the tool's own name is
            around[name] = cell.cell_contents
    return plain.__globals__, around


def _portable(hint: Annotation, names: Mapping[str, Any], within: tuple[Annotation, ...] = ()) -> Annotation:
    """Return an annotation that pydantic takes: before Python 3.12 it refuses the TypedDict of `typing`."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        # One that holds itself stays as it is: pydantic then says what to do.
        return hint if hint in within else _portable_dict(hint, names, (*within, hint))
    arguments = get_args(hint)
    if not arguments or _origin(hint) in (Literal, Callable, *_UNPACK):
        return hint
    if _origin(hint) is Annotated:
        return Annotated[(_portable(arguments[0], names, within), *hint.__metadata__)]
    parts = tuple(_portable(part, names, within) for part in arguments)
    if parts == arguments:
        return hint
    return Union[parts] if _is_union(hint) else _origin(hint)[parts]  # noqa: UP007 - made of parts known only here


def _portable_dict(hint: Annotation, names: Mapping[str, Any], within: tuple[Annotation, ...]) -> Annotation:
    keys = {}
    for key, declared in typing.get_type_hints(hint, localns=dict(names), include_extras=True).items():
        marked = _origin(declared) in (typing.Required, typing.NotRequired)
        inner = get_args(declared)[0] if marked else declared
        is_needed = _origin(declared) is typing.Required if marked else key in hint.__required_keys__
        mark = typing_extensions.Required if is_needed else typing_extensions.NotRequired
        keys[key] = mark[_portable(inner, names, within)]
    made = typing_extensions.TypedDict(hint.__name__, keys)  # type: ignore[misc]  # its name is known only here
    made.__doc__ = hint.__doc__
    return made


def _origin(hint: Annotation) -> Annotation:
    return typing.get_origin(hint)


def _is_union(hint: Annotation) -> bool:
    return _origin(hint) in (Union, types.UnionType)


def _parts(hint: Annotation) -> Iterator[Annotation]:
    """Yield an annotation and, of a union or an Annotated, what it is made of."""
    yield hint
    if _origin(hint) is Annotated or _is_union(hint):
        for part in get_args(hint):
            yield from _parts(part)


def _context_parameter(tool: str, names: Sequence[str], hints: Mapping[str, Annotation]) -> str | None:
    found = [name for name in names if any(ToolContext in (part, _origin(part)) for part in _parts(hints.get(name)))]
    if len(found) > 1:
        raise ToolDefinitionError(f"Tool {tool!r}: {found[0]!r} and {found[1]!r} are both a ToolContext. Keep one.")
    return found[0] if found else None


def _deps_of(hint: Annotation) -> str:
    """Return the type of `ctx.deps`, by its name; empty where the annotation says none, or allows None."""
    for part in _parts(hint):
        if _origin(part) is ToolContext and (given := get_args(part)):
            if any(
                one in (None, type(None), Any, object) or isinstance(one, typing.TypeVar) for one in _parts(given[0])
            ):
                return ""
            return getattr(given[0], "__name__", None) or str(given[0])
    return ""


def _refuse_nameless(tool: str, parameter: inspect.Parameter, *, is_first: bool, hint: Annotation) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolDefinitionError(
            f"Tool {tool!r}: parameter {stars}{parameter.name} cannot be described to a model. {_instead(parameter, hint)}"
        )
    if parameter.name in ("self", "cls") and is_first and hint is None:
        raise ToolDefinitionError(
            f"Tool {tool!r}: parameter {parameter.name!r} belongs to a method. Pass the bound method: tool(thing.{tool})."
        )


def _instead(parameter: inspect.Parameter, hint: Annotation) -> str:
    """Say what to write in place of a parameter with stars."""
    parts = get_args(hint)
    if parts and _origin(hint) in _UNPACK:
        kind = str(parts[0]) if get_args(parts[0]) else getattr(parts[0], "__name__", str(parts[0]))
        return f"Write `{parameter.name}: {kind}`, without stars and Unpack, or each of its keys as a parameter."
    kind = "" if hint is None else getattr(hint, "__name__", str(hint))
    collection = (
        f"list[{kind or 'str'}]" if parameter.kind is parameter.VAR_POSITIONAL else f"dict[str, {kind or 'str'}]"
    )
    return f"Name its parts, or write `{parameter.name}: {collection}`."


# --- parameters ------------------------------------------------------------------------------------------------------


def _field(parameter: inspect.Parameter, hint: Annotation, documented: str | None) -> tuple[Annotation, FieldInfo]:
    default = parameter.default
    if isinstance(default, FieldInfo):
        hint, default = Annotated[hint, default], parameter.empty
    if default is None and not any(part in (None, type(None), Any) for part in _parts(hint)):
        hint = Union[hint, None]  # noqa: UP007 - a hint that is a text or a TypeVar knows no `|`
    said = _annotated_description(hint) or documented
    # A field's name is ours and its alias the parameter's, so that `json`, `copy` and `_x` are no trouble to pydantic.
    options: dict[str, Any] = {"alias": parameter.name, **({"description": said} if said else {})}
    return hint, pydantic.Field(**options) if default is parameter.empty else pydantic.Field(default, **options)


def _annotated_description(hint: Annotation) -> str | None:
    """Return the description that an Annotated carries: in a Field, a Doc or a plain text."""
    for note in reversed(hint.__metadata__ if _origin(hint) is Annotated else ()):
        match note:
            case FieldInfo(description=str(text)) | typing_extensions.Doc(documentation=text) | str(text):
                return text
            case _:
                continue
    return None


def _model(tool: str, fields: Mapping[str, tuple[Annotation, FieldInfo]]) -> type[pydantic.BaseModel]:
    try:
        return _created(tool, list(fields.values()))
    except _UNDESCRIBED as error:
        raise ToolDefinitionError(f"Tool {tool!r}: {_culprit(fields)}: {_first_line(error)}") from error


def _created(tool: str, fields: Sequence[tuple[Annotation, FieldInfo]]) -> type[pydantic.BaseModel]:
    config = pydantic.ConfigDict(extra="forbid")
    members: dict[str, Any] = {f"p{index}": field for index, field in enumerate(fields)}
    model: type[pydantic.BaseModel] = pydantic.create_model(tool, __config__=config, **members)
    model.model_json_schema(
        schema_generator=_Quiet
    )  # what JSON Schema cannot describe is found here, while the names are known
    return model


def _culprit(fields: Mapping[str, tuple[Annotation, FieldInfo]]) -> str:
    for name, field in fields.items():
        try:
            _created(name, [field])
        except _UNDESCRIBED:
            return f"parameter {name!r} has an annotation that JSON Schema cannot describe"
    return "its parameters cannot be described together"


def _first_line(error: Exception) -> str:
    if isinstance(error, SchemaError):  # it says where first, and what is wrong last
        return str(error).rstrip().rsplit("\n", 1)[-1].removeprefix("error: ")
    if "is not fully defined" in str(error):
        return (
            "a name in it cannot be resolved. Define that in the module of the type; a type that holds itself must be a class or a "
            "`TypeAliasType`"
        )
    return str(error).split("\n", 1)[0].split(". Set `arbitrary", 1)[0]


class _Converter:
    """Turns JSON into a function's values. The schema has been checked before, so that "3" never becomes 3 here."""

    def __init__(self, model: type[pydantic.BaseModel], names: Sequence[str], properties: JsonObject) -> None:
        self._model = model
        self._names = tuple(names)
        self._defaults = {name: part["default"] for name, part in properties.items() if "default" in part}

    def __call__(self, arguments: JsonObject) -> JsonObject:
        given = arguments
        if self._defaults:
            given = {name: value for name, value in arguments.items() if not self._is_default(name, value)}
        try:
            values = vars(
                self._model.model_validate_json(msgspec.json.encode(given))
            )  # strict types take "2024-01-02" as JSON
        except pydantic.ValidationError as error:
            details = [_row(found) for found in error.errors(include_url=False)]
            first = details[0]
            raise InvalidArguments(f"`{first['field']}`: {first['constraint']}.", details) from error
        return {name: values[f"p{index}"] for index, name in enumerate(self._names)}

    def _is_default(self, name: str, value: Any) -> bool:
        """Whether a value is the declared default: the function then gets its own, which JSON may not be able to say."""
        if name not in self._defaults:
            return False
        default = self._defaults[name]
        return type(value) is type(default) and value == default


def _row(error: Mapping[str, Any]) -> JsonObject:
    # A place may also hold pydantic's own words for the alternatives of a union: they are left as they are.
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    constraint = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    value = error["input"]
    if not isinstance(value, str | int | float | bool | None):
        value = f"{type(value).__name__}"
    return {"field": field, "constraint": constraint[:300], "value": value[:200] if isinstance(value, str) else value}


# --- JSON Schema -----------------------------------------------------------------------------------------------------

_VALUES = ("default", "examples", "enum", "const", "discriminator")
_NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")


_ANYTHING: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)


class _Quiet(GivenSchema):
    """Keeps the order of the signature, makes no titles, and leaves out a default that JSON cannot hold."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the parent has it

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, pydantic.BaseModel | list | tuple | dict):  # a model's own defaults are its own business
            try:
                value = _ANYTHING.dump_python(dft, by_alias=self.by_alias, mode="json", exclude_unset=True)
            except ValueError as error:  # it holds itself
                raise PydanticSerializationError("not valid JSON") from error
        else:
            value = super().encode_default(dft)
        if find_unencodable(value) is not None:  # NaN and infinities, for which JSON has no word
            raise PydanticSerializationError("not valid JSON")
        return value

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value


def _json_schema(hint: Annotation, mode: Literal["validation", "serialization"], what: str) -> JsonObject:
    try:
        schema = pydantic.TypeAdapter(hint).json_schema(mode=mode, schema_generator=_Quiet)
    except _UNDESCRIBED as error:
        raise ToolDefinitionError(f"{what} cannot be described in JSON Schema: {_first_line(error)}") from error
    tidy: JsonObject = _tidy(schema)
    return tidy


def _tidy(schema: Any) -> Any:
    """Drop the titles made of class names, and close each object: a key that nobody declared is a mistake."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidied(key, part) for key, part in schema.items() if key != "title" or not isinstance(part, str)}
    if "properties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return tidy


def _tidied(key: str, part: Any) -> Any:
    if key in _VALUES:
        return part
    if key in _NAMED and isinstance(part, dict):
        return {name: _tidy(inner) for name, inner in part.items()}
    return _tidy(part)


_BYTES = (bytes, bytearray, memoryview)
_BYTES_SCHEMA = closed_schema(["base64", "size"], base64={"type": "string"}, size={"type": "integer", "minimum": 0})
"""What the runtime makes of returned bytes."""


def _inside(hint: Annotation) -> Iterator[Annotation]:
    """Yield a type and all types in its brackets, however deep."""
    yield hint
    for part in get_args(hint):
        yield from _inside(part)


def _output_schema(tool: str, hint: Annotation) -> JsonObject | None:
    """Return the contract of what the runtime makes of a returned value; None where it promises nothing."""
    members = get_args(hint) if _is_union(hint) else (hint,)
    others = [member for member in members if member not in _BYTES]
    if len(others) < len(members):
        rest = [_output_schema(tool, member) for member in others]
        return None if None in rest else {"anyOf": [_BYTES_SCHEMA, *rest]} if rest else _BYTES_SCHEMA
    if any(part in _BYTES for part in _inside(hint)):
        raise ToolDefinitionError(
            f"Tool {tool!r}: its return annotation has bytes inside another type, which JSON cannot hold. "
            "Return bytes by themselves, text, or ToolOutput with media."
        )
    if any(part in (Any, object, ToolOutput, typing.NoReturn, typing.Never) for part in _parts(hint)):
        return None
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        schema: JsonObject = _tidy(msgspec.json.schema(hint))
        return schema
    return _json_schema(hint, "serialization", f"Tool {tool!r}: its return annotation")


# --- docstrings ------------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):\s*$")
_NUMPY_SECTION = re.compile(r"(Parameters|Other Parameters)\s*$")
_FIELD = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\s[^:]*:|@(param|type)\s[^:]*:")


def _documentation(function: Callable[..., Any]) -> str:
    """Return the docstring of a callable; of an object that is called, of its `__call__` or else of its class."""
    inner = written(function)
    if getattr(inner, "__name__", "") == "__call__" and isinstance(inner, types.MethodType) and not inner.__doc__:
        return inspect.getdoc(type(inner.__self__)) or ""
    return inspect.getdoc(inner) or ""


def _documented(text: str) -> dict[str, str]:
    """Return what a docstring says of each parameter, in any of the usual styles."""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return {}
    said = ((param.arg_name, " ".join((param.description or "").split())) for param in parsed.params)
    return {name.strip().lstrip("*"): sentence for names, sentence in said if sentence for name in names.split(",")}


def _without_arguments(text: str) -> str:
    """Return a docstring without what it says of parameters: the schema says that. The rest stays word for word."""
    kept: list[str] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        after = _after_section(lines, index)
        if after == index:
            kept.append(lines[index])
            index += 1
            continue
        while kept and not kept[-1].strip():
            kept.pop()
        kept.append("")
        index = after
    return "\n".join(kept).strip()


def _after_section(lines: Sequence[str], index: int) -> int:
    """Return the first line after a section on arguments that begins here; the same line when none does."""
    following = range(index + 1, len(lines))
    if _SECTION.match(lines[index]):
        ends = (at for at in following if lines[at].strip() and not lines[at].startswith((" ", "\t")))
    elif _FIELD.match(lines[index]):
        ends = (at for at in following if not lines[at].startswith((" ", "\t")))
    elif _NUMPY_SECTION.match(lines[index]) and _is_rule(lines, index + 1):
        ends = (at for at in following if lines[at].strip() and _is_rule(lines, at + 1))
    else:
        return index
    return next(ends, len(lines))


def _is_rule(lines: Sequence[str], index: int) -> bool:
    return index < len(lines) and len(lines[index].strip()) > 2 and set(lines[index].strip()) == {"-"}
