"""The grep tool: what it finds, what it leaves out, and that no file and no pattern can hold it up."""

import os

import pytest

from treadle.tools import Tool


@pytest.mark.row("K01")
def test_a_match_is_file_line_and_text_with_the_number_of_matches(box, put):
    put("src/main.c", "\n" * 11 + 'log_error("Failed to initialize");\n')

    assert box("grep", pattern="error", path="src/main.c") == {
        "output": 'src/main.c:12: log_error("Failed to initialize");',
        "count": 1,
    }


def test_a_folder_is_searched_in_the_order_of_its_paths(box, put):
    for path in ("b.txt", "a/z.txt", "a-b/y.txt", "a.txt", "B.txt"):
        put(path, "x one\nno\nx two")

    found = box("grep", pattern="^x")

    paths = [line.split(":")[0] for line in found["output"].split("\n")[::2]]
    assert paths == sorted(paths)
    assert found["count"] == 10
    assert found["output"].startswith("B.txt:1: x one\nB.txt:3: x two\n")


def test_nothing_found_is_an_empty_output(box, put):
    put("a.txt", "a")

    assert box("grep", pattern="zzz") == {"output": "", "count": 0}


@pytest.mark.row("K01")
def test_a_pattern_without_capitals_is_found_in_any_case_as_in_seed_002(box, put):
    put("src/config.c", "\n" * 44 + "return CONFIG_ERROR;\n")

    assert box("grep", pattern="error", path="src/config.c") == {
        "output": "src/config.c:45: return CONFIG_ERROR;",
        "count": 1,
    }


def test_case_is_ignored_on_request(box, put):
    put("a.txt", "Error\nerror\nÉcole")

    assert box("grep", pattern="ERROR")["count"] == 0
    assert box("grep", pattern="ERROR", ignore_case=True)["count"] == 2
    assert box("grep", pattern="école")["count"] == 1
    assert box("grep", pattern="error", ignore_case=False)["output"] == "a.txt:2: error"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\Serr", ["CONFIG_ERROR"]),
        (r"\\path", ["\\PATH"]),
        (r"[C-F]onfig", []),
        (r"\p{Lu}{4}", ["CONFIG_ERROR", "\\PATH"]),
        (r"\p{lu}{4}", ["CONFIG_ERROR", "\\PATH"]),
        ("[[:upper:]]{4}", ["CONFIG_ERROR", "\\PATH"]),
    ],
)
def test_what_is_no_capital_in_a_pattern_does_not_ask_for_case(box, put, pattern, found):
    put("a.txt", "CONFIG_ERROR\nsome words\n\\PATH")

    output = box("grep", pattern=pattern)["output"]

    assert [line.split(": ", 1)[1] for line in output.splitlines()] == found


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.{py,ts}", ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("./*.py", ["a.py"]),
    ],
)
def test_files_are_chosen_by_a_glob(box, put, include, expected):
    for path in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts", "e.txt"):
        put(path, "x")

    assert [line.split(":")[0] for line in box("grep", pattern="x", include=include)["output"].split("\n")] == expected


def test_the_glob_is_relative_to_the_path(box, put):
    put("src/ui/a.ts", "x")

    assert box("grep", pattern="x", path="src", include="ui/*.ts")["count"] == 1


@pytest.mark.parametrize("folder", [".git", "node_modules", ".venv", "venv", "__pycache__", ".hidden"])
def test_folders_of_tools_are_searched_only_when_named(box, put, folder):
    put(f"{folder}/deep/a.txt", "needle")

    assert box("grep", pattern="needle")["count"] == 0
    assert box("grep", pattern="needle", path=folder)["output"] == f"{folder}/deep/a.txt:1: needle"
    assert box("grep", pattern="needle", include=f"{folder}/**/*.txt")["count"] == 1


@pytest.mark.row("K01")
def test_binary_files_are_skipped_and_counted(box, put):
    put("a.txt", "needle")
    put("b.bin", b"needle\0needle")
    put("utf16.txt", "needle".encode("utf-16"))

    assert box("grep", pattern="needle") == {"output": "a.txt:1: needle\nutf16.txt:1: needle", "count": 2, "skipped": 1}
    assert box("grep", pattern="needle", path="b.bin") == {"output": "", "count": 0, "skipped": 1}


def test_text_of_any_encoding_and_line_end_can_be_searched(box, put):
    put("a.txt", b"\xef\xbb\xbfneedle mark\r\n\xff needle\xe9\r\nneedle\x1b[2J")

    assert box("grep", pattern="^needle|needle.$")["output"].split("\n") == [
        "a.txt:1: needle mark",
        "a.txt:2: \ufffd needle\ufffd",
        "a.txt:3: needle\x1b[2J",
    ]


def test_a_file_name_that_is_no_text_is_shown_escaped(box, root):
    for name in (b"caf\xe9.txt", b"two\nlines.txt"):
        (root / os.fsdecode(name)).write_text("x")

    output = box("grep", pattern="x")["output"]

    assert output.split("\n") == ["caf\\udce9.txt:1: x", "two\\nlines.txt:1: x"]
    output.encode()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[", "unclosed character class"),
        ("(", "unclosed group"),
        ("*a", "repetition operator missing expression"),
        ("a\\", "incomplete escape sequence"),
        ("foo(?=bar)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("a{1000}{1000}", "repeats too much"),
        ("\ud800", ""),
    ],
)
def test_a_broken_pattern_is_refused_with_the_reason(box, pattern, reason):
    refused = box.refusal("grep", pattern=pattern)

    assert refused.code == "invalid_pattern"
    assert reason in refused.body["error"]
    refused.body["error"].encode()


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(a*)*b", r"^(a?){50}a{50}$", r"(.*a){20}!x"])
def test_a_hostile_pattern_ends(box, put, pattern):
    put("a.txt", "a" * 4000 + "!\n" + "a" * 100_000)

    assert box("grep", pattern=pattern)["count"] in (0, 1)


def test_matches_are_limited_and_the_result_says_so(box, put):
    put("a.txt", "x\n" * 300)

    found = box("grep", pattern="x")
    assert (found["count"], found["truncated"]) == (200, True)
    assert "Narrow" in found["hint"]
    assert box("grep", pattern="x", max_matches=300) == {
        "output": "\n".join(f"a.txt:{n}: x" for n in range(1, 301)),
        "count": 300,
    }
    assert box("grep", pattern="x", max_matches=1)["output"] == "a.txt:1: x"


def test_the_whole_output_is_bounded(box, put):
    put("a.txt", ("x" * 290 + "\n") * 900)

    found = box("grep", pattern="x", max_matches=1000)

    assert found["truncated"]
    assert len(found["output"]) < 45_000


def test_a_long_line_is_shortened_around_the_match(box, put):
    put("min.js", "a" * 50_000 + "needle" + "b" * 50_000 + "\nneedle")

    first, second = box("grep", pattern="needle")["output"].split("\n")

    assert first.startswith("min.js:1: …")
    assert first.endswith("…")
    assert "needle" in first
    assert len(first) < 350
    assert second == "min.js:2: needle"


def test_a_match_on_the_border_of_two_pieces_of_a_long_line_is_found(box, put):
    for start in range(4090, 4100):
        put("a.txt", "." * start + "needle" + "." * 5000)
        assert box("grep", pattern="needle")["count"] == 1


def test_folders_that_lie_too_deep_are_counted_and_not_forgotten(box, put):
    put("/".join("d" * 120) + "/a.txt", "needle")

    assert box("grep", pattern="needle") == {"output": "", "count": 0, "skipped": 1}
    assert box("grep", pattern="needle", path="/".join("d" * 90))["count"] == 1


@pytest.mark.row("TF3")
def test_a_binary_file_of_100_megabytes_costs_nothing(box, put):
    os.truncate(put("big.bin", ""), 100 << 20)

    assert box("grep", pattern="x") == {"output": "", "count": 0, "skipped": 1}


@pytest.mark.row("TF3")
def test_a_hundred_megabytes_on_one_line_are_searched_in_pieces(box, put):
    big = put("big.txt", "x" * 8192)
    os.truncate(big, 100 << 20)  # a hole of NULs behind its first 8 KiB: text to whoever looks at the beginning
    with big.open("ab") as file:
        file.write(b"needle\n")

    assert box("grep", pattern="needle")["count"] == 1


@pytest.mark.row("TF3")
def test_very_many_lines_are_searched(box, put):
    put("log.txt", b"an ordinary line\n" * 299_999 + b"needle\n")

    assert box("grep", pattern="needle") == {"output": "log.txt:300000: needle", "count": 1}


def test_a_cancelled_search_ends_in_the_middle_of_a_file(box, put, context):
    put("log.txt", b"line\n" * 100_000 + b"needle\n")
    looks = iter(range(1_000_000))

    found = box("grep", pattern="needle", ctx=context(lambda: next(looks) >= 10))

    assert found["count"] == 0
    assert next(looks) < 20


def test_the_tool_is_a_read_and_its_contract_is_whole(box):
    reading = [tool for name, tool in box.tools.items() if name not in ("write", "edit")]
    for tool in reading:
        assert isinstance(tool, Tool)
        assert tool.effect_of({}).is_read
        assert tool.parameters["additionalProperties"] is False
        assert tool.output_schema
        assert tool.error_schema
        assert tool.timeout == 60
    assert [tool.name for tool in reading] == ["grep", "glob", "read", "list"]
