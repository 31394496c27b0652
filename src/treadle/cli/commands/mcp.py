"""`treadle mcp`: list, add, remove, approve and test MCP servers."""

import asyncio
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treadle import ConfigurationError, Tool, open_session
from treadle.cli.commands.serving import mcp_serve
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import McpOptions
from treadle.cli.input.mcp import (
    NO_SERVER,
    SOME_WAIT,
    ListedServer,
    approve_server,
    own_file,
    programs_of,
    project_file,
    revoke_server,
    tools_of,
    with_server,
    without_server,
)
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_name
from treadle.ports import Toolset, ToolsetContext
from treadle.toolsets import McpEntry

__all__ = ["mcp"]

_SECONDS = 60
"""What starting one server and listing its tools may take."""


def mcp(options: McpOptions, terminal: Terminal) -> int:
    """List the servers, change or test them, or be one."""
    settings = settings_of(options)
    return _ACTIONS[options.action](options, settings, terminal)


def _list(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    if options.as_json:
        terminal.data([_described(one) for one in settings.mcp])
        return 0
    for one in settings.mcp:
        terminal.line(f"{shown_name(one.entry.name):<16} {one.state:<9} {one_line(one.entry.shown, 300)}")
        terminal.line(f"{'':<16} from {one_line(one.origin, 300)}")
    if not settings.mcp:
        terminal.line(NO_SERVER)
    elif any(one.is_waiting for one in settings.mcp):
        terminal.line(SOME_WAIT)
    return 0


def _described(one: ListedServer) -> dict[str, Any]:
    entry = one.entry
    return {"name": entry.name, "state": one.state, "origin": one.origin, "shown": entry.shown, "digest": entry.digest}


def _add(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    name, words = _name(options), list(options.command_line)
    if not words:
        raise UsageError(
            f"Give the command or the address of {name!r}, such as: treadle mcp add {name} -- COMMAND ARGUMENT..."
        )
    if words[0].startswith(("http://", "https://")):
        if len(words) > 1:
            raise UsageError(f"An address takes no arguments; got {words[1]!r}.")
        said: dict[str, Any] = {"type": "http", "url": words[0]}
        said |= {"headers": _pairs(options.headers, ":", "--header")} if options.headers else {}
    else:
        said = {"command": words[0], "args": words[1:]}
        said |= {"env": _pairs(options.variables, "=", "--env")} if options.variables else {}
    place, is_private = _file(options, settings)
    listed = ListedServer(entry=McpEntry(name, said), origin=str(place), state="own")
    _ = tools_of(listed, settings.root)  # what is wrong with it is reported now
    with_server(place, name, said, is_private=is_private)
    if not is_private:
        approve_server(listed, settings.root, os.environ)  # who writes it has seen it
    terminal.line(f"Added to {place}: {one_line(listed.entry.shown, 300)}")
    terminal.line(f"To see whether it works: treadle mcp test {name}")
    return 0


def _pairs(given: Sequence[str], sign: str, flag: str) -> dict[str, str]:
    pairs = {}
    for one in given:
        key, found, value = one.partition(sign)
        if not found or not key.strip():
            raise UsageError(f"{flag} {one.split(sign)[0]!r} is invalid: write NAME{sign}VALUE.")
        pairs[key.strip()] = value.strip() if sign == ":" else value
    return pairs


def _file(options: McpOptions, settings: Settings) -> tuple[Path, bool]:
    if options.place == "project":
        return project_file(settings.root), False
    return own_file(os.environ), True


def _remove(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    name = _name(options)
    place, is_private = _file(options, settings)
    if not without_server(place, name, is_private=is_private):
        other = "" if options.place == "project" else " For one of the folder's .mcp.json, add: --scope project."
        raise UsageError(f"{place} has no server {name!r}.{other} `treadle mcp list` lists all.")
    revoke_server(name, settings.root, os.environ)
    terminal.line(f"Removed from {place}: {shown_name(name)}")
    return 0


def _approve(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    """Show what a folder's servers would start, and trust them as they are."""
    waiting = [one for one in settings.mcp if one.is_waiting]
    if options.name is not None:
        waiting = [_found(options.name, settings)]
    for one in waiting:
        if one.state == "own":
            raise UsageError(f"{one.entry.name!r} is a server of your own, in {one.origin}: it needs no approval.")
        approve_server(one, settings.root, os.environ)
        terminal.line(f"{shown_name(one.entry.name)}: {one_line(one.entry.shown, 1000)}")
        files = ", ".join(one_line(name, 300) for name in programs_of(one.entry, settings.root))
        terminal.line(
            f"Approved ({one.entry.digest[:19]}){f' with its files: {files}' if files else ''}. "
            f"If {'one of them' if files else 'its entry'} changes, it needs approval again."
        )
    if not waiting:
        terminal.line("No server is waiting for approval.")
    return 0


def _revoke(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    name = _name(options)
    if not revoke_server(name, settings.root, os.environ):
        raise UsageError(f"No server {name!r} of this folder is approved. `treadle mcp list` lists all.")
    terminal.line(f"No longer approved: {shown_name(name)}")
    return 0


def _test(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    """Start servers as a run would, list their tools, and end them."""
    terminal.hides_logs = True
    chosen = (
        [_found(options.name, settings)] if options.name is not None else [one for one in settings.mcp if one.is_used]
    )
    for one in chosen:
        if one.is_waiting:
            raise UsageError(
                f"MCP server {one.entry.name!r} is not approved: {one_line(one.entry.shown, 300)}. "
                f"To approve it: treadle mcp approve {one.entry.name}"
            )
    if not chosen:
        raise UsageError(NO_SERVER)
    code = 0
    for one in chosen:
        try:
            tools, notes, left_out = asyncio.run(_opened(tools_of(one, settings.root)))
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a server comes to, it is reported
            said = str(error) or f"it did not answer within {_SECONDS} s"
            terminal.line(f"{shown_name(one.entry.name)}: {one_line(said, 600)}")
            code = 1
            continue
        terminal.line(f"{shown_name(one.entry.name)}: works, {counted(len(tools), 'tool')}")
        for tool in tools:
            terminal.line(f"  {shown_name(tool.name):<40} {tool.effect!s:<10} {one_line(tool.description, 100)}")
            for note in notes.get(tool.name, ()):
                terminal.line(f"    note: {one_line(note, 300)}")
        for name, why in left_out.items():
            terminal.line(f"  {shown_name(name)}: not offered: {one_line(why, 300)}")
    return code


async def _opened(toolset: Toolset) -> tuple[list[Tool], dict[str, list[str]], dict[str, str]]:
    """Return the tools of an MCP server, what is odd about some, and why others are not offered."""
    async with (
        open_session("memory:") as session,
        asyncio.timeout(_SECONDS),
        toolset.open(ToolsetContext(session=session)) as opened,
    ):
        listed = opened.tools(session)
        tools = await listed if inspect.isawaitable(listed) else listed
        offers = opened.offers  # type: ignore[attr-defined]  # it is an MCP server's
        return list(tools), offers.notes, dict(offers.left_out)


def _name(options: McpOptions) -> str:
    if options.name is None:
        raise UsageError(f"Name the server: treadle mcp {options.action} NAME.")
    return options.name


def _found(name: str, settings: Settings) -> ListedServer:
    for one in settings.mcp:
        if one.entry.name == name:
            return one
    known = ", ".join(shown_name(one.entry.name) for one in settings.mcp) or "none"
    raise UsageError(f"There is no MCP server {name!r} here. Known: {known}.")


_ACTIONS = {
    "list": _list,
    "add": _add,
    "remove": _remove,
    "approve": _approve,
    "revoke": _revoke,
    "serve": mcp_serve,
    "test": _test,
}
