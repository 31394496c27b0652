"""Paths that hooks are told of: from `/`, as Claude Code sends them, and read back as the same file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hook_tools import on
from hook_tools import run as run_with

from treadle import allow, deny, file_tools, first_of, writing_tools
from treadle.testing import call

GUARD = """
import json, sys
given = json.load(sys.stdin)
open('told', 'a').write(json.dumps(given) + '\\n')
path = given['tool_input'].get('file_path') or given['tool_input'].get('path')
sys.exit(2 if (path + '/').startswith(sys.argv[1] + '/secrets/') else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "secrets/key").write_text("secret")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "deep").symlink_to("secrets/..")
    (tmp_path / "guard.py").write_text(GUARD)
    return tmp_path


async def run(folder: Path, one: Any, command: str, **more: Any) -> Any:
    tools = [*file_tools(folder), *writing_tools(folder)]
    return (await run_with(on("PreToolUse", command), one, tools=tools, folder=folder, **more))[0]


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("one", "is_denied"),
    [
        (call("read", path="secrets/key"), True),
        (call("read", path="./secrets//key"), True),
        (call("read", path="docs/../secrets/key"), True),
        (call("read", path="deep/docs/../secrets/key"), True),
        (call("write", path="secrets/new", content="x"), True),
        (call("edit", path="secrets/key", old_text="secret", new_text="x"), True),
        (call("grep", pattern="x", path="secrets"), True),
        (call("glob", pattern="*", path="secrets"), True),
        (call("list", path="secrets"), True),
        (call("read", path="notes.txt"), False),
        (call("list"), False),
    ],
)
async def test_a_guard_finds_a_path_of_the_project_however_it_was_written(folder: Path, one: Any, is_denied: bool):
    result = await run(folder, one, f'{sys.executable} guard.py "$CLAUDE_PROJECT_DIR"')

    assert [record.status for record in result.tool_calls] == ["denied" if is_denied else "ok"]
    (given,) = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    path = given["tool_input"].get("file_path") or given["tool_input"]["path"]
    assert Path(path).is_absolute()
    assert given["treadle"]["arguments"].get("path") in (json.loads(one.arguments).get("path"), ".")


@pytest.mark.row("E06")
@pytest.mark.parametrize(
    ("change", "written"),
    [
        ("{}", "./docs/first"),
        ("{'file_path': root + '/docs/new'}", "docs/new"),
        ("{'file_path': 'docs/new'}", "docs/new"),
    ],
)
async def test_a_path_that_a_hook_sends_back_is_the_same_file(folder: Path, change: str, written: str):
    """Rules see it in the form that the model would have written."""
    (folder / "change.py").write_text(
        f"import json, os, sys\nroot = os.getcwd()\nnew = json.load(sys.stdin)['tool_input'] | {change}\n"
        "print(json.dumps({'hookSpecificOutput': {'updatedInput': new}}))\n"
    )
    policy = first_of(allow(f"write(path={written})"), deny("*"))
    result = await run(
        folder, call("write", path="./docs/first", content="changed"), f"{sys.executable} change.py", policy=policy
    )

    assert [record.status for record in result.tool_calls] == ["ok"]
    assert (folder / written).read_text() == "changed"


@pytest.mark.row("E06")
async def test_a_path_outside_of_the_root_that_a_hook_sends_back_is_refused(folder: Path):
    (folder / "change.py").write_text(
        "import json\nprint(json.dumps({'hookSpecificOutput': {'updatedInput': {'file_path': '/etc/hostname'}}}))\n"
    )
    result = await run(folder, call("read", path="notes.txt"), f"{sys.executable} change.py")

    assert [record.status for record in result.tool_calls] != ["ok"]


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5000, "a/../\0", "", "~/x"])
async def test_a_path_that_is_none_reaches_the_hook_and_is_refused_by_the_tool(folder: Path, path: str):
    result = await run(folder, call("read", path=path), f"{sys.executable} guard.py /")

    assert [record.status for record in result.tool_calls] != ["ok"]
