"""Forms of a hook that Claude Code knows: what each of them starts, and those that are refused."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hook_tools import on, run, status

from treadle import ConfigurationError
from treadle.resolve.command_hooks import command_hooks
from treadle.testing import call


async def ended(folder: Path, path: str = "x", **entry: Any) -> str:
    """Return how a call ends that one hook guards."""
    result, _ = await run(on("PreToolUse", **entry), call("rm", path=path), folder=folder)
    return status(result)


@pytest.mark.row("E06")
@pytest.mark.parametrize("place", ["${CLAUDE_PROJECT_DIR}/", "${TREADLE_PROJECT_DIR}/", "", "./"])
async def test_a_hook_with_args_is_started_without_a_shell(tmp_path, place):
    """What the model writes is never code: the script alone is carried out."""
    (tmp_path / "a b;$(touch ran).py").write_text(
        "import json, sys\nopen('told', 'w').write(json.dumps([json.load(sys.stdin)['tool_input'], sys.argv[1:]]))\nsys.exit(2)\n"
    )
    hostile = f"$(touch {tmp_path}/ran) `touch {tmp_path}/ran`"

    status = await ended(
        tmp_path, hostile, command=sys.executable, args=[f"{place}a b;$(touch ran).py", "$HOME", "*", ""]
    )

    assert status == "denied"
    assert not (tmp_path / "ran").exists()
    assert json.loads((tmp_path / "told").read_text()) == [{"path": hostile, "force": False}, ["$HOME", "*", ""]]


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "${CLAUDE_PROJECT_DIR}/check", "args": []},
        {"command": "sh", "args": ["-c", '. "$CLAUDE_PROJECT_DIR"/check']},
        {"command": '[[ -n "$BASH_VERSION" ]] && exit 2', "shell": "bash"},
    ],
    ids=["a placeholder", "a shell of its own", "bash"],
)
async def test_a_hook_finds_its_project_and_the_shell_that_it_asks_for(tmp_path, entry):
    (tmp_path / "check").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "check").chmod(0o755)

    assert await ended(tmp_path, **entry) == "denied"


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"onFailure": "block"}, "denied"),
        ({"onFailure": "continue"}, "ok"),
        ({"onFailure": "continue", "fails": "closed"}, "denied"),
        ({"onFailure": "block", "fails": "open"}, "denied"),
    ],
)
async def test_what_a_failure_means_is_said_in_either_way_and_the_stricter_one_counts(tmp_path, entry, status):
    assert await ended(tmp_path, command="exit 1", **entry) == status
    assert await ended(tmp_path, command="/no/such/program", args=[], **entry) == status


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"args": "check.py"}, "list of strings"),
        ({"args": ["check.py", 3]}, "list of strings"),
        ({"args": None}, "list of strings"),
        ({"shell": "powershell"}, 'only be "bash"'),
        ({"shell": ["bash"]}, 'only be "bash"'),
        ({"if": "Bash(git *)"}, "field 'if', which Treadle does not carry out"),
        ({"onFailure": "deny"}, "onFailure"),
        ({"timeout": float("inf")}, "at most 1,000,000"),
        ({"timeout": float("nan")}, "at most 1,000,000"),
        ({"timeout": 10**400}, "at most 1,000,000"),
        ({"onfailure": "block"}, "Did you mean 'onFailure'"),
        ({"arg": ["x"]}, "Did you mean 'args'"),
        ({"cwd": "/tmp"}, "no field 'cwd'. It may change what the hook does"),
        ({"env": {}}, "no field 'env'"),
        ({"type": "http", "url": "http://127.0.0.1:9"}, "no field 'url'"),
        ({"type": "http"}, 'must have "type": "command"'),
        ({"type": "prompt"}, 'must have "type": "command"'),
        ({"type": "agent"}, 'must have "type": "command"'),
        ({"type": "mcp_tool"}, 'must have "type": "command"'),
        ({"args": ["$CLAUDE_PROJECT_DIR/check.py"]}, "with braces"),
        ({"args": ["${CLAUDE_PLUGIN_ROOT}/check.py"]}, "only plugins of Claude Code"),
        ({"command": "$CLAUDE_PLUGIN_ROOT/check.py"}, "only plugins of Claude Code"),
    ],
)
def test_a_field_that_would_change_what_runs_is_carried_out_or_refused(entry, words):
    with pytest.raises(ConfigurationError, match=words):
        command_hooks(on("PreToolUse", **{"command": "check", **entry}))


def test_a_group_with_an_unknown_field_is_refused():
    with pytest.raises(ConfigurationError, match="no field 'if'"):
        command_hooks({"hooks": {"PreToolUse": [{"if": "Bash(git *)", "hooks": []}]}})


READING = [
    "bash 2>/dev/null", "bash >log 2>&1", "bash -s x", "bash -eo pipefail", "bash -v", "env -u X bash", "sudo -u x bash", "timeout -k 1 5 bash", "exec -a x bash",
    "flock x bash", "busybox sh", "ruby -rjson", "perl -w", "node --no-warnings", "deno", "ts-node", "until bash; do :; done", "f() { bash; }; f",
    "bash -c 'bash'", "bash -c \"sh -c 'exec bash'\"", 'echo "$(bash)"', "true && command -v bash && bash", "cat | bash", "jq . | python3 -", "true\nbash",
    "env -S 'bash -x'",
]  # fmt: skip


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "bash", "args": []},
        {"command": "/bin/bash", "args": ["-x"]},
        {"command": "sh", "args": ["-s"]},
        {"command": "env", "args": ["A=b", "dash"]},
        {"command": "perl", "args": ["-"]},
        {"command": "ruby", "args": ["-W"]},
        {"command": "bash"},
        {"command": "cd . && exec bash -x"},
        {"command": "bash $GUARD_SCRIPT"},
        {"command": "bash ${GUARD_SCRIPT}; true"},
        {"command": "timeout 5 sh --posix"},
        {"command": "sh /dev/stdin"},
        {"command": "if true; then php; fi"},
        {"command": "python3 -"},
        {"command": "bash", "args": ["-c", "bash"]},
        *({"command": line} for line in READING),
    ],
)
def test_an_interpreter_without_a_script_is_refused(entry):
    """It would take the words of the model, which are its input, for its script."""
    with pytest.raises(ConfigurationError, match="standard input"):
        command_hooks(on("PreToolUse", **entry))


@pytest.mark.parametrize(
    "command",
    [
        "bash check.sh", "bash -c true", "bash -xc true", "X=check.sh; bash $X", "read f; bash $f", "jq -r .x | bash check.sh", "bash < check.sh",
        "bash -s <<< true", "bash ${X:-check.sh}", 'bash "$(which check)"', "echo bash", "python3 -c pass", "perl -ne print", "node -e 1",
        "python3 -m check", "python3 -mcheck", "'unclosed", "command -v node >/dev/null && node x.js", "command -v python3 || exit 0; python3 x.py",
        "if ! command -v node; then exit 0; fi; node x.js", "bash --version", "python3 --version", "python3 -V && node -v", "type node", "which node",
        "bash -euo pipefail -c true", "bash -o pipefail check.sh 2>/dev/null", "bash check.sh >log 2>&1", "python3 -W ignore -X dev x.py",
        "python3 -Wignore -m check", "ruby -rjson -e 'p JSON.parse(STDIN.read)'", "node --no-warnings --require ./x x.js", "perl -0777 -ne print",
        "perl -Mstrict -i.bak -pe 1", "php -d x=1 -r 'echo 1;'", "deno run --allow-read x.ts", "uv run --with x python x.py",
        "sudo -u x bash check.sh", "timeout -k 1 5 bash check.sh", "source .venv/bin/activate && python x.py", "python3 - <<'EOF'\nprint(1)\nEOF",
        "python3 <<EOF\nbash\nEOF", "bash -c 'cat | jq .'", "x=$(cat); echo $x | python3 -c 'import sys'", "# bash\nbash check.sh # bash",
        "echo 'bash; sh' \"; bash\"", 'python3 "$(dirname "$0")/x.py"', "awk -f check.awk", "env -S 'bash check.sh'",
        "if [[ $x =~ ^(bash|sh)$ ]]; then exit 2; fi",
    ],
)  # fmt: skip
def test_a_line_that_names_its_code_is_taken(command):
    assert command_hooks(on("PreToolUse", command))


@pytest.mark.row("E06")
def test_an_event_that_only_other_programs_have_is_warned_of_and_the_rest_counts(caplog):
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    hooks = command_hooks({"hooks": {"WorktreeCreate": hook, "PostToolUseFailure": hook, "PreToolUse": hook}})

    assert [one.at for one in hooks][:1] == ["before_tool"]
    assert [record.getMessage() for record in caplog.records] == [
        f"Hooks for {event} are not called: Treadle has no such event."
        for event in ("WorktreeCreate", "PostToolUseFailure")
    ]
    for event in ("PreTooluse", "preToolUse", "UserPromptSubmitted", "Stops"):
        with pytest.raises(ConfigurationError, match="Did you mean"):
            command_hooks({"hooks": {event: hook}})
