"""Write and edit: what is changed, what is refused, and that a file is the old one or the new one whatever happens."""

import contextlib
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, allow, ask, open_session
from treadle.errors import InvalidArguments, Rejected
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets.files import file_tools, writing_tools

CAPABILITIES = bytes.fromhex("0100000200200000000000000000000000000000")
"""What `setcap cap_net_raw+ep` writes into `security.capability`."""


def test_a_new_file_is_written_with_its_folders(box: Any, root: Path):
    done = box("write", path="a/b/c.txt", content="one\ntwo\n")

    assert done == {"output": "Wrote a/b/c.txt: 8 bytes, 2 lines.", "bytes": 8}
    assert (root / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert [one.name for one in (root / "a/b").iterdir()] == ["c.txt"]


@pytest.mark.parametrize("path", ["a/", "a/b/", "a/.", "a/..", ".", "a//"])
def test_the_path_of_a_folder_makes_no_file(box: Any, root: Path, path: str):
    for arguments in ({"content": "x"}, {"old_text": "x", "new_text": "y"}):
        with pytest.raises(InvalidArguments, match=r"names a folder\. Give the path of a file"):
            box("write" if "content" in arguments else "edit", path=path, **arguments)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("others", [0, 1, 2])
def test_other_names_of_a_file_keep_the_old_content_and_the_result_says_so(box: Any, root: Path, others: int):
    (root / "a.txt").write_text("one\n")
    names = [root / f"other{number}" for number in range(others)]
    for name in names:
        name.hardlink_to(root / "a.txt")
    box("read", path="a.txt")

    done = box("edit", path="a.txt", old_text="one", new_text="two")["output"]

    said = {0: "", 1: " The file had 1 other name (hard links), which has the old content still.",
            2: " The file had 2 other names (hard links), which have the old content still."}  # fmt: skip
    assert done == f"Edited a.txt in 1 place.{said[others]}"
    assert [name.read_text() for name in names] == ["one\n"] * others
    assert box("write", path="a.txt", content="three\n")["output"] == "Replaced a.txt: 6 bytes, 1 lines."


def test_a_file_that_was_not_read_is_not_changed(box: Any, root: Path):
    (root / "a.txt").write_text("from a person")

    assert box.refusal("write", path="a.txt", content="x").code == "not_read"
    assert box.refusal("edit", path="a.txt", old_text="a", new_text="b").code == "not_read"
    assert (root / "a.txt").read_text() == "from a person"


def test_a_file_that_changed_since_it_was_read_is_not_changed(box: Any, root: Path):
    (root / "a.txt").write_text("one")
    box("read", path="a.txt")
    (root / "a.txt").write_text("two")

    assert box.refusal("write", path="a.txt", content="x").code == "stale"
    assert box.refusal("edit", path="a.txt", old_text="two", new_text="b").code == "stale"
    box("read", path="a.txt")
    box("edit", path="a.txt", old_text="two", new_text="three")
    box("edit", path="./a.txt", old_text="three", new_text="four")
    box("write", path="a.txt", content="five")
    assert (root / "a.txt").read_text() == "five"


def test_an_empty_file_needs_no_reading(box: Any, root: Path):
    (root / "empty").touch()

    box("write", path="empty", content="x")
    assert (root / "empty").read_text() == "x"


def test_the_same_write_again_changes_nothing_and_succeeds(box: Any, root: Path):
    (root / "a.txt").write_text("same")
    before = (root / "a.txt").stat()

    assert "already" in box("write", path="a.txt", content="same")["output"]
    assert (root / "a.txt").stat().st_ino == before.st_ino


@pytest.mark.parametrize("edit", [{"old_text": "b", "new_text": "bb"}, {"old_text": "a", "new_text": "b", "all": True}])
def test_an_edit_that_was_made_and_not_recorded_is_recognised(box: Any, root: Path, edit: dict[str, Any]):
    (root / "a.txt").write_text("a b a\n" if "all" not in edit else "a c a\n")
    box("read", path="a.txt")
    seen = {"files": dict(box.facts["files"])}
    box("edit", path="a.txt", **edit)
    made = (root / "a.txt").read_text()
    box.facts = seen  # the process died before its result was recorded

    assert "already" in box("edit", path="a.txt", **edit)["output"]
    assert (root / "a.txt").read_text() == made


def test_line_ends_and_the_byte_order_mark_are_kept(box: Any, root: Path):
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    box("read", path="a.txt")
    box("edit", path="a.txt", old_text="one\ntwo", new_text="1\n2")

    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"
    box("write", path="a.txt", content="x\ny\n")
    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbfx\r\ny\r\n"


def test_mixed_line_ends_are_left_as_they_are(box: Any, root: Path):
    (root / "a.txt").write_bytes(b"one\r\ntwo\nthree")
    box("read", path="a.txt")
    box("edit", path="a.txt", old_text="three", new_text="3")

    assert (root / "a.txt").read_bytes() == b"one\r\ntwo\n3"


@pytest.mark.row("K02")
def test_places_that_differ_in_their_line_ends_alone_are_equal(box: Any, root: Path):
    mixed = b"x\r\ny\r\nmiddle\nx\ny\nx\ry"
    (root / "a.txt").write_bytes(mixed)
    box("read", path="a.txt")

    refused = box.refusal("edit", path="a.txt", old_text="x\ny", new_text="x\nz")
    assert (refused.code, (root / "a.txt").read_bytes()) == ("text_not_unique", mixed)
    assert "occurs 3 times" in refused.body["error"]

    box("edit", path="a.txt", old_text="x\ny", new_text="x\nz", all=True)
    assert (root / "a.txt").read_bytes() == b"x\r\nz\r\nmiddle\nx\nz\nx\rz"


def test_a_line_end_that_is_written_out_is_changed_as_it_is_written(box: Any, root: Path):
    (root / "a.txt").write_bytes(b"one\r\ntwo\nthree\n")
    box("read", path="a.txt")
    box("edit", path="a.txt", old_text="one\r\n", new_text="one\n")

    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert box.refusal("edit", path="a.txt", old_text="two\n\nthree", new_text="x").code == "text_not_found"


@pytest.mark.row("K02")
def test_an_edit_that_would_make_a_huge_file_is_refused_before_it_is_made(box: Any, root: Path):
    (root / "a.txt").write_text("a\n" * 200_000)
    box("read", path="a.txt")
    huge = {"path": "a.txt", "old_text": "a", "new_text": "b" * 1_000_000, "all": True}

    assert box.refusal("edit", **huge).code == "too_large"
    shown = box.tools["edit"].review(huge, box.facts).preview.text
    assert shown.startswith("The call would be refused: a.txt: ")
    assert "more than 20,000,000" in shown


@pytest.mark.row("K02")
def test_very_many_places_are_replaced_in_a_time_that_grows_with_the_file(box: Any, root: Path):
    (root / "a.txt").write_text("a\n" * 300_000)
    box("read", path="a.txt")
    done = box("edit", path="a.txt", old_text="a", new_text="b", all=True)  # quadratic work would take minutes

    assert done["output"] == "Edited a.txt in 300000 places."
    assert done["lines"] == list(range(1, 101))
    assert (root / "a.txt").read_text() == "b\n" * 300_000


def test_a_preview_says_that_line_ends_change(box: Any, root: Path):
    (root / "a.txt").write_bytes(b"one\r\ntwo\n")
    call = {"path": "a.txt", "content": "one\ntwo\n"}

    assert box.tools["write"].review(call, {}).preview.text == "Only the ends of lines change."
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert box.tools["write"].review(call, {}).preview.text == "The file has this content already."


@pytest.mark.row("AT-APPROVAL-SHOWN")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            b"# e.g.:\rrm x\nkept\n",
            "# e.g.:\nrm x\nother\n",
            ["-# e.g.:\rrm x", "-kept", "+# e.g.:", "+rm x", "+other"],
        ),
        (b"one\r\ntwo\r\n", "one\ntwo\rrm x\n", ["-two", "+two\rrm x"]),
        (b"one\ntwo\n", "one\r\n2\r\n", ["-two", "+2"]),
        (b"one\r\ntwo\nthree\n", "one\ntwo\n3\n", ["-one\r", "+one", "-three", "+3"]),
        (None, "one\r\ntwo\r\n", ["+one\r", "+two\r"]),
        (None, "# e.g.:\rrm x\n", ["+# e.g.:\rrm x"]),
    ],
)
def test_a_line_end_that_is_unlike_the_others_is_shown(
    box: Any, root: Path, old: bytes | None, new: str, shown: list[str]
):
    if old is not None:
        (root / "a.txt").write_bytes(old)

    lines = box.tools["write"].review({"path": "a.txt", "content": new}, {}).preview.text.split("\n")

    assert [one for one in lines if one[:1] in "+-" and one[:3] not in ("---", "+++")] == shown
    assert (lines[0] == "The ends of all lines change.") == (new == "one\r\n2\r\n")


@pytest.mark.parametrize("name", ["write", "edit"])
def test_a_new_content_does_not_inherit_the_rights_of_a_program(box: Any, root: Path, put: Any, name: str):
    program = put("tool", "old\n")
    program.chmod(0o6755)
    if os.geteuid() == 0:
        os.setxattr(program, "security.capability", CAPABILITIES)
    box("read", path="tool")

    box(name, path="tool", **({"content": "new\n"} if name == "write" else {"old_text": "old", "new_text": "new"}))

    assert (program.read_text(), stat.S_IMODE(program.stat().st_mode)) == ("new\n", 0o755)
    assert "security.capability" not in os.listxattr(program)


def test_bytes_of_another_encoding_are_kept(box: Any, root: Path):
    (root / "a.txt").write_bytes("größe = 1\n".encode("latin-1"))
    box("read", path="a.txt")
    box("edit", path="a.txt", old_text="= 1", new_text="= 2")

    assert (root / "a.txt").read_bytes() == "größe = 2\n".encode("latin-1")
    assert box.refusal("edit", path="a.txt", old_text="= 2", new_text="= ü").code == "not_utf8"


def test_mode_and_owner_are_kept(box: Any, root: Path):
    file = root / "run.sh"
    file.write_text("echo 1\n")
    if os.geteuid() == 0:
        os.chown(file, 12345, 12346)
    file.chmod(0o1751)
    before = file.stat()
    box("read", path="run.sh")
    box("edit", path="run.sh", old_text="1", new_text="2")
    after = file.stat()

    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_an_edit_names_the_lines_and_all_places_of_an_unclear_text(box: Any, root: Path):
    (root / "a.py").write_text("x = 1\ny = 1\nz = 1\nlast = 10\n")
    box("read", path="a.py")

    unclear = box.refusal("edit", path="a.py", old_text="= 1\n", new_text="= 2\n")
    missing = box.refusal("edit", path="a.py", old_text="lst = 10", new_text="")
    done = box("edit", path="a.py", old_text="= 1\n", new_text="= 2\n", all=True)

    assert unclear.code == "text_not_unique"
    assert "lines 1, 2, 3" in unclear.body["error"]
    assert missing.code == "text_not_found"
    assert "Line 4" in missing.body["error"]
    assert done == {"output": "Edited a.py in 3 places.", "bytes": 28, "lines": [1, 2, 3]}
    assert box.refusal("edit", path="a.py", old_text="x", new_text="x").code == "nothing_to_change"


def test_several_edits_are_made_together_or_not_at_all(box: Any, root: Path):
    (root / "a.py").write_text("a\nb\nc\n")
    box("read", path="a.py")
    edits = [{"old_text": "a", "new_text": "A"}, {"old_text": "A\nb", "new_text": "AB"}]

    refused = box.refusal("edit", path="a.py", edits=[*edits, {"old_text": "nowhere", "new_text": ""}])
    assert refused.body["error"].startswith("Edit 3 of 3: ")
    assert (root / "a.py").read_text() == "a\nb\nc\n"
    assert box("edit", path="a.py", edits=edits)["lines"] == [1, 1]
    assert (root / "a.py").read_text() == "AB\nc\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"old_text": "a"},
        {"new_text": "a"},
        {"all": True},
        {"old_text": "a", "new_text": "b", "edits": [{"old_text": "a", "new_text": "b"}]},
    ],
)
def test_an_edit_says_one_thing(box: Any, root: Path, arguments: dict[str, Any]):
    with pytest.raises(InvalidArguments, match="edits"):
        box("edit", path="a", **arguments)


def outside(root: Path) -> Path:
    place = root.parent / "W_evil"
    place.mkdir()
    (place / "secret").write_text("secret")
    return place


@pytest.mark.row("AT-PATHS-OUTSIDE")
@pytest.mark.parametrize(
    "path", ["../W_evil/new", "../W_evil/secret", "/etc/treadle-new", "link", "folder/new", "folder/secret", "fifo", "here", "a\0b",
             "missing/../../W_evil/new", "dangling", "x" * 300]
)  # fmt: skip
def test_what_is_outside_or_no_file_is_refused(box: Any, root: Path, path: str):
    evil = outside(root)
    (root / "link").symlink_to(evil / "secret")
    (root / "dangling").symlink_to(evil / "new")
    (root / "folder").symlink_to(evil)
    os.mkfifo(root / "fifo")
    (root / "here").mkdir()

    box.refusal("write", path=path, content="x")
    box.refusal("edit", path=path, old_text="secret", new_text="x")
    assert sorted(one.name for one in evil.iterdir()) == ["secret"]
    assert (evil / "secret").read_text() == "secret"


def test_a_link_within_the_root_is_followed_and_stays(box: Any, root: Path):
    (root / "real").mkdir()
    (root / "real/a.txt").write_text("one")
    (root / "link.txt").symlink_to("real/a.txt")
    box("read", path="link.txt")
    box("edit", path="link.txt", old_text="one", new_text="two")

    assert (root / "link.txt").is_symlink()
    assert (root / "real/a.txt").read_text() == "two"


@pytest.mark.row("AT-PATHS-SWAPPED")
def test_a_folder_that_becomes_a_link_at_any_moment_lets_nothing_out(box: Any, root: Path):
    evil = outside(root)
    (root / "real").mkdir()
    is_over = threading.Event()

    def swap() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            with contextlib.suppress(OSError):
                (root / "next").symlink_to(evil if number % 2 else root / "real")
                (root / "next").rename(root / "d")
            if number % 5 == 0:
                with contextlib.suppress(OSError):
                    if (root / "d").is_symlink():
                        (root / "d").unlink()
                    shutil.rmtree(root / "d", ignore_errors=True)  # the tool has made it
                    (root / "real").rename(root / "d")
                    (root / "d").rename(root / "real")

    swapping = threading.Thread(target=swap)
    swapping.start()
    written = 0
    try:
        for number in range(300):
            with contextlib.suppress(Rejected):
                box("write", path="d/new", content=str(number))
                written += 1
            assert sorted(one.name for one in evil.iterdir()) == ["secret"]
    finally:
        is_over.set()
        swapping.join()
    assert written


async def test_what_was_read_is_remembered_by_the_session_and_in_another_run(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n")
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path)]
    async with open_session(tmp_path / "j.db", id="s") as session:
        reads = ScriptedModel([call("read", path="a.txt"), text("Read.")])
        await Agent(reads, tools=tools).run("Read it", session=session)
    async with open_session(tmp_path / "j.db", id="s") as session:
        edits = ScriptedModel([call("edit", path="a.txt", old_text="one", new_text="two"), text("Done.")])
        waiting = await Agent(edits, tools=tools).run("Edit it", session=session)
        (approval,) = await session.approvals()
        await session.answer(approval.id, "allow")
        done = await Agent(edits, tools=tools).resume(session)

    assert str(waiting.status) == "paused"
    assert done.text == "Done."
    assert (tmp_path / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")])
def test_utf_16_is_read_and_stays_what_it_is(box: Any, root: Path, encoding: str, mark: bytes):
    (root / "a.txt").write_bytes(mark + "eins\r\nzwölf\r\n".encode(encoding))

    assert box("read", path="a.txt")["output"] == "eins\nzwölf"
    box("edit", path="a.txt", old_text="eins\n", new_text="drei\nvier\n")
    assert (root / "a.txt").read_bytes() == mark + "drei\r\nvier\r\nzwölf\r\n".encode(encoding)


def test_lines_that_end_in_a_carriage_return_alone_stay_so(box: Any, root: Path):
    (root / "a.txt").write_bytes(b"one\rtwo\rthree\r")
    box("read", path="a.txt")

    box("edit", path="a.txt", old_text="one\ntwo\n", new_text="1\n2\n")
    assert (root / "a.txt").read_bytes() == b"1\r2\rthree\r"


@pytest.mark.row("K02")
async def test_the_names_that_other_programs_have_for_parameters_are_understood(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one one two")
    model = ScriptedModel(
        [
            call("read", file_path="a.txt"),
            call("edit", file_path="a.txt", old_string="one", new_string="1"),
            call("edit", file_path="a.txt", old_string="one", new_string="1", replace_all=True),
            call(
                "edit",
                file_path="a.txt",
                edits=[{"old_string": "two", "new_string": "2"}, {"old_text": "1 1", "new_text": "3"}],
            ),
            call("edit", path="a.txt", file_path="b.txt", old_string="3", new_string="4"),
            text("Done."),
        ]
    )
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path)]
    result = await Agent(model, tools=tools, policy=allow("*")).run("go")

    assert [one.status for one in result.tool_calls] == ["ok", "rejected", "ok", "ok", "invalid_arguments"]
    assert "occurs 2 times, in lines 1, 1" in model.requests[2].messages[-1].results[0].content
    assert (tmp_path / "a.txt").read_text() == "3 2"


@pytest.mark.row("V06")
@pytest.mark.parametrize("name", ["write", "edit", "read", "list", "grep", "glob"])
async def test_a_path_outside_is_refused_before_anybody_is_asked(tmp_path: Path, name: str):
    root = tmp_path / "W"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    more: dict[str, Any] = {"write": {"content": "x"}, "edit": {"old_text": "a", "new_text": "b"}}.get(name, {})
    more = {"pattern": "x"} if name in ("grep", "glob") else more
    tools = [*file_tools(root), *writing_tools(root)]
    calls = [call(name, path=path, **more) for path in ("../x", "/etc/passwd", "out/x", "../W_evil/x")]
    result = await Agent(ScriptedModel([calls, text("ok")]), tools=tools, policy=ask("*")).run("go")

    assert [one.status for one in result.tool_calls] == ["invalid_arguments"] * 4
    assert result.approvals == ()
    codes = {json.loads(one.content)["code"] for one in result.messages[2].results}
    assert codes == {"outside_root"}
