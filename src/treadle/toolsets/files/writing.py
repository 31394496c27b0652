"""The tools that change the files of one folder: write and edit. A file is changed only as the model has last seen it."""

from functools import partial
from pathlib import Path
from typing import Any

from treadle.errors import InvalidArguments
from treadle.tools import JsonObject, Tool, ToolContext, ToolOutput
from treadle.toolsets.files.editing import Edit, TextFile, edited, reverted
from treadle.toolsets.files.placing import Place, place, replace
from treadle.toolsets.files.reviewing import edits_of, review
from treadle.toolsets.files.root import Root, place_of, refusal, shown
from treadle.toolsets.files.schemas import ERROR_SCHEMA, FOLDER_ROOTED, PATH_NAMES
from treadle.toolsets.files.seats import seated
from treadle.toolsets.files.seen import digest, fact_name, seen_digest

__all__ = ["edit_tool", "write_tool", "writing_tools"]

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

_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {
        "output": {"type": "string"},
        "bytes": {"type": "integer", "minimum": 0},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    },
    "required": ["output", "bytes"],
    "additionalProperties": False,
}


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
        parameters={
            "type": "object",
            "properties": {
                "path": _PATH,
                "content": {"type": "string", "maxLength": _MAX_BYTES, "description": "The whole text of the file."},
            },
            "required": ["path", "content"],
            "additionalProperties": False,
        },
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
        parameters={
            "type": "object",
            "properties": {
                "path": _PATH,
                "old_text": _TEXT,
                "new_text": _NEW,
                "all": _ALL,
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": _MAX_EDITS,
                    "description": "Several changes, each applied to the result of the previous one.",
                    "items": {
                        "type": "object",
                        "properties": {"old_text": _TEXT, "new_text": _NEW, "all": _ALL},
                        "required": ["old_text", "new_text"],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["path"],
            "additionalProperties": False,
        },
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
        resources=partial(_resources, root),
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


def _resources(root: Root, arguments: JsonObject) -> dict[str, str]:
    return {root.resource(arguments["path"]): "write"}


def _write(root: Root, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    path, text = arguments["path"], arguments["content"]
    with seated(), place(root, path, makes_folders=True, names=place_of(ctx)) as at:
        old = at.read(max_bytes=_MAX_BYTES)
        content = _encoded(text, path) if old is None else TextFile.parse(old, path).content(text, path)
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


def _encoded(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refusal(
            f"The content for {shown(path)} has half a surrogate pair, which is not text.", "invalid_text"
        ) from error


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))
