"""Edit a text: replace what stands there, once or everywhere, with its line ends and encoding kept. Opens nothing."""

import difflib
import re
from collections.abc import Sequence
from itertools import islice

import msgspec

from treadle.toolsets.files.root import refusal, shown

__all__ = ["Edit", "TextFile", "edited", "reverted"]

_MARKS = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_LINE_ENDS = ("\r\n", "\r")
_LINE_END = r"(?:\r\n|\r(?!\n)|(?<!\r)\n)"
_MAX_CHARACTERS = 20_000_000
"""Of an edited text. A larger file could not be edited again, and might not fit into memory."""
_MAX_PLACES = 10
_MAX_TRIES = 100
_MAX_NEAR_LINES = 5000
_SNIFFED_BYTES = 8192


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One replacement."""

    old_text: str
    """What stands there now, to the letter."""
    new_text: str
    """The text to replace it with."""
    all: bool = False
    """Whether every place is replaced; else there must be just one."""


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A text as it stands in a file: characters, and what bytes they are written in."""

    text: str
    """Without a byte order mark. Bytes that are not UTF-8 stand in it as lone surrogates, and are written back as they were."""
    has_mark: bool = False
    """Whether the file begins with a byte order mark."""
    encoding: str = "utf-8"
    """The encoding: `utf-8`, or by its byte order mark `utf-16-le` or `utf-16-be`."""

    @staticmethod
    def parse(content: bytes, path: str) -> "TextFile":
        """Read the bytes of a file.

        Raises:
            Rejected: The file is binary.
        """
        encoding = next((name for name, mark in _MARKS.items() if content.startswith(mark)), None)
        if encoding in ("utf-16-le", "utf-16-be"):
            try:
                return TextFile(text=content[2:].decode(encoding), has_mark=True, encoding=encoding)
            except UnicodeDecodeError:
                encoding = None
        if b"\0" in content[:_SNIFFED_BYTES]:
            raise refusal(
                f"{shown(path)} is a binary file of {len(content)} bytes; only text can be edited.", "binary_file"
            )
        body = content if encoding is None else content[len(_MARKS["utf-8"]) :]
        return TextFile(text=body.decode("utf-8", "surrogateescape"), has_mark=encoding is not None)

    @property
    def is_utf8(self) -> bool:
        """Whether all of it is UTF-8."""
        return not any("\udc80" <= character <= "\udcff" for character in self.text)

    @property
    def line_end(self) -> str:
        """What every line ends with; a line feed where they differ."""
        if "\r\n" in self.text and self.text.count("\n") == self.text.count("\r\n"):
            return "\r\n"
        return "\r" if "\r" in self.text and "\n" not in self.text else "\n"

    def encoded(self, text: str) -> bytes:
        """Return the bytes of a text in this file's encoding, its byte order mark before them."""
        body = text.encode("utf-8", "surrogateescape") if self.encoding == "utf-8" else text.encode(self.encoding)
        return (_MARKS[self.encoding] if self.has_mark else b"") + body

    def fitted(self, text: str) -> str:
        """Return a text as it would stand in this file: with its line ends, and without a byte order mark."""
        if self.has_mark:
            text = text.removeprefix("\ufeff")
        return text if self.line_end == "\n" else text.replace("\r\n", "\n").replace("\n", self.line_end)

    def content(self, text: str, path: str) -> bytes:
        """Return the bytes of this file with another text: the same mark, encoding and line ends.

        Raises:
            Rejected: The file is in another encoding, and the text has characters beyond ASCII that this one did not have.
        """
        text = self.fitted(text)
        if not self.is_utf8 and not set(text) - set(self.text) <= set(map(chr, range(128))):
            raise refusal(
                f"{shown(path)} is not UTF-8, and the new text has characters beyond ASCII. Use ASCII only, or convert the file first.",
                "not_utf8",
            )
        try:
            return self.encoded(text)
        except UnicodeEncodeError as error:
            raise refusal(
                f"The new text for {shown(path)} has half a surrogate pair, which is not text.", "invalid_text"
            ) from error


def edited(file: TextFile, edits: Sequence[Edit], path: str) -> tuple[str, list[int]]:
    """Return the text after all edits, each on the result of the one before, and the lines at which they were made.

    Raises:
        Rejected: A text does not occur, occurs more often than once without `all`, is not changed, or would become too large. Nothing is
            edited then.
    """
    text = file.text
    lines: list[int] = []
    for number, edit in enumerate(edits, 1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        places = _places(text, edit)
        _check(text, edit, [start for start, _ in places], f"{which}{shown(path)}")
        lines += _lines_of(text, [start for start, _ in places])
        text = _replaced(text, places, edit, f"{which}{shown(path)}")
    return text, lines


def reverted(text: str, edits: Sequence[Edit]) -> "list[str]":
    """Return the texts from which these edits may have made this one: one for each place where the last one may have been."""
    found = [text]
    for edit in reversed(edits):
        found = list(islice((before for one in found for before in _before(one, edit)), _MAX_TRIES))
    return found


def _before(text: str, edit: Edit) -> list[str]:
    forms = {(edit.old_text, edit.new_text), *(_with_line_ends(edit, line_end) for line_end in _LINE_ENDS)}
    found: list[str] = []
    for old, new in forms:
        if edit.all:
            found.append(text.replace(new, old) if new else text)
        elif new:
            at = [one.start() for one in islice(re.finditer(re.escape(new), text), _MAX_TRIES)]
            found += [text[:start] + old + text[start + len(new) :] for start in at]
    return found


def _with_line_ends(edit: Edit, line_end: str) -> tuple[str, str]:
    old, new = (one.replace("\r\n", "\n").replace("\n", line_end) for one in (edit.old_text, edit.new_text))
    return old, new


def _places(text: str, edit: Edit) -> list[tuple[int, int]]:
    """Return where a text stands, whatever its lines end with there: a model sees no line ends, and writes `\\n`."""
    pattern = _LINE_END.join(map(re.escape, edit.old_text.replace("\r\n", "\n").split("\n")))
    found = [one.span() for one in re.finditer(pattern, text)]
    if len(found) == 1 and not edit.all and (other := re.compile(pattern).search(text, found[0][0] + 1)) is not None:
        found.append(other.span())  # it overlaps the first: which of the two is meant is not clear
    return found


def _lines_of(text: str, places: Sequence[int]) -> list[int]:
    found: list[int] = []
    line, last = 1, 0
    for at in places:
        line += text.count("\n", last, at)
        last = at
        found.append(line)
    return found


def _replaced(text: str, places: Sequence[tuple[int, int]], edit: Edit, where: str) -> str:
    size = len(text) + len(places) * (len(edit.new_text) - len(edit.old_text))
    if size > _MAX_CHARACTERS:
        raise refusal(
            f"{where}: the file would have {size:,} characters, more than {_MAX_CHARACTERS:,}. Nothing was changed.",
            "too_large",
        )
    parts: list[str] = []
    last = 0
    for start, end in places:
        parts += (text[last:start], _in_line_ends_of(text[start:end], edit))
        last = end
    return "".join((*parts, text[last:]))


def _in_line_ends_of(place: str, edit: Edit) -> str:
    """Return the new text with the line end of the place where the old one stands."""
    if place == edit.old_text:
        return edit.new_text
    found = re.search(_LINE_END, place)
    return edit.new_text if found is None else _with_line_ends(edit, found[0])[1]


def _check(text: str, edit: Edit, places: Sequence[int], where: str) -> None:
    if not places:
        near = _near(text, edit.old_text)
        advice = f" Line {near[0]} is similar: {shown(near[1])}" if near else " Read the file again."
        raise refusal(f"{where}: `old_text` does not occur in the file. Nothing was changed.{advice}", "text_not_found")
    if len(places) > 1 and not edit.all:
        lines = [str(text.count("\n", 0, at) + 1) for at in places[:_MAX_PLACES]]
        more = ", …" if len(places) > _MAX_PLACES else ""
        raise refusal(
            f"{where}: `old_text` occurs {len(places)} times, in lines {', '.join(lines)}{more}. Nothing was changed. "
            "Give more lines around the place, or set `all` to replace each.",
            "text_not_unique",
        )
    if edit.old_text == edit.new_text:
        raise refusal(f"{where}: `old_text` and `new_text` are equal. Nothing was changed.", "nothing_to_change")


def _near(text: str, wanted: str) -> tuple[int, str] | None:
    """Return the line that is most like the first line that was looked for."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    lines = {line.strip(): number for number, line in enumerate(islice(text.splitlines(), _MAX_NEAR_LINES), 1)}
    close = (
        difflib.get_close_matches(first[:200], [one for one in lines if len(one) <= 400], n=1, cutoff=0.7)
        if first
        else []
    )
    return (lines[close[0]], close[0]) if close else None
