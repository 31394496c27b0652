"""Maintenance: what people do to a session between its runs: mark, rewind, fork, change, delete, export. Runs no call and asks no model.

Each act but fork and export needs the session's lease; whoever calls holds it.
"""

import shlex
from collections.abc import Sequence

import msgspec

from treadle import canonical
from treadle.errors import (
    ConfigurationError,
    NoRunYet,
    NoSuchPoint,
    RunCompleted,
    SessionConflict,
    SessionMoved,
    SessionNotActive,
    shown,
)
from treadle.events import (
    AnyEvent,
    MessageAdded,
    ModeChanged,
    SessionChanged,
    SessionMarked,
    SessionRewound,
    SessionStatus,
    TaskWithdrawn,
    artifacts_of,
)
from treadle.messages import user_message
from treadle.ports import Journal, SessionFilter
from treadle.sessions.checkpoints import Rewind, effects_after, find_point, fold, forked
from treadle.sessions.ledger import Ledger
from treadle.sessions.settling import end_children, settle
from treadle.sessions.transfer import Parcel
from treadle.state import SessionState, mode_after
from treadle.tools import DEFAULT_MODE, JsonObject, Mode

__all__ = [
    "change",
    "check_active",
    "check_here",
    "check_no_task",
    "check_own",
    "check_resumable",
    "check_text",
    "check_there",
    "delete",
    "fork",
    "mark",
    "move",
    "parcel_of",
    "rewind",
    "withdraw",
]

_LONGEST_MARK = 100


def check_there(state: SessionState) -> None:
    """Raise SessionNotActive where the session has been deleted."""
    if state.status == "deleted":
        raise SessionNotActive(f"Session {state.id!r} has been deleted. Use another id: an id is never used again.")


def check_resumable(state: SessionState, journal: Journal) -> None:
    """Raise NoRunYet or RunCompleted unless a run was paused, stopped or broke off."""
    if state.run is None:
        raise NoRunYet(f"Session {state.id!r} has no run yet. To begin one: {_new_task(state, journal)}.")
    if state.run.phase == "completed":
        raise RunCompleted(
            f"The last run of session {state.id!r} is completed. To give it a new task: {_new_task(state, journal)}."
        )


def _new_task(state: SessionState, journal: Journal) -> str:
    """Return the two ways to begin a run in the session, of which the command works from any folder."""
    command = f"treadle run --session {shlex.quote(state.id)} --journal {shlex.quote(journal.location)} TASK"
    return f"`{command}`, or agent.run(task, session=session)"


def check_no_task(state: SessionState) -> None:
    """Raise SessionNotActive where a submitted task waits for a worker."""
    if state.submitted is not None:
        raise SessionNotActive(
            f"A submitted task waits for a worker in session {state.id!r}. Run a worker, `treadle worker`, or cancel the task first: "
            f"`treadle cancel {shlex.quote(state.id)}`, or session.cancel()."
        )


def check_active(state: SessionState, journal: Journal) -> None:
    """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
    check_here(state, journal)
    if state.status != "active":
        activate = f" To activate it: {_activation(state, journal)}, or session.change(status='active')."
        hint = "" if state.status == "deleted" else activate
        raise SessionNotActive(f"Session {state.id!r} is {state.status}: no run may begin in it.{hint}")


def check_own(state: SessionState) -> None:
    """Raise SessionNotActive where the session carries out a call of another: it continues with that one, under its rules."""
    if state.caller is not None:
        raise SessionNotActive(
            f"Session {state.id!r} carries out a call of session {state.caller.parent_id!r}. "
            f"Resume session {state.root_id!r} instead, or fork this one."
        )


def _activation(state: SessionState, journal: Journal) -> str:
    """Return the command that takes a session up, as it works from any folder."""
    return f"`treadle sessions activate {shlex.quote(state.id)} --journal {shlex.quote(journal.location)}`"


def check_here(state: SessionState, journal: Journal) -> None:
    """Raise SessionMoved where the session continues elsewhere: what is left here would reach nobody."""
    if state.moved_to:
        raise SessionMoved(
            f"Session {state.id!r} was moved to {state.moved_to} and continues there. If it has not continued there, take it back: "
            f"{_activation(state, journal)}, or session.change(status='active', take_back=True)."
        )


async def move(ledger: Ledger, to: str, *, by: str, reason: str) -> Parcel:
    """Close the session permanently here, durably, and return everything of it for the place where it continues.

    A session that was moved there already is only packed again: whatever broke off in between can be repeated.
    """
    state = ledger.state
    check_there(state)
    if state.moved_to != to:
        check_here(state, ledger.journal)
    below = [] if state.run is None else [child for child in state.run.children.values() if not child.is_over]
    if below:
        raise NoSuchPoint(
            f"Session {state.id!r} has a call that session {below[0].session_id!r} is carrying out, and a move does not carry that session. "
            "End the call first: resume the run to its end, or cancel it and resume it once. Then move the session."
        )
    if not state.moved_to:
        await ledger.record(SessionChanged(status="suspended", moved_to=to, by=by, reason=reason), durable=True)
    return msgspec.structs.replace(await parcel_of(ledger), is_move=True)


def check_text(option: str, value: object) -> None:
    """Refuse what cannot be stored as a text.

    Raises:
        ConfigurationError: It is not text, or holds half a surrogate pair.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{option} must be a string; got {shown(value)}.")
    if (fault := canonical.find_unencodable(value)) is not None:
        raise ConfigurationError(f"{option} cannot be stored: {fault}.")


async def mark(ledger: Ledger, name: str) -> int:
    """Give the session's end a name; return the number of its last event."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_MARK or not name.isprintable():
        raise ConfigurationError(
            f"The name of a mark must be 1 to {_LONGEST_MARK} printable characters; got {shown(name, 120)}."
        )
    state = ledger.state
    check_there(state)
    check_here(state, ledger.journal)
    if not state.is_whole:
        raise NoSuchPoint(
            f"Session {state.id!r} has a call without a result. Resume its run to the end (agent.resume(session), or `treadle resume {shlex.quote(state.id)}`), then mark it."
        )
    await ledger.record(SessionMarked(name=name), durable=True)
    return state.marks[name]


async def rewind(ledger: Ledger, to: int | str, *, tell_model: bool) -> Rewind:
    """Hide the messages after a point from the model."""
    state = ledger.state
    check_there(state)
    check_here(state, ledger.journal)
    check_no_task(state)
    if to is None:
        raise NoSuchPoint("A point is a mark or the number of an event; got None.")
    events = await ledger.journal.read(state.id)
    seq = find_point(state.id, events, to)
    if not state.is_visible(seq):
        raise NoSuchPoint(
            f"Event {seq} of session {state.id!r} is on a branch that a rewind has discarded. Fork from it instead."
        )
    await settle(ledger, [*state.early.values(), *state.salvaged, *state.unanswered])
    effects = effects_after(await ledger.journal.read(state.id, after=seq), seq)
    before = len(state.messages)
    name = to if isinstance(to, str) else None
    rewound = SessionRewound(to=seq, mark=name, effects=tuple(f"{one.tool} ({one.call_id})" for one in effects))
    # One commit: the model must never continue without the message that says what stays done.
    notices = [_rewind_message(rewound)] if effects and tell_model else []
    await ledger.record(rewound, *notices, durable=True)
    kept = len(state.messages) - len(notices)
    return Rewind(session_id=state.id, to=seq, mark=name, messages=kept, dropped=before - kept, effects=effects)


def _rewind_message(rewound: SessionRewound) -> AnyEvent:
    message = (
        "The conversation was taken back to this point. These calls had been made since and were not undone: "
        f"{', '.join(rewound.effects)}. Do not repeat them without checking."
    )
    return MessageAdded(message=user_message(message), source="runtime")


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
    mode = await _mode_of(ledger, events)
    if mode != state.mode:  # the mode that a person has set since the fork's point holds for the fork too
        link = copies[-1]
        copies.append(
            ModeChanged(session_id=session_id, seq=link.seq + 1, at=link.at, mode=mode, before=state.mode, by="fork")
        )
        state = fold(session_id, copies)
    await ledger.journal.adopt(session_id, copies, state=state.phase)
    return state


async def _mode_of(ledger: Ledger, events: Sequence[AnyEvent]) -> Mode:
    """Return the mode that a person has set last, even if no run has taken it in yet."""
    recorded = next((one.mode for one in reversed(events) if isinstance(one, ModeChanged)), DEFAULT_MODE)
    return mode_after(await ledger.journal.inbox(ledger.state.id), recorded)


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
        check_here(state, ledger.journal)
    if if_head is not None and state.head != if_head:
        raise SessionConflict(
            f"Session {state.id!r} is at event {state.head}, not {shown(if_head)}: it has changed meanwhile. "
            "Nothing was written. Read the session again, then repeat the change."
        )
    check_text("reason", reason)
    check_text("by", by)
    if metadata is not None and (fault := canonical.find_unencodable(metadata)) is not None:
        raise ConfigurationError(f"The metadata cannot be stored: {fault}.")
    event = SessionChanged(status=status, metadata=metadata, reason=reason, by=by)
    await ledger.record(event, durable=True)


async def delete(ledger: Ledger, *, purge: bool) -> None:
    """Record that the session is deleted; with `purge`, remove all else of it."""
    await end_children(ledger, even_open=True)
    if ledger.state.status != "deleted":
        await change(ledger, status="deleted", metadata=None, reason="", by="person", if_head=None)
    if purge:
        await _purge_children(ledger)  # first: a crash before the parent's end leaves who names them
        ledger.state = await purged(ledger)


async def _purge_children(ledger: Ledger) -> None:
    """Purge the sessions that carried out calls of this one, and theirs. Forks are sessions of their own."""
    for info in await ledger.journal.sessions(SessionFilter(parent_id=ledger.state.id)):
        if info.status == "deleted" and info.head <= 1:
            continue
        lease = await ledger.journal.acquire(info.id, on_lost=_pass, on_message=_pass)
        try:
            state = fold(info.id, await ledger.journal.read(info.id))
            if state.caller is not None and state.caller.parent_id == ledger.state.id:
                child = Ledger(state=state, journal=ledger.journal, clock=ledger.clock, randomness=ledger.randomness)
                await _purge_children(child)
                await purged(child)
        finally:
            await lease.release()


def _pass() -> None:
    """Nothing of the child is under way while it is purged."""


async def purged(ledger: Ledger) -> SessionState:
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


async def withdraw(ledger: Ledger) -> bool:
    """Withdraw the task that waits for a worker. Return whether there was one."""
    if ledger.state.submitted is None:
        return False
    await ledger.record(TaskWithdrawn(), durable=True)
    return True
