"""`treadle tools`: what the model is offered, and whether the contracts of all of it hold."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle import Agent, ConfigurationError, Tool, Toolset, ToolsetContext, open_session
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_json, shown_name
from treadle.cli.running import quiet_logs
from treadle.cli.tool_sources import load_tools

__all__ = ["command"]

_SECONDS = 30
"""What opening one toolset may take."""


class _Opened(NamedTuple):
    """A toolset, and what a run would be offered of it."""

    name: str
    tools: tuple[Tool, ...] = ()
    error: str = ""
    """Why it cannot be opened or listed; empty where it can."""


def command(options: Options, terminal: Terminal) -> int:
    """List the tools, or check them. Toolsets are opened for that, and closed again."""
    quiet_logs()
    found = load_tools(settings_of(options))
    tools = tuple(one for one in found if isinstance(one, Tool))
    opened = asyncio.run(_opened([one for one in found if not isinstance(one, Tool)]))
    if options.action == "check":
        return _check(tools, opened, options, terminal)
    if options.as_json:
        terminal.data([*map(_described, tools), *map(_described_set, opened)])
    else:
        for tool in tools:
            _list(tool.name, _effect(tool), tool.description, terminal)
        for one in opened:
            words = f"unavailable: {one.error}" if one.error else _counted(len(one.tools))
            _list(one.name, "toolset", words, terminal)
            for tool in one.tools:
                _list(f"  {tool.name}", _effect(tool), tool.description, terminal)
    return 0


def _list(name: str, effect: str, words: str, terminal: Terminal) -> None:
    shown = name[: len(name) - len(name.lstrip())] + shown_name(name.strip())
    terminal.line(f"{shown:<16} {effect:<12} {one_line(words, 100)}")


def _counted(number: int) -> str:
    return f"{number} {'tool' if number == 1 else 'tools'}"


async def _opened(toolsets: Sequence[Toolset]) -> list[_Opened]:
    """Open toolsets one after the other, as a run would, in a session that is forgotten."""
    if not toolsets:
        return []
    async with open_session("memory:") as session:
        context = ToolsetContext(session=session)
        return [await _open(one, context) for one in toolsets]


async def _open(toolset: Toolset, context: ToolsetContext) -> _Opened:
    try:
        async with asyncio.timeout(_SECONDS), toolset.open(context) as opened:
            listed = opened.tools(context.session)
            tools = await listed if inspect.isawaitable(listed) else listed
            return _Opened(toolset.name, tuple(tools))
    except TimeoutError:
        return _Opened(toolset.name, error=f"it gave no answer within {_SECONDS} s")
    except Exception as error:  # noqa: BLE001 - a stranger's code: whatever it is, the other tools are listed
        return _Opened(toolset.name, error=f"{type(error).__name__}: {error}".rstrip(": "))


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": _effect(tool),
    }


def _described_set(one: _Opened) -> dict[str, Any]:
    about: dict[str, Any] = {"name": one.name, "is_toolset": True, "tools": [_described(tool) for tool in one.tools]}
    return {**about, "error": one.error} if one.error else about


def _effect(tool: Tool) -> str:
    return "by call" if callable(tool.effect) else str(tool.effect)


def _check(tools: tuple[Tool, ...], opened: Sequence[_Opened], options: Options, terminal: Terminal) -> int:
    """Compile every contract, and name what a model would stumble over. The first broken contract is an error.

    Raises:
        ConfigurationError: A toolset cannot be opened.
    """
    for one in opened:
        if one.error:
            raise ConfigurationError(f"The toolset {shown_name(one.name)} cannot be opened: {one_line(one.error, 300)}")
    every = (*tools, *(tool for one in opened for tool in one.tools))
    Agent("demo", tools=every).check()
    advice = [{"tool": tool.name, "advice": words} for tool in every for words in _advice(tool)]
    if options.as_json:
        terminal.data({"checked": [tool.name for tool in every], "advice": advice})
        return 0
    for words in advice:
        terminal.line(f"{shown_name(words['tool'])}: {words['advice']}")
    terminal.line(f"{_counted(len(every))} checked: every contract compiles.")
    return 0


def _advice(tool: Tool) -> list[str]:
    advice = [] if tool.description.strip() else ["it has no description: the model cannot tell when to use it."]
    properties = tool.parameters.get("properties", {})
    bare = [name for name, schema in properties.items() if isinstance(schema, dict) and not schema.get("description")]
    return [*advice, *(f"parameter {shown_json(name)} has no description." for name in bare)]
