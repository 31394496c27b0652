"""`treadle describe`: the agent that a call of the program would run: model, tools, rules, limits, hooks. Runs nothing."""

from typing import Any

from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_json
from treadle.cli.running import make_agent

__all__ = ["command"]

_INDENT = "  "


def command(options: Options, terminal: Terminal) -> int:
    """Show the agent of these flags and this configuration, without a session and without a request."""
    settings = settings_of(options)
    described = make_agent(settings, settings.model, options=options).describe()
    if options.as_json:
        terminal.data(described)
        return 0
    for name, value in described.items():
        _show(name, value, "", terminal)
    return 0


def _show(name: str, value: Any, indent: str, terminal: Terminal) -> None:
    """Show one field: a line, or a line for each thing inside of it."""
    if name == "tools":
        terminal.line("tools")
        for tool in value:
            terminal.line(f"{_INDENT}{tool['name']}: {one_line(tool['description'], 80)} ({tool['effect']})")
    elif isinstance(value, dict) and value:
        terminal.line(f"{indent}{name}")
        for key, one in value.items():
            _show(key, one, indent + _INDENT, terminal)
    else:
        text = value if isinstance(value, str) else shown_json(value)
        terminal.line(f"{indent}{name}: {one_line(text, 200)}")
