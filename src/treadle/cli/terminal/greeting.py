"""Greeting: what a conversation begins with: where it stands, and what an earlier one left."""

from importlib.metadata import version

from treadle.cli.guidance import guidance_of
from treadle.cli.origins import other_folder
from treadle.cli.output.text import counted, one_line
from treadle.cli.ruling import idle_rules
from treadle.cli.terminal.chat import Chat
from treadle.cli.terminal.faces import Face
from treadle.cli.terminal.recalling import recall

__all__ = ["greet"]


async def greet(chat: Chat, face: Face) -> None:
    """Say where the conversation stands, and what an earlier one left."""
    settings = chat.settings
    folder = one_line(str(settings.root.resolve()), 200)
    face.tell(
        f"treadle {version('treadle')} · {one_line(chat.model or '', 60)} · {folder}\n/help lists commands and keys."
    )
    for note in (*settings.notes, *guidance_of(settings).notes):
        face.tell(f"note: {note}")
    for warning in idle_rules(chat.agent) if chat.model else ():
        face.tell(warning)
    if not chat.session.messages:
        return
    if says := other_folder(chat.session, settings.root):
        face.tell(f"note: {says}")
    face.tell(f"Session {chat.session.id}: {counted(len(chat.session.messages), 'message')}.")
    await recall(chat)
    run = chat.session.state.run
    if run is not None and run.phase in ("paused", "running"):
        face.tell(
            f"Its last run did not finish. /resume {chat.session.id[:8]} continues it; a new message starts a new task."
        )
