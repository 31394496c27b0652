"""The program at terminals of 120, 40 and 20 columns, without colours, and at one that obeys nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Person, turn

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
SIZES = [(120, 40), (40, 24), (20, 5)]
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
            one.process.close(force=True)


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_conversation_with_a_question_is_seen_through_at_any_size(sized: Any, columns: int, rows: int) -> None:
    person = sized(columns, rows)
    script = person.script(turn("I look.", read={"path": "b.txt"}), turn(pay={"amount": 1}), turn(LONG))
    person.start("chat", *script, *person.tools(), "--tools", "read", NO_COLOR="1")
    person.see(">")
    person.say("Go")
    person.see("Allow this call of pay?", "y yes, once")
    person.press("y")
    person.wait_for_file("paid.txt")
    seen = person.see("before this change.")
    person.press("ctrl-d")
    person.ends(0)

    assert "I look." in seen
    assert not COLOUR.search(person.raw)
    words = set(re.findall(r"\w+", seen))
    assert set(re.findall(r"\w+", LONG)) <= words  # no word is broken


@pytest.mark.row("E-SIZES")
@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no colour", "dumb"])
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
