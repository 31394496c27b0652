"""The tools that change the files of one folder: write and edit. A file is changed only as the model has last seen it."""

import difflib
import os
import re
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.errors import InvalidArguments, Rejected
from treadle.fields import checked
from treadle.tools import JsonObject, Preview, Review, Tool, ToolContext, ToolOutput
from treadle.tools.tool import closed_schema
from treadle.toolsets.files.root import (
    ERROR_SCHEMA,
    FOLDER_ROOTED,
    PATH_NAMES,
    Opened,
    Place,
    Root,
    place,
    place_of,
    refusal,
    replace,
    seated,
    shown,
)
from treadle.toolsets.files.text import digest, fact_name, seen_digest

__all__ = [
    "Edit",
    "TextFile",
    "diff",
    "edit_tool",
    "edited",
    "edits_of",
    "reverted",
    "review",
    "write_tool",
    "writing_tools",
]


# --- Edit a text: replace what is there, once or everywhere, with its line ends and encoding kept. Opens nothing.

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
    """What is there now, to the letter."""
    new_text: str
    """The text to replace it with."""
    all: bool = False
    """Whether every place is replaced; else there must be just one."""


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A text as it is in a file: characters, and what bytes they are written in."""

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


# --- Reviewing: what a write or an edit would change, as a unified diff, for the person who is asked. Reads one file
# and changes nothing.

_MAX_REVIEWED_BYTES = 2_000_000
"""Of a file that is compared with what would be written. Of a larger one, the new text is shown."""
_MAX_COMPARED = 4_000_000
"""Pairs of lines that are compared: beyond that the changed part is shown as one block, because comparing takes too long."""
_CONTEXT = 3


def review(root: Root, arguments: JsonObject, facts: JsonObject) -> Review:
    """Return what a call of `write` or `edit` would change. Never raises for the file: a file that cannot be read is said to be so."""
    path = arguments["path"]
    is_edit = "content" not in arguments
    try:
        old = _read(root, path)
    except Rejected as refused:
        text = f"The file cannot be compared: {refused}"
        return Review(action=_action(is_edit, exists=True), target=_target(root, path), preview=_text(text))
    action = _action(is_edit, exists=old is not None)
    rollback = "Write the old content again: the diff holds it." if old is not None else "Delete the file."
    expected = f"The file {shown(path)} has the new content, whole; if the write fails, it is unchanged."
    return Review(
        action=action,
        target=_target(root, path),
        preview=_preview(arguments, old, shown(path)),
        expected_result=expected,
        rollback=rollback,
    )


def edits_of(arguments: JsonObject) -> list[Edit]:
    """Return the replacements that the arguments of an `edit` ask for."""
    return [msgspec.convert(one, Edit) for one in arguments.get("edits", [])] or [
        Edit(old_text=arguments["old_text"], new_text=arguments["new_text"], all=arguments.get("all", False))
    ]


def diff(old: str, new: str, path: str) -> str:
    """Return what changes from one text to another, as a unified diff. Takes a time that is bounded by their length."""
    before, after = _review_lines(old), _review_lines(new)
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    sizes = (len(before) - first - last, len(after) - first - last)
    if sizes[0] * sizes[1] <= _MAX_COMPARED:
        lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=_CONTEXT)
        return "\n".join(map(_whole, lines))
    head = before[max(first - _CONTEXT, 0) : first]
    tail = before[len(before) - last : len(before) - last + _CONTEXT]
    start = first - len(head) + 1
    counts = [size + len(head) + len(tail) for size in sizes]
    block = [
        f"--- a/{path}\n",
        f"+++ b/{path}\n",
        f"@@ -{start},{counts[0]} +{start},{counts[1]} @@\n",
        *(f" {line}" for line in head),
        *(f"-{line}" for line in before[first : len(before) - last]),
        *(f"+{line}" for line in after[first : len(after) - last]),
        *(f" {line}" for line in tail),
    ]
    return "\n".join(map(_whole, block))


def _preview(arguments: JsonObject, old: bytes | None, path: str) -> Preview:
    new_text = arguments.get("content")
    try:
        file = TextFile(text="") if old is None else TextFile.parse(old, path)
        if new_text is None:
            if old is None:
                return _text("The file does not exist: the edit would be refused.")
            new_text, _ = edited(file, edits_of(arguments), path)
        is_same = file.content(new_text, path) == old
    except Rejected as refused:
        return _text(f"The call would be refused: {refused.body['error']}")
    if is_same:
        return _text("The file has this content already.")
    return _compared(file, TextFile(text=file.fitted(new_text)), path)


def _compared(old: TextFile, new: TextFile, path: str) -> Preview:
    """Return what changes between two texts. An end of a line that is unlike the others of its text is shown like any other character."""
    if not old.text:
        return Preview(kind="diff", text=diff("", new.text, path))
    before, after = (one.text.replace(one.line_end, "\n") for one in (old, new))
    if before.replace("\r\n", "\n") == after.replace("\r\n", "\n"):
        return _text("Only the ends of lines change.")
    found = diff(before, after, path)
    has_other_ends = "\n" in before and "\n" in after and old.line_end != new.line_end
    return Preview(kind="diff", text=f"The ends of all lines change.\n{found}" if has_other_ends else found)


def _read(root: Root, path: str) -> bytes | None:
    """Return what is in a file; None where there is none."""
    try:
        with root.open(path) as opened:
            _check_review(opened, path)
            return os.pread(opened.descriptor, _MAX_REVIEWED_BYTES, 0)
    except Rejected as refused:
        if refused.code == "not_found":
            return None
        raise


def _check_review(opened: Opened, path: str) -> None:
    if opened.is_folder:
        raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
    if opened.size > _MAX_REVIEWED_BYTES:
        raise refusal(f"{shown(path)} has {opened.size:,} bytes, more than {_MAX_REVIEWED_BYTES:,}.", "too_large")


def _target(root: Root, path: str) -> str:
    return root.subject(path).names[0]


def _action(is_edit: bool, *, exists: bool) -> Literal["Edit a file", "Replace a file", "Create a file"]:
    if is_edit:
        return "Edit a file"
    return "Replace a file" if exists else "Create a file"


def _text(text: str) -> Preview:
    return Preview(kind="text", text=text)


def _whole(line: str) -> str:
    """Return a line of a diff without its end. One that ends without a line feed says so."""
    if line.endswith("\n"):
        return line[:-1]
    return f"{line}\n\\ No newline at end of file"


def _review_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends. Only a line feed ends one, as in the file."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


# --- The tools that change the files of one folder: write and edit. A file is changed only as the model has last seen
# it.

_MAX_BYTES = 20_000_000
_MAX_EDITS = 100
_PATH: JsonObject = {"type": "string", "minLength": 1, "description": "File, relative to the root folder."}
_TEXT: JsonObject = {
    "type": "string",
    "minLength": 1,
    "description": "Exact text in the file, including spaces and line breaks.",
}
_NEW: JsonObject = {"type": "string", "description": "The text to replace it with."}
_ALL: JsonObject = {"type": "boolean", "default": False, "description": "Replace every occurrence, not just one."}
_EDIT_NAMES = {**PATH_NAMES, "old_string": "old_text", "new_string": "new_text", "replace_all": "all"}

_OUTPUT: JsonObject = closed_schema(
    ["output", "bytes"],
    output={"type": "string"},
    bytes={"type": "integer", "minimum": 0},
    lines={"type": "array", "items": {"type": "integer", "minimum": 1}},
)


@checked
def writing_tools(root: str | Path) -> tuple[Tool, ...]:
    """Return write and edit over one folder. Use them beside `file_tools` of the same folder.

    Both ask by default, as every tool that changes something does. A file that exists is changed only if the model has read it
    and nobody has changed it since; a write is whole or nothing, and keeps mode, owner, encoding and line ends.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=[*file_tools("."), *writing_tools(".")])

    Args:
        root: The folder. A relative one is taken from the working directory of this moment.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    guard = Root(root)
    return write_tool(guard), edit_tool(guard)


def write_tool(root: Root) -> Tool:
    """Return the `write` tool over one folder."""
    return _changing(
        root,
        name="write",
        description=(
            "Write a whole file: create it, or replace one that you have read. Use edit to change part of a file.\n"
            f"Missing folders are created. An existing file must have been read in this session, and must not have changed since. Line endings and encoding of an existing file are kept. {FOLDER_ROOTED}"
        ),
        parameters=closed_schema(
            ["path", "content"],
            path=_PATH,
            content={"type": "string", "maxLength": _MAX_BYTES, "description": "The whole text of the file."},
        ),
        run=partial(_write, root),
        aliases=PATH_NAMES,
        validate=partial(_check_file, root),
        examples=({"path": "notes/today.md", "content": "# Today\n"},),
    )


def edit_tool(root: Root) -> Tool:
    """Return the `edit` tool over one folder."""
    return _changing(
        root,
        name="edit",
        description=(
            "Replace text in a file that you have read. Pass `old_text` and `new_text`, or `edits` for several changes to one file, which are applied together or not at all.\n`old_text` must occur exactly once unless `all` is set: include enough surrounding lines. Use write for a new file. The file must have been read in this session, and must not have changed since. "
            f"Output: what was changed, and in which lines. {FOLDER_ROOTED} Not for binary files."
        ),
        parameters=closed_schema(
            ["path"],
            path=_PATH,
            old_text=_TEXT,
            new_text=_NEW,
            all=_ALL,
            edits={
                "type": "array",
                "minItems": 1,
                "maxItems": _MAX_EDITS,
                "description": "Several changes, each applied to the result of the previous one.",
                "items": closed_schema(["old_text", "new_text"], old_text=_TEXT, new_text=_NEW, all=_ALL),
            },
        ),
        run=partial(_edit, root),
        aliases=_EDIT_NAMES,
        validate=partial(_check_edits, root),
        examples=({"path": "src/main.py", "old_text": "retries = 3", "new_text": "retries = 5"},),
    )


def _changing(root: Root, **own: Any) -> Tool:  # Any: the fields in which write and edit differ
    """Return a tool that changes the one file which its path names."""
    return Tool(
        output_schema=_OUTPUT,
        error_schema=ERROR_SCHEMA,
        effect="idempotent",
        permission="ask",
        risk="write_local",
        review=partial(review, root),
        timeout=60.0,
        resources=lambda given: {root.resource(given["path"]): "write"},
        subjects=lambda given: {"path": root.subject(given["path"])},
        **own,
    )


def _check_file(root: Root, arguments: JsonObject) -> None:
    path = arguments["path"]
    if path.endswith(("/", "/.", "/..")) or path in (".", ".."):
        raise InvalidArguments(f"{shown(path)} names a folder. Give the path of a file; missing folders are made.")
    root.check(path)


def _check_edits(root: Root, arguments: JsonObject) -> None:
    has_one = "old_text" in arguments and "new_text" in arguments
    has_part = "old_text" in arguments or "new_text" in arguments or arguments.get("all", False)
    if "edits" in arguments and has_part:
        raise InvalidArguments("Give either `edits`, or `old_text` and `new_text`; not both.")
    if "edits" not in arguments and not has_one:
        raise InvalidArguments("Give `old_text` and `new_text`, or `edits` with several changes.")
    _check_file(root, arguments)


def _write(root: Root, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    path, text = arguments["path"], arguments["content"]
    with seated(), place(root, path, makes_folders=True, names=place_of(ctx)) as at:
        old = at.read(max_bytes=_MAX_BYTES)
        file = TextFile(text="") if old is None else TextFile.parse(old, path)
        content = file.content(text, path)
        if old == content:
            return _done(root, at, content, f"{shown(path)} already has this content.")
        if old:
            _check_seen(root, at, old, ctx, path)
        replace(at, content)
        verb = "Wrote" if old is None else "Replaced"
        return _done(
            root, at, content, f"{verb} {shown(path)}: {len(content):,} bytes, {_lines(text)} lines.{_parted(at)}"
        )


def _edit(root: Root, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    path = arguments["path"]
    edits = edits_of(arguments)
    with seated(), place(root, path, names=place_of(ctx)) as at:
        old = at.read(max_bytes=_MAX_BYTES)
        if old is None:
            raise refusal(f"File not found: {shown(path)}. Use write to make a new file.", "not_found")
        file = TextFile.parse(old, path)
        if seen_digest(ctx, root, at.names) != digest(old) and _was_made(root, at, file, edits, ctx):
            return _done(root, at, old, f"{shown(path)} already has this change.")
        _check_seen(root, at, old, ctx, path)
        text, lines = edited(file, edits, path)
        content = file.content(text, path)
        replace(at, content)
        places = f"{len(lines)} places" if len(lines) > 1 else "1 place"
        return _done(root, at, content, f"Edited {shown(path)} in {places}.{_parted(at)}", lines=lines[:_MAX_EDITS])


def _check_seen(root: Root, at: Place, old: bytes, ctx: ToolContext, path: str) -> None:
    """Refuse to change a file that the model has not seen as it is."""
    seen = seen_digest(ctx, root, at.names)
    if seen is None:
        raise refusal(f"{shown(path)} exists and has not been read in this session. Read it first.", "not_read")
    if seen != digest(old):
        raise refusal(f"{shown(path)} has changed since it was read. Read it again.", "stale")


def _was_made(root: Root, at: Place, file: TextFile, edits: list[Edit], ctx: ToolContext) -> bool:
    """Whether the file is what these edits make of the file that the model has seen: the call was carried out, and nobody noted it."""
    seen = seen_digest(ctx, root, at.names)
    if seen is None:
        return False
    return any(digest(file.encoded(before)) == seen for before in reverted(file.text, edits) if before != file.text)


def _done(root: Root, at: Place, content: bytes, said: str, *, lines: list[int] | None = None) -> ToolOutput:
    data: JsonObject = {"output": said, "bytes": len(content)}
    if lines:
        data["lines"] = lines
    return ToolOutput(data=data, facts={"files": {fact_name(root, at.names): digest(content)}})


def _parted(at: Place) -> str:
    """Say what happened to a file's other names (hard links). The file is replaced as a whole, so that nobody ever finds half of it."""
    others = 0 if at.status is None else at.status.st_nlink - 1
    if others < 1:
        return ""
    return f" The file had {others} other {'name' if others == 1 else 'names'} (hard links), which {'has' if others == 1 else 'have'} the old content still."


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))
