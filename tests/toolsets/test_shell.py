"""The shell tool: what it runs, where, for how long, and what it says of it."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from treadle import Agent, open_session
from treadle.events import ToolFinished
from treadle.sandboxes import Bubblewrap, Confinement, Landlock, find_sandbox, launcher
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Command, Decision, Effect, ProcessResult, ToolOutput
from treadle.toolsets.shell import shell_tool


class Context:
    """The part of a ToolContext that the tool uses."""

    def __init__(self, runner: Any = None) -> None:
        self.facts: dict[str, Any] = {}
        self.runner = runner
        self.decision = Decision(kind="allow" if runner is None else "sandbox")
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


@pytest.mark.parametrize(
    ("command", "told"), [("true", []), ("printf half >&2", ["half"]), ("printf '1%%\\r2%%' >&2", ["2%"])]
)
def test_people_are_shown_the_last_line_of_an_output_and_nothing_of_ours(shell: Shell, command: str, told: list[str]):
    shell(command)

    assert shell.context.told == told


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


def test_a_folder_that_is_gone_is_not_kept_and_said_so(shell: Shell, tmp_path: Path):
    shell("mkdir -p a/b; cd a/b")

    gone = shell("rm -r ../../a")

    assert gone["folder"] == "."
    assert gone["hint"] == f"The folder that it ended in is gone: the next command starts in {tmp_path}."
    shell("mkdir c; cd c")
    killed = shell("rmdir ../c; kill -9 $$")
    assert (killed["folder"], killed["hint"]) == (".", gone["hint"])


class Noisy:
    """A runner in which something that the command has started writes on when the command has ended."""

    name = "noisy"

    async def run(self, command: Command) -> ProcessResult:
        mark = next(one.removeprefix("_MARK=") for one in command.arguments if one.startswith("_MARK="))
        return ProcessResult(exit_code=0, stdout="", stderr=f"begun\n{mark}{command.cwd}{mark}and more\n")


def test_what_is_written_behind_the_end_is_not_taken_for_the_folder(tmp_path: Path):
    done = Shell(tmp_path, Noisy())("true")

    assert (done["folder"], done["stderr"], done.get("hint")) == (".", "begun\nand more\n", None)


@pytest.mark.row("K03")
@pytest.mark.parametrize(
    "line", ["set -x; mkdir a; cd a", "set -ex; mkdir a; cd a; false", "set -x; mkdir a; cd a; exit 3"]
)
def test_a_line_that_is_traced_shows_nothing_of_ours(shell: Shell, tmp_path: Path, line: str):
    found = shell(line)

    assert [one for one in found["stderr"].splitlines() if not one.startswith("++ ")] == []
    assert found["stderr"].count("cd a") == 1
    assert found["folder"] == "a"
    assert found["exit_code"] == {"e": 1, "3": 3}.get(line[-1], 0)


@pytest.mark.parametrize(
    "way_out", ["cd /", "cd ..", "ln -s / l; cd l", "rm -r ../gone; mkdir gone; cd gone; rmdir ../gone"]
)
def test_a_folder_outside_the_root_is_not_kept(shell: Shell, tmp_path: Path, way_out: str):
    done = shell(way_out)
    if "rmdir" not in way_out:
        assert "outside the root folder" in done["hint"]
    assert shell("pwd")["stdout"] == f"{tmp_path}\n"


@pytest.mark.parametrize("line", ["cd x && git status", "cd x/refs; git diff", "cd x && git ls-files -o"])
def test_a_folder_that_looks_like_a_repository_starts_nothing(shell: Shell, tmp_path: Path, line: str):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("objects", "refs"):
        (tmp_path / "x" / name).mkdir(parents=True)
    (tmp_path / "x" / "HEAD").write_text("ref: refs/heads/main\n")
    started = tmp_path / "started"
    (tmp_path / "x" / "config").write_text(
        f'[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch {started}; false"\n'
    )

    shell(line)

    assert not started.exists()
    assert shell(f"cd {tmp_path}; git status --short")["exit_code"] == 0


def test_a_command_that_takes_too_long_is_ended_with_what_it_has_written(shell: Shell, tmp_path: Path):
    done = shell("echo begun; sleep 100 & echo $! > pid; wait", timeout=5)

    assert (done["exit_code"], done["stdout"]) == (None, "begun\n")
    assert "timeout" in done["hint"]
    wait_for_end(int((tmp_path / "pid").read_text()))


@pytest.mark.row("AT-SHELL-ORPHANS")
def test_nothing_keeps_running(shell: Shell, tmp_path: Path):
    shell("nohup sleep 100 >/dev/null 2>&1 & echo $! > pid")

    wait_for_end(int((tmp_path / "pid").read_text()))


RUNNERS = {
    "bare": None,
    "bubblewrap": pytest.param(
        Bubblewrap, marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
    ),
    "landlock": pytest.param(
        Landlock, marks=pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
    ),
}


@pytest.fixture(params=list(RUNNERS.values()), ids=list(RUNNERS))
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """The tool without a sandbox, and in each."""
    kind, about = request.param, Confinement(writable=(str(tmp_path),), memory_bytes=600_000_000)
    return Shell(tmp_path, None if kind is None else kind(about))


def test_a_program_whose_reader_has_ended_is_ended_by_its_signal(anywhere: Shell):
    done = anywhere("yes | head -1; echo ${PIPESTATUS[0]}; ulimit -f 1; head -c 9999 /dev/zero > f; echo $?")

    assert done["stdout"].split() == ["y", "141", "153"]
    assert "yes:" not in done["stderr"]


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


@pytest.mark.row("AT-SECRETS-CHILDREN")
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


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize(
    ("named", "becomes"),
    [
        ({"LC_ALL": "zh_CN.GBK"}, "C.UTF-8"),
        ({"LC_ALL": "zh_CN.GBK", "PYTHONUTF8": "0"}, "zh_CN.GBK"),  # Python writes the line in this charset, too
        ({"LC_CTYPE": "zh_TW.big5", "LANG": "en_US.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "de_DE.utf8", "LANG": "zh_CN.GBK"}, "de_DE.utf8"),
        ({"LC_ALL": "C"}, "C"),
        ({"LANG": "sr_RS.UTF-8@latin"}, ""),
        ({}, ""),
    ],
)
def test_a_line_is_run_in_the_charset_in_which_it_was_analysed(named: dict[str, str], becomes: str):
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1])\n"
        "from treadle.toolsets.shell import shell_tool\n"
        "class Context: facts = {}; runner = None; progress = str\n"
        "print(asyncio.run(shell_tool('.').run({'command': 'printf %s. \"$LC_ALL\"'}, Context())).data['stdout'])\n"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("LC_ALL", "LC_CTYPE", "LANG")}
    plain |= {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "1"}  # else Python names UTF-8 where a charset is not installed
    done = subprocess.run(
        [sys.executable, "-c", program, "src"],
        env=plain | named,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.strip() == f"{becomes}."


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


needs_sandbox = pytest.mark.skipif(
    not shutil.which("bwrap") and not launcher.landlock_abi(), reason="there is neither bubblewrap nor Landlock"
)


@needs_sandbox
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


@pytest.mark.row("S21")
async def test_two_commands_of_one_response_start_where_the_one_before_ended(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    lines = ["cd a && pwd", "pwd", "cd ../b", "pwd && ls", "cat /dev/null; pwd"]
    model = ScriptedModel([[call("shell", command=line) for line in lines], text("ok")])
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await Agent(model, tools=[shell_tool(tmp_path)], policy=Anything()).run("a", session=session)

    folders = [json.loads(one.content)["folder"] for one in result.messages[2].results]
    assert folders == ["a", "a", "b", "b", "b"]


@pytest.mark.row("M12")
@pytest.mark.row("K03")
async def test_a_long_output_is_kept_whole_as_an_artifact(tmp_path: Path):
    line = "seq 1 20000; echo end >&2; exit 4"
    model = ScriptedModel([call("shell", command=line, description="Count"), text("ok")])
    async with open_session(tmp_path / "j.db", id="s") as session:
        await Agent(model, tools=[shell_tool(tmp_path)], policy=Anything()).run("a", session=session)
        (done,) = [event.result async for event in session.events() if isinstance(event, ToolFinished)]
        whole = await session.journal.blob(done.artifact)

    assert (done.status, done.data["exit_code"], done.data["shortened"]) == ("ok", 4, True)
    assert whole == b"".join(b"%d\n" % n for n in range(1, 20001)) + b"\n--- stderr ---\nend\n"
    assert "bytes left out" in done.content
    assert json.loads(done.content)["artifact"].startswith("a_")
    assert done.data["stdout"].endswith("19999\n20000\n")


class Boxed:
    """Sends every call into the sandbox."""

    def decide(self, call: Any, session: Any) -> Any:
        return Decision(kind="sandbox", rule="always boxed")


@needs_sandbox
@pytest.mark.parametrize("mode", ["ask", "bypass"])
async def test_what_the_sandbox_refused_can_be_asked_of_a_person(tmp_path: Path, mode: Any):
    root, other = tmp_path / "w", tmp_path / "other"
    root.mkdir()
    other.write_text("old")
    line = f"cat {other}"
    model = ScriptedModel(
        [
            call("shell", command=line),
            call("shell", command=line, needs=["unconfined"]),
            call("shell", command=line, needs=["unconfined"], reason="It holds the test data."),
            text("Done."),
        ]
    )
    agent = Agent(
        model, tools=[shell_tool(root)], policy=Boxed(), sandbox=find_sandbox(Confinement(writable=(str(root),)))
    )
    async with open_session(tmp_path / "j.db", id="s") as session:
        await session.set_mode(mode)
        paused = await agent.run("go", session=session)
        refused = json.loads(paused.messages[2].results[0].content)
        assert [(one["kind"], one["target"]) for one in refused["sandbox"]["refused"]] == [("read", str(other))]
        assert "`needs`" in refused["hint"]
        assert [one.status for one in paused.tool_calls][:2] == ["ok", "invalid_arguments"]
        assert paused.reason == "approval_required"
        await session.answer(paused.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert json.loads(result.messages[6].results[0].content)["stdout"] == "old"


@needs_sandbox
def test_output_in_a_sandbox_is_shown_while_it_comes(tmp_path: Path):
    shell = Shell(tmp_path, find_sandbox(Confinement(writable=(str(tmp_path),))))

    shell("echo one")
    assert shell.context.told == ["one"]


@pytest.mark.parametrize(
    ("line", "need"),
    [
        ("git init -q --bare r; mkdir .git; echo x > .git/index", "git"),
        ("echo x > /var/lib/x", "write /var/lib"),
        ("curl -sS http://api.example.com/", "network api.example.com"),
        ("echo x > .mcp.json/y", "unconfined"),
    ],
)
@needs_sandbox
def test_a_command_that_fails_because_it_is_confined_says_so_with_the_need_that_would_help(
    tmp_path: Path, line: str, need: str
):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".mcp.json").mkdir()
    done = Shell(tmp_path, Bubblewrap(Confinement(writable=(str(tmp_path),))))(line)

    assert done["hint"].startswith("The command failed because the sandbox bubblewrap refuses ")
    assert f'`needs`: ["{need}"]' in done["hint"]


@pytest.mark.parametrize(
    "line",
    [
        f"echo 'cat: /{'a' * 256}: Permission denied' >&2; false",  # a path that cannot be looked at
        "printf x > $'\\xff.code-workspace'; echo x > /var/lib/x",
    ],
)
@needs_sandbox
def test_no_name_that_a_command_chooses_keeps_its_result_away(tmp_path: Path, line: str):
    done = Shell(tmp_path, find_sandbox(Confinement(writable=(str(tmp_path),))))(line)

    assert done["exit_code"] != 0
    assert "refuses writing" in done["hint"].encode().decode()


@pytest.mark.parametrize("lifted", ["network example.com", "git", "write /dev/null/x"])
@pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
async def test_a_command_that_its_sandbox_cannot_start_has_a_known_outcome(tmp_path: Path, lifted: str):
    class Boxed:
        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="boxed", lifted=(lifted,))

    model = ScriptedModel([call("shell", command="echo x > ran"), text("Done.")])
    sandbox = Landlock(Confinement(writable=(str(tmp_path),)))
    result = await Agent(model, tools=[shell_tool(tmp_path)], policy=Boxed(), sandbox=sandbox).run("go")

    assert result.completed
    assert [one.status for one in result.tool_calls] == ["rejected"]
    assert "The command was not run: " in result.messages[2].results[0].content
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("folder", "why"),
    [("{root}/.git/hooks", "outside the root folder"), ("{root}", "outside the root folder"), ("{root}/../link", "leads elsewhere"), ("/etc/shadow", "private")],
)  # fmt: skip
def test_a_folder_that_consent_cannot_lift_is_refused_before_anybody_is_asked(
    tmp_path: Path, folder: str, why: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "link").symlink_to("root")

    result = Agent(
        ScriptedModel(
            [call("shell", command="true", needs=[f"write {folder.format(root=root)}"], reason="r"), text("Done.")]
        ),
        tools=[shell_tool(root)],
    ).run_sync("Go")

    assert [one.status for one in result.tool_calls] == ["invalid_arguments"]
    assert why in str(result.messages)
