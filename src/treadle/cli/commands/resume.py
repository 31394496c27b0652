"""`treadle resume`: resume a run that was paused, stopped or interrupted. What was done is not done again."""

import asyncio

from treadle.cli.commands.run import go_on
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import quiet_logs

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Resume one session, named or the last."""
    quiet_logs(terminal)
    if (options.id is None) is not options.is_last:
        raise UsageError(
            "Name one session: `treadle resume ID`, or `treadle resume --last`. `treadle sessions` lists all."
        )
    return asyncio.run(go_on(options, terminal))
