"""`treadle run` and `treadle resume`: put an agent together, open its session, and let it run."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from treadle import Agent, Message, Session, open_session
from treadle.cli.continuing import continued
from treadle.cli.exits import UsageError
from treadle.cli.guidance import check_given, guidance_of, message_of, read_task
from treadle.cli.input.options import Options
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.origins import check_agent, check_tools, origin_of, restored, tell_other_folder
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted
from treadle.cli.running import carry_out, idle_rules, make_agent, quiet_logs, resumed_budget
from treadle.cli.sessions import apply_mode, find_session, last_model, opened, opened_session

__all__ = ["command", "go_on", "start"]


def command(options: Options, terminal: Terminal) -> int:
    """Carry out one task."""
    quiet_logs(terminal)
    check_given(options.task)
    if options.is_last and options.id is not None:
        raise UsageError("Name one session: --session ID, or --last for the most recently changed one of this folder.")
    options = asyncio.run(continued(options, terminal))
    settings = settings_of(options)
    for note in (*settings.notes, *guidance_of(settings).notes):
        terminal.progress(f"note: {note}")
    agent = make_agent(settings, settings.model, options=options)
    for warning in idle_rules(agent):
        terminal.say(warning)
    attached = [Path(file) for file in options.attached]
    task = message_of(read_task(options.task, terminal), attached, settings.root)
    return asyncio.run(start(agent, task, settings=settings, options=options, terminal=terminal))


async def start(
    agent: Agent,
    task: str | Message,
    *,
    settings: Settings,
    options: Options,
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
        run = agent.stream(
            task,
            session=session,
            budget=settings.budget,
            deadline=options.deadline,
            single_turn=options.is_single_turn,
        )
        run.remember(origin_of(settings, model or settings.model, options))
        return await carry_out(run, session, settings=settings, options=options, terminal=terminal)


async def go_on(options: Options, terminal: Terminal) -> int:
    """Resume a session's run; return the exit code."""
    settings = settings_of(options)
    async with opened(settings.journal, must_exist=True) as journal:
        info = await find_session(journal, options.id)
        async with opened_session(journal, info.id) as session:
            session.check_active()
            session.check_own()
            session.check_resumable()
            check_agent(session, accepts_change=options.accepts_change)
            options = restored(options, session, terminal)
            settings = settings_of(options)
            model = options.model or await last_model(session) or settings.model
            agent = make_agent(settings, model, options=options)
            for warning in idle_rules(agent):
                terminal.say(warning)
            check_tools(agent, session)
            _tell_restored(session, terminal)
            await apply_mode(session, settings, options)
            run = agent.stream_resume(session, budget=resumed_budget(session, settings), deadline=options.deadline)
            run.remember(origin_of(settings, model, options))
            return await carry_out(run, session, settings=settings, options=options, terminal=terminal)


def _tell_restored(session: Session, terminal: Terminal) -> None:
    terminal.progress(f"session: {session.id}")
    terminal.progress(f"[Session restored: {counted(len(session.messages), 'message')}]")
