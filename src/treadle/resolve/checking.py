"""Checking: compare what a journal lists of its sessions with what their events say. Changes nothing."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from treadle.errors import JournalError, shown
from treadle.events import AnyEvent
from treadle.fields import Documented, checked
from treadle.journals.store.approvals import due_items
from treadle.journals.store.due import due_rows
from treadle.ports import DueItem, Journal, SessionInfo
from treadle.sessions.checkpoints import take_in
from treadle.state import SessionState

__all__ = ["SessionFault", "check_sessions"]

_OPEN = ("paused", "queued", "running")


class SessionFault(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Where a session's line in the list, or what is listed as due of it, is not what its events say."""

    session_id: str
    """The session whose row differs."""
    what: str
    """`events`, `phase`, `status`, `head`, `parent`, `tenant` or `due`."""
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
    rows = due_rows(info.id, events) if state.phase in _OPEN else []
    indexes = {
        "head": (info.head, state.head),
        "phase": (info.phase, state.phase),
        "status": (info.status, state.status),
        "parent": ((info.parent_id, info.parent_seq), (state.parent_id, state.parent_seq)),
        "tenant": (info.tenant, "" if tenant is None else str(tenant)),
        "due": (_times(due), _times(due_items(rows, before=None, limit=None))),
    }
    for what, (listed, said) in indexes.items():
        if listed != said and not (is_tombstone and what in ("parent", "tenant")):
            message = (
                f"Session {info.id!r} is listed with the {what} {shown(listed)}, and its events say {shown(said)}. "
                "Export the session, delete it, and import the export under another id: that writes its record anew."
            )
            yield SessionFault(session_id=info.id, what=what, message=message)


def _times(items: Sequence[DueItem]) -> list[tuple[str, float, str, int, str]]:
    return sorted((item.kind, item.at, item.call_id, item.priority, item.tenant) for item in items)
