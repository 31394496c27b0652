"""A day in a real terminal, from the first start in a folder to the last message, at three sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_rewinding import tree_of

from person import Person
from treadle.testing import MockProvider, Turn, call, text

KEY = "sk-of-the-newcomer-0123456789"
RAW = Path(__file__).parents[2] / "toolsets/mcp_raw_server.py"
CHANGES = "rm sub/tool.sh; ln -sfn b.txt link; chmod 600 a.txt; mkdir made; printf z > made/z"
PLAN = "1. Write the test.\n2. Run it."


def todo(*states: str) -> Turn:
    items = [{"text": text, "state": state} for text, state in zip(("Look at it", "Change it"), states, strict=True)]
    return Turn(calls=(call("todo", items=items),))


TURNS = [
    text("It fetches pages."),
    Turn(text="Half of an answer, and the rest of it.", pieces=8, gate="rest", hold_after_pieces=8),
    text("I begin again."),
    todo("in_progress", "pending"),
    Turn(calls=(call("read", path="main.py"),)),
    Turn(calls=(call("edit", path="main.py", old_text="retries = 3", new_text="retries = 5"),)),
    Turn(calls=(call("shell", command=CHANGES),)),
    todo("done", "done"),
    text("**Changed**, see `main.py`:\n\n| What | Now |\n|---|---:|\n| retries | 5 |"),
    Turn(calls=(call("mcp__raw__echo", text="first"),)),
    text("The server answered."),
    text("Fixed 7."),
    Turn(calls=(call("exit_plan", plan=PLAN),)),
    text("The plan holds."),
    Turn(calls=(call("mcp__raw__echo", text="last"),)),
    text("The server answered, too."),
]


def prepared(person: Person) -> None:
    folder = person.folder
    (folder / "sub").mkdir()
    (folder / "sub" / "tool.sh").write_text("echo\n")
    (folder / "sub" / "tool.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    (folder / "AGENTS.md").write_text("Answer briefly.\n")
    (folder / ".treadle" / "commands").mkdir(parents=True)
    (folder / ".treadle" / "commands" / "fix.md").write_text("Fix issue $1.\n!echo branch main\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
    person.elsewhere("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(RAW), str(folder), "")
    person.knows_folder = False


def see_whole(person: Person, *words: str, without: str | None = None) -> None:
    """See words, and that no line is wider than the terminal or empty of sense."""
    person.see(*words, without=without)
    assert all(len(line) <= person.columns for line in person.shown())


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24), (40, 24)])
def test_a_day_from_the_first_start_to_the_last_message(folder: Path, columns: int, rows: int) -> None:
    person = Person(folder, columns, rows)
    prepared(person)
    with MockProvider(TURNS).in_thread() as provider:
        try:
            person.start(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=provider.base_url)
            begins(person, provider)
            interrupts(person, provider)
            changes_and_rewinds(person)
            uses_its_own(person, provider)
            plans_and_leaves(person)
        finally:
            person.process.close(0)
    assert "Traceback" not in person.raw
    assert KEY not in person.raw
    log = (folder / "log").read_text().splitlines()
    assert [line.split()[0] for line in log].count("started") == 1
    assert len(json.loads(person.elsewhere("sessions", "--json"))) == 1


def begins(person: Person, provider: MockProvider) -> None:
    """Three keys after `treadle`, to the first useful answer: trust, the suggested question, Enter."""
    see_whole(person, "Do you trust it?", "Show what it brings first")
    person.press("2")
    see_whole(person, "What does this project do?", "openai:gpt-5 answers")
    person.press("tab")
    person.see("What does this project do?", without="(Tab)")
    person.press("enter")
    see_whole(person, "It fetches pages.", "1 step")
    told = json.dumps(provider.requests[0].body)
    assert "Answer briefly." in told  # what the folder brings is read as instructions
    assert all(word in told for word in (person.folder.name, "branch main", "Linux"))


def interrupts(person: Person, provider: MockProvider) -> None:
    """What was said when the person pressed Esc stays, on the screen and for the model."""
    person.say("Tell me all")
    see_whole(person, "Half of", "answering")
    person.press("esc")
    see_whole(person, "The answer was interrupted here.", "Type what to do instead.")
    person.say("Begin again")
    see_whole(person, "I begin again.")
    person.rest()
    assert "Half of" in json.dumps(provider.requests[-1].body)
    assert "rest of it" not in json.dumps(provider.requests[-1].body)
    assert person.look().count("Half of") == 1


def changes_and_rewinds(person: Person) -> None:
    """Edits and commands are asked about, the list changes in its place, and the files come back byte for byte."""
    before = tree_of(person.folder)
    person.say("Try five times")
    see_whole(person, "Edit a file: main.py", "1 y", "Shift+Tab yes")
    person.press("y")
    see_whole(person, "Run a command", "chmod 600 a.txt", "yes, once", "show the whole call")
    assert any("Run a command" in line for line in person.shown())  # what is asked stays in sight with its answers
    person.press("y")
    see_whole(person, "Changed", "To-do list 2 of 2 done", "retries", without="▸ Look at it")
    assert (person.folder / "made" / "z").read_text() == "z"
    assert tree_of(person.folder) != before
    person.say("/rewind")
    see_whole(person, "Go back to the point before which message?", "Try five times")
    person.press("4")
    see_whole(person, "Go back with what?", "files")
    person.press("2")
    see_whole(person, "Files put back:")
    assert tree_of(person.folder) == before


def uses_its_own(person: Person, provider: MockProvider) -> None:
    """Servers, own commands, files by name and pickers."""
    person.say("Ask the server about @main.py")
    see_whole(person, "mcp__raw__echo", "yes, once")
    person.press("y")
    see_whole(person, "The server answered.")
    assert "retries = 3" in json.dumps(provider.requests[-2].body)
    person.say("/fix 7")
    see_whole(person, "Fixed 7.")
    assert "Fix issue 7." in json.dumps(provider.requests[-1].body)
    assert "branch main" in json.dumps(provider.requests[-1].body["input"][-1])
    person.say("/mcp")
    see_whole(person, "raw open")
    person.say("/theme none")
    see_whole(person, "The theme is now none.")
    person.say("/model")
    see_whole(person, "Which model instead of openai:gpt-5?")
    person.press("esc")
    person.see("ask ─", without="Which model")


def plans_and_leaves(person: Person) -> None:
    """Shift+Tab to plan mode, a plan that is accepted, and the last message with the server of the first."""
    person.press("shift-tab", "shift-tab", "shift-tab")
    person.see(" plan ─")
    person.say("Plan a test")
    see_whole(person, "Carry out this plan?", "Write the test.", "yes, carry it out")
    person.press("y")
    see_whole(person, "The plan holds.", " ask ─")
    person.say("Ask the server again")
    see_whole(person, "yes, once")
    person.press("y")
    see_whole(person, "The server answered, too.")
    person.press("ctrl-d")
    person.ends(0)
