"""Settling: end what a run has left open: calls that nobody will run any more, and the sessions that carried them out.

Runs no call and asks no model. Whoever settles a session holds its lease; the leases of its children are taken here.
"""

from collections.abc import Sequence

import msgspec

from treadle.canonical import execution_id
from treadle.errors import SessionHeld, UnknownSession
from treadle.events import (
    AnyEvent,
    ChildEnded,
    ChildStarted,
    DoubtBelow,
    RunFinished,
    RunResumed,
    ToolFinished,
    ToolInDoubt,
)
from treadle.messages import ToolCall
from treadle.ports import Journal
from treadle.redaction import redacted_logger
from treadle.sessions.checkpoints import EffectRecord, effects_after, fold
from treadle.sessions.ledger import Ledger
from treadle.state import CallState, ChildState, Doubt, SessionState
from treadle.stops import StopReason
from treadle.tools import CallStatus, CheckedCall, JsonObject, ToolResult
from treadle.tools.results import failed_result, failure_class

__all__ = [
    "abandoned",
    "effects_of",
    "end_children",
    "ended",
    "in_doubt",
    "may_have_acted",
    "settle",
    "suspended_result",
    "unknown_outcome",
    "unstarted",
]

logger = redacted_logger(__name__)


async def settle(ledger: Ledger, left: Sequence[CallState]) -> None:
    """Answer calls that nobody will run any more, so that the history stays whole, and end what carried them out."""
    waiting = [state for state in left if state.result is None]
    doubts = [in_doubt(state) for state in waiting if state.suspended is None and may_have_acted(state)]
    if waiting:
        await ledger.record(*doubts, *(_finished(ledger, abandoned(state)) for state in waiting))
    await end_children(ledger)


def _finished(ledger: Ledger, result: ToolResult) -> ToolFinished:
    step = ledger.state.step
    result = msgspec.structs.replace(result, execution_id=execution_id(ledger.run_id, step, result.call_id))
    return ToolFinished(step=step, call_id=result.call_id, result=result, failure_class=failure_class(result))


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
        await ledger.record(_gone(child))
        return
    except SessionHeld:
        logger.warning("Session %s, which carries out a call of %s, is held", child.session_id, ledger.state.id)
        return
    try:
        state = fold(child.session_id, await ledger.journal.read(child.session_id))
        if state.caller is None or state.caller.parent_id != ledger.state.id:
            return  # the child of another session: this one is a copy
        if state.status != "deleted":
            await _end_run(ledger, state)
    finally:
        await lease.release()
    await ledger.record(_gone(child) if state.status == "deleted" else ended(child.call_id, state))


def _gone(child: ChildState) -> ChildEnded:
    """Return the end of a child that a person has deleted, or that this journal does not have."""
    return ChildEnded(call_id=child.call_id, child_id=child.session_id, status="gone", spent=child.spent)


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
    return ChildEnded(
        call_id=call_id,
        child_id=child.id,
        status=run.phase,
        reason=run.reason,
        spent=run.spent,
        in_doubt=tuple(map(_below, child.doubtful())),
    )


def _below(doubt: Doubt | DoubtBelow) -> DoubtBelow:
    return DoubtBelow(
        session_id=doubt.session_id,
        call_id=doubt.call_id,
        tool=doubt.tool,
        digest=doubt.digest,
        business_key=doubt.business_key,
    )


async def effects_of(journal: Journal, events: Sequence[AnyEvent]) -> list[EffectRecord]:
    """Return the calls among the events that may have changed the world, and those of the sessions that carried them out."""
    found = list(effects_after(events, 0))
    for child_id in dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)):
        found += await effects_of(journal, await journal.read(child_id))
    return found


def _pass() -> None:
    """Notice a lost lease or a message, and continue: an append without the lease is refused."""


# --- what happens to a call that goes no further


def unknown_outcome(call: ToolCall | CheckedCall) -> ToolResult:
    """Return the result of a call that may have acted, and nobody knows."""
    message = f"{call.name} had started when the run was interrupted. Its outcome is unknown: it may have taken effect. Check before you repeat it."
    extra = {"outcome": "unknown"}
    result = failed_result(call, CallStatus.OUTCOME_UNKNOWN, message, extra=extra, may_have_acted=True)
    return msgspec.structs.replace(result, attempts=1)


def abandoned(state: CallState) -> ToolResult:
    """Return the result of a call that was left open: unknown where it may have acted, cancelled where it did not."""
    message = "Not executed: the run continued without this call."
    return unstarted(state, CallStatus.CANCELLED, message, "superseded")


def unstarted(
    state: CallState, status: CallStatus, message: str, code: str, *, details: Sequence[JsonObject] = ()
) -> ToolResult:
    """Return the result of a call that will not start (again)."""
    if state.suspended is not None:
        return suspended_result(state)
    if may_have_acted(state):
        return unknown_outcome(state.call)
    return failed_result(state.call, status, message, code=code, details=details)


def suspended_result(state: CallState) -> ToolResult:
    """Return the result of a call that waited for something when its run ended: it goes no further."""
    assert state.suspended is not None
    waited = state.suspended.waits_for or "something outside"
    message = f"{state.call.name} had begun and waited for {waited}; it was stopped there. What it had done by then is not undone."
    return failed_result(
        state.call, CallStatus.CANCELLED, message, code="suspended_call_ended", may_have_acted=may_have_acted(state)
    )


def may_have_acted(state: CallState) -> bool:
    """Whether a call has started, and is more than a read."""
    return state.started is not None and not state.started.effect.is_read


def in_doubt(state: CallState, *, asked: str | None = None, answer: str | None = None) -> ToolInDoubt:
    """Return the event of a call that had started and of which nobody knows how it ended."""
    key = state.started.key if state.started is not None else ""
    return ToolInDoubt(call_id=state.call.id, tool=state.call.name, key=key, asked=asked, answer=answer)
