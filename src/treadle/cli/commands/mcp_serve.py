"""`treadle mcp serve`: an agent, or tools, for the MCP client that has started this program."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from treadle import ScriptedDriver, Tool
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import Settings
from treadle.cli.making import make_agent, resumed_budget
from treadle.cli.origins import origin_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import quiet_logs
from treadle.cli.sessions import opened, person
from treadle.cli.tool_sources import load_tools
from treadle.ports import Journal
from treadle.serve import Offer, Setup, Wire, serve_mcp, service_tools, standard_wire
from treadle.testing import ScriptedModel

__all__ = ["ending_on_signals", "needs", "serve"]


def serve(options: Options, settings: Settings, terminal: Terminal) -> int:
    """Serve until the client leaves or a signal ends it."""
    quiet_logs()
    needs("mcp", "mcp")
    for note in settings.notes:
        terminal.progress(f"note: {note}")
    offered = service_tools(load_tools(settings)) if options.offer in ("tools", "both") else ()
    if options.offer == "tools" and not offered:
        raise UsageError(
            "--offer tools needs tools: name them with --tools. Those of other MCP servers are not served."
        )
    agent = None if options.offer == "tools" else _setup(options, settings)
    return asyncio.run(_serve(options, settings, terminal, agent, offered))


def needs(package: str, extra: str) -> None:
    """Refuse to serve without the protocol's package.

    Raises:
        UsageError: It is not installed.
    """
    if find_spec(package) is None:
        raise UsageError(
            f"This needs the package {package}. Install it: pip install '.[{extra}]' in the project's folder"
        )


@contextmanager
def ending_on_signals(wire: Wire) -> Iterator[None]:
    """Let a signal end the service as a client that leaves does: what is under way is recorded first."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        loop.add_signal_handler(number, wire.end)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _serve(
    options: Options, settings: Settings, terminal: Terminal, agent: Setup | None, offered: tuple[Tool, ...]
) -> int:
    async with opened(settings.journal) as journal:
        with standard_wire(terminal.out.fileno()) as wire, ending_on_signals(wire):
            terminal.progress("Serving MCP on standard input and output.")
            offer = _offer(options, settings, terminal, journal=journal, agent=agent, offered=offered)
            await serve_mcp(offer, wire, version=version("treadle"))
    return 0


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
