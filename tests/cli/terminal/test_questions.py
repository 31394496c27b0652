"""Questions about calls at a real terminal: each key once, what a rule covers, and what a key that was meant otherwise does not do."""

import json
import signal
import tomllib
from pathlib import Path

import pytest

from person import Person, turn
from treadle.testing import MockProvider, Turn, call

pytestmark = pytest.mark.row("X07")


def paid(person: Person) -> list[str]:
    file = person.folder / "paid.txt"
    return file.read_text().split() if file.exists() else []


def start(person: Person, *turns: dict, flags: tuple[str, ...] = ()) -> None:
    person.start("chat", *person.script(*turns), *person.tools(), *flags)
    person.see(person.prompt)
    person.say("Pay it")
    person.see("Call pay", "pay(amount=")


def test_y_allows_one_call_and_a_bare_enter_denies_the_next_which_may_destroy(person: Person) -> None:
    start(person, turn(pay={"amount": 40}), turn(pay={"amount": 40}), turn("Paid."))
    person.press("y")
    person.see("● pay amount: 40", "Call pay")
    assert paid(person) == ["40"]
    person.see("❯ 2 n  no")
    person.press("enter")
    person.see("Paid.", "Denied: 1 call (pay)")
    assert paid(person) == ["40"]


def test_a_allows_such_calls_for_the_session_only(person: Person) -> None:
    writes = [turn(write={"path": "n.txt", "content": f"{n}\n"}) for n in (1, 2, 3)]
    person.talk(*writes[:2], turn("Written."), writes[2], turn("Never."), say="Write it")
    person.see("Create a file: n.txt", "do not ask again in this session for write(path=n.txt)", "❯ 1 y yes, once")
    person.press("a")
    person.see("Written.", without="Call pay")
    assert (person.folder / "n.txt").read_text() == "2\n"
    person.say("/permissions")
    person.see("allowed in this session write(path=n.txt)")
    person.say("/clear")
    person.see("New session")
    person.say("Write again")
    person.see("Replace a file")
    assert (person.folder / "n.txt").read_text() == "2\n"


def test_p_keeps_a_rule_for_the_folder_after_it_has_shown_what_the_rule_covers(person: Person) -> None:
    person.talk(turn(write={"path": "n.txt", "content": "1\n"}), turn("Written."), say="Write it")
    person.see("Create a file")
    person.press("p")
    person.see("accept-edits")
    person.see("rule> write(path=n.txt)", "Covers this call.")
    person.press("backspace", "x)", "enter")
    person.see("does not cover this call")
    person.press(*["backspace"] * 7, "*.txt)", "enter")
    person.see("Written.", "Allowed by")
    person.leave()
    kept = (person.home / "rules.toml").read_text()
    assert '"write(path=*.txt)"' in kept
    assert str(person.folder) in kept
    assert (person.home / "rules.toml").stat().st_mode & 0o777 == 0o600

    person.talk(turn(write={"path": "m.txt", "content": "2\n"}), turn("Unasked."), say="Write another")
    person.see("Unasked.")
    assert (person.folder / "m.txt").read_text() == "2\n"


def test_m_keeps_a_rule_for_all_folders_and_x_exactly_this_line(person: Person) -> None:
    calls = (turn(shell={"command": "touch a"}), turn(shell={"command": "mkdir b > /dev/null"}), turn("Done."))
    person.talk(*calls, say="Do it")
    person.see("Run a command", "No rule allows this command yet.", "touch a")
    person.press("m")
    person.see("in all your folders", "rule> shell(touch:*)", "Covers this call")
    person.press("enter")
    person.see("mkdir b > /dev/null", "these exact words")
    person.press("x")
    person.see("rule> shell(= mkdir b > /dev/null)", "Covers this call")
    person.press("enter")
    person.see("Done.")
    person.leave()

    kept = tomllib.loads((person.home / "rules.toml").read_text())
    assert kept["*"]["allow"] == ["shell(touch:*)"]
    assert kept[str(person.folder.resolve())]["allow"] == ["shell(= mkdir b > /dev/null)"]


def test_edited_arguments_are_what_runs(person: Person) -> None:
    start(person, turn(pay={"amount": 40}), turn("Done."))
    person.press("e")
    person.see("json> {")
    person.press(*["backspace"] * 40)
    person.press('{"amount": }', "enter")
    person.see("This is not valid JSON")
    person.press("backspace", "backspace", " 4}", "enter")
    person.see("● pay amount: 4 (edited)", "Done.")
    assert paid(person) == ["4"]


def test_r_tells_the_model_why_not(person: Person) -> None:
    turns = [Turn(calls=(call("pay", amount=40),)), Turn(text="I see.")]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, *person.tools(), say="Pay it")
        person.see("Call pay")
        person.press("r")
        person.see("reason> ")
        person.press("too much", "enter")
        person.see("I see.")
    told = json.dumps(provider.requests[-1].body["messages"][-1])
    assert "too much" in told
    assert paid(person) == []


def test_v_shows_every_argument_and_esc_goes_back(person: Person) -> None:
    long = "x" * 300
    person.talk(turn(pay={"amount": 1, "note": long}), turn("Done."), flags=person.tools(), say="Pay it")
    person.see("Call pay", "1 y yes, once")
    person.press("v")
    person.see("pay, 2 arguments: amount = 1")
    person.press("r")
    person.see("reason> ")
    person.press("esc")
    person.see("Call pay", without="reason> ")
    person.press("z")
    person.see("Press one of y, n, e, r, v.")
    person.press("n")
    person.see("Done.")


def test_what_a_person_was_typing_answers_nothing_and_is_kept(person: Person) -> None:
    person.talk(turn(wait={}), turn(pay={"amount": 1}), turn("Done."), flags=person.tools(), say="Go")
    person.see(" wait\n")
    person.press("yes y")
    person.see("› yes y")
    person.release()
    person.see("Call pay")
    person.press("y")
    person.see("You were typing")
    assert paid(person) == []


def test_a_paste_answers_nothing_also_where_the_terminal_does_not_mark_it(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Done."))
    person.press("\x1b[200~y\r\x1b[201~", "v")
    person.see("pay(amount=1)", "Call pay")
    person.press("yes, yes\ry\ry\r" * 20)
    person.press("ctrl-c")
    person.see("Interrupted.", "● pay amount: 1 skipped")
    assert paid(person) == []


@pytest.mark.parametrize("key", ["ctrl-c", "esc"])
def test_an_interrupt_at_a_question_ends_the_run_and_nothing_is_done(person: Person, key: str) -> None:
    start(person, turn(pay={"amount": 1}), turn("Next."))
    person.press(key)
    person.see("Interrupted.", "● pay amount: 1 skipped", without="Call pay")
    person.say("Something else")
    person.see("Next.")
    assert paid(person) == []


def test_the_end_of_the_input_at_a_question_allows_nothing(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Next."))
    person.press("ctrl-d")
    person.see("Continue with: treadle chat --session", without="Call pay")
    assert "● pay" not in person.look()
    assert paid(person) == []


@pytest.mark.row("AT-APPROVAL-NOBODY")
def test_a_terminal_that_goes_away_at_a_question_allows_nothing(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Next."))
    person.process.close()  # the terminal's end is closed, and the program is told of it
    assert person.process.status not in (0, -signal.SIGKILL)
    assert paid(person) == []


def test_several_calls_are_asked_about_one_by_one(person: Person) -> None:
    turns = [Turn(calls=(call("pay", amount=1), call("pay", amount=2))), Turn(text="Both decided.")]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, *person.tools(), say="Pay both")
        person.see("1 of 2", "Call pay")
        person.press("n")
        person.see("2 of 2", "Denied by")
        person.press("y")
        person.see("Both decided.", "● pay amount: 1 denied", "● pay amount: 2")
    assert paid(person) == ["2"]


@pytest.mark.row("HF1")
def test_an_answer_that_comes_too_late_is_told_so_and_the_person_is_asked_anew(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Done."), flags=("--approval-seconds", "0.001"))
    person.press("y")
    person.see("The request expired before you answered it. Here it is again.", "Call pay", "n no")
    person.press("ctrl-c")
    person.see("Interrupted.")
    assert paid(person) == []


@pytest.mark.row("HF1")
@pytest.mark.parametrize(
    ("term", "line", "says", "done"),
    [
        ("xterm-256color", "approve --last --by ada", "Allowed by ada from elsewhere.", ["1"]),
        ("dumb", "approve --last --deny --by ada --reason costly", "Denied by ada from elsewhere: costly.", []),
        ("xterm-256color", "cancel --last", "The run was cancelled from elsewhere.", []),
    ],
)
def test_an_answer_from_another_process_closes_the_question_and_the_run_goes_on(
    person: Person, term: str, line: str, says: str, done: list[str]
) -> None:
    person.talk(turn(pay={"amount": 1}), turn("Over."), flags=person.tools(), say="Pay it", TERM=term)
    person.see("n  no")
    told = person.elsewhere(*line.split())
    assert ("continues with this answer" in told) or ("A live run stops within a second" in told)
    person.see(says, "Interrupted." if "cancel" in line else "Over.")
    assert paid(person) == done


def test_a_session_that_waits_for_an_answer_is_held(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Paid."))
    assert "is being run by process" in person.elsewhere("resume", "--last", code=16)
    assert "is being run by process" in person.elsewhere("run", "-c", "-m", "demo", "hello", code=16)
    person.press("y")
    person.see("Paid.")
    assert paid(person) == ["1"]


def test_a_session_that_waits_is_taken_up_by_another_terminal(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Done."))
    person.process.kill(9)
    person.process.close(0)
    person.start("chat", "-c", *person.script(turn(pay={"amount": 1}), turn("Done.")), *person.tools())
    seen = person.see("Its last run did not finish.", "› ")
    prefix = seen.split("/resume ")[1].split()[0]
    person.say(f"/resume {prefix}")
    person.see("Call pay")
    person.press("y")
    person.see("Done.")
    assert paid(person) == ["1"]


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_call_that_is_refused_says_why_before_it_runs_and_after(person: Person, term: str) -> None:
    edit = {"path": "main.py", "old_text": "not there", "new_text": "x"}
    person.talk(turn(edit=edit), turn("Over."), say="Edit it", TERM=term)
    person.see("The call would be refused: main.py: `old_text` does not occur in the file.", "yes, once")
    person.press("y", *(["enter"] if term == "dumb" else []))
    seen = person.see("rejected", "Over.")
    assert "see `details`" not in seen
    assert "has not been read in this session" in seen


def test_shift_tab_at_a_question_about_an_edit_answers_it_and_the_next_ones(person: Person) -> None:
    writes = [turn(write={"path": f"{name}.txt", "content": "new\n"}) for name in ("one", "two")]
    person.talk(*writes, turn("Written."), say="Write them")
    person.see("Shift+Tab yes, and run the next edits of this folder unasked")
    person.press("shift-tab")
    person.see("The mode is now accept-edits.", "Written.", " accept-edits ─")
    assert [(person.folder / f"{name}.txt").read_text() for name in ("one", "two")] == ["new\n", "new\n"]


def test_shift_tab_at_a_question_that_no_mode_answers_says_so(person: Person) -> None:
    start(person, turn(pay={"amount": 1}), turn("Over."))
    person.press("shift-tab")
    person.see("No mode on Shift+Tab is an answer to this call", " · ask · ")
    person.press("n")
    person.see("Over.")
    assert paid(person) == []


def test_a_message_that_is_refused_because_another_process_has_the_session_stays_in_the_input(
    person: Person, folder: Path
) -> None:
    start(person, turn(pay={"amount": 1}), turn("Paid."))
    other = Person(folder)
    other.start("chat", "-c", *person.script(turn("Hello.")))
    other.see("Its last run did not finish.")
    other.say("Hello there")
    other.see("is being run by process", "› Hello there")
    other.press("ctrl-c", "ctrl-d")
    other.ends(0)
    person.press("n")
    person.see("Paid.")
