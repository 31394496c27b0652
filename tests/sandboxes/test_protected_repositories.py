"""Repositories inside of a writable folder: what git would run for one is not left to a sandboxed command."""

import asyncio
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.sandboxes.closing import linked_repositories
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.runners import Bubblewrap
from treadle.tools import Command, ProcessResult

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def run(folder: Path, script: str) -> ProcessResult:
    return asyncio.run(confined(folder, script))


async def confined(folder: Path, script: str) -> ProcessResult:
    sandbox = Bubblewrap(Confinement(writable=(str(folder),)))
    own = f'git() {{ command {shlex.join(GIT)} "$@"; }}'
    return await sandbox.run(Command(arguments=("/bin/sh", "-c", f"{own}; {script}")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def obeyed(folder: Path, ran: Path) -> bool:
    """Whether a program ran when a person asked for the state of the repository."""
    git(folder, "status", "-s")
    git(folder, "diff", "--stat")
    return ran.exists()


EVIL = "mkdir -p deep/evil && git -C deep/evil init -q && git -C deep/evil commit -q --allow-empty -m x"
LINKED = "git -C deep/evil config core.fsmonitor 'touch {ran}; false'; git update-index --add --cacheinfo 160000,$(git -C deep/evil rev-parse HEAD),deep/evil"


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("form", ["", "--index-version 2", "--index-version 3", "--index-version 4", "--split-index"])
def test_a_repository_that_a_command_puts_into_the_index_is_not_followed(repository: Path, tmp_path: Path, form: str):
    ran = tmp_path / "ran"
    change = f"git update-index {form};" if form else ""
    done = run(repository, f"{EVIL}; {change} {LINKED.format(ran=ran)}")

    assert (done.exit_code, done.stderr) == (0, "")
    assert [one.target for one in done.refused] == [str(repository / "deep/evil/.git")]
    assert "160000" in git(repository, "ls-files", "-s")
    assert not obeyed(repository, ran)


@pytest.mark.row("D-PROTECTED")
def test_what_git_runs_for_a_submodule_stays_as_it_is(repository: Path, tmp_path: Path):
    source, ran = tmp_path / "source", tmp_path / "ran"
    source.mkdir()
    git(source, "init", "-q")
    git(source, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", str(source), "sub")
    own = tmp_path / "w/own"
    shutil.copytree(source, own)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{git(source, 'rev-parse', 'HEAD').strip()},own")
    git(repository, "commit", "-qm", "two")
    assert linked_repositories(str(repository / ".git")) == {"sub", "own"}
    before = ((repository / "sub/.git").read_text(), (own / ".git/config").read_text())
    setting = f"config core.fsmonitor 'touch {ran}; false'"
    done = run(
        repository,
        f"{EVIL}; git -C deep/evil {setting}; echo gitdir: ../deep/evil/.git > sub/.git; rm -f sub/.git; mv sub s; "
        f"git -C own {setting}; mv own o; rm -rf own/.git/config; echo y > sub/new; git -C sub add new; exit 1",
    )

    assert done.exit_code == 1
    assert ((repository / "sub/.git").read_text(), (own / ".git/config").read_text()) == before
    assert "new" in git(repository / "sub", "status", "-s")
    assert not obeyed(repository, ran)


@pytest.mark.row("D-PROTECTED")
def test_a_protected_name_that_is_a_link_opens_nothing_and_stops_no_command(repository: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("canary")
    (repository / ".vscode").symlink_to(tmp_path / "other")
    (repository / ".npmrc").symlink_to("../other/file")
    (repository / "settings").mkdir()
    (repository / ".idea").symlink_to("settings")
    done = run(
        repository,
        "cat .vscode/file .npmrc; echo x > .vscode/file; echo x > .npmrc; echo x > .idea/run; rm .idea; echo made > plain",
    )

    assert "canary" not in done.stdout
    assert (tmp_path / "other/file").read_text() == "canary"
    assert list((repository / "settings").iterdir()) == []
    assert (repository / "plain").read_text() == "made\n"
    assert [str((repository / one).readlink()) for one in (".vscode", ".npmrc", ".idea")] == [
        str(tmp_path / "other"),
        "../other/file",
        "settings",
    ]


@pytest.mark.row("D-PROTECTED")
def test_a_protected_file_that_another_program_replaces_meanwhile_is_said(repository: Path):
    for name in ("ready", "go"):
        os.mkfifo(repository / name)

    async def replaced() -> ProcessResult:
        running = asyncio.create_task(confined(repository, "echo x > ready; cat go; echo evil >> .git/config"))
        assert await asyncio.to_thread((repository / "ready").read_text) == "x\n"
        (repository / "new").write_text("[core]\n")
        (repository / "new").rename(repository / ".git/config")
        await asyncio.to_thread((repository / "go").write_text, "go")
        return await running

    done = asyncio.run(replaced())

    assert [(one.target, "Another program replaced it" in one.line) for one in done.refused] == [
        (str(repository / ".git/config"), True)
    ]
    assert run(repository, "echo evil >> .git/config; echo x > plain").exit_code == 0
    assert run(repository, "true").refused == ()


def test_an_index_that_names_paths_outside_opens_none(repository: Path):
    index = repository / ".git/index"
    index.write_bytes(index.read_bytes().replace(b"\x00\x00\x81\xa4", b"\x00\x00\xe0\x00").replace(b"a.txt", b"../ot"))

    assert not any(one.startswith(("..", "/")) for one in linked_repositories(str(repository / ".git")))
