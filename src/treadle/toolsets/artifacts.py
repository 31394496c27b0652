"""Artifacts: the tool by which the model reads on in a result of which it was shown a part. Stores nothing."""

from functools import partial
from typing import Any

import msgspec

from treadle.concurrency import Threads
from treadle.errors import Rejected
from treadle.tools import JsonObject, Tool, ToolContext
from treadle.tools.tool import closed_schema
from treadle.toolsets.files.reading import matching, narrowed
from treadle.toolsets.files.root import give_way, seated

__all__ = ["artifact_tool"]

_MOST_CHARS = 20_000
_USUAL_CHARS = 10_000
_MOST_MATCHES = 100
_EXCERPT_CHARS = 300
_PIECE_CHARS = 4096
_OVERLAP_CHARS = 256
_PIECES_A_TURN = 64
_FRAME_CHARS = 200
"""What the other fields of an answer take, at most."""

_threads = Threads()

_DESCRIPTION = f"""\
Read more of a truncated result: the truncation mark in it names the artifact. Pass `offset` and `length` to read a part, or `search` to find text in it. Offsets count characters from 0. At most {_MOST_CHARS} characters are returned; \
`next_offset` is where to continue. A search returns at most `max_matches` matches; `truncated` says when there are more."""

_PARAMETERS: JsonObject = closed_schema(
    ["artifact"],
    artifact={
        "type": "string",
        "minLength": 1,
        "maxLength": 100,
        "description": "Artifact id from the truncation mark: a_...",
    },
    offset={"type": "integer", "minimum": 0, "default": 0, "description": "First character to return, from 0."},
    length={
        "type": "integer",
        "minimum": 1,
        "maximum": _MOST_CHARS,
        "default": _USUAL_CHARS,
        "description": "Maximum number of characters to return.",
    },
    search={
        "type": "string",
        "minLength": 1,
        "maxLength": 500,
        "description": "Regular expression to search for, starting at `offset`; case is ignored.",
    },
    max_matches={
        "type": "integer",
        "minimum": 1,
        "maximum": _MOST_MATCHES,
        "default": 20,
        "description": "Maximum number of matches to return, such as 50.",
    },
)


def artifact_tool() -> Tool:
    """Return the tool `read_artifact`. With it, the model reads on in results that were too long to be shown whole.

    It reads artifacts of its own session only, also after a restart and in forks.

    Example:
        Agent(model, tools=[*file_tools("."), artifact_tool()])
    """
    return Tool(
        name="read_artifact",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        effect="read",
        timeout=60.0,
        run=_read,
        examples=({"artifact": "a_0123456789abcdef0123", "offset": 40_000}, {"artifact": "a_0123", "search": "error"}),
    )


async def _read(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    name = str(arguments["artifact"])
    content = await ctx.artifact(name)
    if content is None:
        message = f"This session has no artifact {name!r}. Use an id as a mark has it, such as a_0123456789abcdef0123."
        raise Rejected({"error": message}, code="not_found")
    room = max((ctx.result_chars or 2 * _MOST_CHARS) - _FRAME_CHARS, 100)
    work = _found if "search" in arguments else _part
    found: JsonObject = await _threads.submit(partial(work, name, content, arguments, room, ctx))
    return found


def _part(name: str, content: bytes, arguments: JsonObject, room: int, ctx: ToolContext) -> JsonObject:
    """Return a part of the text that fits into the result: what does not fit is read with the next call."""
    text = content.decode("utf-8", "replace")
    offset, length = arguments.get("offset", 0), arguments.get("length", _USUAL_CHARS)
    part = text[offset : offset + length]
    while (excess := _size(part) - room) > 0:
        part = part[: max(len(part) - max(excess, len(part) // 8), 1)]
        if len(part) == 1:
            break
    end = offset + len(part)
    more = {"next_offset": end} if end < len(text) else {}
    return {"artifact": name, "offset": offset, "total_chars": len(text), "text": part, **more}


def _found(name: str, content: bytes, arguments: JsonObject, room: int, ctx: ToolContext) -> JsonObject:
    text = content.decode("utf-8", "replace")
    most = arguments.get("max_matches", 20)
    matches: list[JsonObject] = []
    answer: dict[str, Any] = {"artifact": name, "total_chars": len(text), "matches": matches}
    is_cut = False
    holds = matching(arguments["search"], ignore_case=True)
    with seated():
        behind = arguments.get("offset", 0)
        for number, (start, end) in enumerate(_pieces(text, behind)):
            if ctx.cancelled:
                break
            if number % _PIECES_A_TURN == 0:
                give_way()
            if not holds(text[start:end]):
                continue
            first, last = narrowed(text[start:end], holds, _EXCERPT_CHARS)
            if start + first < behind:  # the overlap with the piece before, where it was found already
                continue
            row: JsonObject = {"offset": start + first, "text": text[start + first : start + last]}
            room -= _size(row) + 1
            if len(matches) >= most or (room < 0 and matches):
                is_cut = True
                break
            matches.append(row)
            behind = start + last
    return {**answer, "truncated": True} if is_cut else answer


def _pieces(text: str, offset: int) -> list[tuple[int, int]]:
    """Return where the lines begin and end; a long one as pieces that overlap a little, so that JSON of one line is found in, too."""
    pieces: list[tuple[int, int]] = []
    start = offset
    while start < len(text):
        line = text.find("\n", start, start + _PIECE_CHARS)
        end = min(start + _PIECE_CHARS, len(text)) if line < 0 else line
        pieces.append((start, end))
        start = end + 1 if line >= 0 else end if end == len(text) else end - _OVERLAP_CHARS
    return pieces


def _size(value: Any) -> int:  # Any: JSON
    return len(msgspec.json.encode(value).decode())
