"""Git in a sandbox: a repository is read-only as a whole, wherever it lies, and `git` lifts its history without what git runs."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle import Agent, open_session
from treadle.sandboxes import launcher
from treadle.sandboxes.confinement import Confinement
from treadle.sandboxes.outside import programs_of_git, started_by_git
from treadle.sandboxes.runners import Bubblewrap, Landlock
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Command, Decision, ProcessResult
from treadle.toolsets.shell import shell_tool

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
needs_landlock = pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
KINDS = [pytest.param(Bubblewrap, marks=needs_bwrap), pytest.param(Landlock, marks=needs_landlock)]
ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made(tmp_path / "w")


def confined(
    folder: Path, script: str, *lifted: str, kind: type[Bubblewrap] | type[Landlock] = Bubblewrap, **more: str
) -> ProcessResult:
    command = Command(
        arguments=("/bin/bash", "-c", script), cwd=more.get("cwd", str(folder)), env=ENVIRONMENT, lifted=lifted
    )
    return asyncio.run(kind(Confinement(writable=(str(folder),))).run(command))


def files(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_git_can_be_read_and_none_of_it_written(project: Path, kind: type[Bubblewrap] | type[Landlock]):
    before = files(project / ".git")
    done = confined(
        project,
        "git log --format=%s; git status --short; echo two > a.txt; git diff --stat; git add -A; git config a.b c; rm -rf .git; "
        "mv .git g; echo x > .git/hooks/post-commit; echo x > .git/config; echo x > .git/commondir; exit 1",
        kind=kind,
    )

    assert done.stdout.startswith("one\n")
    assert files(project / ".git") == before
    assert ("write", str(project / ".git/index.lock")) in [(one.kind, one.target) for one in done.refused]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("kind", KINDS)
def test_repositories_deeper_in_the_folder_and_what_pointers_lead_to_stay_too(
    project: Path, kind: type[Bubblewrap] | type[Landlock]
):
    made(project / "deep/inner")
    git(project, "worktree", "add", "-q", "trees/other")
    (project / "led").mkdir()
    git(project, "init", "-q", "--separate-git-dir", str(project / "away"), str(project / "led"))
    git(project, "clone", "-q", "--bare", ".", "bare")
    kept = ["deep/inner/.git", "away", "bare", ".git"]
    before = [files(project / one) for one in kept]
    names = " ".join([*(f"{one}/config {one}/hooks/post-commit" for one in kept), "led/.git", "trees/other/.git"])
    confined(
        project,
        f"for f in {names}; do echo evil > $f; rm -f $f; done; mv deep d; mv away b; rm -rf bare led/.git",
        kind=kind,
    )

    assert [files(project / one) for one in kept] == before
    assert (project / "led/.git").read_text() == f"gitdir: {project}/away\n"
    assert (project / "trees/other/.git").is_file()


@needs_bwrap
def test_git_is_lifted_for_the_history_and_not_for_what_git_runs(project: Path):
    kept = files(project / ".git/hooks") | {"config": (project / ".git/config").read_bytes()}
    done = confined(
        project,
        "echo two > a.txt && git add -A && git commit -qm two && git switch -qc other && git stash list && git log --format=%s; "
        "echo evil > .git/hooks/post-commit; git config a.b c; echo /tmp > .git/commondir; mkdir -p .git/rebase-merge; "
        "echo 'exec evil' > .git/rebase-merge/git-rebase-todo; mkdir .git/remotes; echo 'URL: ./evil' > .git/remotes/origin",
        "git",
    )

    assert done.stdout == "two\none\n"
    assert git(project, "log", "--format=%s", "other") == "two\none\n"
    assert files(project / ".git/hooks") | {"config": (project / ".git/config").read_bytes()} == kept
    assert not [one for one in ("commondir", "remotes") if (project / ".git" / one).exists()]
    assert not (project / ".git/rebase-merge/git-rebase-todo").exists()
    assert {Path(one.target).name for one in done.refused} >= {"commondir", "git-rebase-todo"}


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_repository_that_a_command_puts_into_the_index_is_not_followed(project: Path, tmp_path: Path):
    ran = tmp_path / "ran"
    evil = f"git init -q evil && git -C evil commit -qm x --allow-empty && git -C evil config core.fsmonitor 'touch {ran}; true'"
    done = confined(
        project, f"{evil} && git update-index --add --cacheinfo 160000,$(git -C evil rev-parse HEAD),evil", "git"
    )
    git(project, "status")

    assert not ran.exists()
    assert [one.target for one in done.refused] == [str(project / "evil/.git")]
    assert list((project / "evil").glob(".git.refused-*"))


@needs_bwrap
def test_git_is_lifted_in_a_worktree_whose_repository_lies_elsewhere(project: Path, tmp_path: Path):
    tree = tmp_path / "tree"
    git(project, "worktree", "add", "-q", str(tree))
    hooks = files(project / ".git/hooks")

    assert confined(tree, "echo x > b.txt; git add -A").exit_code != 0
    done = confined(
        tree, f"git add -A && git commit -qm three; echo x > {project}/.git/config; echo x > {project}/c.txt", "git"
    )

    assert git(tree, "log", "--format=%s") == "three\none\n", done.stderr
    assert files(project / ".git/hooks") == hooks
    assert not (project / "c.txt").exists()


@needs_bwrap
def test_git_is_lifted_to_make_a_repository(tmp_path: Path):
    (tmp_path / "w").mkdir()

    assert confined(tmp_path / "w", "git init -q", "git").refused == ()
    assert (tmp_path / "w/.git/HEAD").exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "line",
    [
        "git config core.fsmonitor 'touch {ran}; true'",
        "printf '[core] fsmonitor = touch {ran}' >> .git/config",
        "printf '[core]\\n\\tfsmonitor\\\\\\n = touch {ran}\\n' >> .git/config",
        "printf '%01000000d\\n[core]\\n\\tfsmonitor = touch {ran}\\n' 0 | sed '1s/^/#/' >> .git/config",
        "printf '#!/bin/sh\\ntouch {ran}' > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change",
        "cp -r .git evil; git -C evil config core.fsmonitor 'touch {ran}; true'; rm -r .git; echo 'gitdir: evil' > .git",
    ],
)
def test_a_new_repository_that_has_git_start_a_program_is_set_aside(tmp_path: Path, line: str):
    (tmp_path / "w").mkdir()
    done = confined(tmp_path / "w", f"git init -q; {line.format(ran=tmp_path / 'ran')}", "git")
    subprocess.run(["git", "-C", str(tmp_path / "w"), "status"], capture_output=True, check=False)

    assert not (tmp_path / "ran").exists()
    assert str(tmp_path / "w/.git") in [one.target for one in done.refused]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_commit_of_the_person_writes_through_no_link_that_a_command_has_made(project: Path, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    for name in ("message", "log", "fetched"):
        (tmp_path / "outside" / name).write_text("plain\n")
    links = {"COMMIT_EDITMSG": "message", "logs/HEAD": "log", "FETCH_HEAD": "fetched", "logs/refs/heads": "."}
    line = "; ".join(f"rm -rf .git/{name}; ln -s {tmp_path}/outside/{to} .git/{name}" for name, to in links.items())
    done = confined(project, line, "git")
    git(project, "commit", "-q", "--allow-empty", "-m", "evil")
    git(project, "fetch", "-q", ".", "HEAD")

    assert {one.read_text() for one in (tmp_path / "outside").iterdir()} == {"plain\n"}
    assert sorted(one.name for one in (tmp_path / "outside").iterdir()) == ["fetched", "log", "message"]
    assert {one.target for one in done.refused} == {str(project / ".git" / name) for name in links}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.row("D-PROTECTED")
def test_a_submodule_that_is_not_checked_out_becomes_no_repository_of_a_command(
    project: Path, tmp_path: Path, kind: type[Bubblewrap] | type[Landlock]
):
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{'12' * 20},sub")
    git(project, "commit", "-qm", "two")
    (project / "sub").mkdir()
    done = confined(
        project, f"git init -q sub; git -C sub config core.fsmonitor 'touch {tmp_path}/ran; true'", kind=kind
    )
    git(project, "status")

    assert not (tmp_path / "ran").exists()
    assert [one.target for one in done.refused] == [str(project / "sub/.git")]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("way", ["extended flags", "padding"])
def test_an_index_is_read_as_git_reads_it(project: Path, tmp_path: Path, way: str):
    flags, behind = (0x4003, b"\0\0sub\0") if way == "extended flags" else (0x0003, b"sub/xyzabc")
    entry = bytes(26) + b"\xe0\0" + bytes(12) + bytes.fromhex("12" * 20) + flags.to_bytes(2, "big") + behind
    (project / "mk.py").write_text(
        f"import hashlib; e = {entry!r}; e += bytes(-len(e) % 8 or 8 * e.endswith(b'sub'));"
        "d = b'DIRC' + bytes([0, 0, 0, 2, 0, 0, 0, 1]) + e; open('.git/index', 'wb').write(d + hashlib.sha1(d).digest())"
    )
    evil = f"git init -q sub; git -C sub config core.fsmonitor 'touch {tmp_path}/ran; true'"
    done = confined(project, f"python3 mk.py; {evil}", "git")
    subprocess.run(["git", "-C", str(project), "status"], env=ENVIRONMENT, capture_output=True, check=False)

    assert not (tmp_path / "ran").exists()
    assert [one.target for one in done.refused] == [
        str(project / ("sub/.git" if way == "extended flags" else ".git/index"))
    ]


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "line",
    [
        "rm .git/index; mkfifo .git/index",
        "python3 -c \"f = open('.git/index', 'wb'); f.write(b'DIRC\\0\\0\\0\\2\\377\\377\\377\\377'); f.truncate(1 << 29)\"",
        "git init -q new; cd new; printf 'url = %0400000d' 0 | tr 0 ' ' > .git/config; echo x >> .git/config; cd ..; rm -rf .git; mv new/.git .",
    ],
)
def test_no_file_of_a_repository_holds_treadle_up(project: Path, line: str):
    confined(project, line, "git")
    confined(project, "true", "git")

    assert started_by_git(str(project)) == ""


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_neither_many_folders_nor_a_later_command_open_a_repository_in_the_folder(project: Path, tmp_path: Path):
    hooks = {"libs/a/sub": project / "libs/a/sub/hk/pre-commit", "libs/a/own": project / "libs/a/own/hk/pre-commit"}
    for name, hook in hooks.items():
        made(project / name)
        git(project / name, "config", "core.hooksPath", "hk")
        hook.parent.mkdir()
        hook.write_text("plain\n")
    git(project, "add", "libs/a/sub")
    script = (
        "for one in libs/a/*; do for f in .git/config .git/hooks/x hk/pre-commit; do echo evil >> $one/$f; done; done"
    )
    confined(project, f"{script}; for i in $(seq 1 400); do mkdir a$i; done")
    confined(project, script)

    assert [hook.read_text() for hook in hooks.values()] == ["plain\n", "plain\n"]
    assert "evil" not in "".join((project / one / ".git/config").read_text() for one in hooks)
    assert not [one for one in hooks if (project / one / ".git/hooks/x").exists()]


@needs_bwrap
def test_a_repository_of_the_person_that_a_command_puts_into_the_index_stays(project: Path):
    made(project / "inner")
    git(project, "worktree", "add", "-q", "tree")
    done = confined(project, "git add -A", "git")

    assert "160000" in git(project, "ls-files", "-s", "inner")
    assert (done.refused, (project / "inner/.git").is_dir(), (project / "tree/.git").is_file()) == ((), True, True)


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_repository_within_one_that_a_command_puts_into_the_index_is_not_followed(project: Path, tmp_path: Path):
    evil = f"git init -q {{}} && git -C {{}} commit -qm x --allow-empty && git -C {{}} config core.fsmonitor 'touch {tmp_path}/ran; true'"
    confined(
        project,
        f"git init -q inner; cd inner; {evil.replace('{}', 'evil')}; git add evil; git commit -qm x; git init -q deeper/plain",
    )
    confined(project, "git add inner", "git")
    git(project, "status")

    assert (project / "inner/.git").is_dir()
    assert not (tmp_path / "ran").exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_git_is_lifted_for_the_repository_in_which_a_line_starts_and_for_no_other(project: Path):
    inner = made(project / "inner")
    script = f"echo x > b; git add -A; git commit -qm two; touch {project}/.git/PWN"
    confined(project, script, "git", cwd=str(inner))

    assert git(inner, "log", "--format=%s") == "two\none\n"
    assert not (project / ".git/PWN").exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "line", ["cd a/inner && git add b", "git -C a -C inner add b", "git status; cd a/inner; git add b"]
)
async def test_a_line_that_calls_git_in_another_repository_does_not_have_the_history_lifted(project: Path, line: str):
    class Boxed:
        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="boxed", lifted=("git",))

    made(project / "a/inner")
    git(project / "a/inner", "config", "filter.x.clean", f"touch {project}/.git/PWN; cat")
    (project / "a/inner/.gitattributes").write_text("* filter=x\n")
    (project / "a/inner/b").touch()
    for number in range(400):  # more than are looked through
        (project / f"n{number}").mkdir()
    model = ScriptedModel([call("shell", command=one) for one in (line, "cd a/inner", "git add b")] + [text("Done.")])
    sandbox = Bubblewrap(Confinement(writable=(str(project),)))
    result = await Agent(model, tools=[shell_tool(project)], policy=Boxed(), sandbox=sandbox).run("go")

    assert [one.status for one in result.tool_calls] == ["rejected", "ok", "ok"]
    assert git(project / "a/inner", "-c", "filter.x.clean=cat", "diff", "--cached", "--name-only") == "b\n"
    assert not (project / ".git/PWN").exists()


def test_programs_are_off_however_the_configuration_names_them(project: Path):
    (project / ".git/config").write_text(
        '[filter.X]\n clean = a\n[Trailer "t"] command = b\n[merge "m"]\n driver = c\n'
    )

    off = programs_of_git(str(project))
    assert (off["filter.x.clean"], off["trailer.t.command"], off["merge.m.driver"]) == ("false", "false", "false")


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(
    "config",
    ["[filter.x]\nclean={0}", '[filter "x"] clean={0}', "[include]\npath=more", '[filter "x\\\\y"]\nclean={0}'],
)
def test_no_spelling_of_a_setting_has_git_start_a_program_where_it_is_lifted(project: Path, config: str):
    text = config.format(f"'touch {project}/.git/ran {project}/evil/.git/ran; cat'")
    more = f"[filter \"x\"]\nclean='touch {project}/.git/ran {project}/evil/.git/ran; cat'\n"
    confined(project, "git init -q evil")
    for name, content in {
        ".git/config": text,
        ".git/more": more,
        ".gitattributes": "f filter=x\ng filter=x\\\\y\n",
        "f": "f",
        "g": "g",
    }.items():
        with (project / "evil" / name).open("a") as file:
            file.write(content + "\n")
    confined(project, "git add f; git add g; touch ../.git/written", "git", cwd=str(project / "evil"))

    assert not (project / ".git/ran").exists()
    assert not (project / "evil/.git/ran").exists()
    assert not (project / ".git/written").exists()  # only the repository in which the line starts is lifted


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_repository_of_the_person_that_git_adds_stays_where_it_is(project: Path):
    made(project / "inner")
    done = confined(project, "git add -A", "git")

    assert (project / "inner/.git/HEAD").exists()
    assert done.refused == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.row("D-PROTECTED")
def test_new_folders_hide_no_repository_that_was_found_before(project: Path, kind: type[Bubblewrap] | type[Landlock]):
    made(project / "a/b/c/deep")
    (project / "w").mkdir()
    sandbox = kind(Confinement(writable=(str(project),)))

    def run(script: str) -> ProcessResult:
        return asyncio.run(
            sandbox.run(Command(arguments=("/bin/bash", "-c", script), cwd=str(project), env=ENVIRONMENT))
        )

    run("for i in $(seq 400); do mkdir w/$i; done")
    run("echo evil > a/b/c/deep/.git/hooks/pre-commit")
    assert not (project / "a/b/c/deep/.git/hooks/pre-commit").exists()


LINKS = {
    "tools/pc": ".git/hooks/pre-commit",
    "later/push": ".git/hooks/pre-push",
    "gc": ".git/config",
    "t/tasks.json": ".vscode/tasks.json",
    "t/x": ".vscode/deep/er/x",
}


@pytest.mark.parametrize(
    ("kind", "lifted"),
    [
        pytest.param(Bubblewrap, ("git",), marks=needs_bwrap),
        *(pytest.param(*one.values, (), marks=one.marks) for one in KINDS),
    ],
)
@pytest.mark.row("D-PROTECTED")
def test_what_a_link_in_a_protected_folder_leads_to_stays(
    project: Path, kind: type[Bubblewrap] | type[Landlock], lifted: tuple[str, ...]
):
    shutil.copy(project / ".git/config", project / "gc")
    (project / ".git/config").unlink()
    for name, link in LINKS.items():
        for one in (project / name, project / link):
            one.parent.mkdir(parents=True, exist_ok=True)
        (project / link).symlink_to(project / name)
    for name in ("tools/pc", "t/tasks.json", "t/x"):
        (project / name).write_text("mine")
    before = (project / "gc").read_text()
    confined(
        project,
        f"for one in {' '.join(LINKS)}; do echo evil >> $one; done; rm .git/config; echo evil > .git/config",
        *lifted,
        kind=kind,
    )

    assert [(project / one).read_text() for one in ("tools/pc", "t/tasks.json", "t/x")] == ["mine"] * 3
    assert not (project / "later/push").exists()
    confined(project, "echo evil > .git/config", *lifted, kind=kind)  # a link that is younger than we are has gone
    assert not (project / ".git/config").exists() or (project / ".git/config").read_text() == before


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_a_command_leaves_in_a_repository_holds_up_nothing(tmp_path: Path):
    folder = tmp_path / "w"
    folder.mkdir()
    confined(
        folder, "git init -q; python3 -c \"open('.git/config','a').write('url='+' '*400000+chr(34)+chr(10))\"", "git"
    )
    confined(folder, "mkdir -p f/.git/objects f/.git/refs; echo 'ref: refs/heads/m' > f/.git/HEAD; mkfifo f/.git/index")
    tool = shell_tool(folder)
    line = tool.line({"command": "cd f && git status"}, {})  # type: ignore[misc]  # it has one

    assert line.brought("git", "f") == ""  # type: ignore[misc]  # as above


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_a_pointer_that_came_while_the_sandbox_was_there_lifts_nothing_elsewhere(tmp_path: Path):
    other, folder = made(tmp_path / "other"), tmp_path / "w"
    folder.mkdir()
    sandbox = Bubblewrap(Confinement(writable=(str(folder),)))
    (folder / ".git").write_text(f"gitdir: {other}/.git\n")  # as a process in the background makes it
    command = Command(arguments=("/bin/bash", "-c", f"touch {other}/.git/x"), cwd=str(folder), lifted=("git",))
    with pytest.raises(OSError, match="leads elsewhere now"):
        asyncio.run(sandbox.run(command))


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
def test_what_a_rebase_runs_is_found_behind_any_number_of_comments(project: Path):
    script = "mkdir .git/rebase-merge; python3 -c \"print(('# ' + 'p' * 200000 + chr(10)) * 6 + 'exec evil')\" > .git/rebase-merge/git-rebase-todo"
    confined(project, script, "git")

    assert not (project / ".git/rebase-merge/git-rebase-todo").exists()


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("command", ["rebase", "cherry-pick"])
@pytest.mark.parametrize("strategy", ["x/../evil", "evil", "ort/../x/../evil", "ort\n/evil"])
def test_a_person_continues_no_rebase_with_a_program_that_a_command_has_named(
    project: Path, tmp_path: Path, command: str, strategy: str
):
    state = {"rebase": "rebase-merge", "cherry-pick": "sequencer"}[command]
    script = f"""
        for one in b main; do git switch -qc x$one main; echo $one > a.txt; git commit -qam $one; done; other=$(git rev-parse xb)
        mkdir -p git-merge-x git-merge-ort .git/{state}; printf '#!/bin/sh\\ntouch {tmp_path}/ran' > evil; chmod +x evil; cd .git/{state}
        git rev-parse HEAD | tee onto orig-head head > abort-safety; echo refs/heads/xmain > head-name; touch interactive done author-script
        echo '{strategy}' > strategy; printf '[options]\\n\\tStrategy = {strategy}\\n' > opts
        echo "pick $other b" > git-rebase-todo; printf "pick $(cat head) main\\npick $other b\\n" > todo
    """
    done = confined(project, script, "git")
    subprocess.run(["git", "-C", str(project), command, "--continue"], capture_output=True, check=False)

    assert not (tmp_path / "ran").exists()
    assert {Path(one.target).name for one in done.refused} & {"strategy", "opts"}


@needs_bwrap
def test_a_pointer_that_a_command_makes_lifts_nothing_elsewhere(project: Path, tmp_path: Path):
    other = made(tmp_path / "other")
    before = files(other / ".git")
    confined(project, f"mkdir sub; echo gitdir: {other}/.git > sub/.git")
    with pytest.raises(OSError, match="leads elsewhere"):
        confined(project, f"echo x > {other}/.git/HEAD; git add -A", "git", cwd=str(project / "sub"))

    assert files(other / ".git") == before


@needs_bwrap
def test_hooks_and_configured_programs_are_off_where_git_is_lifted(project: Path, tmp_path: Path):
    hook = project / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    git(project, "config", "filter.f.clean", "touch filtered; cat")
    git(project, "config", "core.fsmonitor", "touch monitored; true")
    (project / ".gitattributes").write_text("*.txt filter=f\n")
    sandbox = Bubblewrap(Confinement(writable=(str(project),)))

    class Context:
        def __init__(self) -> None:
            self.facts: dict[str, object] = {}
            self.runner = sandbox
            self.decision = Decision(kind="sandbox", lifted=("git",))

        def progress(self, message: str) -> None: ...

    names = "-c user.name=a -c user.email=a@b.c"
    line = f"echo two > b.txt; git {names} add -A; git {names} commit -qm two; git log --format=%s -1"
    done = asyncio.run(shell_tool(project).run({"command": line}, Context()))

    assert done.data["stdout"] == "two\n", done.data
    assert sorted(one.name for one in project.iterdir()) == [".git", ".gitattributes", "a.txt", "b.txt"]


@needs_bwrap
def test_git_is_not_lifted_for_a_process_in_the_background(project: Path):
    sandbox = Bubblewrap(Confinement(writable=(str(project),)))
    with pytest.raises(OSError, match="git history"):
        sandbox.detached(Command(arguments=("true",), lifted=("git",)))


@needs_landlock
def test_landlock_says_that_it_cannot_lift_git_or_a_host_alone(project: Path):
    for need in ("git", "network example.com"):
        with pytest.raises(OSError, match="cannot lift"):
            confined(project, "true", need, kind=Landlock)


@needs_landlock
async def test_under_landlock_a_person_is_asked_about_what_it_can_lift(project: Path, tmp_path: Path):
    class Boxed:
        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="always boxed")

    sandbox = Landlock(Confinement(writable=(str(project),)))
    calls = [call("shell", command="git commit -qm x --allow-empty"), call("shell", command="curl example.com")]
    async with open_session(tmp_path / "journal.db", id="s") as session:
        agent = Agent(
            ScriptedModel([calls, text("Done.")]), tools=[shell_tool(project)], policy=Boxed(), sandbox=sandbox
        )
        asked = (await agent.run("Go", session=session)).approvals

    assert [one.lifted for one in asked] == [("unconfined",), ("network *",)]
    assert "cannot lift alone" in asked[0].reason
    assert [one.rules for one in asked] == [("shell(git commit:*)",), ()]


@needs_bwrap
async def test_a_commit_asks_for_the_history_alone_and_gets_it_with_consent(project: Path, tmp_path: Path):
    class Boxed:
        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="boxed")

    for name in ("user.name", "user.email"):
        git(project, "config", name, "a")
    line = "git commit -q --allow-empty -m two; echo x > ../evil; git log --format=%s"
    model = ScriptedModel([call("shell", command=line), text("Done.")])
    sandbox = Bubblewrap(Confinement(writable=(str(project),)))
    agent = Agent(model, tools=[shell_tool(project)], policy=Boxed(), sandbox=sandbox)
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("go", session=session)
        assert [one.lifted for one in paused.approvals] == [("git",)]
        await session.answer(paused.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert json.loads(result.messages[2].results[0].content)["stdout"] == "two\none\n"
    assert not (tmp_path / "evil").exists()
