"""Foreign words: what Claude Code calls our moments, tools, fields and modes, so that hooks which people have written for it work.

It starts nothing. `docs/hooks.md` shows these tables, and a test compares them.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from treadle.ports import Moment
from treadle.tools import JsonObject, Mode
from treadle.tools.foreign import CLAUDE_CODE

__all__ = ["EVENTS", "FIELDS", "MODES", "OTHER_NAMES", "PATHS", "TOOLS", "UNUSED_EVENTS", "foreign_input", "own_input"]

EVENTS: Mapping[str, Moment] = {
    "PreToolUse": Moment.BEFORE_TOOL,
    "PostToolUse": Moment.AFTER_TOOL,
    "UserPromptSubmit": Moment.PROMPT,
    "SessionStart": Moment.SESSION_START,
    "SessionEnd": Moment.SESSION_END,
    "Stop": Moment.STOP,
}
"""Its events, and our moments."""
UNUSED_EVENTS = frozenset({"Notification", "PreCompact", "SubagentStart", "SubagentStop", "PermissionRequest", "Setup"})
"""Its events for which there is no moment: their hooks are not called, and a warning names them."""

TOOLS: Mapping[str, str] = {own: names[0] for own, names in CLAUDE_CODE.items()}
"""Our tools, and its names for them."""
OTHER_NAMES: Mapping[str, str] = {"spawn_agent": "Agent"}
"""A second name that one has there."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    "read": {"path": "file_path"},
    "write": {"path": "file_path"},
    "edit": {"path": "file_path", "old_text": "old_string", "new_text": "new_string", "all": "replace_all"},
    "shell": {"background": "run_in_background"},
    "grep": {"include": "glob"},
    "read_process": {"process": "bash_id"},
    "kill_process": {"process": "shell_id"},
    "spawn_agent": {"agent": "subagent_type", "task": "prompt"},
    "skill": {"name": "skill"},
    "todo": {"items": "todos", "text": "content", "state": "status"},
}
"""Fields of arguments that have other names there; all others keep theirs. `timeout` of `shell` is in milliseconds there."""

PATHS: Mapping[str, str] = dict.fromkeys(("read", "write", "edit", "grep", "glob", "list"), "path")
"""Fields that are paths from `/` there, whatever the model wrote."""

MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "ask": "default",
    "accept-edits": "acceptEdits",
    "deny-unlisted": "dontAsk",
    "bypass": "bypassPermissions",
}
"""Our modes, and its names for them."""


def foreign_input(tool: str, arguments: JsonObject, folder: str | None = None) -> tuple[str, JsonObject]:
    """Return a call as a foreign hook expects it: the tool's name there, and the arguments with the names there.

    Args:
        folder: Where relative paths begin; None to leave paths as they are.
    """
    name = TOOLS.get(tool, tool)
    if tool == "edit" and arguments.get("edits"):
        name = "MultiEdit"
    path = arguments.get(PATHS.get(tool, ""))
    if folder is not None and isinstance(path, str):
        arguments = {**arguments, PATHS[tool]: _from_root(path, folder)}
    given = _renamed(arguments, FIELDS.get(tool, {}))
    if tool == "shell" and isinstance(given.get("timeout"), int | float):
        given["timeout"] = round(given["timeout"] * 1000)
    return name, given


def own_input(tool: str, given: JsonObject, before: JsonObject, folder: str) -> JsonObject:
    """Return arguments that a foreign hook has changed, with our names.

    Args:
        before: The arguments as the model gave them: a path that is still the same file keeps its spelling.
        folder: Where relative paths begin. A path within it becomes relative.
    """
    found = _renamed(given, {theirs: ours for ours, theirs in FIELDS.get(tool, {}).items()})
    if tool == "shell" and isinstance(found.get("timeout"), int | float):
        found["timeout"] = found["timeout"] / 1000
    path, old = found.get(PATHS.get(tool, "")), before.get(PATHS.get(tool, ""))
    if isinstance(path, str) and path.startswith("/"):
        place = _from_root(path, folder)
        if isinstance(old, str) and place == _from_root(old, folder):
            found[PATHS[tool]] = old
        elif Path(place).is_relative_to(folder):
            found[PATHS[tool]] = os.path.relpath(place, folder)
    return found


def _from_root(path: str, folder: str) -> str:
    """Return a path from `/`. Links keep their names, but for those that `..` goes back from: what is meant is the file."""
    place = os.path.join(folder, path)  # noqa: PTH118 - as text: it may hold what no path does
    if ".." in path.split("/") and "\0" not in path:
        try:
            real, root = os.path.realpath(place), os.path.realpath(folder)
        except OSError:
            return os.path.normpath(place)
        return os.path.join(folder, os.path.relpath(real, root)) if Path(real).is_relative_to(root) else real  # noqa: PTH118 - as above
    return os.path.normpath(place)


def _renamed(given: JsonObject, names: Mapping[str, str]) -> JsonObject:
    found: JsonObject = {}
    for name, value in given.items():
        inner = value
        if isinstance(value, list):
            inner = [_renamed(one, names) if isinstance(one, dict) else one for one in value]
        found[names.get(name, name)] = inner
    return found
