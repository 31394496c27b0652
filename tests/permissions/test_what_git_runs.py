"""What git's configuration has it run or read is asked about before it is written: `git status`, which needs no rule, would start it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import Agent, allow, open_session, shell_tool
from treadle.permissions.modes import in_mode, with_protection
from treadle.permissions.policies import decide
from treadle.resolve import memory_session
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import writing_tools

RUN = ["tools/hooks/pre-commit", "tools/hooks/new", "tools/monitor.sh", "team.gitconfig", "clean.sh", "deep/further.sh"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tools/hooks/pre-commit", "tools/monitor.sh", "clean.sh", "deep/further.sh", "src/main.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("cat\n")
    (tmp_path / "team.gitconfig").write_text("[core]\n\tsshCommand = ./deep/further.sh -v\n")
    (tmp_path / "link").symlink_to("tools")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for key, value in (
        ("core.hooksPath", "tools/hooks"),
        ("core.fsmonitor", "link/monitor.sh"),
        ("include.path", "../team.gitconfig"),
        ("filter.x.clean", "sh ./clean.sh %f"),
    ):
        subprocess.run(["git", "config", key, value], cwd=tmp_path, check=True)
    return tmp_path


async def kinds(root: Path, path: str) -> list[str]:
    """Say what is decided on each way to write a file, in the mode that accepts edits."""
    write, edit = writing_tools(root)
    calls = [
        checked_call(write, path=path, content="id"),
        checked_call(edit, path=path, old_text="cat", new_text="id"),
        checked_call(shell_tool(root), command=f"cp src/main.py {path}"),
    ]
    session, rules = await memory_session(), allow("shell(cp:*)")
    return [
        in_mode("accept-edits", with_protection(await decide(rules, one, session), one, {}), one).kind for one in calls
    ]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("path", [*RUN, "link/monitor.sh", "./src/../clean.sh"])
async def test_a_file_that_git_is_configured_to_run_or_read_is_asked_about(root, path):
    assert await kinds(root, path) == ["ask", "ask", "ask"]


@pytest.mark.parametrize("path", ["src/main.py", "tools/other.sh", "status"])
async def test_other_files_are_not(root, path):
    assert await kinds(root, path) == ["allow", "allow", "allow"]


@pytest.mark.row("D-PROTECTED")
async def test_a_repository_below_the_root_folder_counts_for_what_lies_in_it(root, tmp_path_factory):
    above = tmp_path_factory.mktemp("above")
    root.rename(above / "deep")
    folder = above / "some"
    folder.mkdir()
    (above / "deep").rename(folder / "repository")

    for path in RUN:
        assert await kinds(above, f"some/repository/{path}") == ["ask", "ask", "ask"], path
    assert await kinds(above, "some/repository/src/main.py") == ["allow", "allow", "allow"]
    assert await kinds(above, "some/clean.sh") == ["allow", "allow", "allow"]


async def test_outside_of_a_repository_nothing_is(tmp_path):
    assert await kinds(tmp_path, "clean.sh") == ["allow", "allow", "allow"]


# --- what runs unasked
@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """The environment of this process, which is as before once the test has ended."""
    before = dict(os.environ)
    yield os.environ
    os.environ.clear()
    os.environ.update(before)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], cwd=folder, check=True)


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    """A repository with one changed file, and a program `evil` that leaves a mark where it is started."""
    folder = tmp_path / "brought"
    folder.mkdir()
    (folder / "evil").write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\n[ -z "$1" ] && cat; exit 0\n')
    (folder / "evil").chmod(0o755)
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitattributes").write_text("*.txt diff=x filter=x\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "a.txt").write_text("two\n")
    return folder


async def ran_unasked(folder: Path, line: str) -> str:
    """Say how a run ends whose model wants one line, with no rule and nobody to ask."""
    async with open_session("memory:") as session:
        agent = Agent(ScriptedModel([call("shell", command=line), text("Done.")]), tools=[shell_tool(folder)])
        return (await agent.run("Look", session=session)).reason


def settings(folder: Path, text: str) -> None:
    with (folder / ".git" / "config").open("a") as file:
        file.write(text.replace("EVIL", str(folder / "evil")) + "\n")


STARTS = {
    "fsmonitor": ("[core]\n\tfsmonitor = EVIL", "git status"),
    "on one line": ("[core] fsmonitor = EVIL", "git diff --stat"),
    "in capitals": ('[CORE]FSMonitor="EVIL"', "git status --short"),
    "two sections": ("[a][core]fsmonitor=EVIL", "git status"),
    "continued": ("[core]\n\tfsmonitor = EV\\\nIL", "git status"),
    "textconv": ('[diff "x"]\n\ttextconv = EVIL', "git log -p"),
    "command": ('[diff "x"]\n\tcommand = EVIL', "git diff"),
    "a bracket in a name": ('[diff "a]"]\n[diff "x"] textconv = EVIL', "git show"),
    "external": ("[diff]\n\texternal = EVIL", "git diff HEAD"),
    "clean": ('[filter "x"]\n\tclean = EVIL', "git status"),
    "process": ('[filter "x"]\n\tprocess = EVIL', "git diff"),
    "program": ("[gpg]\n\tprogram = EVIL\n[log]\n\tshowSignature = true", "git log"),
    "signatures": ("[log]\n\tshowSignature", "git log"),
    "included": ("[include]\n\tpath = ../team", "git status"),
    "included on a condition": ('[includeIf "gitdir:**"]\n\tpath = ../team', "cd . && git status"),
    "elsewhere": ("[core]\n\tworktree = /etc", "git status"),
    "fetched": ('[remote "o"]\n\tpromisor = true\n\tuploadpack = EVIL', "git log -p"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "line"), STARTS.values(), ids=STARTS)
async def test_git_is_asked_about_where_the_folder_configures_what_it_runs(brought, more, line):
    (brought / "team").write_text(f"[core]\n\tfsmonitor = {brought}/evil\n")
    assert await ran_unasked(brought, line) == "completed"
    settings(brought, more)
    assert (await ran_unasked(brought, line), (brought.parent / "ran").exists()) == ("approval_required", False)


@pytest.mark.parametrize("line", ["git status", "cd sub && git log -p", "git diff --submodule=diff"])
@pytest.mark.parametrize("where", ["sub", "worktree", "file"])
async def test_what_belongs_to_a_repository_is_looked_at_too(brought, line, where):
    inner = brought / "sub"
    if where == "worktree":
        git(brought, "worktree", "add", "-q", str(inner))
        git(brought, "config", "extensions.worktreeConfig", "true")
        git(inner, "config", "--worktree", "core.fsmonitor", f"{brought}/evil")
        line = line.replace("git", "cd sub && git", 1)
    else:
        git(brought, "clone", "-q", ".", "sub")
        git(brought, "add", "sub")
        git(inner, "config", "core.fsmonitor", f"{brought}/evil")
    if where == "file":
        (inner / ".git").rename(brought / ".git" / "own")
        (inner / ".git").write_text("gitdir: ../.git/own\n")
    (inner / "a.txt").write_text("three\n")
    assert (await ran_unasked(brought, line), (brought.parent / "ran").exists()) == ("approval_required", False)


@pytest.mark.parametrize(
    "more",
    ["[core]\n\tfsmonitor = false", "[core]\n\tsshCommand = EVIL\n\tpager = EVIL\n\teditor = EVIL\n\taskPass = EVIL",
     "[pager]\n\tlog = EVIL\n[alias]\n\tstatus = !EVIL\n\tlog = !EVIL", '[remote "o"]\n\turl = ssh://x/y\n\tpromisor = true',
     "[core]\n\thooksPath = hooks", '[diff "x"]\n\txfuncname = ".*"\n[filter "x"]\n\trequired = false'],
)  # fmt: skip
async def test_what_reading_commands_never_start_costs_no_question(brought, more):
    hooks = [brought / ".git" / "hooks", brought / "hooks"]
    for folder in hooks:
        folder.mkdir(exist_ok=True)
        (folder / "post-index-change").symlink_to(brought / "evil")
    settings(brought, more)
    for line in ("git status", "git log -p", "git describe --always --dirty", "git branch --list"):
        (brought / "a.txt").touch()
        assert (await ran_unasked(brought, line), (brought.parent / "ran").exists()) == ("completed", False), line


async def test_the_environment_names_no_program_of_git(brought, environment):
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH_COMMAND", "GIT_EDITOR", "PAGER"):
        environment[name] = str(brought / "evil")
    environment["GIT_CONFIG_COUNT"] = "1"
    environment["GIT_CONFIG_KEY_0"] = "core.fsmonitor"
    environment["GIT_CONFIG_VALUE_0"] = str(brought / "evil")
    for line in ("git status", "git log -p", "git diff"):
        assert (await ran_unasked(brought, line), (brought.parent / "ran").exists()) == ("completed", False)
    for line in (
        "GIT_EXTERNAL_DIFF=./evil git diff",
        "export GIT_PAGER=./evil; git log",
        "git -c core.fsmonitor=./evil status",
    ):
        assert (await ran_unasked(brought, line), (brought.parent / "ran").exists()) == ("approval_required", False)


async def test_the_persons_own_drivers_and_rules_hold(brought, environment):
    home = brought.parent / "home"
    home.mkdir()
    environment["HOME"] = str(home)
    (home / ".gitconfig").write_text('[diff "x"]\n\ttextconv = cat\n')
    assert await ran_unasked(brought, "git log -p") == "completed"
    (home / ".gitconfig").write_text("[core]\n\tfsmonitor = ./evil\n")
    assert await ran_unasked(brought, "git log -p") == "approval_required"
    one = checked_call(shell_tool(brought), command="git log -p")
    assert (await decide(allow("shell(git log:*)"), one, await memory_session())).kind == "allow"
    one = checked_call(shell_tool(brought), command="ls && git log -p")
    assert (await decide(allow("shell(ls)"), one, await memory_session())).kind == "ask"


@pytest.mark.parametrize(
    "path", [".:PATH", "PATH:.", ":PATH", "bin:PATH", "BIN:PATH", "LINK:PATH", "HOME:PATH", "PATH:", ""]
)
@pytest.mark.parametrize("line", ["ls", "cd bin && ls", "git status"])
async def test_an_unasked_program_is_none_of_the_projects_own(brought, environment, path, line):
    (brought / "bin").mkdir()
    (brought.parent / "link").symlink_to(brought / "bin")
    (brought.parent / "home").mkdir()
    for folder in (brought, brought / "bin"):
        for name in ("ls", "git", "bash", "env"):
            (folder / name).symlink_to(brought / "evil")
    (brought.parent / "home" / line.split()[-1 if "ls" in line else 0]).symlink_to(brought / "evil")
    places = {
        "BIN": brought / "bin",
        "LINK": brought.parent / "link",
        "HOME": brought.parent / "home",
        "PATH": os.environ["PATH"],
    }
    environment["PATH"] = ":".join(str(places.get(one, one)) for one in path.split(":"))
    is_own = path[:4] in ("BIN:", "LINK", "HOME")
    reason = await ran_unasked(brought, line)
    assert (reason, (brought.parent / "ran").exists()) == ("approval_required" if is_own else "completed", False)
