"""The glob, read and list tools: bounded, continued, and clear about what they cannot do."""

import os

import pytest

from treadle.toolsets.files.root import Glob


@pytest.mark.row("K04")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.md", ["README.md"]),
        ("**/*.py", ["src/a.py", "src/deep/b.py", "top.py"]),
        ("src/**", ["src/a.py", "src/deep/b.py", "src/deep/c.ts"]),
        ("src/*/*", ["src/deep/b.py", "src/deep/c.ts"]),
        ("**/deep/*.{py,ts}", ["src/deep/b.py", "src/deep/c.ts"]),
        ("**/**/b.py", ["src/deep/b.py"]),
        ("t?p.[pq]y", ["top.py"]),
        ("**/.env", [".env"]),
        (".github/*.yml", [".github/ci.yml"]),
        ("nothing*", []),
        ("[", []),
        ("[z-a]", []),
    ],
)
def test_glob_returns_sorted_paths_of_files(box, put, pattern, expected):
    for path in ("README.md", "src/a.py", "src/deep/b.py", "src/deep/c.ts", "top.py", ".env", ".github/ci.yml"):
        put(path)
    put("node_modules/x/d.py")

    assert box("glob", pattern=pattern) == {"output": "\n".join(expected), "count": len(expected)}


def test_glob_is_relative_to_its_path_and_answers_relative_to_the_root(box, put):
    put("src/deep/b.py")

    assert box("glob", pattern="deep/*", path="src") == {"output": "src/deep/b.py", "count": 1}


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*"])
def test_glob_refuses_a_pattern_that_leads_out(box, pattern):
    assert box.refusal("glob", pattern=pattern).code == "outside_root"


def test_glob_limits_what_it_returns_and_says_so(box, root):
    for number in range(501):
        (root / f"{number:03}.txt").touch()

    found = box("glob", pattern="*")

    assert (found["count"], found["truncated"]) == (500, True)
    assert found["output"].endswith("499.txt")


@pytest.mark.parametrize("pattern", ["**/" * 100 + "b", "*a" * 200 + "b", "{a,b}" * 80, "{" * 400])
def test_a_hostile_glob_ends(pattern):
    assert not Glob(pattern).matches(("a" * 200,) * 90)


def test_a_tree_deeper_than_the_walk_goes_ends_the_walk(box, root):
    deep = root.joinpath(*["d"] * 150)
    deep.mkdir(parents=True)
    (deep / "deep.txt").touch()
    (root / "top.txt").touch()

    assert box("glob", pattern="**") == {"output": "top.txt", "count": 1}


def test_a_cancelled_glob_ends(box, put, context):
    for number in range(50):
        put(f"{number}.txt")
    looks = iter(range(1000))

    assert box("glob", pattern="none", ctx=context(lambda: next(looks) >= 10))["count"] == 0
    assert next(looks) < 20


@pytest.mark.row("K04")
def test_read_returns_lines_and_says_where_to_go_on(box, put):
    put("a.txt", "one\ntwo\r\nthree\nfour")

    assert box("read", path="a.txt") == {"output": "one\ntwo\nthree\nfour", "count": 4}
    assert box("read", path="a.txt", offset=2, limit=2) == {
        "output": "two\nthree",
        "count": 2,
        "next_offset": 4,
        "hint": "The file continues. Read again with offset 4.",
    }
    assert box("read", path="a.txt", offset=4, limit=1) == {"output": "four", "count": 1}


def test_a_file_read_piece_by_piece_is_read_whole(box, put):
    wanted = [f"line {number}" for number in range(5000)]
    put("a.txt", "\n".join(wanted))

    got, offset = [], 1
    while offset:
        part = box("read", path="a.txt", offset=offset)
        got += part["output"].split("\n")
        offset = part.get("next_offset")

    assert got == wanted


def test_an_empty_file_and_an_offset_past_the_end_are_told_apart(box, put):
    put("empty.txt")
    put("short.txt", "a\nb\n")

    assert box("read", path="empty.txt") == {"output": "", "count": 0, "hint": "The file is empty."}
    assert box("read", path="short.txt", offset=9)["hint"] == "The file has 2 lines; there is none at offset 9."


@pytest.mark.row("K04")
def test_a_missing_file_is_named_with_its_near_names(box, put):
    assert box.refusal("read", path="notes.txt").body == {"error": "File not found: notes.txt"}
    put("docs/Notes.txt")
    refused = box.refusal("read", path="docs/note.txt")
    assert refused.code == "not_found"
    assert refused.body == {"error": "File not found: docs/note.txt", "did_you_mean": ["docs/Notes.txt"]}
    assert box.refusal("read", path="docs/Notes.txt/x").code == "not_found"


def test_folders_and_binary_files_are_refused_in_words_that_say_what_to_do(box, put):
    put("src/a.bin", b"\x7fELF\0\0")

    assert box.refusal("read", path="src").body == {"error": "src is a folder. Use list to see what it holds."}
    refused = box.refusal("read", path="src/a.bin")
    assert refused.code == "binary_file"
    assert refused.body == {"error": "src/a.bin is a binary file of 6 bytes; only text can be read."}
    assert box.refusal("list", path="src/a.bin").code == "not_a_folder"
    assert box.refusal("glob", pattern="*", path="src/a.bin").code == "not_a_folder"


def test_long_lines_are_cut_with_a_mark(box, put):
    put("a.txt", "x" * 5000 + "\nshort\n" + "y" * 2000 + "\n")

    first, second, third = box("read", path="a.txt")["output"].split("\n")

    assert first == "x" * 2000 + "… [3000 more bytes]"
    assert (second, third) == ("short", "y" * 2000)


def test_what_is_read_at_once_is_bounded(box, put):
    put("a.txt", ("x" * 1000 + "\n") * 1000)

    part = box("read", path="a.txt")

    assert part["count"] == 40
    assert part["next_offset"] == 41


@pytest.mark.row("TF3")
def test_the_end_of_very_many_lines_can_be_read(box, put):
    put("log.txt", b"line\n" * 299_999 + b"last\n")

    assert box("read", path="log.txt", offset=300_000) == {"output": "last", "count": 1}
    assert box("read", path="log.txt", limit=1)["next_offset"] == 2


@pytest.mark.row("TF3")
def test_one_line_of_100_megabytes_is_never_held(box, put):
    big = put("big.txt", "x" * 8192)
    os.truncate(big, 100 << 20)

    assert box("read", path="big.txt")["output"] == "x" * 2000 + f"… [{(100 << 20) - 2000} more bytes]"


@pytest.mark.row("TF2")
def test_a_cancelled_read_ends_in_the_middle_of_a_line(box, put, context):
    os.truncate(put("big.txt", "x" * 8192), 1 << 40)
    looks = iter(range(1000))

    box("read", path="big.txt", ctx=context(lambda: next(looks) >= 10))

    assert next(looks) < 20


@pytest.mark.row("K04")
def test_list_shows_folders_sizes_and_links(box, put, root):
    put("notes.txt", "hello")
    put("src/a.py")
    put(".hidden")
    (root / "link").symlink_to("nowhere")

    assert box("list") == {"output": ".hidden (0 bytes)\nlink@\nnotes.txt (5 bytes)\nsrc/", "count": 4}
    assert box("list", path="src") == {"output": "a.py (0 bytes)", "count": 1}
    assert box.refusal("list", path="link").code == "not_found"


def test_list_limits_what_it_returns_and_says_so(box, root):
    for number in range(600):
        (root / f"{number:03}").touch()

    found = box("list")

    assert (found["count"], found["truncated"]) == (500, True)


def test_an_empty_folder_lists_nothing(box):
    assert box("list") == {"output": "", "count": 0}
    assert box("glob", pattern="**") == {"output": "", "count": 0}
    assert box("grep", pattern="x") == {"output": "", "count": 0}
