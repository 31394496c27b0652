"""What runs outside of a sandbox without anybody calling it: Treadle's own Python and settings, what git is configured to run, a daemon."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle.sandboxes import launcher
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.outside import configured_names
from treadle.sandboxes.runners import Bubblewrap, Landlock
from treadle.tools import Command, ProcessResult

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
needs_landlock = pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
KINDS = [pytest.param("Bubblewrap", marks=needs_bwrap), pytest.param("Landlock", marks=needs_landlock)]


def run(folder: Path, script: str, **settings: Any) -> ProcessResult:
    sandbox = Bubblewrap(Confinement(writable=(str(folder),), **settings))
    return asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))


# What git is configured to run


def repository(folder: Path, *settings: str) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for setting in settings:
        subprocess.run(["git", "-C", str(folder), "config", *setting.split(" ", 1)], check=True)
    return folder


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_the_configuration_of_git_names_stays_as_it_is(tmp_path: Path):
    settings = ("core.hooksPath tools/hooks", "include.path ../team.gitconfig", "filter.clean.clean ./clean.sh %f",
                "alias.check !sh -c 'scripts/check \"$@\"'", "alias.pp push origin/main")  # fmt: skip
    folder = repository(tmp_path, *settings)
    (folder / "tools/hooks").mkdir(parents=True)
    (folder / "team.gitconfig").write_text("[core]\n\tfsmonitor = $(git rev-parse --show-toplevel)/watch.sh\n")
    for name in ("tools/hooks/pre-commit", "clean.sh", "watch.sh", "origin.txt"):
        (folder / name).write_text("plain\n")
    script = (
        "for name in tools/hooks/pre-commit tools/hooks/pre-push clean.sh watch.sh team.gitconfig; do echo evil >> $name; done; "
        "mv tools t; mkdir -p scripts origin; echo evil > scripts/check; echo fine > origin/main; echo fine > tools/other; exit 1"
    )
    done = run(folder, script)

    kept = ["grep", "-rl", "--exclude=*.refused-*", "evil", str(folder)]
    assert subprocess.run(kept, capture_output=True, text=True, check=False).stdout == ""
    assert not (folder / "scripts/check").exists()
    assert (folder / "origin/main").read_text() == "fine\n"
    assert (folder / "tools/other").read_text() == "fine\n"
    assert str(folder / "scripts/check") in [one.target for one in done.refused]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_configuration_that_does_not_exist_yet_is_not_left_to_a_command(tmp_path: Path):
    folder, ran = repository(tmp_path / "w", "include.path ../local.gitconfig"), tmp_path / "ran"
    run(folder, f"printf '[core]\\n\\tfsmonitor = \"touch {ran}; false\"\\n' > local.gitconfig")

    subprocess.run(["git", "-C", str(folder), "status", "-s"], check=True, capture_output=True)
    assert not ran.exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_the_configuration_counts_for_a_folder_within_the_repository_and_for_its_worktrees(tmp_path: Path):
    top = repository(tmp_path / "top", "core.hooksPath part/hooks")
    part = top / "part"
    part.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(top)]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "other")], check=True)

    assert configured_names(str(part)) == ("hooks",)
    assert configured_names(str(tmp_path / "other")) == ("part/hooks",)
    run(part, "mkdir hooks; echo evil > hooks/pre-commit")
    assert not (part / "hooks").exists()


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\thooksPath = tools/hooks # ours\n",
        '[Core] HooksPath="tools/hooks" ; ours\n',
        "[core]\n\thookspath = {folder}/tools/hooks\n",
        "[core]\n\thooksPath = tools/\\\nhooks\n",
        "[include]\n\tpath = ../more # see there\n",
    ],
)
def test_a_setting_is_read_as_git_reads_it(tmp_path: Path, setting: str):
    folder = repository(tmp_path)
    (folder / "more").write_text("[core]\n\thooksPath = ./tools/hooks\n")
    (folder / ".git/config").write_text(setting.format(folder=folder))
    asked = ["git", "-C", str(folder), "rev-parse", "--git-path", "hooks"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    assert os.path.normpath(folder / said) == f"{folder}/tools/hooks"
    assert "tools/hooks" in configured_names(str(folder))


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("core.sshCommand ssh -F sshcfg", "sshcfg"), ("core.sshCommand ssh -oUserKnownHostsFile=x -F sshcfg", "sshcfg"),
        ("diff.external sh tools/d.sh", "tools/d.sh"), ("diff.x.textconv python3 -m conv", "conv.py"),
        ("filter.x.clean python3 -m pkg.conv --flag", "pkg/conv.py"), ("core.pager env A=1 ./pgr", "pgr"), ("credential.helper store --file creds", "creds"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("exists", [True, False])
def test_no_word_of_a_program_that_git_is_configured_to_run_names_a_file_that_a_command_writes(
    tmp_path: Path, setting: str, name: str, exists: bool
):
    folder, file = repository(tmp_path / "w", setting), tmp_path / "w" / name
    if exists:
        file.parent.mkdir(exist_ok=True)
        file.write_text("plain\n")
    run(folder, f"mkdir -p tools pkg; echo evil >> {name}; echo fine > other")

    assert (file.read_text() if file.exists() else None) == ("plain\n" if exists else None)
    assert (folder / "other").read_text() == "fine\n"


def test_a_configuration_that_is_a_pipe_or_no_text_holds_up_no_command(tmp_path: Path):
    folder = repository(tmp_path, "include.path ../pipe")
    os.mkfifo(folder / "pipe")
    assert configured_names(str(folder)) == ("pipe",)

    garbage = b"[core\0\xff\n\thooksPath = a\0b\n[include]\n path = /\n=\n[x]\n\ty = ~nobody-here/z\n"
    (folder / ".git/config").write_bytes(garbage)
    assert configured_names(str(folder)) == ("ab", "~nobody-here/z")


# What Treadle itself runs and obeys


WITHIN = """
import asyncio, sys
from treadle.sandboxes import Bubblewrap, Confinement, Landlock
from treadle.tools import Command
sandbox = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[sys.argv[1]](Confinement(writable=(sys.argv[2],)))
print(asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", sys.argv[3])))))
"""


def python_in(folder: Path) -> Path:
    """Make a Python of a project, with Treadle in it."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    packages.joinpath("all.pth").write_text("\n".join(one for one in sys.path if one))
    return folder / "bin/python"


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_command_does_not_change_the_python_that_runs_treadle(tmp_path: Path):
    python = python_in(tmp_path / ".venv")
    script = (
        "rm -f .venv/bin/python; echo x > .venv/bin/python; mv .venv v; echo 'import evil' > $(echo .venv/lib/*/site-packages)/evil.pth; "
        "mkdir .venv; echo ok > out"
    )
    before = sorted(map(str, (tmp_path / ".venv").rglob("*")))
    subprocess.run([python, "-c", WITHIN, "Bubblewrap", tmp_path, script], check=True)

    assert sorted(map(str, (tmp_path / ".venv").rglob("*"))) == before
    assert python.is_symlink()
    assert (tmp_path / "out").read_text() == "ok\n"


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "variables", [{"TREADLE_HOME": "home"}, {"XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "s", "HOME": ""}]
)
def test_a_command_does_not_change_what_treadle_obeys(tmp_path: Path, variables: Mapping[str, str]):
    places = {"home", "s/treadle", ".config/treadle"}
    for name in places:
        (tmp_path / name).mkdir(parents=True)
    env = {
        **os.environ,
        **{name: str(tmp_path / value) if name != "XDG_CONFIG_HOME" else value for name, value in variables.items()},
    }
    script = "for one in home s/treadle .config/treadle; do echo evil > $one/hooks.json; done"
    subprocess.run([sys.executable, "-c", WITHIN, "Bubblewrap", tmp_path, script], env=env, check=True)

    written = {name for name in places if (tmp_path / name / "hooks.json").exists()}
    assert written == ({"s/treadle"} if "TREADLE_HOME" in variables else {"home"})


@needs_bwrap
@pytest.mark.parametrize("path", ["{folder}/bin:{system}", "bin:{system}", ":{system}", "{folder}/bin"])
def test_a_program_of_a_writable_folder_is_not_taken_for_the_sandbox(tmp_path: Path, path: str):
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "bin/bwrap", tmp_path / "bwrap"):
        place.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        place.chmod(0o755)
    env = {**os.environ, "PATH": path.format(folder=tmp_path, system=os.environ["PATH"])}
    line = [sys.executable, "-c", WITHIN, "Bubblewrap", tmp_path, "echo hi"]
    done = subprocess.run(line, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)

    assert "stdout='hi\\n'" in done.stdout or "The program bwrap is not installed" in done.stderr
    assert not (tmp_path / "ran").exists()


# As another user


AS_ANOTHER = textwrap.dedent(
    """
    import asyncio, json, os, subprocess, sys, threading
    import concurrent.futures.thread
    from treadle.sandboxes import Bubblewrap, Confinement, Landlock
    from treadle.tools import Command
    os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
    kind = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[sys.argv[1]]
    others = [subprocess.Popen(["sleep", "60"]) for _ in range(int(sys.argv[5]))]
    sandbox = kind(Confinement(writable=(sys.argv[2],), max_processes=40))
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", sys.argv[4]))))
    for one in others:
        one.kill()
    print(json.dumps([done.exit_code, done.stdout, done.stderr, [[one.kind, one.target] for one in done.refused]]))
    """
)


def as_another(kind: str, folder: Path, script: str, *, others: int = 0) -> Any:
    """Run a line confined as another user, who runs some other programs already."""
    user = 400_000 + 2 * os.getpid() + (kind == "Landlock")
    os.chown(folder, user, user)
    line = [sys.executable, "-c", AS_ANOTHER, kind, str(folder), str(user), script, str(others)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others reach. Not in pytest's own: another pytest that starts closes that to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "w").mkdir()
        yield Path(folder, "w")


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_programs_that_a_user_runs_already_take_no_room_from_a_command(kind: str, shared: Path):
    found = as_another(kind, shared, "echo $(echo a; echo b) | cat", others=60)
    assert found == [0, "a b\n", "", []]

    bomb = "i=0; while [ $i -lt 120 ]; do sleep 20 & i=$((i+1)); done; echo all"
    assert "all" not in as_another(kind, shared, bomb, others=10)[1]


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_a_daemon_that_gets_rid_of_its_marks_ends_with_its_command(kind: str, shared: Path):
    seconds = f"{60_000 + os.getpid()}.5"
    hides = f"ulimit -S -R 5000; ulimit -H -R 6000; exec /bin/sleep {seconds}"
    script = f"setsid env -i /bin/bash -c '{hides}' </dev/null >/dev/null 2>&1 & until [ -e started ]; do :; done; ulimit -a >/dev/null"
    begun = script.replace("exec /bin", "/usr/bin/touch started; exec /bin")
    assert as_another(kind, shared, begun)[0] == 0

    running = [one for one in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _read(one)]
    assert running == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@needs_root
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["555", "000"])
def test_a_folder_that_a_command_closes_keeps_no_protected_name(kind: str, mode: str, shared: Path):
    found = as_another(
        kind, shared, f"echo x > .mcp.json; mkdir .vscode; touch .vscode/tasks.json; chmod {mode} .vscode ."
    )

    assert [kind for kind, _ in found[3]] == ["write", "write"]
    assert [one for one in (".mcp.json", ".vscode") if (shared / one).exists()] == []


# Within a sandbox

WITHIN_LANDLOCK = """
import os, sys
from treadle.cli.main import main
from treadle.sandboxes import launcher
from treadle.sandboxes.runners import call_filter
plan = {"listed": [], "readable": ["/"], "writable": [sys.argv[1]], "devices": ["/dev/null"], "network": False}
launcher._libc.prctl(38, 1, 0, 0, 0)
launcher._confine_files(plan)
launcher._drop_capabilities()
launcher._filter_calls(call_filter("files", has_network=False, landlock_abi=launcher.landlock_abi()))
sys.exit(main(sys.argv[2:]))
"""


@needs_landlock
def test_a_treadle_within_a_sandbox_says_what_does_not_work_there_and_runs_nothing_bare(tmp_path: Path):
    script = [{"calls": [{"name": "shell", "arguments": {"command": "touch ran"}}]}, {"text": "Done."}]
    (tmp_path / "s.json").write_text(json.dumps(script))
    env = {**os.environ, "TREADLE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}

    def treadle(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", WITHIN_LANDLOCK, str(tmp_path), *words]
        return subprocess.run(line, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)

    doctor = treadle("doctor").stdout
    assert "A sandbox is required but unavailable" in doctor
    assert "self-check  The mock provider cannot listen" in doctor
    confined = treadle("run", "-m", "script:s.json", "--tools", "shell", "--sandbox", "on", "--mode", "bypass", "go")
    assert (confined.returncode, "sandbox is required but unavailable" in confined.stderr) == (1, True)
    assert not (tmp_path / "ran").exists()
    assert treadle("run", "-m", "script:s.json", "--tools", "shell", "--mode", "bypass", "go").returncode == 0
    assert (tmp_path / "ran").exists()


# Folders without end

DEEP = """{python} -c "
import os
os.makedirs('{at}'); os.chdir('{at}')
for _ in range(1100): os.mkdir('d'); os.chdir('d')
{more}
" """
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)  # deeper than pytest goes


@needs_bwrap
def test_very_deep_folders_stop_no_later_command(place: Path):
    repository(place)
    run(place, DEEP.format(python=PYTHON, at=".git/modules", more=""))

    assert run(place, "echo hi").stdout == "hi\n"


@needs_bwrap
@pytest.mark.parametrize("at", [".claude", ".vscode"])
def test_very_deep_protected_folders_stop_no_command(place: Path, at: str):
    subprocess.run(["sh", "-c", DEEP.format(python=PYTHON, at=at, more="")], cwd=place, check=True)

    assert run(place, "echo hi").stdout == "hi\n"


@pytest.mark.parametrize("kind", KINDS)
def test_files_in_very_deep_folders_are_held_to_the_limit_of_the_disk(kind: str, place: Path):
    fill = (
        "file = open('big', 'wb')\nwhile True: file.write(os.urandom(1000000)); file.flush(); os.fsync(file.fileno())"
    )
    confinement = Confinement(writable=(str(place),), disk_bytes=20_000_000)
    sandbox = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[kind](confinement)
    line = DEEP.format(python=PYTHON, at="deep", more=fill)
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", line))))

    assert [(one.kind, one.target) for one in done.refused] == [("disk", "disk_bytes")]
