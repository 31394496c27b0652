"""Searching file contents: the `grep` tool. Writes nothing, and follows no link out of the root."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import takewhile

import msgspec

from treadle.errors import Rejected
from treadle.tools import JsonObject, Tool, ToolContext
from treadle.toolsets.files.looking import looking
from treadle.toolsets.files.matching import Matcher, matching, narrowed
from treadle.toolsets.files.root import Opened, Root, place_of, spelled
from treadle.toolsets.files.schemas import FOLDER_ROOTED, PATTERN, listing_schema
from treadle.toolsets.files.seats import give_way, seated
from treadle.toolsets.files.text import pieces, text_stream
from treadle.toolsets.files.walk import Glob, literal_folders, walk

__all__ = ["grep_tool"]

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

_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "pattern": {
            **PATTERN,
            "description": "Regular expression. Escape . ( ) [ ] { } * + ? ^ $ | \\ to mean the character itself.",
        },
        "path": {"type": "string", "default": ".", "description": "File or folder to search."},
        "include": {
            **PATTERN,
            "description": "Glob of the files to search, relative to `path`, such as *.py or src/**/*.{ts,tsx}. A glob without a slash matches the file name alone.",
        },
        "ignore_case": {
            "type": "boolean",
            "description": "Whether to ignore case. Default: yes, unless the pattern has a capital letter.",
        },
        "max_matches": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MAX_MATCHES,
            "default": _DEFAULT_MATCHES,
            "description": "Maximum number of lines to return.",
        },
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


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
        subjects=lambda given: {"path": root.subject(given.get("path", "."), extent="tree", below=_folders(given))},
        examples=({"pattern": "error", "path": "src/main.c"}, {"pattern": "TODO|FIXME", "include": "*.py"}),
    )


def _folders(arguments: JsonObject) -> tuple[str, ...]:
    """Return the folders to which `include` confines a search."""
    return literal_folders(arguments.get("include") or "")


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
    with matching(pattern, ignore_case=ignore_case, is_cancelled=lambda: ctx.cancelled) as matches:
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
