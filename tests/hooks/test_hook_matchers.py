"""Matchers of hooks as Claude Code reads them: which tools each of them means, and which are warned of or refused."""

import logging
from typing import Any

import pytest
from hook_tools import on, run, status
from hook_tools import run as run_with

from treadle import ConfigurationError, Tool
from treadle.resolve.command_hooks import command_hooks
from treadle.testing import call, text

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
    result, _ = await run(on("PreToolUse", "exit 2", matcher=matcher), [call(name) for name in NAMES], tools=tools)
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
async def test_a_matcher_means_what_it_means_in_claude_code(matcher, tools):
    """Exact names, or else a regular expression that may fit anywhere in a name."""
    assert await guarded(matcher) == tools


@pytest.mark.parametrize("matcher", ["Bash(rm:*)", "Bash(git push)", "Write(/tmp/.*)"])
def test_a_matcher_with_arguments_is_warned_of(matcher, caplog):
    command_hooks(on("PreToolUse", "true", matcher=matcher))

    what = f"The matcher {matcher!r} of a hook for PreToolUse fits no tool."
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [
        f"{what} A matcher names tools alone: the command finds the arguments in `tool_input`."
    ]


@pytest.mark.parametrize("matcher", ["Bash(Output)?", "(Bash|Read)", "Bash(:*)"])
def test_a_matcher_with_parentheses_that_fits_a_tool_is_not_warned_of(matcher, caplog):
    command_hooks(on("PreToolUse", "true", matcher=matcher))

    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.row("E06")
async def test_a_start_is_matched_by_its_source(tmp_path):
    for matcher, reason in (("startup|clear", "task_denied"), ("^start", "task_denied"), ("resume", "completed")):
        result, _ = await run(on("SessionStart", "exit 2", matcher=matcher), text("Done."), folder=tmp_path)
        assert result.reason == reason


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("matcher", "name", "hint"),
    [
        ("bash", "`bash`", "Did you mean `Bash`?"),
        ("Bash|Wirte", "`Wirte`", "Did you mean `Write`?"),
        ("(WRITE|Edit)", "`WRITE`", "Did you mean `Write`?"),
        ("Bash Edit", "`Bash Edit`", "Write `|` between two names."),
        ("Bash, wirte", "`wirte`", "Did you mean `Write`?"),
        ("Bash, Edit", None, ""),
        ("Bash|Edit", None, ""),
        ("shell|write|rm|mcp__github__.*", None, ""),
        ("Agent|NotebookEdit|Notes.*", None, ""),
        ("startup", None, ""),
    ],
)
def test_a_matcher_that_looks_like_another_name_is_warned_of(matcher, name, hint, caplog):
    command_hooks(on("PreToolUse", "true", matcher=matcher))
    command_hooks(on("SessionStart", "true", matcher="bash"))

    found = [record.getMessage() for record in caplog.records]
    what = f"The matcher {matcher!r} of a hook for PreToolUse names {name}, and neither Treadle nor Claude Code has such a tool."
    assert found == ([] if name is None else [f"{what} {hint}"])


@pytest.mark.row("E06")
@pytest.mark.parametrize("matcher", ["(r+)+m!", "((r|r)+)+!", "(\\w+)*!", ".*.*.*.*.*.*.*!", "(r|rr|rrr)*!"])
async def test_a_hostile_expression_is_matched_in_bounded_time(tmp_path, matcher):
    async def act(arguments: Any, ctx: Any) -> str:
        return "done"

    name = "r" * 64
    tools = [Tool(name=name, description="d", parameters={"type": "object"}, effect="unsafe", run=act)]
    result, _ = await run_with(on("PreToolUse", "exit 2", matcher=matcher), call(name), tools=tools, folder=tmp_path)

    assert status(result) == "ok"


@pytest.mark.parametrize("matcher", ["(", "[", "a{1000}{1000}{1000}", 3, ["rm"], {}])
def test_a_matcher_that_is_not_an_expression_is_refused(matcher):
    with pytest.raises(ConfigurationError, match="regular expression"):
        command_hooks(on("PreToolUse", "true", matcher=matcher))
