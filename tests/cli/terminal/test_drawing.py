"""Calls and their results as the conversation draws them."""

import re
from typing import Any

import pytest

from treadle import Redactor
from treadle.cli.terminal.board import CallView, Group
from treadle.cli.terminal.drawing import Drawing
from treadle.tools import CallStatus, ToolResult


def drawn(tool: str, arguments: dict[str, Any]) -> list[str]:
    result = ToolResult(call_id="c", name=tool, status=CallStatus.OK, content="done")
    call = CallView(id="c", tool=tool, arguments=arguments, phase="done", result=result)
    return re.sub(r"\x1b\[[0-9;]*m", "", Drawing(Redactor()).group(Group((call,)))).splitlines()[1:]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("one\ntwo\n", ["  +one", "  +two"]),
        ("one\ntwo", ["  +one", "  +two"]),
        ("one\n\n", ["  +one", "  +"]),
        ("\n", ["  +"]),
        ("", []),
    ],
)
def test_a_written_file_has_a_line_for_each_of_its_lines(content: str, lines: list[str]) -> None:
    assert drawn("write", {"path": "a.txt", "content": content}) == lines


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("one\n", "two\n", ["  -one", "  +two"]),
        ("one\n", "one", ["   one", "  -"]),
        ("\n", "one\n", ["  -", "  +one"]),
        ("one", "", ["  -one"]),
    ],
)
def test_an_edit_shows_what_it_changes(old: str, new: str, lines: list[str]) -> None:
    assert drawn("edit", {"path": "a.txt", "old_text": old, "new_text": new}) == lines


def test_a_reviewed_diff_has_the_number_of_each_line() -> None:
    given = "--- a/x\n+++ b/x\n@@ -9,2 +9,3 @@\n nine\n--- ten\n+++ ten\n+eleven\n@@ -20 +21,0 @@\n-last\n\\ No newline at end of file"

    lines = re.sub(r"\x1b\[[0-9;]*m", "", Drawing(Redactor()).diff(given)).splitlines()

    assert lines == [
        "   --- a/x",
        "   +++ b/x",
        "   @@ -9,2 +9,3 @@",
        " 9  nine",
        "10 --- ten",
        "10 +++ ten",
        "11 +eleven",
        "   @@ -20 +21,0 @@",
        "20 -last",
        "   \\ No newline at end of file",
    ]
