"""How a confined command is started: whole or not at all, whatever other commands of the folder do at that moment, and told as it was."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from treadle.sandboxes import launcher
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.runners import Bubblewrap, Landlock, find_sandbox
from treadle.tools import Command, ProcessResult

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
KINDS = {
    "bubblewrap": pytest.param(
        Bubblewrap, marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
    ),
    "landlock": pytest.param(
        Landlock, marks=pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
    ),
}
Kind = type[Bubblewrap] | type[Landlock]


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


def line(script: str) -> Command:
    return Command(arguments=("/bin/sh", "-c", script))


MANY = """
import os
os.makedirs("r/.git/objects"); os.makedirs("r/.git/refs"); open("r/.git/HEAD", "w").write("ref: refs/heads/m\\n")
for number in range(3000):
    open(f"r/some_reasonable_file_name_{number}.txt", "w").close()
for number in range(20):
    os.makedirs("/".join(f"{part}{number:03}" + "y" * 200 for part in "abcd") + "/.git")
"""


def test_what_a_command_makes_neither_ends_the_sandbox_nor_the_next_command(kind: Kind, folder: Path):
    sandbox = kind(Confinement(writable=(str(folder),)))
    (folder / "many.py").write_text(MANY)
    asyncio.run(sandbox.run(line(f"{PYTHON} many.py")))

    assert asyncio.run(sandbox.run(line("echo hi"))).stdout == "hi\n"
    assert sandbox.problem() is None


def test_a_folder_in_which_nothing_can_be_confined_leaves_no_machine_without_a_sandbox(folder: Path):
    for number in range(2001):
        (folder / f"{number}.pem").touch()
    sandbox = find_sandbox(Confinement(writable=(str(folder),), hidden=("**/*.pem",)))

    with pytest.raises(OSError, match="more than a sandbox can cover"):
        asyncio.run(sandbox.run(line("touch ran")))
    assert not (folder / "ran").exists()


SWAPS = """
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("d/foo/.git"); os.makedirs("d/p/.git"); os.symlink("../out", "l"); open("swaps", "w").close()
while True:
    libc.renameat2(-100, b"d", -100, b"l", 2)
    for _ in range(20000): pass
"""


def test_another_command_that_swaps_a_folder_for_a_link_opens_nothing_outside_to_one_that_starts(
    kind: Kind, folder: Path
):
    out = folder.parent / "out"
    for name in ("foo", "p/.git"):
        (out / name).mkdir(parents=True)
    (folder / "swaps.py").write_text(SWAPS)
    sandbox = kind(Confinement(writable=(str(folder),)))
    tries = f"for one in {out} d l; do for name in evil foo/evil p/evil; do echo evil > $one/$name; done; done; true"

    async def race() -> list[ProcessResult | BaseException]:
        swapping = asyncio.ensure_future(sandbox.run(line(f"{PYTHON} swaps.py")))
        while not (folder / "swaps").exists():
            await asyncio.sleep(0.01)  # sleep: the other command runs in a process of its own
        found = [await asyncio.gather(sandbox.run(line(tries)), return_exceptions=True) for _ in range(25)]
        swapping.cancel()
        await asyncio.gather(swapping, return_exceptions=True)
        return [one for several in found for one in several]

    ended = asyncio.run(race())
    assert [str(one) for one in out.rglob("evil")] == []
    assert all(isinstance(one, OSError | ProcessResult) for one in ended)


def test_private_places_in_a_writable_folder_stay_closed(kind: Kind, folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / ".ssh").mkdir()
    for name in (".ssh/id_rsa", ".netrc"):
        (folder / name).write_text("canary")
    monkeypatch.setenv("HOME", str(folder))
    done = asyncio.run(
        kind(Confinement(writable=(str(folder),))).run(
            line("cat .ssh/id_rsa .netrc; for one in .ssh/id_rsa .netrc .ssh/new; do echo evil > $one; done; exit 1")
        )
    )

    assert "canary" not in done.stdout
    assert (folder / ".ssh/id_rsa").read_text() + (folder / ".netrc").read_text() == "canarycanary"
    assert not (folder / ".ssh/new").exists()


@pytest.mark.parametrize(
    "script",
    ["echo 'prlimit: failed to set the limit' >&2; exit 1", "echo 'treadle-launcher: x' >&2; exit 125",
     "echo 'bwrap: no' >&2; exit 1", "bwrap --ro-bind / / --unshare-user --no-such true", "/no/such/program"],
)  # fmt: skip
def test_a_command_that_ran_is_never_told_as_not_run(kind: Kind, folder: Path, script: str):
    done = asyncio.run(kind(Confinement(writable=(str(folder),))).run(line(f"echo x > ran; {script}")))

    assert done.exit_code != 0
    assert (folder / "ran").exists()


def test_a_command_that_cannot_be_started_says_why(kind: Kind, folder: Path):
    sandbox = kind(Confinement(writable=(str(folder),), max_processes=None))
    with pytest.raises(OSError, match="no-such-folder"):
        asyncio.run(sandbox.run(Command(arguments=("/bin/true",), cwd=str(folder / "no-such-folder"))))
