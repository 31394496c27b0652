"""`treadle sessions fork|mark|rewind|export|import|rm`: what is done to sessions between their runs."""

import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec

from treadle import Session, TreadleError
from treadle.cli.bulk import Chosen, chosen_sessions, done_to_all
from treadle.cli.exits import UsageError
from treadle.cli.files import reason_of, write_new
from treadle.cli.input.commands import (
    ActivateOptions,
    DiffOptions,
    ExportOptions,
    ForkOptions,
    ImportOptions,
    MarkOptions,
    MoveOptions,
    NamedOptions,
    RewindOptions,
    RmOptions,
    StatusOptions,
    SuspendOptions,
    has_conditions,
)
from treadle.cli.input.places import journal_file, same_journal, shown_journal, snapshots_folder
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import folder_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line
from treadle.cli.output.transcript import form_of, page_of
from treadle.cli.rewinding import changes_since, diff_of, listed, not_covered, snapshots_of, undone_calls
from treadle.cli.running import is_confirmed
from treadle.cli.sessions import described, find_session, is_held, named_session, opened, opened_session, person
from treadle.cli.snapshots import Change, Comparison, Snapshots, forget
from treadle.errors import JournalError
from treadle.ports import Journal
from treadle.resolve.archives import import_session, is_open

__all__ = ["activate", "diff", "export", "fork", "mark", "move", "remove", "rewind", "suspend", "take_in"]

_MAX_NAMED = 12


async def fork(options: ForkOptions, terminal: Terminal) -> int:
    """Make a session that shares the past of another."""
    async with named_session(options) as session:
        child = await session.fork(options.at, step=options.step, message=options.message, id=options.new_id)
    state = child.state
    if options.as_json:
        terminal.data({"id": child.id, "parent_id": state.parent_id, "parent_seq": state.parent_seq})
    else:
        terminal.line(child.id)
        terminal.say(
            f"Forked from {session.id} after event {state.parent_seq}: treadle run --session {child.id}{same_journal(options)} TASK"
        )
    return 0


async def mark(options: MarkOptions, terminal: Terminal) -> int:
    """Name the end of a session."""
    async with named_session(options) as session:
        seq = await session.mark(options.name)
    if options.as_json:
        terminal.data({"id": session.id, "mark": options.name, "seq": seq})
    terminal.say(f"Event {seq} of {session.id} is now marked {options.name!r}.")
    return 0


async def rewind(options: RewindOptions, terminal: Terminal) -> int:
    """Continue from an earlier point, put the files back where that is asked for, and say what stays done."""
    async with named_session(options) as session:
        chosen = await _chosen(options, session, terminal) if options.puts_files_back else _Chosen()
        if chosen is None:
            terminal.say("Nothing is changed.")
            return 1
        rewound = await session.rewind(options.at, undone=chosen.undone)
        for fault in chosen.snapshots.restore(session.id, chosen.changes) if chosen.snapshots else ():
            terminal.say(f"not put back: {one_line(fault, 300)}")
    if options.as_json:
        terminal.data(rewound)
    terminal.say(rewound.message)
    return 0


class _Chosen(NamedTuple):
    """What a rewind puts back."""

    snapshots: Snapshots | None = None
    changes: tuple[Change, ...] = ()
    undone: tuple[str, ...] = ()


async def _chosen(options: RewindOptions, session: Session, terminal: Terminal) -> _Chosen | None:
    """Show how the files would change, and let the person choose; None if nothing is to happen."""
    events, at = await session.events(), options.at
    seq = session.state.marks.get(at, session.state.head) if isinstance(at, str) else at
    snapshots = _snapshots_of(options, session)
    found = changes_since(snapshots, session.id, events, seq)
    if found is None or not found.changes:
        terminal.say("No file in the folder has changed since that point.")
        return _Chosen()
    changes = found.changes
    terminal.say_lines([*diff_of(snapshots, found).splitlines(), *listed(changes), *not_covered(found)])
    if not is_confirmed(f"Put back {counted(len(changes), 'file')}, and rewind the conversation?", terminal):
        return None
    if mine := [one_line(one.shown, 100) for one in changes if one.is_persons]:
        names = ", ".join(mine[:_MAX_NAMED])
        question = f"You have changed these since: {names}. Put them back too?"
        if not terminal.is_live or not is_confirmed(question, terminal):
            terminal.say(f"Left as you have changed them: {names}.")
            changes = tuple(one for one in changes if not one.is_persons)
    return _Chosen(snapshots, changes, undone_calls(events, seq))


async def diff(options: DiffOptions, terminal: Terminal) -> int:
    """Show how a session has changed its folder."""
    async with named_session(options) as session:
        snapshots = _snapshots_of(options, session)
        try:
            found = snapshots.of_session(session.id)
        except LookupError:
            found = Comparison(changes=())
        text = diff_of(snapshots, found)
    if options.as_json:
        terminal.data([{"path": one.shown, "kind": one.kind, "by_person": one.is_persons} for one in found.changes])
    elif text:
        terminal.page(text)
    else:
        terminal.say("This session has changed no file that is known.")
    for note in not_covered(found):
        terminal.say(f"note: {note}")
    return 0


def _snapshots_of(options: NamedOptions, session: Session) -> Snapshots:
    return snapshots_of(settings_of(options), Path(folder_of(session) or "."))


async def suspend(options: SuspendOptions, terminal: Terminal) -> int:
    """Let no run begin in a session until it is activated."""
    return await _change(options, terminal, "suspended")


async def activate(options: ActivateOptions, terminal: Terminal) -> int:
    """Take a suspended session up again."""
    return await _change(options, terminal, "active")


async def _change(options: StatusOptions, terminal: Terminal, status: Literal["active", "suspended"]) -> int:
    if has_conditions(options):
        return await _change_all(options, terminal, status)
    async with named_session(options) as session:
        moved_to = session.state.moved_to if status == "active" else ""
        if moved_to:
            await _check_left(session, moved_to)
        await session.change(status=status, reason=options.reason, by=person(options), take_back=bool(moved_to))
    if options.as_json:
        terminal.data({"id": session.id, "status": status})
    terminal.say(f"Session {session.id} is {status}.")
    if moved_to:
        terminal.say(f"It was moved to {moved_to}: delete the copy there, or calls may run twice.")
    return 0


async def _change_all(options: StatusOptions, terminal: Terminal, status: Literal["active", "suspended"]) -> int:
    """Change the status of all sessions that fulfil the conditions and have the other one."""
    by = person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        other: Literal["active", "suspended"] = "suspended" if status == "active" else "active"
        found = await chosen_sessions(journal, options, statuses=() if other == "active" else (other,))
        is_other = {info.id: info.own_status == other for info in await journal.sessions()}

        async def act(one: Chosen) -> None:
            async with opened_session(journal, one.id) as session:
                await session.change(status=status, reason=options.reason, by=by)

        verb, done = ("Activate", "activated") if status == "active" else ("Suspend", "suspended")
        return await done_to_all([one for one in found if is_other[one.id]], act, verb, done, options, terminal)


async def _check_left(session: Session, moved_to: str) -> None:
    """Refuse to take back a session that has arrived where it was moved to, as far as this machine can look there."""
    is_there = False
    with suppress(TreadleError):  # an export, or a place that cannot be reached
        async with opened(moved_to, must_exist=True) as target:
            is_there = any(one.id == session.id and one.status != "deleted" for one in await target.sessions())
    if is_there:
        raise UsageError(
            f"Session {session.id} has arrived in {moved_to} and continues there; active in two places, its calls could run twice. "
            f"If it has not run there, delete it there first: treadle sessions rm {session.id} --journal {shlex.quote(moved_to)}"
        )


async def export(options: ExportOptions, terminal: Terminal) -> int:
    """Write a whole session as lines of JSON, or as a page to read."""
    if options.is_last and options.file is None:  # the one word that was given is the file
        options = msgspec.structs.replace(options, id=None, file=options.id)
    form = options.form or form_of(options.file)
    async with named_session(options) as session:
        session_id = session.id
        redactor = None if options.is_exact else terminal.redactor
        if form != "json":
            page = page_of(form, await described(session), redactor)
            return _write_page(options, page, session_id, terminal)
        lines = await session.export(redactor=redactor)
    if options.file is None:
        for line in lines:
            terminal.raw(line.decode())
    else:
        write_new(options.file, lines)
        terminal.say(f"Exported {session_id} to {options.file}: {len(lines)} lines.")
    if options.is_exact:
        terminal.say("note: the export is exact and contains the session's secrets. Keep it as private as the journal.")
    elif b'"redacted":true' in lines[0]:
        terminal.say("note: secrets were removed. To keep them, for a session that continues elsewhere: --exact")
    return 0


def _write_page(options: ExportOptions, page: str, session_id: str, terminal: Terminal) -> int:
    """Write a page that is redacted already, or is to be exact."""
    if options.file is None:
        terminal.page(page)
    else:
        write_new(options.file, [page.rstrip("\n").encode()])
        terminal.say(
            f"Exported {session_id} to {options.file}, for reading. `treadle sessions import` reads only JSON."
        )
    return 0


async def take_in(options: ImportOptions, terminal: Terminal) -> int:
    """Bring an exported session into the journal."""
    with closing(_opened_file(options.file)) as file:
        async with opened(settings_of(options).journal) as journal:
            try:
                session_id = await import_session(
                    journal, _lines_of(file), id=options.new_id, take_open=options.takes_open
                )
            except JournalError as exc:
                raise UsageError(f"{options.file}: {exc}") from exc
            is_closed = (await find_session(journal, session_id)).status == "suspended"
    if options.as_json:
        terminal.data({"id": session_id, "suspended": is_closed})
    else:
        terminal.line(session_id)
    if is_closed:
        terminal.say(
            f"A call of {session_id} may still run, so it is suspended. If it continues nowhere else (its source was moved "
            f"or is suspended), activate it: treadle sessions activate {session_id}{same_journal(options)}"
        )
    return 0


async def move(options: MoveOptions, terminal: Terminal) -> int:
    """Close a session here, durably, and let it continue elsewhere."""
    if (options.target is None) is (options.file is None):
        raise UsageError("Name the destination: --to JOURNAL, or --file FILE for `treadle sessions import`.")
    async with named_session(options) as session:
        if options.file is None:
            there = await _move_to_journal(session, options)
        else:
            there = await _move_to_file(session, options.file, options)
        moved_to = session.state.moved_to
    if options.as_json:
        terminal.data({"id": session.id, "moved_to": moved_to})
    terminal.say(f"Session {session.id} is closed here. To continue it: {there}")
    if options.file is not None:
        terminal.say(
            "If one of its calls may still be running, it arrives suspended: activate it in the one place where it continues."
        )
    return 0


async def _move_to_journal(session: Session, options: MoveOptions) -> str:
    named_journal = _absolute(str(options.target))
    place = shown_journal(named_journal)
    async with opened(named_journal) as target:
        if await _is_in(target, session.id) and session.state.moved_to != place:
            raise UsageError(f"The journal {target.location} already has a session {session.id!r}.")
        lines = await session.move(place, by=person(options), reason=options.reason)
        try:
            if not await _is_in(target, session.id):
                await import_session(target, lines, take_open=True)  # nobody else has these lines
        except Exception:
            if not await _is_in(target, session.id):  # it has arrived nowhere; where nobody knows, it stays closed here
                await session.change(status="active", reason="The move failed.", take_back=True)
            raise
    return f"treadle resume {session.id}" + (f" --journal {shlex.quote(place)}" if place == named_journal else "")


async def _move_to_file(session: Session, name: str, options: MoveOptions) -> str:
    lines = await session.move(_absolute(name), by=person(options), reason=options.reason)
    try:
        write_new(name, lines)
    except UsageError:
        await session.change(status="active", reason="The move failed.", take_back=True)
        raise
    return f"treadle sessions import {shlex.quote(name)}"


async def _is_in(journal: Journal, session_id: str) -> bool:
    return any(info.id == session_id for info in await journal.sessions())


def _absolute(journal: str) -> str:
    file = journal_file(journal)
    return journal if file is None else str(file.absolute())


async def remove(options: RmOptions, terminal: Terminal) -> int:
    """Delete the named sessions, the last one, or those that fulfil the conditions."""
    if has_conditions(options):
        return await _remove_all(options, terminal)
    if bool(options.ids) is options.is_last:
        raise UsageError(
            "Name sessions, or use --last or a condition such as --older-than 90d: `treadle sessions rm ID`."
        )
    names = [None] if options.is_last else options.ids
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        # All are looked up first: a misspelt one deletes none.
        gone = tuple(dict.fromkeys([(await find_session(journal, one)).id for one in names]))
        for session_id in gone:
            await _delete(journal, session_id, options)
    if options.as_json:
        terminal.data({"deleted": gone, "purged": options.is_purged})
    terminal.say(f"Deleted: {', '.join(gone)}.")
    return 0


async def _remove_all(options: RmOptions, terminal: Terminal) -> int:
    """Delete all sessions that fulfil the conditions. Those that run, or wait for a person or a worker, stay."""
    async with opened(settings_of(options).journal, must_exist=True) as journal:

        async def fits(session: Session) -> bool:
            is_gone = session.state.status == "deleted" and session.state.head <= 1
            if is_gone or await is_held(journal, session.id):
                return False
            return options.is_open_too or not await is_open(journal, session)

        async def act(one: Chosen) -> None:
            await _delete(journal, one.id, options)

        chosen = await chosen_sessions(journal, options, fits=fits, with_deleted=options.is_purged)
        return await done_to_all(chosen, act, "Delete", "deleted", options, terminal)


async def _delete(journal: Journal, session_id: str, options: RmOptions) -> None:
    async with opened_session(journal, session_id) as session:
        await session.delete(purge=options.is_purged)
    forget(snapshots_folder(os.environ), session_id)


def _opened_file(name: str) -> IO[bytes]:
    if name == "-":
        if sys.stdin is None:
            raise UsageError("Standard input is closed. Name a file.")
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except (OSError, ValueError) as exc:
        raise UsageError(f"{name!r:.200} cannot be read: {reason_of(exc)}.") from exc


def _lines_of(file: IO[bytes]) -> Iterable[bytes]:
    try:
        yield from file
    except OSError as exc:
        raise UsageError(f"The file cannot be read: {reason_of(exc)}.") from exc
