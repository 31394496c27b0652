"""Calls and their results as the conversation draws them."""

import re
from typing import Any

import pytest

from treadle.cli.terminal.board import CallView, Group, Note
from treadle.cli.terminal.drawing import Drawing
from treadle.redaction import Redactor
from treadle.tools import CallStatus, ToolResult


def drawn(tool: str, arguments: dict[str, Any]) -> list[str]:
    result = ToolResult(call_id="c", name=tool, status=CallStatus.OK, content="done")
    call = CallView(id="c", tool=tool, arguments=arguments, phase="done", result=result)
    lines = uncoloured(Drawing(Redactor()).group(Group((call,)))).splitlines()[1:]
    return [line.removeprefix("    ") for line in lines]


def uncoloured(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", drawn)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("one\ntwo\n", ["1 + one", "2 + two"]),
        ("one\ntwo", ["1 + one", "2 + two"]),
        ("one\n\n", ["1 + one", "2 +"]),
        ("\n", ["1 +"]),
        ("", []),
    ],
)
def test_a_written_file_has_a_line_for_each_of_its_lines(content: str, lines: list[str]) -> None:
    assert drawn("write", {"path": "a.txt", "content": content}) == lines


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("one\n", "two\n", ["1 - one", "1 + two"]),
        ("one\n", "one", ["1   one", "2 -"]),
        ("\n", "one\n", ["1 -", "1 + one"]),
        ("one", "", ["1 - one"]),
    ],
)
def test_an_edit_shows_what_it_changes(old: str, new: str, lines: list[str]) -> None:
    assert drawn("edit", {"path": "a.txt", "old_text": old, "new_text": new}) == lines


def test_a_reviewed_diff_has_the_number_of_each_line() -> None:
    given = "--- a/x\n+++ b/x\n@@ -9,2 +9,3 @@\n nine\n--- ten\n+++ ten\n+eleven\n@@ -20 +21,0 @@\n-last\n\\ No newline at end of file"

    lines = uncoloured(Drawing(Redactor()).diff(given)).splitlines()

    assert lines == [
        "   --- a/x",
        "   +++ b/x",
        "   @@ -9,2 +9,3 @@",
        " 9   nine",
        "10 - -- ten",
        "10 + ++ ten",
        "11 + eleven",
        "   @@ -20 +21,0 @@",
        "20 - last",
        "   \\ No newline at end of file",
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("read", {"path": "fetch.py"}, "● Read fetch.py"),
        ("read", {"path": "fetch.py", "offset": 10}, "● Read fetch.py  offset: 10"),
        ("grep", {"pattern": "RETRIES", "path": "src"}, '● Search "RETRIES" in src'),
        ("glob", {"pattern": "*.py", "path": "."}, "● Find *.py"),
        ("list", {}, "● List ."),
        ("shell", {"command": "make test\nmake docs"}, "● $ make test make docs"),
        ("pay", {"amount": 40, "to": "ada"}, '● pay  amount: 40, to: "ada"'),
        ("read", {"path": 7}, "● read  path: 7"),
        ("Read fetch.py", {}, '● "Read fetch.py"'),
        ("read", "not JSON", "● read not JSON"),
    ],
)
def test_a_call_is_said_in_words_and_no_argument_is_left_out(tool: str, arguments: Any, line: str) -> None:
    result = ToolResult(call_id="c", name=tool, status=CallStatus.OK, content="")
    call = CallView(id="c", tool=tool, arguments=arguments, phase="done", result=result)

    assert uncoloured(Drawing(Redactor()).group(Group((call,)))) == f"{line}\n"


@pytest.mark.parametrize(
    ("status", "data", "variables", "line"),
    [
        (CallStatus.OK, {"exit_code": 0, "stdout": "", "stderr": ""}, {}, "● $ make"),
        (CallStatus.OK, {"exit_code": 2, "stdout": "", "stderr": ""}, {}, "● $ make  exit code 2"),
        (CallStatus.OK, {"exit_code": 2, "stdout": "", "stderr": ""}, {"NO_COLOR": "1"}, "✗ $ make  exit code 2"),
        (CallStatus.OK, {"exit_code": 0, "stdout": "", "stderr": ""}, {"NO_COLOR": "1"}, "✓ $ make"),
        (CallStatus.DENIED, None, {"NO_COLOR": "1"}, "✗ $ make  denied"),
    ],
)
def test_the_mark_of_a_call_says_without_colours_how_it_ended(
    status: CallStatus, data: Any, variables: dict[str, str], line: str
) -> None:
    result = ToolResult(call_id="c", name="shell", status=status, content="", data=data)
    call = CallView(id="c", tool="shell", arguments={"command": "make"}, phase="done", result=result)

    assert uncoloured(Drawing(Redactor(), variables).group(Group((call,)))) == f"{line}\n"


@pytest.mark.parametrize(
    ("variables", "colour"),
    [
        ({}, "\x1b[33m"),
        ({"COLORFGBG": "15;0"}, "\x1b[33m"),
        ({"COLORFGBG": "0;15"}, "\x1b[38;5;94m"),
        ({"COLORFGBG": "0;15", "NO_COLOR": "1"}, ""),
    ],
)
def test_colours_are_those_of_the_background(variables: dict[str, str], colour: str) -> None:
    drawing = Drawing(Redactor(), {"TERM": "xterm-256color", **variables})

    assert drawing.note(Note("Look.", "warn")).startswith(f"{colour}Look.")
