"""The program at terminals of 120, 40 and 20 columns, without colours, and at one that obeys nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from person import Person, turn

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
SIZES = [pytest.param(120, 40, marks=pytest.mark.soak), pytest.param(40, 24, marks=pytest.mark.soak), (20, 5)]
LONG = "The retries are set in one place, and the timeout of thirty seconds is as it was before this change."


@pytest.fixture
def sized(folder: Path) -> Iterator[Any]:
    made: list[Person] = []

    def make(columns: int, rows: int) -> Person:
        made.append(Person(folder, columns=columns, rows=rows))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None:
            one.process.close(0)


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_conversation_with_a_question_is_seen_through_at_any_size(sized: Any, columns: int, rows: int) -> None:
    person = sized(columns, rows)
    script = person.script(turn("I look.", read={"path": "b.txt"}), turn(pay={"amount": 1}), turn(LONG))
    person.start("chat", *script, *person.tools(), "--tools", "read", NO_COLOR="1")
    person.see(person.prompt)
    person.say("Go")
    person.see("yes, once" if rows > 5 else "Allow pay?", "pay(amount=1)")
    person.press("y")
    person.wait_for_file("paid.txt")
    seen = person.see("before this change.")
    person.leave()

    assert "I look." in seen
    assert not COLOUR.search(person.raw)
    words = set(re.findall(r"\w+", seen))
    assert set(re.findall(r"\w+", LONG)) <= words  # no word is broken


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize(
    ("columns", "rows", "is_short"),
    [(20, 5, True), pytest.param(40, 10, True, marks=pytest.mark.soak), (80, 24, False)],
)
def test_every_key_of_a_question_stands_on_the_screen_at_any_size(
    sized: Any, columns: int, rows: int, is_short: bool
) -> None:
    person = sized(columns, rows)
    write = turn(write={"path": "n.txt", "content": "1\n"})
    script = person.script(turn(pay={"amount": 1}), write, turn("Done."))
    person.start("chat", *script, *person.tools(), "--tools", "write")
    person.see(person.prompt)
    person.say("Go")
    asked = "Allow pay?" if is_short else "1 y  yes, once"
    person.see(asked, "[yNerv?]" if is_short else "v show the whole call")
    shown = "\n".join(person.shown())
    assert "pay(amount=1)" in shown  # what is asked about stands above its question
    assert is_short or "❯ 2 n  no" in shown
    person.press("?")
    person.see("show the whole call")  # the list, whatever the size
    person.press("x")
    person.see("Press one")
    assert asked in "\n".join(person.shown())
    assert ("[yNerv?]" if is_short else "r no, with a reason") in "\n".join(person.shown())
    person.press("r")
    person.see("reason>", "Enter denies")
    person.press("esc")
    person.see(asked, without="reason>")
    person.press("e")
    person.see("json>", "Enter runs")
    person.press("esc")
    person.see(asked, without="json>")
    person.press("n")
    asked = "Allow write?" if is_short else "Create a file: n.txt"
    person.see(asked, "[Yapmnerv?]" if is_short else "a  yes, and do not ask again")
    person.press("p")
    person.see("rule>", "Enter saves", "Covers")
    assert "Covers" in "\n".join(person.shown())
    person.press("enter")
    person.see("Done.")


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize(
    ("columns", "rows", "variables"),
    [(20, 5, {"NO_COLOR": "1"}), (40, 24, {"TERM": "dumb"})],
    ids=["no colour", "dumb"],
)
def test_what_the_commands_print_fits_its_terminal(
    sized: Any, columns: int, rows: int, variables: dict[str, str]
) -> None:
    person = sized(columns, rows)
    person.start("run", *person.script(turn("I look.", read={"path": "b.txt"}), turn(LONG)), "Go", **variables)
    seen = person.ends(0)
    assert LONG.replace(" ", "") in re.sub(
        r"\s+", "", seen
    )  # the terminal breaks its lines, so that it copies as it is
    for command in (["sessions"], ["sessions", "show", "--last"], ["config", "show"], ["mcp"], ["tools"], ["--help"]):
        person.start(*command, **variables)
        assert person.ends(0).strip()
        assert not COLOUR.search(person.raw)
        assert variables.get("TERM") != "dumb" or "\x1b" not in person.raw


def words_of(shown: str, longest: int = 1000) -> set[str]:
    """Return the words of a text; a number may be a time, which differs."""
    return {word for word in shown.split() if len(word) <= longest and not word.isdecimal()}


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize("command", [["doctor"], ["doubts"], ["run", "Go"]])
def test_hints_and_errors_break_between_words(sized: Any, command: list[str]) -> None:
    wide, narrow = sized(1000, 24), sized(60, 40)
    codes = {"doctor": 0, "doubts": 0, "run": 2}
    shown = []
    for person in (wide, narrow):
        person.start(*command)
        shown.append(person.ends(codes[command[0]]))

    assert words_of(shown[0], 40) <= words_of(shown[1])


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}], ids=["screen", "dumb"])
def test_what_a_conversation_says_breaks_between_words_and_keeps_its_columns(
    sized: Any, variables: dict[str, str]
) -> None:
    person = sized(40, 60)
    person.start("chat", *person.script(turn("Fine.")), "Go", **variables)
    person.see("Fine.")
    for command, last in (("/help", "attach a file"), ("/doctor", "self-check"), ("/compact", "keeps all of it.")):
        person.say(command)
        seen = person.see(last)
    person.press("ctrl-d")
    seen = person.ends(0)
    rows = seen.split("\n")

    assert {"script:script.json", "python", "summarized", "conversation"} <= words_of(seen)
    at = next(number for number, row in enumerate(rows) if row.startswith("  Enter "))
    assert rows[at + 1] == " " * 17 + rows[at + 1].strip()
    assert re.search(r"Continue with: treadle chat --session s_\w{16}\b", " ".join(seen.split()))
