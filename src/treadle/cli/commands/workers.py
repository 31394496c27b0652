"""`treadle workers`: who works on a journal, and on what."""

import asyncio
from datetime import UTC, datetime

import msgspec

from treadle import WorkerInfo, list_workers
from treadle.cli.commands.session_check import stranded_line
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line
from treadle.cli.sessions import opened, stranded_in

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List the workers of a journal."""
    return asyncio.run(_list(options, terminal))


async def _list(options: Options, terminal: Terminal) -> int:
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        workers = await list_workers(journal, all=options.shows_deleted)
        stranded = await stranded_in(journal, options)
    if options.as_json:
        terminal.data({"workers": msgspec.to_builtins(workers), "stranded": msgspec.to_builtins(stranded)})
        return 0
    for worker in workers:
        terminal.line(_line(worker))
    if not workers:
        terminal.say(f"No worker is running. To start one: treadle worker{same_journal(options)}")
    for one in stranded:
        terminal.line(stranded_line(one))
    return 0


def _line(worker: WorkerInfo) -> str:
    state = "ended" if not worker.is_alive else "ends" if worker.is_draining else "works"
    since = datetime.fromtimestamp(worker.since, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    load = f"{len(worker.sessions)}/{worker.concurrency} sessions, {worker.done} done"
    waits = "".join(f"  {count} waiting: {reason}" for reason, count in sorted(worker.waiting.items()))
    return one_line(
        f"{worker.name}  {state} since {since}  {load}  {', '.join(worker.agents)}  {worker.host}:{worker.pid}{waits}",
        400,
    )
