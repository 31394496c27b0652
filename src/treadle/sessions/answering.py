"""Answering: whether an answer to a request for consent is valid, and what happened to a request that has been answered."""

from collections.abc import Sequence
from functools import cache

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, UnknownInput, shown
from treadle.events import ApprovalAnswered, ToolSuspended
from treadle.ports import HasClock, Journal
from treadle.sessions.checkpoints import fold
from treadle.sessions.maintenance import check_text
from treadle.sessions.reading import events_of_all
from treadle.state import Approval, InboxMessage, LeftAnswer, SessionState, input_id, instant, is_cancelled

__all__ = ["check_answer", "check_scope", "find_suspended", "has_input", "inbox_of", "store_time", "why_not_waiting"]


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
    inbox = await inbox_of(journal, state)
    for message in inbox:
        if isinstance(message, LeftAnswer) and message.approval_id == approval_id:
            return _answered(approval_id, message.answer, message.approved_by, message.at)
    answered = [event for event in await events_of_all(journal, state.id) if isinstance(event, ApprovalAnswered)]
    for event in reversed(answered):
        if event.approval_id == approval_id:
            at = event.at if event.given_at is None else event.given_at
            return _answered(approval_id, event.answer, event.approved_by, at)
    if is_cancelled(state, inbox):
        return (
            f"Approval {shown(approval_id)} is no longer waiting: the run was cancelled. Resume the session to end it."
        )
    known = ", ".join(sorted(one.id for one in waiting)) or "none"
    return f"No approval {shown(approval_id)} waits in session {state.id!r}. Waiting: {known}."


async def inbox_of(journal: Journal, state: SessionState) -> tuple[InboxMessage, ...]:
    """Return what lies in the inbox, and the answers that lie in those of sessions that carry out calls of this one."""
    found = list(await journal.inbox(state.id))
    for asks in {approval.session_id for approval in state.pending_approvals()} - {state.id}:
        found += [message for message in await journal.inbox(asks) if isinstance(message, LeftAnswer)]
    return tuple(found)


async def find_suspended(journal: Journal, state: SessionState, call_id: str) -> tuple[str, ToolSuspended]:
    """Return the session whose call waits for an input, and its suspension: this one, or one that carries out a call of it.

    The id of a call that another session carries out means whatever waits there.

    Raises:
        UnknownInput: No call by that id is suspended, it has its input, or its run was cancelled.
    """
    if is_cancelled(state, await journal.inbox(state.id)):
        raise UnknownInput(
            f"Call {shown(call_id)} is no longer waiting: the run was cancelled. Resume the session to end it."
        )
    states, meant, is_given = [state], set[str](), False
    for one in states:  # grows while it is gone through
        left = {message.id for message in await journal.inbox(one.id)}
        carried = one.carried_out
        for call in one.suspended:
            is_named = one.id in meant or call.call.id == call_id
            for child_id in carried.get(call.call.id, ()):  # it waits for another session, whose ids may be the same
                states.append(fold(child_id, await journal.read(child_id)))
                meant |= {child_id} if is_named else set()
            if call.call.id in carried or not is_named or call.suspended is None or call.suspended.asks:
                continue
            if input_id(call.suspended) not in {*left, *(given.message_id for given in call.inputs)}:
                return one.id, call.suspended
            is_given = True
    if is_given:
        raise has_input(call_id)
    known = ", ".join(call.call.id for one in states for call in one.suspended) or "none"
    raise UnknownInput(f"No call {shown(call_id)} of session {state.id!r} waits for an input. Suspended: {known}.")


def has_input(call_id: str) -> UnknownInput:
    """Return the error of an input for a call that has got one since it was suspended."""
    return UnknownInput(f"Call {shown(call_id)} already has its input: the first one wins. Resume it.")


async def store_time(journal: Journal) -> float | None:
    """Return the time by the store's clock, on which machines that share a store agree; None where it has none."""
    if not _has_clock(type(journal)):
        return None
    assert isinstance(journal, HasClock)
    return await journal.now()


@cache
def _has_clock(kind: type[Journal]) -> bool:
    """Whether stores of this kind have a clock. Looked up once for each: checking a protocol takes long."""
    return issubclass(kind, HasClock)


def _answered(approval_id: str, answer: object, by: object, at: object) -> str:
    when = f" at {instant(at)}" if isinstance(at, int | float) else ""
    return f"Approval {shown(approval_id)} has been answered already ({answer}), by {by}{when}: the first answer wins."
