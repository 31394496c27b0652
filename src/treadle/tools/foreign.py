"""Foreign names: what Treadle's own tools are called elsewhere. One table, for rules, for hooks and for calls of tools that do not exist.

A rule or a hook of a person understands Claude Code's names. Names of other programs only lead a model to the right tool: a tool of
the user's own may have one of them, and no rule may mean two tools.
"""

import re
from collections.abc import Mapping

from treadle.errors import ConfigurationError

__all__ = ["CLAUDE_CODE", "FOREIGN_NAMES", "job_of", "own_path", "own_tool", "plain_name", "same_tool"]

CLAUDE_CODE: Mapping[str, tuple[str, ...]] = {
    "shell": ("Bash",),
    "read": ("Read",),
    "write": ("Write",),
    "edit": ("Edit", "MultiEdit"),
    "grep": ("Grep",),
    "glob": ("Glob",),
    "list": ("LS",),
    "fetch": ("WebFetch",),
    "read_process": ("BashOutput",),
    "kill_process": ("KillShell",),
    "spawn_agent": ("Task", "Agent"),
    "skill": ("Skill",),
    "todo": ("TodoWrite",),
    "ask_user": ("AskUserQuestion",),
    "exit_plan": ("ExitPlanMode",),
}
"""Our tools, and the names of Claude Code's, the usual one first."""
FOREIGN_NAMES: Mapping[str, str] = {theirs: own for own, names in CLAUDE_CODE.items() for theirs in names}
"""The names of Claude Code's tools, and ours."""

# Of Codex, Gemini CLI, Cursor, Copilot, Cline, OpenHands, SWE-agent, and of the trained tools of OpenAI and Anthropic.
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "shell": (
        *("run_shell_command", "local_shell", "exec_command", "shell_command", "execute_command", "run_command"),
        *("run_terminal_cmd", "run_terminal_command", "run_in_terminal", "execute_bash", "terminal", "container_exec"),
        *("exec", "bash_tool", "run_bash", "run_shell", "shell_exec", "execute_shell_command"),
    ),
    "read": ("read_file", "read_many_files", "view", "view_file", "open_file", "cat", "read_text_file"),
    "write": ("write_file", "write_to_file", "create_file", "create", "insert_into_file"),
    "edit": (
        *("str_replace", "str_replace_editor", "str_replace_based_edit_tool", "apply_patch", "apply_diff", "replace"),
        *("replace_in_file", "edit_file", "search_replace", "insert_edit_into_file", "replace_string_in_file"),
    ),
    "grep": ("search_file_content", "grep_search", "search_files", "codebase_search", "ripgrep", "rg"),
    "glob": ("file_search", "find_files", "find_file", "glob_file_search"),
    "list": ("list_directory", "list_dir", "list_files"),
    "fetch": ("web_fetch", "fetch_url", "fetch_webpage", "browse"),
    "spawn_agent": ("new_task", "run_subagent", "subagent", "dispatch_agent", "delegate"),
    "todo": ("write_todos", "update_plan", "todo_write", "manage_todo_list", "update_todo_list"),
    "ask_user": ("ask_followup_question", "request_user_input", "ask_question"),
    "write_note": ("save_memory", "memory", "update_memory"),
    "skill": ("use_skill", "activate_skill"),
}
_SERVER = re.compile(r"mcp__(?:(?!__)[^*?\[])+")
_SEPARATORS = re.compile(r"__|[./:]")


def plain_name(name: str) -> str:
    """Return a name without what is only spelling, or where a tool comes from: `functions.Run-Shell-Command` is `runshellcommand`."""
    last = _SEPARATORS.split(name[:100].casefold())[-1]
    return last.replace("_", "").replace("-", "").replace(" ", "")


_JOBS = {
    plain_name(name): own
    for table in (_ELSEWHERE, CLAUDE_CODE)
    for own, names in table.items()
    for name in (own, *names)
}


def job_of(name: str) -> str | None:
    """Return the tool of ours that does what a tool of this name usually does; None where the name says nothing."""
    return _JOBS.get(plain_name(name))


def own_tool(tool: str) -> str:
    """Return the tools that a rule means: `mcp__server` is every tool of that server."""
    return f"{tool}__*" if _SERVER.fullmatch(tool) else tool


def same_tool(tool: str) -> str | None:
    """Return our tool that a name means in another case: `bash` and `BASH` are `shell`. None for any other name."""
    known = {name.casefold(): own for name, own in FOREIGN_NAMES.items()} | {own: own for own in FOREIGN_NAMES.values()}
    return known.get(tool.casefold())


def own_path(text: str, tool: str, glob: str) -> str:
    """Return the path of a rule as ours say it. One that is read in two ways is refused, with what to write.

    Args:
        tool: The tool as the rule names it. Claude Code reads `/x` as a path below the folder of its settings, and `//x` as one from `/`.
    """
    if glob.startswith("~"):
        raise ConfigurationError(f"Rule {text!r} is invalid: `~` is not expanded. Write the path from `/`.")
    if tool not in FOREIGN_NAMES or not glob.startswith("/"):
        return glob
    if glob.startswith("//"):
        return f"/{glob.lstrip('/')}"
    own, plain = FOREIGN_NAMES[tool], glob.lstrip("/")
    raise ConfigurationError(
        f"Rule {text!r} is invalid: to Claude Code it names a path below the folder of its settings. "
        f"Write `{own}({plain})` for that, or `{own}({glob})` for the path from `/`."
    )
