"""Checks: what an agent is described with, refused at once where it is of a wrong kind. Makes no agent."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import ConfigurationError, ToolNameConflict, shown
from treadle.events import Subscriber
from treadle.fields import check_fields
from treadle.hooks import hooks_of
from treadle.messages import Message
from treadle.ports import Hook, Interceptor, Toolset, is_toolset
from treadle.tooling.callables import MethodTool
from treadle.tooling.toolbox import Toolbox
from treadle.tools import Tool

__all__ = [
    "checked_choice",
    "checked_lists",
    "checked_name",
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
    if isinstance(choice, str) and choice and toolsets:
        return choice  # it may name a tool of theirs
    if choice not in ("auto", "none", "required") and choice not in names:
        raise ConfigurationError(f"tool_choice {shown(choice)} is neither auto, none, required nor one of {names}.")
    return choice


def checked_numbers(
    toolset_seconds: object, step_result_chars: Any, approval_seconds: object, batch_seconds: object, max_depth: object
) -> dict[str, Any]:  # Any: fields of the description, by name
    """Return the numbers of an agent's description by name; raise ConfigurationError where one is invalid."""
    return {
        "toolset_seconds": checked_seconds("toolset_seconds", toolset_seconds),
        "step_result_chars": checked_chars("step_result_chars", step_result_chars),
        "approval_seconds": checked_seconds("approval_seconds", approval_seconds),
        "batch_seconds": _checked_limit("batch_seconds", batch_seconds),
        "max_depth": _checked_depth(max_depth),
    }


def checked_approver(approver: Any, seconds: object) -> dict[str, Any]:  # Any: one of three forms; fields, by name
    """Return who answers requests for consent and for how long; raise ConfigurationError where it cannot be asked."""
    is_asked = any(callable(getattr(approver, method, None)) for method in ("approve", "decide"))
    if approver is not None and not callable(approver) and not is_asked:
        raise ConfigurationError(
            f"approver must be a function of the request, a policy, or an object with `approve`; got {shown(approver)}."
        )
    return {"approver": approver, "approver_seconds": _checked_limit("approver_seconds", seconds)}


def _checked_limit(option: str, seconds: object) -> float | None:
    return None if seconds is None else checked_seconds(option, seconds)


def checked_subscribers(subscribers: Sequence[Subscriber]) -> tuple[Subscriber, ...]:
    _require_list("subscribers", subscribers)
    for one in subscribers:
        if not callable(one) or inspect.iscoroutinefunction(one):
            raise ConfigurationError(f"A subscriber is a plain function of the event, not async; got {shown(one)}.")
    return tuple(subscribers)


def checked_lists(
    subscribers: Sequence[Subscriber],
    interceptors: Sequence[Interceptor],
    hooks: Sequence[Hook],
    required: Sequence[str],
) -> dict[str, Any]:  # Any: fields of the description, by name
    """Return the lists of an agent's description by name; raise ConfigurationError where one is invalid."""
    return {
        "subscribers": checked_subscribers(subscribers),
        "hooks": _checked_hooks(interceptors, hooks),
        "required": _checked_names(required),
    }


def _checked_hooks(interceptors: Sequence[Interceptor], hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    _require_list("interceptors", interceptors)
    for one in interceptors:
        _require("interceptors", one, "before")
        _require("interceptors", one, "after")
    _require_list("hooks", hooks)
    return hooks_of(interceptors, hooks)


def checked_name(name: str | None) -> str:
    if name is None:
        return ""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(f"An agent's name has 1 to {_LONGEST_NAME} printable characters; got {shown(name)}.")
    return name


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    _require_list("required", names)
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(f"required must be a list of names of tools and toolsets; got {shown(names)}.")
    return tuple(names)


def checked_seconds(option: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _LONGEST_SECONDS:  # type: ignore[operator]  # a number, as was just seen
        raise ConfigurationError(
            f"{option} must be a number of seconds above 0, at most 100 years; got {shown(value)}."
        )
    return float(value)  # type: ignore[arg-type]  # as above


def checked_chars(option: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or value < _FEWEST_CHARS):
        raise ConfigurationError(
            f"{option} must be a whole number of at least {_FEWEST_CHARS} characters, or None; got {shown(value)}."
        )
    return value


def _checked_depth(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ConfigurationError(
            f"max_depth must be a whole number of agents below this one, 0 for none; got {shown(value)}."
        )
    return value


def _require_list(option: str, value: object) -> None:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise ConfigurationError(f"{option} must be a list; got {shown(value)}.")


def _require(option: str, value: object, method: str) -> None:
    # A port is whatever has its methods: reported here, and not by an AttributeError in the middle of a run.
    if not callable(getattr(value, method, None)):
        raise ConfigurationError(f"{option} must have the method {method}(); got {shown(value)}.")


def checked_task(task: object) -> str | Message:
    if not isinstance(task, str | Message):
        raise ConfigurationError(f"The task must be a string or a Message; got {shown(task)}.")
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
        name = one.name
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise ConfigurationError(
                f"A toolset's name has 1 to {_LONGEST_NAME} printable characters; got {shown(name)}."
            )
        if name in toolsets:
            raise ToolNameConflict(f"Two toolsets are named {name!r}. Give one of them another name.")
        toolsets[name] = one
    return own, tuple(toolsets.values())
