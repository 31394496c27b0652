"""What stays in its place in a conversation: the checklist and the frame above the input, and the screen while an answer streams."""

from person import Person, turn
from treadle.testing import MockProvider, Turn


def todo(*states: str) -> dict:
    texts = ("Find the place", "Change it", "Run the tests")
    return turn(todo={"items": [{"text": text, "state": state} for text, state in zip(texts, states, strict=True)]})


def test_the_to_do_list_stays_above_the_input_changes_in_place_and_goes_when_all_is_done(person: Person) -> None:
    turns = [todo("in_progress", "pending", "pending"), turn(wait={}), todo("done", "in_progress", "pending")]
    person.talk(
        *turns, turn("Half."), todo("done", "done", "done"), turn("All."), flags=[*person.tools(), "--tools", "todo"]
    )
    person.say("Go")
    person.see("▸ Find the place", "☐ Change it", "☐ Run the tests", " wait\n")
    person.release()
    person.see("Half.", "✓ Find the place", "▸ Change it", "● To-do list 1 of 3 done", without="☐ Change it")
    rows = [row for row in person.shown() if row]
    assert rows[-7:-4] == ["✓ Find the place", "▸ Change it", "☐ Run the tests"]
    person.say("On")
    person.see("All.", "● To-do list 3 of 3 done", without="✓ Find the place")


def test_a_command_of_ten_lines_is_asked_about_on_one_screen_with_all_its_answers(person: Person) -> None:
    person = Person(person.folder, columns=80, rows=24)
    command = "\n".join(f"touch file-number-{n}" for n in range(10))
    person.talk(turn(shell={"command": command}), turn("Done."), say="Go")
    try:
        person.see("Run a command", "show the whole call")
        shown = "\n".join(person.shown())
        assert all(f"touch file-number-{n}" in shown for n in range(10))
        assert "── Run a command ─" in shown
        assert "  n  no" in shown.replace("❯", "") or "n  no" in shown
    finally:
        person.process.close(0)


def test_while_an_answer_streams_nothing_above_it_is_drawn_again(person: Person) -> None:
    words = " ".join(f"word{n}" for n in range(300))
    with MockProvider([Turn(text=words)]).in_thread() as provider:
        person.talk_to(provider)
        before = person.raw.count("\x1b[J")
        person.say("Go")
        person.see("word299", "1 step")
    assert person.raw.count("\x1b[J") - before < 20  # one for each block and note, none for each word
