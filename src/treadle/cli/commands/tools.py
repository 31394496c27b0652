"""`treadle tools`: what the model is offered, and whether the contracts of all of it hold."""

from typing import Any

from treadle import Agent, Tool, Toolset
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_json, shown_name
from treadle.cli.running import quiet_logs
from treadle.cli.tool_sources import load_tools

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List the tools, or check them."""
    quiet_logs()
    tools = load_tools(settings_of(options))
    if options.action == "check":
        return _check(tools, options, terminal)
    if options.as_json:
        terminal.data([_described(tool) for tool in tools])
        return 0
    for tool in tools:
        effect, words = (_effect(tool), tool.description) if isinstance(tool, Tool) else ("toolset", _OPENED)
        terminal.line(f"{shown_name(tool.name):<16} {effect:<12} {one_line(words, 100)}")
    return 0


_OPENED = "Its tools are known once a run has opened it."


def _described(tool: Tool | Toolset) -> dict[str, Any]:
    if not isinstance(tool, Tool):
        return {"name": tool.name, "is_toolset": True}
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": _effect(tool),
    }


def _effect(tool: Tool) -> str:
    return "by call" if callable(tool.effect) else str(tool.effect)


def _check(tools: tuple[Tool | Toolset, ...], options: Options, terminal: Terminal) -> int:
    """Compile every contract, and name what a model would stumble over. The first broken contract is an error."""
    Agent("demo", tools=tools).check()
    advice = [
        {"tool": tool.name, "advice": words} for tool in tools if isinstance(tool, Tool) for words in _advice(tool)
    ]
    if options.as_json:
        terminal.data({"checked": [tool.name for tool in tools], "advice": advice})
        return 0
    for one in advice:
        terminal.line(f"{shown_name(one['tool'])}: {one['advice']}")
    terminal.line(f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'} checked: every contract compiles.")
    return 0


def _advice(tool: Tool) -> list[str]:
    advice = [] if tool.description.strip() else ["it has no description: the model cannot tell when to use it."]
    properties = tool.parameters.get("properties", {})
    bare = [name for name, schema in properties.items() if isinstance(schema, dict) and not schema.get("description")]
    return [*advice, *(f"parameter {shown_json(name)} has no description." for name in bare)]
