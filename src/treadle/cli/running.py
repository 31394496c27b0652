"""Running: one run from its first event to its exit code, with signals, progress, output and the closing lines."""

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeGuard

from treadle import Run, RunResult, Session, StopReason
from treadle.cli.consent import StopAtDenial
from treadle.cli.exits import EXIT_NOT_STORED, exit_code
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal, same_world
from treadle.cli.input.settings import Settings
from treadle.cli.origins import resuming
from treadle.cli.output.notifying import Notifier
from treadle.cli.output.progress import Progress
from treadle.cli.output.screens import Screen, screen_for
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name
from treadle.cli.output.wording import for_terminal
from treadle.events import AnyEvent, CallDecided, JournalDegraded, MessageAdded, RunResumed, RunStarted

__all__ = ["carry_out", "quiet_logs"]

_AN_HOUR = 3600
_MAX_DENIED = 5
"""Denials that are listed one by one."""


async def carry_out(
    run: Run, session: Session, *, settings: Settings, options: Options, terminal: Terminal
) -> int:  # fmt: skip
    """Show a run until it ends, and return its exit code.

    Raises:
        TreadleError: What the run raised.
    """
    progress, screen = Progress(terminal), screen_for(options, terminal)
    notifier = Notifier(settings.notify, settings.notify_after_seconds, terminal.err, time.monotonic)
    for state in session.state.open.values():
        progress.know_open(state.call, state.decision)
    run.subscribe(progress.on_any_event, children=True)
    if screen.shows_children:
        run.subscribe(screen.on_event, children=True)
    if settings.on_approval == "fail":
        run.subscribe(StopAtDenial(run, session), children=True)
    below: list[CallDecided] = []  # denied calls of agents that carry out calls
    run.subscribe(lambda event: below.append(event) if _is_denied_below(event) else None, children=True)
    with _listening(terminal) as signals:
        try:
            result = await _watched(run, signals, progress, screen, terminal)
        except asyncio.CancelledError:
            if signals.received is None:
                raise
            terminal.say("treadle: cancelled before the run started.")
            return exit_code(StopReason.CANCELLED, signals.received)
    report = result.report()
    screen.conclude(report)
    notifier.notify("a call is waiting for you" if result.approvals else f"the run has ended ({result.reason})")
    denied = [(one.tool, one.rule, one.reason) for one in result.denials]
    for line in _denied([*denied, *((one.tool, one.rule, one.reason) for one in below)]):
        terminal.say(line)
    _last_words(result, report, session, options, terminal)
    if result.unstored:
        terminal.say(_not_stored(result, session))
        return EXIT_NOT_STORED
    return exit_code(result.reason, signals.received, is_in_doubt=bool(result.in_doubt))


async def _watched(run: Run, signals: "_Signals", progress: Progress, screen: Screen, terminal: Terminal) -> RunResult:
    async with run:
        async for event in run:
            if not screen.shows_children:
                screen.on_event(event)
            progress.on_event(event)
            if isinstance(event, JournalDegraded):
                terminal.say(f"treadle: {_store_words(event)}")
            # Before its first step a run has nothing to cancel; a signal that came then is passed on now.
            if not isinstance(event, RunStarted | RunResumed | MessageAdded):
                signals.pass_on_to(run)
        return run.result


# --- signals ---------------------------------------------------------------------------------------------------------


class _Signals:
    """What a person or the system asked for from outside."""

    def __init__(self, terminal: Terminal) -> None:
        self.received: int | None = None
        self._terminal = terminal
        self._run: Run | None = None

    def pass_on_to(self, run: Run) -> None:
        self._run = run
        if self.received is not None:
            self._cancel(run)

    def on_signal(self, number: int) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                os._exit(128 + signal.SIGINT)  # the person insists; what is recorded is safe
            return
        self.received = number
        self._terminal.note_column(len("^C"))
        self._terminal.say(
            f"treadle: {signal.Signals(number).name} received: stopping the run, which can be resumed. Press Ctrl-C again to quit at once."
        )
        if self._run is not None:
            self._cancel(self._run)

    def _cancel(self, run: Run) -> None:
        run.cancel(by=signal.Signals(self.received or signal.SIGINT).name)


@contextmanager
def _listening(terminal: Terminal) -> Iterator[_Signals]:
    signals = _Signals(terminal)
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asked that it be ignored
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, signals.on_signal, number)
    try:
        yield signals
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


# --- endings ---------------------------------------------------------------------------------------------------------


def _last_words(
    result: RunResult, report: dict[str, Any], session: Session, options: Options, terminal: Terminal
) -> None:
    """Tell, on standard error, what the answer alone does not."""
    for doubt in result.in_doubt:
        then = f" is in doubt: find out how it ended, then: treadle resolve {doubt.key}{same_journal(options)} ..."
        terminal.call("  ", doubt.tool, doubt.arguments, then=then)
    if result.completed:
        if report["failed_tool_calls"]:
            terminal.say(_warning(report))
        return
    terminal.say(
        f"treadle: {result.status} ({result.reason}): {for_terminal(f'{_sentence(result)} {result.next_step}')}"
    )
    for approval in result.approvals:
        then = f": treadle approve {approval.id}{same_journal(options)}"
        terminal.call("  ", approval.tool, approval.arguments, then=then)
    if result.reason is StopReason.INPUT_REQUIRED and session.state.question is not None:
        terminal.say(f'  to answer: treadle answer {result.session_id} "ANSWER"{same_journal(options)}')
    if result.reason is not StopReason.CONTEXT_OVERFLOW:
        terminal.say(f"  then: {resuming(session)}{_larger_limit(result)}{same_world(options)}")


def _is_denied_below(event: AnyEvent) -> TypeGuard[CallDecided]:
    return isinstance(event, CallDecided) and event.parent_call is not None and event.decision == "deny"


def _denied(denials: Iterable[tuple[str, str, str]]) -> list[str]:
    """Say which calls were denied, and by what: whoever reads the answer alone would not know."""
    found = Counter(denials)
    lines = []
    for (tool, rule, reason), count in list(found.items())[:_MAX_DENIED]:
        times = f" {count} times" if count > 1 else ""
        lines.append(
            f"denied: {shown_name(tool)}{times} ({one_line(rule)})" + (f": {one_line(reason, 300)}" if reason else "")
        )
    return lines + [f"denied: {len(found) - _MAX_DENIED} more"] * (len(found) > _MAX_DENIED)


def _larger_limit(result: RunResult) -> str:
    """Return the flag that lets a run at its limit continue, a blank before it: twice the limit, or an hour from now."""
    reached = result.stop.reached
    if reached is None:
        return ""
    if "deadline" in (result.stop.details or {}):
        later = datetime.fromtimestamp(time.time() + _AN_HOUR, UTC).isoformat(timespec="seconds")
        return f" --deadline {later}"
    larger = 2 * max(Decimal(str(reached.limit)), Decimal(str(reached.used))) or Decimal(1)
    return f" --{reached.budget.replace('_', '-')} {larger.normalize():f}"


def _store_words(event: JournalDegraded) -> str:
    """Say that the store has failed, or is back."""
    if event.is_over:
        return event.message
    return f"the journal failed; the run continues, and its events wait in memory. {event.message}"


def _not_stored(result: RunResult, session: Session) -> str:
    what = "the last event" if result.unstored == 1 else f"the last {result.unstored} events"
    return f"treadle: not stored: the journal {session.journal.location} is missing {what} of session {result.session_id}. Keep this answer: the journal does not have it."


def _sentence(result: RunResult) -> str:
    if result.reason is StopReason.APPROVAL_REQUIRED:
        return (
            f"{len(result.approvals)} {'call is' if len(result.approvals) == 1 else 'calls are'} waiting for approval."
        )
    return result.message


def _warning(report: dict[str, Any]) -> str:
    failed = [call for call in report["tool_calls"] if call["status"] != "ok"]
    kinds = list(dict.fromkeys(f"{shown_name(call['name'])}: {call['status']}" for call in failed))
    shown = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
    return f"warning: the answer follows {len(failed)} failed {'call' if len(failed) == 1 else 'calls'} ({shown})"


def quiet_logs(terminal: Terminal) -> None:
    """Keep the logs of operators off a person's terminal, unless TREADLE_DEBUG asks for them. A hook that failed is still reported."""
    if os.environ.get("TREADLE_DEBUG") == "1":
        return
    for name in ("treadle", "asyncio", "psycopg"):
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    logging.getLogger("treadle.engine.hooks").handlers = [_FailedHooks(terminal)]


class _FailedHooks(logging.Handler):
    """Reports each failure of a hook once, in one line: a guard that does not work must not go unnoticed."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal
        self._reported: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        reason = "" if error is None else f": {str(error) or type(error).__name__}"
        line = f"warning: {one_line(record.getMessage() + reason, 600)}"
        if line not in self._reported:
            self._reported.add(line)
            self._terminal.say(line)
