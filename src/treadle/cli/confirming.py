"""Confirming: a question before an act with wide effects, where a person is at the terminal. A script is not asked: its command says it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from treadle.cli.output.terminal import Terminal

__all__ = ["is_confirmed"]


def is_confirmed(question: str, terminal: Terminal) -> bool:
    """Return whether the act is to happen: only `y` or `yes` at a terminal, always elsewhere."""
    try:
        is_person = terminal.is_live and os.isatty(0)
    except OSError:
        is_person = False
    if not is_person:
        return True
    terminal.prompt(f"{question} [y/N] ")
    with _interrupted_by_ctrl_c():
        answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # Ctrl-D: the cursor is still behind the question
        terminal.write("\n")
    terminal.note_column(0)
    return answer.strip().casefold() in ("y", "yes")


@contextmanager
def _interrupted_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a read within `asyncio.run`, whose own handler waits for the task to end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
