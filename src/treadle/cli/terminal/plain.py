"""Plain: a conversation in plain lines, for a terminal that obeys nothing, and where the extra `terminal` is not installed."""

import asyncio
import json
import signal
import sys
import termios
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from treadle import ConfigurationError
from treadle.cli.output.calls import ending_of, more_lines, shown_result, spoken
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, one_record
from treadle.cli.signals import on_signals
from treadle.cli.terminal.board import Board, CallView, Greeting, Group, Item, Note, Said, Thought
from treadle.cli.terminal.faces import (
    Answer,
    Ended,
    Entry,
    Interrupted,
    Option,
    Question,
    Scope,
    Standing,
    ThemeName,
    Typed,
    asker_of,
    choices_of,
    kept_by,
)

__all__ = ["Lines"]

_LINES = 5


class Lines:
    """A face of plain lines. What a person types is read in a thread, since reading a terminal waits."""

    def __init__(self, terminal: Terminal) -> None:
        self.standing = Standing()
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._entries: asyncio.Queue[Entry] = asyncio.Queue()
        self._answers: asyncio.Queue[str | None] | None = None
        self._board: Board | None = None
        self._shown = 0
        self._is_resting = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Read lines until the end; a signal is what a person does."""
        with (
            on_signals(lambda _: self.enter(Interrupted(is_insistent=True)), signal.SIGINT),
            on_signals(lambda number: self.enter(Ended(128 + number)), signal.SIGTERM, signal.SIGHUP),
        ):
            threading.Thread(target=self._read, name="treadle-input", daemon=True).start()
            yield

    def _read(self) -> None:
        while True:
            try:
                line = sys.stdin.readline()
            except (OSError, ValueError):
                line = ""
            with suppress(RuntimeError):  # the program has ended
                self._loop.call_soon_threadsafe(self._take, line)
            if not line:
                return

    def _take(self, line: str) -> None:
        self._terminal.note_column(0)
        if self._answers is not None:
            self._answers.put_nowait(line.rstrip("\n") if line else None)
        if not line:
            self._entries.put_nowait(Ended())
        elif self._answers is None and line.strip():
            self._is_resting = False
            self._entries.put_nowait(Typed(line.rstrip("\n")))
        elif self._is_resting:
            self.rest()

    # --- the face

    async def entry(self) -> Entry:
        return await self._entries.get()

    def enter(self, entry: Entry) -> None:
        if isinstance(entry, Interrupted | Ended) and self._answers is not None:
            self._answers.put_nowait(None)
        self._entries.put_nowait(entry)

    def watch(self, board: Board | None) -> None:
        self._board = board
        self._shown = 0
        if board is None:
            self._terminal.end_line()

    def rest(self) -> None:
        self._is_resting = True
        self._terminal.prompt("> ")

    def refresh(self) -> None:
        """Show the end of the text that has come since."""
        board = self._board
        if board is not None and len(board.text) > self._shown:
            self._terminal.write(board.text[self._shown :])
            self._shown = len(board.text)

    def show(self, item: Item) -> None:
        match item:
            case Greeting():
                self._terminal.line(f"treadle {item.version} · {item.model} · {item.folder}")
                self._terminal.line("/help lists commands and keys.")
            case Said():
                self._terminal.write(item.text[self._shown :])
                self._terminal.end_line()
                self._shown = 0
            case Thought():
                self._terminal.quote(item.text)
            case Group():
                for call in item.calls:
                    self._show_call(call)
            case Note():
                self._terminal.line(item.text)

    def _show_call(self, call: CallView) -> None:
        result = call.result
        assert result is not None
        is_bad = result.is_error or bool(ending_of(result))
        took = result.duration_seconds if result.attempts else 0.0
        said = (
            f"[{'failed' if is_bad else 'done'}] {spoken(call.tool, call.arguments)}",
            result.status if result.is_error and result.status != "failed" else ending_of(result),
            f"{took:.1f} s" if took >= 1 else "",
        )
        self._terminal.line("  ".join(filter(None, said)))
        for one in call.below:
            status = one.phase if one.result is None else one.result.status
            self._terminal.line(f"  [{one_line(one.agents)}] {spoken(one.tool, one.arguments)}  {status}")
        lines = shown_result(result).rstrip("\n").split("\n")
        shown = lines[:_LINES]
        if any(shown):
            self._terminal.quote("\n".join(shown))
        if len(lines) > len(shown):
            left = more_lines(len(lines) - len(shown), result)
            self._terminal.line(f"  {left} (`treadle sessions show --last` shows them)")

    def said(self, text: str) -> None:
        pass  # the terminal has shown it as it was typed

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        for line in text.split("\n"):
            self._terminal.line(line)

    def quote(self, text: str) -> None:
        self._terminal.quote(text.rstrip("\n"))

    def diff(self, text: str) -> None:
        self._terminal.quote(text.rstrip("\n"))

    def use_theme(self, name: ThemeName) -> bool:
        return False  # a plain line has no colours

    def copy(self, text: str) -> bool:
        return False  # a terminal that obeys nothing has no clipboard for us

    def unfold(self, calls: tuple[CallView, ...]) -> None:
        pass  # a plain line has no key that asks for it

    def prefill(self, text: str) -> None:
        self._terminal.line(f"To send it, enter it again: {one_line(text, 2000)}")  # a plain line cannot be filled in

    # --- the question

    async def ask(self, question: Question) -> Answer | None:
        self._show_asked(question)
        self._show_keys(question)
        self._answers = asyncio.Queue()
        try:
            while (answer := await self._answer(question)) is not None:
                if isinstance(answer, Answer):
                    return answer
                if answer:
                    self._terminal.line(answer)
            return None
        finally:
            self._answers = None

    async def choose(self, title: str, options: Sequence[Option]) -> int | None:
        self._terminal.line(title)
        for number, one in enumerate(options, 1):
            self._terminal.line(f"  {number}  {one_line(one.label, 200)}  {one_line(one.says, 200)}".rstrip())
        self._answers = asyncio.Queue()
        try:
            while answer := ((await self._asked(f"Number from 1 to {len(options)}, or nothing: ")) or "").strip():
                if answer.isdecimal() and 1 <= int(answer) <= len(options):
                    return int(answer) - 1
            return None
        finally:
            self._answers = None

    async def secret(self, title: str) -> str | None:
        self._terminal.line(title)
        self._answers = asyncio.Queue()
        before = termios.tcgetattr(0)
        hidden = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(0, termios.TCSADRAIN, hidden)
        try:
            return ((await self._asked("key> ")) or "").strip() or None
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            self._answers = None
            self._terminal.write("\n")

    def _show_asked(self, question: Question) -> None:
        """Show what a call would do: a change as a diff, a command with all that it would start, anything else as its arguments."""
        one, redactor = question.approval, self._terminal.redactor
        why = one.reason or (f"Rule: {one.rule}." if one.rule else "")
        count = f" ({question.number} of {question.total})" if question.total > 1 else ""
        self._terminal.line(one_line(f"[ask] A call{asker_of(one)} is waiting for you{count}. {why}", 2000))
        preview = one.preview
        if preview is None or preview.kind == "arguments":
            self._show_whole(question)
            return
        risk = f"  (risk: {one.risk.replace('_', ' ')})" if one.risk else ""
        self._terminal.line(one_record(f"{one.action or one.tool}{f': {one.target}' if one.target else ''}{risk}"))
        shown = str(redactor.consented(preview.text))
        self._terminal.quote(shown)
        if not preview.is_whole or redactor.text(shown) != shown:
            self._show_whole(question)

    def _show_whole(self, question: Question) -> None:
        self._terminal.call("", question.approval.tool, question.approval.arguments, is_answer=True)

    def _show_keys(self, question: Question) -> None:
        rules = one_line(", ".join(question.rules), 120)
        for each in choices_of(question):
            self._terminal.line(f"  {each.key}  {each.says.format(rules=rules)}")

    async def _answer(self, question: Question) -> Answer | str | None:  # noqa: PLR0911 - one line for each key
        """Return an answer; a sentence, or nothing, where what was typed is not an answer; None where the person leaves."""
        default = "n" if question.destroys else "y"
        key = await self._asked(f"Allow it? [{default}] ")
        match None if key is None else key.strip().lower() or default:
            case None:
                return None
            case "y":
                return Answer(answer="allow")
            case "n":
                return Answer(answer="deny")
            case "a" if question.rules:
                return Answer(answer="allow", rules=question.rules, scope="session")
            case "p" | "m" | "x" as which if kept_by(question, which)[0]:
                return await self._rule(question, *kept_by(question, which))
            case "r":
                reason = await self._asked("Why not? ")
                return None if reason is None else Answer(answer="deny", reason=reason.strip())
            case "e":
                return _edited(await self._asked("The arguments as JSON, on one line: "))
            case "v":
                self._show_whole(question)
            case "?":
                self._show_keys(question)
            case _:
                return "Type one of the letters above."
        return ""

    async def _rule(self, question: Question, rules: tuple[str, ...], scope: Scope) -> Answer | str | None:
        try:
            covers = await question.covers(rules)
        except ConfigurationError as exc:
            return str(exc)
        where = "this folder" if scope == "always" else "all your folders"
        sure = await self._asked(f"{covers} Save the rule {', '.join(rules)} for {where}? [n] ")
        if sure is None:
            return None
        return Answer(answer="allow", rules=rules, scope=scope) if sure.strip().lower() == "y" else "Not saved."

    async def _asked(self, prompt: str) -> str | None:
        assert self._answers is not None
        self._terminal.prompt(prompt)
        return await self._answers.get()


def _edited(text: str | None) -> Answer | str | None:
    if text is None:
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return f"This is not valid JSON: {one_line(str(exc))}"
    return (
        Answer(answer="allow", arguments=value) if isinstance(value, dict) else "The arguments must be one JSON object."
    )
