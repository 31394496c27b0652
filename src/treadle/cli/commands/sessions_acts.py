"""`treadle sessions fork|mark|rewind|export|import|rm`: what is done to sessions between their runs."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

from treadle import JournalError, expire_sessions, import_session
from treadle.cli.exits import UsageError
from treadle.cli.options import Options
from treadle.cli.sessions import find_session, opened, opened_session
from treadle.cli.settings import settings_of
from treadle.cli.terminal import Terminal

__all__ = ["export", "fork", "mark", "remove", "rewind", "take_in"]

_DAY_SECONDS = 86_400


async def fork(options: Options, terminal: Terminal) -> int:
    """Make a session that shares the past of another."""
    path, session_id = _named(options)
    async with opened(path, must_exist=True) as journal, opened_session(journal, session_id) as session:
        child = await session.fork(options.at, step=options.step, message=options.message, id=options.new_id)
    state = child.state
    if options.as_json:
        terminal.data({"id": child.id, "parent_id": state.parent_id, "parent_seq": state.parent_seq})
    else:
        terminal.line(child.id)
        terminal.say(f"Forked from {session_id} after event {state.parent_seq}: treadle run --session {child.id} ...")
    return 0


async def mark(options: Options, terminal: Terminal) -> int:
    """Name the end of a session."""
    path, session_id = _named(options)
    assert options.name is not None
    async with opened(path, must_exist=True) as journal, opened_session(journal, session_id) as session:
        seq = await session.mark(options.name)
    if options.as_json:
        terminal.data({"id": session_id, "mark": options.name, "seq": seq})
    terminal.say(f"Event {seq} of {session_id} is {options.name!r} now.")
    return 0


async def rewind(options: Options, terminal: Terminal) -> int:
    """Go on from an earlier point, and say what stays done."""
    path, session_id = _named(options)
    assert options.at is not None
    async with opened(path, must_exist=True) as journal, opened_session(journal, session_id) as session:
        rewound = await session.rewind(options.at)
    if options.as_json:
        terminal.data(rewound)
    terminal.say(rewound.message)
    return 0


async def export(options: Options, terminal: Terminal) -> int:
    """Write a whole session as lines of JSON."""
    path, session_id = _named(options)
    async with opened(path, must_exist=True) as journal, opened_session(journal, session_id) as session:
        lines = await session.export(redactor=None if options.is_exact else terminal.redactor)
    if options.file is None:
        for line in lines:
            terminal.raw(line.decode())
    else:
        _write_new(options.file, lines)
        terminal.say(f"Exported {session_id} to {options.file}: {len(lines)} lines.")
    if options.is_exact:
        terminal.say(
            "note: the export is exact: it holds whatever secrets the session holds. Keep it as private as the journal."
        )
    elif b'"redacted":true' in lines[0]:
        terminal.say("note: secrets were redacted. `--exact` keeps them, for a session that goes on elsewhere.")
    return 0


async def take_in(options: Options, terminal: Terminal) -> int:
    """Bring an exported session into the journal."""
    assert options.file is not None
    with closing(_opened_file(options.file)) as file:
        async with opened(settings_of(options).journal) as journal:
            try:
                session_id = await import_session(journal, _lines_of(file), id=options.new_id)
            except JournalError as exc:
                raise UsageError(f"{options.file}: {exc}") from exc
    if options.as_json:
        terminal.data({"id": session_id})
    else:
        terminal.line(session_id)
    return 0


async def remove(options: Options, terminal: Terminal) -> int:
    """Delete the named sessions, or those that have not changed for long."""
    if bool(options.ids) is (options.older_than_days is not None):
        raise UsageError("Name sessions, or say which with --older-than DAYS: `treadle sessions rm ID`.")
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        if options.older_than_days is not None:
            before = time.time() - options.older_than_days * _DAY_SECONDS
            gone = await expire_sessions(journal, before=before, purge=options.is_purged)
        else:
            gone = tuple(dict.fromkeys(options.ids))
            for session_id in gone:  # all are looked up first: a misspelt one deletes none
                await find_session(journal, session_id)
            for session_id in gone:
                async with opened_session(journal, session_id) as session:
                    await session.delete(purge=options.is_purged)
    if options.as_json:
        terminal.data({"deleted": gone, "purged": options.is_purged})
    terminal.say(f"Deleted: {', '.join(gone) or 'none'}.")
    return 0


def _named(options: Options) -> tuple[str, str]:
    assert options.id is not None  # the parser requires it
    return settings_of(options).journal, options.id


def _write_new(name: str, lines: Sequence[bytes]) -> None:
    """Write a file that is not there yet, for its owner alone; a failure leaves none."""
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as exc:
        raise UsageError(f"{name!r:.200} cannot be made: {_words(exc)}. Name a file that is not there yet.") from exc
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.writelines(line + b"\n" for line in lines)
    except OSError as exc:
        with suppress(OSError):
            Path(name).unlink()
        raise UsageError(f"{name!r:.200} cannot be written: {_words(exc)}.") from exc


def _opened_file(name: str) -> IO[bytes]:
    if name == "-":
        if sys.stdin is None:
            raise UsageError("Standard input is closed. Name a file.")
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except (OSError, ValueError) as exc:
        raise UsageError(f"{name!r:.200} cannot be read: {_words(exc)}.") from exc


def _lines_of(file: IO[bytes]) -> Iterable[bytes]:
    try:
        yield from file
    except OSError as exc:
        raise UsageError(f"The file cannot be read: {_words(exc)}.") from exc


def _words(fault: OSError | ValueError) -> str:
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
