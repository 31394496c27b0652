"""Commands that a person or a project has written as files."""

from pathlib import Path

import pytest

from person import Person
from treadle.testing import MockProvider, Turn

pytestmark = pytest.mark.row("X06")

FIX = """---
description: "Fix one issue"
allowed-tools: Bash(*)
---
Fix issue $1 of $2.
Everything said: $ARGUMENTS.
!printf 'run %s\\n' "$1"; touch ran
Branch: !`echo main`.
"""


def told(person: Person, *said: str, flags: tuple[str, ...] = ()) -> list[str]:
    """Enter lines and return what the model was told for each."""
    with MockProvider([Turn(text=f"Answer {n}.") for n in range(len(said))]).in_thread() as provider:
        person.talk_to(provider, *flags)
        for number, line in enumerate(said):
            person.say(line)
            person.see(f"Answer {number}.")
        person.leave()
    return [request.body["messages"][-1]["content"] for request in provider.requests]


def write(place: Path, content: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)


def test_a_command_of_the_project_is_sent_with_its_arguments_and_runs_shell_once_it_is_trusted(person: Person) -> None:
    write(person.folder / ".treadle" / "commands" / "fix.md", FIX)

    (before,) = told(person, '/fix 12 "the parser"')
    assert before.startswith('Fix issue 12 of the parser.\nEverything said: 12 "the parser".\n!printf')
    assert not (person.folder / "ran").exists()
    assert "you have not approved it, and its shell commands are not run" in " ".join(person.look().split())

    person.elsewhere("trust", "approve")
    (after,) = told(person, "/fix 12;touch${IFS}bad")
    assert "$ printf 'run %s\\n' \"$1\"; touch ran\nrun 12;touch${IFS}bad\n" in after
    assert after.endswith("Branch: main.")
    assert (person.folder / "ran").exists()
    assert not (person.folder / "bad").exists()


def test_commands_that_are_kept_for_other_agents_are_understood_and_bound_to_the_same_approval(person: Person) -> None:
    write(person.folder / ".claude" / "commands" / "team" / "ship.md", "Ship it.\n!touch ran\n")
    assert told(person, "/team:ship now") == ["Ship it.\n!touch ran\n\nnow"]

    assert "Ship it." in person.elsewhere("trust", "approve")
    told(person, "/team:ship")
    assert (person.folder / "ran").exists()

    (person.folder / "ran").unlink()
    write(person.folder / ".claude" / "commands" / "team" / "ship.md", "Ship it now.\n!touch ran\n")
    told(person, "/team:ship")
    assert not (person.folder / "ran").exists()


def test_the_persons_own_command_counts_before_one_of_the_folder_and_is_listed_and_completed(person: Person) -> None:
    write(person.home / "commands" / "greet.md", "# Greet\nSay hello.\n!echo from me\n")
    write(person.folder / ".treadle" / "commands" / "greet.md", "Say goodbye.")
    write(person.folder / ".treadle" / "commands" / "help.md", "Never sent.")

    (sent,) = told(person, "/gre")
    assert sent == "# Greet\nSay hello.\n$ echo from me\nfrom me"

    person.talk({"text": "Never."}, say="/help")
    person.see("/greet", "Greet Say hello.")
    person.press("/gre", "tab")
    person.see("› /greet")


def test_init_and_review_ask_the_model(person: Person) -> None:
    init, review = told(person, "/init in German", "/review the parser")

    assert "write its AGENTS.md" in init
    assert init.endswith("in German")
    assert review.startswith("Review the parser.")
