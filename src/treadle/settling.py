"""Settling: end what a run has left open: calls that nobody will run any more, and the sessions that carried them out.

Runs no call and asks no model. Whoever settles a session holds its lease; the leases of its children are taken here.
"""

from collections.abc import Sequence

from treadle.errors import SessionHeld, UnknownSession
from treadle.events import AnyEvent, ChildEnded, ChildStarted, RunFinished, RunResumed
from treadle.history import EffectRecord, effects_after, fold
from treadle.ledger import Ledger
from treadle.outcomes import Outcomes
from treadle.planning import abandoned
from treadle.ports import Journal
from treadle.recovery import in_doubt, may_have_acted
from treadle.runtime.redaction import redacted_logger
from treadle.state import CallState, ChildState, SessionState
from treadle.stops import StopReason

__all__ = ["effects_of", "end_children", "ended", "settle"]

logger = redacted_logger(__name__)


async def settle(ledger: Ledger, left: Sequence[CallState]) -> None:
    """Answer calls that nobody will run any more, so that the history stays whole, and end what carried them out."""
    outcomes = Outcomes(run_id=ledger.run_id, step=ledger.state.step, last_id="")
    waiting = [state for state in left if state.result is None]
    doubts = [in_doubt(state) for state in waiting if state.suspended is None and may_have_acted(state)]
    results = [(state.call, abandoned(state)) for state in waiting]
    if results:
        await ledger.record(*doubts, *(outcomes.finished(call, result) for call, result in results))
    await end_children(ledger)


async def end_children(ledger: Ledger, *, even_open: bool = False) -> None:
    """End the sessions that carry out calls of the run which have a result by now. Nothing of a child outlives its call.

    Args:
        even_open: Also those whose call has no result yet.
    """
    state = ledger.state
    for child in [] if state.run is None else list(state.run.children.values()):
        if not child.is_over and (even_open or not _is_open(state, child.call_id)):
            await _end(ledger, child)


def _is_open(state: SessionState, call_id: str) -> bool:
    call = state.open.get(call_id) or state.early.get(call_id)
    return call is not None and call.result is None


async def _end(ledger: Ledger, child: ChildState) -> None:
    try:
        lease = await ledger.journal.acquire(child.session_id, on_lost=_pass, on_message=_pass)
    except UnknownSession:  # this journal has only the parent: it was moved alone
        await ledger.record(
            ChildEnded(call_id=child.call_id, child_id=child.session_id, status="gone", spent=child.spent)
        )
        return
    except SessionHeld:
        logger.warning("Session %s, which carries out a call of %s, is held", child.session_id, ledger.state.id)
        return
    try:
        state = fold(child.session_id, await ledger.journal.read(child.session_id))
        if state.caller is None or state.caller.parent_id != ledger.state.id:
            return  # the child of another session: this one is a copy
        await _end_run(ledger, state)
    finally:
        await lease.release()
    await ledger.record(ended(child.call_id, state))


async def _end_run(ledger: Ledger, state: SessionState) -> None:
    run = state.run
    if run is None or run.phase not in ("running", "paused"):
        return
    own = Ledger(
        state=state, journal=ledger.journal, clock=ledger.clock, randomness=ledger.randomness, parent=ledger.run_id
    )
    await own.record(RunResumed())
    await settle(own, [*state.early.values(), *state.salvaged, *state.unanswered])
    reason = StopReason.CANCELLED
    finished = RunFinished(
        reason=reason.value,
        status=reason.status.value,
        completed=False,
        message="The call that this run carries out has ended.",
        text=run.text,
        profile=run.profile,
        wall_seconds=run.spent.wall_seconds,
    )
    await own.record(finished, durable=True)


def ended(call_id: str | None, child: SessionState) -> ChildEnded:
    """Return what the parent records of a child that has ended, or waits."""
    run = child.run
    if run is None:
        return ChildEnded(call_id=call_id, child_id=child.id, status="stopped", reason=StopReason.CANCELLED.value)
    return ChildEnded(call_id=call_id, child_id=child.id, status=run.phase, reason=run.reason, spent=run.spent)


async def effects_of(journal: Journal, events: Sequence[AnyEvent]) -> list[EffectRecord]:
    """Return the calls among the events that may have changed the world, and those of the sessions that carried them out."""
    found = list(effects_after(events, 0))
    for child_id in dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)):
        found += await effects_of(journal, await journal.read(child_id))
    return found


def _pass() -> None:
    """Hear of a lost lease or a message, and go on: an append without the lease is refused."""
