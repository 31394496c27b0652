"""What agents below the run do, as a person sees it in a conversation: a line each, indented below the call they carry out."""

import json

import pytest

from person import Person, turn

CLERK = """---
name: clerk
description: Pays invoices.
tools: pay, count
model: script:clerk.json
---
You pay invoices.
"""


def office(person: Person) -> list[str]:
    """Return the flags of a conversation with an agent that counts, pays and answers."""
    (person.folder / "clerk.md").write_text(CLERK)
    steps = [
        {"calls": [{"name": "count", "arguments": {"lines": n}, "id": f"c{n}"} for n in (2, 3)]},
        {"calls": [{"name": "pay", "arguments": {"amount": 40}, "id": "p"}]},
        {"text": "I paid 40."},
    ]
    (person.folder / "clerk.json").write_text(json.dumps(steps))
    script = person.script(
        turn("I ask the clerk.", spawn_agent={"agent": "clerk", "task": "Pay invoice 7"}), turn("The clerk has paid.")
    )
    return [*script, *person.tools(), "--tools", "clerk.md"]


@pytest.mark.row("U01", "X02")
def test_the_calls_of_an_agent_stand_indented_below_the_call_that_it_carries_out(person: Person) -> None:
    person.start("chat", *office(person))
    person.see(person.prompt)
    person.say("Pay it")
    person.see("clerk: Call pay")
    person.press("y")
    seen = person.see("The clerk has paid.")
    lines = [line.rstrip() for line in seen.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("● spawn_agent"))
    assert lines[at + 1] == "  ● [clerk] count  lines: 2"
    assert lines[at + 2] == "  ● [clerk] count  lines: 3"
    assert lines[at + 3] == "  ● [clerk] pay  amount: 40"
    assert (person.folder / "paid.txt").read_text() == "40\n"


@pytest.mark.row("U01")
def test_plain_lines_show_the_calls_of_an_agent_too(person: Person) -> None:
    person.start("chat", *office(person), TERM="dumb")
    person.see(person.prompt)
    person.say("Pay it")
    person.see("Allow it?")
    person.say("y")
    seen = person.see("The clerk has paid.")
    assert "[ask] A call of clerk is waiting for you." in seen
    assert "\n  [clerk] count  lines: 2  ok\n" in seen
    assert "\n  [clerk] pay  amount: 40  ok\n" in seen
