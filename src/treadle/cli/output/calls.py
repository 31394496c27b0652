"""Calls: what a person reads of a call and of its result, in a few words. Knows the tools of Treadle by name. Draws nothing."""

import re
from typing import Any

import msgspec

from treadle.cli.output.text import counted, decoded, one_line, one_record, shown_json, shown_name
from treadle.tools import ToolResult

__all__ = [
    "SpokenCall",
    "ending_of",
    "folded",
    "more_lines",
    "object_of",
    "shown_result",
    "spoken",
    "summary_of",
    "todos_of",
]


class SpokenCall(msgspec.Struct, frozen=True):
    """A call as people say it: `Read` `fetch.py`, `$` `pytest -q`."""

    verb: str
    object: str = ""
    more: str = ""
    """The other arguments, as `name: value`."""

    def __str__(self) -> str:
        return "  ".join(part for part in (f"{self.verb} {self.object}".rstrip(), self.more) if part)


class _Words(msgspec.Struct, frozen=True):
    verb: str
    object: str = ""
    """The argument that comes after it."""
    place: str = ""
    """The argument that says where."""
    is_quoted: bool = False
    elsewhere: tuple[str, ...] = ()
    """Arguments that are shown in another form: as a diff, a checklist, or in the question."""


_WORDS = {
    "ask_user": _Words("Ask", "question", elsewhere=("choices",)),
    "edit": _Words("Edit", "path", elsewhere=("old_text", "new_text", "edits", "all")),
    "exit_plan": _Words("Propose a plan", elsewhere=("plan",)),
    "fetch": _Words("Fetch", "url"),
    "glob": _Words("Find", "pattern", "path"),
    "grep": _Words("Search", "pattern", "path", is_quoted=True),
    "kill_process": _Words("Stop command", "process"),
    "list": _Words("List", "path"),
    "list_processes": _Words("List background commands"),
    "read": _Words("Read", "path"),
    "read_artifact": _Words("Read result", "artifact"),
    "read_process": _Words("Read output of", "process"),
    "shell": _Words("$", "command", elsewhere=("description", "keep", "lifetime", "reason", "timeout")),
    "todo": _Words("To-do list", elsewhere=("items",)),
    "write": _Words("Write", "path", elsewhere=("content",)),
    "write_process": _Words("Type into", "process"),
}
"""Words for Treadle's own tools. All others are called by their names."""

_COUNTED = {
    "fetch": ("line", "lines"),
    "glob": ("file", "files"),
    "grep": ("match", "matches"),
    "read": ("line", "lines"),
    "read_process": ("line", "lines"),
}
"""What the lines of a result are, of one and of many."""
_LONGEST = 160
"""Characters of one argument."""
_MOST = 8
"""Arguments of a call that are named."""
_FOLDED = 4
"""Lines of a result that are shown before somebody unfolds it."""


def spoken(tool: str, arguments: object) -> SpokenCall:
    """Return a call in words. Every argument is named, unless it is shown in another form."""
    known = object_of(arguments)
    if known is None:
        return SpokenCall(
            shown_name(tool), one_line(arguments if isinstance(arguments, str) else shown_json(arguments))
        )
    words = _WORDS.get(tool)
    if words is None or (words.object and not isinstance(known.get(words.object, "."), str)):
        return SpokenCall(shown_name(tool), more=_named(known))
    said = str(known.get(words.object, ".")) if words.object else ""
    said = shown_json(said, _LONGEST) if words.is_quoted else one_line(said, _LONGEST)
    place = known.get(words.place)
    if isinstance(place, str) and place != ".":
        said += f" in {one_line(place, _LONGEST)}"
    is_told = {words.object, words.place if isinstance(place, str) else "", *words.elsewhere}
    # A switch of Treadle's own tools that is off is as usual, whether the model says so or not.
    others = {name: one for name, one in known.items() if name not in is_told and one not in (False, None, [])}
    return SpokenCall(words.verb, said, _named(others))


def _named(arguments: dict[str, Any]) -> str:
    named = [f"{shown_name(str(name), 40)}: {shown_json(value)}" for name, value in list(arguments.items())[:_MOST]]
    return ", ".join([*named, *([f"{len(arguments) - _MOST} more"] if len(arguments) > _MOST else [])])


def shown_result(result: ToolResult) -> str:
    """Return what a person is shown of a result: of a command what it wrote, of a listing its lines."""
    match result.data:
        case _ if result.display is not None:
            return result.display
        case {"exit_code": _, "stdout": str(out), "stderr": str(err)}:
            return out + ("\n" if out and err and not out.endswith("\n") else "") + err
        case {"output": str(output)}:
            return output
        case refused if (
            result.status == "rejected" and refused is not None
        ):  # the message only says that details follow
            said = refused.get("error") if isinstance(refused, dict) else refused
            return said if isinstance(said, str) else shown_json(refused, 2000)
        case _:
            return (result.message or result.content) if result.is_error else result.content


def ending_of(result: ToolResult) -> str:
    """Return how a command ended, where that is more than well: its exit code, or its hint where it has none."""
    match result.data:
        case {"exit_code": int(code)} if code:
            return f"exit code {code}"
        case {"exit_code": None, "hint": str(hint)}:
            return hint
        case _:
            return ""


def more_lines(left: int, result: ToolResult) -> str:
    """Return what is said for lines of a result that are not shown. Of one that was shortened, only the lines that were kept are known."""
    is_part = result.artifact is not None or (isinstance(result.data, dict) and result.data.get("shortened"))
    return f"... {left:,} more lines" + (" of what was kept" if is_part else "")


def summary_of(result: ToolResult) -> str:
    """Return what a result of one of Treadle's tools holds, in a few words; nothing where its lines are to be shown."""
    if result.is_error or result.name not in _WORDS or not isinstance(result.data, dict):
        return ""
    output, said = result.data.get("output"), result.data.get("answer") or result.data.get("message")
    if result.name in _COUNTED and isinstance(output, str):
        return _count(output, *_COUNTED[result.name]) + (" and more" if result.data.get("truncated") else "")
    return one_line(said, _LONGEST) if isinstance(said, str) and output is None else ""


def _count(output: str, one: str, many: str) -> str:
    lines = output.rstrip("\n").split("\n") if output else []
    if len(lines) == 1 and one != "line":
        return ""  # the line itself says more
    files = {found[1] for line in lines if (found := re.match(r"(.*?):\d+: ", line))} if one == "match" else set()
    where = f" in {counted(len(files), 'file')}" if files else ""
    return f"{len(lines):,} {one if len(lines) == 1 else many}{where}"


def folded(result: ToolResult, text: str, *, key: str) -> list[str]:
    """Return the lines of a result that stand for all: its first ones, of a command its last ones too.

    Args:
        text: What is shown of it when it is unfolded.
        key: How the rest is unfolded.
    """
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= _FOLDED + 1:
        return lines
    first = _FOLDED // 2 if result.name == "shell" else _FOLDED
    last = lines[len(lines) - (_FOLDED - first) :] if first < _FOLDED else []
    return [*lines[:first], f"{more_lines(len(lines) - _FOLDED, result)} ({key})", *last]


def todos_of(arguments: object) -> list[tuple[str, str]]:
    """Return the items of a to-do list, each with its state: `pending`, `in_progress` or `done`."""
    items = (object_of(arguments) or {}).get("items")
    return [
        (str(one["state"]), one_record(str(one["text"])))
        for one in (items if isinstance(items, list) else [])
        if isinstance(one, dict) and "state" in one and "text" in one
    ]


def object_of(arguments: object) -> dict[str, Any] | None:
    """Return arguments as an object, whether they are parsed or as the model wrote them; None for anything else."""
    found = decoded(arguments)
    return found if isinstance(found, dict) else None
