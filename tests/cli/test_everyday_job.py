"""The everyday job, from outside: the program mends a failing test of a real repository with its own tools; only the model is scripted."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from treadle.testing import MockProvider, call, text

SOURCE = "def total(prices):\r\n    result = 0\r\n    for price in prices[1:]:\r\n        result += price\r\n    return result\r\n"
MENDED = SOURCE.replace("prices[1:]", "prices")
TEST = """import unittest

from shop.pricing import total


class Totals(unittest.TestCase):
    def test_all_prices_count(self):
        self.assertEqual(total([2, 3, 4]), 9)
"""
CHECK = "python3 -m unittest -q tests.test_pricing"
ALLOWED = f"shell({CHECK})"
TOOLS = ("--tools", "grep,glob,read,list,write,edit,shell")


def repository(folder: Path) -> Path:
    root = folder / "repo"
    for name, content in (
        ("shop/pricing.py", SOURCE),
        ("shop/__init__.py", ""),
        ("tests/__init__.py", ""),
        ("tests/test_pricing.py", TEST),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode())
    (root / "shop/pricing.py").chmod(0o640)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@e", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=root, check=True, timeout=60, capture_output=True)
    return root


def job(old: str = "for price in prices[1:]:") -> list[Any]:
    return [
        [call("glob", pattern="**/*.py"), call("grep", pattern="def total")],
        [call("read", path="shop/pricing.py"), call("read", path="tests/test_pricing.py")],
        [call("shell", command=CHECK)],
        [call("edit", path="shop/pricing.py", old_text=old, new_text="for price in prices:")],
        [call("shell", command=CHECK)],
        [call("shell", command="git diff --stat")],
        text("The first price was left out. The test passes now."),
    ]


def arguments(provider: MockProvider, root: Path) -> list[str]:
    place = ["-m", "openai-chat:any", "--base-url", provider.base_url, *TOOLS, "-C", str(root)]
    return [*place, "--mode", "accept-edits", "--max-model-turns", "20"]


def results(provider: MockProvider) -> dict[str, Any]:
    """What the model was told of each call, by the tool and the time of its call."""
    messages = provider.requests[-1].body["messages"]
    names = {one["id"]: one["function"]["name"] for message in messages for one in message.get("tool_calls") or ()}
    found: dict[str, Any] = {}
    for message in messages:
        if message["role"] == "tool":
            name = names[message["tool_call_id"]]
            found[f"{name} {1 + sum(key.startswith(name + ' ') for key in found)}"] = json.loads(message["content"])
    return found


def is_mended(root: Path) -> bool:
    file = root / "shop/pricing.py"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in (root / "shop").iterdir() if one.name != "__pycache__") == [
        "__init__.py",
        "pricing.py",
    ]
    return file.read_bytes() == MENDED.encode()


@pytest.mark.row("D-JOB")
def test_a_failing_test_is_mended_with_the_one_permission_that_the_person_gave(treadle: Any) -> None:
    root = repository(treadle.folder)

    with MockProvider(job()).in_thread() as provider:
        run = treadle(
            "run", *arguments(provider, root), "--allow", ALLOWED, "--stream-json", "Mend the failing test", code=0
        )

    *events, report = [json.loads(line) for line in run.stdout.splitlines()]
    told = results(provider)
    assert provider.refusals == []
    assert is_mended(root)
    assert (told["shell 1"]["exit_code"], told["shell 2"]["exit_code"]) == (1, 0)
    assert "5 != 9" not in told["shell 1"].get("stdout", "")
    assert "7 != 9" in json.dumps(told["shell 1"])
    assert told["edit 1"]["lines"] == [3]
    assert "shop/pricing.py | 2 +-" in json.dumps(told["shell 3"])
    finished = [one["result"]["status"] for one in events if one["type"] == "tool.finished"]
    assert finished == ["ok"] * 8
    assert [one for one in events if one["type"] == "approval.requested"] == []
    assert report["text"].endswith("passes now.")

    listed = treadle.json("sessions", "show", report["session_id"], "--json")
    assert sum(message["role"] == "tool" for message in listed["messages"]) == 6
    assert treadle("sessions", "check", code=0)
    explained = treadle("sessions", "explain", report["session_id"], code=0).stdout
    assert "edit" in explained


@pytest.mark.row("D-JOB")
def test_without_a_permission_the_person_is_asked_about_the_program_alone(treadle: Any) -> None:
    root = repository(treadle.folder)
    asked: list[tuple[str, str]] = []

    with MockProvider(job()).in_thread() as provider:
        given = arguments(provider, root)
        ran = treadle("run", *given, "--json", "Mend the failing test")
        session = json.loads(ran.stdout)["session_id"]
        while waiting := treadle.json("approvals", "--json", code=0):
            asked += [(one["tool"], one["arguments"]["command"]) for one in waiting]
            assert len(asked) < 5
            treadle("approve", waiting[0]["id"], code=0)
            ran = treadle("resume", session, *given, "--json")

    assert ran.returncode == 0, ran.stderr
    assert asked == [("shell", CHECK)] * 2
    assert is_mended(root)
