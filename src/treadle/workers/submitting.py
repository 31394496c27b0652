"""Submitting a task for whichever worker has its agent, and waiting for what happened to it. Runs nothing itself."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from treadle.budgets import Budget, Deadline, budget_from, epoch_seconds
from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, SessionExists, SessionNotActive, TaskCancelled, UnknownSession, shown
from treadle.events import AnyEvent, RunFinished, SessionChanged, TaskSubmitted, TaskWithdrawn
from treadle.fields import Documented, checked
from treadle.messages import Message, user_message
from treadle.ports import Clock, Dispatcher, HasLive, Journal
from treadle.resolve import open_journal, open_session
from treadle.resolve.journals import SystemClock, SystemRandomness
from treadle.sessions.live import with_live
from treadle.sessions.maintenance import check_here, fold
from treadle.sessions.session import Session
from treadle.state import SessionState
from treadle.tools import JsonObject

__all__ = ["TaskResult", "follow", "keyed_session_id", "result", "retry", "shared_journal", "submit"]


class TaskResult(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What happened to a submitted task, as its session's journal says."""

    session_id: str
    """The session that carried it out."""
    status: str
    """`completed`, `stopped` or `failed`."""
    reason: str
    """The stop reason, such as `completed`."""
    message: str = ""
    """How the run ended, in one sentence."""
    text: str = ""
    """The answer, or the last text before an abnormal stop."""
    output: Any = None
    """The structured answer, or the payload of the tool that ended the run. A JSON value."""

    @property
    def completed(self) -> bool:
        """Whether the task is done."""
        return self.status == "completed"


@checked
async def submit(
    journal: str | Path | Journal,
    agent: str,
    task: str | Message,
    *,
    tenant: str = "",
    priority: int = 0,
    at: float | datetime | None = None,
    key: str | None = None,
    budget: Budget | None = None,
    deadline: Deadline | None = None,
    metadata: JsonObject | None = None,
    by: str = "",
    dispatcher: Dispatcher | None = None,
    clock: Clock | None = None,
) -> str:
    """Store a task for whichever worker has this agent, and return the id of its session. The task is stored when this returns.

    Example:
        session_id = await submit("agent.db", "support", "Answer ticket 7", key="ticket-7")
        answer = await result("agent.db", session_id)

    Args:
        journal: A file's path, `postgresql://...`, or an open journal (it stays open). The workers use the same one.
        agent: The name under which workers have the agent.
        task: What to do.
        tenant: The tenant whose task it is; tenants take turns.
        priority: Among the waiting tasks of one tenant, those with a higher number begin first.
        at: The earliest time at which it begins: a datetime with a time zone, or seconds since 1970; None for at once.
        key: Its idempotency key among the tasks of its tenant: submitting it twice creates one session, and the first task counts.
        budget: Replaces the agent's budget.
        deadline: When its run must have ended.
        metadata: Metadata of the session, in addition to its tenant.
        by: Who submits it, for the record.
        dispatcher: Notified of the session, if the workers use one; None for workers that read the journal.
        clock: Replaces the machine's clock, for tests.

    Raises:
        ConfigurationError: A value is invalid.
        JournalError: The store failed. The task is not submitted; if that is unknown, submit it again with its key.
    """
    message = _checked(agent, task, tenant, priority, key, by)
    starts_at = None if at is None else epoch_seconds(at, name="time `at`")
    tenant = _tenant_of(tenant, metadata)
    session_id = keyed_session_id(tenant, key)
    now = (clock or SystemClock()).now()
    about = {**(metadata or {}), **({"tenant": tenant} if tenant else {})}
    submitted = TaskSubmitted(
        message=message,
        agent=agent,
        tenant=tenant,
        priority=priority,
        due_at=starts_at,
        budget=None if budget is None else msgspec.to_builtins(budget),
        deadline=None if deadline is None else epoch_seconds(deadline),
        by=by,
    )
    events: list[AnyEvent] = [SessionChanged(metadata=about, by=by)] if about else []
    events = [
        msgspec.structs.replace(event, session_id=session_id, seq=seq, at=now)
        for seq, event in enumerate([*events, submitted], start=1)
    ]
    async with shared_journal(journal) as store:
        try:
            await store.adopt(session_id, events, state="queued")
        except SessionExists:
            if key is None or fold(session_id, await store.read(session_id)).status == "deleted":
                raise
    if dispatcher is not None:
        await dispatcher.send(session_id, at=starts_at, priority=priority, tenant=tenant)
    return session_id


@checked
async def retry(
    journal: str | Path | Journal,
    session_id: str,
    *,
    key: str | None = None,
    may_repeat: bool = False,
    deadline: Deadline | None = None,
    by: str = "",
    dispatcher: Dispatcher | None = None,
    clock: Clock | None = None,
) -> str:
    """Submit a task again that failed, stopped or was cancelled, and return the id of its session.

    Without a new key it is the same task: it runs again in its session, and the model reads what was done there. With a new key it is
    another task: it begins from nothing in a session of its own, and what was done is unknown there.

    Example:
        session_id = await retry("agent.db", session_id)

    Args:
        session_id: The session of the task.
        key: A new idempotency key: the task begins from nothing.
        may_repeat: With a new key: begin it also if that may repeat what was done.
        deadline: When its run must have ended; the task's own deadline is left out.
        by: Who submits it, for the record.
        dispatcher: Notified of the session, if the workers use one; None for workers that read the journal.
        clock: Replaces the machine's clock, for tests.

    Raises:
        ConfigurationError: The session has no task that has ended without success, or a new key may repeat what was done.
        UnknownSession: The journal has no such session.
        SessionNotActive: The session was suspended or deleted.
        SessionHeld: A process runs it.
        JournalError: The store failed.
    """
    async with (
        shared_journal(journal) as store,
        open_session(store, id=session_id, must_exist=True, clock=clock, on_store_failure="stop") as session,
    ):
        task = msgspec.structs.replace(
            await _ended_task(session),
            due_at=None,
            deadline=None if deadline is None else epoch_seconds(deadline),
            by=by,
        )
        if key is not None:
            return await _begun_anew(store, session, task, key, dispatcher, clock, may_repeat=may_repeat)
        session.check_active()
        async with session.held():
            await _ended_task(session)
            await session.ledger.record(task, durable=True)
    if dispatcher is not None:
        await dispatcher.send(session_id, at=None, priority=task.priority, tenant=task.tenant)
    return session_id


async def _ended_task(session: Session) -> TaskSubmitted:
    """Return the session's task, to be recorded again. Raises ConfigurationError: there is none, or it has not ended without success."""
    tasks = [event for event in await session.events() if isinstance(event, TaskSubmitted)]
    if not tasks:
        raise ConfigurationError(
            f"Session {session.id} has no task that was submitted to workers. To continue its run: treadle resume {session.id}"
        )
    status = session.state.run_status
    if status in ("queued", "running", "paused"):
        raise ConfigurationError(
            f"Session {session.id} is {status}: its task has not ended. Wait, answer it or cancel it."
        )
    if status == "completed":
        raise ConfigurationError(f"Session {session.id} has completed its task: submit a new one.")
    task = tasks[-1]
    return TaskSubmitted(
        message=task.message, agent=task.agent, tenant=task.tenant, priority=task.priority, budget=task.budget
    )


async def _begun_anew(
    store: Journal,
    session: Session,
    task: TaskSubmitted,
    key: str,
    dispatcher: Dispatcher | None,
    clock: Clock | None,
    *,
    may_repeat: bool,
) -> str:
    rerun = (await session.explain()).rerun
    if not (rerun.is_safe or may_repeat):
        raise ConfigurationError(
            f"{rerun.why} Without a new key, the model reads what was done. To begin from nothing anyway: --may-repeat, or may_repeat=True."
        )
    new_id = await submit(
        store,
        task.agent,
        task.message,
        tenant=task.tenant,
        priority=task.priority,
        key=key,
        budget=None if task.budget is None else budget_from(task.budget),
        deadline=task.deadline,
        metadata={**session.state.metadata, "retry_of": session.id},
        by=task.by,
        dispatcher=dispatcher,
        clock=clock,
    )
    if new_id == session.id:
        raise ConfigurationError(f"{shown(key)} is the key that the task has already: leave it out, or give a new one.")
    return new_id


@checked
async def result(
    journal: str | Path | Journal,
    session_id: str,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - the face's word
) -> TaskResult:
    """Wait until the session's run has ended, in any process, and return how it ended. A paused run has not ended.

    Args:
        timeout: Seconds to wait; None for as long as it takes.

    Raises:
        UnknownSession: The journal has no such session.
        TaskCancelled: The task was cancelled before its run started.
        SessionMoved: The session continues elsewhere.
        SessionNotActive: The session was deleted.
        TimeoutError: The run has not ended in time. It is still running, waits for a worker, or waits for a person.
        JournalError: The store failed.
    """
    end: RunFinished | TaskWithdrawn | None = None
    async with shared_journal(journal) as store, asyncio.timeout(timeout):
        if not await store.read(session_id):
            raise UnknownSession(f"There is no session {shown(session_id)} in the journal {store.location}.")
        async for event in store.follow(session_id):
            end = event if isinstance(event, RunFinished | TaskWithdrawn) else end
            if isinstance(event, SessionChanged) and event.status is not None:
                _check_may_end(fold(session_id, await store.read(session_id)), store)
    if isinstance(end, RunFinished):
        return TaskResult(
            session_id=session_id,
            status=end.status,
            reason=end.reason,
            message=end.message,
            text=end.text,
            output=end.output,
        )
    raise TaskCancelled(f"The task of session {session_id!r} was cancelled before its run started.")


def _check_may_end(state: SessionState, journal: Journal) -> None:
    """Raise if the session's run has not ended, and cannot end here."""
    if state.run is not None and state.run.status not in ("running", "paused"):
        return
    check_here(state, journal)
    if state.status == "deleted":
        raise SessionNotActive(f"Session {state.id!r} was deleted before its run ended.")


@checked
async def follow(
    journal: str | Path | Journal, session_id: str, *, after: int = 0, live: bool = False
) -> AsyncGenerator[AnyEvent]:
    """Yield a session's events as any process stores them, until its run has ended.

    After a broken connection, continue with the number of the last event that you have seen.

    Args:
        after: The number of the event after which to begin.
        live: Also yield a `ModelDelta` for each piece of an answer, as the process that runs the agent gets it. They have
            no number. If the journal is a file, this works for processes of this machine. Without them, no stored event is missing.

    Raises:
        UnknownSession: The journal has no such session.
        JournalError: The store failed.
    """
    async with shared_journal(journal) as store:
        if not after and not await store.read(session_id):
            raise UnknownSession(f"There is no session {shown(session_id)} in the journal {store.location}.")
        stored = store.follow(session_id, after=after)
        if live and isinstance(store, HasLive):
            stored = with_live(store, session_id, stored, is_whole=after <= 0)
        try:
            async for event in stored:
                yield event
        finally:
            if isinstance(stored, AsyncGenerator):
                await stored.aclose()


@asynccontextmanager
async def shared_journal(journal: str | Path | Journal) -> AsyncIterator[Journal]:
    """Open a journal by its path, and close it at the end; use one that is open."""
    if isinstance(journal, str) and journal in ("memory:", ":memory:"):
        raise ConfigurationError(
            "Workers share a journal, and nobody else sees `memory:`. Name a file or a PostgreSQL database, or pass an open journal."
        )
    if isinstance(journal, str | Path):
        async with open_journal(journal) as store:
            yield store
    elif callable(getattr(journal, "adopt", None)):
        yield journal
    else:
        raise ConfigurationError(f"journal is a path, an address or an open journal; got {shown(journal)}.")


def _checked(agent: str, task: str | Message, tenant: str, priority: int, key: str | None, by: str) -> Message:
    """Return the task as a message. Raises ConfigurationError: A value is invalid."""
    for name, value in (("agent", agent), ("tenant", tenant), ("key", key), ("by", by)):
        if value is not None and (not isinstance(value, str) or find_unencodable(value) is not None):
            raise ConfigurationError(f"submit({name}=...) must be a string; got {shown(value)}.")
    if not agent:
        raise ConfigurationError(
            "submit needs the name of an agent, as workers have it: submit(journal, 'support', task)."
        )
    if type(priority) is not int or abs(priority) > _HIGHEST:
        raise ConfigurationError(f"submit(priority=...) is a whole number up to {_HIGHEST:_}; got {shown(priority)}.")
    if not isinstance(task, str | Message) or not task:
        raise ConfigurationError(f"submit needs a task: a string that is not empty, or a Message; got {shown(task)}.")
    message = user_message(task) if isinstance(task, str) else task
    if (fault := find_unencodable(msgspec.to_builtins(message))) is not None:
        raise ConfigurationError(f"The task cannot be stored: {fault}.")
    return message


_HIGHEST = 999_999_999


def _tenant_of(tenant: str, metadata: JsonObject | None) -> str:
    """Return whose task it is: what the metadata say counts too. Raises ConfigurationError: They name another one."""
    named = (metadata or {}).get("tenant", tenant)
    if not isinstance(named, str) or (tenant and named != tenant):
        raise ConfigurationError(
            f"The metadata name the tenant {shown(named)}, and tenant= names {shown(tenant)}. Name one."
        )
    return named


def keyed_session_id(tenant: str, key: str | None) -> str:
    """Return the id of a new session, or of the one that a key names."""
    if key is None:
        return "s_" + SystemRandomness().token()
    if not key:
        raise ConfigurationError(
            "The key is empty: all tasks with it would be one. Name the task, or leave the key out."
        )
    named = hashlib.sha256(f"{len(tenant)}:{tenant}{key}".encode()).hexdigest()
    return f"k_{named[:24]}"
