"""Continuing: which session `-c` and `--session` mean, and the model with which it continues. Runs nothing."""

from pathlib import Path

import msgspec

from treadle import Session, UnknownSession, open_session
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import absolute
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import absolute_model, folder_of, is_same_folder, origin_in
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line
from treadle.cli.sessions import UNREADABLE, is_there, opened
from treadle.ports import Journal

__all__ = ["continued"]

_LOOKED_AT = 500
"""So many sessions are looked at for one of this folder, the last changed first."""


async def continued(options: Options, terminal: Terminal) -> Options:
    """Return the options of a new task with the session that they mean, and with its own model where no other is named.

    Raises:
        UsageError: `-c` was given, and no session of this folder is known.
    """
    if options.id is None and not options.is_last:
        return options
    settings = settings_of(options)
    if not options.is_last and not is_there(settings.journal):
        return options
    async with opened(settings.journal, must_exist=options.is_last) as journal:
        session_id = options.id or await _newest_here(journal, settings.root)
        found = msgspec.structs.replace(options, id=session_id)
        try:
            async with open_session(journal, id=session_id, must_exist=True) as session:
                return found if options.model else _with_its_model(found, session, settings.model, terminal)
        except UnknownSession:
            return found


async def _newest_here(journal: Journal, root: Path) -> str:
    """Return the id of the session that changed last among those that work in a folder."""
    elsewhere = ""
    infos = [info for info in await journal.sessions() if info.status != "deleted"]
    for info in infos[:_LOOKED_AT]:
        try:
            async with open_session(journal, id=info.id) as session:
                folder = folder_of(session)
        except UNREADABLE:  # one that is broken is not meant
            continue
        if folder is None:
            continue
        if is_same_folder(folder, root):
            return info.id
        if not elsewhere:
            elsewhere = f" The last one works in {one_line(folder, 200)}: --session {info.id} continues it here."
    looked = f" ({counted(_LOOKED_AT, 'session')} were looked at)" if len(infos) > _LOOKED_AT else ""
    raise UsageError(
        f"No session in the journal {journal.location} works in the folder {one_line(absolute(str(root)), 200)}{looked}.{elsewhere}"
    )


def _with_its_model(options: Options, session: Session, chosen: str | None, terminal: Terminal) -> Options:
    """Let a session continue with its own model where none is configured; where another one is, say so."""
    origin = origin_in(session)
    own = origin.get("model")
    if own is None or (chosen is not None and absolute_model(chosen) == own):
        return options
    if chosen is not None:
        terminal.say(
            f"treadle: session {session.id} used the model {one_line(own, 80)}; now it uses {one_line(chosen, 80)}, as configured."
        )
        return options
    return msgspec.structs.replace(options, model=own, base_url=options.base_url or origin.get("base_url"))
