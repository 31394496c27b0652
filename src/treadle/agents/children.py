"""Children: carry out a call by a run of another agent, in a session of the same journal, under the rules of the caller.

The session's id is made from the call's key: whoever starts the call again, in whatever process, continues with the same
session, and so nothing in it is done twice.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from treadle.canonical import digest
from treadle.engine.assembly import Host
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.rules.endings import cut_status
from treadle.engine.spec import AgentSpec
from treadle.errors import ConfigurationError, SessionExists, SessionHeld, SessionNotActive
from treadle.events import ChildStarted, RunFinished, SessionSpawned
from treadle.ports import Model
from treadle.sessions.maintenance import EffectRecord, effects_of, ended, fold
from treadle.sessions.session import Session
from treadle.state import SessionState, Suspended
from treadle.stops import StopReason
from treadle.tools import CallStatus, ToolContext, Unfinished

__all__ = ["carry_out", "child_id", "host_of"]

_T = TypeVar("_T")


def child_id(key: str) -> str:
    """Return the id of the session that carries out the call with this idempotency key."""
    return "c_" + digest(["child", key])[:32]


def host_of(ctx: ToolContext) -> Host:
    """Return the run whose call this is.

    Raises:
        ConfigurationError: The context is not that of a run.
    """
    host = getattr(ctx, "host", None)
    if not isinstance(host, Host):
        raise ConfigurationError(
            "An agent as a tool runs under its caller's rules and budget, so it needs the context of the caller's run. "
            "Pass on the ctx that your own tool was given."
        )
    return host


async def carry_out(spec: AgentSpec, model: Model, task: str, ctx: ToolContext, *, name: str = "") -> Any:
    """Give an agent the task of a call, or resume it, and return its answer.

    Args:
        name: By which people know the agent; empty for the name of the tool.

    Raises:
        Suspended: The agent waits for something, or another process still runs its session.
        Unfinished: It did not complete, or it would stand too deep below the top.
        ConfigurationError: The context is not that of a run.
    """
    host, name = host_of(ctx), name or ctx.call.name
    _check_depth(host, name)
    child, is_cut = await _whole(_begun(host, ctx, name))
    if is_cut and not _has_ended(child.state):
        await host.session.ledger.record(ended(ctx.call.id, child.state))
    elif not _has_ended(child.state):
        is_cut = await _run(host, spec, model, child, task, ctx)
    found, _ = await _whole(_outcome(host, child, name, is_cut=is_cut))
    return found


def _check_depth(host: Host, name: str) -> None:
    """Raise Unfinished where no agent may stand below this one: agents that call each other for ever end here."""
    if host.depth_left > 0:
        return
    depth = len(host.session.state.path)
    raise Unfinished(
        CallStatus.REJECTED,
        f"The agent {name} was not called: it would be agent number {depth + 1} in a chain of agents that call each other, and "
        f"{depth} is the most. Do its task yourself, or answer your caller with what you know.",
        body={"error": "too deep", "depth": depth + 1, "limit": depth},
        code="subagent_depth_exceeded",
        may_have_acted=False,
    )


async def _whole(acting: Coroutine[Any, Any, _T]) -> tuple[_T, bool]:
    """Do something to its end though this call is told to stop: else nobody would know what the child did.

    Returns:
        What came of it, and whether this call was told to stop meanwhile.
    """
    task = asyncio.ensure_future(acting)
    is_cut = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cut = True
            if (this := asyncio.current_task()) is not None:
                this.uncancel()
    return task.result(), is_cut


async def _begun(host: Host, ctx: ToolContext, name: str) -> Session:
    """Return the session of the call, which the caller's names from now on."""
    child = await _opened(host, ctx, name)
    # Durable before the child begins: after a power cut its caller would not know of it, and leave it open for ever.
    started = ChildStarted(call_id=ctx.call.id, tool=ctx.call.name, child_id=child.id, agent=name)
    ledger, run = host.session.ledger, child.state.run
    child.ledger.above = ledger
    if ledger.is_deferring and run is not None and run.status == "paused":
        ledger.defer(started)  # it is known to its caller: recorded with the first thing that happens in it
    else:
        await ledger.record(started, durable=True)
    return child


async def _opened(host: Host, ctx: ToolContext, agent: str) -> Session:
    """Return the session of the call, a new one where it has not begun."""
    caller, name = host.session, child_id(ctx.idempotency_key)
    if (known := caller.children.get(name)) is not None:
        await known.refresh()
        return known
    events = await caller.journal.read(name)
    if not events:
        _check_not_lost(caller, name)
        link = SessionSpawned(
            session_id=name,
            seq=1,
            at=caller.clock.now(),
            parent=ctx.session.run_id,
            parent_id=caller.id,
            parent_seq=caller.state.head,
            parent_run=ctx.session.run_id,
            parent_step=ctx.session.step,
            parent_call=ctx.call.id,
            tool=ctx.call.name,
            root_id=caller.state.root_id,
            path=(*caller.state.path, agent),
        )
        try:
            await caller.journal.adopt(name, [link], state="active")
            events = [link]
        except SessionExists:
            events = await caller.journal.read(name)
    state = fold(name, events)
    if state.caller is None or state.caller.parent_id != caller.id:
        raise ConfigurationError(f"Session {name!r} was not made by a call of session {caller.id!r}; remove it first.")
    caller.children[name] = child = caller.beside(state, parent=ctx.session.run_id)
    return child


def _check_not_lost(caller: Session, name: str) -> None:
    """Raise Unfinished where the call has begun, and this journal lacks its session: begun anew, it would act twice."""
    run = caller.state.run
    if run is not None and name in run.children:
        raise _missing(f"The call started in session {name!r}, which is not in this journal.")


def _missing(why: str) -> Unfinished:
    """Return the end of a call whose session can say nothing more."""
    message = f"{why} Its outcome is unknown. Check before you repeat it."
    return Unfinished(CallStatus.OUTCOME_UNKNOWN, message, code="subagent_session_missing", may_have_acted=True)


def _has_ended(state: SessionState) -> bool:
    """Whether the child has its outcome. One that was cancelled continues if its call does."""
    run = state.run
    if run is None or run.status in ("running", "paused"):
        return False
    return run.reason != StopReason.CANCELLED.value


async def _run(host: Host, spec: AgentSpec, model: Model, child: Session, task: str, ctx: ToolContext) -> bool:
    """Let the child's run end, or wait. Return whether it was told to stop."""

    async def opening() -> Session:
        return child

    life = Lifecycle(spec, model, opening, task=task if child.state.run is None else None, deps=ctx.deps, above=host)
    is_cut = False
    try:
        await life.finish()
    except asyncio.CancelledError:  # it was told to stop, and its end is recorded by now
        is_cut = True
        if (this := asyncio.current_task()) is not None:
            this.uncancel()
    except SessionHeld as held:  # by the process that lost the caller's session: it may still act in the child's
        _leave(life)
        raise Suspended(f"session {child.id}, which another process still holds") from held
    except SessionNotActive as closed:  # by a person, between its runs
        _leave(life)
        if child.state.status == "suspended" and not child.state.moved_to:
            raise Suspended(
                f"session {child.id}, which is suspended (`treadle sessions activate {child.id}` allows it to continue)"
            ) from closed
        raise _missing(f"The call started in session {child.id!r}, in which no run may continue.") from closed
    except BaseException:
        _leave(life)
        raise
    host.session.is_degraded = host.session.is_degraded or child.is_degraded
    was_cut, ledger = False, host.session.ledger
    try:
        if not ledger.is_deferring:  # else nothing has happened in it
            _, was_cut = await _whole(ledger.record(ended(ctx.call.id, child.state)))
    finally:
        _leave(life)
    return is_cut or was_cut


def _leave(life: Lifecycle) -> None:
    if life.meter is not None:
        life.meter.leave()


async def _outcome(host: Host, child: Session, name: str, *, is_cut: bool) -> Any:
    """Return the child's answer, or raise what happened to it."""
    run = child.state.run
    if run is not None and run.status == "paused":
        approvals = child.state.pending_approvals()
        outside = [one.suspended.waits_for for one in child.state.suspended if one.suspended is not None]
        waits_for = ", ".join(outside) if outside and not approvals else f"session {child.id}"
        raise Suspended(waits_for, approvals=approvals)
    if not child.abandoned:
        host.session.children.pop(child.id, None)
    events = await child.events()
    end = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    effects = await effects_of(host.session.journal, events)
    if end is not None and end.completed:
        return _answer(end, effects)
    reason = StopReason.CANCELLED.value if end is None else end.reason
    stop = host.interrupt.stop if is_cut else None
    if (
        stop is not None and stop.reached is not None
    ):  # the caller's limit: its own end says only that it was told to stop
        reason = stop.reason.value
    body = {
        "error": "The run did not start." if end is None else end.message,
        "reason": reason,
        "text": "" if end is None else end.text,
        "session": child.id,
        "may_have_done": [f"{one.tool} ({one.status})" for one in effects],
    }
    status = cut_status(stop) if is_cut else CallStatus.REJECTED
    done = " What it did before that is not undone: see `may_have_done`." if effects else ""
    message = f"The agent {name} did not complete its task: {body['error']}{done}"
    raise Unfinished(status, message, body=body, code=f"subagent_{reason}", may_have_acted=bool(effects))


def _answer(end: RunFinished, effects: Sequence[EffectRecord]) -> Any:
    """Return the child's answer. Where it left calls of unknown outcome, they are named beside it: the answer may hide them."""
    answer = end.text if end.output is None else end.output
    doubts = [f"{one.tool} ({one.status})" for one in effects if one.status == CallStatus.OUTCOME_UNKNOWN]
    if not doubts:
        return answer
    message = "The agent completed its task, but these calls of it may have taken effect. Check before you repeat them."
    return {"answer": answer, "outcome_unknown": doubts, "message": message}
