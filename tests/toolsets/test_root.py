"""The root guard: what lies outside stays unread, whatever the path looks like."""

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.errors import ConfigurationError, Rejected
from treadle.testing import tool_context
from treadle.toolsets.files import file_tools
from treadle.toolsets.files.root import Root, walk

SECRET = "s3cret"


@pytest.fixture
def outside(tmp_path):
    for folder in ("W_evil", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "secret.txt").write_text(SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    return tmp_path


@pytest.mark.row("K04", "AT-PATHS-OUTSIDE")
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..",
        "a/../../secret.txt",
        "a/../a/../../W_evil/secret.txt",
        "{tmp}/secret.txt",
        "{tmp}/W_evil/secret.txt",
        "{tmp}/W/../secret.txt",
        "{tmp}/other/../W/../secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "/dev/fd/3",
        "/",
        "file-link",
        "folder-link/secret.txt",
        "relative-link/secret.txt",
        "chain/secret.txt",
        "folder-link/new.txt",
    ],
)
@pytest.mark.parametrize("name", ["read", "list", "grep", "glob"])
def test_what_lies_outside_is_refused_and_not_read(box, put, outside, path, name):
    root = outside / "W"
    put("a/inside.txt", "fine")
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "folder-link").symlink_to(outside / "other")
    (root / "relative-link").symlink_to("../other")
    (root / "chain").symlink_to("a/../relative-link")
    more = {"grep": {"pattern": "."}, "glob": {"pattern": "**"}}.get(name, {})

    refused = box.refusal(name, path=path.format(tmp=outside), **more)

    assert refused.code == "outside_root"
    assert SECRET not in str(refused.body)


@pytest.mark.row("AT-PATHS-PLAIN")
@pytest.mark.parametrize(
    "path", ["~/.ssh/id_rsa", "$HOME/x", "${HOME}/x", "file:///etc/passwd", "%2e%2e/secret.txt", "..\\x"]
)
def test_nothing_in_a_path_is_expanded(box, put, path):
    assert box.refusal("read", path=path).code == "not_found"
    put(path, "by that very name")
    assert box("read", path=path)["output"] == "by that very name"


@pytest.mark.row("AT-PATHS-PLAIN")
@pytest.mark.parametrize("path", ["a\0b", "\0", "\ud800", "x" * 5000, "x" * 300])
def test_what_can_be_no_path_is_refused_in_words_that_any_encoder_takes(box, path):
    refused = box.refusal("read", path=path)

    assert refused.code == "invalid_path"
    refused.body["error"].encode()


@pytest.mark.row("K04")
def test_whatever_a_listing_names_can_be_opened_by_that_name(box, root):
    deep = b"d" * 200 + b"/" + b"e" * 200
    names = [b"two\nlines", b"caf\xe9", "\u202eright".encode(), b"\x1b[2J", b"back\\nslash", deep, b"in\rner/x\ty"]
    for name in names:
        path = root / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("by its name")

    listed = box("glob", pattern="**/*")["output"].split("\n")
    found = [line.rpartition(":1: ")[0] for line in box("grep", pattern="^.")["output"].split("\n")]

    assert len(listed) == len(names)
    assert found == listed
    assert {box("read", path=path)["output"] for path in listed} == {"by its name"}
    assert box("list", path="in\\rner")["output"] == "x\\ty (11 bytes)"


def test_a_name_that_is_there_as_it_is_written_goes_before_one_that_is_shown_so(box, put):
    put("a\nb", "the one with a line end")
    put("a\\nb", "the one with a backslash")

    assert box("read", path="a\\nb")["output"] == "the one with a backslash"
    assert box("read", path="a\nb")["output"] == "the one with a line end"
    assert box.refusal("read", path="a\\tb").code == "not_found"


def test_pipes_sockets_and_devices_are_refused_and_nobody_waits_for_them(box, root):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        # A socket's address is short; a relative one may lie in a deep folder.
        with contextlib.chdir(root):
            server.bind("socket")
        for path in ("pipe", "socket"):
            assert box.refusal("read", path=path).code == "not_a_file"
            assert box.refusal("grep", pattern=".", path=path).code == "not_a_file"
    assert box("grep", pattern=".") == {"output": "", "count": 0}
    assert "pipe (neither file nor folder)" in box("list")["output"]


def test_a_link_that_stays_inside_is_followed_when_it_is_named(box, put, root):
    put("docs/deep/guide.md", "hello")
    (root / "docs" / "up.md").symlink_to("../docs/deep/guide.md")
    (root / "absolute").symlink_to(root / "docs")

    assert box("read", path="docs/up.md")["output"] == "hello"
    assert box("read", path="absolute/deep/guide.md")["output"] == "hello"
    assert box("grep", pattern="hel", path="absolute") == {"output": "docs/deep/guide.md:1: hello", "count": 1}


def test_a_parent_is_the_parent_of_what_the_link_names(box, put, root):
    put("a/b/c.txt", "c")
    put("a/top.txt", "top")
    (root / "link").symlink_to("a/b")

    assert box("read", path="link/../top.txt")["output"] == "top"


def test_a_ring_of_links_ends(box, root):
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")

    assert box.refusal("read", path="one").code == "invalid_path"


def test_an_absolute_path_within_the_root_is_fine(box, put, root):
    put("a.txt", "a")

    assert box("read", path=str(root / "a.txt"))["output"] == "a"


def test_a_root_that_is_reached_by_a_link_takes_paths_in_both_spellings(tmp_path, put, root):
    put("a.txt", "a")
    (tmp_path / "alias").symlink_to(root)
    guard = Root(tmp_path / "alias")

    for spelling in (tmp_path / "alias" / "a.txt", root / "a.txt"):
        with guard.open(str(spelling)) as opened:
            assert opened.names == ("a.txt",)


def test_searching_walks_through_no_link(box, put, outside, root):
    put("real/a.txt", "needle")
    (root / "loop").symlink_to(root)
    (root / "again").symlink_to(root / "real")
    (root / "leads-out").symlink_to(outside / "other")
    (root / "file-out.txt").symlink_to(outside / "secret.txt")

    assert box("grep", pattern=f"needle|{SECRET}") == {"output": "real/a.txt:1: needle", "count": 1}
    assert box("glob", pattern="**")["output"] == "real/a.txt"


@pytest.mark.row("AT-PATHS-SWAPPED")
def test_a_folder_that_becomes_a_link_while_its_parent_is_searched_is_left_out(put, root):
    """It may lead to what a rule denies, which was decided on for the place where the search began."""
    put("pub/a.txt")
    put("pub/sub/key")
    put("secret/key")
    left_out: list[int] = []
    files = walk(Root(root), ("pub",), on_left_out=lambda: left_out.append(1))

    assert next(files) == ("pub", "a.txt")
    (root / "pub/sub").rename(root / "aside")
    (root / "pub/sub").symlink_to("../secret")

    assert (list(files), left_out) == ([], [1])


@pytest.mark.row("AT-PATHS-DENIED")
@pytest.mark.parametrize("name", ["new", "new/deep"])
def test_a_folder_that_is_spelled_as_a_listing_shows_it_is_judged_by_its_real_name(put, root, name):
    put("two\nlines/a.txt")
    guard = Root(root)

    assert guard.subject(f"two\\nlines/{name}").names[0] == f"two\nlines/{name}"


def test_with_the_whole_machine_as_root_the_kernels_folders_stay_shut():
    box = {tool.name: tool for tool in file_tools("/")}
    for path in ("/proc/self/environ", "proc/self/environ", "/dev/fd/0", "sys/kernel", "tmp/../proc/self/environ"):
        with pytest.raises(Rejected) as refused:
            box["read"].run({"path": path}, tool_context())
        assert refused.value.code == "outside_root"


@pytest.mark.row("AT-PATHS-SWAPPED")
def test_a_folder_that_turns_into_a_link_while_it_is_read_never_leads_outside(box, put, outside, root):
    """Open what was checked, not what has its name later."""
    put("victim/secret.txt", "harmless")
    (root / "trap").symlink_to(outside / "other")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "victim").rename(root / "aside")
            (root / "trap").rename(root / "victim")
            (root / "victim").rename(root / "trap")
            (root / "aside").rename(root / "victim")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(600):
            try:
                seen.add(box("read", path="victim/secret.txt")["output"])
            except Rejected as refused:
                seen.add(refused.code)
    finally:
        stop.set()
        swapper.join()

    assert seen <= {"harmless", "not_found", "outside_root"}


def _open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_no_descriptor_is_left_open(box, put, root):
    put("a/b.txt", "b")
    (root / "link").symlink_to("../..")
    before = _open_descriptors()

    for _ in range(20):
        box("read", path="a/b.txt")
        box("grep", pattern="b")
        box("glob", pattern="**")
        box("list", path="a")
        for path in ("a/none", "link/x", "../x", "a/../..", "a"):
            box.refusal("read", path=path)

    assert _open_descriptors() == before


@contextlib.contextmanager
def ordinary_person() -> Iterator[None]:
    """The superuser may read everything; for a moment, be somebody who may not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_the_person_may_not_read_is_refused_and_skipped(make_box):
    with ordinary_person(), tempfile.TemporaryDirectory() as folder:  # not in tmp_path: only its owner may enter that
        box = make_box(Path(folder))
        (Path(folder) / "locked.txt").write_text("x")
        (Path(folder) / "shut").mkdir()
        (Path(folder) / "locked.txt").chmod(0)
        (Path(folder) / "shut").chmod(0)

        assert box.refusal("read", path="locked.txt").code == "permission_denied"
        assert box.refusal("list", path="shut").code == "permission_denied"
        assert box("grep", pattern="x") == {"output": "", "count": 0, "skipped": 2}
        assert box("glob", pattern="**/*") == {"output": "locked.txt", "count": 1}


def test_a_file_that_the_person_has_made_read_only_is_not_replaced(make_box):
    with ordinary_person(), tempfile.TemporaryDirectory() as folder:
        box, file = make_box(Path(folder)), Path(folder) / "kept.txt"
        file.write_text("x")
        file.chmod(0o444)
        box("read", path="kept.txt")

        assert box.refusal("edit", path="kept.txt", old_text="x", new_text="y").code == "permission_denied"
        assert box.refusal("write", path="kept.txt", content="y").code == "permission_denied"
        assert (file.read_text(), list(Path(folder).iterdir())) == ("x", [file])
        file.chmod(0o644)
        box("edit", path="kept.txt", old_text="x", new_text="y")
        assert file.read_text() == "y"


def test_a_root_that_is_no_folder_is_an_error_of_the_programmer(put, tmp_path):
    for path in (tmp_path / "none", put("file.txt", "x")):
        with pytest.raises(ConfigurationError, match="not a folder"):
            file_tools(path)


def test_a_root_that_is_gone_is_refused_like_any_missing_file(box, root):
    root.rmdir()

    assert box.refusal("list").code == "not_found"
