"""Terminal: the program's own standard output and standard error. Knows no event; it is told what to write.

While it is open, descriptor 1 leads to standard error: what a tool, its child process or C code prints cannot fall between
the answer or the JSON that somebody parses.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any, TextIO, TypeAlias

import msgspec

from treadle.cli.output.text import (
    decoded,
    escaped_json,
    indented,
    is_sentence,
    one_record,
    printable,
    whole_call,
    wrapped,
)
from treadle.redaction import Redactor

__all__ = ["Terminal", "json_line", "open_terminal", "pager_command", "show_in_pager"]


# --- Paging: a text that is longer than the terminal, shown in the person's pager. Decides nothing about its content.

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


# --- Terminal: the program's own standard output and standard error. Knows no event; it is told what to write.

Sink: TypeAlias = Callable[[str], None]


class Terminal:
    """Where the program writes, and the one place where secrets are redacted and invisible characters escaped.

    A *record* is a line of the program's own: it never breaks into two, whatever names stand in it. Texts of strangers go
    to standard output as the answer, or are indented. A reader who has gone is not an error: the run continues and is journaled.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._has_open_line = False
        self._held = ""
        """The end of a streamed text, which may be half a secret."""
        self._column = 0
        """Columns of the current line that hold a prompt, or what the terminal echoed."""
        self._status = ""
        self.redactor = Redactor()
        self.is_quiet = False
        self.is_verbose = False
        self.hides_logs = False
        """Whether the logs of operators stay off it, unless TREADLE_DEBUG asks for them. A hook that failed is still reported."""
        self.is_live = out.isatty()
        """Whether a person watches standard output, so that text is shown as it comes."""
        self.is_watched = err.isatty()
        """Whether a person watches standard error, so that a line can be replaced by a later one."""
        self.fault: OSError | None = None
        """Why standard output could not be written; a reader who has gone is not a failure."""
        self._sink: Sink | None = None

    @property
    def out(self) -> TextIO:
        """Standard output itself, for what draws on a terminal."""
        return self._out

    @property
    def err(self) -> TextIO:
        """Standard error itself, for a sign, not for text."""
        return self._err

    @contextmanager
    def diverted(self, sink: "Sink") -> Iterator[None]:
        """Give a function all that would be written, and all that tools and their children print by themselves.

        Args:
            sink: Called in whatever thread something is written; never with an empty text.
        """
        kept = [os.dup(descriptor) for descriptor in (1, 2)]
        source, target = os.pipe()
        for descriptor in (1, 2):
            os.dup2(target, descriptor)
        os.close(target)
        reader = threading.Thread(target=_pump, args=(source, sink), name="treadle-output", daemon=True)
        reader.start()
        self._sink = sink
        try:
            yield
        finally:
            self._sink = None
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            for descriptor, before in zip((1, 2), kept, strict=True):
                os.dup2(before, descriptor)
                os.close(before)
            reader.join(0.5)  # a child that lives on may still hold the pipe

    # --- standard output

    def write(self, text: str) -> None:
        """Write a whole text to standard output, without a line feed of its own."""
        self._text(self.redactor.text(text))

    def piece(self, text: str) -> None:
        """Write a piece of a text that continues. Its last word may wait for the next piece: it may be half a secret."""
        self._held += text
        settled = self.redactor.settled(self._held)
        whole, self._held = self._held[:settled], self._held[settled:]
        self.write(whole)

    def line(self, text: str = "") -> None:
        """Write a record to standard output."""
        self.end_line()
        self._record(self._out, self.redactor.text(text))

    def titled(self, title: str, text: str) -> None:
        """Write a text of strangers to standard output behind its title: one line as it is, several indented and marked."""
        if "\n" not in text:
            self.line(f"{title} {text}")
            return
        self.line(title)
        self.quote(text)

    def quote(self, text: str) -> None:
        """Write a text of strangers to standard output, each line indented and marked."""
        self._quote(self._out, self.redactor.text(text))

    def data(self, value: Any) -> None:
        """Write a JSON value as one line to standard output, without its secrets."""
        self._put(self._out, json_line(self.redactor.value(_builtins(value))))

    def raw(self, line: str) -> None:
        """Write a line of JSON that is made already, and redacted where it has to be."""
        self._put(self._out, escaped_json(line) + "\n")

    def page(self, text: str) -> None:
        """Write a whole page whose secrets are taken out already, where they have to be. Invisible characters are shown as escapes."""
        self._put(self._out, printable(text))

    @contextmanager
    def paged(self, *, is_off: bool = False) -> Iterator[None]:
        """Show what is written to standard output in the person's pager, where it is longer than their terminal.

        Args:
            is_off: Whether the person wants none.
        """
        pager = None if is_off or not self.is_live else pager_command()
        if pager is None:
            yield
            return
        real, self._out = self._out, Collected(self._out)
        try:
            yield
        finally:
            collected, self._out = self._out, real
            text = collected.getvalue()
            if not is_long(text, real) or not show_in_pager(text, pager, real):
                self._put(real, text)

    def prompt(self, text: str) -> None:
        """Begin a line on which a person types."""
        self.end_line()
        self._put(self._out, text)
        self._column = len(text)

    def note_column(self, column: int) -> None:
        """Note where the cursor is after a key: an Enter took it to column 0, `^C` was echoed."""
        self._column = column

    def end_line(self) -> None:
        """End the line that pieces of text have begun."""
        held, self._held = self._held, ""
        self.write(held)
        if self._has_open_line:
            self._put(self._out, "\n")
            self._has_open_line = False

    # --- standard error

    def say(self, text: str) -> None:
        """Write a record to standard error."""
        self._begin_record()
        self._record(self._err, self.redactor.text(text))

    def reveal(self, text: str) -> None:
        """Write a record to standard error with a secret in it that was made for the person who reads it."""
        self._begin_record()
        self._record(self._err, text)

    def say_lines(self, texts: Iterable[str]) -> None:
        """Write several records to standard error."""
        for text in texts:
            self.say(text)

    def progress(self, text: str) -> None:
        """Write a record to standard error, unless the person wants none."""
        if not self.is_quiet:
            self.say(text)

    def quote_progress(self, text: str) -> None:
        """Write a text of strangers to standard error, indented and marked, unless the person wants no progress."""
        text = printable(text)
        if is_sentence(text):
            self.progress(text)
        elif not self.is_quiet:
            self._begin_record()
            self._quote(self._err, self.redactor.text(text))

    def detail(self, text: str) -> None:
        """Write a record to standard error where the person wants to know more."""
        if self.is_verbose:
            self.say(text)

    def status(self, text: str) -> None:
        """Say what is going on at the moment. At a terminal the next record takes this line's place."""
        if self.is_quiet:
            return
        if not self.is_watched:
            self.say(text)
            return
        self._begin_record()
        width = _width(self._err)
        self._status = next(wrapped(one_record(self.redactor.text(text)), width - 1 if width else 0))
        self._put(self._err, self._status)

    # --- consent

    def call(self, title: str, name: str, arguments: object, *, then: str = "", is_answer: bool = False) -> None:
        """Write a call that a person decides on: every argument, every character. Only secrets that cannot act are hidden.

        Args:
            title: What comes before the call's name.
            then: What follows the call: on its line where that is short, else on a line of its own.
            is_answer: Whether it goes to standard output.
        """
        stream = self._out if is_answer else self._err
        self._begin_record()
        first, *rest = whole_call(name, self.redactor.consented(decoded(arguments)))
        lines = [f"{self.redactor.text(title)}{first}", *(f"  {line}" for line in rest)]
        if then and rest:
            lines.append(f"  {then.lstrip('.: ')}")
        elif then:
            lines[0] += then
        for line in lines:
            self._record(stream, line)

    def _begin_record(self) -> None:
        if self.is_live:
            self.end_line()
        if self._status:
            self._status = ""
            self._put(self._err, "\r\x1b[K")

    def _text(self, text: str) -> None:
        if not text:
            return
        if self._status:
            self._begin_record()
        # Among records at one terminal a text is indented, so that no line of it passes for a record.
        text = printable(text)
        if self.is_live and self.is_watched and not self.is_quiet:
            at_start = not self._has_open_line
            body = text.removesuffix("\n").replace("\n", f"\n{_INDENT}") + ("\n" if text.endswith("\n") else "")
            shown = (_INDENT if at_start and text != "\n" else "") + body
        else:
            shown = text
        self._put(self._out, shown)
        self._has_open_line = not text.endswith("\n")

    def _record(self, stream: TextIO, text: str) -> None:
        used, self._column = self._column, 0
        self._put(stream, "\n".join(wrapped(one_record(text), self._width(stream), used)) + "\n")

    def _quote(self, stream: TextIO, text: str) -> None:
        self._column = 0
        self._put(stream, indented(text, width=self._width(stream)) + "\n")

    def _width(self, stream: TextIO) -> int:
        return 0 if self._sink is not None else _width(stream)  # who takes it wraps it

    def _put(self, stream: TextIO, text: str) -> None:
        if self._sink is not None:
            if text.strip("\n"):
                self._sink(text)
            return
        try:
            stream.write(text)
            stream.flush()
        except OSError as exc:
            _discard(stream)
            if stream is self._out and not isinstance(exc, BrokenPipeError):
                self.fault = exc


_INDENT = "  "
_PRINTED_LINES = 40
"""Lines of what is printed at once that are passed on."""


def _pump(source: int, sink: Sink) -> None:
    """Pass on what is printed, line by line, until nobody can print any more."""
    rest = b""
    with open(source, "rb", buffering=0) as pipe:
        while chunk := pipe.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            shown = [line[:2000].decode("utf-8", "replace") for line in lines[:_PRINTED_LINES]]
            if len(lines) > len(shown):
                shown.append(f"... {len(lines) - len(shown):,} more lines were printed ...")
            if any(shown):
                sink("\n".join(shown))
            rest = rest[:100_000]
    if rest:
        sink(rest[:2000].decode("utf-8", "replace"))


def json_line(value: Any) -> str:
    """Return a JSON value as one line in which everything is visible, whatever strings it holds."""
    try:
        return escaped_json(msgspec.json.encode(value).decode()) + "\n"
    except (UnicodeEncodeError, TypeError):
        import json  # noqa: PLC0415 - only for lone surrogates, which msgspec refuses

        return escaped_json(json.dumps(value, default=str)) + "\n"


def _builtins(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, UnicodeEncodeError):
        return value


def _width(stream: TextIO) -> int:
    """Return the columns of a terminal; 0 for a file or pipe, and where nobody knows."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        return 0


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
            with suppress(OSError):  # as in Terminal._put
                stream.close()


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
