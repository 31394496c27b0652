"""`treadle acp`: the agent of an editor that speaks the Agent Client Protocol, over standard input and output."""

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from treadle import Toolset
from treadle.cli.commands.serving import ending_on_signals, needs
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.origins import origin_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import make_agent, quiet_logs, resumed_budget
from treadle.cli.sessions import opened, person
from treadle.cli.tool_sources import load_tools
from treadle.serve import Editor, Setup, serve_acp, standard_wire

__all__ = ["command"]

_INSTRUCTIONS = (
    "You help a person in an editor with the files and programs of one folder, through your tools. Look before you say: read "
    "what you speak of. Answer in Markdown, as short as the matter allows."
)


def command(options: Options, terminal: Terminal) -> int:
    """Serve until the editor leaves or a signal ends it."""
    quiet_logs(terminal)
    needs("acp", "acp")
    settings = settings_of(options)
    make_agent(settings, settings.model, options=options)  # what is wrong is told before an editor waits for it
    return asyncio.run(_serve(options, settings, terminal))


async def _serve(options: Options, settings: Settings, terminal: Terminal) -> int:
    def setup(folder: Path, servers: Sequence[Toolset]) -> Setup:
        return _setup(msgspec.structs.replace(options, folder=str(folder)), servers)

    async with opened(settings.journal) as journal:
        with standard_wire(terminal.out.fileno()) as wire, ending_on_signals(wire.end):
            terminal.progress("Serving ACP on standard input and output.")
            editor = Editor(
                journal=journal,
                setup=setup,
                mode=options.mode,
                approve=f"treadle approve {{id}}{same_journal(options)}",
                by=person(options),
                redact=terminal.redactor.text,
            )
            await serve_acp(editor, wire, version=version("treadle"))
    return 0


def _setup(options: Options, servers: Sequence[Toolset]) -> Setup:
    """Return who acts in the folder that the editor has opened: its configuration counts as for `treadle chat`."""
    settings = settings_of(options)
    return Setup(
        agent=make_agent(
            settings,
            settings.model,
            tools=(*load_tools(settings, may_write=True), *servers),
            instructions=_INSTRUCTIONS,
            options=options,
        ),
        budget=settings.budget,
        resumed_budget=lambda session: resumed_budget(session, settings),
        origin=origin_of(settings, settings.model, options),
    )
