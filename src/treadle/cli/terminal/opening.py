"""Opening: a conversation on a screen of its own: what it begins with, and how it ends. Knows no key."""

import os
from collections.abc import Callable

from treadle.cli.input.commands import ChatOptions
from treadle.cli.input.places import user_config
from treadle.cli.input.settings import Settings
from treadle.cli.output.terminal import Terminal
from treadle.cli.terminal.chat import Chat, greet
from treadle.cli.terminal.drawing import Drawing
from treadle.cli.terminal.screen import Completing, Screen
from treadle.cli.terminal.slash import COMMANDS
from treadle.ports import Journal

__all__ = ["talk"]


async def talk(
    journal: Journal,
    session_id: str | None,
    *,
    settings: Settings,
    options: ChatOptions,
    terminal: Terminal,
    examine: Callable[[], object],
) -> int:
    """Talk until the person leaves; return the exit code.

    Raises:
        TreadleError: The session, the model, its key or a tool is wrong; nothing was asked then.
    """
    history = user_config(os.environ).with_name("history")
    screen = Screen(
        terminal, Drawing(terminal.redactor), history=history, completer=Completing(COMMANDS, settings.root)
    )
    chat = Chat(screen, journal, settings=settings, options=options, terminal=terminal, examine=examine)
    _ = chat.agent  # what is wrong is reported before anything is shown
    await chat.open(session_id)
    async with screen.opened():
        await greet(chat, screen)
        code = await chat.run(options.task)
    if chat.session.messages:
        terminal.say(f"session: {chat.session.id}. Continue with: treadle chat --session {chat.session.id}")
    return code
