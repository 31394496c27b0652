"""Long texts in a pager, and signs for a person who looks elsewhere: at a terminal, and only there."""

import json
import os
from typing import Any

import pytest

from person import Person, turn

PAGER = "sed 's/^/page: /' | head -c 4000"


def record(person: Person) -> None:
    (person.folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 200)))
    script = person.script(turn("I read.", read={"path": "long.txt"}), turn("Done."))
    person.start("run", *script, "--session", "s", "Look")
    person.ends()


@pytest.mark.row("E-READ")
@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_long_session_is_shown_in_the_pager_and_a_short_one_is_not(person: Person, command: str) -> None:
    record(person)
    person._resize(100, 12)
    person.start("sessions", command, "s", PAGER=PAGER)
    long = person.ends()
    person.start("sessions", command, "s", PAGER="head -n 1")
    assert "session s" in person.ends(0)  # a pager that is left early is no failure
    person._resize(100, 900)
    person.start("sessions", command, "s", PAGER=PAGER)
    short = person.ends()

    assert "page: session s" in long
    assert "session s" in short
    assert "page:" not in short


@pytest.mark.row("E-READ")
def test_nothing_is_paged_where_the_person_or_the_terminal_has_no_pager(person: Person) -> None:
    record(person)
    person._resize(100, 12)
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--no-pager"], {}), (["--json"], {}), ([], {"TERM": "dumb"}),
        ([], {"PAGER": "cat"}), ([], {"PAGER": ""}), ([], {"PAGER": "no-such-program-here"}),
    ]  # fmt: skip
    for flags, variables in ways:
        person.start("sessions", "show", "s", *flags, **{"PAGER": PAGER, **variables})
        seen = person.ends()
        assert "page:" not in seen
        assert "199" in seen


@pytest.mark.row("E-READ")
@pytest.mark.parametrize(
    ("way", "sign"),
    [('"bell"', "\x07"), ('"osc9"', "\x1b]9;Treadle: a call to pay is waiting for you\x07"), ('"off"', "")],
)
def test_a_person_who_looks_elsewhere_gets_a_sign_when_a_call_waits(person: Person, way: str, sign: str) -> None:
    person.home.mkdir()
    (person.home / "config.toml").write_text(f"notify = {way}\nnotify_after_seconds = 0.000001\n")
    script = person.script(turn("I pay.", pay={"amount": 4}), turn("Not paid."))
    person.start("chat", *script, *person.tools())

    person.see("/help lists")
    person.say("Pay it")
    person.see("Call pay")
    asked = person.raw
    person.press("n")
    person.see("Not paid.")
    person.leave()

    assert (sign in asked) if sign else ("\x07" not in person.raw and "\x1b]9" not in person.raw)


@pytest.mark.row("E-READ")
def test_a_program_of_the_person_is_given_the_message_and_a_quick_run_gives_no_sign(person: Person) -> None:
    (person.folder / "told").mkdir()
    person.home.mkdir()
    command = ["python3", "-c", "import sys; open('told/' + sys.argv[1][:7], 'w').write(sys.argv[1])"]
    for seconds in (3600, 0.000001):
        (person.home / "config.toml").write_text(f"notify = {json.dumps(command)}\nnotify_after_seconds = {seconds}\n")
        person.start("run", *person.script(turn("Done.")), "Go")
        person.ends()
        if seconds == 3600:
            assert list((person.folder / "told").iterdir()) == []

    wait_for_file(person.folder / "told" / "Treadle")
    assert (person.folder / "told" / "Treadle").read_text() == "Treadle: the run has ended (completed)"


def wait_for_file(path: Any) -> None:
    import select

    while not (path.exists() and path.read_text()):
        select.select([], [], [], 0.05)


@pytest.mark.row("E-READ")
def test_a_run_in_a_pipe_gives_no_sign(person: Person) -> None:
    import subprocess
    import sys

    person.home.mkdir()
    (person.home / "config.toml").write_text("notify = 'bell'\nnotify_after_seconds = 0.000001\n")
    ran = subprocess.run(
        [sys.executable, "-m", "treadle", "run", *person.script(turn("Done.")), "Go"],
        cwd=person.folder, stdin=subprocess.DEVNULL,
        env={**{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}, "TREADLE_HOME": str(person.home), "HOME": str(person.folder)},
        capture_output=True, check=True,
    )  # fmt: skip

    assert b"\x07" not in ran.stdout + ran.stderr


def test_options_alone_begin_a_conversation(person: Person) -> None:
    person.start(*person.script(turn("Hello.")))
    person.see("/help lists commands")
    person.leave()


def test_a_line_that_was_typed_while_the_program_loaded_is_the_first_message(person: Person) -> None:
    person.start("chat", *person.script(turn("First."), turn("Second.")))
    person.say("one")
    person.say("two")

    person.see("› one", "First.", "› two", "Second.")
    person.leave()
