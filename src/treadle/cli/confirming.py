"""Confirming: a question before an act with wide effects, where a person is at the terminal. A script is not asked: its command says it."""

import os
import sys

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
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # Ctrl-D: the cursor is still behind the question
        terminal.end_line()
    return answer.strip().casefold() in ("y", "yes")
