"""Commands in the background: started, read by lines, written to, ended in time; found again after a restart."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, allow, first_of, open_session
from treadle.errors import Rejected
from treadle.sandboxes import Confinement, find_sandbox, keeper
from treadle.sandboxes.keeper import started_at
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Command, Decision, Detached
from treadle.toolsets import ShellTools
from treadle.toolsets.shell.keeping import Kept, Processes

LIMIT = 30.0


@pytest.fixture
def kept(tmp_path: Path):
    processes = Processes(tmp_path / "state", "s")
    yield processes
    for one in processes.all():
        processes.kill(one.id)


def start(processes: Processes, line: str, *, seconds: float = 60, keep: bool = False) -> str:
    env = {"PATH": os.environ["PATH"]}
    launch = Detached(arguments=("/bin/bash", "-c", line), cwd="/", env=env)
    return processes.start(launch, command=line, seconds=seconds, keep=keep).id


def until(condition: Any) -> Any:
    """Wait until something outside of this process is so."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end
    return found


def ended(processes: Processes, process: str) -> Kept:
    return until(lambda: (one := processes.find(process)).status != "running" and one)


def is_over(pid: int) -> bool:
    """Whether a process is no more, or only its entry is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.row("K06")
def test_its_time_ends_it_and_all_that_it_has_started(kept: Processes, tmp_path: Path):
    line = f"setsid sleep 99 & echo $! > {tmp_path}/a; (sleep 98 & echo $! > {tmp_path}/b); sleep 99"
    process = start(kept, line, seconds=1)

    done = ended(kept, process)
    assert (done.status, done.exit_code) == ("timed_out", None)
    for name in ("a", "b"):
        assert is_over(int((tmp_path / name).read_text()))


@pytest.mark.row("K06")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is ended")
def test_what_has_left_the_group_may_tidy_up_before_it_is_ended(kept: Processes, tmp_path: Path):
    tidy = f"trap 'echo bye > {tmp_path}/said; exit' TERM; echo up > {tmp_path}/up; read never <> fifo"
    (tmp_path / "tidy.sh").write_text(tidy)
    os.mkfifo(tmp_path / "fifo")
    process = start(kept, f"cd {tmp_path}; setsid bash tidy.sh & wait")
    until((tmp_path / "up").exists)

    kept.kill(process)

    assert ended(kept, process).status == "killed"
    assert (tmp_path / "said").read_text() == "bye\n"


@pytest.mark.row("K06")
def test_the_group_is_asked_to_end_only_once(kept: Processes, tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    line = f"trap 'echo asked >> {tmp_path}/said' TERM; echo up > {tmp_path}/up; while :; do read never <> {tmp_path}/fifo; done"
    process = start(kept, line)
    until((tmp_path / "up").exists)

    kept.kill(process)

    assert ended(kept, process).status == "killed"
    assert (tmp_path / "said").read_text() == "asked\n"


def test_a_program_whose_reader_has_ended_is_ended_by_its_signal(kept: Processes):
    line = "yes | head -1; echo ${PIPESTATUS[0]}; ulimit -f 1; head -c 9999 /dev/zero > /dev/shm/treadle-$$; echo $?; rm /dev/shm/treadle-$$"
    process = start(kept, line)
    ended(kept, process)

    assert kept.read(process, offset=1, limit=9)[0][:2] == ["y", "141"]
    assert kept.read(process, offset=1, limit=9)[0][-1] == "153"


def test_it_says_how_it_ended(kept: Processes):
    assert ended(kept, start(kept, "exit 3")).exit_code == 3
    assert ended(kept, start(kept, "kill -9 $$")).exit_code == -9
    with pytest.raises(Rejected) as refused:
        kept.start(Detached(arguments=("/no/such/program",), cwd="/", env={}), command="x", seconds=5, keep=False)
    assert refused.value.code == "cannot_start"
    assert [one.id for one in kept.all()] == ["p1", "p2"]


def test_what_it_writes_is_read_by_lines(kept: Processes):
    process = start(kept, "seq 1 5; echo oops >&2; printf 'name? '; read name; echo hello $name; cat; echo over")

    until(lambda: kept.read(process, offset=1, limit=100)[0][-1:] == ["name? "])
    assert kept.read(process, offset=2, limit=2) == (["2", "3"], 4, True)
    lines, following, has_more = kept.read(process, offset=5, limit=100)
    assert (lines, following, has_more) == (["5", "oops", "name? "], 7, False)
    kept.write(process, b"Ada\n", ends_input=False)
    until(lambda: kept.read(process, offset=7, limit=1)[0] == ["name? hello Ada"])
    kept.write(process, b"more\n", ends_input=True)
    assert ended(kept, process).exit_code == 0
    assert kept.read(process, offset=8, limit=9) == (["more", "over"], 10, False)
    with pytest.raises(Rejected, match="has ended"):
        kept.write(process, b"x", ends_input=False)


def test_a_process_whose_keeper_was_killed_is_lost_and_ended(kept: Processes):
    process = start(kept, "sleep 99")
    (place,) = (kept._folder).glob("p1")
    state = json.loads((place / "state.json").read_text())
    os.kill(state["keeper"], signal.SIGKILL)

    assert ended(kept, process).status == "lost"
    until(lambda: is_over(state["pid"]))


@pytest.mark.row("K06")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is ended")
@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_what_a_process_has_started_ends_where_its_keeper_was_killed_or_does_not_answer(
    kept: Processes, tmp_path: Path, way: str
):
    place = tmp_path / "pids"
    child = f"echo $$ >> {place}; exec sleep 99"
    process = start(kept, f"sh -c '{child}' & setsid sh -c '{child}' & env -i setsid sh -c '{child}' & wait")
    until(lambda: place.exists() and len(place.read_text().split()) == 3)
    keeper_pid = json.loads((kept._folder / "p1" / "state.json").read_text())["keeper"]

    os.kill(keeper_pid, signal.SIGKILL if way == "killed" else signal.SIGSTOP)

    until(lambda: kept.kill(process).status == "lost")
    assert all(is_over(int(one)) for one in place.read_text().split())


def test_a_number_that_was_given_again_is_not_taken_for_the_keeper(kept: Processes, tmp_path: Path):
    process = start(kept, "sleep 99")
    place = next(kept._folder.glob("p1"))
    state = json.loads((place / "state.json").read_text())
    with subprocess.Popen(["/bin/sleep", "99"]) as other:
        (place / "state.json").write_text(
            json.dumps({**state, "keeper": other.pid, "pid": other.pid, "keeper_started": "1", "pid_started": "1"})
        )
        assert kept.find(process).status == "lost"
        kept.kill(process)
        assert other.poll() is None
        other.kill()
    os.kill(state["keeper"], signal.SIGTERM)
    until(lambda: is_over(state["pid"]))


def test_files_of_processes_are_the_persons_alone(kept: Processes):
    process = start(kept, "umask; echo x")
    ended(kept, process)

    assert kept.read(process, offset=1, limit=1)[0] == ["0022"]
    modes = {one.stat().st_mode & 0o077 for one in [kept._folder, *kept._folder.rglob("*")]}
    assert modes == {0}


# --- as tools


def run(root: Path, calls: list[Any], **more: Any) -> Any:
    async def go() -> Any:
        model = ScriptedModel([*calls, text("Done.")])
        tools = [ShellTools(root, state=root / "state")]
        policy = more.pop("policy", allow("*", "shell(= read a; echo got $a; sleep 99)"))
        async with open_session(root / "j.db", id="s") as session:
            result = await Agent(model, tools=tools, policy=policy, **more).run("go", session=session)
            return result, [
                json.loads(one.content) for message in result.messages for one in getattr(message, "results", ())
            ]

    return asyncio.run(go())


def test_a_model_starts_reads_writes_and_ends_one(tmp_path: Path):
    result, found = run(
        tmp_path,
        [
            call("shell", command="cat", background=True),
            call("shell", command="read a; echo got $a; sleep 99", background=True, lifetime=60),
            call("write_process", process="p1", text="it\n"),
            call("read_process", process="p1", wait=30),
            call("list_processes"),
            call("kill_process", process="p1"),
            call("read_process", process="p7"),
        ],
    )  # fmt: skip

    assert [one.status for one in result.tool_calls] == ["invalid_arguments", "ok", "ok", "ok", "ok", "ok", "rejected"]
    assert found[1]["process"] == "p1"
    assert (found[3]["output"], found[3]["status"], found[3]["next_offset"]) == ("got it", "running", 2)
    assert found[4]["processes"][0]["command"].startswith("read a")
    assert found[5] == {"process": "p1", "status": "killed"}


def test_a_run_that_ends_ends_its_processes_but_those_that_it_was_told_to_keep(tmp_path: Path):
    run(
        tmp_path,
        [
            call("shell", command="sleep 99", background=True, lifetime=60),
            call("shell", command="sleep 98", background=True, lifetime=60, keep=True),
        ],
    )
    processes = Processes(tmp_path / "state", f"{tmp_path}\0s")

    assert [one.status for one in processes.all()] == ["killed", "running"]
    processes.kill("p2")


async def test_a_person_sees_the_processes_of_a_session_with_their_last_lines(tmp_path: Path):
    shell = ShellTools(tmp_path, state=tmp_path / "state")
    calls = [
        call("shell", command="echo one; echo the last", background=True, lifetime=60, keep=True),
        call("read_process", process="p1", wait=30),
        call("shell", command="sleep 99", background=True, lifetime=60, keep=True),
    ]
    async with open_session("memory:", id="s") as session:
        await Agent(ScriptedModel([*calls, text("Done.")]), tools=[shell], policy=allow("*")).run("Go", session=session)
    said, silent = await shell.processes("s")
    Processes(tmp_path / "state", f"{tmp_path}\0s").kill("p2")

    assert (said.id, said.last_line) == ("p1", "the last")
    assert (silent.id, silent.status, silent.last_line) == ("p2", "running", "")
    assert await shell.processes("another") == []


def test_a_run_that_pauses_keeps_them_and_finds_them_again(tmp_path: Path):
    from treadle import ask

    class AskOnce:
        def decide(self, call: Any, session: Any) -> Any:
            return Decision(kind="ask" if call.name == "kill_process" else "allow", rule="r")

    result, _ = run(
        tmp_path,
        [call("shell", command="echo up; sleep 99", background=True, lifetime=60), call("kill_process", process="p1")],
        policy=first_of(AskOnce(), ask("*")),
    )
    assert result.status == "paused"
    processes = Processes(tmp_path / "state", f"{tmp_path}\0s")
    assert [one.status for one in processes.all()] == ["running"]
    processes.kill("p1")


CRASHES = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from treadle import Agent, allow, open_session, tool
    from treadle.toolsets import ShellTools
    from treadle.testing import ScriptedModel, call, text

    @tool(effect="unsafe")
    async def crash() -> str:
        \"\"\"Crash.\"\"\"
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    async def main():
        model = ScriptedModel([call("shell", command="seq 1 30; sleep 99", background=True, lifetime=60), call("crash"), text("x")])
        root = sys.argv[1]
        async with open_session(root + "/j.db", id="s") as session:
            await Agent(model, tools=[ShellTools(root, state=root + "/state"), crash], policy=allow("*")).run("go", session=session)

    asyncio.run(main())
    """
)


@pytest.mark.row("K06")
@pytest.mark.unchecked("the journal of a process that was killed")
def test_after_a_crash_the_session_finds_its_process_and_output(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", CRASHES, str(tmp_path)], timeout=LIMIT * 2, check=False)
    assert done.returncode == -signal.SIGKILL

    _, found = run(tmp_path, [call("list_processes"), call("read_process", process="p1", offset=28, limit=2)])
    assert [one["status"] for one in found[-2]["processes"]] == ["running"]
    assert (found[-1]["output"], found[-1]["status"]) == ("28\n29", "running")
    assert [one.status for one in Processes(tmp_path / "state", f"{tmp_path}\0s").all()] == [
        "killed"
    ]  # that run has ended


@pytest.mark.row("K06")
async def test_sessions_of_the_same_name_in_two_folders_have_their_own_processes(tmp_path: Path):
    async def listed(folder: Path, *calls: Any) -> Any:
        folder.mkdir(exist_ok=True)
        tools = [ShellTools(folder, state=tmp_path / "state")]
        model = ScriptedModel([*calls, call("list_processes"), text("Done.")])
        async with open_session(folder / "j.db", id="main") as session:
            await Agent(model, tools=tools, policy=allow("*", "shell(= read x)")).run("go", session=session)
            return json.loads(session.messages[-2].results[0].content)["processes"]

    waiting = call("shell", command="read x", background=True, lifetime=60, keep=True)
    assert [one["process"] for one in await listed(tmp_path / "one", waiting)] == ["p1"]
    assert await listed(tmp_path / "other", call("kill_process", process="p1")) == []
    (one,) = await listed(tmp_path / "one")
    assert one["status"] == "running"
    await listed(tmp_path / "one", call("kill_process", process="p1"))


@pytest.mark.row("K06", "AT-SECRETS-MODES")
def test_the_folders_of_processes_are_private_whatever_the_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        processes = Processes(tmp_path / "home" / "processes", "s")
        processes.kill(start(processes, "read x"))
    finally:
        os.umask(before)

    found = [one for one in (tmp_path / "home").rglob("*") if one.is_dir()]
    assert {one.stat().st_mode & 0o777 for one in [tmp_path / "home", *found]} == {0o700}


def test_in_a_sandbox_it_is_confined_too(tmp_path: Path):
    class Boxed:
        def decide(self, call: Any, session: Any) -> Any:
            return Decision(kind="sandbox" if call.name == "shell" else "allow", rule="boxed")

    root = tmp_path / "w"
    root.mkdir()
    sandbox = find_sandbox(Confinement(writable=(str(root),)))
    line = "touch inside; setsid sleep 97 & touch /usr/evil 2>why; cat why; sleep 99"  # it comes last and at once: it is waited for
    _, found = run(
        root,
        [
            call("shell", command=line, background=True, lifetime=60),
            call("read_process", process="p1", wait=30),
            call("kill_process", process="p1"),
        ],
        policy=Boxed(),
        sandbox=sandbox,
    )

    assert "/usr/evil" in found[1]["output"]
    assert found[2]["status"] == "killed"
    assert (root / "inside").exists()
    assert not Path("/usr/evil").exists()


def test_in_a_sandbox_many_files_together_are_held_to_the_limit_of_the_disk(kept: Processes, tmp_path: Path):
    (tmp_path / "w").mkdir()
    sandbox = find_sandbox(Confinement(writable=(str(tmp_path / "w"),), disk_bytes=30_000_000))
    line = "i=0; while [ $i -lt 1000 ]; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done; touch done; sleep 99"
    launch = sandbox.detached(Command(arguments=("/bin/bash", "-c", line)))

    done = ended(kept, kept.start(launch, command=line, seconds=300, keep=False).id)

    assert (done.status, done.exit_code) == ("over_limit", None)
    assert not (tmp_path / "w" / "done").exists()


def test_in_a_sandbox_the_number_of_processes_is_bounded(kept: Processes, tmp_path: Path):
    (tmp_path / "w").mkdir()
    sandbox = find_sandbox(Confinement(writable=(str(tmp_path / "w"),), max_processes=20))
    line = "i=0; while [ $i -lt 60 ]; do sleep 99 & i=$((i+1)); done; touch all; wait"
    launch = sandbox.detached(Command(arguments=("/bin/bash", "-c", line)))

    process = kept.start(launch, command=line, seconds=30, keep=False).id
    until(
        lambda: (
            "fork" in "\n".join(kept.read(process, offset=1, limit=100)[0]) or kept.find(process).status != "running"
        )
    )

    assert not (tmp_path / "w" / "all").exists()
    assert kept.kill(process).status != "running"


@pytest.mark.row("D-PROTECTED")
def test_in_a_sandbox_a_protected_name_that_did_not_exist_is_taken_away_while_the_process_runs(
    kept: Processes, tmp_path: Path
):
    (tmp_path / "w").mkdir()
    sandbox = find_sandbox(Confinement(writable=(str(tmp_path / "w"),)))
    line = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; while test -e .git/hooks; do :; done; echo gone; cat; echo {} > .mcp.json"
    launch = sandbox.detached(Command(arguments=("/bin/bash", "-c", line)))

    process = kept.start(launch, command=line, seconds=300, keep=False).id
    until(
        lambda: "gone" in (said := "\n".join(kept.read(process, offset=1, limit=100)[0])) and "keeps programs" in said
    )
    assert kept.find(process).status == "running"
    kept.write(process, b"\n", ends_input=True)
    ended(kept, process)

    said = "\n".join(kept.read(process, offset=1, limit=100)[0])
    assert f"The sandbox keeps programs from making {tmp_path / 'w/.mcp.json'}. It is " in said
    assert not (tmp_path / "w/.git/hooks").exists()
    assert not (tmp_path / "w/.mcp.json").exists()


def test_a_keeper_looks_for_protected_names_ten_times_a_second_and_not_at_each_piece_of_output(tmp_path: Path):
    (tmp_path / "w").mkdir()
    watch = keeper._Watch(
        str(tmp_path), {"disk_folders": [str(tmp_path / "w")], "closed_names": [str(tmp_path / "w/.mcp.json")]}
    )
    seen = []
    for now in (100.0, 100.01, 200.0):
        (tmp_path / "w/.mcp.json").touch()
        watch.look(now)
        seen.append((tmp_path / "w/.mcp.json").exists())

    assert seen == [False, True, False]


def test_in_a_sandbox_one_with_room_left_runs_to_its_end(kept: Processes, tmp_path: Path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "old").write_bytes(b"x" * 60_000_000)
    sandbox = find_sandbox(Confinement(writable=(str(tmp_path / "w"),), disk_bytes=50_000_000))
    launch = sandbox.detached(Command(arguments=("/bin/bash", "-c", "head -c 1000000 /dev/zero > new; exit 3")))

    done = ended(kept, kept.start(launch, command="head", seconds=300, keep=False).id)

    assert (done.status, done.exit_code) == ("exited", 3)


def test_the_count_of_the_kernel_tells_processes_of_one_number_apart():
    assert started_at(os.getpid()) != ""
    assert started_at(2**22 + 5) == ""
