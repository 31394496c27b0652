"""Processes: what a tool starts ends with its call, grandchildren too; whoever holds the pipe shows who still lives."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, Tool, ToolContext, open_session
from treadle.sandboxes import run_process
from treadle.sandboxes.processes import Ends
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject, ProcessResult
from treadle.toolsets.shell import clean_environment


@pytest.mark.row("S16", "TF2")
async def test_a_time_limit_kills_the_whole_tree_and_the_sibling_is_untouched(tmp_path: Path) -> None:
    fifo, begun = tmp_path / "held", asyncio.Event()
    os.mkfifo(fifo)
    program = (
        "import subprocess, sys, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"held = open({str(fifo)!r}, 'w')\n"
        "held.write('x'); held.flush()\n"
        "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], pass_fds=[held.fileno()]).wait()\n"
    )

    async def run(arguments: JsonObject, ctx: ToolContext) -> int:
        return (await run_process([sys.executable, "-c", program])).exit_code

    async def quick(arguments: JsonObject, ctx: ToolContext) -> str:
        return (await run_process(["echo", "hello"])).stdout

    tools = [
        Tool(name="hang", description="Hang.", parameters={}, effect="read", retries=0, timeout=5, run=run),
        Tool(name="quick", description="Be quick.", parameters={}, effect="read", run=quick),
    ]
    clock = FakeClock()

    async def watch() -> None:
        reader = await asyncio.to_thread(os.open, fifo, os.O_RDONLY)  # opens once the program holds it
        try:
            await asyncio.to_thread(os.read, reader, 1)
            begun.set()
            clock.advance(6)
            while await asyncio.to_thread(os.read, reader, 1):
                pass  # the end of file: no process of the tree lives any more
        finally:
            os.close(reader)

    async with open_session("memory:", clock=clock) as session:
        model = ScriptedModel([[call("hang"), call("quick")], text("done")])
        result, _ = await asyncio.gather(Agent(model, tools=tools).run("go", session=session), watch())

    assert begun.is_set()
    assert [one.status for one in result.tool_calls] == ["timeout", "ok"]


async def test_a_program_gives_its_outputs_and_its_exit_code() -> None:
    code = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('e' * 50); sys.exit(3)"
    result = await run_process([sys.executable, "-c", code], stdin=b"abc", max_bytes=10)
    assert result == ProcessResult(exit_code=3, stdout="ABC", stderr="e" * 10, is_shortened=True)


async def test_a_grandchild_that_holds_the_pipe_does_not_outlive_the_program() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); print('out')"
    result = await run_process([sys.executable, "-c", code])
    assert (result.exit_code, result.stdout) == (0, "out\n")


async def test_a_program_that_is_not_there_is_an_error_and_one_that_does_not_read_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_process([str(tmp_path / "nobody")])
    assert (await run_process(["true"], stdin=b"x" * 1_000_000)).exit_code == 0


@pytest.mark.parametrize("arguments", ["ls -l", b"ls", [], ["ls", 5], [""], ["a\0b"]])
async def test_a_line_is_not_taken_for_a_list_of_one_letter_words(arguments: Any) -> None:
    with pytest.raises(ConfigurationError, match="arguments"):
        await run_process(arguments)


ADDED = {"TREADLE_CALL", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}
PRINTS = "import os, json; print(json.dumps(dict(os.environ)))"


@pytest.mark.row("AT-SECRETS-CHILDREN")
async def test_a_program_sees_no_key_of_ours_unless_it_is_given() -> None:
    keys = {
        "OPENAI_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HTTPS_PROXY": "http://user:password@proxy",
        "MY_VAR": "1",
    }
    outer = (
        "import asyncio, sys\nfrom treadle.sandboxes import run_process\n"
        f"print(asyncio.run(run_process([sys.executable, '-c', {PRINTS!r}])).stdout)"
    )
    # A process of its own, which has the keys: ours stays as it is.
    seen = json.loads((await run_process([sys.executable, "-c", outer], env={**os.environ, **keys})).stdout)

    assert not keys.keys() & seen.keys()
    assert seen["PATH"] == os.environ["PATH"]
    assert set(seen) <= set(clean_environment()) | ADDED


async def test_an_environment_that_is_given_is_the_whole_one() -> None:
    env = {**clean_environment(), "NAME": "value"}
    seen = json.loads((await run_process([sys.executable, "-c", PRINTS], env=env)).stdout)

    assert seen["NAME"] == "value"
    assert set(seen) <= set(env) | ADDED


@pytest.mark.row("AT-SHELL-BOMBS")
@pytest.mark.parametrize("pieces", [1, 1000])
async def test_of_a_long_output_the_beginning_and_the_end_are_kept(pieces: int) -> None:
    code = (
        "import sys\nsys.stdout.write('first line\\n')\n"
        f"for _ in range({pieces}):\n sys.stdout.write('x' * (2_000_000 // {pieces})); sys.stdout.flush()\n"
        "sys.stdout.write('\\nError: the last line')"
    )
    result = await run_process([sys.executable, "-c", code], max_bytes=1000)

    assert result.is_shortened
    assert result.stdout.startswith("first line\nxxx")
    assert result.stdout.endswith("xxx\nError: the last line")
    assert "[... 1,999,032 bytes left out ...]" in result.stdout
    assert len(result.stdout) < 1100


@pytest.mark.parametrize("limit", range(300, 310))
def test_no_character_is_divided_where_the_middle_is_left_out(limit: int) -> None:
    ends = Ends(limit)
    ends.add("ä€😀".encode() * 1000)

    assert "\ufffd" not in ends.text()


async def test_an_output_as_long_as_the_limit_is_whole() -> None:
    result = await run_process([sys.executable, "-c", "print('x' * 998, end='ää')"], max_bytes=1002)

    assert (result.stdout, result.is_shortened) == ("x" * 998 + "ää", False)


@pytest.mark.row("E06")
async def test_input_that_nobody_reads_keeps_no_pipe_open():
    """A grandchild that has left the group holds the other end: until it ends, the pipe would stay open."""
    body = (
        "import os, time\nready, tell = os.pipe()\nif os.fork() == 0:\n  os.setsid()\n  os.close(1)\n  os.close(2)\n"
        "  os.write(tell, b'x')\n  time.sleep(5)  # sleep: it holds the pipe\nelse: os.read(ready, 1); print('over')"
    )
    await run_process(["true"])  # opens what is kept open
    before = len(list(Path("/proc/self/fd").iterdir()))

    done = await run_process([sys.executable, "-c", body], stdin=b"x" * 1_000_000)

    assert done.stdout == "over\n"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for one in range(1000):
            try: os.close(one)
            except OSError: pass
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(999)  # sleep: it is to be ended
    os._exit(0)
while "stay" in sys.argv or not os.path.exists(sys.argv[1]):
    time.sleep(0.01)  # sleep: until the other process runs
"""
LEAVE = {
    "a session of its own": "setsid --fork sh -c 'echo $$ > pid; exec sleep 999'; until [ -s pid ]; do :; done",
    "without its environment": "env -i setsid --fork sh -c 'echo $$ > pid; exec sleep 999'; until [ -s pid ]; do :; done",
    "with another limit": "ulimit -R 99; setsid --fork sh -c 'echo $$ > pid; exec sleep 999'; until [ -s pid ]; do :; done",
    "stopped": "setsid --fork sh -c 'echo $$ > pid; kill -STOP $$'; until [ -s pid ]; do :; done",
    "a daemon": f"exec {sys.executable} daemon.py pid",
}
needs_marks = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is ended")


def is_over(pid: int) -> bool:
    """Whether a process is no more, or only its entry is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@needs_marks
@pytest.mark.row("S16", "AT-SHELL-ORPHANS")
@pytest.mark.parametrize("way", LEAVE)
async def test_what_leaves_its_process_group_ends_with_the_program(tmp_path: Path, way: str):
    (tmp_path / "daemon.py").write_text(DAEMON)

    done = await run_process(["bash", "-c", LEAVE[way]], cwd=tmp_path)

    assert done.exit_code == 0, done.stderr
    assert is_over(int((tmp_path / "pid").read_text()))


@needs_marks
@pytest.mark.row("S16")
async def test_a_program_that_leaves_its_group_as_its_first_act_is_ended(tmp_path: Path):
    done = await run_process(["setsid", "--fork", "sh", "-c", "echo $$ > pid; exec sleep 999 > held"], cwd=tmp_path)

    assert done.exit_code == 0
    assert not (tmp_path / "pid").exists() or is_over(int((tmp_path / "pid").read_text() or 0))


@needs_marks
@pytest.mark.parametrize("end", ["cancelled", "timed out"])
async def test_what_leaves_its_process_group_ends_with_a_call_that_is_cut(tmp_path: Path, end: str):
    (tmp_path / "daemon.py").write_text(DAEMON)
    words = [sys.executable, "daemon.py", "pid", "stay"]
    running = asyncio.ensure_future(run_process(words, cwd=tmp_path, timeout=5 if end == "timed out" else None))
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)  # sleep: another process makes it

    if end == "cancelled":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        assert (await running).timed_out

    assert is_over(int((tmp_path / "pid").read_text()))


@needs_marks
async def test_what_another_call_has_started_is_left_alone(tmp_path: Path):
    (tmp_path / "daemon.py").write_text(DAEMON)
    running = asyncio.ensure_future(run_process([sys.executable, "daemon.py", "pid", "stay"], cwd=tmp_path))
    while not (tmp_path / "pid").exists():
        await asyncio.sleep(0.01)  # sleep: another process makes it

    await run_process(["bash", "-c", "setsid --fork sleep 99"])

    pid = int((tmp_path / "pid").read_text())
    assert not is_over(pid)
    running.cancel()
    await asyncio.wait({running})
    assert is_over(pid)


@needs_marks
async def test_what_a_treadle_within_a_command_has_started_ends_with_the_command(tmp_path: Path):
    (tmp_path / "daemon.py").write_text(DAEMON)
    inner = (
        "import asyncio, os, sys\nfrom treadle.sandboxes import run_process\n"
        "async def main():\n"
        " running = asyncio.ensure_future(run_process([sys.executable, 'daemon.py', 'pid', 'stay']))\n"
        " while not os.path.exists('pid'): await asyncio.sleep(0.01)\n"
        " os._exit(0)\n"
        "asyncio.run(main())"
    )
    done = await run_process([sys.executable, "-c", inner], cwd=tmp_path)

    assert done.exit_code == 0, done.stderr
    assert is_over(int((tmp_path / "pid").read_text()))


BECOMES_ROOT = """
import asyncio, os, sys
from treadle.sandboxes import run_process
os.setgroups([]); os.setgid(54321); os.setuid(54321)
code = "import os, sys, time; os.setuid(0); print('in', flush=True); time.sleep(99)"  # sleep: it is to be ended
print(asyncio.run(run_process([sys.argv[1], "-c", code], timeout=3, cwd="/")))
"""


@needs_marks
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="our Python may be closed to others")
async def test_a_program_that_cannot_be_killed_does_not_hold_its_call(tmp_path: Path):
    held = tmp_path / "python"
    shutil.copy("/usr/bin/python3", held)
    held.chmod(0o4755)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/") and str(folder) != "/tmp":
            folder.chmod(folder.stat().st_mode | 0o055)

    done = await run_process([sys.executable, "-c", BECOMES_ROOT, str(held)])  # which is root, and ends it

    assert "timed_out=True" in done.stdout, done.stderr
    assert "in\\n" in done.stdout
    assert "[It cannot be ended, and runs on: " in done.stdout
