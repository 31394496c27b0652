"""What a conversation can do where no tools are named: background commands, plans, questions, subagents."""

import json

from person import Person, turn

SERVER = {"command": "echo listening on 8000; read line; echo bye", "background": True, "lifetime": 60, "keep": True}


def test_a_background_command_is_listed_with_its_last_line_and_its_end_is_told(person: Person) -> None:
    write = {"process": "p1", "text": "\n"}
    person.talk(
        turn(shell=SERVER), turn("It is up."), turn(write_process=write), turn("Sent."), flags=["--mode", "bypass"]
    )
    person.say("Start the server")
    person.see("It is up.")
    person.say("/bashes")
    person.see("p1 runs", "echo listening on 8000; read line", "listening on 8000")
    person.say("End it")
    person.see("Sent.", "Background command p1 ended with exit code 0")
    person.leave()


def test_the_question_about_a_background_command_says_that_it_stays(person: Person) -> None:
    person.talk(turn(shell={**SERVER, "command": "python3 serve.py"}), turn("Then not."), flags=["--sandbox", "off"])
    person.say("Start the server")
    person.see("stays in the background, also after this run, for at most 60 s", "Run a command")
    person.press("n")
    person.see("Then not.")
    person.leave()


def test_a_plan_is_sent_back_edited_and_accepted_which_ends_plan_mode(person: Person) -> None:
    plan = turn(exit_plan={"plan": "1. Write a.txt."})
    person.talk(plan, plan, turn("Now I write it."), flags=["--mode", "plan"], say="Plan it")
    person.see("Carry out this plan?", "send it back")
    person.press("r")
    person.see("reason> ")
    person.say("It needs a test.")
    person.see("Denied by", "Carry out this plan?", without="reason> ")
    person.press("down", "e")  # an arrow says that it is the question which is answered
    person.see("plan> 1. Write a.txt.")
    person.say(" 2. Test it.")
    person.see("Now I write it.", "ask")
    person.leave()
    told = person.elsewhere("sessions", "show", "--last", "--json")
    assert "1. Write a.txt. 2. Test it." in told
    assert "It needs a test." in told


def test_a_subagent_of_a_trusted_folder_is_offered_and_one_of_another_is_said_not_to_be(person: Person) -> None:
    agents = person.folder / ".treadle" / "agents"
    agents.mkdir(parents=True)
    helper = {"description": "Reads code.", "instructions": "You review.", "effect": "read"}
    (agents / "reviewer.json").write_text(json.dumps(helper))
    person.talk(turn("Hi."))
    person.see("the subagents of .treadle/agents are not used")
    person.leave()
    person.elsewhere("trust", "approve", str(person.folder))
    person.talk(turn(spawn_agent={"agent": "reviewer", "task": "Review."}), turn("No fault."), turn("It is fine."))
    person.say("Have it reviewed")
    person.see("It is fine.")
    assert "are not used" not in person.look()
    person.leave()
