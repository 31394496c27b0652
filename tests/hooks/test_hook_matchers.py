"""Matchers of hooks as Claude Code reads them: which tools each of them means."""

import logging
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Tool, allow
from treadle.resolve.command_hooks import command_hooks
from treadle.testing import ScriptedModel, call, text

NAMES = ("shell", "read", "read_process", "mcp__github__delete_repo", "mcp__github__push", "mcp__github2__push", "mine")
GITHUB = {"mcp__github__delete_repo", "mcp__github__push"}
MCP = {*GITHUB, "mcp__github2__push"}


async def guarded(matcher: Any) -> set[str]:
    """Return the tools whose calls a hook with a matcher denies."""

    async def act(arguments: Any, ctx: Any) -> str:
        return "done"

    tools = [
        Tool(name=name, description="d", parameters={"type": "object"}, effect="unsafe", run=act) for name in NAMES
    ]
    group = {"matcher": matcher, "hooks": [{"type": "command", "command": "exit 2"}]}
    hooks = command_hooks({"hooks": {"PreToolUse": [group]}})
    model = ScriptedModel([[call(name) for name in NAMES], text("Done.")])
    result = await Agent(model, tools=tools, policy=allow("*"), hooks=hooks).run("go")
    return {record.name for record in result.tool_calls if record.status == "denied"}


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("matcher", "tools"),
    [
        ("*", set(NAMES)),
        ("", set(NAMES)),
        ("Bash", {"shell"}),
        ("shell", {"shell"}),
        ("Bas", set()),
        ("Read", {"read"}),
        ("Bash|Read", {"shell", "read"}),
        ("Bash, mine", {"shell", "mine"}),
        ("Bash | mine", {"shell", "mine"}),
        ("mcp__github", GITHUB),
        ("mcp__github__push", {"mcp__github__push"}),
        ("mcp__github__.*", GITHUB),
        ("mcp__github__(delete|push)", GITHUB),
        ("mcp__.*__push", {"mcp__github__push", "mcp__github2__push"}),
        ("^mcp__", MCP),
        ("^Ba", {"shell", "read_process"}),
        ("^Bash$", {"shell"}),
        ("^shell$", {"shell"}),
        ("(Bash|Read)", {"shell", "read", "read_process"}),
        ("Rea.", {"read"}),
        ("(?i)MINE", {"mine"}),
        ("^(?!mcp__)", {"shell", "read", "read_process", "mine"}),
        ("^(?!mcp__github2)", set(NAMES) - {"mcp__github2__push"}),
        ("^(?!Read$)", set(NAMES) - {"read"}),
        ("^(?!Bash$)(shell|read)", {"shell", "read"}),
        ("(?<!x)mine", {"mine"}),
    ],
)
async def test_a_matcher_means_what_it_means_in_claude_code(matcher: str, tools: set[str]):
    """Exact names, or else a regular expression that may fit anywhere in a name."""
    assert await guarded(matcher) == tools


@pytest.mark.parametrize("matcher", ["Bash(rm:*)", "Bash(git push)", "Write(/tmp/.*)"])
def test_a_matcher_with_arguments_is_warned_of(matcher: str, caplog: Any):
    command_hooks({"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [{"type": "command", "command": "true"}]}]}})

    what = f"The matcher {matcher!r} of a hook for PreToolUse fits no tool."
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        f"{what} A matcher names tools alone: the command finds the arguments in `tool_input`."
    ]


@pytest.mark.parametrize("matcher", ["Bash(Output)?", "(Bash|Read)", "Bash(:*)"])
def test_a_matcher_with_parentheses_that_fits_a_tool_is_not_warned_of(matcher: str, caplog: Any):
    command_hooks({"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [{"type": "command", "command": "true"}]}]}})

    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.row("E06")
async def test_a_start_is_matched_by_its_source(tmp_path: Path):
    for matcher, reason in (("startup|clear", "task_denied"), ("^start", "task_denied"), ("resume", "completed")):
        group = {"matcher": matcher, "hooks": [{"type": "command", "command": "exit 2"}]}
        hooks = command_hooks({"hooks": {"SessionStart": [group]}}, folder=tmp_path)
        result = await Agent(ScriptedModel([text("Done.")]), hooks=hooks).run("go")
        assert (str(result.reason) == "task_denied") == (reason == "task_denied")
