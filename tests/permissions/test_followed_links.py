"""Programs that follow the links in a folder reach what these stand for: a rule that denies it holds, and what lies outside is asked about."""

from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, first_of, shell_tool
from treadle.permissions.policies import decide
from treadle.resolve import memory_session

FOLLOWING = [
    "grep -R x d", "grep -nR x d", "rg -L x d", "rg --follow x d", "fd -L x d", "find -L d", "find d -follow", "du -aL d",
    "du --dereference d", "tree -l d", "ls -RL d", "diff -r d e", "diff d e",
]  # fmt: skip

COPYING = [
    "cp -rL d x", "mv d x; cat x/l", "tar chf x d", "zip -r x d", "rsync -aL d x", "grep -R x .",
    "git mv d x; cat x/l/key", "git -P mv d x && cat x/l/key",
]  # fmt: skip

LINKING = [
    "ln -s l d/m && cat d/m/key", "ln -sf -- l d/m; cat d/m/key", "ln --symbolic l d/m; cat d/m/key", "ln -st d l e; cat d/l/key",
    "ln -s --target-directory=d l; cat d/l/key", "ln -svtd l; cat d/l/key", "ln -s l d; cat d/l/key", "ln -s l/key d/m; cat d/m",
    "ln -s ./l/. d/m; cat d/m/key",
]  # fmt: skip

PLAIN = [
    "grep -r x d", "rg x d", "find d", "du -a d", "tree d", "ls d", "ls -R d", "fd x d", "rm -r d", "cat d/k", "ln -s d/k e/k",
    "ln d/k e/m", "cp -r d x",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("secret", "d", "e", "deep/er"):
        (root / name).mkdir(parents=True)
    (root / "secret" / "key").write_text("x")
    (root / "d" / "k").write_text("x")
    (root / "d" / "l").symlink_to("../secret")
    (root / "deep" / "er" / "up").symlink_to("../../d")
    return root


async def kind(line: str, root: Path, policy=None) -> str:
    return (await decide(policy, checked_call(shell_tool(root), command=line), await memory_session())).kind


@pytest.mark.row("P16")
@pytest.mark.parametrize("line", [*FOLLOWING, *COPYING, *LINKING])
async def test_a_denied_folder_is_not_reached_by_a_link_that_is_followed(root, line):
    rules = first_of(deny("read(path=secret/**)"), allow("shell"))

    assert await kind(line, root, rules) in ("deny", "ask")


@pytest.mark.parametrize("line", PLAIN)
async def test_a_link_that_nobody_follows_denies_nothing(root, line):
    rules = first_of(deny("read(path=secret/**)"), allow("shell"))

    assert await kind(line, root, rules) == "allow"


@pytest.mark.row("P16")
@pytest.mark.parametrize("line", FOLLOWING)
async def test_a_reader_that_follows_links_is_asked_about(root, line):
    (root / "d" / "out").symlink_to("/etc")

    assert await kind(line, root) == "ask"


async def test_a_link_outside_asks_nobody_where_a_rule_allows_a_program_that_writes(root):
    (root / "d" / "out").symlink_to("/etc")

    assert await kind("mytool d", root, allow("shell(mytool:*)")) == "allow"


@pytest.mark.row("P16")
async def test_a_link_that_a_rule_lets_a_command_make_leads_a_reader_of_the_same_line_nowhere_outside(root):
    (root / "d" / "out").symlink_to("/etc")

    assert await kind("ln -s out d/m && cat d/m/passwd", root, allow("shell(ln:*)")) == "ask"
    assert await kind("mv d x && cat x/out/passwd", root, allow("shell(mv:*)")) == "ask"
    assert await kind("ln -s k d/m && cat e", root, allow("shell(ln:*)")) == "allow"


@pytest.mark.parametrize("line", ["git diff {}/o k", "git diff --stat k {}/o", "git diff ../outside/o k"])
async def test_git_compares_no_file_outside_unasked(root, tmp_path, line):
    assert await kind(line.format(tmp_path / "outside"), root) == "ask"
    assert await kind("git diff HEAD~1..HEAD k", root) == "allow"
