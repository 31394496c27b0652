"""Markdown: what a model says, from lines of Markdown to lines of a terminal. Nothing that a person may copy is lost. Escapes nothing.

Only the marks of bold text, code and links are taken away. All others stay where the model wrote them, since a command may
have them too: `#`, `>`, `-`, `*`, `_`, `<`, `&` and `\\`. So do the ends of lines, and the indents.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

__all__ = ["Hanging", "Prose"]

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
        words = [max(_longest_word(row[number]) for row in (head, *rows)) for number in range(count)]
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


def _longest_word(text: Text) -> int:
    return max((cell_len(word) for word in text.plain.split()), default=0)
