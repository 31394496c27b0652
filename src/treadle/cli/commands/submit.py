"""`treadle submit`: store a task for whichever worker has its agent."""

import asyncio

import msgspec

from treadle import StopReason, list_workers, open_journal, result, submit
from treadle.cli.commands.worker import DEFAULT, check_shared
from treadle.cli.exits import exit_code
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import person
from treadle.cli.standard_input import check_given, read_task
from treadle.ports import Journal

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Submit one task."""
    check_given(options.task)
    settings = settings_of(options)
    check_shared(settings)
    task = read_task(options.task, terminal)
    return asyncio.run(_submit(options, settings, task, terminal))


async def _submit(options: Options, settings: Settings, task: str, terminal: Terminal) -> int:
    async with open_journal(settings.journal) as journal:
        session_id = await submit(
            journal,
            options.agent or DEFAULT,
            task,
            tenant=options.tenant or "",
            priority=options.priority,
            at=options.begins_at,
            key=options.key,
            by=person(options),
        )
        await _note_missing(journal, options.agent or DEFAULT, terminal)
        if not options.is_waiting:
            if options.as_json:
                terminal.data({"id": session_id})
            else:
                terminal.line(session_id)
                terminal.say(
                    f"Submitted. To see it at work: treadle sessions watch {session_id}{same_journal(options)}"
                )
            return 0
        terminal.progress(f"session: {session_id}")
        end = await result(journal, session_id)
    if options.as_json:
        terminal.data(msgspec.to_builtins(end))
    else:
        terminal.line(end.text)
        if not end.completed:
            terminal.say(f"treadle: {end.status} ({end.reason}): {end.message}")
    return exit_code(StopReason(end.reason))


async def _note_missing(journal: Journal, agent: str, terminal: Terminal) -> None:
    """Report that the task waits for a worker, where workers are at work and none of them has its agent."""
    workers = await list_workers(journal)
    if workers and not any(agent in worker.agents for worker in workers):
        known = ", ".join(sorted({name for worker in workers for name in worker.agents}))
        terminal.say(f"No worker at work has the agent {agent!r} (known: {known}): the task waits until one has it.")
