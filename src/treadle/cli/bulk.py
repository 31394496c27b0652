"""Bulk: one act on all sessions, or requests, that fulfil some conditions: chosen, shown, confirmed, and done one by one."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from treadle import Approval, Session, TreadleError
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import BulkOptions, ResumeOptions, RmOptions, WaitingOptions
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_json, shown_time
from treadle.cli.running import is_confirmed
from treadle.cli.sessions import UNREADABLE, opened_session
from treadle.ports import Journal, SessionFilter, SessionInfo
from treadle.state import Doubt

__all__ = ["Chosen", "chosen_requests", "chosen_sessions", "done_to_all", "of_interest"]

_SHOWN = 20


class Chosen(NamedTuple):
    """Something that an act is done to."""

    id: str
    """Of the session, or of the request."""
    since: float
    """Since when it has waited, or has not changed, in seconds since 1970."""
    about: str
    """What it is, for people."""
    session_id: str
    """The session."""


async def chosen_sessions(
    journal: Journal,
    options: BulkOptions | ResumeOptions | RmOptions,
    *,
    run_statuses: Sequence[str] = (),
    statuses: Sequence[str] = (),
    fits: Callable[[Session], Awaitable[bool]] | None = None,
    with_deleted: bool = False,
) -> list[Chosen]:
    """Return the sessions that fulfil the conditions, the one that has not changed for longest first.

    A session that carries out a call of another is left to that one.

    Args:
        run_statuses: Only sessions whose last run has one of these statuses. If statuses are given too, either is enough.
        statuses: Only sessions with one of these statuses.
        fits: Whether the act can be done to a session; None for all of them.
        with_deleted: Whether deleted sessions are among them.

    Raises:
        UsageError: The act is for none of the sessions in the state that is named.
    """
    status = getattr(options, "status", None)
    allowed = (*run_statuses, *statuses)
    if status is not None and allowed and status not in allowed:
        raise UsageError(f"--status {status}: this is for sessions that are {', '.join(allowed)}.")
    if status is not None:
        run_statuses, statuses = ((), (status,)) if status == "suspended" else ((status,), ())
    where = SessionFilter(
        run_statuses=tuple(run_statuses),
        statuses=tuple(statuses),
        without_deleted=not with_deleted,
        tenant=options.tenant,
    )
    before = None if options.older_than is None else time.time() - options.older_than
    found = []
    for info in reversed(await journal.sessions(where)):
        is_old = before is None or info.updated_at <= before
        if is_old and await _is_chosen(journal, info, options.agent, fits):
            about = f"{info.status:<9}  {one_line(info.task, 80)}"
            found.append(Chosen(id=info.id, since=info.updated_at, about=about, session_id=info.id))
        if len(found) == options.limit:
            break
    return found


async def _is_chosen(
    journal: Journal, info: SessionInfo, agent: str | None, fits: Callable[[Session], Awaitable[bool]] | None
) -> bool:
    """Whether a session is one of its own, has this agent, and can have done to it what is to be done."""
    if agent is None and fits is None and info.parent_id is None:
        return True
    try:
        async with opened_session(journal, info.id) as session:
            if session.state.root_id != info.id or not (fits is None or await fits(session)):
                return False
    except UNREADABLE:
        return agent is None and fits is None
    return agent is None or await _agent_of(journal, info.id) == agent


async def _agent_of(journal: Journal, session_id: str) -> str:
    """Return the agent of a session, or of the one at the top for one that carries out a call; empty for none."""
    try:
        async with opened_session(journal, session_id) as session:
            state = session.state
    except UNREADABLE:
        return ""
    if state.root_id != session_id:
        return await _agent_of(journal, state.root_id)
    return state.submitted.agent if state.submitted is not None else "" if state.run is None else state.run.agent


async def of_interest(
    journal: Journal, found: Iterable[Any], options: WaitingOptions | BulkOptions, *, tool: str | None
) -> list[Any]:
    """Return the requests or doubts that fulfil the conditions, the oldest first."""
    kept: list[Approval | Doubt] = [one for one in found if tool is None or one.tool == tool]
    if options.older_than is not None:
        before = time.time() - options.older_than
        kept = [one for one in kept if _since(one) <= before]
    if options.tenant is not None or options.agent is not None:
        tenants = {info.id: info.tenant for info in await journal.sessions()}
        tops = {one.session_id: await _top_of(journal, one) for one in kept}
        kept = [one for one in kept if options.tenant in (None, tenants.get(tops[one.session_id], ""))]
        if options.agent is not None:
            kept = [one for one in kept if await _agent_of(journal, one.session_id) == options.agent]
    return sorted(kept, key=_since)


def chosen_requests(found: Sequence[Approval | Doubt], options: BulkOptions) -> list[Chosen]:
    """Return requests or doubts as things that an act is done to."""
    return [
        Chosen(
            id=one.id if isinstance(one, Approval) else one.call_id,
            since=_since(one),
            session_id=one.session_id,
            about=f"{one.tool} {shown_json(one.arguments, 100)}",
        )
        for one in found[: options.limit]
    ]


def _since(one: Approval | Doubt) -> float:
    return one.requested_at if isinstance(one, Approval) else one.since


async def _top_of(journal: Journal, one: Approval | Doubt) -> str:
    if isinstance(one, Approval):
        return one.root_id or one.session_id
    async with opened_session(journal, one.session_id) as session:
        return session.state.root_id


async def done_to_all(
    chosen: Sequence[Chosen],
    act: Callable[[Chosen], Awaitable[None]],
    verb: str,
    done: str,
    options: BulkOptions | ResumeOptions | RmOptions,
    terminal: Terminal,
    *,
    noun: str = "session",
) -> int:
    """Show what is chosen, ask, and do it to one after the other. Return 1 where one of them failed, or nothing was to be done.

    Args:
        verb: What is done, such as `Cancel`.
        done: What was done, such as `cancelled`.
        noun: What it is done to.
    """
    named = options.ids if isinstance(options, RmOptions) else options.id
    if named or options.is_last:
        raise UsageError("Give an id, or conditions such as --tenant, and not both.")
    _show(chosen, options, terminal)
    if options.is_preview or not chosen:
        if options.as_json:
            terminal.data([_told(one) for one in chosen])
        would = f"{counted(len(chosen), noun)} would be {done}."
        terminal.say(would if chosen else f"No {noun} fulfils these conditions.")
        return 0
    if not (options.is_sure or options.as_json or is_confirmed(f"{verb} {counted(len(chosen), noun)}?", terminal)):
        terminal.say("Nothing is changed.")
        return 1
    failed: dict[str, str] = {}
    for one in chosen:
        try:
            await act(one)
        except TreadleError as error:  # the others are done anyway
            failed[one.id] = str(error)
    if options.as_json:
        terminal.data([_told(one, is_done=one.id not in failed, error=failed.get(one.id)) for one in chosen])
    for key, message in failed.items():
        terminal.say(f"{key}: {one_line(message, 300)}")
    terminal.say(f"{counted(len(chosen) - len(failed), noun)} {done}" + (f", {len(failed)} not." if failed else "."))
    return 1 if failed else 0


def _show(chosen: Sequence[Chosen], options: BulkOptions | ResumeOptions | RmOptions, terminal: Terminal) -> None:
    if options.as_json:
        return
    for one in chosen[:_SHOWN]:
        terminal.line(f"{one.id}  {shown_time(one.since)}  {one.about}")
    if len(chosen) > _SHOWN:
        terminal.say(f"and {len(chosen) - _SHOWN} more")


def _told(one: Chosen, *, is_done: bool = False, error: str | None = None) -> dict[str, Any]:
    return {"id": one.id, "session_id": one.session_id, "done": is_done, "error": error}
