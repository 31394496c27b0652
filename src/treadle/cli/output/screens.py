"""Screens: what a run writes to standard output: the answer, one JSON object, or events as lines. Progress is elsewhere."""

from typing import Any

import msgspec

from treadle.cli.input.options import Options
from treadle.cli.output.terminal import Terminal, json_line
from treadle.events import AnyEvent, Event, ModelDelta, ModelDiscarded, ModelFailed, ModelFinished, ModelStarted

__all__ = ["Screen", "screen_for"]


class Screen:
    """Standard output during one run."""

    shows_children = False
    """Whether it is given the events of agents below the run, too."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def on_event(self, event: AnyEvent) -> None:
        """Show an event, or pass it over."""

    def conclude(self, report: dict[str, Any]) -> None:
        """Show how the run ended. Called once, last."""
        raise NotImplementedError


def screen_for(options: Options, terminal: Terminal) -> Screen:
    """Return the screen that the person asked for."""
    if options.as_lines:
        return LinesScreen(terminal)
    if options.as_json:
        return JsonScreen(terminal)
    return LiveScreen(terminal) if terminal.is_live else AnswerScreen(terminal)


class JsonScreen(Screen):
    """Exactly one JSON object: the report."""

    def conclude(self, report: dict[str, Any]) -> None:
        self._terminal.data(report)


class LinesScreen(Screen):
    """Every event as one line of JSON, live ones and those of agents below the run too, and the report as the last."""

    shows_children = True

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self._held: dict[str, ModelDelta] = {}
        """By session, the end of a streamed text that may be half a secret: it opens the next piece."""

    def on_event(self, event: AnyEvent) -> None:
        held = self._held.pop(event.session_id, None)
        if isinstance(event, ModelDelta) and event.text:
            text = ("" if held is None else held.text) + event.text
            settled = self._terminal.redactor.settled(text)
            if text[settled:]:
                self._held[event.session_id] = msgspec.structs.replace(event, text=text[settled:])
            event = msgspec.structs.replace(event, text=text[:settled])
        elif held is not None:
            self._write(held)
        self._write(event)

    def _write(self, event: AnyEvent) -> None:
        # The journal leaves out what is as usual; who reads lines should need no table of defaults.
        common = {name: getattr(event, name) for name in Event.__struct_fields__}
        self._terminal.data({"type": event.type, **common, **msgspec.to_builtins(event)})

    def conclude(self, report: dict[str, Any]) -> None:
        self._terminal.data({"type": "report", **report})


class AnswerScreen(Screen):
    """For pipes and files: the final answer alone, once. What the model says before calls is progress."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self._said = ""
        self._has_answer = False

    def on_event(self, event: AnyEvent) -> None:
        match event:
            case ModelDelta(call=None):
                self._said += event.text
            case ModelDelta():  # a call may start before the response is whole: its reason is shown first
                self._tell()
            case ModelFinished(act=None):
                self._has_answer = _is_answer(event)
                if not self._has_answer:
                    self._tell()
                self._said = ""
            case ModelDiscarded() | ModelFailed():
                self._said = ""
            case _:
                pass

    def _tell(self) -> None:
        if self._said.strip():
            self._terminal.quote_progress(self._said.strip())
        self._said = ""

    def conclude(self, report: dict[str, Any]) -> None:
        write_answer(_answer_of(report, has_answer=self._has_answer), self._terminal)


class LiveScreen(Screen):
    """For a person at a terminal: text as it streams. What was shown in full is not shown again."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self._shown = ""
        self._has_answer = False

    def on_event(self, event: AnyEvent) -> None:
        match event:
            case ModelStarted() | ModelDiscarded() | ModelFailed():
                self._terminal.end_line()
                self._shown = ""
            case ModelDelta() if event.text:
                self._shown += event.text
                self._terminal.piece(event.text)
            case ModelFinished(act=None):
                self._has_answer = _is_answer(event)
            case _:
                pass

    def conclude(self, report: dict[str, Any]) -> None:
        text = _answer_of(report, has_answer=self._has_answer)
        if text != self._shown:
            self._terminal.end_line()
            self._terminal.write(text)
        self._terminal.end_line()


def write_answer(text: str, terminal: Terminal) -> None:
    """Write a model's answer to standard output, with its lines."""
    terminal.write(text)
    terminal.end_line()


def _is_answer(event: ModelFinished) -> bool:
    """Whether a response is meant for the person: it calls nothing and was not interrupted, or was the last that a limit left."""
    return event.closing or not (event.interrupted or event.message.calls)


def _answer_of(report: dict[str, Any], *, has_answer: bool) -> str:
    """Return what the person is to read: the answer, or the output of a tool that ended the run; else nothing."""
    output = report["output"]
    if output is None:
        return str(report["text"]) if has_answer else ""
    return output if isinstance(output, str) else json_line(output).rstrip("\n")
