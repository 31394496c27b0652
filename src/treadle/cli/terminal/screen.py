"""Screen: the terminal of a conversation: what is whole goes up into the scrollback, and below it stand what still changes, the
question, the line where the person types, and the status. Decides nothing.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import create_input
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.containers import AnyContainer
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from treadle.cli.output.paging import pager_command, show_in_pager
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import printable
from treadle.cli.terminal.asking import Answer, Question
from treadle.cli.terminal.board import Board, CallView, Group, Item, Note, Said
from treadle.cli.terminal.dialog import Dialog
from treadle.cli.terminal.drawing import Drawing
from treadle.cli.terminal.entered import entered_before
from treadle.cli.terminal.faces import Ended, Entry, Typed
from treadle.cli.terminal.keys import EXTENDED_KEYS_OFF, EXTENDED_KEYS_ON, bindings, learn_shift_enter
from treadle.cli.terminal.pastes import Pastes
from treadle.cli.terminal.standing import Standing
from treadle.cli.terminal.typed_ahead import keep_enter, lines_typed_ahead, restore

__all__ = ["Screen"]

_FRAME_SECONDS = 0.1
_PAGED_LINES = 400
"""From so many lines on, an unfolded result is shown in a pager."""
_QUOTED_LINES = 40
_STYLE = Style.from_dict({"status": "reverse", "prompt": "bold", "hint": "italic", "chosen": "reverse"})


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
        self._dialog: Dialog | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_after_calls = False
        """Whether calls were shown last: those of the next step follow without a blank line."""
        self.typed_at = float("-inf")
        """When the person last typed a character."""
        self.pastes = Pastes()
        self.buffer = Buffer(
            multiline=True,
            history=entered_before(history, self.pastes),
            completer=completer,
            complete_while_typing=Condition(self._completes),
            on_text_insert=lambda _: self._note_typing(),
            on_text_changed=lambda _: None if self._dialog is None else self._dialog.typed(self.buffer.text),
        )
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
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._entries.put_nowait, Ended(128 + number))
        try:
            await self.app.run_async(handle_sigint=False)
        except (EOFError, OSError):  # the terminal is gone
            pass
        finally:
            self._entries.put_nowait(Ended())
            for number in (signal.SIGTERM, signal.SIGHUP):
                self._loop.remove_signal_handler(number)

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
        app: Application[int] = Application(
            layout=self._layout(),
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
            case Said():
                self._put("\n" + self.drawing.markdown(item.text))
            case Group():
                self._put(("" if self._is_after_calls else "\n") + self.drawing.group(item))
                self._is_after_calls = True
            case Note():
                self._put(self.drawing.note(item))

    def said(self, text: str) -> None:
        self._put("\n" + self.drawing.said(self.pastes.shown(text)))

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        self._put(self.drawing.lines(text.split("\n"), style="red" if is_bad else ""))

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
        kept, self.buffer.text = self.buffer.text, ""
        was_typing = bool(kept) or self._loop.time() - self.typed_at < 0.4
        self._dialog = Dialog(question, self, waits=was_typing)
        self._put(self._dialog.opening())
        try:
            return await self._dialog.answer
        finally:
            self._dialog = None
            self.fill(kept)
            self.refresh()

    def fill(self, text: str) -> None:
        """Put a text into the input line, in place of what stands there."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    @property
    def room(self) -> int:
        """How many lines a question may take: below it are two, and above it its call is to be seen."""
        return max(self._size() - 5, 1)

    @property
    def dialog(self) -> Dialog | None:
        """The question that waits; None without one."""
        return self._dialog

    # --- what is typed

    def accept(self) -> None:
        """Take what stands in the input line."""
        text = self.buffer.text
        if self._dialog is not None:
            self._dialog.accept(text)
            return
        if not text.strip():
            return
        if self.buffer.history.get_strings()[-1:] != [text]:
            self.buffer.history.append_string(text)
        self.buffer.reset()
        self.typed_at = float("-inf")  # that sentence is whole
        self._entries.put_nowait(Typed(self.pastes.whole(text)))

    def _completes(self) -> bool:
        """Whether what may be meant is shown while a person types: a command, or a path in whatever place."""
        before = self.buffer.document.text_before_cursor
        return self._dialog is None and (before[:1] == "/" or re.search(r"(?<!\S)@\S*\Z", before[-300:]) is not None)

    def _note_typing(self) -> None:
        self.typed_at = self._loop.time()

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
        self._is_after_calls = False
        if not self.app.is_running or self.app._running_in_terminal:  # noqa: SLF001 - a pager has the terminal
            self._loop.call_later(0.05, self._put, drawn) if self.app.is_running else self._write(drawn)
            return
        self.app.renderer.erase(leave_alternate_screen=False)
        self._write(drawn)
        self.app._redraw()  # noqa: SLF001 - at once: the line where the person types must not be seen to vanish

    def _write(self, drawn: str) -> None:
        self._output().write_raw(drawn.replace("\n", "\r\n"))
        self._output().flush()

    def _from_anywhere(self, text: str) -> None:
        """Show what the program, a tool or its child prints by itself, in whatever thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody looks any more
            self._loop.call_soon_threadsafe(lambda: self._put(self.drawing.lines([text.rstrip("\n")])))

    def _tick(self) -> None:
        """Draw again soon, as long as something changes by itself."""
        is_moving = self._board is not None and self._board.is_moving
        if is_moving and self._ticker is None:
            self._ticker = self._loop.call_later(_FRAME_SECONDS, self._turn)

    def _turn(self) -> None:
        self._ticker = None
        self.refresh()

    def _size(self) -> int:
        size = self.app.output.get_size()
        self.drawing.width = max(size.columns - 1, 20)
        return size.rows

    def _layout(self) -> Layout:
        control = BufferControl(self.buffer, search_buffer_control=self._search.control, preview_search=True)
        entry = Window(
            control,
            wrap_lines=True,
            get_line_prefix=self._line_prefix,
            height=Dimension(min=1, max=12),
            dont_extend_height=True,
        )
        parts: list[AnyContainer] = [
            self._part(self._moving),
            self._part(self._asked),
            entry,
            self._search,
            self._part(self._completions),
            Window(FormattedTextControl(self._status), height=1, style="class:status"),
        ]
        return Layout(HSplit(parts), focused_element=entry)

    def _part(self, text: Callable[[], StyleAndTextTuples]) -> ConditionalContainer:
        window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=False)
        return ConditionalContainer(window, Condition(lambda: bool(text())))

    def _line_prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        sign = "> " if self._dialog is None else self._dialog.sign
        return [("class:prompt", sign if not number and not wrapped else " " * len(sign))]

    def _moving(self) -> StyleAndTextTuples:
        """Return the last lines of what still changes."""
        board = self._board
        if board is None:
            return []
        rows = self._size()
        drawn = f"\n{self.drawing.markdown(board.text)}" if board.text.strip() else ""
        drawn += self.drawing.running(tuple(board.calls.values()), self._loop.time())
        if not drawn and board.doing:
            drawn = self.drawing.waiting(board.doing, self._loop.time())
        lines = drawn.rstrip("\n").split("\n")
        room = max(rows - 8, 3)
        return list(to_formatted_text(ANSI("\n".join(lines[-room:])))) if drawn else []

    def _asked(self) -> StyleAndTextTuples:
        return [] if self._dialog is None else list(to_formatted_text(ANSI(self._dialog.drawn())))

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
        return [("", f" {self.standing.line(columns - 2, hint=hint)}".ljust(columns))]


def _size_of(out: TextIO) -> Size:
    """Return the size of the terminal, the usual one where it does not say."""
    try:
        columns, rows = os.get_terminal_size(out.fileno())
    except OSError:
        columns, rows = 0, 0
    return Size(rows=rows or 24, columns=columns or 80)


async def _awaited(waited: Awaitable[None]) -> None:
    await waited
