"""How a confined command is started: whole or not at all, whatever other commands of the folder do at that moment, and told as it was."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from treadle.sandboxes import launcher
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.processes import run_until
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


TOGGLES = """
import os
open("begun", "w").write("x")
while True:
    for mode in (0o000, 0o755):
        os.chmod("d", mode)
"""
READS = "import os\nos.chmod('d', 0o755)\nprint(open('d/key.pem').read())"
AS_ANOTHER = """
import asyncio, os, sys
import concurrent.futures.thread
from pathlib import Path
from treadle.sandboxes import Bubblewrap, Confinement, Landlock
from treadle.tools import Command
kind, folder, user = {"bubblewrap": Bubblewrap, "landlock": Landlock}[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
os.setgroups([]); os.setgid(user); os.setuid(user)
sandbox = kind(Confinement(writable=(str(folder),), hidden=("**/*.pem",)))
def run(name):
    return sandbox.run(Command(arguments=("/usr/bin/python3", name), cwd=str(folder)))
async def race():
    read = [await run("reads.py")]
    toggling = asyncio.ensure_future(run("toggles.py"))
    while not (folder / "begun").read_text():
        await asyncio.sleep(0.01)
    for _ in range(20):
        read += await asyncio.gather(run("reads.py"), return_exceptions=True)
    toggling.cancel()
    await asyncio.gather(toggling, return_exceptions=True)
    print([getattr(one, "stdout", one) for one in read])
asyncio.run(race())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_that_a_command_shuts_and_opens_all_the_time_shows_nothing_of_what_is_denied(kind: Kind):
    with tempfile.TemporaryDirectory() as place:  # not pytest's own, which is closed to other users
        user, folder = 600_000 + os.getpid(), Path(place, "w")
        for one in (Path(place), folder, folder / "d"):
            one.mkdir(exist_ok=True)
            os.chown(one, user, user)
        for name, content in (("toggles.py", TOGGLES), ("reads.py", READS), ("d/key.pem", "canary"), ("begun", "")):
            (folder / name).write_text(content)
            os.chown(folder / name, user, user)
        line = [sys.executable, "-c", AS_ANOTHER, kind.name, str(folder), str(user)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
        (folder / "d").chmod(0o755)

    assert done.returncode == 0, done.stderr[-2000:]
    assert "canary" not in done.stdout


def test_the_temporary_folder_goes_with_its_sandbox_whatever_a_command_has_shut(folder: Path):
    if not launcher.landlock_abi():
        pytest.skip("the kernel has no Landlock")
    sandbox = Landlock(Confinement(writable=(str(folder),)))
    script = "mkdir -p $TMPDIR/q/r; touch $TMPDIR/q/r/x; chmod 000 $TMPDIR/q/r $TMPDIR/q; printf %s $TMPDIR"
    temporary = asyncio.run(sandbox.run(line(script))).stdout
    assert Path(temporary).is_dir()
    del sandbox
    gc.collect()

    assert not Path(temporary).exists()


async def test_a_watch_that_fails_is_told_as_that_and_not_as_a_limit():
    async def fails() -> None:
        raise ValueError("no thread")

    with pytest.raises(ValueError, match="no thread"):
        await run_until(
            fails,
            ["sleep", "60"],
            stdin=None,
            cwd=None,
            env=None,
            timeout=60,
            max_bytes=100,
            on_output=None,
            on_exit=None,
        )


MOUNTED = """
mount -t tmpfs none "$2" && mkdir "$2/inner" && mount -t tmpfs none "$2/inner" && git init -q "$2/inner/p" && git init -q "$2" &&
exec "$1" -c "$3" "$2"
"""
IN_MOUNTED = """
import asyncio, sys
from treadle.sandboxes import Bubblewrap, Confinement
from treadle.tools import Command
sandbox = Bubblewrap(Confinement(writable=(sys.argv[1],)))
script = "echo hi > inner/file && cat inner/file; for one in . inner/p; do echo evil > $one/.git/config; done; cat .git/config inner/p/.git/config"
print(asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script)))).stdout)
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount something")
@pytest.mark.parametrize("name", ["w", "a b\\c\td*[x]é\ne"])
def test_a_folder_is_confined_as_well_where_it_and_what_is_in_it_are_mounted_and_whatever_its_name(
    tmp_path: Path, name: str
):
    (tmp_path / name).mkdir()
    line = [
        "unshare",
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        MOUNTED,
        "sh",
        sys.executable,
        str(tmp_path / name),
    ]
    done = subprocess.run([*line, IN_MOUNTED], capture_output=True, text=True, check=False, timeout=100)

    assert done.stdout.startswith("hi\n"), done.stderr
    assert "evil" not in done.stdout
    assert done.stdout.count("[core]") == 2


MOUNTED_LATER = """
mount -t tmpfs none "$2" && mount --make-shared "$2" && mkdir "$2/w" "$2/stick" && exec "$1" -c "$3" "$2"
"""
IN_MOUNTED_LATER = """
import asyncio, os, subprocess, sys
from treadle.sandboxes import Bubblewrap, Confinement
from treadle.tools import Command
top = sys.argv[1]
script = "touch begun; while [ ! -e mounted ]; do :; done; cat ../stick/key; echo evil > ../stick/evil"
async def race():
    running = asyncio.ensure_future(Bubblewrap(Confinement(writable=(top + "/w",))).run(Command(arguments=("/bin/sh", "-c", script))))
    while not os.path.exists(top + "/w/begun"):
        await asyncio.sleep(0.01)
    subprocess.run(["mount", "-t", "tmpfs", "none", top + "/stick"], check=True)
    open(top + "/stick/key", "w").write("canary")
    open(top + "/w/mounted", "w").close()
    print((await running).stdout, os.listdir(top + "/stick"))
asyncio.run(race())
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount something")
def test_what_is_mounted_while_a_command_runs_is_not_opened_to_it(tmp_path: Path):
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", MOUNTED_LATER, "sh", sys.executable]
    done = subprocess.run(
        [*words, str(tmp_path), IN_MOUNTED_LATER], capture_output=True, text=True, check=False, timeout=100
    )

    assert done.stdout.strip() == "['key']", done.stderr


def test_folders_that_the_person_has_shut_stay_so_and_keep_no_protected_name(kind: Kind, folder: Path):
    for one in (folder / ".config", folder):
        one.mkdir(exist_ok=True)
        one.chmod(0o555)
    script = "chmod u+w .config; mkdir .config/autostart; chmod u-w .config; true"
    asyncio.run(kind(Confinement(writable=(str(folder),))).run(line(script)))
    modes = [one.stat().st_mode & 0o777 for one in (folder, folder / ".config")]
    folder.chmod(0o755)

    assert modes == [0o555, 0o555]
    assert not (folder / ".config/autostart").exists()


LEFT_TO_US = """
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
child = libc.syscall(ctypes.c_long(56 if os.uname().machine == "x86_64" else 220), ctypes.c_long(0x8000 | 17), 0, 0, 0, 0)
if child == 0:
    os._exit(0)
try:
    fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), 1024, 0)
except PermissionError:
    print(child)
"""


def test_a_command_leaves_no_dead_child_to_us_and_holds_up_no_file(kind: Kind, folder: Path):
    (folder / "p.py").write_text(LEFT_TO_US)
    done = asyncio.run(kind(Confinement(writable=(str(folder),))).run(Command(arguments=(PYTHON, "p.py", "p.py"))))

    assert done.stdout == "-1\n", done.stderr
