"""`treadle replay`: show a recorded session as it happened. Nothing is run, and no model is asked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from treadle import TreadleError
from treadle.cli.exits import UsageError
from treadle.cli.files import content_of
from treadle.cli.input.commands import ReplayOptions
from treadle.cli.input.settings import settings_of
from treadle.cli.output.progress import Progress
from treadle.cli.output.screens import write_answer
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.sessions import find_session, named, opened
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    MessageAdded,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunResumed,
    event_object,
)
from treadle.resolve.archives import import_session

__all__ = ["replay"]

_LONGEST_WAIT = 3.0
"""Seconds between two events, however long they were apart: nobody sits through the night of an approval."""
_MOST_BYTES = 500_000_000


def replay(options: ReplayOptions, terminal: Terminal) -> int:
    """Play one session, named or the last, or an exported file."""
    try:
        asyncio.run(_play(options, terminal))
    except KeyboardInterrupt:
        terminal.say("treadle: the replay was interrupted; nothing was changed.")
    return 0


async def _play(options: ReplayOptions, terminal: Terminal) -> None:
    events = await _recorded(options)
    speed = options.speed if options.speed is not None else 1.0 if terminal.is_live and not options.as_json else 0.0
    progress, before = Progress(terminal), None
    for event in events:
        if speed and before is not None:
            await asyncio.sleep(min(max(event.at - before, 0.0) / speed, _LONGEST_WAIT))
        before = event.at
        if options.as_json:
            terminal.data(event_object(event))
        else:
            _show(event, progress, terminal)


def _show(event: AnyEvent, progress: Progress, terminal: Terminal) -> None:
    progress.on_event(event)
    match event:
        case MessageAdded(source="task" | "steer"):
            terminal.progress(f"> {one_line(event.message.text, 2000)}")
        case ModelFinished(act=None) if event.message.calls and event.message.text.strip():
            terminal.progress(one_line(event.message.text, 2000))
        case ApprovalAnswered():
            terminal.progress(f"[{event.answer}] by {one_line(event.approved_by, 60)}")
        case RunPaused():
            terminal.progress(f"[paused] {event.reason}")
        case RunResumed():
            terminal.progress("[resumed]")
        case RunFinished():
            write_answer(event.text, terminal)
            if not event.completed:
                terminal.say(f"treadle: {event.status} ({event.reason}): {for_terminal(event.message)}")


async def _recorded(options: ReplayOptions) -> Sequence[AnyEvent]:
    """Return the events of a session of the journal, or of a file that `treadle sessions export` wrote."""
    if options.id is not None and (options.id.endswith(".jsonl") or "/" in options.id):
        return await _of_file(Path(options.id))
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        return await journal.read((await find_session(journal, named(options))).id)


async def _of_file(path: Path) -> Sequence[AnyEvent]:
    cannot = f"The file {path} cannot be read: {{}}. Write one: treadle sessions export ID FILE"
    large = f"The file {path} is larger than {_MOST_BYTES:,} bytes."
    content = content_of(path, _MOST_BYTES, cannot=cannot, large=large, waits=True)
    async with opened("memory:") as journal:
        try:
            return await journal.read(await import_session(journal, content.splitlines()))
        except TreadleError as exc:
            raise UsageError(f"{path} is not an exported session: {exc}") from exc
