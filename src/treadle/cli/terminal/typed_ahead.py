"""Typed ahead: whole lines that a person typed before the program could read single keys. Waits for nothing."""

import fcntl
import os
import struct
import termios
from contextlib import suppress
from typing import Any

__all__ = ["keep_enter", "lines_typed_ahead", "restore"]

_MOST = 100


def keep_enter(descriptor: int) -> list[Any] | None:
    """Have Enter stay what it is from now on; return the earlier settings of the terminal, None without a terminal.

    In its line mode a terminal makes a line feed of each Enter, which is another key once single keys are read.
    """
    try:
        before: list[Any] = termios.tcgetattr(descriptor)
        termios.tcsetattr(descriptor, termios.TCSANOW, [before[0] & ~termios.ICRNL, *before[1:]])
    except termios.error:
        return None
    return before


def restore(descriptor: int, before: list[Any] | None) -> None:
    """Set the terminal as it was."""
    if before is not None:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def lines_typed_ahead(descriptor: int) -> list[str]:
    """Return the lines that wait at a terminal in its line mode, without blank ones; nothing without a terminal.

    In this mode the terminal hands out one line at a time.
    """
    lines: list[str] = []
    try:
        while len(lines) < _MOST and _waiting(descriptor):
            lines.append(os.read(descriptor, 65536).decode("utf-8", "replace").rstrip("\n"))
    except OSError:  # the terminal is gone: whoever reads next reports it
        pass
    return [line for line in lines if line.strip()]


def _waiting(descriptor: int) -> int:
    """Return how many bytes can be read at once."""
    if not os.isatty(descriptor) or not termios.tcgetattr(descriptor)[3] & termios.ICANON:
        return 0
    found: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]
    return found
