"""What a model says in Markdown, as the conversation shows it: bold text, code, links and tables, and every character of the rest."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from person import Person, turn
from treadle.cli.terminal.board import parts_of
from treadle.cli.terminal.drawing import Drawing
from treadle.redaction import Redactor

COMMANDS = r"""Run cp <src> <dst> with List<String> and Vec<u8>; export KEY=<your-key>.

<details>
hidden text
</details>

<!-- a comment -->
<div>block</div>

Edit __init__.py and a_b_c, a*b*c, *.py and *.md, f(*args, **kwargs), {**a, **b}, src/**/*.py and tests/**/*.py, 2**3**4.
Open C:\new\temp, \\server\share, \d+ or \*; &lt;b&gt; &amp; ~/x ~~old~~ [ -f x ] a[i](x) ![picture](a/b.png) <https://x.org>
See [the page][1] and a note [^1].

[1]: https://x.org/page "Page"
[^1]: The note.

curl -d @f \
  https://x.org/?a=1&copy=2

# apt install x
#include <stdio.h>
#
## About C #

Title
---
name: x
===
2026. A year
- -v
+ added
* star
3) three
7. seven
> quoted
>file

    indented `code` **as it is**
"""


def drawn(text: str, width: int = 79) -> str:
    drawing = Drawing(Redactor())
    drawing.width = width
    return re.sub(r"\x1b\[[0-9;]*m", "", drawing.markdown(text))


@pytest.mark.parametrize("line", [line for line in COMMANDS.split("\n") if line.strip()])
def test_every_character_of_a_line_is_shown(line: str) -> None:
    assert drawn(f"{line}\n", 200).strip() == line.strip()


def test_lines_and_their_indents_stay() -> None:
    assert drawn(COMMANDS, 200) == COMMANDS
    traceback = 'Traceback (most recent call last):\n  File "x.py", line 1\n    foo()\nValueError: x\n'
    assert drawn(traceback) == traceback


@given(st.lists(st.text("ab1_*/.~-<>&;#=|\\\"'!$%^+:?@,(){}", min_size=1, max_size=12), min_size=1, max_size=8))
def test_no_character_of_a_command_is_lost(words: list[str]) -> None:
    command = " ".join(["cmd", *words])
    shown = drawn(command, 300)

    assert shown.replace("**", "").split() == command.replace("**", "").split()  # bold text loses its asterisks alone
    if "**" not in command:
        assert shown == f"{command}\n"


@given(st.text("a1 \n`*#>-|~[]().:_\\\t0", max_size=60))
def test_letters_and_digits_are_shown_whatever_stands_between_them(text: str) -> None:
    kept = re.sub(r"[^a0-9]", "", "".join(part for _, part in parts_of(text)))

    assert re.sub(r"[^a0-9]", "", drawn(text, 300)) == kept


def test_the_marks_of_bold_text_of_code_and_of_links_are_taken_away() -> None:
    assert drawn("A **bold** word, **`code`**, `ls -l`, `` a`b `` and 这是**重要**的.") == (
        "A bold word, code, ls -l, a`b and 这是重要的.\n"
    )
    assert drawn("[docs](https://x.org/a_(b)), [x.org](x.org), [f.py](<a b.py> 'T').", 200) == (
        "docs (https://x.org/a_(b)), x.org, f.py (a b.py 'T').\n"
    )


def test_lists_and_quotes_wrap_below_their_text() -> None:
    assert drawn("3. one two three four five\n   - six seven eight nine\n> ten eleven twelve thirteen", 20) == (
        "3. one two three\n   four five\n   - six seven eight\n     nine\n> ten eleven twelve\n> thirteen\n"
    )
    assert drawn("> " * 500 + "x", 40).replace(" ", "").replace("\n", "").endswith(">x")


def test_a_table_has_all_its_cells() -> None:
    table = "| a | `x|y` | b \\| c |\n|---|--:|---|\n| 1 | 2 | 3 | 4 |\n| `p|q` |\n"
    rows = [line.split() for line in drawn(table).splitlines() if line.strip()]

    assert rows[0] == ["a", "x|y", "b", "|", "c"]
    assert rows[2:] == [["1", "2", "3", "4"], ["p|q"]]
    narrow = drawn("| first column | second_column_name |\n|---|---|\n| x | y |\n", 20)
    assert "second_column_name" in narrow  # no word is broken


def test_code_in_a_list_has_no_indent_and_a_fence_within_code_ends_nothing() -> None:
    assert drawn("- item\n    ```sh\n    ls **a**\n    ```\n") == "- item\n\nls **a**\n"
    assert drawn('```py\n"""\n    ```\n    x\n    ```\n"""\n```\n') == '"""\n    ```\n    x\n    ```\n"""\n'
    assert drawn("````md\n```sh\nls\n```\n````") == "```sh\nls\n```\n"
    assert drawn("```ls -la```") == "ls -la\n"
    assert drawn("```sh -x start\nls\n```") == "sh -x start\nls\n"
    assert drawn("~~~\nnot closed") == "not closed\n"


def test_a_conversation_shows_html_and_keeps_the_ends_of_lines(person: Person) -> None:
    said = "Run cp <src> <dst> with Vec<u8>.\n\n<details>\nhidden\n</details>\n\nName: Ada\nAge: 36\n\nEdit __init__.py"
    person.start("chat", *person.script(turn(said)), "hi")
    person.see("__init__.py")
    lines = person.shown()

    for line in said.split("\n"):
        assert line in lines


EMOJI = "⚠️ ❤️ 👩‍💻 1️⃣ 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 👩🏽‍🚀"
PERSIAN = "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


def test_emoji_and_joined_letters_reach_the_terminal_as_they_are(person: Person) -> None:
    said = f"{EMOJI} {PERSIAN} prix\u00a0: 5\u202f€"
    person.start("chat", *person.script(turn(f"{said}\n\nend.")), f"Was {EMOJI}")
    person.see("end.")

    assert said in person.raw
    assert f"Was {EMOJI}" in person.raw


def test_no_width_parts_an_emoji() -> None:
    parts = EMOJI.split()
    for width in range(20, 60):
        for text in (" ".join(parts * 3), "".join(parts * 3), f"**{EMOJI}** `{EMOJI}` {EMOJI}"):
            lines = drawn(text, width)
            assert "\\" not in lines
            assert sum(map(lines.count, parts)) == sum(map(text.count, parts))
