"""`treadle` and `treadle chat`: a conversation at this terminal."""

import os
from functools import partial
from importlib.util import find_spec

from treadle.cli.commands.doctor import doctor
from treadle.cli.commands.run import continued
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import ChatOptions, DoctorOptions
from treadle.cli.input.options import as_other
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import opened

__all__ = ["chat"]


async def chat(options: ChatOptions, terminal: Terminal) -> int:
    """Talk until the person leaves."""
    terminal.hides_logs = True
    if not (os.isatty(0) and terminal.is_live):
        raise UsageError(
            "`treadle chat` needs an interactive terminal. In a script or a pipe, use `treadle run TASK` or `treadle run -`."
        )
    options = await continued(options, terminal)
    settings = settings_of(options)
    async with opened(settings.journal) as journal:
        if _is_plain():
            from treadle.cli.terminal.plain import talk  # noqa: PLC0415 - one of two faces
        else:
            from treadle.cli.terminal.opening import talk  # noqa: PLC0415 - loads prompt_toolkit and rich
        examine = partial(doctor, as_other(options, DoctorOptions), terminal)
        return await talk(journal, options.id, settings=settings, options=options, terminal=terminal, examine=examine)


def _is_plain() -> bool:
    """Whether lines must do: the terminal obeys nothing, or the extra is not installed."""
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown") or not all(
        map(find_spec, ("prompt_toolkit", "rich"))
    )
