"""Keys: what each key does in a conversation. Draws nothing."""

import time
from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from treadle.cli.terminal.dialog import Dialog
from treadle.cli.terminal.faces import Cleared, Ended, Entry, Interrupted, ModeCycled, Unfolded
from treadle.cli.terminal.pastes import Pastes

__all__ = ["EXTENDED_KEYS_OFF", "EXTENDED_KEYS_ON", "bindings", "learn_shift_enter"]

# A terminal that knows this tells Shift+Enter from Enter; the others pass over it.
EXTENDED_KEYS_ON = "\x1b[>4;1m"
EXTENDED_KEYS_OFF = "\x1b[>4;0m"
_SHIFT_ENTER = ("\x1b[27;2;13~", "\x1b[13;2u", "\x1bOM")


_BURST_LINES = 2
"""So many lines that have arrived behind a key are a paste which the terminal does not mark as one."""
_BURST_KEYS = 30
_BURST_SECONDS = 0.3
"""A paste continues while its keys follow each other as fast as that: it is read in pieces."""


class _Burst:
    """Whether keys arrive as nobody types them."""

    def __init__(self) -> None:
        self._until = float("-inf")

    def continues(self, event: KeyPressEvent) -> bool:
        now, behind = time.monotonic(), event.app.key_processor.input_queue
        lines = sum(one.key in (Keys.ControlM, Keys.ControlJ) for one in behind)
        if now < self._until or lines >= _BURST_LINES or len(behind) >= _BURST_KEYS:
            self._until = now + _BURST_SECONDS
        return now < self._until


class Desk(Protocol):
    """What keys act on: see `Screen`."""

    buffer: Buffer
    pastes: Pastes

    @property
    def dialog(self) -> Dialog | None: ...

    @property
    def is_busy(self) -> bool: ...

    def accept(self) -> None: ...

    def enter(self, entry: Entry) -> None: ...


def learn_shift_enter() -> None:
    """Have the forms in which terminals send Shift+Enter read as Ctrl+J."""
    for form in _SHIFT_ENTER:
        ANSI_SEQUENCES[form] = Keys.ControlJ


def bindings(screen: Desk) -> KeyBindings:
    """Return what the keys do, beside the usual ones of a line editor."""
    keys, burst = KeyBindings(), _Burst()
    _typing(keys, screen, burst)
    _acting(keys, screen)
    _answering(keys, screen, burst)
    return keys


def _typing(keys: KeyBindings, screen: Desk, burst: _Burst) -> None:
    @keys.add("enter", filter=~is_searching)
    def accept(event: KeyPressEvent) -> None:
        state = screen.buffer.complete_state
        if state is not None and state.current_completion is not None:
            screen.buffer.apply_completion(state.current_completion)
        elif burst.continues(event):  # a line of a paste is not a message of its own
            screen.buffer.newline(copy_margin=False)
        else:
            screen.accept()

    @keys.add("c-j")
    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        screen.buffer.newline(copy_margin=False)

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        screen.buffer.insert_text(text if screen.dialog is not None else screen.pastes.note(text))

    ends_with_note = Condition(lambda: bool(screen.pastes.note_before(screen.buffer.document.text_before_cursor)))

    @keys.add("backspace", filter=ends_with_note & ~is_searching)
    def delete_note(event: KeyPressEvent) -> None:
        """Delete a note as a whole: half of one would be sent as it stands."""
        buffer = screen.buffer
        buffer.delete_before_cursor(len(screen.pastes.note_before(buffer.document.text_before_cursor)))

    @keys.add("tab")
    def complete(event: KeyPressEvent) -> None:
        buffer = screen.buffer
        found = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif buffer.complete_state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)


def _acting(keys: KeyBindings, screen: Desk) -> None:  # noqa: C901 - one small function for each key
    @keys.add("escape", filter=~is_searching)
    def interrupt(event: KeyPressEvent) -> None:
        if screen.dialog is not None:
            screen.dialog.back()
        elif screen.buffer.complete_state is not None:
            screen.buffer.cancel_completion()
        elif screen.is_busy:
            screen.enter(Interrupted())

    @keys.add("c-c", eager=True)
    def cancel(event: KeyPressEvent) -> None:
        if screen.dialog is not None:
            screen.dialog.interrupt()
        elif screen.buffer.text:
            screen.buffer.reset()
            screen.enter(Cleared())
        else:
            screen.enter(Interrupted(is_insistent=True))

    @keys.add("c-d", filter=Condition(lambda: not screen.buffer.text), eager=True)
    def end(event: KeyPressEvent) -> None:
        screen.enter(Ended())  # a question stays open: whoever resumes the session is asked again

    @keys.add("s-tab", eager=True)
    def cycle(event: KeyPressEvent) -> None:
        screen.enter(ModeCycled())

    @keys.add("c-o", eager=True)
    def unfold(event: KeyPressEvent) -> None:
        screen.enter(Unfolded())

    @keys.add("c-z", eager=True)
    def suspend(event: KeyPressEvent) -> None:
        get_app().suspend_to_background()


def _answering(keys: KeyBindings, screen: Desk, burst: _Burst) -> None:
    is_choosing = Condition(lambda: screen.dialog is not None and screen.dialog.is_choosing)

    @keys.add(Keys.Any, filter=is_choosing, eager=True)
    @keys.add("enter", filter=is_choosing, eager=True)
    def choose(event: KeyPressEvent) -> None:
        assert screen.dialog is not None
        pressed = event.key_sequence[0]
        if burst.continues(event):
            return
        if pressed.key in (Keys.ControlM, Keys.Enter):
            screen.dialog.choose("")
        elif pressed.key is Keys.Escape:
            screen.dialog.back()
        elif not isinstance(pressed.key, Keys):
            screen.dialog.choose(pressed.data)

    @keys.add(Keys.BracketedPaste, filter=is_choosing, eager=True)
    def ignore(event: KeyPressEvent) -> None:
        """A paste answers no question."""
