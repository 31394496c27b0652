"""`treadle goal FILE`: work on one goal until its validation passes. Called again, it continues from what is recorded."""

import asyncio
from pathlib import Path

import msgspec

from treadle import Goal, GoalWork, UnknownSession, load_goal, open_session
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import check_tools, origin_of, restored
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import carry_out, idle_rules, make_agent, quiet_logs
from treadle.cli.sessions import apply_mode, is_there, opened

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Read the goal, and work on it."""
    quiet_logs(terminal)
    if options.task is None:
        raise UsageError("Name the goal's file: treadle goal goal.toml")
    return asyncio.run(_work_on(load_goal(Path(options.task)), options, terminal))


async def _work_on(goal: Goal, options: Options, terminal: Terminal) -> int:
    session_id = options.id or f"goal-{goal.digest[:12]}"
    options = await _remembered(options, session_id, terminal)
    settings = settings_of(options)
    agent = make_agent(settings, settings.model, options=options)
    for warning in idle_rules(agent):
        terminal.say(warning)
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


async def _remembered(options: Options, session_id: str, terminal: Terminal) -> Options:
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
