"""Paging: a text that is longer than the terminal, shown in the person's pager. Decides nothing about its content."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from typing import TextIO

__all__ = ["Collected", "is_long", "pager_command", "show_in_pager"]

_DEFAULT = "less"
_NONE = ("", "cat")
_NOT_FOUND = 127


class Collected(StringIO):
    """A text on its way to a terminal, which has the terminal's width."""

    def __init__(self, target: TextIO) -> None:
        super().__init__()
        self._target = target

    def isatty(self) -> bool:
        return self._target.isatty()

    def fileno(self) -> int:
        return self._target.fileno()


def pager_command(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the pager, as a line of shell; None where the person or the terminal has none."""
    command = environment.get("PAGER", _DEFAULT).strip()
    return None if command in _NONE or environment.get("TERM", "dumb") in ("", "dumb", "unknown") else command


def is_long(text: str, out: TextIO) -> bool:
    """Whether a text does not fit on the terminal."""
    try:
        return text.count("\n") >= os.get_terminal_size(out.fileno()).lines
    except (OSError, ValueError):
        return False


def show_in_pager(text: str, command: str, out: TextIO) -> bool:
    """Show a text until the person leaves the pager. Return whether there was such a pager."""
    import subprocess  # noqa: PLC0415 - rarely needed

    environment = {"LESS": "FRX", **os.environ}
    try:
        pager = subprocess.Popen(  # noqa: S602 - PAGER is a line of shell by convention, and the person's own
            command, shell=True, stdin=subprocess.PIPE, stdout=out.fileno(), env=environment
        )
    except OSError:
        return False
    with _without_interrupts():
        pager.communicate(text.encode("utf-8", "backslashreplace"))
    return pager.returncode != _NOT_FOUND


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Leave Ctrl+C to the pager, which has the terminal. In a thread nothing has to be done: signals come to the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
