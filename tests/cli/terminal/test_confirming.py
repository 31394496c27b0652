"""Questions before an act with wide effects: at a terminal only, and nothing happens without a yes."""

import pytest

from person import Person


@pytest.mark.parametrize("answer", ["n", "", "yes please"])
def test_a_folder_is_trusted_only_after_its_files_were_seen_and_a_yes(person: Person, answer: str) -> None:
    (person.folder / ".treadle").mkdir()
    (person.folder / ".treadle" / "hooks.json").write_text('{"hooks": {}}')

    person.start("trust", "approve")
    person.see("--- .treadle/hooks.json", "Trust these files as they are? [y/N]")
    person.say(answer)

    person.see("Not trusted: nothing is changed.")
    person.ends(1)
    assert not (person.home / "trust.json").exists()


def test_sessions_of_an_age_are_deleted_only_after_a_yes(person: Person) -> None:
    person.start("run", "-m", "demo", "--session", "kept", "hi")
    person.ends(0)

    person.start("sessions", "rm", "--older-than", "0")
    person.see("Delete 1 session", "[y/N]")
    person.say("n")
    person.see("Nothing is changed.")
    person.ends(1)

    person.start("sessions", "rm", "--older-than", "0")
    person.see("[y/N]")
    person.press("ctrl-c")
    person.see("treadle: interrupted.")
    person.ends(130)

    person.start("sessions", "rm", "--older-than", "0")
    person.see("[y/N]")
    person.say("y")
    person.see("1 session deleted.")
    person.ends(0)
