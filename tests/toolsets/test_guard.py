"""A process that dies by kill -9 takes the programs of its tools with it. Real processes; a pipe that they hold shows who still lives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treadle.sandboxes import process_guard
from treadle.toolsets.shell import run_process

_PROGRAM = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open(sys.argv[1], "w")
waits = [sys.executable, "-c", "import signal; signal.pause()"]
ways = [{}, {"start_new_session": True}, {"start_new_session": True, "env": {}}] if sys.platform == "linux" else [{}, {}]
children = [subprocess.Popen(waits, pass_fds=[held.fileno()], **one) for one in ways]
held.write("x"); held.flush()
signal.pause()
"""

_RUNS = f"""
import asyncio, os, signal, sys
from treadle.sandboxes import run_process
PROGRAM = {_PROGRAM!r}
async def main():
    if "first" in sys.argv:
        await run_process(["true"])
    if "unguarded" in sys.argv:  # somebody has killed the guard
        guard = int(open(f"/proc/{{os.getpid()}}/task/{{os.getpid()}}/children").read().split()[0])
        os.kill(guard, signal.SIGKILL)
        os.waitpid(guard, 0)  # until then it holds its pipe
    await run_process([sys.executable, "-c", PROGRAM, sys.argv[1]])
async def main_and_fork():
    running = asyncio.ensure_future(run_process([sys.executable, "-c", PROGRAM, sys.argv[1]]))
    await asyncio.to_thread(lambda: open(sys.argv[2]).read())  # until the program holds its pipe
    child = os.fork()
    if child == 0:
        signal.pause()
    print(child, flush=True)
    await running
asyncio.run(main_and_fork() if "fork" in sys.argv else main())
"""


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[str]"]:
    popen = subprocess.Popen([sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield popen
    finally:
        popen.kill()
        popen.communicate()


def wait_for_end(reader: int) -> None:
    """Return when nobody holds the other end any more."""
    while os.read(reader, 100):
        pass


@pytest.mark.row("ST12")
@pytest.mark.parametrize("words", [(), ("first",), ("first", "unguarded")])
def test_a_program_and_its_children_end_with_a_process_that_is_killed(tmp_path: Path, words: tuple[str, ...]) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    with started(_RUNS, str(fifo), *words) as popen:
        reader = os.open(fifo, os.O_RDONLY)
        assert os.read(reader, 1) == b"x"
        popen.kill()
        wait_for_end(reader)
        os.close(reader)


@pytest.mark.row("ST12")
def test_a_fork_of_the_killed_process_does_not_keep_its_programs_alive(tmp_path: Path) -> None:
    fifo, gate = tmp_path / "held", tmp_path / "gate"
    os.mkfifo(fifo)
    os.mkfifo(gate)
    with started(_RUNS, str(fifo), str(gate), "fork") as popen:
        assert popen.stdout is not None
        reader = os.open(fifo, os.O_RDONLY)
        assert os.read(reader, 1) == b"x"
        gate.write_text("go")
        child = int(popen.stdout.readline())
        try:
            popen.kill()
            wait_for_end(reader)
        finally:
            os.kill(child, signal.SIGKILL)
            os.close(reader)


@pytest.mark.row("ST12")
async def test_a_guard_is_told_of_no_group_that_has_ended() -> None:
    await run_process(["true"])
    assert process_guard._guard.groups == {}
