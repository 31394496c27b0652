"""Progress at a terminal and in a pipe: waits that a provider asked for, and a tool's own progress on one line."""

import os
import pty
import re
import signal
import subprocess
from typing import Any

import pytest

from treadle.testing import MockProvider, Turn, call, text

COUNTING = """
from treadle import Tool

def _count(arguments, ctx):
    for number in range(1, 4):
        ctx.progress(f"counted {number}\\n[ok] forged", done=number, total=3)
    return "counted"

count = Tool(name="count", description="Count.", parameters={"type": "object", "properties": {}}, effect="read", run=_count)
"""

WAIT = r"\[wait\] The provider is limiting requests \(429\): retrying in \d+\.\d s\."


def at_terminal(treadle: Any, *arguments: str) -> str:
    """Return all that the program writes where standard output and standard error are one terminal."""
    ours, theirs = pty.openpty()
    process: subprocess.Popen[bytes] = treadle.start(*arguments, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1000):
            shown += piece
    except OSError:  # Linux says so at the end of a terminal
        pass
    process.wait(60)
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def screen(shown: str) -> list[str]:
    """Return the lines that are left on a screen: `\\r` and `ESC [K` clear what a line held."""
    return [line.rpartition("\r\x1b[K")[2] for line in shown.split("\n")]


@pytest.fixture
def limited() -> Any:
    """A provider that limits the first request, and a server's fault before the second answer."""
    turns = [Turn(status=429, error="slow down", headers={"retry-after-ms": "50"}), text("Hello.")]
    with MockProvider(turns).in_thread() as provider:
        yield provider


@pytest.mark.row("H21")
def test_a_wait_for_a_rate_limit_is_shown_without_verbosity_and_not_when_quiet(treadle, limited):
    ran = treadle("run", *treadle.served(limited), "Greet", code=0)
    assert [line for line in ran.stderr.splitlines() if re.fullmatch(WAIT, line)]
    assert ran.stdout == "Hello.\n"


@pytest.mark.row("H21")
def test_a_wait_is_not_shown_to_one_who_wants_no_progress(treadle, limited):
    assert "[wait]" not in treadle("run", *treadle.served(limited), "-q", "Greet", code=0).stderr


def test_each_wait_before_another_attempt_is_shown_with_its_reason(treadle):
    turns = [Turn(status=503, error="busy", headers={"retry-after-ms": "50"}), text("Hello.")]
    with MockProvider(turns).in_thread() as provider:
        told = treadle("run", *treadle.served(provider), "Greet", code=0).stderr
    assert re.search(r"\[retry\] Model attempt 1 failed: http\S+ answered 503: busy\. Retrying in \d+\.\d s\.\n", told)


def test_a_response_that_is_cancelled_is_not_asked_for_again(treadle):
    """Neither when it is cancelled nor when it is replayed."""
    turns = [Turn(text="First and the rest.", pieces=3, gate="g", hold_after_pieces=2)]
    with MockProvider(turns).in_thread() as provider:
        process = treadle.start("run", "--stream-json", *treadle.served(provider), "--session", "s", "Greet")
        next(line for line in process.stdout if b"model.delta" in line)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)

    assert process.returncode == 130, told
    assert b"asking the model again" not in told
    assert '"interrupted":true' in treadle("sessions", "export", "s", code=0).stdout
    assert "asking the model again" not in treadle("replay", "s", code=0).stderr


@pytest.fixture
def counting(treadle: Any) -> Any:
    (treadle.folder / "counting.py").write_text(COUNTING)
    return treadle


@pytest.mark.row("H21", "N11")
def test_a_tool_s_progress_replaces_its_own_line_at_a_terminal(counting):
    with MockProvider([call("count"), text("Done.")]).in_thread() as provider:
        shown = at_terminal(
            counting, "run", *counting.served(provider), "--tools", "counting.py", "--session", "s", "x"
        )

    for number in (1, 2, 3):
        assert f"[runs] count: counted {number} [ok] forged ({number} of 3)\r\x1b[K" in shown
    left = screen(shown)
    assert left[:4] == ["session: s", "[runs] count", "[done] count: counted", "  Done."]
    assert not any("forged" in line for line in left)


@pytest.mark.row("H21")
def test_in_a_pipe_each_progress_is_a_line_of_its_own(counting):
    counting.script("count.json", [{"calls": [{"name": "count", "arguments": {}}]}, {"text": "Done."}])
    told = counting("run", "-m", "script:count.json", "--tools", "counting.py", "x", code=0).stderr

    assert [line for line in told.splitlines() if "counted " in line and "of 3" in line] == [
        f"[runs] count: counted {number} [ok] forged ({number} of 3)" for number in (1, 2, 3)
    ]
    assert "\r" not in told
    assert "\x1b" not in told


def test_a_command_is_shown_by_what_it_wrote(treadle):
    line = "echo 1; echo 2; echo three >&2; exit 4"
    calls = [{"name": "shell", "arguments": {"command": line}}, {"name": "shell", "arguments": {"command": "true"}}]
    model = treadle.script("s.json", [{"calls": calls[:1]}, {"calls": calls[1:]}, {"text": "Done."}])

    told = treadle("run", "-m", model, "--tools", "shell", "--allow", "shell", "x", code=0).stderr

    assert f"[failed] $ {line}: exit code 4 1 2 three\n" in told
    assert "[done] $ true: nothing\n" in told
