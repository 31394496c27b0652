"""`treadle sessions check`: whether the list of sessions says what their events say."""

import msgspec

from treadle import check_sessions
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line
from treadle.cli.sessions import opened

__all__ = ["check"]


async def check(options: Options, terminal: Terminal) -> int:
    """Compare each session's line in the list, and what is listed as due, with its events. Exit code 1 where one differs."""
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
