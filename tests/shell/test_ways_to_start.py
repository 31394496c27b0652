"""Every way that is known here to have a line start a program: a rule that denies the program denies the line, or a person is asked."""

from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, first_of, shell_tool
from treadle.permissions.policies import decide
from treadle.resolve import memory_session

pytest.importorskip("tree_sitter_bash")

LINES = Path(__file__).with_name("lines_that_start_rm.txt").read_text("utf-8").splitlines()
ODD = [
    "r\\\nm k", "echo x\rrm k", "echo x;\u200brm k", "rm\tk", "\ufeffrm k", "echo x # \nrm k", "cat <<E\n$(rm k)\nE", 'cat <<"E"\nE\nrm k',
    "cat <<-E\n\tE\n\trm k", "cat <<E | sh\nrm k\nE", "echo 'a\nrm k", "f(){ rm k;}\nf", 'echo "`echo \\`rm k\\``"',
]  # fmt: skip
ALLOWED = "git ls cat echo tee time env tar zip rsync find less man rg fd test [ printf sort make true sed xargs curl trap read mapfile exec timeout"


@pytest.mark.row("D-VARIANTS", "AT-SHELL-DENIED")
@pytest.mark.parametrize("line", [*LINES, *ODD])
async def test_no_way_to_start_a_denied_program_is_allowed(tmp_path, line):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "name").write_text("rm k\n")
    (tmp_path / "k").write_text("x")
    session, called = await memory_session(), checked_call(shell_tool(tmp_path), command=line)
    prefixes = allow(*(f"shell({one}:*)" for one in ALLOWED.split()))

    for policy in (first_of(deny("shell(rm:*)"), allow("shell")), prefixes, None):
        assert (await decide(policy, called, session)).kind in ("deny", "ask"), policy
