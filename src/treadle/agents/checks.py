"""Checks: what an agent is described with, refused at once where it is of a wrong kind. Makes no agent."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.canonical import find_unencodable
from treadle.engine.spec import Instruction
from treadle.errors import ConfigurationError, ToolNameConflict, shown
from treadle.events import Subscriber
from treadle.fields import check_fields
from treadle.messages import Message
from treadle.ports import Toolset, is_toolset
from treadle.tooling.callables import MethodTool
from treadle.tooling.toolbox import Toolbox
from treadle.tools import JsonObject, Tool

__all__ = [
    "checked_chars",
    "checked_choice",
    "checked_depth",
    "checked_instructions",
    "checked_metadata",
    "checked_name",
    "checked_required",
    "checked_seconds",
    "checked_subscribers",
    "checked_task",
    "equipped",
]

_LONGEST_SECONDS = 100 * 366 * 86400.0
_LONGEST_NAME = 200
_FEWEST_CHARS = 100


def equipped(tools: Sequence[Tool | Toolset], *, parallel_hint: bool) -> tuple[Toolbox, tuple[Toolset, ...]]:
    own, toolsets = _parted(tools)
    toolbox = Toolbox(own, parallel_hint=parallel_hint)
    toolbox.compile()
    return toolbox, toolsets


def checked_choice(choice: str, toolbox: Toolbox, toolsets: Sequence[Toolset]) -> str:
    names = [tool.name for tool in toolbox]
    if choice and toolsets:
        return choice  # it may name a tool of theirs
    if choice not in ("auto", "none", "required") and choice not in names:
        raise ConfigurationError(f"tool_choice {shown(choice)} is neither auto, none, required nor one of {names}.")
    return choice


def checked_seconds(option: str, value: float | None) -> Any:  # Any: None only for None
    if value is None:
        return None
    if not 0 < value <= _LONGEST_SECONDS:
        raise ConfigurationError(
            f"{option} must be a number of seconds above 0, at most 100 years; got {shown(value)}."
        )
    return float(value)


def checked_chars(value: int | None) -> int | None:
    if value is not None and value < _FEWEST_CHARS:
        raise ConfigurationError(
            f"step_result_chars must be a whole number of at least {_FEWEST_CHARS} characters, or None; got {shown(value)}."
        )
    return value


def checked_depth(value: int) -> int:
    if value < 0:
        raise ConfigurationError(
            f"max_depth must be a whole number of agents below this one, 0 for none; got {shown(value)}."
        )
    return value


def checked_subscribers(subscribers: Sequence[Subscriber]) -> tuple[Subscriber, ...]:
    for one in subscribers:
        if not callable(one) or inspect.iscoroutinefunction(one):
            raise ConfigurationError(f"A subscriber is a plain function of the event, not async; got {shown(one)}.")
    return tuple(subscribers)


def checked_name(name: str, owner: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(f"{owner} name has 1 to {_LONGEST_NAME} printable characters; got {shown(name)}.")
    return name


def checked_instructions(given: Any) -> str | tuple[Instruction, ...] | None:  # Any: whatever a program gives
    if given is None or isinstance(given, str):
        return given
    parts = (given,) if callable(given) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(one, str) or callable(one) for one in parts):
        raise ConfigurationError(
            f"instructions must be a string, a function of the RunContext that returns one, or a list of these; got {shown(given)}."
        )
    return "\n\n".join(filter(None, parts)) if all(isinstance(one, str) for one in parts) else tuple(parts)


def checked_metadata(metadata: JsonObject | None, tenant: str | None) -> JsonObject:
    about = {**(metadata or {}), **({} if tenant is None else {"tenant": tenant})}
    if (fault := find_unencodable(about)) is not None:
        raise ConfigurationError(f"The metadata cannot be stored: {fault}.")
    return about


def checked_required(names: Sequence[str]) -> tuple[str, ...]:
    if not all(names):
        raise ConfigurationError(f"required must be a list of names of tools and toolsets; got {shown(names)}.")
    return tuple(names)


def checked_task(task: str | Message) -> str | Message:
    if isinstance(task, Message):
        check_fields("The task's Message", task)
        for part in task.parts:
            check_fields(f"The task's {type(part).__name__}", part)
    return task


def _parted(tools: Sequence[Tool | Toolset]) -> tuple[list[Tool], tuple[Toolset, ...]]:
    """Return the tools and the toolsets of an agent, each in their order."""
    if isinstance(tools, Tool | str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools must be a list of tools; got {shown(tools)}.")
    own: list[Tool] = []
    toolsets: dict[str, Toolset] = {}
    for one in tools:
        if isinstance(one, Tool):
            own.append(one)
            continue
        if isinstance(one, MethodTool):
            name = one.__name__
            raise ConfigurationError(f"{name} is a method: pass it with its object, such as tools=[thing.{name}].")
        if not is_toolset(one):
            raise ConfigurationError(
                f"{shown(one)} is neither a Tool nor a toolset: decorate the function with @tool, make a Tool(...), or pass "
                "an object with a name and open(ctx), as treadle.ports.Toolset describes."
            )
        name = checked_name(one.name, "A toolset's")
        if name in toolsets:
            raise ToolNameConflict(f"Two toolsets are named {name!r}. Give one of them another name.")
        toolsets[name] = one
    return own, tuple(toolsets.values())
