"""Directories of git: whichever lie in a writable folder, a command leaves nothing in one that git runs later."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from treadle.errors import SandboxUnavailable
from treadle.sandboxes import launcher
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.runners import Bubblewrap, Landlock
from treadle.tools import Command, ProcessResult
from treadle.toolsets.shell.keeping import Processes

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
needs_landlock = pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
CONFIG = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\t%s\\n\\tfsmonitor = \"touch {ran}; false\"\\n'"
HOOK = "mkdir -p {at}; printf '#!/bin/sh\\ntouch {ran}\\n' > {at}/post-checkout; chmod +x {at}/post-checkout"


def git(folder: Path, *words: str) -> str:
    return subprocess.run([*GIT, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def made(folder: Path, *words: str) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *words)
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a submodule that has one too, a worktree beside it and one within."""
    inner, middle, folder = made(tmp_path / "inner"), made(tmp_path / "middle"), made(tmp_path / "w")
    git(middle, "submodule", "--quiet", "add", str(inner), "deep")
    git(middle, "commit", "-qm", "two")
    git(folder, "submodule", "--quiet", "add", str(middle), "sub")
    git(folder, "submodule", "--quiet", "update", "--init", "--recursive")
    git(folder, "commit", "-qm", "two")
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "beside"))
    git(folder, "worktree", "add", "-q", "--detach", str(folder / "trees/own"))
    return folder


def confined(folder: Path, script: str) -> ProcessResult:
    sandbox = Bubblewrap(Confinement(writable=(str(folder),)))
    own = f'git() {{ command {shlex.join(GIT)} "$@"; }}'
    return asyncio.run(sandbox.run(Command(arguments=("/bin/bash", "-c", f"{own}; {script}"), cwd=str(folder))))


class Attack(NamedTuple):
    script: str
    """What a command does, in the project."""
    before: str = "true"
    """What has happened to the project before."""
    after: str = "git status -s"
    """What the person does later, from the project."""


FAKE = "mkdir -p fake/objects fake/refs; cp -r {at}/objects {at}/refs fake/; {config} 'worktree = {tree}' > fake/config; echo {w}/fake > {at}/commondir"
LED = "git init -q -b main evil; git -C evil commit -q --allow-empty -m x; {config} '' > evil/.git/config; echo gitdir: {w}/evil/.git > {at}"
NEW = "git init -q {at}/n; git -C {at}/n commit -q --allow-empty -m x; {config} '' > {at}/n/.git/config; git -C {at} add n"
MODE = r"""/usr/bin/python3 -c 'import hashlib, os
old = open(".git/index", "rb").read()[:-20]
new = old.replace(bytes((0, 0, 224, 0)), bytes((1, 0, 239, 1)))
open(".git/new", "wb").write(new + hashlib.sha1(new).digest()); os.rename(".git/new", ".git/index")'"""
EXTENDED = "git -C {at} config extensions.worktreeConfig true"


def filled(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


ATTACKS = {
    "a submodule leads to another configuration": Attack(filled(FAKE, at=".git/modules/sub", tree="{w}/sub")),
    "a submodule of one, too": Attack(
        filled(FAKE, at=".git/modules/sub/modules/deep", tree="{w}/sub/deep"), after="git -C sub status -s"
    ),
    "a submodule has a second configuration": Attack(
        "{config} 'worktree = {w}/sub' > .git/modules/sub/config.worktree", filled(EXTENDED, at="sub")
    ),
    "a worktree has one": Attack(
        "{config} '' > .git/worktrees/beside/config.worktree", filled(EXTENDED, at="."), "git -C ../beside status -s"
    ),
    "a submodule had no hooks": Attack(
        filled(HOOK, at=".git/modules/sub/hooks"), "rm -rf .git/modules/sub/hooks", "git -C sub checkout -q HEAD^0"
    ),
    "a submodule is made before it is fetched": Attack(
        "git init -q --bare new; git -C new fetch -q {w}/b main; git -C new update-ref HEAD FETCH_HEAD; git -C new config core.bare false; mkdir -p .git/modules; mv new .git/modules/sub; "
        + filled(HOOK, at=".git/modules/sub/hooks"),
        "git submodule --quiet deinit -f sub; rm -rf .git/modules; cp -r ../middle b; git submodule init",
        "git submodule update; true",
    ),
    "and led to by a link": Attack(
        "git init -q --bare new; git -C new fetch -q {w}/b main; git -C new update-ref HEAD FETCH_HEAD; git -C new config core.bare false; mkdir -p .git/modules; ln -s ../../new .git/modules/sub; "
        + filled(HOOK, at="new/hooks"),
        "git submodule --quiet deinit -f sub; rm -rf .git/modules; cp -r ../middle b; git submodule init",
        "git submodule update; true",
    ),
    "and led to by a link above it": Attack(
        "git init -q --bare new; git -C new fetch -q {w}/b main; git -C new update-ref HEAD FETCH_HEAD; git -C new config core.bare false; mkdir -p .git/modules evil; mv new evil/foo; ln -s ../../evil .git/modules/libs; "
        + filled(HOOK, at="evil/foo/hooks"),
        "cp -r ../middle b; git submodule --quiet add ./b libs/foo; git submodule --quiet deinit -f libs/foo; rm -rf .git/modules/libs; git submodule init",
        "git submodule update libs/foo; true",
    ),
    "a submodule of a submodule leads elsewhere": Attack(
        filled(LED, at="sub/deep/.git"), after="git -C sub status -s"
    ),
    "a worktree within leads elsewhere": Attack(
        filled(LED, at="trees/own/.git"), after="git -C trees/own status -s"
    ),
    "a submodule has a new one": Attack(filled(NEW, at="sub")),
    "a repository has a new one, by SHA-256": Attack(
        "git init -q --object-format=sha256 n; git -C n commit -q --allow-empty -m x; git -C n config core.fsmonitor 'touch {ran}; false'; git add n",
        "rm -rf .git; git init -q --object-format=sha256",
    ),
    "a repository has a mode in the index that only git takes for one": Attack(f"{filled(NEW, at='.')}; {MODE}"),
    "a remote is named in the old way": Attack(
        "git init -q --bare -b main new; mkdir -p new/hooks .git/remotes; printf '#!/bin/sh\\ntouch {ran}\\n' > new/hooks/post-receive; chmod +x new/hooks/post-receive; echo URL: {w}/new > .git/remotes/origin",
        after="git push -q origin HEAD:main",
    ),
    "a branch of one is named in the old way": Attack(
        "git init -q --bare -b main new; mkdir -p new/hooks .git/branches; printf '#!/bin/sh\\ntouch {ran}\\n' > new/hooks/post-receive; chmod +x new/hooks/post-receive; echo {w}/new > .git/branches/origin",
        after="git push -q origin HEAD:main",
    ),
    "the directory lies elsewhere in the folder": Attack(
        filled(HOOK, at="real/hooks"), "rm -rf .git; git init -q --separate-git-dir real; git commit -q --allow-empty -m x; rm -rf real/hooks",
        "git checkout -q HEAD^0",
    ),
    "the directory that is named does not exist": Attack(
        "mv x/.git gone; {config} '' > gone/config", "rm -rf .git; echo gitdir: gone > .git; git init -q -b main x; git -C x commit -q --allow-empty -m x",
    ),
    "a project deeper in the folder": Attack(
        "{config} '' > b/c/.git/config; " + filled(HOOK, at="b/c/.git/hooks"), "mkdir b; cp -r ../inner b/c",
        "git -C b/c status -s; git -C b/c checkout -q HEAD^0",
    ),
    "a project deeper in the folder whose directory lies elsewhere": Attack(
        "{config} '' > b/real/config; " + filled(HOOK, at="b/real/hooks"),
        "mkdir -p b/c; git init -q --separate-git-dir b/real b/c; git -C b/c commit -q --allow-empty -m x; rm -rf b/real/hooks",
        "git -C b/c status -s; git -C b/c checkout -q HEAD^0",
    ),
    "a repository without a working folder": Attack(
        "mkdir -p b/c.git/hooks; printf '#!/bin/sh\\ntouch {ran}\\n' > b/c.git/hooks/update; chmod +x b/c.git/hooks/update",
        "mkdir b; git init -q --bare b/c.git; rm -rf b/c.git/hooks", "git push -q b/c.git HEAD:main",
    ),
    "what a project deeper in the folder is configured to run": Attack(
        "printf '#!/bin/sh\\ntouch {ran}\\n' > b/c/watch; chmod +x b/c/watch",
        "mkdir b; cp -r ../inner b/c; git -C b/c config core.fsmonitor ./watch", "git -C b/c status -s",
    ),
}  # fmt: skip


def bare(folder: Path, script: str) -> None:
    own = f'git() {{ command {shlex.join(GIT)} "$@"; }}'
    done = subprocess.run(
        ["/bin/bash", "-c", f"{own}; {script}"], cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("run", [confined, bare])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_command_leaves_nothing_that_git_runs_later(
    project: Path, tmp_path: Path, name: str, run: Callable[[Path, str], object]
):
    ran = tmp_path / "ran"
    before, script, after = (
        filled(one, config=CONFIG, w=str(project), ran=str(ran))
        for one in (ATTACKS[name].before, ATTACKS[name].script, ATTACKS[name].after)
    )
    bare(project, f"set -e; {before}")
    run(project, script)
    assert not ran.exists()

    bare(project, f"{after}; true")
    assert ran.exists() == (run is bare)


@needs_bwrap
def test_git_works_in_submodules_worktrees_and_new_repositories(project: Path):
    script = """
        set -e
        for one in sub sub/deep trees/own; do
            echo more > $one/more; git -C $one add more; git -C $one commit -qm more; git -C $one checkout -q --detach; git -C $one stash list
        done
        git worktree add -q --detach trees/new; git -C trees/new status -s
        git init -q fresh; git -C fresh commit -q --allow-empty -m x; git -C fresh config user.name me
        git clone -q fresh copy; git -C copy log --format=%s
    """
    done = confined(project, script)

    assert (done.exit_code, done.stdout, done.stderr, done.refused) == (0, "x\n", "", ())
    assert git(project / "copy", "log", "--format=%s") == "x\n"
    assert git(project / "trees/new", "status", "-s") == ""
    assert [git(project / one, "log", "-1", "--format=%s") for one in ("sub", "sub/deep", "trees/own")] == [
        "more\n"
    ] * 3


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_was_taken_from_a_submodule_is_said_and_kept(project: Path):
    done = confined(
        project, "echo x > .git/modules/sub/commondir; mkdir -p .git/modules/a/b; touch .git/modules/a/b/HEAD"
    )

    assert [one.target for one in done.refused] == [
        str(project / ".git/modules" / one) for one in ("sub/commondir", "a/b")
    ]
    for one in done.refused:
        assert Path(one.line.removeprefix("Moved aside to ").removesuffix(".")).exists()
    assert confined(project, "echo more > plain").refused == ()


@needs_bwrap
@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("git config user.name me", "config"),
        ("git branch -m new", "config"),
        ("git remote add x ../inner", "config"),
        ("git submodule update --init", "modules/sub/config"),
        ("rm -f .git/config", "config"),
    ],
)
def test_a_command_that_would_replace_a_protected_file_is_told_what_refused_it(project: Path, line: str, file: str):
    done = confined(project, line)

    assert done.exit_code
    assert [(one.kind, one.target) for one in done.refused] == [("write", str(project / ".git" / file))]


@needs_bwrap
def test_something_busy_that_is_not_protected_was_not_refused(project: Path):
    words = "rm: cannot remove 'a.txt': Device or resource busy"

    assert confined(project, f'echo "{words}" >&2; echo "Device or resource busy" >&2; exit 1').refused == ()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_process_in_the_background_leaves_nothing_either(project: Path, tmp_path: Path):
    ran = tmp_path / "ran"
    lines = [filled(one, config=CONFIG, w=str(project), ran=str(ran)) for one in (
        FAKE.replace("{at}", ".git/modules/sub").replace("{tree}", "{w}/sub"), HOOK.replace("{at}", "b/c/.git/hooks"),
    )]  # fmt: skip
    bare(project, "mkdir b; cp -r ../inner b/c; rm -rf b/c/.git/hooks")
    waits = "while test -e .git/modules/sub/commondir -o -e b/c/.git/hooks; do :; done; echo gone; cat"
    sandbox = Bubblewrap(Confinement(writable=(str(project),)))
    line = "; ".join((*lines, waits, *lines))
    launch = sandbox.detached(Command(arguments=("/bin/bash", "-c", line), cwd=str(project)))
    processes = Processes(tmp_path / "state", "s")
    process = processes.start(launch, command=line, seconds=100, keep=False).id

    until(lambda: "gone" in "\n".join(processes.read(process, offset=1, limit=100)[0]))
    bare(project, "git status -s; git -C b/c checkout -q HEAD^0")
    assert not ran.exists()

    processes.write(process, b"\n", ends_input=True)
    until(lambda: processes.find(process).status != "running")
    bare(project, "git status -s; git -C b/c checkout -q HEAD^0")
    assert not ran.exists()


def until(condition: Callable[[], bool]) -> None:
    """Wait until something outside of this process is so."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end


# In both sandboxes, as root and as another user

WITHIN = textwrap.dedent(
    """
    import asyncio, os, sys
    import concurrent.futures.thread
    from treadle import Bubblewrap, Confinement, Landlock
    from treadle.tools import Command
    if int(sys.argv[4]):
        os.setgroups([]); os.setgid(int(sys.argv[4])); os.setuid(int(sys.argv[4]))
    kind = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[sys.argv[1]]
    sandbox = kind(Confinement(writable=(sys.argv[2],)))
    print(asyncio.run(sandbox.run(Command(arguments=("/bin/bash", "-c", sys.argv[3]), cwd=sys.argv[2]))))
    """
)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others reach. Not in pytest's own: another pytest that starts closes that to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("user", [0, pytest.param(1, marks=needs_root)], ids=["us", "another"])
@pytest.mark.parametrize(
    "kind", [pytest.param("Bubblewrap", marks=needs_bwrap), pytest.param("Landlock", marks=needs_landlock)]
)
def test_a_submodule_of_a_repository_above_is_not_led_elsewhere(shared: Path, kind: str, user: int):
    user = user and 500_000 + os.getpid()
    top, ran = made(shared / "top"), shared / "top/ran"
    (top / "part/sub").mkdir(parents=True)
    git(top, "update-index", "--add", "--cacheinfo", f"160000,{git(top, 'rev-parse', 'HEAD').strip()},part/sub")
    git(top, "commit", "-qm", "two")
    if user:
        subprocess.run(["chown", "-R", f"{user}:{user}", shared], check=True)
    config = filled(CONFIG, ran=str(ran))
    script = (
        f"git init -q -b main sub; cd sub; {shlex.join(GIT)} commit -q --allow-empty -m x; {config} '' > .git/config"
    )
    line = [sys.executable, "-c", WITHIN, kind, str(top / "part"), script, str(user)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

    git(top, "-c", "safe.directory=*", "status", "-s")
    assert "Moved aside to" in done.stdout
    assert not ran.exists()


HIDDEN = {
    "a repository in the index": (
        "git init -q -b main sub; git -C sub commit -q --allow-empty -m x; git add sub; chmod 311 .git",
        "sub/.git",
    ),
    "a submodule": ("mkdir -p .git/modules/s; touch .git/modules/s/HEAD; chmod 311 .git/modules", ".git/modules/s"),
    "a submodule in a folder": (
        "mkdir -p .git/modules/a/s; touch .git/modules/a/s/HEAD; chmod 311 .git/modules/a",
        ".git/modules/a",
    ),
    "the list of a rebase": (
        "mkdir .git/rebase-merge; ln -s ../../todo .git/rebase-merge/git-rebase-todo; chmod 311 .git/rebase-merge",
        ".git/rebase-merge/git-rebase-todo",
    ),
}


@needs_bwrap
@needs_root
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("name", HIDDEN)
def test_a_folder_that_cannot_be_listed_hides_nothing(shared: Path, name: str):
    top, user = made(shared / "top"), 500_000 + os.getpid()
    subprocess.run(["chown", "-R", f"{user}:{user}", shared], check=True)
    script, hidden = HIDDEN[name]
    own = f'git() {{ command {shlex.join(GIT)} "$@"; }}'
    line = [sys.executable, "-c", WITHIN, "Bubblewrap", str(top), f"{own}; {script}", str(user)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

    assert not os.path.lexists(top / hidden)
    assert f"Moved aside to {top / hidden}.refused-" in done.stdout


@needs_landlock
@pytest.mark.row("D-PROTECTED")
def test_landlock_says_that_it_cannot_protect_a_repository_deeper_in_the_folder(tmp_path: Path):
    made(tmp_path / "a/b")

    with pytest.raises(SandboxUnavailable, match=r"a/b/.git/.* read-only in a writable folder"):
        Landlock(Confinement(writable=(str(tmp_path),)))


# What git is in the middle of


@pytest.fixture
def rebasing(tmp_path: Path) -> Path:
    """A repository whose branch `topic` conflicts with `main`."""
    folder = made(tmp_path / "w")
    git(folder, "switch", "-qc", "topic")
    for file, subject in (("a.txt", "two"), ("b.txt", "three")):
        (folder / file).write_text(f"{subject}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", subject)
    git(folder, "switch", "-q", "main")
    (folder / "a.txt").write_text("other\n")
    git(folder, "commit", "-qam", "other")
    git(folder, "switch", "-q", "topic")
    return folder


BEGUN = "git rebase main"
CONTINUED = "echo done > a.txt; git add a.txt; GIT_EDITOR=true git rebase --continue"
TODO = ".git/rebase-merge/git-rebase-todo"
PICKED = "git switch -q main; git cherry-pick topic~1 topic"
PICKED_ON = "echo done > a.txt; git add a.txt; GIT_EDITOR=true git cherry-pick --continue"
PROGRAM = "mkdir -p git-merge-x; printf '#!/bin/sh\\ntouch {ran}\\n' > evil; chmod +x evil; "
ORDERS = {
    "exec": (BEGUN, f"echo exec touch {{ran}} >> {TODO}", CONTINUED),
    "x": (BEGUN, f"printf ' \\tx\\ttouch {{ran}}' >> {TODO}", CONTINUED),
    "exec after a lot": (BEGUN, f"(printf '#'; head -c 3000000 /dev/zero | tr '\\0' a; echo; echo x touch {{ran}}) >> {TODO}", CONTINUED),
    "strategy": (BEGUN, PROGRAM + "echo x/../evil > .git/rebase-merge/strategy", CONTINUED),
    "strategy of a cherry-pick": (
        PICKED, PROGRAM + "printf '[options]\\n\\tstrategy = x/../evil\\n' > .git/sequencer/opts", PICKED_ON,
    ),
    "strategy on the next line": (
        PICKED, PROGRAM + "printf '[options]\\n\\tStrategy = \\\\\\r\\nx/../evil\\n' > .git/sequencer/opts", PICKED_ON,
    ),
}  # fmt: skip


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("begins", ["before", "in the command"])
@pytest.mark.parametrize("run", [confined, bare])
@pytest.mark.parametrize("name", ORDERS)
def test_what_git_is_in_the_middle_of_runs_nothing_that_a_command_put_there(
    rebasing: Path, tmp_path: Path, name: str, begins: str, run: Callable[[Path, str], object]
):
    ran = tmp_path / "ran"
    begun, order, continued = ORDERS[name]
    order = order.replace("{ran}", str(ran))
    if begins == "before":
        bare(rebasing, f"{begun}; true")
    run(rebasing, f"{order}; true" if begins == "before" else f"{begun}; {order}")

    bare(rebasing, f"{continued}; true")
    assert ran.exists() == (run is bare)


ADDED = "echo exec touch {ran} >> todo"
LINKS = {
    "a link": (f"mv {TODO} todo; ln -s ../../todo {TODO}", ADDED),
    "another name of the file": (f"ln {TODO} todo", ADDED),
    "a folder that is a link": ("mv .git/rebase-merge state; ln -s ../state .git/rebase-merge", f"cp -r state todos; {ADDED}s/git-rebase-todo; ln -sfn ../todos .git/rebase-merge"),
    "a folder that is a link to a link": ("mv .git/rebase-merge state; ln -s ../on .git/rebase-merge; ln -s state on", f"cp -r state todos; {ADDED}s/git-rebase-todo; ln -sfn todos on"),
}  # fmt: skip


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("run", [confined, bare])
@pytest.mark.parametrize("name", LINKS)
def test_a_second_command_adds_nothing_to_the_list_of_a_rebase(
    rebasing: Path, tmp_path: Path, name: str, run: Callable[[Path, str], object]
):
    first, second = LINKS[name]
    run(rebasing, f"{BEGUN}; {first}")
    run(rebasing, second.replace("{ran}", f"{tmp_path}/ran"))

    bare(rebasing, f"{CONTINUED}; true")
    assert (tmp_path / "ran").exists() == (run is bare)


@needs_bwrap
def test_a_command_works_in_a_rebase_and_rebases_itself(rebasing: Path):
    done = confined(rebasing, f"git rebase main topic~2 -x true && git switch -q topic && {BEGUN}")

    assert done.exit_code == 1
    assert "Resolve all conflicts" in done.stderr
    assert done.refused == ()
    done = confined(
        rebasing, "git status && echo done > a.txt && git add a.txt && git diff --cached && git commit -qm done"
    )
    assert (done.exit_code, done.refused, "rebase in progress" in done.stdout) == (0, (), True)
    git(rebasing, "rebase", "--continue")
    assert git(rebasing, "log", "--format=%s").split() == ["three", "done", "other", "one"]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_the_list_of_a_rebase_that_was_taken_away_is_said_and_kept(rebasing: Path, tmp_path: Path):
    done = confined(rebasing, f"{BEGUN}; echo exec touch {tmp_path}/ran >> {TODO}")

    assert [one.target for one in done.refused] == [str(rebasing / TODO)]
    kept = Path(done.refused[0].line.removeprefix("Moved aside to ").removesuffix("."))
    assert f"exec touch {tmp_path}/ran" in kept.read_text()
    git(rebasing, "rebase", "--abort")
    assert git(rebasing, "log", "-1", "--format=%s") == "three\n"
