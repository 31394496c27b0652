"""Standard input: a task, or what is piped in beside one. Never waits for a person."""

import os
import select
import stat
import sys

from treadle.cli.exits import UsageError
from treadle.cli.output.terminal import Terminal

__all__ = ["check_given", "read_task"]

_MAX_BYTES = 32 * 1024 * 1024
_PATIENCE_SECONDS = 3.0


def read_task(given: str | None, terminal: Terminal) -> str:
    """Return the task: as given, from standard input for `-`, with what is piped in appended under a heading.

    Raises:
        UsageError: There is no task, or it is too large.
    """
    check_given(given)
    if given is None or given == "-":
        return _checked(_read_all())
    task = _checked(given.encode("utf-8", "replace").decode())
    piped = _read_all() if _has_input(terminal) else ""
    return f"{task}\n\n# Standard input\n\n{piped}" if piped.strip() else task


def check_given(task: str | None) -> None:
    """Raise UsageError where there is no task, before anything else is looked at."""
    if task is None:
        raise UsageError(
            'No task was given. Use `treadle run "..."`, or `treadle run -` to read it from standard input.'
        )
    _checked(task)


def _checked(task: str) -> str:
    if not task.strip():
        raise UsageError("The task is empty. Describe what to do.")
    return task


def _has_input(terminal: Terminal) -> bool:
    """Whether something is piped in. Many programs start others with a pipe that nobody ever writes to or closes."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:  # closed
        return False
    if stat.S_ISREG(mode):
        return True
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    if select.select([0], [], [], _PATIENCE_SECONDS)[0]:
        return True
    terminal.say(
        f"treadle: no standard input for {_PATIENCE_SECONDS:g} seconds; continuing without it (`treadle run -` waits for it; to give none: < /dev/null)."
    )
    return False


def _read_all() -> str:
    if sys.stdin is None:
        raise UsageError("Standard input is closed. Pass the task as an argument.")
    try:
        content = sys.stdin.buffer.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"Standard input cannot be read: {exc.strerror}. Pass the task as an argument.") from exc
    if len(content) > _MAX_BYTES:
        raise UsageError(
            f"Standard input is larger than {_MAX_BYTES // 1024 // 1024} MB. Save it to a file in the folder (-C) and name the file in the task."
        )
    return content.decode("utf-8", "replace")
