"""Resolving: which calls of a session are in doubt, and what is recorded where a person says how one ended."""

from typing import Literal

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, JournalError, UnknownDoubt, shown
from treadle.events import ToolResolved
from treadle.ports import HasOverview, Journal
from treadle.sessions.ledger import Ledger
from treadle.sessions.maintenance import check_here, check_text, check_there, take_in
from treadle.state import Doubt, SessionState, instant
from treadle.tools import Done, NotDone, Unknown, answer_of_check

__all__ = ["checked_outcome", "doubts_of", "resolved"]


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
