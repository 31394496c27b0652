"""`treadle cancel`: cancel a run: one that is live, in whatever process, or one that was paused or broke off."""

import asyncio

from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import continuing, program_of, resuming
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import is_held, named, opened, opened_session, person

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Leave a cancellation, which holds until the run has ended."""
    return asyncio.run(_cancel(options, terminal))


async def _cancel(options: Options, terminal: Terminal) -> int:
    async with (
        opened(settings_of(options).journal, must_exist=True) as journal,
        opened_session(journal, named(options)) as session,
    ):
        if not await session.cancel(by=person(options)):
            raise UsageError(f"Session {session.id} has no run to cancel: it is {session.state.phase}.")
        is_live = await is_held(journal, session.id)
        was_paused = session.state.phase == "paused" and not is_live
        was_withdrawn = session.state.run is None and session.state.submitted is None
        if options.as_json:
            phase = session.state.phase
            terminal.data({"id": session.id, "cancelled": True, "phase": phase, "state": phase})
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
