"""Sandboxes: what a confined program cannot reach or use up, on the real kernel, as root and as another user."""

import asyncio
import gc
import json
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.errors import ConfigurationError
from treadle.sandboxes import launcher
from treadle.sandboxes.closing import ClosedNames
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.processes import run_process
from treadle.sandboxes.runners import FAILED, Bubblewrap, Landlock, find_sandbox, started
from treadle.tools import Command, ProcessResult
from treadle.tools.protected import SEALED

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable

KINDS = {
    "bubblewrap": pytest.param(
        Bubblewrap, marks=pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
    ),
    "landlock": pytest.param(
        Landlock, marks=pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
    ),
}
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
Kind = type[Bubblewrap] | type[Landlock]


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def run(kind: Kind, tmp_path: Path) -> Callable[..., ProcessResult]:
    """Run a shell command confined, with one writable folder, `tmp_path / "w"`."""
    (tmp_path / "w").mkdir()

    def ask(script: str, **settings: object) -> ProcessResult:
        confinement = Confinement(**{"writable": (str(tmp_path / "w"),), "memory_bytes": 600_000_000, **settings})  # type: ignore[arg-type]  # wrong on purpose
        return asyncio.run(kind(confinement).run(Command(arguments=("/bin/sh", "-c", script))))

    return ask


def test_a_program_reads_the_system_and_works_in_its_folder(run: Callable[..., ProcessResult], tmp_path: Path):
    done = run(f"echo x > out && cat out && {PYTHON} -c 'print(6 * 7)' && pwd && echo oops >&2; exit 3")

    assert (done.exit_code, done.stdout, done.stderr) == (3, f"x\n42\n{tmp_path / 'w'}\n", "oops\n")
    assert (tmp_path / "w/out").read_text() == "x\n"


@pytest.mark.row("P17")
@pytest.mark.parametrize("path", ["/etc/shadow", "/proc/{parent}/environ", "{secret}", "/dev/mem", "/sys/kernel/notes"])
def test_what_was_not_named_cannot_be_read(run: Callable[..., ProcessResult], tmp_path: Path, path: str):
    (tmp_path / "secret").write_text("canary")
    where = path.format(parent=os.getpid(), secret=tmp_path / "secret")
    done = run(f"cat {where}; ls {tmp_path}/secret; ln -s {where} link; cat link; ln {where} hard; cat hard")

    assert done.exit_code != 0
    assert "canary" not in done.stdout
    assert "treadle" not in done.stdout


def test_nothing_outside_the_writable_folder_can_be_changed(run: Callable[..., ProcessResult], tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("old")
    done = run(
        f"echo x > {tmp_path}/other/file; rm {tmp_path}/other/file; mv {tmp_path}/other w2; echo x > /usr/evil; echo x > /etc/passwd; "
        f"mkdir {tmp_path}/new; ln -s {tmp_path}/other l; echo x > l/file; chmod 777 {tmp_path}/other/file; exit 1"
    )

    assert done.exit_code == 1
    assert (tmp_path / "other/file").read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "w"]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
def test_protected_files_in_a_writable_folder_stay_as_they_are(tmp_path: Path):
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/config").write_text("old")
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = "echo x > .git/hooks/pre-commit; echo x > .git/config; mv .git/hooks .git/h2; rm -rf .git/config; echo y > .git/index; exit 1"
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert (tmp_path / ".git/config").read_text() == "old"
    assert list((tmp_path / ".git/hooks").iterdir()) == []
    assert not (tmp_path / ".git/index").exists()
    assert [(one.kind, one.target) for one in done.refused][:2] == [
        ("write", str(tmp_path / ".git/hooks/pre-commit")),
        ("write", str(tmp_path / ".git/config")),
    ]


@pytest.mark.parametrize("settings", [{"writable": ["w", "w/b"]}, {"writable": ["w"], "readable": ["w/b"]}])
def test_a_folder_that_a_command_replaces_by_a_link_opens_nothing(
    kind: Kind, tmp_path: Path, settings: dict[str, list[str]]
):
    (tmp_path / "w/b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("canary")
    places = {name: tuple(str(tmp_path / one) for one in found) for name, found in settings.items()}
    sandbox = kind(Confinement(**places))  # type: ignore[arg-type]  # two of its fields
    swap = f"mv b c; ln -s {tmp_path}/other b"
    asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", swap), cwd=str(tmp_path / "w"))))

    read = Command(arguments=("/bin/sh", "-c", f"cat {tmp_path}/other/file; echo x > {tmp_path}/other/file"))
    if (tmp_path / "w/c").is_dir():  # else it could not be moved away
        with pytest.raises((OSError, ConfigurationError), match=r"leads elsewhere now|does not exist"):
            asyncio.run(sandbox.run(read))

    assert (tmp_path / "other/file").read_text() == "canary"
    assert (tmp_path / "w/b").is_symlink() == (tmp_path / "w/c").is_dir()


PLANTS = [
    "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
    "mkdir -p .git/refs .git/objects && echo ref: refs/heads/main > .git/HEAD && echo '[core]' > .git/config",
    "echo '{}' > .mcp.json; exit 3",
    "mkdir .vscode .treadle && echo evil > .vscode/tasks.json",
    "mkdir real real/hooks && ln -s real .git",
    "mkdir real && ln -s real .claude",
    "mkdir -p .git/hooks && chmod 000 .git",
    "echo gitdir: real > .git; mkdir -p real/hooks",
    *(
        "; ".join(
            f"mkdir -p {Path(name).parent} && echo evil > {name.replace('*', 'x')}" for name in SEALED[at : at + 12]
        )
        for at in range(0, len(SEALED), 12)
    ),
    "mkdir real && ln -s real mise && echo evil > real/config.local.toml",
]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("script", PLANTS)
def test_a_protected_name_that_did_not_exist_is_not_left_behind(
    run: Callable[..., ProcessResult], tmp_path: Path, script: str
):
    done = run(script)

    folder = tmp_path / "w"
    assert [name for name in SEALED if os.path.lexists(folder / name) or list(folder.glob(name))] == []
    assert len(list(folder.rglob("*.refused-*"))) >= script.count("evil")
    assert not (folder / ".git").is_file()
    assert not (folder / ".git").is_symlink()
    refused = [one for one in done.refused if one.kind == "write"]
    assert refused
    for one in refused:
        moved = one.line.removeprefix("Moved aside to ").removesuffix(".")
        assert one.target.startswith(f"{folder}/")
        assert os.path.lexists(moved)
    assert run("echo more > plain.txt").refused == ()


REPOSITORIES = [
    "echo ref: refs/heads/main > HEAD; mkdir objects refs; echo '[core]' > config",
    "mkdir refs objects; ln -s refs/heads/main HEAD",
    "echo ref: refs/heads/main > HEAD; echo x > commondir; mkdir -p x/refs x/objects; echo '[core]' > x/config",
    "git init -q --bare .",
]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("script", REPOSITORIES)
def test_a_folder_does_not_become_a_repository_by_itself(
    run: Callable[..., ProcessResult], tmp_path: Path, script: str
):
    done = run(script)

    assert [(one.kind, one.target) for one in done.refused] == [("write", str(tmp_path / "w/HEAD"))]
    assert list((tmp_path / "w").glob("HEAD.refused-*"))
    git = ["git", "-C", str(tmp_path / "w"), "rev-parse", "--git-dir"]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    assert subprocess.run(git, env=environment, capture_output=True, check=False).returncode != 0


@pytest.mark.row("D-PROTECTED")
def test_folders_of_ordinary_names_and_a_head_stay(run: Callable[..., ProcessResult], tmp_path: Path):
    (tmp_path / "w/HEAD").write_text("mine")

    assert run("mkdir objects; echo x > objects/a; echo y >> HEAD").refused == ()
    assert [Path(one.target).name for one in run("mkdir refs").refused] == ["HEAD"]
    assert next((tmp_path / "w").glob("HEAD.refused-*")).read_text() == "miney\n"


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_git_runs_for_a_repository_without_a_working_tree_stays_as_it_is(tmp_path: Path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    shutil.rmtree(tmp_path / "hooks")
    kept = (tmp_path / "config").read_text()
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = "echo evil >> config; rm -f config; mkdir hooks; echo evil > hooks/update; echo ref: refs/heads/new > HEAD"
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert (tmp_path / "config").read_text() == kept
    assert not (tmp_path / "hooks").exists()
    assert (tmp_path / "HEAD").read_text() == "ref: refs/heads/new\n"
    assert str(tmp_path / "hooks") in [one.target for one in done.refused]


@pytest.mark.row("D-PROTECTED")
def test_what_a_replaced_link_had_led_to_is_followed_by_nothing_else(kind: Kind, tmp_path: Path):
    folder = tmp_path / "w"
    (folder / "real").mkdir(parents=True)
    (folder / ".git").symlink_to("real")
    (folder / ".mcp.json").symlink_to("servers.json")

    refused = in_a_new_process(
        kind,
        folder,
        "rm .git .mcp.json; mkdir -p .git/hooks; echo evil > .mcp.json; mkdir real/hooks; echo evil > servers.json",
    )

    assert (folder / ".git").readlink() == Path("real")
    assert (folder / ".mcp.json").readlink() == Path("servers.json")
    assert list((folder / "real").glob("hooks")) == []
    assert not (folder / "servers.json").exists()
    assert refused.count("write") >= 4


NEW_PROCESS = """
import asyncio, json, sys
from treadle.sandboxes import Bubblewrap, Confinement, Landlock
from treadle.tools import Command
sandbox = {"bubblewrap": Bubblewrap, "landlock": Landlock}[sys.argv[1]](Confinement(writable=(sys.argv[2],)))
done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", sys.argv[3]))))
print(json.dumps([one.kind for one in done.refused]))
"""


def in_a_new_process(kind: Kind, folder: Path, script: str) -> list[str]:
    """Run a command from a process that is younger than the folder, and return the kinds of what was refused."""
    line = [sys.executable, "-c", NEW_PROCESS, kind.name, str(folder), script]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=100)
    found: list[str] = json.loads(done.stdout)
    return found


LINKED = [
    (
        "conf/v1/vscode",
        {".vscode": "conf/current/vscode", "conf/current": "v1"},
        "rm conf/current; ln -s evil conf/current",
        ".vscode/x",
    ),
    ("m1.json", {".mcp.json": "m2.json", "m2.json": "m1.json"}, "rm m2.json; echo evil > m2.json", ".mcp.json"),
]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(("real", "links", "script", "read"), LINKED)
def test_a_link_on_the_way_to_a_protected_file_is_made_anew(
    kind: Kind,
    run: Callable[..., ProcessResult],
    tmp_path: Path,
    real: str,
    links: dict[str, str],
    script: str,
    read: str,
):
    folder = tmp_path / "w"
    for name in (real, "conf/evil/vscode"):
        file = folder / name if name.endswith(".json") else folder / name / "x"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("evil\n" if "evil" in name else "mine\n")
    for name, target in links.items():
        (folder / name).symlink_to(target)
    refused = in_a_new_process(kind, folder, script)
    assert (folder / read).read_text() == "mine\n"
    assert "write" in refused

    for one in script.split("; "):  # of links that are younger than this process, none is made anew
        run(one)
    assert not (folder / read).exists() or (folder / read).read_text() == "mine\n"


@pytest.mark.row("D-PROTECTED")
def test_what_is_done_once_a_command_has_ended_goes_through_no_link(run: Callable[..., ProcessResult], tmp_path: Path):
    folder, outside = tmp_path / "w", tmp_path / "outside"
    (outside / "repo").mkdir(parents=True, mode=0o500)
    (outside / "repo").chmod(0o500)
    for name in (".github", "conf"):
        (folder / name).mkdir()
    (folder / ".github/hooks").symlink_to("../conf")
    run(f"ln -s {outside} .jj; mv .github g; ln -s {outside} .github")

    assert ((outside / "repo").stat().st_mode & 0o777, [one.name for one in outside.iterdir()]) == (0o500, ["repo"])


@pytest.mark.row("D-PROTECTED")
def test_a_link_that_another_command_was_kept_from_making_is_not_restored(tmp_path: Path):
    (tmp_path / ".mcp.json").symlink_to("evil.json")  # a process in the background makes it while this command starts
    with ClosedNames([str(tmp_path)], [f"{tmp_path}/.mcp.json"]):
        (tmp_path / ".mcp.json").unlink()  # it removes it itself, and has ended then

    assert not os.path.lexists(tmp_path / ".mcp.json")


@pytest.mark.row("D-PROTECTED")
def test_a_protected_name_of_any_length_is_renamed(run: Callable[..., ProcessResult], tmp_path: Path):
    name = "a" * 240 + ".code-workspace"
    done = run(f"echo evil > {name}")

    assert [one.target for one in done.refused] == [str(tmp_path / "w" / name)]
    assert not (tmp_path / "w" / name).exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_files_of_protected_patterns_stay_as_they_are(tmp_path: Path):
    names = ("a.code-workspace", "mise.local.toml", "mise/config.local.toml")
    (tmp_path / "mise").mkdir()
    for name in names:
        (tmp_path / name).write_text("old")
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = f"for f in {' '.join(names)}; do echo evil >> $f; mv $f x; rm -f $f x; done; mv mise m; echo evil > b.code-workspace; echo more > plain.toml"
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert [(tmp_path / name).read_text() for name in names] == ["old"] * 3
    assert [one.target for one in done.refused][:1] == [str(tmp_path / "b.code-workspace")]
    assert sorted(one.name.partition(".refused-")[0] for one in tmp_path.iterdir()) == [
        "a.code-workspace", "b.code-workspace", "mise", "mise.local.toml", "plain.toml",
    ]  # fmt: skip


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_file_that_names_the_repository_stays_as_it_is(tmp_path: Path):
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = "mkdir -p real/hooks; echo gitdir: real > .git; rm .git; mv .git g"
    asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert (tmp_path / ".git").read_text() == "gitdir: elsewhere"


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_git_runs_for_submodules_and_worktrees_stays_as_it_is(tmp_path: Path):
    kept = [
        ".git/modules/a/b/config",
        ".git/modules/a/b/hooks/post-commit",
        ".git/worktrees/w/commondir",
        ".git/modules/a/b/modules/c/config",
    ]
    for name in (*kept, ".git/modules/a/b/HEAD", ".git/modules/a/b/modules/c/HEAD", ".git/worktrees/w/HEAD"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = f"for f in {' '.join(kept)}; do rm $f; mv $f x; echo evil > $f; done; mv .git/modules g; echo new > .git/modules/a/b/HEAD"
    asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert [(tmp_path / name).read_text() for name in kept] == ["old"] * len(kept)
    assert (tmp_path / ".git/modules/a/b/HEAD").read_text() == "old"


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_another_name_of_a_protected_file_stays_as_it_is(tmp_path: Path):
    for name in (".git/hooks/pre-commit", ".git/config", ".treadle/config.toml", "plain.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    (tmp_path / "deep/er").mkdir(parents=True)
    others = {
        "hook": ".git/hooks/pre-commit",
        "deep/er/x": ".git/config",
        "z": ".treadle/config.toml",
    }
    for other, name in others.items():
        os.link(tmp_path / name, tmp_path / other)
    os.link(tmp_path / "plain.txt", tmp_path / "free")
    script = f"for f in {' '.join(others)}; do echo new >> $f; done; mv deep d; echo new >> d/er/x; ln .git/config w; echo new >> w; echo y > free"

    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", f"{script}; exit 1"))))

    assert {name: (tmp_path / name).read_text() for name in others.values()} == dict.fromkeys(others.values(), "old")
    assert (tmp_path / "plain.txt").read_text() == "y\n"
    assert ("write", str(tmp_path / "hook")) in [(one.kind, one.target) for one in done.refused]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "away", ["mv .git g", "rm -rf .git", "mv .git/hooks .git/h", "mkdir x; mv .git x/", "rmdir .git/hooks .git"]
)
def test_the_folder_of_a_protected_one_cannot_be_moved_away_and_made_anew(tmp_path: Path, away: str):
    (tmp_path / ".git/hooks").mkdir(parents=True)
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    script = (
        f"{away}; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; touch .git/index && mv .git/index .git/index2"
    )

    asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert list((tmp_path / ".git/hooks").iterdir()) == []
    assert not (tmp_path / ".git/index2").exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_came_after_the_sandbox_was_made_is_protected_too(tmp_path: Path):
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    (tmp_path / ".git/hooks").mkdir(parents=True)

    asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", "echo evil > .git/hooks/pre-commit"))))

    assert list((tmp_path / ".git/hooks").iterdir()) == []


@pytest.mark.row("D-PROTECTED")
def test_a_file_of_the_home_is_protected_in_a_writable_folder_too(kind: Kind, tmp_path: Path):
    (tmp_path / "w/a").mkdir(parents=True)
    (tmp_path / "home/.ssh").mkdir(parents=True)
    for name in (".bashrc", ".ssh/id_rsa"):
        (tmp_path / "home" / name).write_text("old")
        os.link(tmp_path / "home" / name, tmp_path / "w/a" / name.strip("./").replace("/", "_"))
    program = f"""
        import asyncio
        from treadle.sandboxes.confinement import Confinement
        from treadle.sandboxes.runners import {kind.__name__}
        from treadle.tools import Command
        sandbox = {kind.__name__}(Confinement(writable=({str(tmp_path / "w")!r},)))
        line = "cat a/ssh_id_rsa; echo x > a/bashrc; echo x >> a/ssh_id_rsa; touch ran; exit 1"
        done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", line))))
        print(done.stdout, [(one.kind, one.target) for one in done.refused])
    """
    environment = {**os.environ, "HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert [(tmp_path / "home" / name).read_text() for name in (".bashrc", ".ssh/id_rsa")] == ["old", "old"]
    assert "old" not in done.stdout
    assert f"('read', '{tmp_path / 'w/a/ssh_id_rsa'}')" in done.stdout, done.stderr


def test_landlock_keeps_a_repository_and_lets_a_command_work_in_what_there_is(tmp_path: Path):
    for name in (".git/hooks", "src"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".git/config").write_text("old")
    sandbox = Landlock(Confinement(writable=(str(tmp_path),)))
    script = (
        "echo x > .git/config; echo x > .git/hooks/a; mv .git g; echo new > src/a.py; cat src/a.py; echo new > top.py"
    )
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))

    assert (tmp_path / ".git/config").read_text() == "old"
    assert sorted(one.name for one in tmp_path.rglob("*")) == [".git", "a.py", "config", "hooks", "src"]
    assert ("write", str(tmp_path / "top.py")) in [(one.kind, one.target) for one in done.refused]


CONNECTS = """
import socket, sys
kinds = [(socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)]
for family, kind in kinds:
    try:
        one = socket.socket(family, kind)
        one.settimeout(5)
        one.connect(("127.0.0.1" if family == socket.AF_INET else "::1", int(sys.argv[1])))
        one.send(b"x")
        print("sent", family, kind)
    except OSError as error:
        print("refused", error.errno)
try:
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[2])
    print("sent unix")
except OSError as error:
    print("refused", error.errno)
"""


@pytest.mark.row("AT-INJECTION-NETWORK")
def test_there_is_no_network_and_no_socket_of_the_machine(run: Callable[..., ProcessResult], tmp_path: Path):
    (tmp_path / "w/connects.py").write_text(CONNECTS)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        server.setblocking(False)
        done = run(f"{PYTHON} connects.py {server.getsockname()[1]} {tmp_path / 'socket'}")
        with pytest.raises(BlockingIOError):
            server.accept()

    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert lines.count("refused") >= 3
    assert "sent unix" not in done.stdout


def test_a_network_that_is_allowed_works(kind: Kind, tmp_path: Path):
    (tmp_path / "connects.py").write_text(CONNECTS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = Command(arguments=(PYTHON, "connects.py", str(server.getsockname()[1]), "/nowhere"))
        done = asyncio.run(kind(Confinement(writable=(str(tmp_path),), network=True)).run(command))

    assert "sent 2 1" in done.stdout


@pytest.mark.row("AT-SHELL-BOMBS")
def test_memory_files_and_processes_are_bounded(run: Callable[..., ProcessResult]):
    memory = run(f"exec {PYTHON} -c 'bytearray(2_000_000_000)'")
    file = run("head -c 3000000 /dev/zero > big", max_file_bytes=1_000_000)
    forks = run("i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo all", max_processes=20)
    spin = run("while :; do :; done", cpu_seconds=1)

    assert "MemoryError" in memory.stderr or memory.exit_code in (-9, 137)  # a control group ends it
    assert file.exit_code != 0
    assert "all" not in forks.stdout
    assert spin.exit_code != 0
    kinds = [{one.kind for one in done.refused} for done in (memory, file, forks, spin)]
    assert all(kind in found for kind, found in zip(("memory", "disk", "processes", "time"), kinds, strict=True)), kinds


def test_what_a_command_failed_at_by_itself_is_not_told_as_a_refusal(run: Callable[..., ProcessResult], tmp_path: Path):
    hidden = tmp_path / "hidden.txt"
    hidden.write_text("x")
    own = run("cat /nowhere/at/all; cat missing.txt; grep -q x /etc/hostname2; false")
    refused = run(f"cat {hidden}")
    outside = run("mkdir /usr/evil")
    well = run(f"cat {hidden} || true")

    assert (own.exit_code, own.refused) == (1, ())
    assert [(one.kind, one.target) for one in refused.refused] == [("read", str(hidden))]
    assert [(one.kind, one.target) for one in outside.refused] == [("write", "/usr/evil")]
    assert well.refused == ()


def test_memory_that_is_only_reserved_does_not_count(run: Callable[..., ProcessResult]):
    done = run(f"{PYTHON} -c 'import mmap; mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE, prot=0)'")

    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_program_with_a_sanitizer_runs_where_memory_is_counted_and_elsewhere_says_what_it_needs(
    run: Callable[..., ProcessResult], tmp_path: Path
):
    line = ["gcc", "-fsanitize=address", "-xc", "-", "-o", str(tmp_path / "w/checked")]
    built = subprocess.run(line, input="int main(){return 0;}", text=True, check=False)
    if built.returncode != 0:
        pytest.skip("gcc has no sanitizers")
    done = run("./checked")

    is_counted = os.geteuid() == 0 and Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists()
    assert ("failed to allocate" in done.stderr) == ([one.kind for one in done.refused] == ["memory"])
    assert not (is_counted and done.refused)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("curl: (7) Failed to connect to 127.0.0.1 port 1", {"network": True}),
        ("socket.gaierror: [Errno -2] Name or service not known", {"network": True}),
        ("MemoryError", {"memory_bytes": None}),
        ("bash: fork: retry: Resource temporarily unavailable", {"max_processes": None}),
        ("connect to 127.0.0.1 port {closed}: Connection refused", {}),
    ],
)
def test_words_of_a_limit_that_does_not_hold_are_the_commands_own(
    run: Callable[..., ProcessResult], words: str, settings: dict[str, object]
):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
    assert run(f"echo '{words.format(closed=closed)}' >&2; exit 7", **settings).refused == ()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_service_of_the_machine_that_cannot_be_reached_is_told_as_a_refusal(
    run: Callable[..., ProcessResult], family: socket.AddressFamily
):
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as service:
        service.bind((host, 0))
        service.listen()
        port = service.getsockname()[1]
        program = f"import socket; socket.create_connection(({host!r}, {port}))"
        line = f"{PYTHON} -c '{program}' 2>/dev/null || {{ echo 'connection to \"{host}\", port {port} failed: Connection refused' >&2; exit 2; }}"
        done = run(line.replace(program, program.replace("'", '"')))

    assert [one.kind for one in done.refused] == ["network"]


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ('psql: error: connection to server on socket "{socket}" failed: No such file or directory', True),
        ("Failed to connect to socket {socket}: Permission denied", True),
        ("Cannot connect to the daemon at unix://{socket}. Is it running?", True),
        ("PermissionError: [Errno 1] connect to {socket}: Operation not permitted", True),
        ('connection to server on socket "{socket}.none" failed: No such file or directory', False),
        ("Failed to connect to bus: No such file or directory", False),
    ],
)
def test_a_unix_socket_of_the_machine_is_told_as_what_only_a_command_outside_reaches_and_one_that_does_not_exist_is_not(
    run: Callable[..., ProcessResult], words: str, is_told: bool
):
    buses = [one for one in ("/run/dbus/system_bus_socket", f"/run/user/{os.getuid()}/bus") if Path(one).exists()]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX) as service:
        path = f"{folder}/db.sock"
        service.bind(path)
        text = words.format(socket=path).replace('"', '\\"')
        done = run(f'echo "{text}" >&2; exit 2')

    wanted = [path] if is_told else buses[:1] if "bus" in words else []
    assert [(one.kind, one.target) for one in done.refused] == [("other", one) for one in wanted]


ESCAPES = """
import os, sys, time
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(sys.argv[1], "w")  # holds the FIFO until it ends
            time.sleep(60)
        os._exit(0)
open("ready", "w").close()
"""


@pytest.mark.parametrize("settings", [{}, {"max_processes": None, "memory_bytes": None}], ids=["group", "no group"])
def test_nothing_of_a_program_outlives_it(
    run: Callable[..., ProcessResult], tmp_path: Path, settings: dict[str, object]
):
    (tmp_path / "w/escapes.py").write_text(ESCAPES)
    os.mkfifo(tmp_path / "w/held")
    reader = os.open(tmp_path / "w/held", os.O_RDONLY | os.O_NONBLOCK)
    run(f"env -i {PYTHON} escapes.py held", **settings)
    os.set_blocking(reader, True)

    while os.read(reader, 10):
        pass
    os.close(reader)


HEADLESS = """
import ctypes, os, sys, threading, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = open(sys.argv[1], "w")  # until the process ends
        threading.Thread(target=time.sleep, args=(60,)).start()
        open("ready", "w").close()
        ctypes.CDLL(None).syscall(ctypes.c_long(60 if os.uname().machine == "x86_64" else 93), 0)  # its first thread alone
    os._exit(0)
while not os.path.exists("ready"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("is_confined", [True, False])
async def test_a_process_whose_first_thread_has_ended_ends_with_its_command(tmp_path: Path, is_confined: bool):
    (tmp_path / "headless.py").write_text(HEADLESS)
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    words = (PYTHON, "headless.py", "held")
    if is_confined:
        sandbox = Landlock(Confinement(writable=(str(tmp_path),), max_processes=None, memory_bytes=None))
        await sandbox.run(Command(arguments=words, cwd=str(tmp_path)))
    else:
        await run_process(words, cwd=tmp_path)
    os.set_blocking(reader, True)

    while os.read(reader, 10):
        pass
    os.close(reader)


@pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
def test_a_command_that_cannot_start_leaves_nothing_that_waits(tmp_path: Path):
    sandbox = Landlock(Confinement(writable=(str(tmp_path),)))
    command = Command(arguments=("true",), cwd=str(tmp_path / "missing"))

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(FileNotFoundError):
            asyncio.run(sandbox.run(command))
        gc.collect()  # a coroutine that nobody awaited says so now

    assert [str(one.message) for one in found] == []


def test_being_cancelled_ends_the_program(kind: Kind, tmp_path: Path):
    fifo = tmp_path / "held"
    os.mkfifo(fifo)

    async def cancelled() -> None:
        script = (
            f'exec {PYTHON} -c \'import time; held = open("held", "w"); held.write("x"); held.flush(); time.sleep(60)\''
        )
        sandbox = kind(Confinement(writable=(str(tmp_path),)))
        running = asyncio.create_task(sandbox.run(Command(arguments=("/bin/sh", "-c", script))))
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
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


PRINTS_ALL = """
import asyncio, sys
from treadle.tools import Command
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.runners import Bubblewrap, Landlock
sandbox = {"bubblewrap": Bubblewrap, "landlock": Landlock}[sys.argv[1]](Confinement(writable=(sys.argv[2],)))
command = Command(arguments=("/bin/sh", "-c", "env; cat /proc/self/environ; cat /proc/1/environ; cat /proc/$PPID/environ"))
print(asyncio.run(sandbox.run(command)).stdout)
"""


def test_the_environment_is_clean(kind: Kind, tmp_path: Path):
    canary = {**os.environ, "OPENAI_API_KEY": "sk-canary"}
    done = subprocess.run(
        [sys.executable, "-c", PRINTS_ALL, kind.name, str(tmp_path)],
        env=canary,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert "HOME=" in done.stdout
    assert "canary" not in done.stdout


@pytest.mark.parametrize(
    "program",
    ["unshare -r id", "mount -t tmpfs none /tmp", "chroot / id", "nsenter -t 1 -m id", "dmesg"],
)
def test_ways_around_are_closed(run: Callable[..., ProcessResult], program: str):
    assert run(program).exit_code != 0


def test_a_program_that_does_not_exist_is_told_apart_from_a_sandbox_that_fails(run: Callable[..., ProcessResult]):
    assert run("no-such-program").exit_code == 127
    with pytest.raises(ConfigurationError, match="does not exist"):
        run("true", readable=("/no/such/folder",))


@pytest.mark.skipif(
    not shutil.which("bwrap") and not launcher.landlock_abi(), reason="there is neither bubblewrap nor Landlock"
)
def test_what_the_machine_has_is_found():
    sandbox = find_sandbox()

    assert asyncio.run(sandbox.run(Command(arguments=("true",)))).exit_code == 0


@pytest.mark.parametrize(
    "settings",
    [{"memory_bytes": 0}, {"writable": "/tmp"}, {"cpu_seconds": "1"}, {"max_processes": -1}, {"readable": ("",)}],
)
def test_a_confinement_of_wrong_values_is_refused(settings: dict[str, object]):
    with pytest.raises(ConfigurationError, match="Confinement"):
        Confinement(**settings)  # type: ignore[arg-type]  # wrong on purpose


AS_NOBODY = textwrap.dedent(
    """
    import asyncio, json, os, sys
    from treadle.tools import Command
    from treadle.sandboxes.confinement import Confinement
    from treadle.sandboxes.runners import Bubblewrap, Landlock
    os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
    kind = {"bubblewrap": Bubblewrap, "landlock": Landlock}[sys.argv[1]]
    sandbox = kind(Confinement(writable=(sys.argv[2],), max_processes=20, memory_bytes=600_000_000))
    scripts = ["echo x > out; cat out", "cat /etc/shadow", "echo x > ../evil",
               "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo all"]
    async def main():
        return [await sandbox.run(Command(arguments=("/bin/sh", "-c", one))) for one in scripts]
    print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in asyncio.run(main())]))
    """
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="our Python may be closed to others")
def test_it_holds_for_another_user_too(kind: Kind, tmp_path: Path):
    place = tmp_path / "w"
    place.mkdir()
    # The system counts processes by user, those that have ended and are not reaped too: a user of its own for each test.
    user = 200_000 + 2 * os.getpid() + (kind is Landlock)
    os.chown(place, user, user)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/") and str(folder) != "/tmp":
            folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, kind.name, str(place), str(user)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    works, shadow, outside, forks = json.loads(done.stdout)

    assert works[:2] == [0, "x\n"]
    assert shadow[0] != 0
    assert not (tmp_path / "evil").exists(), outside
    assert "all" not in forks[1]


@pytest.mark.parametrize("has_plan", [False, True])
def test_a_program_does_not_start_without_its_limits_or_its_control_group(tmp_path: Path, has_plan: bool):
    program = ("sh", "-c", "ulimit -t; ulimit -Ht; ulimit -c; touch ran")

    def run(limits: dict[str, int], groups: list[str]) -> "subprocess.CompletedProcess[str]":
        with (tmp_path.parent / "plan").open("wb+") as file:
            file.write(marshal.dumps({}))
            file.seek(0)
            given = {"pass_fds": [file.fileno()]} if has_plan else {}
            line = started(file.fileno() if has_plan else None, program, limits, groups)
            return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120, **given)  # type: ignore[call-overload,no-any-return]  # one option, or none

    assert run({"CPU": 7, "FSIZE": 4096}, []).stdout.split() == ["7", "8", "0"]
    (tmp_path / "ran").unlink()
    done = run({"CPU": 7}, [str(tmp_path / "no-group")])

    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr.startswith(launcher.MARK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.row("AT-SHELL-BOMBS")
@pytest.mark.parametrize(
    "script",
    ["i=0; while [ $i -lt 1000 ]; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done",
     "mkdir d; cd d; i=0; while [ $i -lt 1000 ]; do head -c 1000000 /dev/zero > ../f$i; ln ../f$i l$i; i=$((i+1)); done",
     "exec 3>f; rm f; i=0; while [ $i -lt 1000 ]; do head -c 1000000 /dev/zero >&3; i=$((i+1)); done"],
)  # fmt: skip
def test_many_files_together_are_held_to_the_limit_of_the_disk(
    run: Callable[..., ProcessResult], tmp_path: Path, script: str
):
    done = run(f"{script}; touch done", disk_bytes=30_000_000)

    assert [(one.kind, one.target) for one in done.refused] == [("disk", "disk_bytes")]
    assert (done.timed_out, done.exit_code != 0) == (False, True)
    assert not (tmp_path / "w" / "done").exists()
    assert sum(one.stat().st_blocks * 512 for one in (tmp_path / "w").glob("f*")) < 900_000_000


def test_a_file_that_was_there_before_is_not_counted(run: Callable[..., ProcessResult], tmp_path: Path):
    (tmp_path / "w" / "old").write_bytes(b"x" * 60_000_000)

    done = run("head -c 1000000 /dev/zero > new && cat old > /dev/null", disk_bytes=300_000_000)

    assert (done.exit_code, done.refused) == (0, ())


@pytest.mark.parametrize("place", ["/dev/shm/x", "/tmp/x", "/dev/x", "/x", "/run/x", "/dev/pts/x", "/proc/x"])
def test_what_is_outside_of_the_folders_takes_no_more_than_its_room(run: Callable[..., ProcessResult], place: str):
    done = run(f"head -c 50000000 /dev/zero > {place}; wc -c < {place}", temporary_bytes=1_000_000, memory_bytes=None)

    assert int(done.stdout.split()[-1] if done.stdout.strip() else 0) <= 1_100_000
