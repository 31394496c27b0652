"""`treadle acp`, `treadle mcp serve` and `treadle mock`: what serves until its client leaves or a signal ends it.

The packages of the protocols are extras: they are loaded when they are known to be there.
"""

import asyncio
import os
import re
import secrets
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from treadle import Tool, serve
from treadle.cli.exits import UsageError, check_installed
from treadle.cli.input.commands import AcpOptions, McpOptions, MockOptions
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.origins import origin_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import kept_open, make_agent, resumed_budget
from treadle.cli.sessions import opened, person
from treadle.cli.signals import on_signals
from treadle.cli.tool_sources import load_tools
from treadle.drivers import ScriptedDriver
from treadle.ports import Journal, Toolset
from treadle.testing import MockProvider, ScriptedModel, load_script

__all__ = ["acp", "mcp_serve", "mock"]


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the service as a client that leaves does: what is under way is recorded first."""


def _setup(settings: Settings, options: AcpOptions | McpOptions, **agent: Any) -> "serve.Setup":  # Any: of `make_agent`
    return serve.Setup(
        agent=make_agent(settings, settings.model, options=options, **agent),
        budget=settings.budget,
        resumed_budget=lambda session: resumed_budget(session, settings),
        origin=origin_of(settings, settings.model, options),
    )


# --- ACP: the agent of an editor, over standard input and output.

_INSTRUCTIONS = (
    "You help a person in an editor with the files and programs of one folder, through your tools. Look before you say: read "
    "what you speak of. Answer in Markdown, as short as the matter allows."
)


async def acp(options: AcpOptions, terminal: Terminal) -> int:
    """Serve until the editor leaves or a signal ends it."""
    terminal.hides_logs = True
    check_installed("acp", "acp")
    settings = settings_of(options)
    make_agent(settings, settings.model, options=options)  # what is wrong is told before an editor waits for it

    def setup(folder: Path, servers: Sequence[Toolset]) -> "serve.Setup":
        """Return who acts in the folder that the editor has opened: its configuration counts as for `treadle chat`."""
        here = msgspec.structs.replace(options, folder=str(folder))
        there = settings_of(here)
        tools = (*load_tools(there, may_write=True), *servers)
        return _setup(there, here, tools=tools, instructions=_INSTRUCTIONS)

    async with opened(settings.journal) as journal:
        with serve.standard_wire(terminal.out.fileno()) as wire, on_signals(lambda _: wire.end(), *_ENDING):
            terminal.progress("Serving ACP on standard input and output.")
            editor = serve.Editor(
                journal=journal,
                setup=setup,
                mode=options.mode,
                approve=f"treadle approve {{id}}{same_journal(options)}",
                by=person(options),
                redact=terminal.redactor.text,
            )
            await serve.serve_acp(editor, wire, version=version("treadle"))
    return 0


# --- MCP: an agent, or tools, for the client that has started this program, or for those that come in over HTTP.


def mcp_serve(options: McpOptions, settings: Settings, terminal: Terminal) -> int:
    """Serve until the client leaves or a signal ends it."""
    terminal.hides_logs = True
    check_installed("mcp", "mcp")
    if options.has_no_token and options.http_port is None:
        raise UsageError("--no-token is about --http: a client on standard input needs no token.")
    for note in settings.notes:
        terminal.progress(f"note: {note}")
    offered = serve.service_tools(load_tools(settings)) if options.offer in ("tools", "both") else ()
    if options.offer == "tools" and not offered:
        raise UsageError(
            "--offer tools needs tools: name them with --tools. Tools of other MCP servers are not served."
        )
    agent = None if options.offer == "tools" else _setup(settings, options)
    return asyncio.run(_serve(options, settings, terminal, agent, offered))


async def _serve(
    options: McpOptions,
    settings: Settings,
    terminal: Terminal,
    agent: "serve.Setup | None",
    offered: tuple[Tool, ...],
) -> int:
    async with opened(settings.journal) as journal, _lasting(agent) as lasting:
        offer = _offer(options, settings, terminal, journal=journal, agent=lasting, offered=offered)
        if options.http_port is not None:
            await _serve_http(offer, options.http_port, terminal, asks_token=not options.has_no_token)
            return 0
        with serve.standard_wire(terminal.out.fileno()) as wire, on_signals(lambda _: wire.end(), *_ENDING):
            terminal.progress("Serving MCP on standard input and output.")
            await serve.serve_mcp(offer, wire, version=version("treadle"))
    return 0


@asynccontextmanager
async def _lasting(setup: "serve.Setup | None") -> AsyncGenerator["serve.Setup | None"]:
    """Keep the MCP servers of an agent open as long as it is served."""
    if setup is None:
        yield None
        return
    async with kept_open(setup.agent) as agent:
        yield msgspec.structs.replace(setup, agent=agent)


async def _serve_http(offer: "serve.Offer", port: int, terminal: Terminal, *, asks_token: bool) -> None:
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
        with on_signals(lambda _: ended.set(), *_ENDING):
            await serve.serve_mcp_http(offer, address, version=version("treadle"), token=token, ended=ended)


def _address(port: int) -> "serve.Address":
    try:
        return serve.Address(port)
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {error.strerror or error}. Choose another, or 0 for any that is free."
        ) from error


def _offer(
    options: McpOptions,
    settings: Settings,
    terminal: Terminal,
    *,
    journal: Journal,
    agent: "serve.Setup | None",
    offered: tuple[Tool, ...],
) -> "serve.Offer":
    return serve.Offer(
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
    options: McpOptions, settings: Settings, offered: tuple[Tool, ...], name: str, arguments: dict[str, Any] | None
) -> "serve.Setup":
    """Return an agent whose one call the client proposes: every rule, limit and hook of the person holds for it."""
    proposed: list[Any] = [] if arguments is None else [{"calls": [{"name": name, "arguments": arguments}]}]
    driver = ScriptedDriver(ScriptedModel([*proposed, {"text": "Done."}]))
    setup = _setup(msgspec.structs.replace(settings, model="demo"), options, tools=offered, driver=driver)
    return msgspec.structs.replace(setup, origin=origin_of(settings, None, options))


# --- Mock: a script, served as a strict model provider on loopback.


async def mock(options: MockOptions, terminal: Terminal) -> int:
    """Serve a script until a signal stops it. The first line of standard output is the base URL."""
    terminal.hides_logs = True
    stopped = asyncio.Event()
    with on_signals(lambda _: stopped.set(), signal.SIGINT, signal.SIGTERM):
        async with MockProvider(load_script(options.script), port=options.port, record=options.record) as provider:
            terminal.line(provider.base_url)
            terminal.say("Serving until Ctrl-C. To try it: treadle run -m openai-chat:mock --base-url URL TASK")
            await stopped.wait()
    for refusal in provider.refusals:
        terminal.say(f"refused: {refusal}")
    return 0
