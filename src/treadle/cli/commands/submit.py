"""`treadle submit`: queue a task for a worker that has its agent."""

import asyncio

import msgspec

from treadle import StopReason, list_workers, open_journal, result, submit
from treadle.cli.commands.worker import DEFAULT, check_shared
from treadle.cli.exits import UsageError, exit_code
from treadle.cli.guidance import check_given, read_task
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal, shown_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.screens import write_answer
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.sessions import person
from treadle.events import TaskSubmitted
from treadle.ports import Journal

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Submit one task."""
    check_given(options.task)
    settings = settings_of(options)
    check_shared(settings)
    if options.agent == "":
        raise UsageError("--agent must be the name of an agent that a worker has; omit it for `default`.")
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
        await _note_missing(journal, options, terminal)
        if options.key is not None:
            await _note_first(journal, session_id, options, task, terminal)
        if not options.is_waiting:
            if options.as_json:
                terminal.data({"id": session_id})
            else:
                terminal.line(session_id)
                terminal.say(f"Submitted. To follow it: treadle sessions watch {session_id}{same_journal(options)}")
            return 0
        terminal.progress(f"session: {session_id}")
        end = await result(journal, session_id)
    if options.as_json:
        terminal.data(msgspec.to_builtins(end))
    else:
        write_answer(end.text, terminal)
        if not end.completed:
            terminal.say(f"treadle: {end.status} ({end.reason}): {for_terminal(end.message)}")
    return exit_code(StopReason(end.reason))


async def _note_missing(journal: Journal, options: Options, terminal: Terminal) -> None:
    """Report that the task waits for a worker: none of those at work has its agent, or nobody is at work and its end is waited for."""
    agent = options.agent or DEFAULT
    workers = await list_workers(journal)
    if not workers and options.is_waiting:
        terminal.say(
            f"No worker is running on the journal {shown_journal(journal.location)}: the task waits until one starts. To start one: treadle worker{'' if agent == DEFAULT else ' --agents FILE.py'}{same_journal(options)}"
        )
    if workers and not any(agent in worker.agents for worker in workers):
        known = ", ".join(sorted({name for worker in workers for name in worker.agents}))
        terminal.say(f"No running worker has the agent {agent!r} (known: {known}): the task waits for one that has it.")


async def _note_first(journal: Journal, session_id: str, options: Options, task: str, terminal: Terminal) -> None:
    """Report that the key had named another task before: that one counts."""
    submitted = [event for event in await journal.read(session_id) if isinstance(event, TaskSubmitted)]
    if submitted and (submitted[0].message.text, submitted[0].agent) != (task, options.agent or DEFAULT):
        first = one_line(submitted[0].message.text, 80)
        terminal.say(
            f"The key {options.key!r} was already used for another task, which stands: {first!r} for the agent {submitted[0].agent!r}. Use a new key for this one."
        )
