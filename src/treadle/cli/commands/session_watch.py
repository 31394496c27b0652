"""`treadle sessions watch`: follow a session live, in whichever process it runs, until its run ends."""

from treadle import StopReason, follow
from treadle.cli.exits import exit_code
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.progress import Progress
from treadle.cli.output.screens import LiveScreen, write_answer
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal
from treadle.cli.sessions import find_session, named, opened
from treadle.events import RunFinished, TaskSubmitted, TaskWithdrawn, event_object

__all__ = ["watch"]


async def watch(options: Options, terminal: Terminal) -> int:
    """Show the events of a session as they are stored; on a terminal, what the model says while it says it."""
    progress, code = Progress(terminal), 0
    screen = LiveScreen(terminal) if terminal.is_live and not options.as_json else None
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id = (await find_session(journal, named(options))).id
        async for event in follow(journal, session_id, after=options.after, live=screen is not None):
            if screen is not None:
                screen.on_event(event)
            if options.as_json:
                terminal.data(event_object(event))
            else:
                progress.on_event(event)
            match event:
                case TaskSubmitted() if not options.as_json:
                    terminal.progress(f"{session_id} is waiting for a worker that has the agent {event.agent}")
                case TaskWithdrawn() if not options.as_json:
                    terminal.say(f"The task of {session_id} was cancelled before its run started.")
                case RunFinished():
                    code = exit_code(StopReason(event.reason))
                    if not options.as_json:
                        _show_end(event, screen, terminal)
    return code


def _show_end(event: RunFinished, screen: LiveScreen | None, terminal: Terminal) -> None:
    if screen is not None:
        screen.conclude({"text": event.text, "output": event.output})
    else:
        write_answer(event.text, terminal)
    if not event.completed:
        terminal.say(f"treadle: {event.status} ({event.reason}): {for_terminal(event.message)}")
