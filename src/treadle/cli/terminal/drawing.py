"""Drawing: from texts, calls and results to lines of a terminal, with colours. Everything of strangers is escaped here. Writes nothing."""

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from itertools import takewhile
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from treadle import Approval, Preview, Redactor
from treadle.cli.output.progress import ending_of, more_lines, shown_result
from treadle.cli.output.text import indented, one_record, printable, shown_call, shown_name, whole_call, wrapped
from treadle.cli.terminal.board import CallView, Group, Note, parts_of
from treadle.cli.terminal.faces import Option

__all__ = ["Drawing"]


# --- Markdown: what a model says, from lines of Markdown to lines of a terminal. Nothing that a person may copy is
# lost. Escapes nothing.

_INLINE = re.compile(
    r"(?P<code>(?<![`\\])(?P<ticks>`+)(?!`)(?P<inner>.{1,2000}?)(?<!`)(?P=ticks)(?!`))"
    # Two asterisks that touch a path or a name are a pattern or an argument: `src/**/*.py`, `**kwargs`, `2**3`.
    r"|(?<![A-Za-z0-9_/\\*.)\]])\*\*(?![\s*/.])(?P<bold>(?:`[^`]*`|[^`]){1,400}?)(?<![\s*/\\])\*\*(?![A-Za-z0-9_*/\\])"
    r"|(?P<italic>(?<![A-Za-z0-9_*/\\])\*[^\s*`](?:[^*`]{0,1000}?[^\s*`])?\*(?![A-Za-z0-9_*/\\]))"
    r"|(?<![A-Za-z0-9_\])!\\])\[(?P<text>[^\[\]]{1,1000})\]"
    r"\((?P<target><[^<>]+>|[^\s()]*[./:#](?:[^\s()]|\([^\s()]*\))*)(?P<title>\s+(?:\"[^\"]*\"|'[^']*'))?\)"
)
_HEADING = re.compile(r" {0,3}(#{1,6})\s+\S")
_QUOTE = re.compile(r" {0,3}>(?: |\Z)")
_ITEM = re.compile(r"(\s*(?:[-*+]|\d{1,9}[.)])\s+)(?=\S)")
_CODE = re.compile(r" {4,}\S")
_INDENT = re.compile(r"\s*")
_DELIMITERS = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?")
_DEEPEST = 8
"""Quotes in quotes that are drawn as such."""
_ROW = re.compile(r".*\|")
_CELL = re.compile(r"(?:\\.|(`+)(?:(?!\1).)+\1|[^|\\]|\\)*")


class Prose:
    """A text without blocks of code, ready to be drawn in any width."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self._lines = text.expandtabs().split("\n")
        self._depth = depth

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        at = 0
        while at < len(self._lines):
            count, drawn = self._quote(at) or self._table(at) or self._indented(at) or (1, _line(self._lines[at]))
            yield drawn
            at += count

    def _quote(self, at: int) -> tuple[int, RenderableType] | None:
        quoted = list(_while(_QUOTE, self._lines, at)) if self._depth < _DEEPEST else []
        inner = "\n".join(_QUOTE.sub("", line, count=1) for line in quoted)
        return (
            (len(quoted), Hanging(Text("> ", style="dim"), Prose(inner, self._depth + 1), repeats=True))
            if quoted
            else None
        )

    def _table(self, at: int) -> tuple[int, RenderableType] | None:
        head, *below = self._lines[at : at + 2]
        if "|" not in head or not below or not _DELIMITERS.fullmatch(below[0]):
            return None
        if len(_cells(head)) != len(_cells(below[0])):
            return None
        rows = list(_while(_ROW, self._lines, at + 2))
        return len(rows) + 2, _Table(head, below[0], rows)

    def _indented(self, at: int) -> tuple[int, RenderableType] | None:
        """Lines with an indent that begin a block are code."""
        if at and self._lines[at - 1].strip():
            return None
        lines = list(_while(_CODE, self._lines, at))
        if not lines or _ITEM.match(lines[0]):
            return None
        return len(lines), Text("\n".join(lines))


class Hanging:
    """What follows a prefix: its later lines begin below the first, or behind the prefix again."""

    def __init__(self, prefix: Text, inner: RenderableType, *, repeats: bool = False) -> None:
        self._prefix = prefix
        self._inner = inner
        self._repeats = repeats

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        taken = cell_len(self._prefix.plain)
        width = options.max_width - taken
        if width < 10:  # too narrow for an indent
            yield self._prefix
            yield self._inner
            return
        first = list(self._prefix.render(console))
        later = first if self._repeats else [Segment(" " * taken)]
        lines = console.render_lines(self._inner, options.update_width(width), pad=False)
        for number, line in enumerate(lines):
            yield from later if number else first
            yield from line
            yield Segment.line()


class _Table:
    """A table in columns; where these are too narrow for their words, its lines as they were written."""

    def __init__(self, head: str, delimiters: str, rows: Sequence[str]) -> None:
        self._written = [head, delimiters, *rows]
        self._rows = [[_inline(cell) for cell in _cells(row)] for row in (head, *rows)]
        self._aligned = [cell.endswith(":") for cell in _cells(delimiters)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        count = max(map(len, self._rows))
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=True, collapse_padding=True)
        head, *rows = [[*row, *[Text()] * (count - len(row))] for row in self._rows]
        for number, cell in enumerate(head):
            cell.stylize("bold")
            is_right = number < len(self._aligned) and self._aligned[number]
            table.add_column(cell, justify="right" if is_right else "left")
        for row in rows:
            table.add_row(*row)
        words = [
            max((cell_len(word) for row in (head, *rows) for word in row[number].plain.split()), default=0)
            for number in range(count)
        ]
        if sum(words) + 3 * count > options.max_width:
            yield from map(_line, self._written)
        else:
            yield table


def _while(pattern: re.Pattern[str], lines: Sequence[str], at: int) -> Iterator[str]:
    return takewhile(pattern.match, (lines[number] for number in range(at, len(lines))))


def _line(line: str) -> RenderableType:
    if heading := _HEADING.match(line):
        text = _inline(line.strip())
        text.stylize("bold underline" if len(heading[1]) == 1 else "bold")
        return text
    found = _ITEM.match(line) or _INDENT.match(line)
    assert found is not None
    body = _inline(line[found.end() :])
    return Hanging(Text(found[0], end=""), body) if found[0] and body else body


def _inline(line: str, style: str = "") -> Text:
    """Return a line with its bold text, its code and its links."""
    drawn, at = Text(style=style), 0
    for found in _INLINE.finditer(line):
        drawn.append(line[at : found.start()])
        at = found.end()
        if found["code"]:
            drawn.append(_unpadded(found["inner"]), style="markdown.code")
        elif found["bold"]:
            drawn.append_text(_inline(found["bold"], "bold"))
        elif found["italic"]:
            drawn.append(found["italic"], style="italic")
        else:
            drawn.append_text(_link(found))
    return drawn.append(line[at:])


def _unpadded(code: str) -> str:
    is_padded = code[:1] == code[-1:] == " " and code.strip()
    return code[1:-1] if is_padded else code


def _link(found: re.Match[str]) -> Text:
    """Return the text of a link and its target, which a person can read and copy."""
    target = found["target"].removeprefix("<").removesuffix(">")
    text = _inline(found["text"])
    if text.plain in (target, target.removeprefix("mailto:")):
        return text
    text.append(" (")
    text.append(target, style="underline")
    return text.append(f"{found['title'] or ''})")


def _cells(row: str) -> list[str]:
    """Return the cells of a row. A vertical bar in code, or with a backslash before it, separates none."""
    inner = row.strip().removeprefix("|")
    cells, at = [], 0
    while at <= len(inner):
        found = _CELL.match(inner, at)
        assert found is not None
        cells.append(found[0].strip().replace("\\|", "|"))
        at = found.end() + 1
    return cells[:-1] if len(cells) > 1 and not cells[-1] and inner.endswith("|") else cells


# --- Drawing: from texts, calls and results to lines of a terminal, with colours. Everything of strangers is escaped
# here. Writes nothing.

_FOLDED = 4
"""Lines of a result that are shown before somebody unfolds it."""
_FOLDED_DIFF = 24
_BELOW = 8
"""Calls of agents below that are shown before somebody unfolds them."""
_BELOW_RUNNING = 4
_BLANK_LINES = re.compile(r"\n{3,}")
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_THEME = Theme({"markdown.code": "cyan"})
_LONG_ARGUMENTS = ("content", "old_text", "new_text", "edits", "all")
"""Arguments of `write` and `edit` that their change shows better."""
_TONES = {"plain": "dim", "warn": "yellow", "bad": "bold red"}


class _Clean:
    """What is drawn, with nothing in it that a terminal obeys but colours, and without blanks at the ends of lines.

    Args:
        fit: Escapes a line. It is asked about whole lines: parts of an emoji may have different styles.
    """

    def __init__(self, inner: RenderableType, fit: Callable[[str], str]) -> None:
        self._inner = inner
        self._fit = fit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._inner, options, pad=False):
            kept = [one for one in line if not one.control and one.text != "\n"]
            whole = "".join(one.text for one in kept)
            if self._fit(whole) != whole:
                kept = [Segment(self._fit(one.text), one.style) for one in kept]
            yield from _without_tail(kept)
            yield Segment.line()


def _without_tail(kept: list[Segment]) -> list[Segment]:
    while kept and not kept[-1].text.strip() and not (kept[-1].style and kept[-1].style.bgcolor):
        kept.pop()
    if kept and not (kept[-1].style and kept[-1].style.bgcolor):
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


class Drawing:
    """Draws for one terminal.

    Args:
        redactor: Takes secrets out of all that is drawn; of what a person decides on, those that cannot act.
    """

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.width = 80
        encoding = (getattr(sys.stdin, "encoding", None) or "utf-8").lower().replace("-", "")
        self._is_plain = encoding in ("ascii", "ansi_x3.41968")

    # --- one thing each

    def markdown(self, text: str) -> str:
        """Draw what a model says, without a blank line at its begin and end. Its secrets are taken out already.

        Code is at the left margin, so that it can be copied as it is.
        """
        drawn = []
        for info, part in parts_of(printable(text)):
            if info is None:
                drawn.append(_BLANK_LINES.sub("\n\n", self._drawn(Prose(part), fit=printable).strip("\n")))
                continue
            language, _, rest = info.partition(" ")
            code = Syntax(part, language or "text", theme="ansi_dark", word_wrap=True, background_color="default")
            title = self._drawn(Text(info, style="dim")) if rest else ""
            drawn.append(title + self._drawn(code, fit=printable).rstrip("\n"))
        return "\n\n".join(drawn) + "\n" if drawn else ""

    def said(self, text: str) -> str:
        """Draw what the person has said."""
        first, *rest = printable(self.redactor.text(text)).split("\n")
        return self._drawn(
            Text("\n".join([f"> {first}", *(f"  {line}" for line in rest)]), style="bold"), fit=printable
        )

    def note(self, note: Note) -> str:
        """Draw a line of the program."""
        text = one_record(self.redactor.text(note.text))
        return self._drawn(Text("\n".join(wrapped(text, self.width)), style=_TONES[note.tone]))

    def lines(self, texts: Iterable[str], *, style: str = "") -> str:
        """Draw records of the program, one below the other."""
        shown = [line for text in texts for line in printable(self.redactor.text(text)).split("\n")]
        return self._drawn(Text("\n".join(part for line in shown for part in wrapped(line, self.width)), style=style))

    def quoted(self, text: str) -> str:
        """Draw a text of strangers, marked at the start of each line."""
        return self._drawn(Text(indented(self.redactor.text(text), width=self.width), style="dim"))

    def shell(self, command: str) -> str:
        """Draw a line of shell."""
        return self._drawn(self._command(command, "$ "))

    def choice(self, key: str, says: str, *, is_default: bool) -> str:
        """Draw one key of a question."""
        line = Text(one_record(self.redactor.text(says)))
        if is_default:
            line.append("  (Enter)", style="dim")
        return self._drawn(Hanging(Text(f"  {key}  ", style="bold cyan", end=""), line))

    def option(self, option: Option, *, number: int, width: int, is_chosen: bool) -> str:
        """Draw one of several things to choose from."""
        label = one_record(self.redactor.text(option.label))
        line = Text(label + " " * max(width - cell_len(label), 0), style="bold" if is_chosen else "")
        line.append(f"  {one_record(self.redactor.text(option.says))}", style="dim")
        line.truncate(max(self.width - 8, 10), overflow="ellipsis")
        return self._drawn(Text(f"{'▸' if is_chosen else ' '} {number:>3}  ", style="cyan", end="").append_text(line))

    def waiting(self, doing: str, now: float) -> str:
        """Draw what happens while there is nothing to read."""
        return self._drawn(Text(f"{self._turning(now)} {doing} ...", style="dim"))

    def diff(self, text: str) -> str:
        """Draw changes of files, as `git diff` writes them, with the number of each line: of a removed one in the old file."""
        drawn = Text()
        lines = list(_numbered(printable(self.redactor.text(text))))
        width = max((len(number) for number, _ in lines), default=0)
        for number, line in lines:
            style = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}.get(line[:1], "")
            drawn.append(f"{number:>{width}} " if width else "", style="dim")
            drawn.append(f"{line}\n", style="bold" if not number and line.startswith(("+++", "---")) else style)
        drawn.rstrip()
        return self._drawn(drawn)

    # --- calls

    def running(self, calls: Sequence[CallView], now: float) -> str:
        """Draw calls that are under way, one line each."""
        return "".join(
            self._drawn(self._line(call, now, mark), width=self.width)
            + self._below(call, now, _gutter(mark), most=_BELOW_RUNNING)
            for call, mark in zip(calls, self._marks(len(calls)), strict=True)
        )

    def group(self, group: Group, *, is_folded: bool = True) -> str:
        """Draw the calls of one response, each with its result: the beginning of it, or all."""
        drawn = []
        for call, mark in zip(group.calls, self._marks(len(group.calls)), strict=True):
            gutter = _gutter(mark)
            drawn.append(self._drawn(self._line(call, 0.0, mark)))
            drawn.append(self._below(call, 0.0, gutter, most=_BELOW if is_folded else None))
            drawn += [self._drawn(_behind(gutter, body)) for body in self._body(call, is_folded=is_folded)]
        return "".join(drawn)

    def whole(self, call: CallView) -> str:
        """Return the whole result of a call as plain text, for a pager."""
        assert call.result is not None
        ended = f"{ending_of(call.result)}\n" if ending_of(call.result) else ""
        shown = printable(self.redactor.text(ended + shown_result(call.result)))
        return f"{shown_call(call.tool, call.arguments)}\n\n{shown}\n"

    def question(self, one: Approval) -> str:
        """Draw a call that a person decides on: a change as a diff, a line of shell with all that it would start, else all arguments."""
        if one.preview is not None and one.preview.kind != "arguments":
            head = Text(one_record(one.action or one.tool), style="bold")
            is_command = one.preview.kind == "command"  # which is below it, in full
            head.append(f": {one_record(one.target)}" if one.target and not is_command else "", style="bold cyan")
            head.append(
                "" if is_command else f"  (risk: {one.risk.replace('_', ' ')})" if one.risk else "",
                style="not bold dim",
            )
            drawn = self._drawn(head) + self._preview(one.preview)
            return drawn if one.preview.is_whole else drawn + self.entire(one.tool, one.arguments)
        tool, arguments = one.tool, one.arguments
        known = self.redactor.consented(arguments)
        preview = self._change(tool, known) or self._asked_command(tool, known)
        if preview is not None:
            head = Text(shown_name(tool), style="bold")
            if isinstance(known, dict) and "path" in known:
                head.append(f" {one_record(str(known['path']))}", style="bold cyan")
            return self._drawn(head) + self._drawn(preview)
        return self.entire(tool, arguments)

    def entire(self, tool: str, arguments: object) -> str:
        """Draw a call with every argument and every character."""
        found = whole_call(tool, self.redactor.consented(arguments))
        return self._drawn(Text("\n".join(found)))

    # --- parts

    def _preview(self, preview: Preview) -> str:
        text = self.redactor.consented(preview.text)
        assert isinstance(text, str)
        if preview.kind == "diff":
            return self.diff(text)
        first, _, rest = text.partition("\n\n") if preview.kind == "command" else (text, "", "")
        if preview.kind != "command":
            return self._drawn(Text(printable(first)))
        return self._drawn(self._command(first, "  $ ")) + self._drawn(
            Text(indented(rest, "    ", self.width), style="dim")
        )

    def _marks(self, count: int) -> list[str]:
        if count < 2:
            return [""] * count
        if self._is_plain:
            return ["| "] * count
        return ["┌ ", *["├ "] * (count - 2), "└ "]

    def _below(self, call: CallView, now: float, gutter: str, *, most: int | None) -> str:
        """Draw what the agents below have called for a call, one line each, indented; of many the last ones."""
        shown = call.below if most is None or len(call.below) <= most else call.below[-most:]
        drawn = ""
        if (left := len(call.below) - len(shown)) > 0:
            drawn = self._drawn(Text(f"{gutter}  ... {left:,} earlier calls", style="dim italic"))
        for one in shown:
            drawn += self._drawn(self._line(one, now, f"{gutter}  "), width=self.width)
        return drawn

    def _line(self, call: CallView, now: float, mark: str) -> Text:
        line = Text(mark, style="dim", no_wrap=call.phase != "done" or bool(call.agents), overflow="ellipsis")
        source = f"[{one_record(self.redactor.text(call.agents))}] " if call.agents else "[tool] "
        line.append(source, style="cyan not dim")
        line.append(one_record(self.redactor.text(shown_call(call.tool, self._told(call)))), style="not dim")
        if call.is_edited:
            line.append(" (edited)", style="yellow not dim")
        result = call.result
        if result is not None:
            took = f" {_seconds(result.duration_seconds)}" if result.attempts else ""
            if result.is_error:
                line.append(f"  {result.status}{took}", style="bold red not dim")
            else:
                line.append(f"  ok{took}", style="green not dim")
            if ended := ending_of(result):
                line.append(f"  {one_record(self.redactor.text(ended))}", style="yellow not dim")
        elif call.phase == "runs":
            line.append(f"  {self._turning(now)} {_seconds(max(now - call.started, 0.0))}", style="yellow not dim")
        else:
            line.append(
                "  asks you after the other calls" if call.phase == "asks" else "  waiting", style="yellow not dim"
            )
        if call.note and result is None:
            line.append(f"  {one_record(self.redactor.text(call.note))}", style="dim")
        return line

    def _turning(self, now: float) -> str:
        return "*" if self._is_plain else _SPINNER[int(now * 10) % len(_SPINNER)]

    def _told(self, call: CallView) -> object:
        """Return the arguments that the line of a call tells: of a change that is drawn below it, where it is."""
        is_change = self._change(call.tool, call.arguments) is not None
        if not is_change or (call.result is not None and call.result.is_error):
            return call.arguments
        return {name: value for name, value in _object(call.arguments).items() if name not in _LONG_ARGUMENTS}

    def _body(self, call: CallView, *, is_folded: bool) -> list[RenderableType]:
        result = call.result
        assert result is not None
        if not result.is_error and (change := self._change(call.tool, call.arguments)) is not None:
            return [_folded(change, _FOLDED_DIFF if is_folded else None)] if change else []
        text = printable(self.redactor.text(shown_result(result))).rstrip("\n")
        if not text.strip():
            return []
        lines = text.split("\n")
        shown = lines[:_FOLDED] if is_folded and len(lines) > _FOLDED + 1 else lines
        cut = [_cut(line, self.width - 6) if is_folded else line for line in shown]
        body = Text("\n".join(cut), style="red" if result.is_error else "dim")
        if (left := len(lines) - len(shown)) > 0:
            body.append(f"\n{more_lines(left, result)} (Ctrl+O shows them)", style="dim italic")
        return [_behind("  ", body)]

    def _change(self, tool: str, arguments: object) -> Text | None:
        """Return what a call of `write` or `edit` changes, as a coloured diff; None for another tool."""
        known = _object(arguments)
        if tool == "write" and isinstance(known.get("content"), str):
            return _diff([("", known["content"])])
        if tool != "edit":
            return None
        edits = known.get("edits") if isinstance(known.get("edits"), list) else [known]
        pairs = [
            (one["old_text"], one["new_text"])
            for one in edits or ()
            if isinstance(one, dict) and isinstance(one.get("old_text"), str) and isinstance(one.get("new_text"), str)
        ]
        return _diff([(self.redactor.text(old), self.redactor.text(new)) for old, new in pairs]) if pairs else None

    def _asked_command(self, tool: str, arguments: object) -> RenderableType | None:
        command = _object(arguments).get("command")
        return self._command(command, "  $ ") if tool == "shell" and isinstance(command, str) else None

    def _command(self, command: str, sign: str) -> RenderableType:
        text = Syntax("", "bash", theme="ansi_dark").highlight(printable(command))
        text.rstrip()
        first, *rest = text.split("\n", allow_blank=True)
        return Text("\n").join([Text(sign, style="green") + first, *(Text(" " * len(sign)) + line for line in rest)])

    def _drawn(self, what: RenderableType, *, width: int | None = None, fit: Callable[[str], str] = one_record) -> str:
        file = StringIO()
        console = Console(
            file=file,
            width=max(width or self.width, 20),
            force_terminal=True,
            color_system="auto",
            theme=_THEME,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            force_interactive=False,
        )
        console.print(_Clean(what, fit), end="")
        return file.getvalue()


def _gutter(mark: str) -> str:
    """Return what is below the mark of a call of a group, at the start of each line."""
    return {"": "", "└ ": "  ", "| ": "| "}.get(mark, "│ ")


def _behind(gutter: str, what: RenderableType) -> RenderableType:
    if not gutter:
        return what

    class Behind:
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            inner = options.update_width(max(options.max_width - cell_len(gutter), 10))
            for line in console.render_lines(what, inner, pad=False):
                yield Segment(gutter, Style(dim=True))
                yield from line
                yield Segment.line()

    return Behind()


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _numbered(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a unified diff with its number, which is empty outside of the parts that `@@` begins."""
    old = new = old_end = new_end = 0
    for line in diff.split("\n"):
        if old >= old_end and new >= new_end:
            if begun := _HUNK.match(line):
                old, new = int(begun[1]), int(begun[3])
                old_end, new_end = old + int(begun[2] or 1), new + int(begun[4] or 1)
            yield "", line
        elif line.startswith("\\"):  # no line feed at the end of the file
            yield "", line
        else:
            yield str(old if line.startswith("-") else new), line
            old += not line.startswith("+")
            new += not line.startswith("-")


def _diff(pairs: Sequence[tuple[str, str]]) -> Text:
    """Return changes as lines that begin with `-` or `+`, three lines around each."""
    drawn = Text()
    for old, new in pairs:
        if drawn.plain:
            drawn.append("  ...\n", style="dim")
        before, after = (printable(one).split("\n") if one else [] for one in (old, new))
        if new.endswith("\n") and (not old or old.endswith("\n")):  # no line begins after the last line feed
            before, after = before[:-1], after[:-1]
        for line in list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            if not line.startswith("@@") or drawn.plain:
                drawn.append(f"  {line}\n", style=style)
    drawn.rstrip()
    return drawn


def _folded(text: Text, limit: int | None) -> Text:
    lines = text.split("\n")
    if limit is None or len(lines) <= limit + 1:
        return text
    shown = Text("\n").join(lines[:limit])
    shown.append(f"\n... {len(lines) - limit:,} more lines (Ctrl+O shows them)", style="dim italic")
    return shown


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 3, 10)]}..."


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _object(arguments: object) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - loaded already wherever there is a call

    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}
