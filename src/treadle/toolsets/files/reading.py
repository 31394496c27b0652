"""The read-only file tools of one folder: grep, glob, read, list. Writes nothing; nothing outside the folder is reached."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO

import msgspec

from treadle.errors import Rejected
from treadle.fields import checked
from treadle.tools import JsonObject, Tool, ToolContext, ToolOutput
from treadle.tools.tool import closed_schema
from treadle.toolsets.files.root import (
    FOLDER_ROOTED,
    PATTERN,
    Entry,
    Glob,
    Opened,
    Root,
    give_way,
    listing_schema,
    literal_folders,
    looking,
    place_of,
    refusal,
    seated,
    shown,
    spelled,
    split,
    walk,
)
from treadle.toolsets.files.text import Line, digest_of, fact_name, lines, pieces, text_stream

__all__ = [
    "Matcher",
    "file_tools",
    "glob_tool",
    "grep_tool",
    "list_tool",
    "matching",
    "narrowed",
    "read_tool",
    "weight",
]


# --- Matching: whether a text holds what a regular expression says. Opens no file.

Matcher = Callable[[str], bool]

_ENDLESS = 10_000
"""Weight from which on a pattern is refused: below, a line of 4 KiB takes at most some 30 milliseconds."""
_CLASS_WEIGHT = 10
"""A class such as `\\w` has hundreds of ranges of characters."""

_TOKEN = re.compile(
    r"(?P<class>\\[pP]\{[^}]*\}|\\[wWdDsSpP])|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\])"
    r"|(?P<open>\()|(?P<close>\))|(?P<count>\{(?P<least>\d{0,9})(?P<comma>,?)(?P<most>\d{0,9})\})|(?P<char>.)",
    re.DOTALL,
)


def weight(pattern: str) -> int:
    """Return how much work a pattern is for one character, roughly: its length with all counted repetitions written out."""
    groups, last = [0], 0
    for found in _TOKEN.finditer(pattern):
        match found.lastgroup:
            case "open":
                groups.append(0)
                last = 0
            case "close" if len(groups) > 1:
                last = groups.pop()
                groups[-1] += last
            case "most" | "comma" | "least" | "count":
                times = int(found["most"] or found["least"] or 1)
                groups[-1] += last * (max(times, 1) - 1)
                last *= max(times, 1)
            case kind:
                last = _CLASS_WEIGHT if kind == "class" or (kind == "set" and "\\" in found[0]) else 1
                groups[-1] += last
        if max(last, groups[-1]) >= _ENDLESS:
            return _ENDLESS
    return min(sum(groups), _ENDLESS)


def matching(pattern: str, *, ignore_case: bool) -> Matcher:
    """Return a function that says whether a text holds the pattern.

    Raises:
        Rejected: The pattern is not a regular expression, or repeats so often that one line would take long.
    """
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - loaded with the first search

    if weight(pattern) >= _ENDLESS:
        raise refusal(
            f"The pattern repeats too much: {shown(pattern)}. Use smaller numbers in {{...}}, or search for a part of it.",
            "invalid_pattern",
        )
    spelled = ("(?i)" if ignore_case else "") + pattern
    try:
        spelled.encode()  # the engine would take a lone surrogate for some other character
        return SchemaValidator(core_schema.str_schema(pattern=spelled)).isinstance_python
    except (SchemaError, UnicodeEncodeError) as error:
        raise refusal(f"Not a regular expression: {shown(pattern)}: {_reason(error)}", "invalid_pattern") from error


def narrowed(text: str, matches: Matcher, most: int) -> tuple[int, int]:
    """Return where the part of a text that matches begins and ends: halved until it is short or the match would be lost."""
    start, end = 0, len(text)
    while end - start > most:
        half = (end - start) // 2
        windows = ((start, start + half), (start + half, end), (start + half // 2, end - half // 2))
        kept = next(((a, b) for a, b in windows if matches(text[a:b])), None)
        if kept is None:
            break
        start, end = kept
    return start, min(end, start + most)


def _reason(error: Exception) -> str:
    """Return the engine's own sentence: the last line of what it says."""
    last = str(error).strip().splitlines()[-1].strip()
    return last.removeprefix("SchemaError: ").removeprefix("error: ")


# --- Searching file contents: the `grep` tool. Writes nothing, and follows no link out of the root.

_MAX_MATCHES = 1000
_DEFAULT_MATCHES = 200
_MAX_LINE_CHARS = 300
_PIECES_A_TURN = 64
_MAX_OUTPUT_CHARS = 40_000

_ESCAPED = re.compile(r"\\[^pP]", re.DOTALL)

_DESCRIPTION = f"""\
Search file contents with a regular expression. Use it to find where something occurs; use glob to find files by name, \
and read to see the lines around a match. Independent searches may be issued in parallel.
Output: one `file:line: text` per matching line; `count` is their number.
{FOLDER_ROOTED} A folder is searched recursively, except hidden folders, node_modules, venv, site-packages and \
__pycache__ (name such a folder in `path` to search it). Binary and unreadable files are skipped and counted in `skipped`. At most `max_matches` lines are returned; `truncated` says when there are more. No look-around, no \
back-references, and a match never spans lines. A line over 4 KiB is searched in pieces."""

_PARAMETERS: JsonObject = closed_schema(
    ["pattern"],
    pattern={
        **PATTERN,
        "description": "Regular expression. Escape . ( ) [ ] { } * + ? ^ $ | \\ to mean the character itself.",
    },
    path={"type": "string", "default": ".", "description": "File or folder to search."},
    include={
        **PATTERN,
        "description": "Glob of the files to search, relative to `path`, such as *.py or src/**/*.{ts,tsx}. A glob without a slash matches the file name alone.",
    },
    ignore_case={
        "type": "boolean",
        "description": "Whether to ignore case. Default: yes, unless the pattern has a capital letter.",
    },
    max_matches={
        "type": "integer",
        "minimum": 1,
        "maximum": _MAX_MATCHES,
        "default": _DEFAULT_MATCHES,
        "description": "Maximum number of lines to return.",
    },
)


def grep_tool(root: Root) -> Tool:
    """Return the `grep` tool over one folder.

    Its result is `{"output": "src/main.c:12: log_error();", "count": 1}`.
    """
    return looking(
        root,
        name="grep",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        output_schema=listing_schema(skipped={"type": "integer", "minimum": 1}),
        run=partial(_grep, root),
        subjects=lambda given: {
            "path": root.subject(
                given.get("path", "."), extent="tree", below=literal_folders(given.get("include") or "")
            )
        },
        examples=({"pattern": "error", "path": "src/main.c"}, {"pattern": "TODO|FIXME", "include": "*.py"}),
    )


class _Findings(msgspec.Struct, kw_only=True):
    """What one search has found so far."""

    max_matches: int
    lines: list[str] = []
    chars: int = 0
    skipped: int = 0
    is_full: bool = False

    def add(self, line: str) -> None:
        """Keep a line, unless there is no room: then note that there was more."""
        if len(self.lines) >= self.max_matches or self.chars + len(line) > _MAX_OUTPUT_CHARS:
            self.is_full = True
            return
        self.lines.append(line)
        self.chars += len(line)

    def skip(self) -> None:
        """Count a file or folder that cannot be searched."""
        self.skipped += 1

    def result(self) -> JsonObject:
        result: JsonObject = {"output": "\n".join(self.lines), "count": len(self.lines)}
        if self.skipped:
            result["skipped"] = self.skipped
        if self.is_full:
            result["truncated"] = True
            result["hint"] = "There are more matches. Narrow the pattern, the path or include."
        return result


def _grep(root: Root, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    pattern = arguments["pattern"]
    ignore_case = arguments.get("ignore_case", _is_caseless(pattern))
    findings = _Findings(max_matches=arguments.get("max_matches", _DEFAULT_MATCHES))
    matches = matching(pattern, ignore_case=ignore_case)
    with root.open(arguments.get("path", "."), place=place_of(ctx)) as opened:
        files = _files(root, opened, arguments.get("include"), findings)
    for names in takewhile(lambda _: not (ctx.cancelled or findings.is_full), files):
        _search_file(root, names, matches, findings, ctx)
    return findings.result()


def _is_caseless(pattern: str) -> bool:
    r"""Whether a pattern asks for no case: it has no capital (that of `\S` does not count) and no class such as `\p{Lu}`.

    Seed 002 finds `CONFIG_ERROR` with `error`. Many tools that search, search so: it is called smart case.
    """
    plain = _ESCAPED.sub("", pattern)
    return not any(char.isupper() for char in plain) and not any(sign in plain for sign in ("\\p", "\\P", "[:"))


def _files(root: Root, opened: Opened, include: str | None, findings: _Findings) -> Iterator[tuple[str, ...]]:
    names = opened.names
    if not opened.is_folder:
        yield names
        return
    glob = None if include is None else Glob(include if "/" in include else f"**/{include}")
    keep = glob.folders if glob else frozenset[str]()
    for file in walk(root, names, keep=keep, on_left_out=findings.skip):
        if glob is None or glob.matches(file[len(names) :]):
            yield file


def _search_file(root: Root, names: tuple[str, ...], matches: Matcher, findings: _Findings, ctx: ToolContext) -> None:
    try:
        with seated(), root.open(names, place=names) as opened:
            _search(opened, spelled("/".join(names)), matches, findings, ctx)
    except Rejected:  # gone or unreadable since it was listed: one file must not end the search
        findings.skip()


def _search(opened: Opened, path: str, matches: Matcher, findings: _Findings, ctx: ToolContext) -> None:
    stream = text_stream(opened)
    if stream is None:
        findings.skip()
        return
    last = 0
    for looked_at, (number, text) in enumerate(pieces(stream), start=1):
        if ctx.cancelled:  # asked at each line
            return
        if looked_at % _PIECES_A_TURN == 0:
            give_way()
        if number != last and matches(text):
            last = number
            findings.add(f"{path}:{number}: {_shorten(text, matches)}")
            if findings.is_full:
                return


def _shorten(text: str, matches: Matcher) -> str:
    start, end = narrowed(text, matches, _MAX_LINE_CHARS)
    short = text[start:end]
    return ("…" if start else "") + short + ("…" if start + len(short) < len(text) else "")


# --- The read-only file tools of one folder: grep, glob, read, list. Writes nothing; nothing outside the folder is
# reached.

_MAX_PATHS = 500
_MAX_LINES = 2000
_MAX_LINE_BYTES = 2000
_LINES_BETWEEN_LOOKS = 1000
_PATH: JsonObject = {"type": "string", "default": ".", "description": "Folder, relative to the root folder."}


@checked
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
        parameters=closed_schema(
            ["pattern"],
            pattern={
                **PATTERN,
                "description": "Such as *.md, src/**/*.py or **/*.{ts,tsx}. ** stands for any number of folders.",
            },
            path={**_PATH, "description": "Folder to which the pattern is relative."},
        ),
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
        parameters=closed_schema(
            ["path"],
            path={"type": "string", "minLength": 1, "description": "File, relative to the root folder."},
            offset={"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_LINES,
                "default": _MAX_LINES,
                "description": "Maximum number of lines to return.",
            },
        ),
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
        parameters=closed_schema([], path=_PATH),
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
