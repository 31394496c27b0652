"""Screen: the terminal of a conversation: what is whole goes up into the scrollback, and below it stand what still changes, the
question, the line where the person types, and the status. Decides nothing.
"""

import asyncio
import base64
import fcntl
import os
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching, vi_insert_mode
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import AnyContainer
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from treadle.cli.output.terminal import Terminal, pager_command, show_in_pager
from treadle.cli.output.text import printable
from treadle.cli.signals import on_signals
from treadle.cli.terminal.board import Board, CallView, Greeting, Group, Item, Note, Said, Thought
from treadle.cli.terminal.dialog import Dialog, Picker, Secret
from treadle.cli.terminal.drawing import Drawing
from treadle.cli.terminal.faces import (
    Answer,
    Cleared,
    Ended,
    Entry,
    Interrupted,
    ModeCycled,
    Option,
    Question,
    Standing,
    ThemeName,
    Typed,
    Unfolded,
)
from treadle.toolsets import folder_files

__all__ = ["Completing", "Screen"]


# --- Pastes: long texts that a person pastes, each shown as a note in its place and sent whole. Draws nothing.

_LONG_CHARS = 2_000
_LONG_LINES = 30


class Pastes:
    """What was pasted in one conversation, by its note.

    Example:
        >>> pastes = Pastes()
        >>> pastes.note("x" * 5000)
        '[pasted 5,000 characters]'
        >>> pastes.whole("Look: [pasted 5,000 characters]") == "Look: " + "x" * 5000
        True
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def note(self, text: str) -> str:
        """Return what stands for a paste in the input line: a short one is shown as it is."""
        if len(text) <= _LONG_CHARS and text.count("\n") < _LONG_LINES:
            return text
        known = next((note for note, one in self._texts.items() if one == text), None)
        if known is not None:
            return known
        note = says = f"[pasted {len(text):,} characters]"
        number = 1
        while note in self._texts:
            number += 1
            note = f"{says[:-1]}, number {number}]"
        self._texts[note] = text
        return note

    def whole(self, text: str) -> str:
        """Return a text with each paste in place of its note."""
        return self._replaced(text, self._texts)

    def shown(self, text: str) -> str:
        """Return a text with the note of each paste in its place."""
        return self._replaced(text, {one: note for note, one in self._texts.items()})

    def note_before(self, text: str) -> str:
        """Return the note with which a text ends; nothing where it ends otherwise."""
        return next((note for note in self._texts if text.endswith(note)), "")

    def _replaced(self, text: str, by: dict[str, str]) -> str:
        if not by:
            return text
        longest_first = sorted(by, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: by[found[0]], text)


# --- Keys: what each key does in a conversation. Draws nothing.

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


def learn_shift_enter() -> None:
    """Have the forms in which terminals send Shift+Enter read as Ctrl+J."""
    for form in _SHIFT_ENTER:
        ANSI_SEQUENCES[form] = Keys.ControlJ


def keys_of_readline(environment: Mapping[str, str]) -> EditingMode:
    """Return the keys that a person has chosen for all programs with readline, by `set editing-mode vi` in their inputrc."""
    place = environment.get("INPUTRC") or Path(environment.get("HOME", "/"), ".inputrc")
    try:
        text = Path(place).read_text(errors="replace")
    except OSError:
        return EditingMode.EMACS
    chosen = re.findall(r"(?im)^[ \t]*set[ \t]+editing-mode[ \t]+(vi|emacs)\b", text)
    return EditingMode.VI if chosen and chosen[-1].lower() == "vi" else EditingMode.EMACS


def bindings(screen: "Screen") -> KeyBindings:
    """Return what the keys do, beside the usual ones of a line editor."""
    keys, burst = KeyBindings(), _Burst()
    _typing(keys, screen, burst)
    _completing(keys, screen)
    _writing_elsewhere(keys, screen)
    _acting(keys, screen)
    _answering(keys, screen, burst)
    return keys


def _typing(keys: KeyBindings, screen: "Screen", burst: _Burst) -> None:
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
        """Delete a note as a whole: half of one would be sent as it is."""
        buffer = screen.buffer
        buffer.delete_before_cursor(len(screen.pastes.note_before(buffer.document.text_before_cursor)))


def _completing(keys: KeyBindings, screen: "Screen") -> None:
    @keys.add("tab")
    def complete(event: KeyPressEvent) -> None:
        buffer = screen.buffer
        if screen.suggestion:
            buffer.insert_text(screen.suggestion)
            return
        found = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif buffer.complete_state is not None:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)


def _writing_elsewhere(keys: KeyBindings, screen: "Screen") -> None:
    is_writing = Condition(lambda: screen.dialog is None or isinstance(screen.dialog, Dialog))

    @keys.add("c-g", filter=is_writing & ~is_searching)
    @keys.add("c-x", "c-e", filter=is_writing & ~is_searching)
    def open_editor(event: KeyPressEvent) -> None:
        buffer, out = screen.buffer, event.app.output
        buffer.text = screen.pastes.whole(buffer.text)  # in an editor the note of a paste would be sent as it is
        out.write_raw(EXTENDED_KEYS_OFF)
        buffer.open_in_editor().add_done_callback(lambda _: out.write_raw(EXTENDED_KEYS_ON))


def _acting(keys: KeyBindings, screen: "Screen") -> None:  # noqa: C901 - one small function for each key
    is_text_of_vi = Condition(lambda: bool(screen.buffer.text) and screen.dialog is None) & vi_insert_mode

    @keys.add("escape", filter=~is_searching & ~is_text_of_vi)
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
        if screen.dialog is not None:
            screen.dialog.change_mode()
        else:
            screen.enter(ModeCycled())

    @keys.add("c-o", eager=True)
    def unfold(event: KeyPressEvent) -> None:
        screen.enter(Unfolded())

    @keys.add("c-z", eager=True)
    def suspend(event: KeyPressEvent) -> None:
        get_app().suspend_to_background()


def _answering(keys: KeyBindings, screen: "Screen", burst: _Burst) -> None:
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

    is_asked = Condition(lambda: screen.dialog is not None)

    @keys.add("up", filter=is_asked & ~is_searching, eager=True)
    def up(event: KeyPressEvent) -> None:
        assert screen.dialog is not None
        screen.dialog.move(-1)

    @keys.add("down", filter=is_asked & ~is_searching, eager=True)
    def down(event: KeyPressEvent) -> None:
        assert screen.dialog is not None
        screen.dialog.move(1)

    @keys.add(Keys.BracketedPaste, filter=is_choosing, eager=True)
    def ignore(event: KeyPressEvent) -> None:
        """A paste answers no question."""


# --- Typed ahead: whole lines that a person typed before the program could read single keys. Waits for nothing.

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


# --- Entered: what a person entered before, in this conversation and, by a file, in earlier ones. It stays small,
# whatever was pasted.

_KEPT_CHARS = 20_000
"""A longer message is not kept for later conversations."""
_MAX_BYTES = 1_000_000
_KEPT_BYTES = 500_000
"""What stays of a file that has become larger than the most: its end."""


def entered_before(path: Path | None, pastes: Pastes) -> History:
    """Return what is recalled in a conversation. A long paste is recalled as its note, and sent whole.

    Args:
        path: The file that keeps it for later conversations; None to keep nothing.
    """
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        _shorten(path)
    except OSError:  # it is a comfort, and no reason to refuse
        return InMemoryHistory()
    return _Entered(path, pastes)


class _Entered(FileHistory):
    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        try:
            return [self._pastes.note(one) for one in super().load_history_strings()]
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        whole = self._pastes.whole(string)
        if len(whole) <= _KEPT_CHARS:
            with suppress(OSError):  # the disk is full, or the folder gone: the message is sent anyway
                super().store_string(whole)


def _shorten(path: Path) -> None:
    """Keep the end of a file that has become large, from the beginning of an entry on."""
    if path.stat().st_size <= _MAX_BYTES:
        return
    end = path.read_bytes()[-_KEPT_BYTES:]
    shorter = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        shorter.touch(0o600)
        shorter.write_bytes(end[max(end.find(b"\n# "), 0) :])
        shorter.replace(path)
    finally:
        shorter.unlink(missing_ok=True)


# --- Screen: the terminal of a conversation: what is whole goes up into the scrollback, and below it stand what still
# changes, the question, the line where the person types, and the status. Decides nothing.

_FRAME_SECONDS = 0.1
_FRAMED_ROWS = 14
"""A terminal with fewer rows has no lines around its input."""
_AIRY_ROWS = 20
"""A terminal with fewer rows has no blank line above what stands below."""
_SUGGESTED = "What does this project do?"
"""What a newcomer may say first."""
_MODE_STYLES = {"accept-edits": "green", "auto": "magenta", "plan": "blue", "bypass": "bold red"}
_PAGED_LINES = 400
"""From so many lines on, an unfolded result is shown in a pager."""
_QUOTED_LINES = 40
_TOGETHER, _SHOWN = "\x1b[?2026h", "\x1b[?2026l"
"""What a terminal that knows them shows as one change: nothing flickers between them. Others pass over them."""
_STYLE = Style.from_dict({"status": "dim", "prompt": "bold", "hint": "dim", "chosen": "reverse"})


class Screen:
    """A face with prompt_toolkit and rich. Enter it as a context manager.

    Args:
        history: The file of what was entered before; None to remember nothing.
        completer: Completes commands and paths.
    """

    def __init__(self, terminal: Terminal, drawing: Drawing, *, history: Path | None, completer: Completer) -> None:
        self.standing = Standing()
        self.drawing = drawing
        self._terminal = terminal
        self._entries: asyncio.Queue[Entry] = asyncio.Queue()
        self._board: Board | None = None
        self._dialog: Dialog | Picker | Secret | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_after_calls = False
        """Whether calls were shown last: those of the next step follow without a blank line."""
        self._is_after_text = False
        """Whether a text was shown last, of the model or the person: a note does not belong to it."""
        self.typed_at = float("-inf")
        """When the person last typed a character."""
        self.pastes = Pastes()
        self._is_newcomer = history is not None and not (history.exists() and history.stat().st_size)
        self.buffer = Buffer(
            multiline=True,
            history=entered_before(history, self.pastes),
            completer=ThreadedCompleter(completer),
            complete_while_typing=Condition(self._completes),
            on_text_insert=lambda _: self._note_typing(),
            on_text_changed=lambda _: None if self._dialog is None else self._dialog.typed(self.buffer.text),
        )
        self.buffer.tempfile_suffix = ".md"  # for the editor: it is Markdown
        self._search = SearchToolbar()
        self.app: Application[int] = self._application()

    # --- its life

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Show the input line until the end, and what a tool prints by itself above it."""
        learn_shift_enter()
        out = self._output()
        out.write_raw(EXTENDED_KEYS_ON)
        self._size()
        before = keep_enter(sys.stdin.fileno())
        for line in lines_typed_ahead(sys.stdin.fileno()):
            self._entries.put_nowait(Typed(line))
        running = asyncio.create_task(self._run())
        try:
            await self._first_drawn(running)
            with self._terminal.diverted(self._from_anywhere):
                yield
        finally:
            if self.app.is_running:
                self.app.exit(result=0)
            with suppress(asyncio.CancelledError):
                await running
            restore(sys.stdin.fileno(), before)
            out.write_raw(EXTENDED_KEYS_OFF)
            out.flush()

    async def _first_drawn(self, running: "asyncio.Task[None]") -> None:
        """Wait until keys are read as keys: what is shown before would invite a person to type too early."""
        drawn = asyncio.Event()
        self.app.after_render += lambda _: drawn.set()
        waiting = asyncio.create_task(drawn.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def _run(self) -> None:
        with on_signals(lambda number: self.enter(Ended(128 + number)), signal.SIGTERM, signal.SIGHUP):
            try:
                await self.app.run_async(handle_sigint=False)
            except (EOFError, OSError):  # the terminal is gone
                pass
            finally:
                self.enter(Ended())

    def _output(self) -> Vt100_Output:
        return self.app.output  # type: ignore[return-value]  # made in _application

    def _application(self) -> Application[int]:
        out = self._terminal.out
        output = Vt100_Output(
            out,
            lambda: _size_of(out),
            term=os.environ.get("TERM"),
            default_color_depth=ColorDepth.from_env(),
            enable_cpr=False,  # an answer that comes late would be read as keys
        )
        mode = keys_of_readline(os.environ)
        app: Application[int] = Application(
            layout=self._layout(),
            editing_mode=mode,
            cursor=ModalCursorShapeConfig() if mode is EditingMode.VI else None,
            key_bindings=bindings(self),
            style=_STYLE,
            full_screen=False,
            erase_when_done=True,
            mouse_support=False,
            input=create_input(),
            output=output,
            max_render_postpone_time=0.02,
        )
        app.ttimeoutlen = 0.05
        app.timeoutlen = 0.2
        return app

    # --- the face

    async def entry(self) -> Entry:
        return await self._entries.get()

    def enter(self, entry: Entry) -> None:
        """Pass on what the person does."""
        self._entries.put_nowait(entry)

    def watch(self, board: Board | None) -> None:
        self._board = board
        self.refresh()

    def refresh(self) -> None:
        self._tick()
        self.app.invalidate()

    def show(self, item: Item) -> None:
        match item:
            case Greeting():
                self._put(self.drawing.greeting(item))
            case Said():
                self._put("\n" + self.drawing.markdown(item.text))
                self._is_after_text = True
            case Thought():
                self._put("\n" + self.drawing.quoted(item.text))
            case Group():
                self._put(("" if self._is_after_calls else "\n") + self.drawing.group(item))
                self._is_after_calls = True
            case Note():
                self._put(("\n" if self._is_after_text else "") + self.drawing.note(item))
                self._is_after_calls = True  # the calls that it is about follow it

    def said(self, text: str) -> None:
        self._put("\n" + self.drawing.said(self.pastes.shown(text)))
        self._is_after_text = True

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        gap = "\n" * (is_bad and self._is_after_text)
        self._put(gap + self.drawing.lines(text.split("\n"), style="red" if is_bad else ""))

    def quote(self, text: str) -> None:
        lines = text.rstrip("\n").split("\n")
        if len(lines) > 2 * _QUOTED_LINES + 1:
            left = len(lines) - 2 * _QUOTED_LINES
            lines = [*lines[:_QUOTED_LINES], f"... {left:,} more lines ...", *lines[-_QUOTED_LINES:]]
        self._put(self.drawing.quoted("\n".join(lines)))

    def diff(self, text: str) -> None:
        drawn = self.drawing.diff(text)
        if drawn.count("\n") > _PAGED_LINES and pager_command() is not None:
            self.page(drawn)
        else:
            self._put(drawn)

    def use_theme(self, name: ThemeName) -> bool:
        self.drawing.theme = name
        self.refresh()
        return True

    def copy(self, text: str) -> bool:
        """Give the terminal a text for its clipboard, in the sequence that most of them know, over SSH too."""
        self._output().write_raw(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")
        self._output().flush()
        return True

    def unfold(self, calls: tuple[CallView, ...]) -> None:
        drawn = self.drawing.group(Group(calls), is_folded=False)
        if drawn.count("\n") > _PAGED_LINES:
            self.page("\n".join(map(self.drawing.whole, calls)))
        else:
            self._put(drawn)

    def prefill(self, text: str) -> None:
        shown = printable(self.pastes.shown(text))
        self.fill(f"{shown}\n{self.buffer.text}" if self.buffer.text else shown)

    def rest(self) -> None:
        pass  # the line where a person types always stands

    def page(self, text: str) -> None:
        """Show a long text in the person's pager."""

        def show() -> None:
            command = pager_command()
            if command is None or not show_in_pager(text, command, self._terminal.out):
                self._terminal.out.write(text)
                self._terminal.out.flush()

        self.app.create_background_task(_awaited(run_in_terminal(show, in_executor=True)))

    # --- the question

    async def ask(self, question: Question) -> Answer | None:
        was_typing = bool(self.buffer.text) or self._loop.time() - self.typed_at < 0.4
        dialog = Dialog(question, self, waits=was_typing)
        with self._asking(dialog):
            self._put(dialog.opening())
            return await dialog.answer

    async def choose(self, title: str, options: Sequence[Option]) -> int | None:
        self.app.vi_state.input_mode = InputMode.INSERT
        picker = Picker(title, options, self)
        with self._asking(picker):
            return await picker.answer

    async def secret(self, title: str) -> str | None:
        asked = Secret(title, self)
        with self._asking(asked):
            return await asked.answer

    @contextmanager
    def _asking(self, dialog: Dialog | Picker | Secret) -> Iterator[None]:
        """Have what is typed answer a question; what stood in the input line comes back."""
        kept, self.buffer.text = self.buffer.text, ""
        self._dialog = dialog
        self.refresh()
        try:
            yield
        finally:
            self._dialog = None
            self.fill(kept)
            self.refresh()

    def fill(self, text: str) -> None:
        """Put a text into the input line, in place of what is there."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    @property
    def room(self) -> int:
        """How many lines a question may take: below it are two, and above it its call is to be seen."""
        rows = self._size()
        return max(rows - (6 if rows >= _AIRY_ROWS else 5), 1)

    @property
    def dialog(self) -> Dialog | Picker | Secret | None:
        """The question that waits; None without one."""
        return self._dialog

    # --- what is typed

    def accept(self) -> None:
        """Take what is in the input line."""
        text = self.buffer.text
        if self._dialog is not None:
            self._dialog.accept(text)
            return
        if not text.strip():
            return
        if self.buffer.history.get_strings()[-1:] != [text]:
            self.buffer.history.append_string(text)
        self.buffer.reset()
        self._is_newcomer = False
        self.app.vi_state.input_mode = InputMode.INSERT
        self.typed_at = float("-inf")  # that sentence is whole
        self._entries.put_nowait(Typed(self.pastes.whole(text)))

    def _completes(self) -> bool:
        """Whether what may be meant is shown while a person types: a command, or a path in whatever place."""
        before = self.buffer.document.text_before_cursor
        return self._dialog is None and (before[:1] == "/" or _AT.search(before[-300:]) is not None)

    def _note_typing(self) -> None:
        self.typed_at = self._loop.time()

    @property
    def suggestion(self) -> str:
        """What a person who has never entered anything may say, while the line is empty; else nothing."""
        is_idle = self._is_newcomer and not (self._dialog or self._board or self.buffer.text)
        return _SUGGESTED if is_idle and self.standing.model else ""

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that can be interrupted."""
        return self._board is not None

    # --- what is shown

    def put(self, drawn: str) -> None:
        """Show lines above the input line, permanently."""
        self._put(drawn)

    def _put(self, drawn: str) -> None:
        self._size()
        self._is_after_calls = self._is_after_text = False
        if not self.app.is_running or self.app._running_in_terminal:  # noqa: SLF001 - a pager has the terminal
            self._loop.call_later(0.05, self._put, drawn) if self.app.is_running else self._write(drawn)
            return
        self._output().write_raw(_TOGETHER)
        self.app.renderer.erase(leave_alternate_screen=False)
        self._write(drawn)
        self.app._redraw()  # noqa: SLF001 - at once: the line where the person types must not be seen to vanish
        self._output().write_raw(_SHOWN)
        self._output().flush()

    def _write(self, drawn: str) -> None:
        self._output().write_raw(drawn.replace("\n", "\r\n"))
        self._output().flush()

    def _from_anywhere(self, text: str) -> None:
        """Show what the program, a tool or its child prints by itself, in whatever thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody looks any more
            self._loop.call_soon_threadsafe(lambda: self._put(self.drawing.lines([text.rstrip("\n")])))

    def _tick(self) -> None:
        """Draw again soon, as long as something changes by itself."""
        if self._board is not None and self._ticker is None:
            self._ticker = self._loop.call_later(_FRAME_SECONDS, self._turn)

    def _turn(self) -> None:
        self._ticker = None
        self.refresh()

    def _size(self) -> int:
        size = self.app.output.get_size()
        self.drawing.width = max(size.columns - 1, 20)
        return size.rows

    def _layout(self) -> Layout:
        hiding = ConditionalProcessor(PasswordProcessor(), Condition(lambda: isinstance(self._dialog, Secret)))
        suggested = AfterInput(lambda: [("class:hint", f"{self.suggestion}  (Tab)")])
        control = BufferControl(
            self.buffer,
            input_processors=[hiding, ConditionalProcessor(suggested, Condition(lambda: self.suggestion != ""))],
            search_buffer_control=self._search.control,
            preview_search=True,
        )
        entry = Window(
            control,
            wrap_lines=True,
            get_line_prefix=self._line_prefix,
            height=Dimension(min=1, max=12),
            dont_extend_height=True,
        )
        parts: list[AnyContainer] = [
            self._part(self._moving),
            self._part(self._todos),
            self._part(self._blank),
            self._part(self._asked),
            self._part(lambda: self._frame(self.standing.mode)),
            entry,
            self._part(lambda: self._frame("")),
            self._search,
            self._part(self._completions),
            Window(FormattedTextControl(self._status), height=1, style="class:status"),
        ]
        return Layout(HSplit(parts), focused_element=entry)

    def _part(self, text: Callable[[], StyleAndTextTuples]) -> ConditionalContainer:
        window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=False)
        return ConditionalContainer(window, Condition(lambda: bool(text())))

    def _line_prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        sign = self.drawing.signs.person if self._dialog is None else self._dialog.sign
        return [("class:prompt", sign if not number and not wrapped else " " * len(sign))]

    def _moving(self) -> StyleAndTextTuples:
        """Return the last lines of what still changes."""
        board = self._board
        if board is None:
            return []
        rows = self._size()
        drawn = f"\n{self.drawing.markdown(board.text)}" if board.text.strip() else ""
        drawn += self.drawing.running(tuple(board.calls.values()), self._loop.time())
        if rows >= _FRAMED_ROWS or not drawn:
            drawn += f"\n{self.drawing.waiting(board.activity, self._loop.time())}"
        lines = drawn.rstrip("\n").split("\n")
        room = max(rows - 8, 3)
        return _formatted("\n".join(lines[-room:]))

    def _blank(self) -> StyleAndTextTuples:
        """Return a line that parts what was said from what stands below it."""
        return [("", " ")] if self._size() >= _AIRY_ROWS else []

    def _todos(self) -> StyleAndTextTuples:
        """Return the to-do list while something of it is open; a question needs its place."""
        items, rows = self.standing.todos, self._size()
        if self._dialog is not None or rows < _FRAMED_ROWS or all(state == "done" for state, _ in items):
            return []
        return _formatted(self.drawing.todos(items, most=max(min(rows // 4, 10), 3)))

    def _frame(self, mode: str) -> StyleAndTextTuples:
        """Return the line above or below the input; none in a small terminal, nor where a question waits."""
        if not self._is_framed:
            return []
        return _formatted(self.drawing.rule("", end=mode, end_style=_MODE_STYLES.get(mode, "cyan")))

    @property
    def _is_framed(self) -> bool:
        return self._size() >= _FRAMED_ROWS and self._dialog is None

    def _asked(self) -> StyleAndTextTuples:
        return [] if self._dialog is None else _formatted(self._dialog.drawn())

    def _completions(self) -> StyleAndTextTuples:
        state = self.buffer.complete_state
        if state is None:
            return []
        first = max((state.complete_index or 0) - 7, 0)
        shown: StyleAndTextTuples = []
        for index, one in enumerate(state.completions[first : first + 8], first):
            style = "class:chosen" if index == state.complete_index else ""
            shown.append((style, f"  {printable(one.display_text):<14} "))
            shown.append(("class:hint", f"{printable(one.display_meta_text)}\n"))
        return [*shown[:-1], ("class:hint", shown[-1][1].rstrip("\n"))] if shown else []

    def _status(self) -> StyleAndTextTuples:
        columns = self.app.output.get_size().columns
        hint = "Esc interrupts" if self.is_busy and self._dialog is None else ""
        return [("", f"  {self.standing.line(columns - 3, hint=hint, has_mode=not self._is_framed)}")]


def _formatted(drawn: str) -> StyleAndTextTuples:
    return list(to_formatted_text(ANSI(drawn.rstrip("\n"))))


def _size_of(out: TextIO) -> Size:
    """Return the size of the terminal, the usual one where it does not say."""
    try:
        columns, rows = os.get_terminal_size(out.fileno())
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


async def _awaited(waited: Awaitable[None]) -> None:
    await waited


# --- Completing: what completes while a person types: `/` commands and `@` paths. Reads folders, and no file.

_MAX_NAMES = 1000
_MOST_FOUND = 100
_FRESH_SECONDS = 10.0
"""After so long the files of the folder are listed again."""
_AT = re.compile(r'(?<!\S)@("[^"\n]*|[^\s"]*)\Z')


class Completing(Completer):
    """Completes `/` commands and `@` paths: those that begin like what is typed, have it in their name, or have its letters in their order.

    Args:
        commands: What each command does, by its name without `/`.
    """

    def __init__(self, commands: Mapping[str, str], root: Path) -> None:
        self._commands = commands
        self._root = root
        self._known: Sequence[str] = ()
        self._known_at = float("-inf")

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the word before the cursor may become."""
        before = document.text_before_cursor
        if before.startswith("/") and not any(blank in before for blank in (" ", "\n")):
            for name, says in self._commands.items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display_meta=says)
        elif (word := _AT.search(before)) is not None:
            typed = word[1].lstrip('"')
            for path in islice(self._found(typed), _MOST_FOUND):
                yield Completion(f'"{path}"' if " " in path else path, -len(word[1]), display=path)

    def _found(self, typed: str) -> Iterable[str]:
        """Return paths, the likeliest first. What git ignores is offered only where its folder is written out."""
        if typed.startswith(("/", ".")):
            return self._below(typed)
        return matching(typed, self._paths()) or self._below(typed)

    def _paths(self) -> Sequence[str]:
        if time.monotonic() - self._known_at > _FRESH_SECONDS:
            files = folder_files(self._root)
            folders = {
                f"{parent}/" for file in files for parent in map(str, PurePosixPath(file).parents) if parent != "."
            }
            self._known, self._known_at = sorted([*files, *folders]), time.monotonic()
        return self._known

    def _below(self, typed: str) -> Iterator[str]:
        folder, slash, start = typed.rpartition("/")
        try:
            with os.scandir(self._root / f"{folder}{slash}") as found:
                entries = sorted(islice(found, _MAX_NAMES), key=lambda one: (one.name.startswith("."), one.name))
        except (OSError, ValueError):
            return
        for one in entries:
            if one.name.startswith(start) and (start.startswith(".") or not one.name.startswith(".")):
                yield f"{folder}{slash}{one.name}" + ("/" if one.is_dir() else "")


def matching(typed: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that what is typed may mean, the likeliest first. Of nothing, those of the top.

    Example:
        >>> matching("scr", ["docs/describing.md", "src/screen.py", "src/"])
        ['src/screen.py', 'docs/describing.md']
        >>> matching("srsc", ["src/screen.py", "docs/a.md"])
        ['src/screen.py']
    """
    wanted = typed.casefold()
    literal = [(_rank(wanted, path.casefold()), path) for path in paths if wanted in path.casefold()]
    if literal or not wanted:
        return [path for rank, path in sorted(literal) if wanted or rank[0] == 0]
    # Each letter is looked for up to its next place: the time grows with the path, whatever was typed.
    first, *others = map(re.escape, wanted.replace(" ", "") or " ")
    letters = re.compile(first + "".join(f"[^{one}]*{one}" for one in others))
    found = [(one.end() - one.start(), len(path), path) for path in paths if (one := letters.search(path.casefold()))]
    return [path for *_, path in sorted(found)]


def _rank(wanted: str, path: str) -> tuple[int, bool, int]:
    """Return how far a path is from what is wanted: its beginning, the beginning of its name, within its name, elsewhere."""
    name = path.rstrip("/").rpartition("/")[2]
    if path.startswith(wanted) and "/" not in path[len(wanted) :].rstrip("/"):
        return 0, path.startswith("."), len(path) if wanted else 0
    return 1 if name.startswith(wanted) else 2 if wanted in name else 3, path.startswith("."), len(path)
