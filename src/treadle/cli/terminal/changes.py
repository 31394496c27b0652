"""Changes: a unified diff as a person reads it: numbered lines, colours of syntax, and the changed words marked. Reads no file."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from rich.style import Style
from rich.syntax import ANSI_DARK, ANSISyntaxTheme, Syntax
from rich.text import Text

__all__ = ["CODE", "counts_of", "diff_of", "drawn_diff"]

_Kind: TypeAlias = Literal["same", "removed", "added", "hunk", "file", "words"]
_KINDS: dict[str, _Kind] = {" ": "same", "": "same", "-": "removed", "+": "added"}
_LOOKS = {"removed": ("- ", "red"), "added": ("+ ", "green")}
CODE = ANSISyntaxTheme({token: style + Style(underline=False) for token, style in ANSI_DARK.items()})
"""Colours of code: those of the terminal, and nothing underlined."""
_OF_FILE = re.compile(r"diff --git |index [0-9a-f]+\.\.|--- |\+\+\+ ")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_WORD = re.compile(r"\w+|\s+|.")
_MAX_MARKED = 400
"""Characters of a line whose changed words are marked."""
_ALIKE = 0.5
"""So much of two lines must be equal: else the marks would be most of both."""


class _Row(msgspec.Struct):
    kind: _Kind
    text: str
    number: str = ""
    drawn: Text | None = None


def diff_of(tool: str, arguments: dict[str, Any], places: Sequence[int] = ()) -> str | None:
    """Return what a call of `write` or `edit` changes, as a unified diff; None for another call.

    Args:
        places: Of each edit the line at which it begins; without them the lines are counted from 1.
    """
    if tool == "write" and isinstance(arguments.get("content"), str):
        return _compared("", arguments["content"], 1)
    if tool != "edit":
        return None
    edits = arguments["edits"] if isinstance(arguments.get("edits"), list) else [arguments]
    pairs = [
        (one["old_text"], one["new_text"])
        for one in edits
        if isinstance(one, dict) and isinstance(one.get("old_text"), str) and isinstance(one.get("new_text"), str)
    ]
    starts = places if len(places) == len(pairs) else [1] * len(pairs)
    found = [_compared(old, new, start) for (old, new), start in zip(pairs, starts, strict=True)]
    return "\n".join(filter(None, found)) if pairs else None


def _compared(old: str, new: str, start: int) -> str:
    before, after = (one.split("\n") if one else [] for one in (old, new))
    if new.endswith("\n") and (not old or old.endswith("\n")):  # no line begins after the last line feed
        before, after = before[:-1], after[:-1]
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return "\n".join(
        _HUNK.sub(lambda found: _moved(found, start - 1), line, count=1) if _HUNK.match(line) else line
        for line in lines
    )


def _moved(hunk: re.Match[str], by: int) -> str:
    return f"@@ -{int(hunk[1]) + by},{hunk[2] or 1} +{int(hunk[3]) + by},{hunk[4] or 1} @@"


def counts_of(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    kinds = [row.kind for row in _rows(diff)]
    return kinds.count("added"), kinds.count("removed")


def drawn_diff(diff: str, *, path: str = "") -> list[tuple[Text, Text]]:
    """Return a unified diff as lines, each with its number before it: that of a removed line in the old file.

    Args:
        diff: Escaped.
        path: The one file that it is of, which is named elsewhere; empty where the diff names its files.
    """
    rows = [row for row in _rows(diff) if not path or row.kind != "file"]
    for row in rows if path else ():
        row.text = "..." if row.kind == "hunk" else row.text  # the numbers say where
    _colour(rows, path)
    _mark(rows)
    width = max((len(row.number) for row in rows), default=0)
    return [_line(row, width) for number, row in enumerate(rows) if number or row.kind != "hunk" or not path]


def _rows(diff: str) -> Iterator[_Row]:
    old = new = old_end = new_end = 0
    for line in diff.split("\n"):
        if old < old_end or new < new_end:
            kind = _KINDS.get(line[:1], "words")  # else: no line feed at the end of the file
            number = "" if kind == "words" else str(old if kind == "removed" else new)
            old += kind in ("same", "removed")
            new += kind in ("same", "added")
            yield _Row(kind, line[1:] if kind != "words" else line, number)
        elif begun := _HUNK.match(line):
            old, new = int(begun[1]), int(begun[3])
            old_end, new_end = old + int(begun[2] or 1), new + int(begun[4] or 1)
            yield _Row("hunk", line)
        else:
            yield _Row("file" if _OF_FILE.match(line) else "words", line)


def _colour(rows: Sequence[_Row], path: str) -> None:
    """Give the lines of each side the colours of their language: those of one side together, since a text may have several lines."""
    for sides in (("same", "added"), ("removed",)):
        of_file = path
        start = 0
        for at in range(len(rows) + 1):
            if at < len(rows) and rows[at].kind not in ("hunk", "file"):
                continue
            _highlight([row for row in rows[start:at] if row.kind in sides], of_file)
            if at < len(rows) and rows[at].kind == "file":
                of_file = rows[at].text.split("\t")[0].rpartition("/")[2]
            start = at + 1


def _highlight(rows: Sequence[_Row], path: str) -> None:
    if not rows:
        return
    text = "\n".join(row.text for row in rows)
    language = Syntax.guess_lexer(path) if path else "text"
    drawn = Syntax("", language, theme=CODE, background_color="default", word_wrap=True).highlight(text)
    for row, line in zip(rows, drawn.split("\n", allow_blank=True), strict=False):
        if line.plain == row.text:  # a lexer that drops or adds characters colours nothing
            row.drawn = line


def _mark(rows: Sequence[_Row]) -> None:
    """Mark the words that differ, where as many lines are added as are removed before them."""
    at = 0
    while at < len(rows):
        removed = _run(rows, at, "removed")
        added = _run(rows, at + removed, "added")
        if removed and removed == added:
            for number in range(at, at + removed):
                _mark_pair(rows[number], rows[number + removed])
        at += max(removed + added, 1)


def _run(rows: Sequence[_Row], at: int, kind: _Kind) -> int:
    end = at
    while end < len(rows) and rows[end].kind == kind:
        end += 1
    return end - at


def _mark_pair(old: _Row, new: _Row) -> None:
    if max(len(old.text), len(new.text)) > _MAX_MARKED:
        return
    before, after = (_WORD.findall(row.text) for row in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return
    for tag, old_first, old_last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            _mark_words(old, before, old_first, old_last)
            _mark_words(new, after, new_first, new_last)


def _mark_words(row: _Row, words: Sequence[str], first: int, last: int) -> None:
    start = sum(map(len, words[:first]))
    row.drawn = row.drawn or Text(row.text)
    row.drawn.stylize(f"bold reverse {_LOOKS[row.kind][1]}", start, start + sum(map(len, words[first:last])))


def _line(row: _Row, width: int) -> tuple[Text, Text]:
    sign, style = _LOOKS.get(row.kind, ("  ", "dim"))
    body = row.drawn or Text(row.text, style={"hunk": "cyan dim", "file": "bold"}.get(row.kind, ""))
    if row.kind in ("hunk", "file", "words"):
        sign = ""
    number = f"{row.number:>{width}} {sign}" if width else sign
    return Text.assemble((number, style), end=""), body
