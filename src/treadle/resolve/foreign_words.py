"""Foreign words: what Claude Code calls our moments, tools, fields and modes, so that hooks which people have written for it work.

Values only. `docs/hooks.md` shows these tables, and a test compares them.
"""

from collections.abc import Mapping

from treadle.ports import Moment
from treadle.tools import JsonObject, Mode

__all__ = ["EVENTS", "FIELDS", "MODES", "OTHER_NAMES", "TOOLS", "UNUSED_EVENTS", "foreign_input", "own_input"]

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

TOOLS: Mapping[str, str] = {
    "shell": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "grep": "Grep",
    "glob": "Glob",
    "list": "LS",
    "fetch": "WebFetch",
    "read_process": "BashOutput",
    "kill_process": "KillShell",
    "spawn_agent": "Task",
    "skill": "Skill",
    "todo": "TodoWrite",
    "ask_user": "AskUserQuestion",
    "exit_plan": "ExitPlanMode",
}
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

MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "ask": "default",
    "accept-edits": "acceptEdits",
    "deny-unlisted": "dontAsk",
    "bypass": "bypassPermissions",
}
"""Our modes, and its names for them."""


def foreign_input(tool: str, arguments: JsonObject) -> tuple[str, JsonObject]:
    """Return a call as a foreign hook expects it: the tool's name there, and the arguments with the names there."""
    name = TOOLS.get(tool, tool)
    if tool == "edit" and arguments.get("edits"):
        name = "MultiEdit"
    given = _renamed(arguments, FIELDS.get(tool, {}))
    if tool == "shell" and isinstance(given.get("timeout"), int | float):
        given["timeout"] = round(given["timeout"] * 1000)
    return name, given


def own_input(tool: str, given: JsonObject) -> JsonObject:
    """Return arguments that a foreign hook has changed, with our names."""
    found = _renamed(given, {theirs: ours for ours, theirs in FIELDS.get(tool, {}).items()})
    if tool == "shell" and isinstance(found.get("timeout"), int | float):
        found["timeout"] = found["timeout"] / 1000
    return found


def _renamed(given: JsonObject, names: Mapping[str, str]) -> JsonObject:
    found: JsonObject = {}
    for name, value in given.items():
        inner = value
        if isinstance(value, list):
            inner = [_renamed(one, names) if isinstance(one, dict) else one for one in value]
        found[names.get(name, name)] = inner
    return found
