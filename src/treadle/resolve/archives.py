"""Archives: import exported sessions into a journal, and delete old ones. Looks into no session's run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from treadle.concurrency import Threads
from treadle.errors import ConfigurationError, JournalError, SessionHeld, check_kind, shown
from treadle.events import AnyEvent, SessionChanged
from treadle.fields import Documented, checked
from treadle.journals.backend import check_session_id, due_rows
from treadle.journals.store import due_items
from treadle.ports import Clock, DueItem, HasOverview, Journal, SessionFilter, SessionInfo
from treadle.redaction import redacted_logger
from treadle.resolve import open_session
from treadle.resolve.journals import SystemClock
from treadle.sessions.answering import doubts_of
from treadle.sessions.maintenance import Parcel, fold, take_in, unpack
from treadle.sessions.session import Session
from treadle.state import Doubt, SessionState, is_cancelled, unreadable, waiting_approvals

__all__ = ["SessionFault", "check_sessions", "expire_sessions", "import_session", "is_open", "list_doubts"]

_SETTLED = ("active", "completed")
"""States in which every call has its result: only a model that was told of an unknown outcome leaves a doubt in them."""

logger = redacted_logger(__name__)
_threads = Threads()

_MANY_CHARS = 200_000
"""Characters from which on a session is read in a thread."""


@checked
async def import_session(
    journal: Journal,
    lines: Iterable[bytes | str],
    *,
    id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    take_open: bool = False,
    clock: Clock | None = None,
) -> str:
    """Import a session that `session.export()` or `move()` wrote, whole or not at all. Return its id.

    A session that was moved continues here. One that was only exported may also continue at its source: if one of its calls may still
    act, it arrives suspended, and `session.change(status="active")` activates it once its source is closed. An export of a session that
    was moved arrives as moved.

    Trust the author of the lines as you trust the journal: consent in them counts.

    Example:
        await import_session(journal, Path("invoice-7.jsonl").read_bytes().splitlines())

    Args:
        take_open: Import it as active, although one of its calls may still act. Use this only if it continues nowhere else.
        id: Another id for it. Its idempotency keys then differ, so none of its calls may be open.
        clock: The time of the arrival; None for this machine's clock.

    Raises:
        JournalError: The lines are not a whole export; nothing was imported.
        SessionExists: A session with that id exists or was deleted.
        NoSuchPoint: It would get another id, and a call is open.
    """
    _check_journal(journal)
    at = (clock or SystemClock()).now()
    taken = _checked_lines(lines)
    if id is not None:
        check_session_id(id)
    read = partial(_arrived, taken, id, take_open=take_open, at=at)
    is_long = sum(map(len, taken)) > _MANY_CHARS
    parcel, run_status = await _threads.submit(read) if is_long else read()  # or its stored results are large
    for content in parcel.blobs.values():  # first: bytes that nobody names do no harm
        await journal.put_blob(content)
    await journal.adopt(parcel.session_id, parcel.events, state=run_status, inbox=parcel.inbox)
    session_id: str = parcel.session_id
    return session_id


def _check_journal(journal: object) -> None:
    if not callable(getattr(journal, "sessions", None)):
        raise ConfigurationError(
            f"journal must be an open journal; got {shown(journal)}. Open one: open_journal('agent.db')."
        )


def _checked_lines(lines: object) -> tuple[bytes | str, ...]:
    """Return the lines of an export; one text, or one piece of bytes, holds several."""
    if isinstance(lines, bytes | str):
        return tuple(lines.splitlines())
    if not isinstance(lines, Iterable):
        raise ConfigurationError(f"An export is an iterable of lines; got {shown(lines)}.")
    taken = tuple(lines)
    for number, line in enumerate(taken, start=1):
        if type(line) is not bytes and type(line) is not str:
            raise JournalError(f"Line {number} of the export is neither text nor bytes; got {shown(line)}.")
    return taken


def _arrived(lines: Iterable[bytes | str], name: str | None, *, take_open: bool, at: float) -> tuple[Parcel, str]:
    """Return what is stored of a session that arrives, and the state that it is in then."""
    parcel = unpack(lines)
    if name is not None and name != parcel.session_id:
        parcel = parcel.named(name)
    events = (*parcel.events, *_arrival(parcel, take_open=take_open, at=at))
    return msgspec.structs.replace(parcel, events=events), fold(parcel.session_id, events).run_status


def _arrival(parcel: Parcel, *, take_open: bool, at: float) -> list[SessionChanged]:
    """Return what is recorded of an arrival. A session that may act at two places arrives suspended: a person says where it continues."""
    state = parcel.state()
    if state.moved_to and not parcel.is_move:
        return []  # a copy of a session that continues elsewhere
    effects = [f"{one.call.name} ({one.call.id})" for one in state.open_effects()]
    effects += ["the submitted task"] * (state.submitted is not None)
    has_waiting_effects = bool(effects) and not take_open
    if not state.moved_to and (state.own_status != "active" or not has_waiting_effects):
        return []
    arrived = SessionChanged(
        session_id=parcel.session_id, seq=len(parcel.events) + 1, at=at, status="active", by="import"
    )
    if not has_waiting_effects:
        return [msgspec.structs.replace(arrived, reason="It was moved here.")]
    where = "at the one place where it continues" if state.moved_to else "once its source is closed"
    reason = f"Imported with calls that may still act: {', '.join(effects)}. Activate it {where}."
    return [msgspec.structs.replace(arrived, status="suspended", reason=reason)]


@checked
async def expire_sessions(
    journal: Journal,
    *,
    before: float,
    tenant: str | None = None,
    purge: bool = False,
    even_open: bool = False,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """Delete the sessions that have not changed since `before` (seconds since 1970).

    Sessions stay if they run, cannot be read, or have something that waits for a person: an approval, or a call
    in doubt.

    Args:
        before: An instant, in seconds since 1970.
        tenant: Only the sessions of this tenant; None for those of all.
        purge: Also remove their events, and those of sessions that were deleted before.
        even_open: Also delete those in which something waits for a person. The question, or the doubt, is lost.
        clock: The time of the deletions; None for this machine's clock.

    Returns:
        The ids of the deleted sessions.
    """
    _check_journal(journal)
    check_kind("before", before, (int, float), "seconds since 1970")
    gone = []
    for info in await journal.sessions(SessionFilter(tenant=tenant)):
        is_tombstone = info.status == "deleted" and (info.head <= 1 or not purge)
        if info.updated_at >= before or is_tombstone:
            continue
        try:
            async with open_session(journal, id=info.id, clock=clock) as session:
                if not even_open and await is_open(journal, session):
                    continue
                await session.delete(purge=purge)
        except (SessionHeld, JournalError) as error:
            logger.info("Session %r stays: %s", info.id, error)
            continue
        gone.append(info.id)
    return tuple(gone)


async def is_open(journal: Journal, session: Session) -> bool:
    """Whether something in a session, or in one that carries out a call of it, waits for a person, or its task for a worker."""
    if (
        session.state.submitted is not None
        or await session.approvals()
        or session.doubts()
        or await _is_needed(journal, session.state)
    ):
        return True
    return not is_cancelled(session.state, await journal.inbox(session.id)) and await _waits_below(
        journal, session.state
    )


async def _is_needed(journal: Journal, state: SessionState) -> bool:
    """Whether a session carries out a call of another one that stays: without it, that call could not continue."""
    if state.caller is None or state.run is None or state.run.status not in ("running", "paused"):
        return False
    caller = fold(state.caller.parent_id, await journal.read(state.caller.parent_id))
    return caller.status != "deleted" and caller.run is not None and state.id in caller.run.children


async def _waits_below(journal: Journal, state: SessionState) -> bool:
    """The caller may know nothing of it yet: its process may have died before it had recorded that its agent waits."""
    for name in () if state.run is None else state.run.children:
        child = fold(name, await journal.read(name))
        waits = waiting_approvals(child, await journal.inbox(name)) or child.open_doubts()
        if waits or await _waits_below(journal, child):
            return True
    return False


@checked
async def list_doubts(journal: Journal) -> tuple[Doubt, ...]:
    """Return the calls in doubt of all sessions, the most recently changed sessions first.

    Calls of a live run, in any process, are not in doubt. Sessions that cannot be read are left out, with a warning.
    """
    _check_journal(journal)
    found: list[Doubt] = []
    unsettled = await journal.with_unknown_outcomes() if isinstance(journal, HasOverview) else None
    for info in await journal.sessions():
        is_settled = info.run_status in _SETTLED and unsettled is not None and info.id not in unsettled
        if info.status == "deleted" or is_settled:
            continue
        try:
            found += await doubts_of(journal, fold(info.id, await journal.read(info.id)))
        except JournalError as error:
            logger.warning("%s", unreadable(info.id, error))
    return tuple(found)


# --- Checking: compare what a journal lists of its sessions with what their events say. Changes nothing.

_OPEN = ("paused", "queued", "running")


class SessionFault(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Where a session's line in the list, or what is listed as due of it, is not what its events say."""

    session_id: str
    """The session whose row differs."""
    what: str
    """`events`, `run_status`, `status`, `head`, `parent`, `tenant` or `due`."""
    message: str
    """One sentence for people."""


@checked
async def check_sessions(journal: Journal) -> tuple[SessionFault, ...]:
    """Read every session of a journal, and return where the list of sessions or the index of what is due differs from it.

    A session that changes while it is read is read again. The checksums of events are compared as well.

    Raises:
        JournalError: The journal cannot be listed.
    """
    due = await _due(journal)
    suspects = [info.id for info in await journal.sessions() if await _faults(journal, info, due[info.id])]
    if not suspects:
        return ()
    due, infos = await _due(journal), {info.id: info for info in await journal.sessions()}
    found: list[SessionFault] = []
    for session_id in suspects:
        found += await _faults(journal, infos[session_id], due[session_id])
    return tuple(found)


async def _due(journal: Journal) -> Mapping[str, list[DueItem]]:
    by_session: defaultdict[str, list[DueItem]] = defaultdict(list)
    for item in await journal.due():
        by_session[item.session_id].append(item)
    return by_session


async def _faults(journal: Journal, info: SessionInfo, due: Sequence[DueItem]) -> list[SessionFault]:
    try:
        events = await journal.read(info.id)
        state = await take_in(SessionState(info.id), events)
    except JournalError as error:
        return [SessionFault(session_id=info.id, what="events", message=str(error))]
    return list(_differences(info, state, events, due))


def _differences(
    info: SessionInfo, state: SessionState, events: Sequence[AnyEvent], due: Sequence[DueItem]
) -> Iterator[SessionFault]:
    is_tombstone = state.status == "deleted" and state.head == 1  # all but the fact was removed, where it came from too
    tenant = state.metadata.get("tenant")
    rows = due_rows(info.id, events) if state.run_status in _OPEN else []
    indexes = {
        "head": (info.head, state.head),
        "run_status": (info.run_status, state.run_status),
        "status": (info.own_status, state.own_status),
        "parent": ((info.parent_id, info.parent_seq), (state.parent_id, state.parent_seq)),
        "tenant": (info.tenant, "" if tenant is None else str(tenant)),
        "due": (_times(due), _times(due_items(rows, before=None, limit=None))),
    }
    for what, (listed, said) in indexes.items():
        if listed != said and not (is_tombstone and what in ("parent", "tenant")):
            message = (
                f"Session {info.id!r} is listed with the {what.replace('_', ' ')} {shown(listed)}, and its events say {shown(said)}. "
                "Export the session, delete it, and import the export under another id: that writes its record anew."
            )
            yield SessionFault(session_id=info.id, what=what, message=message)


def _times(items: Sequence[DueItem]) -> list[tuple[str, float, str, int, str]]:
    return sorted((item.kind, item.at, item.call_id, item.priority, item.tenant) for item in items)
