"""Keeping: what people do to a session between its runs: mark, rewind, fork, change, delete, export. Runs no call and asks no model.

Each act but fork and export needs the session's lease; whoever calls holds it.
"""

from typing import Literal

from treadle import canonical
from treadle.errors import (
    ConfigurationError,
    JournalError,
    NoSuchPoint,
    SessionConflict,
    SessionMoved,
    SessionNotActive,
    UnknownDoubt,
    shown,
)
from treadle.events import (
    AnyEvent,
    MessageAdded,
    SessionChanged,
    SessionMarked,
    SessionRewound,
    SessionStatus,
    ToolResolved,
)
from treadle.messages import user_message
from treadle.ports import HasOverview, Journal
from treadle.sessions.checkpoints import Rewind, artifacts_of, effects_after, find_point, fold, forked
from treadle.sessions.ledger import Ledger
from treadle.sessions.settling import settle
from treadle.sessions.transfer import Parcel
from treadle.state import Doubt, SessionState, instant
from treadle.tools import Done, JsonObject, NotDone, Unknown

__all__ = [
    "change",
    "check_here",
    "check_text",
    "check_there",
    "doubts_of",
    "fork",
    "mark",
    "move",
    "parcel_of",
    "purge",
    "resolved",
    "rewind",
]

_LONGEST_MARK = 100


def check_there(state: SessionState) -> None:
    """Raise SessionNotActive where the session has been deleted."""
    if state.status == "deleted":
        raise SessionNotActive(f"Session {state.id!r} has been deleted.")


def check_here(state: SessionState) -> None:
    """Raise SessionMoved where the session goes on elsewhere: what is left here would reach nobody."""
    if state.moved_to:
        raise SessionMoved(
            f"Session {state.id!r} was moved to {state.moved_to} and goes on there. To take it back, where it has not gone on: "
            f"`treadle sessions activate {state.id}`, or session.change(status='active', take_back=True)."
        )


async def move(ledger: Ledger, to: str, *, by: str, reason: str) -> Parcel:
    """Close the session for good here, durably, and return everything of it for the place where it goes on.

    A session that was moved there already is only packed again: whatever broke off in between can be repeated.
    """
    state = ledger.state
    check_there(state)
    if state.moved_to != to:
        check_here(state)
    below = [] if state.run is None else [child for child in state.run.children.values() if not child.is_over]
    if below:
        raise NoSuchPoint(
            f"Session {state.id!r} has a call that session {below[0].session_id!r} is carrying out, and that session would stay behind. "
            "End the call first: resume the run to its end, or cancel it and resume it once. Then move the session."
        )
    if not state.moved_to:
        await ledger.record(SessionChanged(status="suspended", moved_to=to, by=by, reason=reason), durable=True)
    return await parcel_of(ledger)


def check_text(word: str, value: object) -> None:
    """Refuse what cannot be stored as a text.

    Raises:
        ConfigurationError: It is no text, or holds half a surrogate pair.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{word} must be a text; got {shown(value)}.")
    if (fault := canonical.find_unencodable(value)) is not None:
        raise ConfigurationError(f"{word} cannot be stored: {fault}.")


async def mark(ledger: Ledger, name: str) -> int:
    """Give the session's end a name; return the number of its last event."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_MARK or not name.isprintable():
        raise ConfigurationError(f"A mark is 1 to {_LONGEST_MARK} printable characters; got {shown(name, 120)}.")
    state = ledger.state
    check_there(state)
    check_here(state)
    if not state.is_whole:
        raise NoSuchPoint(f"Session {state.id!r} has a call without a result: let its run go on, then mark it.")
    await ledger.record(SessionMarked(name=name), durable=True)
    return state.marks[name]


async def rewind(ledger: Ledger, to: int | str, *, tell_model: bool) -> Rewind:
    """Take the messages behind a point out of the model's sight."""
    state = ledger.state
    check_there(state)
    check_here(state)
    if to is None:
        raise NoSuchPoint("A point is a mark or the number of an event; got None.")
    events = await ledger.journal.read(state.id)
    seq = find_point(state.id, events, to)
    if not state.is_visible(seq):
        raise NoSuchPoint(
            f"Event {seq} of session {state.id!r} lies on a way that was rewound already. Fork from it instead."
        )
    await settle(ledger, [*state.early.values(), *state.salvaged, *state.unanswered])
    effects = effects_after(await ledger.journal.read(state.id, after=seq), seq)
    before = len(state.messages)
    name = to if isinstance(to, str) else None
    rewound = SessionRewound(to=seq, mark=name, effects=tuple(f"{one.tool} ({one.call_id})" for one in effects))
    # One commit: the model must never go on without the word on what stays done.
    told = [_told(rewound)] if effects and tell_model else []
    await ledger.record(rewound, *told, durable=True)
    kept = len(state.messages) - len(told)
    return Rewind(session_id=state.id, to=seq, mark=name, messages=kept, dropped=before - kept, effects=effects)


def _told(rewound: SessionRewound) -> AnyEvent:
    words = (
        "The conversation was taken back to this point. These calls had been made since and were not undone: "
        f"{', '.join(rewound.effects)}. Do not repeat them without checking."
    )
    return MessageAdded(message=user_message(words), source="runtime")


async def fork(
    ledger: Ledger, session_id: str, *, at: int | str | None, step: int | None, message: int | None
) -> SessionState:
    """Make a session that shares the events up to a point, and return its state."""
    parent = ledger.state.id
    check_there(ledger.state)
    events = await ledger.journal.read(parent)
    seq = find_point(parent, events, at, step=step, message=message)
    copies = forked(events[:seq], session_id, parent_id=parent, at=ledger.clock.now())
    state = fold(session_id, copies)
    await ledger.journal.adopt(session_id, copies, state=state.phase)
    return state


async def change(
    ledger: Ledger,
    *,
    status: SessionStatus | None,
    metadata: JsonObject | None,
    reason: str,
    by: str,
    if_head: int | None,
    take_back: bool = False,
) -> None:
    """Change status or metadata, where the session still stands where the caller saw it."""
    state = ledger.state
    check_there(state)
    if status not in (None, "deleted") and not take_back:
        check_here(state)
    if if_head is not None and (not isinstance(if_head, int) or isinstance(if_head, bool)):
        raise ConfigurationError(
            f"if_head is the number of an event, such as session.state.head; got {shown(if_head)}."
        )
    if if_head is not None and state.head != if_head:
        raise SessionConflict(
            f"Session {state.id!r} stands at event {state.head}, not {shown(if_head)}: somebody was faster. "
            "Nothing was written; look at it again."
        )
    check_text("reason", reason)
    check_text("by", by)
    if metadata is not None and not isinstance(metadata, dict):
        raise ConfigurationError(f"The metadata must be an object, by key; got {shown(metadata)}.")
    if metadata is not None and (fault := canonical.find_unencodable(metadata)) is not None:
        raise ConfigurationError(f"The metadata cannot be stored: {fault}.")
    event = SessionChanged(status=status, metadata=metadata, reason=reason, by=by)
    await ledger.record(event, durable=True)


async def purge(ledger: Ledger) -> SessionState:
    """Remove everything that the journal keeps of a deleted session but the fact; return what is left."""
    state = ledger.state
    events = await ledger.journal.read(state.id)
    tombstone = SessionChanged(
        session_id=state.id, seq=1, at=ledger.clock.now(), status="deleted", reason="Its events were removed."
    )
    await ledger.journal.purge(state.id, tombstone, blobs=artifacts_of(events))
    return fold(state.id, [tombstone])


async def parcel_of(ledger: Ledger) -> Parcel:
    """Return everything that another journal needs of the session, as it is stored now."""
    journal, session_id = ledger.journal, ledger.state.id
    inbox = tuple(await journal.inbox(session_id))  # first: what is consumed meanwhile is then in the events too
    events = tuple(await journal.read(session_id))
    stored = [(digest, await journal.blob(digest)) for digest in artifacts_of(events)]
    blobs = {digest: content for digest, content in stored if content is not None}
    return Parcel(session_id=session_id, events=events, inbox=inbox, blobs=blobs)


async def resolved(
    ledger: Ledger, call_id: str, outcome: "Done | type[NotDone | Unknown]", *, by: str, reason: str
) -> ToolResolved:
    """Return the event that says how a call in doubt ended, as a person found out. The next run tells the model.

    What was resolved as unknown may be resolved again: a receipt may turn up late.

    Raises:
        UnknownDoubt: No call by that id is in doubt, or it has been resolved.
    """
    check_there(ledger.state)
    check_here(ledger.state)
    state = ledger.state
    open_one = state.open.get(call_id)
    is_correctable = (
        open_one is not None and open_one.resolution is not None and open_one.resolution.outcome == "unknown"
    )
    doubt = next((one for one in state.open_doubts() if one.call_id == call_id), None) or state.doubts.get(call_id)
    if doubt is None and is_correctable and open_one is not None:
        doubt = open_one.doubt(state.id)
    if doubt is None:
        raise UnknownDoubt(await _why_no_doubt(ledger, call_id))
    word: Literal["done", "not_done", "unknown"] = (
        "done" if isinstance(outcome, Done) else "not_done" if outcome is NotDone else "unknown"
    )
    value = outcome.value if isinstance(outcome, Done) else None
    return ToolResolved(
        call_id=call_id, tool=doubt.tool, outcome=word, by=by, reason=reason, key=doubt.key, value=value
    )


async def doubts_of(journal: Journal, state: SessionState) -> tuple[Doubt, ...]:
    """Return the calls in doubt of one session. Those without a result are left out while a process that lives holds it."""
    found = state.open_doubts()
    if all(doubt.is_told for doubt in found):
        return found
    try:
        is_live = isinstance(journal, HasOverview) and await journal.is_held(state.id)
    except JournalError:  # whoever may not look at the lock is shown the doubt
        is_live = False
    return tuple(doubt for doubt in found if doubt.is_told or not is_live)


async def _why_no_doubt(ledger: Ledger, call_id: str) -> str:
    for event in reversed(await ledger.journal.read(ledger.state.id)):
        if isinstance(event, ToolResolved) and event.call_id == call_id:
            return f"Call {call_id!r} has been resolved already: {event.outcome}, by {event.by} at {instant(event.at)}."
    known = ", ".join(one.call_id for one in ledger.state.open_doubts()) or "none"
    return f"No call {shown(call_id)} is in doubt in session {ledger.state.id!r}. In doubt: {known}."
