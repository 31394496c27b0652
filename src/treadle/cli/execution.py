"""Execution: one command that was read, from its options to an exit code. Every failure leaves here as one sentence."""

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias

from treadle import TreadleError
from treadle.cli.exits import EXIT_USAGE, code_of
from treadle.cli.input.options import Options
from treadle.cli.input.parser import help_text
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal, open_terminal
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.telemetry import traced
from treadle.redaction import Redactor

__all__ = ["execute"]

_Code: TypeAlias = Callable[[Any, Terminal], int | Coroutine[Any, Any, int]]  # Any: the options of one command


def execute(options: Options | TreadleError | None) -> int:
    """Carry out one command, or say why its command line could not be read; return the exit code.

    Args:
        options: None where nothing was given: help says what can be.
    """
    with open_terminal() as terminal:
        if options is None:
            terminal.say_lines(help_text().rstrip().split("\n"))
            return EXIT_USAGE
        return _guarded(options, terminal)


def _guarded(options: Options | TreadleError, terminal: Terminal) -> int:
    is_debugged = os.environ.get("TREADLE_DEBUG") == "1"
    try:
        if isinstance(options, TreadleError):
            raise options  # noqa: TRY301 - one place tells all failures
        with _logs_shown(terminal, is_debugged=is_debugged):
            return _told(_command(options, terminal), terminal)
    except KeyboardInterrupt:
        terminal.say("treadle: interrupted.")
        return 130
    except TreadleError as exc:
        if is_debugged:
            terminal.say_lines(traceback.format_exc().splitlines())
        terminal.say(f"treadle: {one_line(for_terminal(str(exc)), 2000)}")
        return code_of(exc)
    except Exception as exc:  # noqa: BLE001 - the last border: people get a sentence, not a traceback
        if is_debugged:
            terminal.say_lines(traceback.format_exc().splitlines())
        terminal.say(
            f"treadle: unexpected {type(exc).__name__}: {one_line(str(exc), 500)}. "
            "This is a bug in Treadle; TREADLE_DEBUG=1 shows the traceback."
        )
        return 1


_LOGGERS = ("treadle", "asyncio", "psycopg")
"""Whose logs a conversation does without."""


@contextmanager
def _logs_shown(terminal: Terminal, *, is_debugged: bool) -> Iterator[None]:
    """Show the logs of operators, redacted as all else is. A warning is shown once, however many readers come across its cause."""
    shown: set[str] = set()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = self.format(record)
            if terminal.hides_logs and not is_debugged and record.name.partition(".")[0] in _LOGGERS:
                if record.name != "treadle.engine.hooks":  # a guard that does not work must not go unnoticed
                    return
                error = record.exc_info[1] if record.exc_info else None
                reason = "" if error is None else f": {str(error) or type(error).__name__}"
                text = f"warning: {one_line(record.getMessage() + reason, 600)}"
            if is_debugged or text not in shown:
                shown.add(text)
                terminal.say_lines(text.splitlines())

    handler = Handler(logging.NOTSET if is_debugged else logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _told(code: int, terminal: Terminal) -> int:
    """An answer that nobody could receive is a failure, whatever the run came to."""
    if terminal.fault is None:
        return code
    terminal.say(
        f"treadle: standard output cannot be written: {terminal.fault.strerror}. `treadle sessions` shows what was done."
    )
    return code or 1


def _redactor(options: Options) -> Redactor:
    """Return what takes secrets out of all that is written, as the person's configuration says."""
    addresses = {"base_url": options.base_url or "", "journal": options.journal or ""}
    try:
        redaction = settings_of(options).redaction
    except TreadleError:  # the command itself will say so
        return Redactor.for_environment({**os.environ, **addresses})
    return Redactor.for_environment(
        {**os.environ, **addresses}, patterns=redaction.patterns, is_on=redaction.enabled is not False
    )


def _command(options: Options, terminal: Terminal) -> int:
    terminal.is_quiet = options.is_quiet
    terminal.is_verbose = options.is_verbose and not options.is_quiet
    terminal.redactor = _redactor(options)
    module, _, function = options.code.partition(".")
    carry_out: _Code = getattr(import_module(f"treadle.cli.commands.{module}"), function)
    with traced(options.command, os.environ, terminal.progress):
        code = carry_out(options, terminal)
        if isinstance(code, int):
            return code
        return asyncio.run(code)
