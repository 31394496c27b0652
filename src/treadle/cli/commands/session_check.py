"""`treadle sessions check`: whether the list of sessions says what their events say, or what a deploy would strand."""

from pathlib import Path

import msgspec

from treadle import StrandedSession, check_sessions
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line
from treadle.cli.sessions import opened, stranded_in
from treadle.cli.tool_sources import load_agents

__all__ = ["check", "stranded_line"]


async def check(options: Options, terminal: Terminal) -> int:
    """Compare each session's line in the list, and what is listed as due, with its events. Exit code 1 where one differs."""
    if options.agents:
        return await _preview(options, terminal)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        faults = await check_sessions(journal)
        count = len(await journal.sessions())
    if options.as_json:
        terminal.data([msgspec.to_builtins(fault) for fault in faults])
    for fault in () if options.as_json else faults:
        terminal.line(f"{fault.session_id}  {fault.what}: {one_line(fault.message, 500)}")
    if not options.as_json:
        found = "the list matches the events" if not faults else f"{counted(len(faults), 'difference')} found"
        terminal.say(f"{counted(count, 'session')} checked: {found}.")
    return 1 if faults else 0


async def _preview(options: Options, terminal: Terminal) -> int:
    """List the open sessions that workers with these agents could not continue. Exit code 1 where there is one."""
    settings = settings_of(options)
    agents = load_agents(options.agents, Path(settings.root))
    async with opened(settings.journal, must_exist=True) as journal:
        stranded = await stranded_in(journal, options, agents=agents)
    if options.as_json:
        terminal.data(msgspec.to_builtins(stranded))
        return 1 if stranded else 0
    for one in stranded:
        terminal.line(stranded_line(one))
    terminal.say(f"With these agents, {counted(len(stranded), 'open session')} could not continue.")
    return 1 if stranded else 0


def stranded_line(one: StrandedSession) -> str:
    """Return a line about a session that no worker can continue."""
    return f"{one.session_id}  stranded: {one_line(one.message, 2000)}"
