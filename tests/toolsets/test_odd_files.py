"""Files and names that are seldom: what write and edit do with them, and with what changes while they work."""

import contextlib
import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, allow
from treadle.errors import Rejected
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets.files import file_tools, writing_tools
from treadle.toolsets.files.root import Root, place, replace
from treadle.toolsets.shell import shell_tool

NOBODY = 0xFFFFFFFF


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """Return the form in which the kernel keeps a list of rights: kind, rights and user of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


SHARED = access_list((1, 6, NOBODY), (2, 6, 1001), (4, 4, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY))
"""Another user may read and write."""


@pytest.mark.parametrize(
    "name", ["漢" * 85, "\U0001f600" * 63, "ж" * 127, "a" * 255], ids=["3 bytes", "4 bytes", "2 bytes", "1 byte"]
)
def test_a_name_may_be_as_long_as_the_system_takes_it(box: Any, root: Path, name: str):
    box("write", path=name, content="one")
    box("edit", path=name, old_text="one", new_text="two")

    assert [one.name for one in root.iterdir()] == [name]
    assert (root / name).read_text() == "two"


def test_places_that_overlap_are_not_one_place(box: Any, put: Callable[..., Path]):
    file = put("a.txt", "a\n}\n}\n}\n")
    box("read", path="a.txt")

    assert box.refusal("edit", path="a.txt", old_text="}\n}", new_text="x").code == "text_not_unique"
    assert file.read_text() == "a\n}\n}\n}\n"
    box("edit", path="a.txt", old_text="}\n}", new_text="x", all=True)
    assert file.read_text() == "a\nx\n}\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_that_is_given_too_stands_there_once(box: Any, put: Callable[..., Path], encoding: str):
    file = put("a.txt", "old\n".encode(encoding))
    box("read", path="a.txt")
    box("write", path="a.txt", content="\ufeffnew\n")

    assert file.read_bytes() == "new\n".encode(encoding)


@pytest.mark.parametrize("becomes", ["nothing", "a folder", "a link", "a pipe", "another file"])
@pytest.mark.parametrize("when", ["before it is read", "before it is replaced"])
def test_a_file_that_becomes_something_else_meanwhile_is_refused_and_stays_that(
    tmp_path: Path, becomes: str, when: str
):
    file = tmp_path / "a.txt"
    file.write_text("old")
    (tmp_path / "other").write_text("other")
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(Rejected) as refused, place(Root(tmp_path), "a.txt") as at:
        if when == "before it is replaced":
            at.read(max_bytes=100)
        file.unlink()
        make = {"a folder": file.mkdir, "a pipe": lambda: os.mkfifo(file), "a link": lambda: file.symlink_to("other")}
        make.get(becomes, lambda: becomes == "nothing" or file.write_text("newer"))()
        if when == "before it is read":
            at.read(max_bytes=100)
        replace(at, b"ours")

    assert refused.value.code == "stale"
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert sorted(one.name for one in tmp_path.iterdir()) == (["other"] if becomes == "nothing" else ["a.txt", "other"])
    assert (tmp_path / "other").read_text() == "other"
    assert becomes != "another file" or file.read_text() == "newer"


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"two\nlines", "\u202eright".encode()])
def test_a_file_is_changed_by_the_name_that_a_listing_shows(box: Any, root: Path, name: bytes):
    file = root / os.fsdecode(name)
    file.write_text("one\n")
    listed = box("glob", pattern="*")["output"]
    box("read", path=listed)
    box("edit", path=listed, old_text="one", new_text="two")
    assert file.read_text() == "two\n"
    box("write", path=listed, content="three\n")

    assert file.read_text() == "three\n"
    assert len(list(root.iterdir())) == 1


def test_lists_of_rights_and_attributes_are_kept_and_a_folders_default_adds_none(box: Any, root: Path):
    for name in ("shared", "plain"):
        (root / name).write_text("old")
        (root / name).chmod(0o640)
    with contextlib.suppress(OSError):  # a file system without them has nothing to keep
        os.setxattr(root / "shared", "user.note", b"mine")
        os.setxattr(root / "shared", "system.posix_acl_access", SHARED)
        os.setxattr(root, "system.posix_acl_default", SHARED)
    before = {name: attributes(root / name) for name in ("shared", "plain")}
    for name in before:
        box("read", path=name)
        box("write", path=name, content="new")

    assert {name: attributes(root / name) for name in before} == before


def attributes(file: Path) -> tuple[int, dict[str, bytes]]:
    return file.stat().st_mode, {name: os.getxattr(file, name) for name in os.listxattr(file)}


def test_no_room_leaves_the_old_file_whole_and_no_other(tmp_path: Path):
    program = textwrap.dedent(
        """
        import resource, sys
        from treadle.errors import Rejected
        from treadle.toolsets.files import file_tools, writing_tools
        class Context:
            facts = {}
            subjects = {}
            cancelled = False
        tools = {one.name: one for one in (*file_tools(sys.argv[1]), *writing_tools(sys.argv[1]))}
        Context.facts = tools["read"].run({"path": "a.txt"}, Context()).facts
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        full = "x" * 5000
        for name, path, given in (
            ("write", "a.txt", {"content": full}),
            ("edit", "a.txt", {"old_text": "old", "new_text": full}),
            ("write", "new.txt", {"content": full}),
        ):
            try:
                tools[name].run({"path": path, **given}, Context())
            except Rejected as error:
                print(error.code)
        """
    )
    file = tmp_path / "a.txt"
    file.write_text("old\n")
    file.chmod(0o604)
    before = file.stat()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.split() == ["no_space"] * 3, done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert (file.read_text(), file.stat().st_ino, file.stat().st_mode) == ("old\n", before.st_ino, before.st_mode)


async def batch(root: Path, *calls: Any) -> list[str]:
    """Run the calls of one response, after the file was read. Return how each ended."""
    tools = [*file_tools(root), *writing_tools(root), shell_tool(root)]
    model = ScriptedModel([call("read", path="a.txt"), list(calls), text("Done.")])
    result = await Agent(model, tools=tools, policy=allow("*")).run("Go")
    assert result.completed
    return [f"{one.name} {one.status}" for one in result.tool_calls[1:]]


async def test_two_edits_of_one_file_in_one_response_are_both_made(root: Path, put: Callable[..., Path]):
    file = put("a.txt", "one two\n")
    one, two = (
        call("edit", path=path, old_text=old, new_text=old.upper())
        for path, old in (("a.txt", "one"), ("./a.txt", "two"))
    )

    assert await batch(root, one, two) == ["edit ok", "edit ok"]
    assert file.read_text() == "ONE TWO\n"


async def test_an_edit_beside_its_files_removal_makes_no_new_file(root: Path, put: Callable[..., Path]):
    file = put("a.txt", "one\n")
    edit = call("edit", path="a.txt", old_text="one", new_text="two")

    assert await batch(root, call("shell", command="rm a.txt"), edit) == ["shell ok", "edit rejected"]
    assert not file.exists()
    put("a.txt", "one\n")
    assert await batch(root, call("shell", command="echo more >> a.txt"), edit) == ["shell ok", "edit rejected"]
    assert file.read_text() == "one\nmore\n"
