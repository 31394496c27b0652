"""Progress: a run's events as lines on standard error. Writes nothing to standard output."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from treadle import ToolCall
from treadle.cli.output.calls import ending_of, shown_result, spoken
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import Family, for_terminal, one_line, shown_json, shown_name
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalRequested,
    BudgetReached,
    BudgetWarned,
    CallDecided,
    ContextCompacted,
    GoalChecked,
    ModelDelta,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RepeatNoticed,
    ToolAttemptFailed,
    ToolFinished,
    ToolProgress,
    ToolsetFailed,
    ToolsetListed,
    ToolStarted,
)
from treadle.tools import ToolResult

__all__ = ["Notifier", "Progress"]


# --- Progress: a run's events as lines on standard error. Writes nothing to standard output.

_PREVIEW = 140


class Progress:
    """Tells a person what happens. Knows the calls it has seen, because results name them by id only.

    Args:
        before: What each line begins with, where it is of an agent below the run.
    """

    def __init__(self, terminal: Terminal, before: str = "") -> None:
        self._terminal = terminal
        self._before = before
        self._calls: dict[str, str] = {}
        self._attempts: dict[str | None, ToolAttemptFailed] = {}
        self._family = Family()
        self._below: dict[str, Progress] = {}
        self._asks_again = False

    def on_any_event(self, event: AnyEvent) -> None:
        """Show an event that belongs to an agent below the run. The run's own come by `on_event`."""
        self._family.take(event)
        if path := self._family.path(event):
            if event.session_id not in self._below:
                self._below[event.session_id] = Progress(self._terminal, f"[{' > '.join(map(shown_name, path))}] ")
            self._below[event.session_id].on_event(event)

    def _say(self, text: str) -> None:
        self._terminal.progress(self._before + text)

    def _more(self, text: str) -> None:
        self._terminal.detail(self._before + text)

    def know(self, call: ToolCall) -> None:
        """Remember a call, so that its start and its result can show its arguments."""
        self._calls[call.id] = str(spoken(call.name, call.arguments))

    def know_open(self, call: ToolCall, decided: CallDecided | None) -> None:
        """Remember a call that an earlier process left open, with the arguments that were decided on."""
        self.know(call)
        if decided is not None:
            self._learn_edit(decided)

    def _learn_edit(self, decided: CallDecided) -> None:
        """What is carried out is what was decided on: a person or a policy may have edited the arguments."""
        if decided.arguments is not None and decided.call_id is not None:
            self._calls[decided.call_id] = str(spoken(decided.tool, decided.arguments))

    def on_event(self, event: AnyEvent) -> None:
        match event:
            case ModelDelta() if event.call is not None:
                self.know(event.call)
            case ModelFinished(act=None):
                for call in event.message.calls:
                    self.know(call)
            case ToolStarted():
                if event.call is not None:
                    self.know(event.call)
                self._say(f"[runs] {self._name(event.call_id, event.tool)}")
            case ToolFinished():
                self._finished(event)
            case ToolProgress():
                self._progressed(event)
            case ApprovalRequested():
                self._asked(event)
            case ModelFailed() | ModelDiscarded():
                self._broken(event)
            case _:
                self._detail(event)

    def _toolset(self, event: AnyEvent) -> None:
        """What happened to the toolsets. That one has failed is also a warning in the log, which is shown without `-v`."""
        match event:
            case ToolsetListed():
                self._more(f"[toolset] {shown_name(event.toolset)}: {len(event.tools)} tools")
                for tool, reason in event.refused.items():
                    self._more(f"[toolset] {shown_name(tool)} is not offered: {one_line(reason, 300)}")
            case ToolsetFailed():
                name, text = shown_name(event.toolset), one_line(event.message, 300)
                self._more(f"[toolset] {name} is unavailable ({event.phase}): {text}")
            case _:
                pass

    def _progressed(self, event: ToolProgress) -> None:
        total = "" if event.total is None else f" of {event.total:g}"
        done = "" if event.done is None else f" ({event.done:g}{total})"
        self._terminal.status(
            f"{self._before}[runs] {self._name(event.call_id, 'tool')}: {one_line(event.message)}{done}"
        )

    def _asked(self, event: ApprovalRequested) -> None:
        if not self._terminal.is_quiet:
            then = f" needs approval: {event.approval_id}"
            self._terminal.call(f"{self._before}[ask] ", event.tool, event.arguments, then=then)
            if event.replaces:  # an answer could not be used: the person who gave it should know why
                self._say(f"    {one_line(event.reason, 500)}")

    def _finished(self, event: ToolFinished) -> None:
        result = event.result
        name = self._name(event.call_id, result.name)
        attempt = self._attempts.pop(event.call_id, None)
        if result.is_error:
            said = _complaint(result) if attempt is None else attempt.revealed(_complaint(result))
            status = "" if result.status == "failed" else f"{result.status}: "  # the record begins with that word
            self._say(f"[failed] {name}: {status}{one_line(said, _PREVIEW)}")
        else:
            ending = ending_of(result)
            told = one_line(f"{ending}\n{shown_result(result)}", _PREVIEW)
            self._say(f"[{'failed' if ending else 'done'}] {name}: {told or 'nothing'}")

    def _checked(self, event: GoalChecked) -> None:
        code = "" if event.exit_code is None else f" with exit code {event.exit_code}"
        self._say(f"[goal] The validation {'passed' if event.passed else f'failed{code}'}.")
        if not event.passed and event.output.strip() and not self._before:
            self._terminal.quote_progress(event.output.strip())

    def _broken(self, event: ModelFailed | ModelDiscarded) -> None:
        """Show each wait before another attempt: it may last for minutes. What ends the run is said at its end."""
        if isinstance(event, ModelDiscarded):
            if self._asks_again:  # else the run has been cancelled, or ends
                self._say("[retry] The response was cut off and is discarded; asking the model again.")
            return
        self._asks_again = event.retry_in_seconds is not None
        message = one_line(for_terminal(event.message), 300)
        match event:
            case ModelFailed(status=429, retry_in_seconds=float(seconds)):
                self._say(f"[wait] The provider is limiting requests (429): retrying in {seconds:.1f} s.")
            case ModelFailed(retry_in_seconds=float(seconds)):
                self._say(f"[retry] Model attempt {event.attempt} failed: {message} Retrying in {seconds:.1f} s.")
            case _:
                self._more(f"[retry] Model attempt {event.attempt} failed: {message}")

    def _detail(self, event: AnyEvent) -> None:
        """What only `-v` shows, and what is rare."""
        match event:
            case GoalChecked():
                self._checked(event)
            case CallDecided() | ActionDecided():
                of = ""
                if isinstance(event, CallDecided):
                    self._learn_edit(event)
                else:
                    of = f"{shown_name(event.action)} of "
                reason = f": {one_line(event.reason)}" if event.reason else ""
                name = self._name(event.call_id, event.tool)
                self._more(f"[decision] {event.decision} {of}{name} ({one_line(event.rule)}){reason}")
            case ToolAttemptFailed():
                self._attempts[event.call_id] = event
                wait = "" if event.retry_in_seconds is None else f"; retrying in {event.retry_in_seconds:.1f} s"
                self._more(
                    f"[retry] Attempt {event.attempt} of {self._name(event.call_id, 'tool')} failed: {one_line(event.message)}{wait}"
                )
            case ModelStarted() if event.prefix_changed:
                parts = ", ".join(event.prefix_changed)
                self._more(f"[cache] The request starts differently from the previous one: {parts}")
            case RepeatNoticed():
                self._more(f"[repeat] {self._name(event.call_id, event.tool)}: {event.count} times in a row")
            case ContextCompacted():
                tokens = f"{event.tokens_after} tokens in place of {event.tokens_before}"
                self._more(f"[compact] The model is shown {tokens} ({one_line(event.tier)})")
            case BudgetWarned() | BudgetReached():
                self._more(f"[budget] {event.budget}: {event.used} of {event.limit}")
            case _:
                self._toolset(event)

    def _name(self, call_id: str | None, otherwise: str) -> str:
        return self._calls.get(call_id or "") or shown_name(otherwise)


def _complaint(result: ToolResult) -> str:
    """Return why a call failed; of one that its service refused, in the service's own words."""
    match result.data:
        case {"error": str(text)} if result.status == "rejected":
            return text
        case body if result.status == "rejected" and body is not None:
            return body if isinstance(body, str) else shown_json(body, _PREVIEW)
        case _:
            return result.message or result.content


# --- Notifying: a sign for a person who looks elsewhere, when a long run needs them or has ended. Only at a terminal.


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
