"""Recalling: what a person is shown of sessions that they come back to: the list of them, and the last exchange of one."""

from typing import Protocol

from treadle import Session, open_session
from treadle.cli.input.settings import Settings
from treadle.cli.origins import folder_of, is_same_folder
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_time
from treadle.cli.sessions import UNREADABLE
from treadle.cli.terminal.board import Said
from treadle.cli.terminal.faces import Face
from treadle.events import MessageAdded, ModelFinished
from treadle.ports import Journal, SessionInfo

__all__ = ["recall", "sessions_to_resume"]

_LISTED = 12
_ANSWER_LINES = 12
_ANSWER_CHARS = 1_500


class Conversation(Protocol):
    """What is recalled: see `Chat`."""

    face: Face
    journal: Journal
    session: Session
    settings: Settings
    terminal: Terminal


async def recall(chat: Conversation) -> None:
    """Show the last exchange of the session, shortened, and how much of the model's context it fills."""
    session, redactor = chat.session, chat.terminal.redactor
    seen = set(session.state.message_seqs)
    events = [event for event in await session.events() if event.seq in seen]
    asked = [event for event in events if isinstance(event, MessageAdded) and event.source == "task"]
    answers = [event for event in events if isinstance(event, ModelFinished)]
    if answers:
        usage = answers[-1].usage
        chat.face.standing.context_tokens = usage.input_tokens + usage.output_tokens
        chat.face.refresh()
    if not asked:
        return
    chat.face.tell(f"You: {one_line(redactor.text(asked[-1].message.text), 300)}")
    said = [one.message.text for one in answers if one.seq > asked[-1].seq and one.message.text.strip()]
    if said:
        chat.face.show(Said(_shortened(redactor.text(said[-1]))))


def _shortened(text: str) -> str:
    lines = text.strip().split("\n")
    kept = "\n".join(lines[:_ANSWER_LINES])[:_ANSWER_CHARS]
    return kept if len(kept) == len(text.strip()) else f"{kept} ..."


async def sessions_to_resume(chat: Conversation) -> list[str]:
    """Return a line for each session that can be continued here, the last changed first, with its folder where it is another one."""
    lines: list[str] = []
    more = 0
    for info in await chat.journal.sessions():
        if info.status == "deleted" or info.phase == "queued" or info.id == chat.session.id:
            continue
        if len(lines) == _LISTED:
            more += 1
        elif (where := await _place(chat, info)) is not None:
            task = one_line(info.task, 50)
            lines.append(f"  {info.id}  {shown_time(info.updated_at)}  {info.phase:<9} {task}{where}")
    return [*lines, *([f"  ... {more} more: `treadle sessions`"] if more else [])]


async def _place(chat: Conversation, info: SessionInfo) -> str | None:
    """Return where a session works, where that is not here; None for one that carries out a call of another."""
    try:
        async with open_session(chat.journal, id=info.id) as session:
            folder, is_own = folder_of(session), session.state.caller is None
    except UNREADABLE:  # to continue it will say what is wrong
        return ""
    if not is_own:
        return None
    return f"  in {one_line(folder, 200)}" if folder and not is_same_folder(folder, chat.settings.root) else ""
