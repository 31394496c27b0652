"""What git's configuration has it run or read is asked about before it is written: `git status`, which needs no rule, would start it."""

import subprocess
from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, shell_tool, writing_tools
from treadle.permissions.modes import in_mode
from treadle.permissions.policies import decide
from treadle.permissions.protection import with_protection
from treadle.resolve import memory_session

pytest.importorskip("tree_sitter_bash")

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
