"""`treadle run`, `goal`, `resume` and `cancel`: put an agent together, open its session, and let it run; or end the run."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle import Agent, Message, Session, open_session
from treadle.agents import Goal, GoalWork, load_goal
from treadle.cli.bulk import Chosen, chosen_sessions, done_to_all
from treadle.cli.exits import UsageError
from treadle.cli.guidance import Attached, check_given, guidance_of, message_of, read_task
from treadle.cli.input.commands import (
    CancelOptions,
    GoalOptions,
    ResumeOptions,
    RunOptions,
    TaskOptions,
    has_conditions,
)
from treadle.cli.input.options import Options
from treadle.cli.input.places import absolute, same_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.origins import (
    absolute_model,
    check_agent,
    check_tools,
    continuing,
    folder_of,
    is_same_folder,
    origin_in,
    origin_of,
    program_of,
    restored,
    resuming,
    tell_other_folder,
)
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line
from treadle.cli.rewinding import snapshots_of
from treadle.cli.running import carry_out, idle_rules, make_agent, resumed_budget
from treadle.cli.sessions import (
    UNREADABLE,
    apply_mode,
    find_session,
    is_held,
    is_there,
    last_model,
    named_session,
    opened,
    opened_session,
    person,
)
from treadle.errors import UnknownSession
from treadle.ports import Journal

__all__ = ["cancel", "continued", "goal", "resume", "run", "start"]


def run(options: RunOptions, terminal: Terminal) -> int:
    """Carry out one task."""
    terminal.hides_logs = True
    check_given(options.task)
    if options.is_last and options.id is not None:
        raise UsageError("Name one session: --session ID, or --last for the most recently changed one of this folder.")
    options = asyncio.run(continued(options, terminal))
    settings = settings_of(options)
    for note in (*settings.notes, *guidance_of(settings).notes):
        terminal.progress(f"note: {note}")
    agent = _agent(settings, settings.model, options, terminal)
    attached = [Attached(Path(file)) for file in options.attached]
    task = message_of(read_task(options.task, terminal), attached, settings.root)
    return asyncio.run(start(agent, task, settings=settings, options=options, terminal=terminal))


def _agent(settings: Settings, model: str | None, options: Options, terminal: Terminal) -> Agent:
    """Put the agent together, and say which rules match nothing."""
    agent = make_agent(settings, model, options=options, snapshots=snapshots_of(settings))
    terminal.say_lines(idle_rules(agent.unmatched_rules()))
    return agent


async def start(
    agent: Agent,
    task: str | Message,
    *,
    settings: Settings,
    options: RunOptions,
    terminal: Terminal,
    model: str | None = None,
) -> int:
    """Give a session one task; return the exit code.

    Args:
        model: The model's name, where it is not that of the settings.
    """
    async with opened(settings.journal, must_exist=options.is_last) as journal, AsyncExitStack() as stack:
        session = await stack.enter_async_context(open_session(journal, id=options.id, on_store_failure="degrade"))
        if session.messages:
            _tell_restored(session, terminal)
        else:
            terminal.progress(f"session: {session.id}")
        tell_other_folder(options, session, terminal)
        await apply_mode(session, settings, options)
        started = agent.stream(
            task,
            session=session,
            budget=settings.budget,
            deadline=options.deadline,
            single_turn=options.is_single_turn,
        )
        started.remember(origin_of(settings, model or settings.model, options))
        return await carry_out(started, session, settings=settings, options=options, terminal=terminal)


async def resume(options: ResumeOptions, terminal: Terminal) -> int:
    """Resume one session's run, named or the last, or those of all that fulfil the conditions; return the exit code."""
    terminal.hides_logs = True
    if not has_conditions(options) and (options.id is None) is not options.is_last:
        raise UsageError(
            "Name one session: `treadle resume ID`, or `treadle resume --last`. `treadle sessions` lists all."
        )
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        if has_conditions(options):
            return await _resume_all(journal, options, terminal)
        info = await find_session(journal, options.id)
        return await _resume_one(journal, info.id, options, terminal)


async def _resume_all(journal: Journal, options: ResumeOptions, terminal: Terminal) -> int:
    """Resume one run after the other."""
    chosen = await chosen_sessions(
        journal, options, run_statuses=("stopped", "failed", "paused", "running"), fits=_may_resume
    )

    async def act(one: Chosen) -> None:
        if code := await _resume_one(journal, one.id, options, terminal):
            raise UsageError(f"the run has not completed its task (exit code {code})")

    return await done_to_all(chosen, act, "Resume", "resumed", options, terminal)


async def _may_resume(session: Session) -> bool:
    return session.state.own_status == "active" and session.state.run is not None


async def _resume_one(journal: Journal, session_id: str, options: ResumeOptions, terminal: Terminal) -> int:
    async with opened_session(journal, session_id) as session:
        session.check_active()
        session.check_own()
        session.check_resumable()
        check_agent(session, accepts_change=options.accepts_change)
        options = restored(options, session, terminal)
        settings = settings_of(options)
        model = options.model or await last_model(session) or settings.model
        agent = _agent(settings, model, options, terminal)
        check_tools(agent, session)
        _tell_restored(session, terminal)
        await apply_mode(session, settings, options)
        resumed = agent.stream_resume(session, budget=resumed_budget(session, settings), deadline=options.deadline)
        resumed.remember(origin_of(settings, model, options))
        return await carry_out(resumed, session, settings=settings, options=options, terminal=terminal)


def _tell_restored(session: Session, terminal: Terminal) -> None:
    terminal.progress(f"session: {session.id}")
    terminal.progress(f"[Session restored: {counted(len(session.messages), 'message')}]")


# --- Which session `-c` and `--session` mean, and the model with which it continues.

_Task = TypeVar("_Task", bound=TaskOptions)
_LOOKED_AT = 500
"""So many sessions are looked at for one of this folder, the last changed first."""


async def continued(options: _Task, terminal: Terminal) -> _Task:
    """Return the options of a new task with the session that they mean, and with its own model where no other is named.

    Raises:
        UsageError: `-c` was given, and no session of this folder is known.
    """
    if options.id is None and not options.is_last:
        return options
    settings = settings_of(options)
    if not options.is_last and not is_there(settings.journal):
        return options
    async with opened(settings.journal, must_exist=options.is_last) as journal:
        session_id = options.id or await _newest_here(journal, settings.root)
        found = msgspec.structs.replace(options, id=session_id)
        try:
            async with open_session(journal, id=session_id, must_exist=True) as session:
                return found if options.model else _with_its_model(found, session, settings.model, terminal)
        except UnknownSession:
            return found


async def _newest_here(journal: Journal, root: Path) -> str:
    """Return the id of the session that changed last among those that work in a folder."""
    elsewhere = ""
    infos = [info for info in await journal.sessions() if info.status != "deleted"]
    for info in infos[:_LOOKED_AT]:
        try:
            async with open_session(journal, id=info.id) as session:
                folder = folder_of(session)
        except UNREADABLE:  # one that is broken is not meant
            continue
        if folder is None:
            continue
        if is_same_folder(folder, root):
            return info.id
        if not elsewhere:
            elsewhere = f" The last one works in {one_line(folder, 200)}: --session {info.id} continues it here."
    looked = f" ({counted(_LOOKED_AT, 'session')} were looked at)" if len(infos) > _LOOKED_AT else ""
    raise UsageError(
        f"No session in the journal {journal.location} works in the folder {one_line(absolute(str(root)), 200)}{looked}.{elsewhere}"
    )


def _with_its_model(options: _Task, session: Session, chosen: str | None, terminal: Terminal) -> _Task:
    """Let a session continue with its own model where none is configured; where another one is, say so."""
    origin = origin_in(session)
    own = origin.get("model")
    if own is None or (chosen is not None and absolute_model(chosen) == own):
        return options
    if chosen is not None:
        terminal.say(
            f"treadle: session {session.id} used the model {one_line(own, 80)}; now it uses {one_line(chosen, 80)}, as configured."
        )
        return options
    return msgspec.structs.replace(options, model=own, base_url=options.base_url or origin.get("base_url"))


# --- A goal.


async def goal(options: GoalOptions, terminal: Terminal) -> int:
    """Read the goal, and work on it."""
    terminal.hides_logs = True
    if options.task is None:
        raise UsageError("Name the goal's file: treadle goal goal.toml")
    return await _work_on(load_goal(Path(options.task)), options, terminal)


async def _work_on(goal: Goal, options: GoalOptions, terminal: Terminal) -> int:
    session_id = options.id or f"goal-{goal.digest[:12]}"
    options = await _remembered(options, session_id, terminal)
    settings = settings_of(options)
    agent = _agent(settings, settings.model, options, terminal)
    goal = msgspec.structs.replace(goal, budget=msgspec.structs.replace(goal.budget, **settings.overriding))
    async with opened(settings.journal) as journal, open_session(journal, id=session_id) as session:
        terminal.progress(f"session: {session.id}")
        check_tools(agent, session)
        await apply_mode(session, settings, options)
        work = await GoalWork.begun(agent, goal, session=session, root=settings.root)
        code, ended = 0, None
        if work.run is not None:
            work.run.remember(origin_of(settings, settings.model, options))
            code = await carry_out(work.run, session, settings=settings, options=options, terminal=terminal)
            ended = work.run.result
        found = work.result(ended)
        terminal.say(f"treadle: {found.message}")
        return code if found.completed else code or 1


async def _remembered(options: GoalOptions, session_id: str, terminal: Terminal) -> GoalOptions:
    """Return the options with what the goal's session remembers of its run: the same command continues, and so does a shorter one."""
    path = settings_of(options).journal
    if not is_there(path):
        return options
    async with opened(path) as journal:
        try:
            async with open_session(journal, id=session_id, must_exist=True) as session:
                return restored(options, session, terminal)
        except UnknownSession:
            return options


# --- Cancelling.


async def cancel(options: CancelOptions, terminal: Terminal) -> int:
    """Leave a cancellation, which holds until the run has ended."""
    if has_conditions(options):
        return await _cancel_all(options, terminal)
    async with named_session(options) as session:
        journal = session.journal
        if not await session.cancel(by=person(options)):
            raise UsageError(f"Session {session.id} has no run to cancel: it is {session.state.status}.")
        is_live = await is_held(journal, session.id)
        was_paused = session.state.run_status == "paused" and not is_live
        was_withdrawn = session.state.run is None and session.state.submitted is None
        if options.as_json:
            run_status = session.state.run_status
            # The second for programs that read the name before.
            names = dict.fromkeys(("run_status", "state"), run_status)
            terminal.data({"id": session.id, "cancelled": True, "status": session.state.status, **names})
        is_child = session.state.root_id != session.id
        is_ours = not is_child and (session.state.run is None or not (session.state.run.worker or program_of(session)))
        then = await continuing(journal, session.state.root_id, options)
        then = "A live run stops within a second." if is_live else then
    if was_withdrawn:
        terminal.say(f"Cancelled {session.id}: no worker begins its task.")
        return 0
    if not is_ours:
        terminal.say(f"Cancelled {session.id}: nothing further starts in it. {then}")
        return 0
    resume = f"{resuming(session)}{same_journal(options)}"
    then = (
        f"To record its end: {resume}"
        if was_paused
        else f"A live run stops within a second. If its process is gone, record its end with: {resume}"
    )
    terminal.say(f"Cancelled {session.id}: no further calls start, and no further approvals are requested. {then}")
    return 0


async def _cancel_all(options: CancelOptions, terminal: Terminal) -> int:
    """Cancel all runs and tasks that fulfil the conditions."""
    by = person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        chosen = await chosen_sessions(journal, options, run_statuses=("queued", "running", "paused"))

        async def act(one: Chosen) -> None:
            async with opened_session(journal, one.id) as session:
                if not await session.cancel(by=by):
                    raise UsageError(f"there is no run to cancel: the session is {session.state.status}")

        return await done_to_all(chosen, act, "Cancel", "cancelled", options, terminal)
