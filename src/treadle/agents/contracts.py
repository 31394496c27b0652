"""Contracts: check tools against recorded calls, each dialect's rules, and what a model needs. Changes nothing.

A recorded call is repeated only if it is marked as deterministic, only reads, and the caller asks for it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.agents.agent import Agent
from treadle.canonical import encode, find_unencodable
from treadle.errors import (
    ConfigurationError,
    InvalidArguments,
    ModelError,
    ToolDefinitionError,
    TreadleError,
    check_path,
    shown,
)
from treadle.events import AnyEvent, ToolFinished
from treadle.fields import Documented, checked
from treadle.messages import user_message
from treadle.ports import ModelRequest, ToolSpec
from treadle.resolve.models import resolve_model
from treadle.tooling.toolbox import Contracts, spec_of, violation_text
from treadle.tools import JsonObject, Risk, Tool, ToolExample, ToolResult
from treadle.tools.effects import effect_from

__all__ = ["DIALECTS", "ToolFinding", "advice_on", "check_tools", "load_tool_examples"]


# --- Wording: what a model could misunderstand of a tool's name, description and parameters. Gives advice, refuses
# nothing.

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PLAIN_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_VAGUE = frozenset({"do", "tool", "function", "run", "execute", "handle", "process", "test", "foo", "helper"})
_LONGEST_DESCRIPTION = 10_000
_DEEPEST = 20
_SAYS_TYPE = ("type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf")


def advice_on(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield where and what to improve in what the model reads of a tool."""
    yield from _on_name(tool)
    yield from _on_description(tool)
    for path, schema in _parameters(tool.parameters, "", 0):
        if not str(schema.get("description") or "").strip():
            yield f"parameter `{path}`", "It has no description. Say what it means, with an example of a value."
        if not _PLAIN_PARAMETER.fullmatch(path.rpartition(".")[2]):
            yield (
                f"parameter `{path}`",
                "Anthropic accepts only names of 1 to 64 letters, digits, `_`, `.` and `-`. Rename it.",
            )
        if not any(word in schema for word in _SAYS_TYPE):
            yield f"parameter `{path}`", "It has no type, so a model may pass any JSON value. Give its schema a `type`."
    if tool.output_schema is None and any(example.has_result for example in tool.recorded):
        yield (
            "output_schema",
            "It has recorded results and no `output_schema`, so no change of their shape is ever found. Declare it.",
        )


def _on_name(tool: Tool) -> Iterator[tuple[str, str]]:
    if not _PLAIN_NAME.fullmatch(tool.name):
        yield (
            "name",
            "Most vendors accept only names of 1 to 64 letters, digits, `_` and `-`, so the model sees a changed name. Choose a name of that form.",
        )
    elif tool.name.casefold() in _VAGUE:
        yield "name", "It does not say what the tool does. Name the act and its object, such as `find_customer`."


def _on_description(tool: Tool) -> Iterator[tuple[str, str]]:
    words = tool.description.strip()
    if not words:
        yield (
            "description",
            "It has no description, so the model cannot tell when to use it. Say what it does, and when to use it.",
        )
    elif _folded(words) == _folded(tool.name):
        yield "description", "It repeats the name. Say what the tool does, what it returns, and when to use it."
    elif len(words) > _LONGEST_DESCRIPTION:
        yield (
            "description",
            f"It has {len(words):,} characters, which every request pays for. Move what is rarely needed to `guidance`, or shorten it.",
        )


def _folded(words: str) -> str:
    return re.sub(r"[\W_]+", "", words).casefold()


def _parameters(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every parameter, those of objects and of lists of objects too."""
    properties = schema.get("properties")
    if depth > _DEEPEST or not isinstance(properties, dict):
        return
    for name, one in properties.items():
        if not isinstance(one, dict):
            continue
        place = f"{path}{name}"
        yield place, one
        yield from _parameters(one, f"{place}.", depth + 1)
        items = one.get("items")
        if isinstance(items, dict):
            yield from _parameters(items, f"{place}[].", depth + 1)


# --- Contracts: check tools against recorded calls, each dialect's rules, and what a model needs. Changes nothing.

DIALECTS = ("openai-chat", "openai", "anthropic", "gemini", "bedrock", "cohere")
"""The dialects whose rules tools are checked against, by the names that models have."""

_MOST_BYTES = 64 * 1024 * 1024
_MOST_ROWS = 10


class ToolFinding(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What is wrong with one tool, and what to do about it."""

    tool: str
    """Name of the tool."""
    level: Literal["error", "advice"]
    """`error` if the tool violates a contract; `advice` if a model could misunderstand it."""
    where: str
    """What was checked, such as `example 2` or `description`."""
    field: str = ""
    """The place in the arguments or the result, such as `items[0].price`; empty for the whole."""
    message: str
    """What is wrong, with what value, and the next step."""


Recorded = Mapping[str, Sequence[ToolExample]]


@checked
async def check_tools(
    tools: Sequence[Tool],
    *,
    recorded: Mapping[str, Sequence[ToolExample]] | None = None,
    run: bool = False,
    dialects: Sequence[str] = DIALECTS,
) -> tuple[ToolFinding, ...]:
    """Check tools without calling them, and return what is wrong: an empty tuple if nothing is.

    Every schema is compiled, and sent to a strict server on loopback in each dialect. The arguments of every example are checked
    against the tool's schema, its result against the output schema and the result limit. Names and descriptions are read as a
    model reads them.

    Example:
        assert await check_tools([price, pay]) == ()

    Args:
        recorded: More recorded calls, by tool name, such as those of `load_tool_examples`.
        run: Whether examples that are marked `deterministic` are called again and their results compared. Only calls with the
            effect `read` are.
        dialects: Dialects whose rules apply, by the names that models have, such as `anthropic`.

    Raises:
        ConfigurationError: A recorded call names a tool that is not among these, or a dialect is unknown.
    """
    extra = recorded or {}
    _refuse_unknown(tools, extra, dialects)
    contracts = Contracts()
    found: list[ToolFinding] = list(_equal_names(tools))
    sound: list[Tool] = []
    for tool in tools:
        try:
            contracts.compile(tool)
        except ToolDefinitionError as error:
            found.append(ToolFinding(tool=tool.name, level="error", where="schema", message=str(error)))
        else:
            sound.append(tool)
    for tool in sound:
        unfit = contracts.unfit_defaults(tool)
        found += [_advice(tool, "schema", f"A default does not fit and is not filled in: {one}.") for one in unfit]
        for where, example in _examples_of(tool, extra):
            broken = list(_check_example(tool, where, example, contracts))
            found += broken
            if run and example.deterministic and not broken:
                found += await _run_again(tool, where, example)
        found += [_advice(tool, where, message) for where, message in advice_on(tool)]
    for dialect in dialects:
        found += await _refused_by(dialect, sound)
    return tuple(found)


def _refuse_unknown(tools: Sequence[Tool], recorded: Recorded, dialects: Sequence[str]) -> None:
    names = {tool.name for tool in tools}
    if unknown := sorted(recorded.keys() - names):
        raise ConfigurationError(
            f"There are recorded calls of {shown(unknown[0])}, which is not among the tools: "
            f"{', '.join(sorted(names)) or 'there are none'}. Rename it in the recording, or check its tool too."
        )
    if wrong := [one for one in dialects if one not in DIALECTS]:
        raise ConfigurationError(f"Dialect {shown(wrong[0])} is unknown. The dialects are: {', '.join(DIALECTS)}.")


def _equal_names(tools: Sequence[Tool]) -> Iterator[ToolFinding]:
    seen: dict[str, str] = {}
    for tool in tools:
        folded = tool.name.casefold().replace("-", "_")
        if folded in seen:
            equal = seen[folded] == tool.name
            message = (
                "Another tool has the same name, and no agent takes both. Rename one of them, or use Prefixed."
                if equal
                else f"It differs from {seen[folded]!r} by its spelling alone, so a model confuses them. Rename one of them."
            )
            yield ToolFinding(tool=tool.name, level="error" if equal else "advice", where="name", message=message)
        seen.setdefault(folded, tool.name)


def _advice(tool: Tool, where: str, message: str) -> ToolFinding:
    return ToolFinding(tool=tool.name, level="advice", where=where, message=message)


# --- recorded calls


def _examples_of(tool: Tool, recorded: Recorded) -> Iterator[tuple[str, ToolExample]]:
    for number, example in enumerate(tool.recorded, 1):
        yield f"example {number}", example
    for number, example in enumerate(recorded.get(tool.name, ()), 1):
        yield f"recorded call {number}", example


def _check_example(tool: Tool, where: str, example: ToolExample, contracts: Contracts) -> Iterator[ToolFinding]:
    """Compare one recorded call with the contracts as they are now. Calls only what is a function of the arguments alone."""

    def error(about: str, message: str, field: str = "") -> ToolFinding:
        return ToolFinding(tool=tool.name, level="error", where=f"{where}, {about}", field=field, message=message)

    try:
        arguments = contracts.complete(tool, dict(example.arguments)).arguments
        if tool.convert is not None:
            tool.convert(dict(arguments))
    except InvalidArguments as problem:
        rows = [(str(row.get("field", "")), violation_text(row, "the arguments")) for row in problem.details]
        for field, said in rows[:_MOST_ROWS] or [("", str(problem).rstrip("."))]:
            message = f"The recorded arguments no longer fit `parameters`: {said}. Let the schema accept them again, or record the example again."
            yield error("arguments", message, field)
        return
    yield from (error(about, message) for about, message in _broken_functions(tool, arguments))
    if example.has_result:
        yield from (error("result", message, field) for field, message in _check_result(tool, example, contracts))


def _broken_functions(tool: Tool, arguments: JsonObject) -> Iterator[tuple[str, str]]:
    """Find functions of the arguments that raise: each fails closed in a run, where nobody would see why."""
    words = {"effect": tool.effect, "risk": tool.risk, "resources": tool.resources, "key": tool.key}
    closed = {
        "effect": "the call counts as `unsafe`",
        "risk": "the call counts as `privileged_admin`",
        "resources": "the call runs alone",
        "key": "no other call is recognised as the same",
    }
    for word, function in words.items():
        if not callable(function):
            continue
        try:
            _refuse_strange(word, function(dict(arguments)))
        except Exception as problem:  # noqa: BLE001 - a stranger's function: whatever it raises is what is reported
            yield (
                word,
                f"`{word}` of these arguments raises {type(problem).__name__}: {problem}. So {closed[word]}. Fix the function.",
            )


def _refuse_strange(word: str, value: object) -> None:
    match word:
        case "effect":
            effect_from(value)
        case "risk":
            Risk(str(value))
        case "key" if (problem := find_unencodable(value)) is not None:
            raise ConfigurationError(f"{shown(value)} is not JSON: {problem}")
        case "resources" if not _names_resources(value):
            raise ConfigurationError(f'it must return names with "read" or "write"; got {shown(value)}')
        case _:
            pass


def _names_resources(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and mode in ("read", "write") for name, mode in value.items()
    )


def _check_result(tool: Tool, example: ToolExample, contracts: Contracts) -> Iterator[tuple[str, str]]:
    value = example.result
    if (problem := find_unencodable(value)) is not None:
        yield "", f"The recorded result is not JSON: {problem}. Record what the model would be shown."
        return
    for row in contracts.drift(tool, value)[:_MOST_ROWS]:
        yield (
            str(row.get("field", "")),
            f"The recorded result no longer fits `output_schema`: {violation_text(row, 'the result')}. Fix the tool, or record the example again.",
        )
    limit, length = tool.result_limit, len(_text_of(value))
    if limit is not None and length > limit:
        yield (
            "",
            f"The recorded result has {length:,} characters; {limit:,} of them are shown. Raise `result_limit`, or return less.",
        )


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def _run_again(tool: Tool, where: str, example: ToolExample) -> list[ToolFinding]:
    """Make a recorded call again, as a run makes it, and compare."""
    from treadle.mock.model import ScriptedModel, call, text  # noqa: PLC0415 - importing all names of the face must stay cheap

    def found(message: str) -> list[ToolFinding]:
        return [ToolFinding(tool=tool.name, level="error", where=f"{where}, run again", message=message)]

    if not tool.effect_of(example.arguments).is_read:
        return found(
            f"It was not called: its effect is `{tool.effect_of(example.arguments)}`, so a check could act on the world. "
            "Remove `deterministic`, or declare the call as `read`."
        )
    results: list[ToolResult] = []

    def listen(event: AnyEvent) -> None:
        if isinstance(event, ToolFinished):
            results.append(event.result)

    model = ScriptedModel([call(tool.name, arguments=example.arguments), text("done")])
    try:
        await Agent(model, tools=[tool], subscribers=[listen], failure_text="whole").run("check the tool")
    except TreadleError as error:
        return found(f"It cannot be called: {error}")
    if not results:
        return found("It gave no result: it asks a person, or waits for something. Remove `deterministic`.")
    result = results[-1]
    if result.is_error and result.status.value != "rejected":
        return found(f"It ended as `{result.status.value}`: {result.message or result.content}")
    now = _returned(result)
    if example.has_result and encode(now) != encode(example.result):  # to Python, true and 1 are equal
        return found(
            f"It returned {shown(now)} now; recorded is {shown(example.result)}. Fix the tool, or record the example again."
        )
    return []


def _returned(result: ToolResult) -> Any:
    if not result.is_error:
        return result.content if result.data is None and result.content != "null" else result.data
    details = (result.data or {}).get("details", [])
    return details[0] if len(details) == 1 else details


# --- dialects


async def _refused_by(dialect: str, tools: Sequence[Tool]) -> list[ToolFinding]:
    """Send the tools to a strict server of a dialect; where it refuses them, each by itself, to find which."""
    specs = {tool.name: spec_of(tool, has_hints=False) for tool in tools}
    if not specs or await _refusal(dialect, tuple(specs.values())) is None:
        return []
    found = []
    for name, spec in specs.items():
        if (why := await _refusal(dialect, (spec,))) is not None:
            message = f"A server of this dialect refuses the tool: {why} Change its name or its schema."
            found.append(ToolFinding(tool=name, level="error", where=f"dialect {dialect}", message=message))
    return found


async def _refusal(dialect: str, specs: tuple[ToolSpec, ...]) -> str | None:
    from treadle.mock import MockProvider  # noqa: PLC0415 - as above

    async with MockProvider(["ok"]) as server:
        model = resolve_model(f"{dialect}:any", base_url=server.base_url, api_key="none", stream=False)
        try:
            async for _ in model.stream(ModelRequest(messages=(user_message("check"),), tools=specs)):
                pass
        except ModelError as error:
            return str(error)
    return None


# --- recordings


@checked
def load_tool_examples(path: Path | str) -> dict[str, tuple[ToolExample, ...]]:
    """Read recorded calls from a file: JSON lines, or one JSON array.

    A call is `{"tool": "price", "arguments": {"product": "teapot"}, "result": 24.5, "deterministic": false}`; the last two may
    be left out.

    Raises:
        ConfigurationError: The file cannot be read, or a row is not a recorded call; with the row.
    """
    check_path("path", path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The recording {shown(str(path))} cannot be read: {error.strerror or error}."
        ) from error
    if len(content) > _MOST_BYTES:
        raise ConfigurationError(f"The recording {shown(str(path))} is larger than 64 MB. Divide it.")
    found: dict[str, tuple[ToolExample, ...]] = {}
    for where, row in _rows(content, path):
        name, example = _recorded_call(row, where)
        found[name] = (*found.get(name, ()), example)
    return found


def _rows(content: bytes, path: Path | str) -> Iterator[tuple[str, Any]]:
    is_array = content.lstrip()[:1] == b"["
    lines = [content] if is_array else content.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = str(path) if is_array else f"{path}, line {number}"
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigurationError(f"{where} is not valid JSON: {error}. Write one recorded call a line.") from error
        yield from ((f"{path}, row {n}", one) for n, one in enumerate(row, 1)) if is_array else ((where, row),)


def _recorded_call(row: Any, where: str) -> tuple[str, ToolExample]:
    known = {"tool", "arguments", "result", "deterministic"}
    form = '{"tool": "price", "arguments": {"product": "teapot"}, "result": 24.5}'
    if not isinstance(row, dict) or not isinstance(row.get("tool"), str) or not isinstance(row.get("arguments"), dict):
        raise ConfigurationError(f"{where} is not a recorded call. Write: {form}.")
    if unknown := sorted(row.keys() - known):
        raise ConfigurationError(f"{where} has the field {shown(unknown[0])}, which is unknown. Write: {form}.")
    if not isinstance(row.get("deterministic", False), bool):
        raise ConfigurationError(f"{where}: deterministic must be true or false; got {shown(row['deterministic'])}.")
    return row["tool"], ToolExample(**{key: value for key, value in row.items() if key != "tool"})
