"""`treadle` and `treadle chat`: a conversation at this terminal."""

import os
from functools import partial
from importlib.util import find_spec

from treadle.cli.commands.run import continued
from treadle.cli.exits import UsageError
from treadle.cli.guidance import commands_of
from treadle.cli.input.commands import ChatOptions, DoctorOptions
from treadle.cli.input.options import as_other
from treadle.cli.input.places import user_config
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import opened
from treadle.cli.terminal.chat import talk
from treadle.cli.terminal.faces import Face
from treadle.cli.terminal.plain import Lines
from treadle.cli.terminal.slash import COMMANDS

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
        face = _face(terminal, settings)
        examine = partial(_examine, options, terminal)
        return await talk(
            face, journal, options.id, settings=settings, options=options, terminal=terminal, examine=examine
        )


def _examine(options: ChatOptions, terminal: Terminal) -> int:
    from treadle.cli.commands.doctor import doctor  # noqa: PLC0415 - loads the clients of all vendors, which the prompt need not wait for

    return doctor(as_other(options, DoctorOptions), terminal)


def _face(terminal: Terminal, settings: Settings) -> Face:
    """Return a screen; plain lines where the terminal obeys nothing, or the extra is not installed."""
    is_plain = os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")
    if is_plain:
        return Lines(terminal)
    if not all(map(find_spec, ("prompt_toolkit", "rich"))):
        terminal.progress(
            "note: plain lines; for the whole terminal: pip install '.[terminal]' in the project's folder"
        )
        return Lines(terminal)
    from treadle.cli.terminal.drawing import Drawing  # noqa: PLC0415 - loads rich
    from treadle.cli.terminal.screen import Completing, Screen  # noqa: PLC0415 - loads prompt_toolkit

    history = user_config(os.environ).with_name("history")
    own = {name: one.says for name, one in commands_of(settings).items()}
    completer = Completing({**own, **COMMANDS}, settings.root)
    return Screen(terminal, Drawing(terminal.redactor, os.environ), history=history, completer=completer)
