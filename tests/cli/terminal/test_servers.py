"""MCP servers of a conversation: started once, in the background, and used from message to message."""

import os
import signal
import sys
from pathlib import Path

from person import Person, turn
from treadle.testing import MockProvider, Turn

RAW = Path(__file__).parents[2] / "toolsets/mcp_raw_server.py"


def add(person: Person, mode: str = "") -> None:
    person.elsewhere("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(RAW), str(person.folder), mode)


def starts(person: Person) -> list[int]:
    lines = (person.folder / "log").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("started")]


def test_a_server_is_started_once_for_ten_messages_and_its_end_is_said_once(person: Person):
    add(person)
    turns = [each for n in range(10) for each in (turn(mcp__raw__echo={"text": f"t{n}"}), turn(f"Answer {n}."))]
    turns += [turn("Nothing called."), turn(mcp__raw__echo={"text": "again"}), turn("The end.")]
    person.talk(*turns, flags=["--allow", "mcp__raw__echo"])
    for n in range(10):
        person.say(f"Message {n}")
        person.see(f"Answer {n}.")
    assert len(starts(person)) == 1

    os.kill(starts(person)[0], signal.SIGKILL)
    person.say("Call nothing")
    person.see("Nothing called.")
    assert len(starts(person)) == 1
    person.say("Call")
    seen = person.see("The end.")
    assert len(starts(person)) == 2
    assert seen.count("toolset raw has ended") == 1
    person.leave()
    assert (person.folder / "log").read_text().splitlines()[-1] == "end of input"


def test_mcp_says_the_state_of_each_server(person: Person):
    add(person)
    person.elsewhere("mcp", "add", "dumb", "--", sys.executable, "-S", "-E", str(RAW), str(person.folder), "mute")
    person.talk(turn(mcp__raw__echo={"text": "x"}), turn("Called."), flags=["--allow", "mcp__raw__echo"])
    person.say("/mcp")
    person.see("dumb opening")
    person.say("Go")
    person.see("Called.")
    person.say("/mcp")
    person.see("raw open", "dumb opening")


def test_a_server_that_does_not_start_is_named_and_holds_no_message_and_esc_answers_at_once(person: Person):
    add(person, "mute")
    turns = [Turn(text="First answer."), Turn(text="Never.", gate="g")]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, say="Go")
        person.see("First answer.")
        person.say("Wait")
        person.see("starting raw")
        person.press("esc")
        person.see("Interrupted.")
        person.leave()


def test_a_change_of_the_model_keeps_the_servers(person: Person):
    add(person)
    person.talk(turn("First answer."))
    person.say("Go")
    person.see("First answer.")
    (person.folder / "other.json").write_text('[{"text": "Other answer."}]')
    person.say("/model script:other.json")
    person.see("The model is now script:other.json.")
    person.say("Go on")
    person.see("Other answer.")
    assert len(starts(person)) == 1
    person.leave()
