"""`treadle mcp serve`: an agent, or tools, for the MCP client that has started this program, or for those that come in over HTTP."""

import asyncio
import os
import re
import secrets
from contextlib import closing
from functools import partial
from importlib.metadata import version
from typing import Any

from treadle import ScriptedDriver, Tool
from treadle.cli.commands.serving import ending_on_signals, needs
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import Settings
from treadle.cli.origins import origin_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import make_agent, quiet_logs, resumed_budget
from treadle.cli.sessions import opened, person
from treadle.cli.tool_sources import load_tools
from treadle.ports import Journal
from treadle.serve import (
    Address,
    Offer,
    Setup,
    serve_mcp,
    serve_mcp_http,
    service_tools,
    standard_wire,
)
from treadle.testing import ScriptedModel

__all__ = ["serve"]


def serve(options: Options, settings: Settings, terminal: Terminal) -> int:
    """Serve until the client leaves or a signal ends it."""
    quiet_logs(terminal)
    needs("mcp", "mcp")
    if options.has_no_token and options.http_port is None:
        raise UsageError("--no-token is about --http: a client on standard input needs no token.")
    for note in settings.notes:
        terminal.progress(f"note: {note}")
    offered = service_tools(load_tools(settings)) if options.offer in ("tools", "both") else ()
    if options.offer == "tools" and not offered:
        raise UsageError(
            "--offer tools needs tools: name them with --tools. Tools of other MCP servers are not served."
        )
    agent = None if options.offer == "tools" else _setup(options, settings)
    return asyncio.run(_serve(options, settings, terminal, agent, offered))


async def _serve(
    options: Options, settings: Settings, terminal: Terminal, agent: Setup | None, offered: tuple[Tool, ...]
) -> int:
    async with opened(settings.journal) as journal:
        offer = _offer(options, settings, terminal, journal=journal, agent=agent, offered=offered)
        if options.http_port is not None:
            await _serve_http(offer, options.http_port, terminal, asks_token=not options.has_no_token)
            return 0
        with standard_wire(terminal.out.fileno()) as wire, ending_on_signals(wire.end):
            terminal.progress("Serving MCP on standard input and output.")
            await serve_mcp(offer, wire, version=version("treadle"))
    return 0


async def _serve_http(offer: Offer, port: int, terminal: Terminal, *, asks_token: bool) -> None:
    given = os.environ.get("TREADLE_MCP_TOKEN") or None
    if given is not None and not re.fullmatch(r"[\x21-\x7e]{16,}", given):
        raise UsageError(
            "TREADLE_MCP_TOKEN must have at least 16 characters: ASCII letters, digits and signs, no spaces."
        )
    token = (given or secrets.token_urlsafe(32)) if asks_token else None
    with closing(_address(port)) as address:
        terminal.progress(f"Serving MCP at {address.url} (this machine only). Ctrl+C stops it.")
        if token is None:
            terminal.progress("Every program on this machine can connect: no token is required.")
        elif given is None:
            terminal.reveal(f"Clients must send: Authorization: Bearer {token}")
            terminal.progress("To use the same token each time, set TREADLE_MCP_TOKEN.")
        ended = asyncio.Event()
        with ending_on_signals(ended.set):
            await serve_mcp_http(offer, address, version=version("treadle"), token=token, ended=ended)


def _address(port: int) -> Address:
    try:
        return Address(port)
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {error.strerror or error}. Choose another, or 0 for any that is free."
        ) from error


def _setup(options: Options, settings: Settings) -> Setup:
    return Setup(
        agent=make_agent(settings, settings.model, options=options),
        budget=settings.budget,
        resumed_budget=lambda session: resumed_budget(session, settings),
        origin=origin_of(settings, settings.model, options),
    )


def _offer(
    options: Options,
    settings: Settings,
    terminal: Terminal,
    *,
    journal: Journal,
    agent: Setup | None,
    offered: tuple[Tool, ...],
) -> Offer:
    return Offer(
        journal=journal,
        agent=agent,
        description=options.description
        or f"Give a task to an agent that works in the folder {settings.root} through its tools.",
        tools=offered,
        caller=partial(_caller, options, settings, offered) if offered else None,
        approve=f"treadle approve {{id}}{same_journal(options)}",
        by=person(options),
        redact=terminal.redactor.text,
    )


def _caller(
    options: Options, settings: Settings, offered: tuple[Tool, ...], name: str, arguments: dict[str, Any] | None
) -> Setup:
    """Return an agent whose one call the client proposes: every rule, limit and hook of the person holds for it."""
    proposed: list[Any] = [] if arguments is None else [{"calls": [{"name": name, "arguments": arguments}]}]
    driver = ScriptedDriver(ScriptedModel([*proposed, {"text": "Done."}]))
    agent = make_agent(settings, "demo", tools=offered, options=options, driver=driver)
    return Setup(
        agent=agent,
        budget=settings.budget,
        resumed_budget=lambda session: resumed_budget(session, settings),
        origin=origin_of(settings, None, options),
    )
