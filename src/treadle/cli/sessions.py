"""Sessions: opening journals and finding what is in them, for the commands. Prints nothing."""

import getpass
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from treadle import JournalError, Session, TreadleError, UnknownApproval, open_journal, open_session
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import journal_file
from treadle.cli.input.settings import Settings
from treadle.events import ApprovalRequested, RunStarted
from treadle.ports import HasOverview, Journal, SessionInfo

__all__ = [
    "UNREADABLE",
    "apply_mode",
    "find_approval",
    "find_session",
    "is_held",
    "is_there",
    "last_model",
    "named",
    "one_of",
    "opened",
    "opened_session",
    "person",
]

UNREADABLE = (TreadleError, ArithmeticError, LookupError, TypeError, ValueError)
"""What opening a session raises whose events are damaged, or cannot be reached."""
_ALSO_NAMED = {"mark": "NAME", "rewind": "POINT"}
"""What actions of `sessions` are given besides the session."""


async def apply_mode(session: Session, settings: Settings, options: Options) -> None:
    """Set the mode of a session: of a new one as the settings say, of another one where it was asked for now."""
    await session.approvals()  # looks into the inbox: a change of the mode may lie there since the last run
    is_wanted = settings.is_mode_asked or session.state.run is None
    if is_wanted and session.mode != settings.mode:
        await session.set_mode(settings.mode, by=person(options))


@asynccontextmanager
async def opened(path: str, *, must_exist: bool = False) -> AsyncIterator[Journal]:
    """Open the journal.

    Raises:
        UsageError: It cannot be opened, or it does not exist although it must be.
    """
    if must_exist and not is_there(path):
        raise UsageError(
            f"The journal {path} does not exist yet: `treadle run` creates it. Name another with --journal."
        )
    try:
        journal = await open_journal(path)
    except JournalError as exc:
        raise UsageError(str(exc)) from exc
    try:
        yield journal
    finally:
        await journal.close()


async def is_held(journal: Journal, session_id: str) -> bool:
    """Whether a process that seems to live runs the session, or waits in it for a person."""
    return isinstance(journal, HasOverview) and bool(await journal.held([session_id]))


def is_there(path: str) -> bool:
    """Whether there is a journal, or something in its place. Of a database only opening it can tell."""
    file = journal_file(path)
    try:
        return file is None or file.exists()
    except (OSError, ValueError):  # opening it will say why
        return True


@asynccontextmanager
async def opened_session(journal: Journal, given: str | None) -> AsyncIterator[Session]:
    """Open a session that exists: by its id or the beginning of it; None for the one that changed last.

    Raises:
        UsageError: There is none by that id, or several.
    """
    info = await find_session(journal, given)
    async with open_session(journal, id=info.id, on_store_failure="degrade") as session:
        yield session


async def find_session(journal: Journal, given: str | None) -> SessionInfo:
    """Return a session's entry, by its id or the beginning of it; for None that of the session that changed last.

    Raises:
        UsageError: There is none, or the beginning is that of several.
    """
    found = await journal.sessions()
    if given is None:
        there = [info for info in found if info.status != "deleted"]
        if not there:
            raise UsageError(f"The journal {journal.location} holds no session yet. Start one with `treadle run`.")
        return there[0]
    by_id = {info.id: info for info in found}
    return by_id[one_of(given, by_id, "session", f"in the journal {journal.location}. `treadle sessions` lists all")]


def one_of(given: str, ids: Iterable[str], what: str, where: str) -> str:
    """Return the id that was given, whole or as its beginning.

    Raises:
        UsageError: No id begins so, or several do.
    """
    known = list(ids)
    if given in known:
        return given
    matches = [one for one in known if given and one.startswith(given)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise UsageError(f"There is no {what} {given!r:.80} {where}.")
    shown = ", ".join(matches[:5]) + (", ..." if len(matches) > 5 else "")
    raise UsageError(f"{len(matches)} ids begin with {given!r:.80}: {shown}. Give more characters of the id.")


def named(options: Options) -> str | None:
    """Return the id that a command was given; None for `--last`.

    Raises:
        UsageError: Neither was given, or both.
    """
    if (options.id is None) is not options.is_last:
        what = " ".join(["treadle", options.command, *([options.action] if options.action else [])])
        more = _ALSO_NAMED.get(options.action or "")
        then = f" {more}" if more else ""
        problem = "Name one, not both" if options.is_last else f"Name the session and {more}" if more else "Name one"
        raise UsageError(f"{problem}: `{what} ID{then}`, or `{what} --last{then}`.")
    return options.id


async def last_model(session: Session) -> str | None:
    """Return the name of the model that the session's last task was given to."""
    events = [event for event in await session.events() if isinstance(event, RunStarted)]
    return events[-1].model or None if events else None


async def find_approval(journal: Journal, given: str | None) -> tuple[str, str]:
    """Return the session and the id of a request for consent, by its id or the beginning of it; None for the newest.

    Raises:
        UsageError: There is none, or the beginning is that of several.
    """
    waiting = await journal.approvals()
    where = f"waits in the journal {journal.location}. `treadle approvals` lists those that do"
    if given is None:
        if not waiting:
            raise UsageError(f"No approval {where}.")
        newest = max(waiting, key=lambda one: one.requested_at)
        return newest.session_id, newest.id
    if not any(one.id.startswith(given) for one in waiting):
        for info in await journal.sessions():  # it was answered, or its run has ended: its session knows
            with suppress(JournalError):
                events = await journal.read(info.id)
                if any(isinstance(one, ApprovalRequested) and one.approval_id == given for one in events):
                    return info.id, given
        raise UnknownApproval(f"No approval {given!r:.80} {where}.")
    approval_id = one_of(given, dict.fromkeys(one.id for one in waiting), "approval", f"that {where}")
    asking = [one.session_id for one in waiting if one.id == approval_id]
    if len(asking) > 1:
        raise UsageError(
            f"Approval {approval_id!r} waits in several sessions: {', '.join(asking)}. Answer it in a program."
        )
    return asking[0], approval_id


def person(options: Options) -> str:
    """Return who acts: `--by`, else the login of this machine."""
    if options.by is not None:
        return options.by.encode("utf-8", "replace").decode()
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return "person"
