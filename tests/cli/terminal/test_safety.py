"""What comes from a model, a tool or a file cannot repaint the terminal; and the terminal may be resized, killed or poor."""

import re
import signal

import pytest

from person import Person, turn
from treadle.testing import MockProvider, Turn

SECRET = "sk-proj-" + "abcdefghijklmnopqrst" + "uvwx0123456789"  # in pieces: it is no key
HOSTILE = "\x1b[2J\x1b[H\x1b]0;title\x07 \x9b31m \u202eevil\u202c \x08\x08 &#x1b;[2J [x](\x1b]8;;http://e\x07) \x1bc"
# A step back by one column is written as a backspace between two sequences.
OURS = re.compile(r"\x1b\[\?7l\x08(?=\x1b\[)|\x1b\[[0-9;?]*[ABCDHJKhlm]|\x1b\[>4;[01]m|\x1b\[\d q")


def foreign(raw: str) -> list[str]:
    """Return the sequences that a drawing of ours never has."""
    rest = re.sub(r"\x1b(\[[0-9;?]*)?\Z", "", OURS.sub("", raw))  # one whose rest has not been read yet
    return re.findall(r"\x1b.{0,6}|[\x07\x08\x9b\u202e]", rest)


@pytest.mark.row("AT-TERMINAL")
def test_what_a_model_says_and_calls_is_shown_and_not_obeyed(person: Person) -> None:
    script = person.script(
        turn(HOSTILE, read={"path": HOSTILE}),
        turn(f"```sh\n{HOSTILE}\n```\n\n# {HOSTILE}\n\n| {HOSTILE} |\n|---|\n| a |\n\nEnd."),
    )
    person.start("chat", *script)
    person.see(person.prompt)
    person.say("Go")
    seen = person.see("End.", "\\x1b[2J", "\\u202e")
    assert "› Go" in seen
    assert foreign(person.raw) == []
    assert "\x1b[2J" not in person.raw


def test_what_a_tool_prints_by_itself_stands_above_the_line_and_is_not_obeyed(person: Person) -> None:
    person.talk(turn(noisy={}), turn("Ended."), flags=person.tools(), say="Go")
    person.see("printed by a tool", "and written \\x1b]0;title\\x07", "Ended.")
    assert "\x1b[2J" not in person.raw
    assert foreign(person.raw) == []


@pytest.mark.row("AT-TERMINAL")
def test_what_stands_in_a_file_is_not_obeyed_and_its_secret_not_shown(person: Person) -> None:
    (person.folder / "evil.txt").write_text(f"{HOSTILE}\nkey {SECRET}\n")
    person.talk(turn(read={"path": "evil.txt"}), turn("Read."), say="Read it")
    person.see("Read.")
    person.press("ctrl-o")
    person.see("\\x1b[2J")
    assert SECRET[-12:] not in person.raw
    assert foreign(person.raw) == []


def test_the_terminal_is_resized_in_the_middle_of_a_response(person: Person) -> None:
    turns = [Turn(text="The first half of it. " * 8 + "The end of it.", pieces=4, gate="g", hold_after_pieces=2)]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, say="Continue")
        person.see("The first half", "Esc interrupts")
        person.resize(60, 20)
        person.press("typed")
        person.see("› typed")
        provider.gate("g").open()
        person.see("The end of it.", without="Esc interrupts")
    assert max(map(len, person.shown())) <= 60
    assert person.shown()[-1].strip() == "" or "openai-chat:mock" in "\n".join(person.shown())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_program_that_is_told_to_end_leaves_the_terminal_as_it_was(
    person: Person, number: signal.Signals, code: int
) -> None:
    person.talk(turn(wait={}), turn("Never."), flags=person.tools(), say="Go")
    person.see(" wait\n")
    person.process.kill(number)
    person.ends(code)
    assert person.raw.rstrip().endswith(tuple("0123456789abcdef"))
    assert "\x1b[>4;0m" in person.raw
    assert "\x1b[?2004l" in person.raw


def test_a_killed_conversation_goes_on_from_what_was_recorded(person: Person) -> None:
    person.talk(turn("One."), turn(wait={}), turn("Two."), flags=person.tools(), say="First")
    person.see("One.")
    person.say("Second")
    person.see(" wait\n")
    person.process.kill(signal.SIGKILL)
    person.process.close(0)
    person.start("chat", "-c", *person.script(turn("Three.")), *person.tools())
    person.see("messages.", "Its last run did not finish.")
    person.say("Third")
    person.see("Three.")


def test_no_colours_where_the_person_wants_none(person: Person) -> None:
    person.talk(turn("I **look**.", grep={"pattern": "error"}), turn("`code`"), say="Go", NO_COLOR="1")
    person.see("code")
    assert re.findall(r"\x1b\[[0-9;]*3[1-7]m", person.raw) == []


def test_a_terminal_that_obeys_nothing_gets_plain_lines(person: Person) -> None:
    script = person.script(turn("I look.", grep={"pattern": "error"}), turn(pay={"amount": 1}), turn("Done."))
    person.start("chat", *script, *person.tools(), "--tools", "grep", TERM="dumb")
    person.see(person.prompt)
    person.say("Go")
    person.see('[done] Search "error"', "a.txt:1: one error", "Allow it? [n]")
    person.say("y")
    person.see("[done] pay  amount: 1", "Done.")
    person.leave()
    assert "\x1b" not in person.raw


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}], ids=["terminal", "plain"])
def test_a_conversation_begins_with_what_has_changed_in_a_trusted_folder(
    person: Person, variables: dict[str, str]
) -> None:
    place = person.folder / ".treadle"
    place.mkdir()
    (place / "hooks.json").write_text('{"hooks": {}}')
    script = person.script(turn("Done."))
    person.start("trust", "approve", **variables)
    person.see("hooks.json", "Trust these files as they are? [y/N]")
    person.say("y")
    person.see("Trusted:")
    person.ends(0)
    (place / "hooks.json").write_text('{"hooks": {"Stop": []}}')

    person.start("chat", *script, **variables)

    seen = "".join(person.see(person.prompt, "approve it").split())
    assert "haschangedsinceyoutrustedit(changed.treadle/hooks.json)" in seen
    person.leave()


def test_plain_lines_ask_as_a_whole_terminal_does(person: Person) -> None:
    edit = {"path": "main.py", "old_text": "retries = 3", "new_text": "retries = 5"}
    script = person.script(turn("I fix it.", edit=edit), turn(shell={"command": "rm -f a.txt"}), turn("Done."))
    person.start("chat", *script, TERM="dumb")
    person.see(person.prompt)
    person.say("Go")
    person.see(
        "A call is waiting for you", "Edit a file: main.py", "| -retries = 3\n", "| +retries = 5\n", "Allow it? [y]"
    )
    person.say("v")
    person.see('edit(path="main.py", old_text="retries = 3", new_text="retries = 5"')
    person.say("?")
    person.see("v  show the whole call", "Allow it? [y]")
    person.say("y")
    person.see("| rm -f a.txt", "a.txt", "Allow it? [n]")
    person.say("n")
    seen = person.see("Done.")
    assert seen.count("y  yes, once") == 3
    assert [line for line in seen.splitlines() if line.startswith("> ")] == ["> Go"]
