"""Signals: a run that is asked to stop ends in order, and its session goes on later."""

import json
import os
import signal

import pytest

from treadle.testing import MockProvider, Turn

BLOCKING = """
import os
from pathlib import Path
from treadle import Tool

def _wait(arguments, ctx):
    with open(Path(__file__).with_name("started"), "w") as gate:  # a FIFO: returns when the test reads
        gate.write("started")
    with open(Path(__file__).with_name("never")) as never:  # a FIFO that nobody writes
        return never.read()

wait = Tool(name="wait", description="Wait.", parameters={"type": "object"}, effect="read", run=_wait)
"""


@pytest.fixture
def blocked(treadle):
    """A run that is in the middle of a tool."""
    (treadle.folder / "blocking.py").write_text(BLOCKING)
    model = treadle.script("s.json", [{"calls": [{"name": "wait", "arguments": {}}]}, {"text": "Done."}])
    for name in ("started", "never"):
        os.mkfifo(treadle.folder / name)
    process = treadle.start("run", "--json", "-m", model, "--tools", "blocking.py", "--session", "s1", "Wait")
    assert (treadle.folder / "started").read_text() == "started"
    with process:  # closes its pipes
        yield process
        process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_mid_tool_ends_the_run_with_its_report(treadle, blocked, number, code):
    blocked.send_signal(number)
    out, error = blocked.communicate(timeout=60)

    assert blocked.returncode == code, error
    report = json.loads(out)
    assert b"Traceback" not in error
    assert (report["reason"], report["phase"], report["completed"]) == ("cancelled", "tool", False)
    assert [one["status"] for one in report["tool_calls"]] == ["cancelled"]
    assert treadle.json("sessions", "--json")[0]["state"] == "stopped"
    assert treadle.json("resume", "s1", "--json", "--tools", "blocking.py", code=0)["text"] == "Done."


def test_a_session_that_another_process_runs_is_refused_with_code_16(treadle, blocked):
    ran = treadle("run", "-m", "demo", "--session", "s1", "Me too", code=16)

    assert ran.stdout == ""
    assert "s1" in ran.stderr
    assert blocked.poll() is None


def test_a_run_that_was_killed_in_mid_tool_goes_on(treadle, blocked):
    blocked.kill()
    blocked.wait(60)
    for name in ("started", "never"):  # the next attempt need not wait
        (treadle.folder / name).unlink()
        (treadle.folder / name).touch()

    report = treadle.json("resume", "s1", "--json", "--tools", "blocking.py", code=0)

    assert report["text"] == "Done."
    assert [one["status"] for one in report["tool_calls"]] == ["ok"]


def test_a_signal_while_the_model_is_silent_ends_the_run(treadle):
    with MockProvider([Turn(text="Never.", gate="g")]).in_thread() as provider:
        process = treadle.start("run", "--stream-json", *treadle.served(provider), "x")
        for line in process.stdout:
            if b"model.started" in line:
                break
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)

    report = json.loads(out.splitlines()[-1])
    assert process.returncode == 130, error
    assert (report["type"], report["reason"], report["phase"]) == ("report", "cancelled", "model")


def test_the_mock_prints_its_address_first_serves_records_and_ends_with_0(treadle):
    treadle.script("s.json", [{"text": "Hello."}])
    process = treadle.start("mock", "s.json", "--record", "requests.jsonl")
    url = process.stdout.readline().decode().strip()

    ran = treadle("run", "-m", "openai-chat:mock", "--base-url", url, "Hi", code=0)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)

    assert url.startswith("http://127.0.0.1:")
    assert ran.stdout == "Hello.\n"
    assert process.returncode == 0, error
    (recorded,) = (treadle.folder / "requests.jsonl").read_text().splitlines()
    assert json.loads(recorded)["status"] == 200


def test_a_script_with_an_error_is_told_with_its_place(treadle):
    (treadle.folder / "bad.json").write_text('[{"text": "a"}, {"txet": "b"}]')

    ran = treadle("mock", "bad.json", code=2)

    assert ran.stdout == ""
    assert "turn [1]" in ran.stderr
