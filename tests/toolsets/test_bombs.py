"""Bombs of processes, memory, output, disk and time, against the real kernel: Treadle and the calls beside go on, and the result says the limit."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_shell import Context, Shell

from treadle.sandboxes import Bubblewrap, Confinement, Landlock, groups, launcher
from treadle.sandboxes.keeper import DiskUse
from treadle.sandboxes.runners import Room
from treadle.tools import Command, Runner
from treadle.toolsets.shell.keeping import Kept, Processes

KINDS = {
    "bubblewrap": pytest.param(
        Bubblewrap, marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
    ),
    "landlock": pytest.param(
        Landlock, marks=pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
    ),
}
FORKS = "f() { f | f & }; f; read -t 1 <> <(:)"
FILES = "i=0; while :; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done"
HOLDS = 'python3 -c "import signal; x = bytearray(10**8); signal.pause()"'
BOMBS = {
    "forks": (FORKS, "processes", "max_processes"),
    "time": ("while :; do :; done", "time", "cpu_seconds"),
    "a file": ("exec head -c 100000000 /dev/zero > big", "disk", "max_file_bytes"),
    "files": (FILES, "disk", "disk_bytes"),
}
LIMIT = 60.0


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    """A sandbox with small limits. Bombs of other tests fill the same disk: it is bounded where it is the bomb's target."""
    bomb = request.node.callspec.params.get("bomb")
    (tmp_path / "w").mkdir()
    found: Runner = request.param(
        Confinement(
            writable=(str(tmp_path / "w"),),
            cpu_seconds=1,
            max_processes=40,
            memory_bytes=400_000_000,
            max_file_bytes=20_000_000,
            disk_bytes=40_000_000 if bomb == "files" else None,
        )
    )
    return found


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "state", "s")
    yield processes
    for one in processes.all():
        processes.kill(one.id)


async def side_by_side(shell: Shell, bomb: str) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments = [{"command": bomb, "timeout": 30}, {"command": "echo kept"}]
    outputs = await asyncio.gather(*(shell.tool.run(one, Context(shell.context.runner)) for one in arguments))  # type: ignore[arg-type]  # coroutines
    first, second = (one.data for one in outputs)
    return first, second


@pytest.mark.row("AT-SHELL-BOMBS")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_in_a_sandbox_reaches_its_limit_and_the_call_beside_is_kept(runner: Runner, tmp_path: Path, bomb: str):
    line, kind, limit = BOMBS[bomb]

    done, beside = asyncio.run(side_by_side(Shell(tmp_path / "w", runner), line))

    assert (kind, limit) in [(one["kind"], one.get("target", "")) for one in done["sandbox"]["refused"]]
    assert (beside["exit_code"], beside["stdout"]) == (0, "kept\n")


def ended(processes: Processes, process: str) -> Kept:
    end = time.monotonic() + LIMIT
    while (found := processes.find(process)).status == "running":
        assert time.monotonic() < end
    return found


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_in_the_background_reaches_its_limit_and_says_so(
    kept: Processes, runner: Any, tmp_path: Path, bomb: str
):
    line, _, limit = BOMBS[bomb]
    launch = runner.detached(Command(arguments=("/bin/bash", "-c", line)))

    done = ended(kept, kept.start(launch, command=line, seconds=30, keep=False).id)

    assert done.limits == (limit,)
    assert done.status == ("over_limit" if limit == "disk_bytes" else "exited")


@pytest.fixture
def joined() -> Iterator[str]:
    """A line that bounds the command which begins with it: the bombs below run in no sandbox."""
    with groups.group(max_processes=60, memory_bytes=None) as made:
        if "pids" not in made:
            pytest.skip("no control group can be made here")
        file = next(one for one in ("tasks", "cgroup.procs") if Path(made["pids"], one).exists())
        yield f"echo 0 > {made['pids']}/{file} || exit; echo joined; "


@pytest.mark.parametrize("line", [FORKS, 'f() { setsid bash -c "$(declare -f f); f" & f & }; f; while :; do :; done'])  # fmt: skip
def test_a_fork_bomb_without_a_sandbox_ends_with_its_call(joined: str, tmp_path: Path, line: str):
    place = Path(joined.split()[3]).parent / "cgroup.procs"

    done = Shell(tmp_path)(joined + line, timeout=3)

    assert done["stdout"].startswith("joined\n")
    assert place.read_text().split() == []
    assert (done["folder"], "root folder" in done.get("hint", "")) == (".", False)


def test_output_without_end_is_kept_in_bounds_and_ended_in_time(tmp_path: Path):
    shell = Shell(tmp_path)
    output = asyncio.run(shell.tool.run({"command": "yes & yes >&2", "timeout": 2}, shell.context))  # type: ignore[arg-type]  # a coroutine

    assert output.data["exit_code"] is None
    assert output.data["shortened"]
    assert len(output.data["stdout"]) + len(output.data["stderr"]) < 31_000
    assert 9_000_000 < len(output.artifact) < 11_000_000
    assert "left out" in output.artifact.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a control group, which only root can make here")
def test_memory_of_many_processes_together_is_bounded_in_the_background(kept: Processes, runner: Any, tmp_path: Path):
    line = f"for i in 1 2 3 4 5 6; do {HOLDS} & done; wait -n; echo over"
    launch = runner.detached(Command(arguments=("/bin/bash", "-c", line)))

    done = ended(kept, kept.start(launch, command=line, seconds=30, keep=False).id)

    assert (done.status, done.limits) == ("exited", ("memory_bytes",))


def test_a_writable_folder_that_is_gone_ends_the_command_for_its_room_and_not_for_its_time(tmp_path: Path):
    folder = tmp_path / "w"
    folder.mkdir()
    room = Room(DiskUse((str(folder),), 1_000_000))
    folder.rmdir()

    asyncio.run(room.wait_used_up())

    assert room.is_used_up


def test_a_temporary_folder_that_is_gone_is_no_full_disk(tmp_path: Path):
    (tmp_path / "temporary").mkdir()
    use = DiskUse((str(tmp_path), str(tmp_path / "temporary")), 10**12)
    (tmp_path / "temporary").rmdir()

    assert not use.is_used_up(use.taken())
