"""Sessions: opening journals and finding what is in them, for the commands. Prints nothing."""

import getpass
import shlex
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from treadle import Session, ToolCall, TreadleError, open_journal, open_session
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import NamedOptions
from treadle.cli.input.options import Options
from treadle.cli.input.places import journal_file, same_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.text import one_line
from treadle.errors import JournalError, UnknownApproval
from treadle.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ChildStarted,
    ModelFinished,
    RunStarted,
    ToolFinished,
    ToolInput,
    ToolResolved,
    ToolStarted,
)
from treadle.ports import HasOverview, Journal, SessionInfo

if TYPE_CHECKING:  # loads all that workers need
    from treadle.workers import StrandedSession

__all__ = [
    "UNREADABLE",
    "apply_mode",
    "described",
    "empty_call",
    "find_approval",
    "find_session",
    "is_held",
    "is_there",
    "last_model",
    "named",
    "named_session",
    "opened",
    "opened_session",
    "person",
    "stranded_in",
    "stranded_line",
]

UNREADABLE = (TreadleError, ArithmeticError, LookupError, TypeError, ValueError)
"""What opening a session raises whose events are damaged, or cannot be reached."""
_ALSO_NAMED = {"answer": '"ANSWER"', "sessions mark": "NAME", "sessions rewind": "POINT"}
"""What commands are given besides the session."""


async def apply_mode(session: Session, settings: Settings, options: Options) -> None:
    """Set the mode of a session: of a new one as the settings say, of another one where it was asked for now."""
    await session.approvals()  # looks into the inbox: a change of the mode may lie there since the last run
    is_wanted = settings.is_mode_asked or session.state.run is None
    if is_wanted and session.mode != settings.mode:
        await session.set_mode(settings.mode, by=person(options))


@asynccontextmanager
async def opened(path: str, *, must_exist: bool = False, is_read: bool = False) -> AsyncIterator[Journal]:
    """Open the journal.

    Args:
        is_read: Whether it is only read: where there is none, an empty one in memory is.

    Raises:
        UsageError: It cannot be opened, or it does not exist although it must be.
    """
    if must_exist and not is_there(path):
        raise UsageError(
            f"The journal {path} does not exist yet: `treadle run` creates it. Name another with --journal."
        )
    try:
        journal = await open_journal(path if not is_read or is_there(path) else "memory:")
    except JournalError as exc:
        raise UsageError(str(exc)) from exc
    try:
        yield journal
    finally:
        await journal.close()


async def stranded_in(journal: Journal, options: Options, **asked: Any) -> "Sequence[StrandedSession]":
    """Return what `stranded_sessions` finds, each with a command that finds this journal from here."""
    from treadle.workers import stranded_sessions  # noqa: PLC0415 - as above

    named, same = f" --journal {shlex.quote(journal.location)}", same_journal(options)
    found = await stranded_sessions(journal, **asked)
    return [msgspec.structs.replace(one, message=one.message.replace(named, same)) for one in found]


def stranded_line(session: "StrandedSession") -> str:
    """Return a line about a session that no worker can continue."""
    return f"{session.session_id}  stranded: {one_line(session.message, 2000)}"


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


@asynccontextmanager
async def named_session(options: NamedOptions) -> AsyncIterator[Session]:
    """Open the session that a command names, in a journal that exists.

    Raises:
        UsageError: It names none, or there is none by that id, or several.
    """
    path, given = settings_of(options).journal, named(options)
    async with opened(path, must_exist=True) as journal, opened_session(journal, given) as session:
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


def named(options: NamedOptions) -> str | None:
    """Return the id that a command was given; None for `--last`.

    Raises:
        UsageError: Neither was given, or both.
    """
    if (options.id is None) is not options.is_last:
        what, more = f"treadle {options.command}", _ALSO_NAMED.get(options.command)
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
        if options.by.endswith(("(link)", "(token)", "(proxy)")):
            raise UsageError("--by: a name that ends so was proven on the web page. Leave the part in brackets out.")
        return options.by
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        return "person"


# --- Session record: one session as plain values: its messages, and each call with its decision, its answers and its
# whole result.


async def described(session: Session) -> dict[str, Any]:
    """Return all that a person may want to read of a session."""
    return {
        "id": session.id,
        "status": session.state.status,
        "run_status": session.state.run_status,
        "state": session.state.run_status,  # its name before; programs may read it
        "metadata": session.state.metadata,
        "parent_id": session.state.parent_id,
        "parent_seq": session.state.parent_seq,
        "caller": None if session.state.caller is None else msgspec.to_builtins(session.state.caller),
        "marks": session.state.marks,
        "agent": "" if session.state.run is None else session.state.run.agent,
        "facts": session.state.facts.values,
        "messages": [
            {"role": message.role, "parts": [msgspec.to_builtins(part) for part in message.parts]}
            for message in session.messages
        ],
        "calls": await _calls(session),
        "approvals": [msgspec.to_builtins(approval) for approval in await session.approvals()],
        "in_doubt": [msgspec.to_builtins(doubt) for doubt in await session.doubts()],
    }


async def _calls(session: Session) -> list[dict[str, Any]]:  # noqa: C901 - one case for each event
    """Return every call as received, with its decision and its whole result, in the order in which they appeared."""
    calls: dict[str, dict[str, Any]] = {}
    for event in await session.events():
        match event:
            case ModelFinished(act=None):
                for call in event.message.calls:
                    _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case CallDecided(call_id=str(call_id)):
                decision = {"kind": event.decision, "rule": event.rule, "reason": event.reason}
                _entry(calls, call_id, event.tool).update(
                    decision=decision, effect=event.effect, decided_arguments=event.arguments
                )
            case ToolStarted(call=ToolCall() as call):  # its response may never have been whole
                _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case ApprovalAnswered(call_id=str(call_id)) if call_id in calls:  # that of a child is shown with the child
                said = {"answer": event.answer, "by": event.approved_by, "given_at": event.given_at}
                calls[call_id]["answers"].append({**said, "reason": event.reason, "arguments": event.arguments})
            case ToolResolved(call_id=str(call_id)):
                ended = {"outcome": event.outcome, "by": event.by, "at": event.at, "reason": event.reason}
                _entry(calls, call_id, event.tool)["resolutions"].append({**ended, "value": event.value})
            case ToolInput(call_id=str(call_id)):
                given = {"value": event.value, "by": event.by, "at": event.at, "given_at": event.given_at}
                _entry(calls, call_id, event.tool)["inputs"].append(given)
            case ToolFinished(call_id=str(call_id)):
                _entry(calls, call_id, event.result.name)["result"] = await _whole_result(event, session.journal)
            case ChildStarted(call_id=str(call_id)):
                children = _entry(calls, call_id, event.tool)["children"]
                children += [event.child_id] if event.child_id not in children else []
            case _:
                pass
    return list(calls.values())


def _entry(calls: dict[str, dict[str, Any]], call_id: str, name: str) -> dict[str, Any]:
    return calls.setdefault(call_id, empty_call(call_id, name))


def empty_call(call_id: str, name: str) -> dict[str, Any]:
    """Return a call of which nothing is recorded yet."""
    empty: dict[str, Any] = {"id": call_id, "name": name, "arguments": "", "decision": None, "effect": None}
    # `children` are the sessions that carried it out, where the tool is an agent.
    empty["decided_arguments"] = None
    return empty | {"answers": [], "inputs": [], "resolutions": [], "result": None, "children": []}


async def _whole_result(event: ToolFinished, journal: Journal) -> dict[str, Any]:
    """Return a result; `full` is its whole text where the model was shown a part."""
    result = event.result
    kept = None if result.artifact is None else await journal.blob(result.artifact)
    return {
        "status": result.status,
        "content": result.content,
        "full": None if kept is None else kept.decode("utf-8", "replace"),
        "code": result.code,
        "attempts": result.attempts,
        "duration_seconds": result.duration_seconds,
        "may_have_acted": result.may_have_acted,
    }
