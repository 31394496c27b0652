"""`treadle permissions`: the rules that hold, each with its scope and origin, and what they make of one call. Runs no tool."""

import asyncio

from treadle import ShellTools, Tool, shell_tool
from treadle.cli.exits import UsageError
from treadle.cli.input.flags import Mode
from treadle.cli.input.options import Options
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name
from treadle.cli.running import arguments_of, covered_by, policy_of, quiet_logs, ruling_of, unmatched_in
from treadle.cli.tool_sources import load_tools

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List the rules, or show what would happen to a call."""
    quiet_logs(terminal)
    settings = settings_of(options)
    for note in settings.notes:
        terminal.say(f"note: {note}")
    return _list(settings, options, terminal) if options.name is None else _try(settings, options, terminal)


def _list(settings: Settings, options: Options, terminal: Terminal) -> int:
    idle = unmatched_in(settings)
    if options.as_json:
        terminal.data(
            [
                {
                    "kind": one.kind,
                    "rule": one.text,
                    "scope": one.scope,
                    "origin": one.origin,
                    "covers": covered_by(one.text),
                    "unmatched": next(
                        (each.message for each in idle if (each.kind, each.rule) == (one.kind, one.text)), None
                    ),
                }
                for one in settings.rules
            ]
        )
        return 0
    for one in settings.rules:
        terminal.line(f"{one.kind:<6} {one_line(one.text, 200):<36} {one.scope:<8} ({one_line(one.origin, 300)})")
    for each in idle:
        terminal.line(f"warning: {one_line(each.message, 500)}")
    if not settings.rules:
        terminal.say("No rules apply here: reads run, and every other call needs approval.")
    return 0


def _try(settings: Settings, options: Options, terminal: Terminal) -> int:
    tool = _tool(settings, options.name or "", terminal)
    mode: Mode = settings.mode
    arguments = arguments_of(tool, options.task)
    ruling = asyncio.run(ruling_of(tool, arguments, policy=policy_of(settings), mode=mode))
    origin = next(
        (
            one.origin
            for one in settings.rules
            if one.scope == ruling.scope and ruling.rule.endswith(f"{one.kind} {one.text}")
        ),
        None,
    )
    if options.as_json:
        about = {"tool": tool.name, "arguments": arguments, "mode": mode, "decision": ruling.decision}
        terminal.data(
            {
                **about,
                "rule": ruling.rule,
                "scope": ruling.scope,
                "origin": origin,
                "reason": ruling.reason,
                "rules": list(ruling.rules),
            }
        )
        return 0
    place = f" in {origin}" if origin not in (None, "flag") else ""
    by = f": {one_line(ruling.rule, 300)} ({ruling.scope}{place})" if ruling.rule else ""
    terminal.line(f"{ruling.decision}{by}")
    if ruling.reason:
        terminal.line(f"  {one_line(ruling.reason, 500)}")
    for rule in ruling.rules:
        terminal.line(f"  --allow {shown_name(rule)} would allow it without approval: {covered_by(rule)}")
    return 0


def _tool(settings: Settings, name: str, terminal: Terminal) -> Tool:
    """Return a tool of a conversation, which has more than a run where none are named."""
    loaded = load_tools(settings, may_write=True)
    tools = {one.name: one for one in loaded if isinstance(one, Tool)}
    if any(isinstance(one, ShellTools) for one in loaded):  # its tool decides by the same line, and needs a session
        tools.setdefault("shell", shell_tool(settings.root))
    if name not in tools:
        unseen = any(not isinstance(one, Tool | ShellTools) for one in loaded)
        others = " Tools of servers and other toolsets are known only in a run." if unseen else ""
        raise UsageError(
            f"No tool {name!r} is available here. Available: {', '.join(sorted(tools))}. Name others with --tools.{others}"
        )
    if not settings.tools and all(one.name != name for one in load_tools(settings)):
        terminal.say(f"note: `treadle chat` has the tool {name}; `treadle run` has it only with --tools.")
    return tools[name]
