"""Hooks as commands, in the form of Claude Code's: what they are told, what they may answer, and what they may not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hook_tools import on, rm, run

from treadle import ConfigurationError, Tool, allow, ask, deny, file_tools, first_of, shell_tool
from treadle.resolve.command_hooks import EVENTS, FIELDS, MODES, TOOLS, UNUSED_EVENTS, command_hooks
from treadle.testing import call, text
from treadle.toolsets import writing_tools


@pytest.fixture
def program(tmp_path: Path):
    """Write a program for a hook, which notes what it was told in a file; return the command that runs it."""

    def write(body: str, name: str = "hook") -> str:
        place = tmp_path / f"{name}.py"
        place.write_text(
            "import json, sys\ngiven = json.load(sys.stdin)\n"
            f"open({str(tmp_path / 'told')!r}, 'a').write(json.dumps(given) + '\\n')\n{body}"
        )
        return f"{sys.executable} {place}"

    return write


def told(tmp_path: Path) -> list[dict[str, Any]]:
    place = tmp_path / "told"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


@pytest.mark.row("E06")
async def test_exit_code_2_blocks_with_its_words(program, tmp_path):
    command = program("print('never read'); sys.stderr.write('not today'); sys.exit(2)")
    result, found = await run(on("PreToolUse", command, matcher="rm"), call("rm", path="x"), folder=tmp_path)

    assert [one.status for one in result.tool_calls] == ["denied"]
    assert "not today" in found[0]
    (given,) = told(tmp_path)
    assert {name: given[name] for name in ("hook_event_name", "tool_name", "tool_input", "tool_use_id", "permission_mode", "cwd")} == {
        "hook_event_name": "PreToolUse",
        "tool_name": "rm",
        "tool_input": {"path": "x", "force": False},
        "tool_use_id": "call_1",
        "permission_mode": "default",
        "cwd": str(tmp_path),
    }  # fmt: skip
    assert given["session_id"] == result.session.id


@pytest.mark.row("P13")
async def test_a_hook_that_allows_overrides_no_rule(program):
    said = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    command = program(f"print(json.dumps({said!r}))")

    denied, _ = await run(on("PreToolUse", command), call("rm", path="x"), policy=deny("rm", reason="never"))
    asked, _ = await run(on("PreToolUse", command), call("rm", path="x"), policy=ask("rm"))
    assert [(one.rule, one.reason) for one in denied.denials] == [("deny rm", "never")]
    assert asked.reason == "approval_required"


@pytest.mark.row("E06")
@pytest.mark.parametrize(("word", "ended"), [("deny", "denied"), ("ask", "approval_required")])
async def test_a_decision_is_read_from_standard_output(program, word, ended):
    said = {"hookSpecificOutput": {"permissionDecision": word, "permissionDecisionReason": "because"}}
    result, _ = await run(on("PreToolUse", program(f"print(json.dumps({said!r}))")), call("rm", path="x"))

    assert ended in (str(result.reason), *(one.status for one in result.tool_calls))


async def test_arguments_that_a_hook_changes_are_validated_again(program):
    def changing(value: Any) -> str:
        said = {"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"path": "y", "force": value}}}
        return program(f"print(json.dumps({said!r}))")

    _, found = await run(on("PreToolUse", changing(True)), call("rm", path="x"))
    assert "removed y True" in found[0]
    result, _ = await run(on("PreToolUse", changing("many")), call("rm", path="x"))
    assert [one.status for one in result.tool_calls] == ["invalid_arguments"]


@pytest.mark.row("E06")
async def test_the_names_of_tools_and_fields_are_the_foreign_ones(program, tmp_path):
    (tmp_path / "w").mkdir()
    settings = on(
        "PreToolUse", program("sys.exit(2 if 'rm -rf' in str(given['tool_input']) else 0)"), matcher="Bash|Edit|Write"
    )
    tools = [rm, shell_tool(tmp_path / "w"), *writing_tools(tmp_path / "w")]
    result, _ = await run(
        settings,
        call("shell", command="rm -rf /x", timeout=3),
        call("write", path="a", content="one two"),
        call("edit", path="a", old_text="one", new_text="1", all=True),
        call("edit", path="a", edits=[{"old_text": "two", "new_text": "2"}]),
        call("rm", path="x"),
        tools=tools,
        folder=tmp_path / "w",
    )

    assert [one.status for one in result.tool_calls] == ["denied", "ok", "ok", "ok", "ok"]
    given = [(one["tool_name"], one["tool_input"]) for one in told(tmp_path)]
    assert [name for name, _ in given] == ["Bash", "Write", "Edit", "MultiEdit"]
    assert (given[0][1]["command"], given[0][1]["timeout"]) == ("rm -rf /x", 3000)
    path = str(tmp_path / "w/a")
    assert given[1][1] == {"file_path": path, "content": "one two"}
    assert given[2][1] == {"file_path": path, "old_string": "one", "new_string": "1", "replace_all": True}


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    "body", ["sys.exit(1)", "import time; time.sleep(60)  # sleep: it is ended", "print('{')", "import os; os.kill(os.getpid(), 9)"]
)  # fmt: skip
async def test_a_program_that_fails_denies_where_it_is_told_to(program, body):
    opened, _ = await run(on("PreToolUse", program(body), timeout=0.5), call("rm", path="x"))
    closed, _ = await run(on("PreToolUse", program(body), timeout=0.5, fails="closed"), call("rm", path="x"))
    by_default, _ = await run(on("PreToolUse", program(body), timeout=0.5), call("rm", path="x"), fails="closed")

    assert [one.tool_calls[0].status for one in (opened, closed, by_default)] == ["ok", "denied", "denied"]


async def test_after_a_tool_a_hook_adds_words_for_the_model(program, tmp_path):
    _, found = await run(
        on("PostToolUse", program("sys.stderr.write('run the linter'); sys.exit(2)")), call("rm", path="x")
    )

    assert "removed x" in found[0]
    assert "run the linter" in found[0]
    assert told(tmp_path)[0]["tool_response"] == "removed x False"


async def test_prompts_starts_and_stops(program, tmp_path):
    settings = {
        "hooks": {
            **on("UserPromptSubmit", program("print('It is Monday.')", "a"))["hooks"],
            **on("SessionStart", program("print(json.dumps({'hookSpecificOutput': {'additionalContext': 'Be kind.'}}))", "b"), matcher="startup")["hooks"],
            **on("Stop", program("sys.exit(0) if given['stop_hook_active'] else (sys.stderr.write('Check again.'), sys.exit(2))", "c"))["hooks"],
            **on("SessionEnd", program("", "d"))["hooks"],
            "Notification": [],
        }
    }  # fmt: skip
    result, _ = await run(settings, text("Done."), folder=tmp_path)

    words = [message.text for message in result.messages]
    assert [message.text for message in result.messages].count("Done.") == 2
    assert {"It is Monday.", "Be kind.", "Check again."} <= set(words)
    assert [one["hook_event_name"] for one in told(tmp_path)][-1] == "SessionEnd"
    denied, _ = await run(on("UserPromptSubmit", program("sys.exit(2)")), text("Done."))
    assert denied.reason == "task_denied"


async def test_a_hook_may_stop_the_run(program):
    said = {"continue": False, "stopReason": "Enough."}
    result, _ = await run(
        on("PreToolUse", program(f"print(json.dumps({said!r}))")), [call("rm", path="x"), call("rm", path="y")]
    )

    assert result.tool_calls[0].status == "denied"
    assert result.text != "Done."


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hooks": {"PreTool": []}}, "no event"),
        (on("PreToolUse", "x", matcher="("), "regular expression"),
        (on("PreToolUse", ""), "command"),
        (on("PreToolUse", "x", timeout=-1), "timeout"),
        (on("PreToolUse", "x", fails="maybe"), "fails"),
        ({"hooks": []}, "must be an object"),
        ("/no/such/file.json", "cannot be read"),
        ({"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}, 'write them within "hooks"'),
        ({"hooks": {"PreToolUse": [{"type": "command", "command": "x"}]}}, 'must have a list of "hooks"'),
        ({"hooks": {"PreToolUse": [{"matcher": "Bash"}]}}, 'must have a list of "hooks"'),
        (on("PreToolUse", "x", fail="closed"), "Did you mean 'fails'"),
        (on("PreToolUse", "x", time_out=3), "Did you mean 'timeout'"),
        ({"hooks": {"PreToolUse": [{"Matcher": "Bash", "hooks": []}]}}, "Did you mean 'matcher'"),
    ],
)
def test_settings_that_are_invalid_are_refused(settings, words):
    with pytest.raises(ConfigurationError, match=words):
        command_hooks(settings)


@pytest.mark.parametrize("content", ['{"hooks": {"PreToolUse": []}, "hooks": {}}', '{"hooks": {"Stop": [], "Stop": []}}', "[" * 100_000, "", "\\xff"])  # fmt: skip
def test_a_file_of_hooks_that_cannot_be_read_for_sure_is_refused(tmp_path, content):
    (tmp_path / "hooks.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"hooks\.json cannot be read"):
        command_hooks(tmp_path / "hooks.json")


def test_fields_that_change_nothing_are_left_alone():
    entry = {
        "type": "command",
        "command": "x",
        "statusMessage": "...",
        "async": True,
        "asyncRewake": True,
        "once": True,
        "_note": "mine",
    }
    settings = {
        "hooks": {"Stop": [{"hooks": [entry], "description": "mine"}]},
        "model": "other",
        "disableAllHooks": False,
    }
    assert [hook.at for hook in command_hooks(settings)] == ["stop"]


async def test_no_variable_of_ours_is_handed_to_a_hook(program, tmp_path):
    command = program(f"import os; open({str(tmp_path / 'env')!r}, 'w').write(json.dumps(dict(os.environ)))")
    await run(on("PreToolUse", command), call("rm", path="x"), policy=first_of(allow("rm")), folder=tmp_path)

    seen = json.loads((tmp_path / "env").read_text())
    assert "PYTEST_CURRENT_TEST" not in seen
    assert seen["CLAUDE_PROJECT_DIR"] == str(tmp_path)


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("ours", "theirs", "arguments", "given"),
    [
        ("todo", "TodoWrite", {"items": [{"text": "a", "state": "done"}]}, {"todos": [{"content": "a", "status": "done"}]}),
        ("spawn_agent", "Task", {"agent": "ann", "task": "look"}, {"subagent_type": "ann", "prompt": "look"}),
        ("spawn_agent", "Agent", {"agent": "ann", "task": "look"}, {"subagent_type": "ann", "prompt": "look"}),
        ("skill", "Skill", {"name": "sums"}, {"skill": "sums"}),
        ("exit_plan", "ExitPlanMode", {"plan": "1. Look."}, {"plan": "1. Look."}),
        ("ask_user", "AskUserQuestion", {"question": "Which?"}, {"question": "Which?"}),
    ],
)  # fmt: skip
async def test_a_matcher_fits_each_of_our_tools_by_its_name_there(ours, theirs, arguments, given, program, tmp_path):
    body = f"print(json.dumps({{'hookSpecificOutput': {{'updatedInput': {given!r}}}}}))"
    seen = []
    anything: Any = {"type": "object"}
    run_it = lambda arguments, ctx: seen.append(arguments)
    own = Tool(name=ours, description="Do it.", parameters=anything, effect="unsafe", run=run_it)
    hooks = on("PreToolUse", program(body), matcher=theirs)
    result, _ = await run(hooks, call(ours, **arguments), tools=[own], folder=tmp_path)

    (heard,) = told(tmp_path)
    assert heard["tool_input"] == given
    assert (heard["tool_name"], heard["treadle"]["tool"]) == ("Task" if theirs == "Agent" else theirs, ours)
    assert ([one.status for one in result.tool_calls], seen) == (["ok"], [arguments])


# --- the tables of docs/know/command-hooks.md say what the code does


PAGE = (Path(__file__).parents[2] / "docs" / "know" / "command-hooks.md").read_text()


def test_the_page_has_every_name():
    for theirs, moment in EVENTS.items():
        assert f"| `{theirs}` | `{moment.value}` |" in PAGE
    for ours, theirs in MODES.items():
        assert f"| `{ours}` | `{theirs}` |" in PAGE
    for ours, theirs in TOOLS.items():
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{ours}` | `{theirs}`"))
        assert all(f"`{one}` is `{other}`" in line for one, other in FIELDS.get(ours, {}).items())
    assert all(f"`{event}`" in PAGE for event in UNUSED_EVENTS)


# --- paths: from `/`, as Claude Code sends them, and read back as the same file

GUARD = """
import json, sys
given = json.load(sys.stdin)
open('told', 'a').write(json.dumps(given) + '\\n')
path = given['tool_input'].get('file_path') or given['tool_input'].get('path')
sys.exit(2 if (path + '/').startswith(sys.argv[1] + '/secrets/') else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "secrets/key").write_text("secret")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "deep").symlink_to("secrets/..")
    (tmp_path / "guard.py").write_text(GUARD)
    return tmp_path


async def run_on_files(folder: Path, one: Any, command: str, **more: Any) -> Any:
    tools = [*file_tools(folder), *writing_tools(folder)]
    return (await run(on("PreToolUse", command), one, tools=tools, folder=folder, **more))[0]


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("one", "is_denied"),
    [
        (call("read", path="secrets/key"), True),
        (call("read", path="./secrets//key"), True),
        (call("read", path="docs/../secrets/key"), True),
        (call("read", path="deep/docs/../secrets/key"), True),
        (call("write", path="secrets/new", content="x"), True),
        (call("edit", path="secrets/key", old_text="secret", new_text="x"), True),
        (call("grep", pattern="x", path="secrets"), True),
        (call("glob", pattern="*", path="secrets"), True),
        (call("list", path="secrets"), True),
        (call("read", path="notes.txt"), False),
        (call("list"), False),
    ],
)
async def test_a_guard_finds_a_path_of_the_project_however_it_was_written(folder, one, is_denied):
    result = await run_on_files(folder, one, f'{sys.executable} guard.py "$CLAUDE_PROJECT_DIR"')

    assert [record.status for record in result.tool_calls] == ["denied" if is_denied else "ok"]
    (given,) = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    path = given["tool_input"].get("file_path") or given["tool_input"]["path"]
    assert Path(path).is_absolute()
    assert given["treadle"]["arguments"].get("path") in (json.loads(one.arguments).get("path"), ".")


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("change", "written"), [("{}", "./docs/first"), ("{'file_path': root + '/docs/new'}", "docs/new"), ("{'file_path': 'docs/new'}", "docs/new")]
)  # fmt: skip
async def test_a_path_that_a_hook_sends_back_is_the_same_file(folder, change, written):
    """Rules see it in the form that the model would have written."""
    (folder / "change.py").write_text(
        f"import json, os, sys\nroot = os.getcwd()\nnew = json.load(sys.stdin)['tool_input'] | {change}\n"
        "print(json.dumps({'hookSpecificOutput': {'updatedInput': new}}))\n"
    )
    policy = first_of(allow(f"write(path={written})"), deny("*"))
    result = await run_on_files(
        folder, call("write", path="./docs/first", content="changed"), f"{sys.executable} change.py", policy=policy
    )

    assert [record.status for record in result.tool_calls] == ["ok"]
    assert (folder / written).read_text() == "changed"


@pytest.mark.row("E06")
async def test_a_path_outside_of_the_root_that_a_hook_sends_back_is_refused(folder):
    (folder / "change.py").write_text(
        "import json\nprint(json.dumps({'hookSpecificOutput': {'updatedInput': {'file_path': '/etc/hostname'}}}))\n"
    )
    result = await run_on_files(folder, call("read", path="notes.txt"), f"{sys.executable} change.py")

    assert [record.status for record in result.tool_calls] != ["ok"]


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5000, "a/../\0", "", "~/x"])
async def test_a_path_that_is_none_reaches_the_hook_and_is_refused_by_the_tool(folder, path):
    result = await run_on_files(folder, call("read", path=path), f"{sys.executable} guard.py /")

    assert [record.status for record in result.tool_calls] != ["ok"]
