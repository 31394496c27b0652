"""Commands of hooks that fail, lie or never end: a call that one of them denies does not run, and the run goes on."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hook_tools import on, status
from hook_tools import run as run_with

from treadle import deny
from treadle.testing import call


@pytest.fixture
def run(tmp_path: Path):
    """Run an agent whose one call passes a hook with this body."""

    async def go(event: str, body: str, *calls: Any, fails: Any = "open", policy: Any = None, **more: Any) -> Any:
        place = tmp_path / "hook.py"
        place.write_text(f"import json, os, sys\n{body}\n")
        settings = on(event, f"{sys.executable} {place}", **more)
        return (await run_with(settings, *calls, folder=tmp_path, fails=fails, policy=policy))[0]

    return go


def says(value: Any) -> str:
    return f"print({json.dumps(value)!r})"


NOT_UNDERSTOOD = [
    'print(\'[{"permissionDecision": "deny"}]\')',
    "print('\"deny\"')",
    says({"hookSpecificOutput": "deny"}),
    says({"hookSpecificOutput": [{"permissionDecision": "deny"}]}),
    says({"hookSpecificOutput": {"permissionDecision": "DENY"}}),
    says({"hookSpecificOutput": {"permissionDecision": ["deny"]}}),
    says({"hookSpecificOutput": {"permissionDecision": "defer"}}),
    says({"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "deny"}}),
    says({"hookSpecificOutput": {"updatedInput": "rm y"}}),
    says({"permissionDecision": "deny"}),
    says({"updatedInput": {"path": "y"}}),
    says({"permission": "deny"}),
    says({"ok": False, "reason": "no", "continue": True}),
    says({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissiondecision": "deny"}}),
    says({"hookSpecificOutput": {"decision": "deny"}, "systemMessage": "no"}),
    says({"decision": "denied"}),
    says({"decision": {"block": True}}),
    says({"continue": "false"}),
    says({"continue": 0}),
    'print(\'{"decision": "block", "decision": "approve"}\')',
    "print('{\"a\": ' + '[' * 100_000 + ']' * 100_000 + '}')",
    f"print('checking'); {says({'decision': 'block'})}",
    f"{says({'decision': 'approve'})}; {says({'decision': 'block'})}",
    "sys.stdout.write(json.dumps({'pad': 'x' * 50_000_000, 'hookSpecificOutput': {'permissionDecision': 'deny'}}))",
    f"print('x' * 600_000); {says({'decision': 'block'})}; print('x' * 600_000)",
    "sys.stdout.write('x' * 1_000_001)",
    "sys.stdout.buffer.write('{\"decision\": \"block\"}'.encode('utf-16'))",
    'sys.stdout.buffer.write(b\'\\0{"decision": "block"}\')',
    'sys.stdout.buffer.write(b\'{"deci\\xffsion": "block"}\')',
    "sys.stdout.buffer.write(b'\\xff\\xfe')",
    'sys.stdout.write(\'checked\\r{"decision": "block"}\')',
    """print('note: {"hookSpecificOutput": {"permissionDecision": "deny"}}')""",
    "print('{\"continue\": NaN}')",
    "print('{\"hookSpecificOutput\": {\"updatedInput\": {\"path\": ' + '9' * 10_000 + '}}}')",
    *(f"sys.exit({code})" for code in (1, 3, 126, 127, 255)),
    *(f"os.kill(os.getpid(), {number})" for number in (6, 9, 11, 15)),  # not 1: under nohup it is ignored
]


@pytest.mark.row("E06")
@pytest.mark.parametrize("body", NOT_UNDERSTOOD)
async def test_an_answer_that_is_not_understood_denies_where_the_hook_fails_closed(run, body):
    assert status(await run("PreToolUse", body, fails="closed")) == "denied"
    assert status(await run("PreToolUse", body)) == "ok"


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    "body",
    [
        "print('checked: [ok]')",
        "print('3 files')",
        says({}),
        says({"hookSpecificOutput": {"hookEventName": "PreToolUse"}, "suppressOutput": True, "continue": True}),
        says({"decision": "approve", "elapsed": 3}),
        says({"hookSpecificOutput": {"permissionDecision": "allow", "note": "of a later version"}}),
        "sys.stdout.write('x' * 1_000_000)",
        "sys.stderr.write('x' * 50_000_000)",
        "",
    ],
)
async def test_words_and_silence_decide_nothing(run, body):
    assert status(await run("PreToolUse", body, fails="closed")) == "ok"


@pytest.mark.row("E06", "P13")
@pytest.mark.parametrize(
    "body",
    [
        says({"decision": "block", "reason": "no"}),
        says({"continue": False, "decision": "approve", "stopReason": "no"}),
        says({"hookSpecificOutput": {"permissionDecision": "deny", "updatedInput": {"path": "y"}}}),
        says({"hookSpecificOutput": {"permissionDecision": "deny", "note": "of a later version"}, "more": 1}),
        f"sys.stdout.buffer.write(b'\\xef\\xbb\\xbf'); sys.stdout.flush(); {says({'decision': 'block'})}",
        'print(\'{"decision": "block", "reason": "\\\\ud800 \\\\u0000"}\')',
        f"os.close(0); {says({'decision': 'block'})}",
        'sys.stdout.buffer.write(b\'{"decision": "block", "reason": "\\xff"}\')',
        "sys.stderr.write('x' * 50_000_000); sys.exit(2)",
        f"{says({'hookSpecificOutput': {'permissionDecision': 'allow'}})}; sys.stdout.flush(); sys.exit(2)",
        f"import time\nif os.fork() == 0: time.sleep(100)  # sleep: it holds the pipe\n{says({'decision': 'block'})}",
        f"import time\nif os.fork() == 0: os.setsid(); time.sleep(4); os._exit(0)  # sleep: as above\n{says({'decision': 'block'})}",
    ],
)
async def test_a_denial_is_understood_whatever_comes_with_it(run, body):
    result = await run("PreToolUse", body, call("rm", path="y" * 900_000))

    assert status(result) == "denied"


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("command", "is_own"),
    [
        ('{python} -c "import json, sys; sys.exit(2)"', True),
        ("cd . && {python} -uc 'import json, sys; sys.exit(2)'", True),
        ("{python} -B -m json.tool; exit 2", True),
        ("{python} -mtimeit -n1 pass; exit 2", True),
        ("{python} -m mine", False),
        ("{python} -m deep.alone", False),
        ("cd deep; {python} -m alone", False),
        ("{python} deep/check.py", False),
    ],
)
async def test_no_module_of_the_folder_takes_the_place_of_one_of_pythons_own(tmp_path, command, is_own):
    """A model may write in the folder: what it puts there is not run by a hook that names nothing of it."""
    for name in ("json", "timeit"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "mine.py").write_text("import sys; sys.exit(2)\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/check.py").write_text("import mine\n")
    (tmp_path / "deep/mine.py").write_text("import sys; sys.exit(2)\n")
    (tmp_path / "deep/alone.py").write_text("import sys; sys.exit(2)\n")
    result, _ = await run_with(on("PreToolUse", command.format(python=sys.executable)), folder=tmp_path)

    assert status(result) == "denied"
    assert not is_own or not (tmp_path / "ran").exists()


@pytest.mark.row("E06")
async def test_a_hook_that_never_ends_is_ended_with_all_that_it_has_started(run, tmp_path):
    body = (
        "import time\nos.fork()\nopen('pids', 'a').write(f'{os.getpid()}\\n')\ntime.sleep(100)  # sleep: it never ends"
    )
    result = await run("PreToolUse", body, fails="closed", timeout=1)

    assert status(result) == "denied"
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists())


@pytest.mark.row("E06")
@pytest.mark.parametrize("said", [{"path": "\ud800"}, {"path": "secret", "force": True}, {"path": 3}, {"other": 1}, {}])
async def test_changed_arguments_are_held_to_schema_and_rules(run, said):
    body = says({"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": said}})
    result = await run("PreToolUse", body, policy=deny("rm(path=secret)", "rm(force=true)"))

    assert status(result) in ("denied", "invalid_arguments")


@pytest.mark.row("E06")
@pytest.mark.parametrize("fails", ["open", "closed"])
async def test_a_hook_after_a_tool_may_stop_the_run(run, fails):
    result = await run(
        "PostToolUse",
        says({"continue": False, "stopReason": "Enough."}),
        call("rm", path="x"),
        call("rm", path="y"),
        fails=fails,
    )

    assert (str(result.reason), len(result.tool_calls), status(result)) == ("task_denied", 1, "ok")
    assert "Enough." in result.stop.message
    assert "removed x" in result.messages[-1].results[0].content


@pytest.mark.row("E06")
async def test_a_block_after_a_tool_brings_its_context_along(run):
    body = says({"decision": "block", "reason": "lint", "hookSpecificOutput": {"additionalContext": "line 3"}})
    result = await run("PostToolUse", body)

    (content,) = [one.content for message in result.messages for one in getattr(message, "results", ())]
    assert content.endswith("[hook] lint\nline 3")


@pytest.mark.row("E06")
async def test_a_stop_at_the_end_of_a_run_is_stronger_than_a_block(run):
    result = await run("Stop", says({"continue": False, "decision": "block", "reason": "more"}))

    assert (result.text, len(result.messages)) == ("Done.", 4)
