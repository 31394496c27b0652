"""The shell tool: what it runs, where, for how long, and what it says of it."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from treadle import Agent, Confinement, find_sandbox, open_session
from treadle.sandboxes import launcher
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Effect, ToolOutput
from treadle.toolsets.shell import shell_tool


class Context:
    """The part of a ToolContext that the tool uses."""

    def __init__(self, runner: Any = None) -> None:
        self.facts: dict[str, Any] = {}
        self.runner = runner
        self.told: list[str] = []

    def progress(self, message: str) -> None:
        self.told.append(message)


class Shell:
    """One tool over one folder, with what a session would remember of it."""

    def __init__(self, root: Path, runner: Any = None) -> None:
        self.tool = shell_tool(root)
        self.context = Context(runner)

    def __call__(self, command: str, **more: Any) -> dict[str, Any]:
        arguments = {"command": command, **more}
        jsonschema_rs.validate(self.tool.parameters, arguments)
        output: ToolOutput = asyncio.run(self.tool.run(arguments, self.context))  # type: ignore[arg-type]  # a coroutine
        jsonschema_rs.validate(self.tool.output_schema, output.data)
        self.context.facts.update(output.facts or {})
        data: dict[str, Any] = output.data
        return data


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_command_says_how_it_ended(shell: Shell):
    assert shell("echo out; echo err >&2; exit 3") == {
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "folder": ".",
    }
    assert shell("x='a b'; for i in 1 2; do echo \"$x $i\"; done | tail -1")["stdout"] == "a b 2\n"
    assert shell("cat")["stdout"] == ""  # no input
    assert shell("no-such-program")["exit_code"] == 127
    assert shell("echo 'open")["exit_code"] != 0


def test_the_next_command_starts_where_this_one_ended(shell: Shell, tmp_path: Path):
    (tmp_path / "a b").mkdir()

    assert shell("cd 'a b'; false")["folder"] == "a b"
    assert shell("pwd")["stdout"] == f"{tmp_path}/a b\n"
    assert shell("cd ..")["folder"] == "."


@pytest.mark.parametrize(
    "way_out", ["cd /", "cd ..", "ln -s / l; cd l", "rm -r ../gone; mkdir gone; cd gone; rmdir ../gone"]
)
def test_a_folder_outside_the_root_is_not_kept(shell: Shell, tmp_path: Path, way_out: str):
    done = shell(way_out)
    if "rmdir" not in way_out:
        assert "outside the root folder" in done["hint"]
    assert shell("pwd")["stdout"] == f"{tmp_path}\n"


def test_a_command_that_takes_too_long_is_ended_with_what_it_has_written(shell: Shell, tmp_path: Path):
    done = shell("echo begun; sleep 100 & echo $! > pid; wait", timeout=1)

    assert (done["exit_code"], done["stdout"]) == (None, "begun\n")
    assert "timeout" in done["hint"]
    wait_for_end(int((tmp_path / "pid").read_text()))


def test_nothing_keeps_running(shell: Shell, tmp_path: Path):
    shell("nohup sleep 100 >/dev/null 2>&1 & echo $! > pid")

    wait_for_end(int((tmp_path / "pid").read_text()))


def wait_for_end(pid: int) -> None:
    """Return once a process is no more, or only its entry is left."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            pass


def test_a_long_output_keeps_its_beginning_and_its_end(shell: Shell):
    done = shell("echo first; head -c 200000 /dev/zero | tr '\\0' x; echo; echo last")

    assert done["stdout"].startswith("first\n")
    assert done["stdout"].endswith("last\n")
    assert len(done["stdout"]) < 20_000
    assert done["shortened"] is True


def test_the_environment_holds_no_keys():
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1])\n"
        "from treadle.toolsets.shell import shell_tool\n"
        "class Context: facts = {}; runner = None; progress = print\n"
        "print(asyncio.run(shell_tool('.').run({'command': 'env; cat /proc/$PPID/environ | tr \\\\0 \\\\n | head -0'}, Context())).data)\n"
    )
    keyed = {**os.environ, "ANTHROPIC_API_KEY": "sk-canary"}
    done = subprocess.run(
        [sys.executable, "-c", program, "src"], env=keyed, capture_output=True, text=True, timeout=60, check=True
    )

    assert "PATH=" in done.stdout
    assert "canary" not in done.stdout


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("git log | head -3", Effect.READ),
        ("ls -la", Effect.READ),
        ("rm x", Effect.UNSAFE),
        ("ls > x", Effect.UNSAFE),
        ("echo $(id)", Effect.UNSAFE),
    ],
)
def test_the_effect_is_that_of_the_line(shell: Shell, command: str, effect: Effect):
    assert callable(shell.tool.effect)
    assert shell.tool.effect({"command": command}) == effect


@pytest.mark.skipif(
    not shutil.which("bwrap") and not launcher.landlock_abi(), reason="there is neither bubblewrap nor Landlock"
)
def test_in_a_sandbox_the_line_is_confined_and_what_was_refused_is_said(tmp_path: Path):
    root = tmp_path / "w"
    root.mkdir()
    shell = Shell(root, find_sandbox(Confinement(writable=(str(root),))))

    assert shell("echo x > out; cat out")["stdout"] == "x\n"
    refused = shell("echo x > /usr/evil")
    assert refused["exit_code"] != 0
    assert "sandbox" in refused["hint"]
    assert shell("mkdir d; cd d")["folder"] == "d"
    assert shell("pwd")["stdout"] == f"{root}/d\n"


async def test_the_folder_is_a_fact_of_the_session(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    tools = [shell_tool(tmp_path)]
    async with open_session(tmp_path / "j.db", id="s") as session:
        await Agent(ScriptedModel([call("shell", command="cd sub"), text("ok")]), tools=tools, policy=Anything()).run(
            "a", session=session
        )
    async with open_session(tmp_path / "j.db", id="s") as session:
        model = ScriptedModel([call("shell", command="pwd"), text("ok")])
        await Agent(model, tools=tools, policy=Anything()).run("b", session=session)
        assert f"{tmp_path}/sub" in str(session.messages[-2])


class Anything:
    """Allows every call."""

    def decide(self, call: Any, session: Any) -> Any:
        from treadle import Decision

        return Decision(kind="allow")


def test_a_cancelled_call_ends_the_command(tmp_path: Path):
    os.mkfifo(tmp_path / "held")

    async def cancelled() -> None:
        tool, context = shell_tool(tmp_path), Context()
        running = asyncio.create_task(tool.run({"command": "exec 3>held; echo x >&3; sleep 100"}, context))  # type: ignore[arg-type]  # a coroutine
        reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        while not await asyncio.to_thread(os.read, reader, 1):
            pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while await asyncio.to_thread(os.read, reader, 1):
            pass
        os.close(reader)

    asyncio.run(cancelled())
