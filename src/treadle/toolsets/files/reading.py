"""The read-only file tools of one folder: grep, glob, read, list. Writes nothing; nothing outside the folder is reached."""

from collections.abc import Iterable
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO

from treadle.tools import JsonObject, Tool, ToolContext, ToolOutput
from treadle.toolsets.files.looking import looking
from treadle.toolsets.files.root import Entry, Opened, Root, place_of, refusal, shown, spelled, split
from treadle.toolsets.files.schemas import FOLDER_ROOTED, PATTERN, listing_schema
from treadle.toolsets.files.search import grep_tool
from treadle.toolsets.files.seats import give_way, seated
from treadle.toolsets.files.seen import digest_of, fact_name
from treadle.toolsets.files.text import Line, lines, text_stream
from treadle.toolsets.files.walk import Glob, literal_folders, walk

__all__ = ["file_tools", "glob_tool", "list_tool", "read_tool"]

_MAX_PATHS = 500
_MAX_LINES = 2000
_MAX_LINE_BYTES = 2000
_MAX_OUTPUT_CHARS = 40_000
_LINES_BETWEEN_LOOKS = 1000
_PATH: JsonObject = {"type": "string", "default": ".", "description": "Folder, relative to the root folder."}


def file_tools(root: str | Path) -> tuple[Tool, ...]:
    """Return grep, glob, read and list over one folder. All are `read`: they run side by side and are safe to repeat.

    Whatever the model asks for, only what lies in the folder is opened: `..`, absolute paths, siblings whose name begins
    alike, links that lead out, devices and pipes are refused with `{"error": ...}` and nothing is read.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=file_tools("."))

    Args:
        root: The folder. A relative one is taken from the working directory of this moment.

    Raises:
        ConfigurationError: There is no such folder.
    """
    guard = Root(root)
    return grep_tool(guard), glob_tool(guard), read_tool(guard), list_tool(guard)


def glob_tool(root: Root) -> Tool:
    """Return the `glob` tool over one folder. Its result is `{"output": "a.py\\nsrc/b.py", "count": 2}`."""
    return looking(
        root,
        name="glob",
        description=(
            "Find files by name pattern. Use it when you know what a file is called; use grep to search in files, and "
            "list to see one folder.\nOutput: one path per line, sorted; files only; `count` is their number, at most "
            f"{_MAX_PATHS}. {FOLDER_ROOTED} Hidden folders, node_modules, venv, site-packages and __pycache__ are left "
            "out unless the pattern or path names them."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {
                    **PATTERN,
                    "description": "Such as *.md, src/**/*.py or **/*.{ts,tsx}. ** stands for any number of folders.",
                },
                "path": {**_PATH, "description": "Folder to which the pattern is relative."},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
        output_schema=listing_schema(),
        run=partial(_glob, root),
        subjects=lambda given: {
            "path": root.subject(given.get("path", "."), extent="tree", below=literal_folders(given.get("pattern", "")))
        },
        examples=({"pattern": "**/*.py"},),
    )


def read_tool(root: Root) -> Tool:
    """Return the `read` tool over one folder. Its result is `{"output": "first\\nsecond", "count": 2}`.

    While there is more, `next_offset` says where to continue.
    """
    return looking(
        root,
        name="read",
        description=(
            f"Read a text file by lines. Use it when you know the file; use grep first to find the place in a large one, and list for folders.\nOutput: the lines as they are; `count` is their number, at most {_MAX_LINES} "
            f"and about {_MAX_OUTPUT_CHARS} characters; lines over {_MAX_LINE_BYTES} bytes are cut. `next_offset` is set if the file continues: call again with it as `offset`. {FOLDER_ROOTED} Not for binary files."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "File, relative to the root folder."},
                "offset": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _MAX_LINES,
                    "default": _MAX_LINES,
                    "description": "Maximum number of lines to return.",
                },
            },
            "required": ["path"],
            "additionalProperties": False,
        },
        output_schema=listing_schema(next_offset={"type": "integer", "minimum": 2}),
        run=partial(_read, root),
        resources=lambda given: {root.resource(given["path"]): "read"},
        subjects=lambda given: {"path": root.subject(given["path"])},
        examples=({"path": "README.md"}, {"path": "src/main.c", "offset": 100, "limit": 50}),
    )


def list_tool(root: Root) -> Tool:
    """Return the `list` tool over one folder. Its result is `{"output": "notes.txt (120 bytes)\\nsrc/", "count": 2}`."""
    return looking(
        root,
        name="list",
        description=(
            "List one folder, hidden names included. Use it to look around; use glob to find files at any depth.\n"
            "Output: one name per line, sorted; folders end in /, files show their size, links end in @; `count` is "
            f"the number of lines, at most {_MAX_PATHS}. {FOLDER_ROOTED}"
        ),
        parameters={"type": "object", "properties": {"path": _PATH}, "additionalProperties": False},
        output_schema=listing_schema(),
        run=partial(_list, root),
        subjects=lambda given: {"path": root.subject(given.get("path", "."), extent="children")},
    )


def _glob(root: Root, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    pattern, path = arguments["pattern"], arguments.get("path", ".")
    if pattern.startswith("/") or ".." in split(pattern):
        raise refusal(f"Outside the root folder: {shown(pattern)}. Put the folder in `path`.", "outside_root")
    with root.open(path, place=place_of(ctx)) as opened:
        folder = _folder_names(opened, path)
    glob = Glob(pattern)
    files = takewhile(lambda _: not ctx.cancelled, walk(root, folder, keep=glob.folders))
    found = (spelled("/".join(names)) for names in files if glob.matches(names[len(folder) :]))
    return _bounded(found, "Narrow the pattern or the path.")


def _list(root: Root, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    path = arguments.get("path", ".")
    with seated(), root.open(path, place=place_of(ctx)) as opened:
        _folder_names(opened, path)
        entries = root.entries(opened)
    return _bounded(map(_entry_line, entries), "Use glob with a pattern to see the others.")


def _read(root: Root, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    path, offset, limit = arguments["path"], arguments.get("offset", 1), arguments.get("limit", _MAX_LINES)
    with seated(), root.open(path, place=place_of(ctx)) as opened:
        if opened.is_folder:
            raise refusal(f"{shown(path)} is a folder. Use list to see what it holds.", "is_a_folder")
        stream = text_stream(opened)
        if stream is None:
            raise refusal(
                f"{shown(path)} is a binary file of {opened.size} bytes; only text can be read.", "binary_file"
            )
        seen = digest_of(opened)
        found = _read_lines(stream, offset, limit, ctx)
        return ToolOutput(data=found, facts=None if seen is None else {"files": {fact_name(root, opened.names): seen}})


def _read_lines(stream: BinaryIO, offset: int, limit: int, ctx: ToolContext) -> JsonObject:
    found: list[str] = []
    chars, total = 0, 0

    def is_over() -> bool:
        give_way()
        return ctx.cancelled

    for total, line in enumerate(lines(stream, keep_bytes=_MAX_LINE_BYTES, is_over=is_over), start=1):
        if total % _LINES_BETWEEN_LOOKS == 0 and is_over():
            break
        if total < offset:
            continue
        text = _marked(line)
        if len(found) >= limit or (found and chars + len(text) > _MAX_OUTPUT_CHARS):
            return _continued(found, next_offset=total)
        found.append(text)
        chars += len(text)
    result: JsonObject = {"output": "\n".join(found), "count": len(found)}
    if not found:
        result["hint"] = (
            f"The file has {total} lines; there is none at offset {offset}." if total else "The file is empty."
        )
    return result


def _marked(line: Line) -> str:
    return f"{line.text}… [{line.dropped_bytes} more bytes]" if line.dropped_bytes else line.text


def _continued(found: list[str], *, next_offset: int) -> JsonObject:
    return {
        "output": "\n".join(found),
        "count": len(found),
        "next_offset": next_offset,
        "hint": f"The file continues. Read again with offset {next_offset}.",
    }


def _folder_names(opened: Opened, path: str) -> tuple[str, ...]:
    if not opened.is_folder:
        raise refusal(f"{shown(path)} is a file. Use read to see what it holds.", "not_a_folder")
    return opened.names


def _entry_line(entry: Entry) -> str:
    name = spelled(entry.name)
    if entry.is_folder:
        return name + "/"
    if entry.is_file:
        return f"{name} ({entry.size} bytes)"
    return name + ("@" if entry.is_link else " (neither file nor folder)")


def _bounded(found: Iterable[str], hint: str) -> JsonObject:
    """Return the first lines within the bounds, and say when there are more."""
    first = list(islice(found, _MAX_PATHS + 1))
    kept = first[:_MAX_PATHS]
    while kept and sum(map(len, kept)) > _MAX_OUTPUT_CHARS:
        kept = kept[: len(kept) // 2]
    result: JsonObject = {"output": "\n".join(kept), "count": len(kept)}
    if len(kept) < len(first):
        result |= {"truncated": True, "hint": f"There are more than {len(kept)}. {hint}"}
    return result
