"""Reviewing: what a write or an edit would change, as a unified diff, for the person who is asked. Reads one file and changes nothing."""

import difflib
import os
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.errors import Rejected
from treadle.tools import JsonObject, Preview, Review
from treadle.toolsets.files.editing import Edit, TextFile, edited
from treadle.toolsets.files.root import Opened, Root, refusal, shown

__all__ = ["diff", "edits_of", "review"]

_MAX_BYTES = 2_000_000
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
    before, after = _lines(old), _lines(new)
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
    """Return what stands in a file; None where there is none."""
    try:
        with root.open(path) as opened:
            _check(opened, path)
            return os.pread(opened.descriptor, _MAX_BYTES, 0)
    except Rejected as refused:
        if refused.code == "not_found":
            return None
        raise


def _check(opened: Opened, path: str) -> None:
    if opened.is_folder:
        raise refusal(f"{shown(path)} is a folder.", "is_a_folder")
    if opened.size > _MAX_BYTES:
        raise refusal(f"{shown(path)} has {opened.size:,} bytes, more than {_MAX_BYTES:,}.", "too_large")


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


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends. Only a line feed ends one, as in the file."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
