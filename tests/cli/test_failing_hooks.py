"""Hooks that fail, as a person at the terminal reads of them: a guard that does not work must not go unnoticed."""

import json
from typing import Any

import pytest


@pytest.mark.row("E06")
@pytest.mark.parametrize(("fails", "then"), [("open", ", and was ignored"), ("closed", "")])
def test_a_hook_that_fails_is_reported_once_with_its_reason(treadle: Any, fails: str, then: str):
    (treadle.folder / "guard.sh").write_text("echo 'The policy server is down.' >&2; exit 1\n")
    hook = {"type": "command", "command": "sh guard.sh", "fails": fails}
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    look = {"name": "list", "arguments": {}}
    script = [{"calls": [look, {"name": "glob", "arguments": {"pattern": "*"}}]}, {"text": "Done."}]
    (treadle.folder / "s.json").write_text(json.dumps(script))

    done = treadle("run", "-m", "script:s.json", "go", code=0)

    reason = "sh guard.sh ended with status 1: The policy server is down."
    found = [line for line in done.stderr.splitlines() if line.startswith("warning: hook")]
    assert found == [f"warning: hook sh guard.sh failed at before_tool{then}: {reason}"]
    assert "Traceback" not in done.stderr
