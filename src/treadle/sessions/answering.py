"""Answering: what people say to calls that wait for consent or an input, or are in doubt, and why it comes too late."""

from collections.abc import AsyncIterator, Sequence
from typing import Literal, NamedTuple

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, JournalError, UnknownDoubt, UnknownInput, shown
from treadle.events import ApprovalAnswered, ToolResolved, ToolSuspended
from treadle.ports import Clock, HasOverview, Journal
from treadle.ports.journals import has_clock
from treadle.sessions.explain import events_of_all
from treadle.sessions.ledger import Ledger
from treadle.sessions.maintenance import check_here, check_text, check_there, fold, take_in
from treadle.state import Approval, Doubt, InboxMessage, LeftAnswer, SessionState, input_id, instant, is_cancelled
from treadle.tools import Done, NotDone, Unknown, answer_of_check

__all__ = [
    "check_answer",
    "check_scope",
    "checked_outcome",
    "doubts_of",
    "find_suspended",
    "has_input",
    "inbox_of",
    "is_withdrawn_above",
    "resolved",
    "store_time",
    "time_of",
    "why_not_waiting",
]


def check_answer(answer: object, *, reason: object, arguments: object, interrupt: object, by: object) -> None:
    """Raise ConfigurationError where the answer, its reason, its arguments, its interrupt or its author is invalid."""
    if not isinstance(answer, str) or answer not in ("allow", "deny"):
        raise ConfigurationError(f"The answer to an approval must be 'allow' or 'deny'; got {shown(answer)}.")
    if interrupt is not False and (interrupt is not True or answer != "deny"):
        raise ConfigurationError(
            f"interrupt must be True or False, and True only with 'deny'; got {shown(interrupt)} with {shown(answer)}."
        )
    if arguments is not None and not isinstance(arguments, dict):
        raise ConfigurationError(f"Edited arguments must be an object, by parameter name; got {shown(arguments)}.")
    if (fault := find_unencodable(arguments)) is not None:
        raise ConfigurationError(f"Edited arguments must be JSON: {fault}.")
    check_text("reason", reason)
    check_text("by", by)


def check_scope(scope: object, approval: Approval, *, answer: str, arguments: object) -> None:
    """Raise ConfigurationError where the request offers no answer of this scope."""
    if scope == "call":
        return
    if scope not in ("session", "rule"):
        raise ConfigurationError(f"The scope of an answer must be 'call', 'session' or 'rule'; got {shown(scope)}.")
    if answer != "allow" or arguments is not None:
        raise ConfigurationError(
            f"scope={scope!r} requires 'allow' with unedited arguments; a denial or an edit applies to one call."
        )
    if not approval.rules:
        raise ConfigurationError(
            f"No rule is proven to match only call {approval.call_id} of {approval.tool}, so it can be allowed only once: session.answer({approval.id!r}, 'allow')."
        )


async def why_not_waiting(
    journal: Journal, state: SessionState, approval_id: str, *, waiting: Sequence[Approval]
) -> str:
    """Say what happened to a request: who answered it first, or that there is none by that id."""
    if later := [one.id for one in waiting if approval_id and one.replaces == approval_id]:
        return f"The answer to approval {shown(approval_id)} could not be used, so {later[0]!r} has replaced it. Answer that one."
    inbox = await inbox_of(journal, state)
    for message in inbox:
        if isinstance(message, LeftAnswer) and message.approval_id == approval_id:
            return _answered(approval_id, message.answer, message.approved_by, message.at)
    answered = [event for event in await events_of_all(journal, state.id) if isinstance(event, ApprovalAnswered)]
    for event in reversed(answered):
        if event.approval_id == approval_id:
            at = event.at if event.given_at is None else event.given_at
            return _answered(approval_id, event.answer, event.approved_by, at)
    if is_cancelled(state, inbox) or await is_withdrawn_above(journal, state):
        return f"Approval {shown(approval_id)} is no longer waiting: the run was cancelled. Resume session {state.root_id!r} to end it."
    known = ", ".join(sorted(one.id for one in waiting)) or "none"
    return f"No approval {shown(approval_id)} waits in session {state.id!r}. Waiting: {known}."


async def is_withdrawn_above(journal: Journal, state: SessionState) -> bool:
    """Whether this session carries out a call of a run that was cancelled, at whatever level: nobody waits for it any more."""
    while state.caller is not None:
        above = state.caller.parent_id
        messages = await journal.inbox(above)
        state = fold(above, await journal.read(above))
        if is_cancelled(state, messages) or state.status == "deleted":
            return True
    return False


async def inbox_of(journal: Journal, state: SessionState) -> tuple[InboxMessage, ...]:
    """Return what lies in the inbox, and the answers that lie in those of sessions that carry out calls of this one."""
    found = list(await journal.inbox(state.id))
    for asks in {approval.session_id for approval in state.pending_approvals()} - {state.id}:
        found += [message for message in await journal.inbox(asks) if isinstance(message, LeftAnswer)]
    return tuple(found)


async def find_suspended(journal: Journal, state: SessionState, call_id: str) -> tuple[str, ToolSuspended]:
    """Return the session whose call waits for an input, and its suspension: this one, or one that carries out a call of it.

    The id of a call that another session carries out means whatever waits there. An id of this session never means a call of another.

    Raises:
        UnknownInput: No call by that id is suspended, or several are; it has its input, or its run was cancelled.
    """
    if is_cancelled(state, await journal.inbox(state.id)) or await is_withdrawn_above(journal, state):
        raise UnknownInput(
            f"Call {shown(call_id)} is no longer waiting: the run was cancelled. Resume the session to end it."
        )
    waits = [one async for one in _waits_for_input(journal, state, ())]
    if call_id in state.call_ids:
        meant = [one for one in waits if one.calls[0] == (state.id, call_id)]
    else:
        meant = [one for one in waits if any(name == call_id for _, name in one.calls)]
    holders = dict.fromkeys(where for one in meant for where, name in one.calls if name == call_id)
    if len(holders) > 1 and call_id not in state.call_ids:
        raise UnknownInput(
            f"Several calls {shown(call_id)} wait, of sessions {', '.join(holders)}. Give the id of the call of {state.id!r} that is meant."
        )
    if left := [one for one in meant if not one.has_input]:
        return left[0].calls[-1][0], left[0].suspended
    if meant:
        raise has_input(call_id)
    known = ", ".join(name for one in waits for _, name in one.calls) or "none"
    raise UnknownInput(f"No call {shown(call_id)} of session {state.id!r} waits for an input. Suspended: {known}.")


class _Waiting(NamedTuple):
    calls: tuple[tuple[str, str], ...]
    """Sessions and their calls: from the one that was asked down to the call that waits."""
    suspended: ToolSuspended
    has_input: bool


async def _waits_for_input(
    journal: Journal, state: SessionState, above: tuple[tuple[str, str], ...]
) -> AsyncIterator[_Waiting]:
    """Yield the calls of a session, and of those that carry out its calls, that were suspended until they get an input."""
    left = {message.id for message in await journal.inbox(state.id)}
    for call in state.suspended:
        here = (*above, (state.id, call.call.id))
        children = state.carried_out.get(call.call.id)
        for child_id in children or ():
            async for one in _waits_for_input(journal, fold(child_id, await journal.read(child_id)), here):
                yield one
        if children is None and call.suspended is not None and not call.suspended.asks:
            given = {*left, *(given.message_id for given in call.inputs)}
            yield _Waiting(here, call.suspended, input_id(call.suspended) in given)


def has_input(call_id: str) -> UnknownInput:
    """Return the error of an input for a call that has got one since it was suspended."""
    return UnknownInput(f"Call {shown(call_id)} already has its input: the first one wins. Resume it.")


async def store_time(journal: Journal) -> float | None:
    """Return the time by the store's clock, on which machines that share a store agree; None where it has none."""
    return await journal.now() if has_clock(journal) else None


async def time_of(journal: Journal, clock: Clock) -> float:
    """Return the time by the store's clock, or by ours where it has none."""
    now = await store_time(journal)
    return clock.now() if now is None else now


def _answered(approval_id: str, answer: object, by: object, at: object) -> str:
    when = f" at {instant(at)}" if isinstance(at, int | float) else ""
    return f"Approval {shown(approval_id)} has been answered already ({answer}), by {by}{when}: the first answer wins."


# --- Calls in doubt.


def checked_outcome(outcome: object, *, reason: object, by: object) -> "Done | type[NotDone | Unknown]":
    """Return how a call in doubt ended, in one of its three forms.

    Raises:
        ConfigurationError: It is not one of them, its value is not valid JSON, or the reason or the author is not text.
    """
    said = answer_of_check(outcome)
    if said is None or (isinstance(said, Done) and not isinstance(outcome, Done)):
        raise ConfigurationError(
            f"The outcome of a doubt must be Done(value), NotDone or Unknown; got {shown(outcome)}."
        )
    if isinstance(said, Done) and (fault := find_unencodable(said.value)) is not None:
        raise ConfigurationError(f"The result of Done(...) must be JSON: {fault}.")
    check_text("reason", reason)
    check_text("by", by)
    return said


async def resolved(
    ledger: Ledger, call_id: str, outcome: "Done | type[NotDone | Unknown]", *, by: str, reason: str
) -> ToolResolved:
    """Return the event that says how a call in doubt ended, as a person found out. The next run tells the model.

    What was resolved as unknown may be resolved again: a receipt may turn up late.

    Raises:
        UnknownDoubt: No call by that id is in doubt, or it has been resolved.
    """
    check_there(ledger.state)
    check_here(ledger.state, ledger.journal)
    state = ledger.state
    doubt = next((doubt for doubt in state.open_doubts() if doubt.call_id == call_id), None) or state.doubts.get(
        call_id
    )
    call = state.open.get(call_id)
    if doubt is None and call is not None and call.resolution is not None and call.resolution.outcome == "unknown":
        doubt = call.doubt(state.id)
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
    for _ in range(_LOOKS):
        found = state.open_doubts()
        if all(doubt.is_told for doubt in found):
            return found
        if await _is_live(journal, state.id):
            break
        head = state.head
        await take_in(state, await journal.read(state.id, after=head))
        if state.head == head:  # nobody held it when this was so; else a run may have ended in between
            return found
    return tuple(doubt for doubt in state.open_doubts() if doubt.is_told)


_LOOKS = 3


async def _is_live(journal: Journal, session_id: str) -> bool:
    try:
        return isinstance(journal, HasOverview) and bool(await journal.held([session_id]))
    except JournalError:  # whoever may not look at the lock is shown the doubt
        return False


async def _why_no_doubt(ledger: Ledger, call_id: str) -> str:
    for event in reversed(await ledger.journal.read(ledger.state.id)):
        if isinstance(event, ToolResolved) and event.call_id == call_id:
            return f"Call {call_id!r} has been resolved already: {event.outcome}, by {event.by} at {instant(event.at)}."
    known = ", ".join(one.call_id for one in ledger.state.open_doubts()) or "none"
    return f"No call {shown(call_id)} is in doubt in session {ledger.state.id!r}. In doubt: {known}."
