"""Hard links of keys and start files of the person's home: reached by another name in the root, they are asked about."""

import asyncio
import os

import pytest

from treadle import Agent, allow, file_tools, open_session, shell_tool
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import writing_tools

REACHING = [
    call("read", path="a/notes.txt"),
    call("read", path="a/../a/key"),
    call("grep", pattern="old", path="a/key"),
    call("write", path="a/notes.txt", content="x"),
    call("edit", path="a/notes.txt", old_text="old", new_text="new"),
    *(call("shell", command=line) for line in (
        "cat a/notes.txt", "echo x >> a/notes.txt", "tee a/key", "grep old a/key", "cat a/*", "cd a && cat key", "cp a/key b",
        "base64 < a/key", "cat other/deep",
    )),
]  # fmt: skip

HARMLESS = [
    call("read", path="plain.txt"),
    call("read", path="twin.txt"),
    call("grep", pattern="old", path="clean"),
    call("list", path="a"),
    call("shell", command="cat plain.txt twin.txt"),
    call("shell", command="grep -r old clean"),
    call("shell", command="pwd"),
]


@pytest.fixture
def root(tmp_path):
    home, root = tmp_path / "home", tmp_path / "root"
    for folder in (home / ".ssh", root / "a", root / "clean", root / "other"):
        folder.mkdir(parents=True)
    for place in (home / ".bashrc", home / ".ssh" / "id_ed25519", root / "plain.txt", root / "clean" / "x"):
        place.write_text("old")
    os.link(home / ".bashrc", root / "a" / "notes.txt")
    os.link(home / ".ssh" / "id_ed25519", root / "a" / "key")
    os.link(home / ".bashrc", root / "other" / "deep")
    os.link(root / "plain.txt", root / "twin.txt")
    kept = os.environ.get("HOME")
    os.environ["HOME"] = str(home)
    yield root
    os.environ.pop("HOME")
    os.environ.update({} if kept is None else {"HOME": kept})


async def outcome(root, asked, mode="ask"):
    tools = [*file_tools(root), *writing_tools(root), shell_tool(root)]
    agent = Agent(ScriptedModel([asked, text("Done.")]), tools=tools, policy=allow("*"))
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode(mode)
        result = await agent.run("Go", session=session)
    return result.approvals[0].rule if result.approvals else result.tool_calls[0].status


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("asked", REACHING, ids=lambda one: str(one.arguments))
@pytest.mark.parametrize("mode", ["ask", "bypass"])
async def test_one_that_is_reached_is_asked_about(root, asked, mode):
    assert await outcome(root, asked, mode) == "protected file"
    assert (root / "a" / "notes.txt").read_text() == "old"


@pytest.mark.parametrize("asked", HARMLESS, ids=lambda one: str(one.arguments))
async def test_other_files_beside_it_are_reached(root, asked):
    assert await outcome(root, asked) == "ok"


async def test_without_such_a_link_nothing_is_asked(root):
    await asyncio.to_thread(lambda: [(root / name).unlink() for name in ("a/notes.txt", "a/key", "other/deep")])
    (root / "a" / "key").write_text("old")

    for asked in (call("shell", command="cat a/*"), call("read", path="a/key")):
        assert await outcome(root, asked) == "ok"
