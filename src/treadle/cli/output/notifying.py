"""Notifying: a sign for a person who looks elsewhere, when a long run needs them or has ended. Only at a terminal."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from treadle.cli.output.text import one_line

__all__ = ["Notifier"]


class Notifier:
    """Gives a sign where a person has waited long enough to look elsewhere.

    Args:
        way: `bell`, `osc9` (a message that the terminal shows), `off`, or a program with its arguments, which gets the message as its last one.
        after_seconds: A person who has waited for less needs no sign.
        out: The terminal.
        clock: Seconds.
    """

    def __init__(
        self, way: str | tuple[str, ...], after_seconds: float, out: TextIO, clock: Callable[[], float]
    ) -> None:
        self._way = way
        self._after = after_seconds
        self._out = out
        self._clock = clock
        self._since = clock()

    def attend(self) -> None:
        """Note that the person does something just now."""
        self._since = self._clock()

    def notify(self, message: str) -> None:
        """Give the sign, if the person has done nothing for long enough.

        Args:
            message: What has happened, without secrets.
        """
        if self._way == "off" or not self._out.isatty() or self._clock() - self._since < self._after:
            return
        shown = one_line(f"Treadle: {message}", 200)
        match self._way:
            case "bell":
                self._write("\a")
            case "osc9":
                self._write(f"\x1b]9;{shown}\x07")
            case str():
                pass
            case program:
                _start([*program, shown])

    def _write(self, signs: str) -> None:
        with suppress(OSError):  # the terminal is gone
            self._out.write(signs)
            self._out.flush()


def _start(command: list[str]) -> None:
    """Start the person's program. Its exit code is ignored: a sign that fails does not stop a run."""
    nowhere = subprocess.DEVNULL
    with suppress(OSError, ValueError):
        subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)  # noqa: S603 - from the person's own file
