"""`treadle tools`: what the model is offered, and whether the contracts of all of it hold."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from treadle import ConfigurationError, Tool, open_session
from treadle.agents import ToolFinding, check_tools, load_tool_examples
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import ToolsOptions
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name
from treadle.cli.tool_sources import carried_out_apart, load_tools
from treadle.errors import ToolDefinitionError
from treadle.ports import Toolset, ToolsetContext
from treadle.tools import ToolExample

__all__ = ["tools"]

_SECONDS = 30
"""What opening one toolset may take."""


class _Opened(NamedTuple):
    """A toolset, and what a run would be offered of it."""

    name: str
    tools: tuple[Tool, ...] = ()
    error: str = ""
    """Why it cannot be opened or listed; empty where it can."""


class _Checked(NamedTuple):
    """What a check has come to."""

    names: tuple[str, ...]
    results: int
    """Recorded results that were compared."""
    findings: tuple[ToolFinding, ...]


def tools(options: ToolsOptions, terminal: Terminal) -> int:
    """List the tools, or check them. Toolsets are opened for that, and closed again."""
    terminal.hides_logs = True
    if options.action == "check":
        return _check(options, terminal)
    if options.recorded or options.runs_again:
        raise UsageError("--examples and --run need `check`: treadle tools check --examples FILE")
    settings = settings_of(options)
    found = load_tools(settings)
    tools = tuple(one for one in found if isinstance(one, Tool))
    opened = asyncio.run(_listed([one for one in found if not isinstance(one, Tool)]))
    if options.as_json:
        terminal.data([*map(_described, tools), *map(_described_set, opened)])
    else:
        for tool in tools:
            _list(tool.name, _effect(tool), tool.description, terminal)
        for one in opened:
            parts = f"unavailable: {one.error}" if one.error else _counted(len(one.tools))
            _list(one.name, "toolset", parts, terminal)
            for tool in one.tools:
                _list(f"  {tool.name}", _effect(tool), tool.description, terminal)
        known = {one.name for one in found}
        if more := [one.name for one in load_tools(settings, may_write=True) if one.name not in known]:
            terminal.say(f"note: `treadle chat` also has {', '.join(more)}; name them with --tools for `treadle run`.")
    return 0


def _list(name: str, effect: str, parts: str, terminal: Terminal) -> None:
    shown = name[: len(name) - len(name.lstrip())] + shown_name(name.strip())
    terminal.line(f"{shown:<16} {effect:<12} {one_line(parts, 100)}")


def _counted(number: int) -> str:
    return f"{number} {'tool' if number == 1 else 'tools'}"


async def _listed(toolsets: Sequence[Toolset]) -> list[_Opened]:
    async with _opened(toolsets) as opened:
        return opened


@asynccontextmanager
async def _opened(toolsets: Sequence[Toolset]) -> AsyncIterator[list[_Opened]]:
    """Open toolsets one after the other, as a run would, in a session that is forgotten; close them in the end."""
    if not toolsets:
        yield []
        return
    async with open_session("memory:") as session, AsyncExitStack() as stack:
        context = ToolsetContext(session=session)
        yield [await _open(one, context, stack) for one in toolsets]


async def _open(toolset: Toolset, context: ToolsetContext, stack: AsyncExitStack) -> _Opened:
    try:
        async with asyncio.timeout(_SECONDS):
            opened = await stack.enter_async_context(toolset.open(context))
            listed = opened.tools(context.session)
            tools = await listed if inspect.isawaitable(listed) else listed
            return _Opened(toolset.name, tuple(tools))
    except TimeoutError:
        return _Opened(toolset.name, error=f"it did not answer within {_SECONDS} s")
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


def _check(options: ToolsOptions, terminal: Terminal) -> int:
    """Hold the tools to their contracts and their recorded calls. Exit code 1 where one breaks them; advice changes nothing."""
    # In a process of its own: a file of tools that ends its process must not pass for tools without a fault.
    found = carried_out_apart(lambda: msgspec.to_builtins(asyncio.run(_checked(options))), "checks the tools")
    return _report(msgspec.convert(found, _Checked), options, terminal)


async def _checked(options: ToolsOptions) -> _Checked:
    try:
        found = load_tools(settings_of(options))
    except UsageError as error:
        broken = error.__cause__
        if not isinstance(broken, ToolDefinitionError):
            raise
        return _Checked((), 0, (ToolFinding(tool="", level="error", where="definition", message=str(error)),))
    recorded = _recorded(options.recorded)
    own = tuple(one for one in found if isinstance(one, Tool))
    async with _opened([one for one in found if not isinstance(one, Tool)]) as opened:
        for one in opened:
            if one.error:
                raise ConfigurationError(
                    f"The toolset {shown_name(one.name)} cannot be opened: {one_line(one.error, 300)}"
                )
        every = (*own, *(tool for one in opened for tool in one.tools))
        findings = await check_tools(every, recorded=recorded, run=options.runs_again)
    in_code = sum(example.has_result for tool in every for example in tool.recorded)
    results = in_code + sum(example.has_result for examples in recorded.values() for example in examples)
    return _Checked(tuple(tool.name for tool in every), results, findings)


def _recorded(paths: Sequence[str]) -> dict[str, tuple[ToolExample, ...]]:
    found: dict[str, tuple[ToolExample, ...]] = {}
    for path in paths:
        for name, examples in load_tool_examples(path).items():
            found[name] = (*found.get(name, ()), *examples)
    return found


def _report(done: _Checked, options: ToolsOptions, terminal: Terminal) -> int:
    checked, results, findings = done
    errors = [one for one in findings if one.level == "error"]
    if options.as_json:
        rows = [
            {"tool": one.tool, "level": one.level, "where": one.where, "field": one.field, "message": one.message}
            for one in findings
        ]
        terminal.data({"checked": checked, "recorded_results": results, "findings": rows})
        return 1 if errors else 0
    for one in sorted(findings, key=lambda one: one.level != "error"):
        name = f"{shown_name(one.tool)}: " if one.tool else ""
        terminal.line(f"{one.level}: {name}{one_line(one.where, 300)}: {one_line(one.message, 2000)}")
    fitting = f", and {results} recorded {'result fits' if results == 1 else 'results fit'}" if results else ""
    said = (
        f"{len(errors)} {'error' if len(errors) == 1 else 'errors'}" if errors else f"every contract is valid{fitting}"
    )
    terminal.line(f"{_counted(len(checked))} checked: {said}.")
    return 1 if errors else 0
