"""Drawing: from texts, calls and results to lines of a terminal, with colours. Everything of strangers is escaped here. Writes nothing."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import StringIO
from itertools import takewhile
from types import MappingProxyType

import msgspec
from rich import box
from rich.cells import cell_len
from rich.color import Color, ColorType
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Lines
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from treadle import Approval
from treadle.cli.output.calls import (
    SpokenCall,
    ending_of,
    folded,
    object_of,
    shown_result,
    spoken,
    summary_of,
    todos_of,
)
from treadle.cli.output.text import indented, one_record, printable, shown_call, shown_span, whole_call, wrapped
from treadle.cli.terminal.board import CallView, Greeting, Group, Note, parts_of
from treadle.cli.terminal.changes import CODE, counts_of, diff_of, drawn_diff
from treadle.cli.terminal.faces import Option, ThemeName
from treadle.redaction import Redactor
from treadle.tools import Preview

__all__ = ["Drawing", "Signs"]


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
            (len(quoted), Hanging(_prefix("> ", "dim"), Prose(inner, self._depth + 1), repeats=True))
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

_FOLDED_DIFF = 24
_MIN_BESIDE = 34
"""Columns that the number of an option and what it is take at least."""
_BELOW = 8
"""Calls of agents below that are shown before somebody unfolds them."""
_BELOW_RUNNING = 4
_UNFOLD = "Ctrl+O shows them"
_BLANK_BEGINNING = re.compile(r"\A(?:[ \t]*\n)+")
_BLANK_LINES = re.compile(r"\n{3,}")
_THEME = Theme({"markdown.code": "cyan"})
_BANDS = {"dark": "color(255) on color(237)", "light": "color(16) on color(254)"}
"""Behind what a person has said. Each names both colours: it can be read whatever the background of the terminal is."""
_TONES = {"plain": "dim", "warn": "yellow", "bad": "bold red"}
_SLOW_SECONDS = 1.0
"""A call that took less has no time on its line."""
_MARKED = {"ok": "green", "failed": "red", "asks": "yellow", "waits": "dim", "runs": "yellow"}


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """The characters of a look."""

    person: str
    at: str
    result: str
    rule: str
    mark: tuple[str, str]
    """Of the program, two lines high: a piece of cloth."""
    spinner: str
    marks: dict[str, str]
    """Of calls, by how far they have come."""
    todos: dict[str, str]
    """Of a to-do list, by the state of an item."""


_SIGNS = Signs(
    person="› ",
    at="❯ ",
    result="└ ",
    rule="─",
    mark=("▚▞ ", "▞▚ "),
    spinner="⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    marks={"ok": "●", "failed": "●", "asks": "●", "waits": "○"},
    todos={"done": "✓", "in_progress": "▸", "pending": "☐"},
)
_COLOURLESS = msgspec.structs.replace(_SIGNS, marks={"ok": "✓", "failed": "✗", "asks": "?", "waits": "○"})
_ASCII = Signs(
    person="> ",
    at="> ",
    result="| ",
    rule="-",
    mark=("", ""),
    spinner="*",
    marks={"ok": "+", "failed": "x", "asks": "?", "waits": "-"},
    todos={"done": "x", "in_progress": ">", "pending": "-"},
)


class _Band:
    """Lines on a background that goes to the edge."""

    def __init__(self, inner: RenderableType, style: str) -> None:
        self._inner = inner
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._inner, options, style=console.get_style(self._style), pad=True):
            yield from line
            yield Segment.line()


class _Clean:
    """What is drawn, with nothing in it that a terminal obeys but colours, and without blanks at the ends of lines.

    Args:
        fit: Escapes a line. It is asked about whole lines: parts of an emoji may have different styles.
        theme: On a light background, colours that cannot be read there are replaced.
    """

    def __init__(self, inner: RenderableType, fit: Callable[[str], str], theme: ThemeName) -> None:
        self._inner = inner
        self._fit = fit
        self._theme = theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self._inner, options, pad=False):
            kept = [one for one in line if not one.control and one.text != "\n"]
            whole = "".join(one.text for one in kept)
            if self._fit(whole) != whole:
                kept = [Segment(self._fit(one.text), one.style) for one in kept]
            if self._theme == "light":
                kept = [Segment(one.text, one.style and _on_light(one.style)) for one in kept]
            yield from _without_tail(kept)
            yield Segment.line()


_DARKER = {
    **{bright: Color.from_ansi(bright - 8) for bright in (9, 10, 12, 13, 14)},
    **{yellow: Color.from_ansi(94) for yellow in (3, 11)},  # brown, where the terminal has 256 colours
    **{white: Color.default() for white in (7, 15)},
}
"""What replaces those of the sixteen colours that cannot be read on a light background."""


@lru_cache(maxsize=256)
def _on_light(style: Style) -> Style:
    number = None if style.color is None or style.color.type is not ColorType.STANDARD else style.color.number
    return style if number not in _DARKER else style + Style(color=_DARKER[number])


def theme_of(environment: Mapping[str, str]) -> ThemeName:
    """Return the theme that the environment asks for: `NO_COLOR`, or the background that some terminals name in `COLORFGBG`."""
    if environment.get("NO_COLOR"):
        return "none"
    return "light" if environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


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
        environment: Says which colours the terminal has, and whether the person wants them.
    """

    def __init__(self, redactor: Redactor, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self.redactor = redactor
        self._environment = environment
        self.width = 80
        self.theme = theme_of(environment)
        encoding = (getattr(sys.stdin, "encoding", None) or "utf-8").lower().replace("-", "")
        self._is_ascii = encoding in ("ascii", "ansi_x3.41968")

    @property
    def signs(self) -> Signs:
        """The characters that the terminal has; without colours their forms differ."""
        return _ASCII if self._is_ascii else _COLOURLESS if self.theme == "none" else _SIGNS

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
            code = Syntax(part, language or "text", theme=CODE, word_wrap=True, background_color="default")
            title = self._drawn(Text(info, style="dim")) if rest else ""
            drawn.append(title + self._drawn(code, fit=printable).rstrip("\n"))
        return "\n\n".join(drawn) + "\n" if drawn else ""

    def said(self, text: str) -> str:
        """Draw what the person has said, on a band of its own where there are colours."""
        has_band = self.theme != "none"
        body = Text(printable(self.redactor.text(text)), style="" if has_band else "bold")
        said = Hanging(_prefix(self.signs.person, "bold cyan"), body)
        shown: RenderableType = _Band(said, _BANDS[self.theme]) if has_band else said
        return self._drawn(shown, fit=printable)

    def greeting(self, greeting: Greeting) -> str:
        """Draw what a conversation begins with."""
        home = self._environment.get("HOME", "")
        folder = greeting.folder
        if home and (folder == home or folder.startswith(f"{home}/")):
            folder = f"~{folder[len(home) :]}"
        title = Text.assemble(("treadle", "bold"), f" {greeting.version}", (f" · {greeting.model}", "dim"))
        above, below = (_prefix(sign, "bold cyan") for sign in self.signs.mark)
        hint = Text("\n/help lists commands and keys. @ attaches a file, ! runs a command.", style="dim")
        return self._drawn(Lines(Hanging(above, title), Hanging(below, Text(folder, style="dim")), hint))

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

    def rule(self, title: str, *, end: str = "", style: str = "dim", title_style: str = "", end_style: str = "") -> str:
        """Draw a line across the terminal with a title at its begin, and one at its end."""
        sign = self.signs.rule
        left = f"{sign * 2} {title} " if title else ""
        right = f" {end} {sign}" if end else ""
        between = max(self.width - cell_len(left) - cell_len(right), 0)
        line = Text(no_wrap=True, overflow="crop")
        for part, look in (
            (left[:3], style),
            (title, title_style or style),
            (left[-1:] + sign * between + right[:1], style),
            (end, end_style or style),
            (right[-2:], style),
        ):
            line.append(part, style=look)
        return self._drawn(line)

    def panel(self, title: str, *, end: str = "", style: str = "cyan") -> str:
        """Draw the head of what a person is asked: a line across the terminal, or its title alone where that has several lines."""
        if cell_len(title) + cell_len(end) + 8 > self.width:
            return self._drawn(Text("\n".join(wrapped(one_record(title), self.width)), style=f"bold {style}"))
        return self.rule(title, end=end, style=style, title_style=f"bold {style}")

    def choice(self, key: str, says: str, *, is_chosen: bool) -> str:
        """Draw one answer to a question."""
        line = Text(one_record(self.redactor.text(says)), style="bold" if is_chosen else "")
        sign = self.signs.at if is_chosen else " " * len(self.signs.at)
        return self._drawn(Hanging(_prefix(f"{sign}{key}  ", "bold cyan" if is_chosen else "cyan"), line))

    def has_room_beside(self, width: int) -> bool:
        """Whether beside labels of a width there is room for what the options are."""
        return self.width - width >= _MIN_BESIDE

    def option(self, option: Option, *, number: int, digits: int, width: int, is_chosen: bool) -> str:
        """Draw one of several things to choose from.

        Args:
            digits: How wide the numbers are.
            width: How wide the labels are.
        """
        label = one_record(self.redactor.text(option.label))
        line = Text(label + " " * max(width - cell_len(label), 0), style="bold" if is_chosen else "")
        if self.has_room_beside(width):
            line.append(f"  {one_record(self.redactor.text(option.says))}", style="dim")
        line.truncate(max(self.width - 8, 10), overflow="ellipsis")
        sign = self.signs.at if is_chosen else " " * len(self.signs.at)
        return self._drawn(Text.assemble((f"{sign}{number:>{digits}}  ", "bold cyan" if is_chosen else "cyan"), line))

    def waiting(self, doing: str, now: float) -> str:
        """Draw what happens while there is nothing to read."""
        line = Text(no_wrap=True, overflow="ellipsis").append(f"{self._turning(now)} ", style="yellow")
        return self._drawn(line.append(doing, style="dim"))

    def diff(self, text: str, *, path: str = "") -> str:
        """Draw changes of files, as `git diff` writes them, with the number of each line: of a removed one in the old file.

        Args:
            path: The one file that they are of, where it is named elsewhere.
        """
        return self._drawn(self._changes(printable(self.redactor.text(text)), path), fit=printable)

    def todos(self, items: Sequence[tuple[str, str]], *, most: int) -> str:
        """Draw a to-do list as a checklist; of a long one the items around what is done now.

        Args:
            most: Lines that it may take.
        """
        states = [state for state, _ in items]
        at = states.index("in_progress") if "in_progress" in states else states.count("done")
        room = len(items) if len(items) <= most else max(most - 1, 1)
        first = max(0, min(at - room // 2, len(items) - room))
        drawn = [self._todo(state, text) for state, text in items[first : first + room]]
        if (left := len(items) - room) > 0:
            drawn.append(Text(f"  ... {left} more, {states.count('done')} of {len(items)} done", style="dim"))
        return self._drawn(Text("\n").join(drawn), fit=printable)

    def _todo(self, state: str, text: str) -> Text:
        sign = self.signs.todos.get(state, "-")
        looks = {"done": ("green", "dim"), "in_progress": ("bold yellow", "bold")}.get(state, ("dim", ""))
        line = Text.assemble((f"{sign} ", looks[0]), (one_record(self.redactor.text(text)), looks[1]))
        line.truncate(self.width, overflow="ellipsis")
        return line

    # --- calls

    def running(self, calls: Sequence[CallView], now: float) -> str:
        """Draw calls that are under way, one line each."""
        return "".join(
            self._drawn(self._line(call, now, "", is_cut=call.result is None))
            + self._below(call, now, most=_BELOW_RUNNING)
            for call in calls
        )

    def group(self, group: Group, *, is_folded: bool = True) -> str:
        """Draw the calls of one response, each with its result: the beginning of it, or all."""
        drawn = []
        for call in group.calls:
            drawn.append(self._drawn(self._line(call, 0.0)))
            drawn.append(self._below(call, 0.0, most=_BELOW if is_folded else None))
            drawn += [self._drawn(body) for body in self._body(call, is_folded=is_folded)]
        return "".join(drawn)

    def whole(self, call: CallView) -> str:
        """Return the whole result of a call as plain text, for a pager."""
        assert call.result is not None
        ended = f"{ending_of(call.result)}\n" if ending_of(call.result) else ""
        shown = printable(self.redactor.text(ended + shown_result(call.result)))
        return f"{shown_call(call.tool, call.arguments)}\n\n{shown}\n"

    def question(self, one: Approval) -> str:
        """Draw a call that a person decides on: a change as a diff, a line of shell with what is not in it, else all arguments."""
        if one.tool == "exit_plan" and one.preview is not None and one.preview.kind == "text":
            plan = Prose(printable(str(self.redactor.consented(one.preview.text))).strip("\n"))
            return self._drawn(_indented(plan), fit=printable)
        if one.preview is not None and one.preview.kind != "arguments":
            drawn = self._preview(one.preview, one.target)
            return drawn if one.preview.is_whole else drawn + self.entire(one.tool, one.arguments)
        tool, arguments = one.tool, one.arguments
        known = object_of(self.redactor.consented(arguments)) or {}
        if (diff := diff_of(tool, known)) is not None:
            return self._drawn(_indented(self._changes(printable(diff), str(known.get("path", "")))), fit=printable)
        if tool == "shell" and isinstance(known.get("command"), str):
            return self._drawn(self._command(known["command"], "  $ "))
        return self.entire(tool, arguments)

    def entire(self, tool: str, arguments: object) -> str:
        """Draw a call with every argument and every character."""
        found = whole_call(tool, self.redactor.consented(arguments))
        return self._drawn(_indented(Text("\n".join(found))))

    # --- parts

    def _preview(self, preview: Preview, target: str) -> str:
        text = self.redactor.consented(preview.text)
        assert isinstance(text, str)
        if preview.kind == "diff":
            return self._drawn(_indented(self._changes(printable(self.redactor.text(text)), target)), fit=printable)
        if preview.kind != "command":
            return self._drawn(_indented(Text(printable(text))))
        command, _, rest = text.partition("\n\n")
        below = self._drawn(Text(indented(rest, "    ", self.width), style="dim")) if rest else ""
        return self._drawn(self._command(command, "  $ ")) + below

    def _below(self, call: CallView, now: float, *, most: int | None) -> str:
        """Draw what the agents below have called for a call, one line each, indented; of many the last ones."""
        shown = call.below if most is None or len(call.below) <= most else call.below[-most:]
        drawn = ""
        if (left := len(call.below) - len(shown)) > 0:
            drawn = self._drawn(Text(f"  ... {left:,} earlier calls", style="dim"))
        for one in shown:
            drawn += self._drawn(self._line(one, now, "  ", is_cut=True))
        return drawn

    def _line(self, call: CallView, now: float, indent: str = "", *, is_cut: bool = False) -> RenderableType:
        mark, result = self._mark(call, now), call.result
        line = Text(no_wrap=is_cut, overflow="ellipsis")
        if call.agents:
            line.append(f"[{one_record(self.redactor.text(call.agents))}] ", style="dim")
        line.append_text(self._said(spoken(call.tool, self.redactor.value(call.arguments))))
        if call.is_edited:
            line.append(" (edited)", style="yellow")
        if result is not None:
            line.append_text(self._ended(call))
        elif call.phase == "runs":
            seconds = max(now - call.started, 0.0)
            line.append(f"  {shown_span(seconds)}" if seconds >= _SLOW_SECONDS else "", style="dim")
        else:
            line.append("  asks you after the other calls" if call.phase == "asks" else "  waiting", style="yellow")
        if call.note and result is None:
            line.append(f"  {one_record(self.redactor.text(call.note))}", style="dim")
        return Hanging(Text.assemble(indent, mark, " ", end=""), line)

    def _said(self, said: SpokenCall) -> Text:
        parts = [one_record(part) for part in (said.verb, said.object, said.more)]
        line = Text.assemble((parts[0], "bold"), f" {parts[1]}" if parts[1] else "")
        return line.append(f"  {parts[2]}" if parts[2] else "", style="dim")

    def _ended(self, call: CallView) -> Text:
        """Return what the line of a call says once it is done: what changed, how it ended where that is not well, a long time."""
        result, line = call.result, Text()
        assert result is not None
        if not result.is_error and (diff := self._diff(call)):
            added, removed = counts_of(diff)
            line.append(f"  +{added}" if added else "", style="green").append(
                f"  -{removed}" if removed else "", style="red"
            )
        if not result.is_error and (items := todos_of(call.arguments) if call.tool == "todo" else []):
            line.append(f"  {sum(state == 'done' for state, _ in items)} of {len(items)} done", style="dim")
        if result.is_error:
            line.append(f"  {result.status}", style="red")
        elif ended := ending_of(result):
            line.append(f"  {one_record(self.redactor.text(ended))}", style="red")
        took = result.duration_seconds
        return line.append(f"  {shown_span(took)}" if result.attempts and took >= _SLOW_SECONDS else "", style="dim")

    def _mark(self, call: CallView, now: float) -> Text:
        if call.phase == "runs":
            return Text(self._turning(now), style="yellow")
        result = call.result
        kind = call.phase if result is None else "failed" if result.is_error or ending_of(result) else "ok"
        return Text(self.signs.marks[kind], style=_MARKED[kind])

    def _turning(self, now: float) -> str:
        return self.signs.spinner[int(now * 10) % len(self.signs.spinner)]

    def _body(self, call: CallView, *, is_folded: bool) -> list[RenderableType]:
        result = call.result
        assert result is not None
        if not result.is_error and (diff := self._diff(call)) is not None:
            path = str((object_of(call.arguments) or {}).get("path", ""))
            shown = self._changes(printable(diff), path, most=_FOLDED_DIFF if is_folded else None)
            return [_indented(shown, "    ")] if diff else []
        if call.tool == "todo" and not result.is_error and todos_of(call.arguments):
            items = todos_of(call.arguments)
            return [] if is_folded else [_indented(Text("\n").join(self._todo(*item) for item in items), "    ")]
        text = _BLANK_BEGINNING.sub("", printable(self.redactor.text(shown_result(result))).rstrip("\n"))
        if is_folded and (summary := summary_of(result)):
            text = summary
        if not text.strip():
            return []
        lines = folded(result, text, key=_UNFOLD) if is_folded else text.split("\n")
        cut = [_cut(line, self.width - 6) if is_folded else line for line in lines]
        body = Text("\n".join(cut), style="red" if result.is_error else "dim")
        return [Hanging(_prefix(f"  {self.signs.result}", "red" if result.is_error else "dim"), body)]

    def _changes(self, diff: str, path: str, *, most: int | None = None) -> RenderableType:
        """Return changes of files, each line with its number. What does not fit in a line continues below its text."""
        lines = drawn_diff(diff, path=path)
        shown = lines if most is None or len(lines) <= most + 1 else lines[:most]
        drawn: list[RenderableType] = [Hanging(number, line) for number, line in shown]
        if left := len(lines) - len(shown):
            drawn.append(Text(f"... {left:,} more lines ({_UNFOLD})", style="dim"))
        return Lines(*drawn)

    def _diff(self, call: CallView) -> str | None:
        """Return what a call of `write` or `edit` has changed, as a diff; None for another one."""
        known = self.redactor.value(object_of(call.arguments) or {})
        data = None if call.result is None else call.result.data
        places = data.get("lines", ()) if isinstance(data, dict) else ()
        return diff_of(call.tool, known if isinstance(known, dict) else {}, places)

    def _command(self, command: str, sign: str) -> RenderableType:
        text = Syntax("", "bash", theme=CODE, word_wrap=True).highlight(printable(command))
        text.rstrip()
        return Hanging(_prefix(sign, "green"), text)

    def _drawn(self, what: RenderableType, *, width: int | None = None, fit: Callable[[str], str] = one_record) -> str:
        file = StringIO()
        console = Console(
            file=file,
            width=max(width or self.width, 20),
            force_terminal=True,
            color_system="auto",
            _environ=self._environment,
            no_color=self.theme == "none",
            theme=_THEME,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            force_interactive=False,
        )
        console.print(_Clean(what, fit, self.theme), end="")
        return file.getvalue()


def _prefix(text: str, style: str) -> Text:
    return Text.assemble((text, style), end="")


def _indented(what: RenderableType, indent: str = "  ") -> RenderableType:
    return Hanging(Text(indent, end=""), what)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 3, 10)]}..."
