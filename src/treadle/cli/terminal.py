"""Terminal: the program's own standard output and standard error. Knows no event; it is told what to write.

While it is open, descriptor 1 leads to standard error: what a tool, its child process or C code prints cannot fall between
the answer or the JSON that somebody parses.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import msgspec

from treadle.cli.text import printable

__all__ = ["Terminal", "json_line", "open_terminal"]


class Terminal:
    """Where the program writes. A reader who has gone is no error: the run goes on and is journaled."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._has_open_line = False
        self.is_quiet = False
        self.is_verbose = False
        self.is_live = out.isatty()
        """Whether a person watches standard output, so that text is shown as it comes."""
        self.fault: OSError | None = None
        """Why standard output could not be written; a reader who has gone is none."""

    def write(self, text: str) -> None:
        """Write a piece of text to standard output, without a line feed of its own."""
        if text:
            self._put(self._out, printable(text))
            self._has_open_line = not text.endswith("\n")

    def line(self, text: str = "") -> None:
        """Write a line to standard output."""
        self.write(f"{text}\n")

    def data(self, value: Any) -> None:
        """Write a JSON value as one line to standard output."""
        self._put(self._out, json_line(value))

    def raw(self, line: str) -> None:
        """Write a line of JSON that is made already."""
        self._put(self._out, line + "\n")

    def end_line(self) -> None:
        """End the line that pieces of text have begun."""
        if self._has_open_line:
            self._put(self._out, "\n")
            self._has_open_line = False

    def say(self, text: str) -> None:
        """Write a line to standard error."""
        if self.is_live:
            self.end_line()
        self._put(self._err, printable(text) + "\n")

    def progress(self, text: str) -> None:
        """Write a line to standard error, unless the person wants none."""
        if not self.is_quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """Write a line to standard error where the person wants to know more."""
        if self.is_verbose:
            self.say(text)

    def _put(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
            stream.flush()
        except OSError as exc:
            _discard(stream)
            if stream is self._out and not isinstance(exc, BrokenPipeError):
                self.fault = exc


def json_line(value: Any) -> str:
    """Return a JSON value as one line, whatever strings it holds."""
    try:
        return msgspec.json.encode(value).decode() + "\n"
    except (UnicodeEncodeError, TypeError):
        import json  # noqa: PLC0415 - only for lone surrogates, which msgspec refuses

        return json.dumps(value, default=str) + "\n"


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Take standard output for the program alone, and give it back afterwards."""
    if sys.stdout is not None:
        sys.stdout.flush()
    _fill_closed()
    out, err = _duplicate(1), _duplicate(2)
    previous = sys.stdout
    is_taken = _lead(2, 1)
    sys.stdout = sys.stderr
    try:
        yield Terminal(out, err)
    finally:
        sys.stdout = previous
        if is_taken:
            _lead(out.fileno(), 1)
        for stream in (out, err):
            _close(stream)


def _fill_closed() -> None:
    """Lead each standard descriptor that was closed before we were started nowhere.

    Whatever is opened next would else get its number: a journal would be read as standard input, and what is said on
    standard error would fall into the answer.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def _duplicate(descriptor: int) -> TextIO:
    return open(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace", newline="\n")  # noqa: PTH123 - a descriptor


def _lead(source: int, target: int) -> bool:
    try:
        os.dup2(source, target)
    except OSError:
        return False
    return True


def _discard(stream: TextIO) -> None:
    """Let what is still buffered, and all that follows, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _lead(nowhere, stream.fileno())
    os.close(nowhere)


def _close(stream: TextIO) -> None:
    with suppress(OSError):  # as in Terminal._put
        stream.close()
