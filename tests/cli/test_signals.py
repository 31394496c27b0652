"""Signals: a run that is asked to stop ends in order, and its session continues later."""

import json
import os
import select
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

def tool(name, **words):
    return Tool(name=name, description="Wait.", parameters={"type": "object"}, run=_wait, **words)

wait = tool("wait", effect="read")
again = tool("again", effect="idempotent")
stubborn = tool("stubborn", effect="unsafe", interrupt="block")
"""

WAITS_WHEN_LOADED = """
from pathlib import Path

with open(Path(__file__).with_name("started"), "w") as gate:
    gate.write("started")
with open(Path(__file__).with_name("never")) as never:
    never.read()
"""


@pytest.fixture
def start_blocked(treadle):
    """Start the program and return once its file of tools says that it waits."""
    for name in ("started", "never"):
        os.mkfifo(treadle.folder / name)
    started = []

    def start(*arguments, tools=BLOCKING, name="wait", source="blocking.py", **words):
        (treadle.folder / "blocking.py").write_text(tools)
        model = treadle.script("s.json", [{"calls": [{"name": name, "arguments": {}}]}, {"text": "Done."}])
        flags = ["-m", model, "--tools", source, "--session", "s1", *arguments]
        process = treadle.start("run", "--json", *flags, "Wait", **words)
        started.append(process)
        wait_until_started(treadle.folder / "started", process)
        return process

    yield start
    for process in started:
        with process:  # closes its pipes
            process.kill()


@pytest.fixture
def blocked(start_blocked):
    """A run that is in the middle of a tool."""
    return start_blocked()


@pytest.fixture(autouse=True)
def heeded_signals():
    """A program whose parent ignores a signal ignores it too: as these tests would under nohup, or behind an `&`."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def wait_until_started(gate, process):
    """Wait for the word at the gate; a program that ends without it must not be waited for."""
    descriptor = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready, _, _ = select.select([descriptor, process.stdout], [], [], 60)
        assert ready == [descriptor], process.communicate(timeout=60)
        os.set_blocking(descriptor, True)
        with open(descriptor, closefd=False) as file:
            assert file.read() == "started"
    finally:
        os.close(descriptor)


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


def test_a_second_ctrl_c_ends_the_program_at_once_and_what_is_recorded_is_safe(treadle, start_blocked):
    # A cancel waits for this tool to end by itself. It is not a read, so its start was durable before it began.
    process = start_blocked("--allow", "stubborn", name="stubborn")
    process.send_signal(signal.SIGINT)
    said = next(line for line in process.stderr if b"SIGINT received" in line)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)

    assert b"Press Ctrl-C again to quit at once" in said
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    assert treadle.json("sessions", "--json")[0]["state"] == "running"
    (call,) = treadle.json("sessions", "show", "s1", "--json")["calls"]
    assert (call["name"], call["result"]) == ("stubborn", None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_first_step_ends_the_run_with_its_report(treadle, number, code):
    with MockProvider([Turn(text="Never.", gate="g")]).in_thread() as provider:
        served = treadle.served(provider)
        process = treadle.start("run", "--stream-json", *served, "--session", "s1", "x")
        first = process.stdout.readline()
        process.send_signal(number)
        out, error = process.communicate(timeout=60)

    report = json.loads(out.splitlines()[-1])
    assert process.returncode == code, error
    assert json.loads(first)["type"] == "run.started"
    assert (report["reason"], report["phase"], report["tool_calls"]) == ("cancelled", "model", [])
    assert treadle.json("sessions", "--json")[0]["state"] == "stopped"


@pytest.mark.parametrize("source", ["blocking.py", "blocking:tool"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_while_the_program_starts_ends_it_and_leaves_nothing(treadle, start_blocked, number, code, source):
    process = start_blocked(tools=WAITS_WHEN_LOADED, source=source)
    process.send_signal(number)
    out, error = process.communicate(timeout=60)

    assert (process.returncode, out) == (code, b"")
    assert error.decode() == ("treadle: interrupted.\n" if number == signal.SIGINT else "")
    assert not treadle.home.exists()


def test_a_second_signal_that_is_no_ctrl_c_changes_nothing(treadle, start_blocked):
    process = start_blocked("--allow", "stubborn", name="stubborn")
    process.send_signal(signal.SIGTERM)
    assert next(line for line in process.stderr if b"SIGTERM received" in line)
    process.send_signal(signal.SIGHUP)
    (treadle.folder / "never").write_text("enough")  # a FIFO: the tool ends by itself
    out, error = process.communicate(timeout=60)

    assert process.returncode == 143, error
    assert b"SIGHUP" not in error
    assert json.loads(out)["reason"] == "cancelled"


def test_a_program_under_nohup_outlives_its_terminal(treadle, start_blocked):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as from nohup
    try:
        process = start_blocked(is_new=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    (treadle.folder / "never").write_text("enough")
    out, error = process.communicate(timeout=60)

    assert process.returncode == 0, error
    assert json.loads(out)["text"] == "Done."


def test_a_session_that_another_process_runs_is_refused_with_code_16(treadle, blocked):
    ran = treadle("run", "-m", "demo", "--session", "s1", "Me too", code=16)

    assert ran.stdout == ""
    assert "s1" in ran.stderr
    assert blocked.poll() is None


def test_a_run_that_was_killed_in_mid_tool_goes_on(treadle, start_blocked):
    # Not a read: the start of one is stored late, and the process may be killed before.
    blocked = start_blocked("--allow", "again", name="again")
    blocked.kill()
    blocked.wait(60)
    for name in ("started", "never"):  # the next attempt need not wait
        (treadle.folder / name).unlink()
        (treadle.folder / name).touch()

    report = treadle.json("resume", "s1", "--json", "--tools", "blocking.py", "--allow", "again", code=0)

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
