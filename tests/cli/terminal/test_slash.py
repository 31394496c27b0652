"""Each command of a conversation once, and the three signs `!`, `@` and `/`."""

import base64
import json
import os
import subprocess

import pytest

from person import Person, turn
from treadle.testing import MockProvider, Turn

pytestmark = pytest.mark.row("X06")


@pytest.fixture
def chatting(person: Person) -> Person:
    person.talk(turn("The first answer."), turn("The second answer."), say="First question")
    person.see("The first answer.", "step 1 of 50")
    return person


SAYS = {
    "/help": ["/compact", "Shift+Tab", "!COMMAND"],
    "/status": ["session", "folder", "script:script.json", "ask_user, edit", "messages"],
    "/cost": ["Used by the last task:", "model turns    1 of 50"],
    "/context": ["2 messages;", "assistant"],
    "/permissions": ["mode", "allowed in this session"],
    "/mcp": ["No MCP server is configured."],
    "/agents": ["No subagent is defined"],
    "/doctor": ["python", "self-check"],
    "/resume": ["no other session"],
    "/diff": ["there is nothing to compare with"],
    "/nonsense": ["Unknown command /nonsense"],
    "/compact": ["summarized before the next model request"],
}


def test_a_command_says_what_it_knows_and_the_model_hears_nothing(chatting: Person) -> None:
    for command, words in SAYS.items():
        chatting.say(command)
        chatting.see(f"› {command}\n", *words)
    chatting.say("Second question")
    chatting.see("The second answer.")


@pytest.mark.parametrize("name", ["/exit", "/qu"])
def test_exit_leaves(chatting: Person, name: str) -> None:
    chatting.say(name)
    assert f"› {name}\n" in chatting.ends(0)


def test_clear_begins_a_new_session_and_resume_goes_back(chatting: Person) -> None:
    chatting.say("/clear")
    seen = chatting.see("New session", "To go back to the previous one: /resume")
    before = seen.split("To go back to the previous one: /resume ")[1].split()[0]
    chatting.say(f"/resume {before[:10]}")
    chatting.see(
        f"Session {before}: 2 messages. First question", "You: First question The first answer.", without="context 0 "
    )


def test_sessions_are_listed_with_their_folder_where_it_is_another_one(chatting: Person) -> None:
    (chatting.folder / "other").mkdir()
    chatting.leave()
    chatting.start("chat", "-C", "other", *chatting.script(turn("Hello.")), "Say hello")
    chatting.see("Hello.")
    chatting.say("/resume")
    chatting.see("Continue which session?", "First question", f"in {chatting.folder}"[:20])
    chatting.press("esc")
    chatting.see(" ask ─", without="Continue which session?")
    chatting.leave()
    chatting.start("chat", *chatting.script(turn("Hello.")), "-c")
    chatting.see("You: First question", "The first answer.", without="context 0 ")


def test_a_long_answer_is_recalled_by_its_beginning(person: Person) -> None:
    said = "\n".join(f"line {number}" for number in range(1, 21))
    person.start("chat", *person.script(turn(said)), "Count")
    person.see("line 20")
    person.leave()
    person.start("chat", "-c")
    person.see("You: Count", "line 12 ...", without="line 13")


def test_a_session_of_another_folder_is_continued_with_a_word(chatting: Person) -> None:
    (chatting.folder / "other").mkdir()
    chatting.leave()
    chatting.start("chat", "-C", "other", *chatting.script(turn("Hello.")))
    chatting.see(chatting.prompt)
    chatting.say("/resume")
    chatting.see("Continue which session?", "First question")
    chatting.press("enter")
    chatting.see("ran in the folder", "You: First question")


def test_a_thing_is_chosen_with_arrows_by_a_part_of_its_name_or_not_at_all(chatting: Person) -> None:
    chatting.say("/model")
    chatting.see("Which model instead of", "❯  1")
    chatting.press("down")
    chatting.see("❯  2")
    chatting.press("esc")
    chatting.see(" ask ─", without="Which model instead of")
    chatting.say("/model")
    chatting.see("Which model instead of")
    chatting.press("zzz")
    chatting.see("Nothing has this in its name.")
    chatting.press("backspace", "backspace", "backspace", "haiku")
    chatting.see("❯", without="Nothing has this")
    chatting.press("ctrl-c")


def test_rewind_lets_a_message_be_chosen(chatting: Person) -> None:
    chatting.say("/rewind")
    chatting.see("Go back to the point before which message?", "First question")
    chatting.press("1")
    chatting.see("Rewound to the point before: First question", "› First question")


def test_rewind_goes_back_to_before_a_message_and_offers_it_again(chatting: Person) -> None:
    chatting.say("/rewind 1")
    chatting.see("Rewound to the point before: First question", "› First question")
    chatting.press("ctrl-c")
    chatting.say("/context")
    chatting.see("0 messages;")


CHANGING = [
    {"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "by the model"}}]},
    turn("It is written."),
    turn("The second answer."),
]


def test_rewind_offers_the_files_and_shows_how_they_would_change(person: Person) -> None:
    person.start("chat", "--mode", "accept-edits", *person.script(*CHANGING), "Write it")
    person.see("It is written.")
    person.say("/rewind 1")
    person.see("+ by the model", "Go back with what?", "both", "files", "conversation")
    assert (person.folder / "new.txt").exists()
    person.press("esc")
    person.see(" accept-edits ─", without="Go back with what?")
    assert (person.folder / "new.txt").exists()
    person.say("/rewind 1")
    person.see("Go back with what?")
    person.press("1")
    person.see("Rewound to the point before: Write it")
    assert not (person.folder / "new.txt").exists()


def test_rewind_of_both_deletes_what_was_written_and_goes_back(person: Person) -> None:
    person.start("chat", "--mode", "accept-edits", *person.script(*CHANGING), "Write it")
    person.see("It is written.")
    person.say("/rewind 1 both")
    person.see("delete       new.txt", "Rewound to the point before: Write it", without="Not undone")
    assert not (person.folder / "new.txt").exists()


def test_rewind_of_files_alone_tells_the_model(person: Person) -> None:
    person.start("chat", "--mode", "accept-edits", *person.script(*CHANGING), "Write it")
    person.see("It is written.")
    person.say("/rewind 1 files")
    person.see("Files put back:")
    person.say("And now?")
    person.see("The second answer.")
    assert not (person.folder / "new.txt").exists()
    assert "The person has put the files of the folder back" in person.elsewhere("sessions", "show", "--last")


def test_rewind_of_the_conversation_alone_leaves_the_files(person: Person) -> None:
    person.start("chat", "--mode", "accept-edits", *person.script(*CHANGING), "Write it")
    person.see("It is written.")
    person.say("/rewind 1 conversation")
    person.see("Rewound to the point before: Write it", "Not undone: write")
    assert (person.folder / "new.txt").exists()


def test_export_writes_the_session(chatting: Person) -> None:
    chatting.say("/export out.jsonl")
    chatting.see("written to", "secrets removed")
    lines = (chatting.folder / "out.jsonl").read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    chatting.say("/export out.jsonl")
    chatting.see("File exists")


def test_diff_shows_what_differs_from_the_last_commit(person: Person) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(person.folder), *words], check=True)
    (person.folder / "main.py").write_text("retries = 9\n")
    person.talk(turn("Never."), say="/diff")
    person.see("- retries = 3", "+ retries = 9")


def test_diff_starts_nothing_that_the_folder_brings(person: Person) -> None:
    filtered = ["config", "filter.x.clean", f"touch {person.folder}/ran; cat"]
    for words in (["init", "-q"], filtered):
        subprocess.run(["git", "-C", str(person.folder), *words], check=True)
    (person.folder / ".gitattributes").write_text("* filter=x\n")
    person.talk(turn("Never."), say="/diff")
    person.see("Git may run a program that this folder brings", "Run `git diff` yourself")
    assert not (person.folder / "ran").exists()


@pytest.mark.parametrize("variable", ["WAYLAND_DISPLAY", "SSH_CONNECTION"])
def test_the_last_answer_is_copied_by_a_program_or_by_the_terminal(person: Person, variable: str) -> None:
    program = person.folder / "bin" / "wl-copy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncat > copied\n")
    program.chmod(0o700)
    variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", variable: "set"}
    person.talk(turn("**Copy** this."), say="/copy", **variables)
    person.see("There is no answer to copy yet.")
    person.say("Go")
    person.see("step 1 of 50")
    person.say("/copy")
    if variable == "WAYLAND_DISPLAY":
        person.see("The last answer is in the clipboard: 14 characters.")
        assert (person.folder / "copied").read_text() == "**Copy** this."
    else:
        person.see("sent to your terminal for its clipboard")
        assert f"\x1b]52;c;{base64.b64encode(b'**Copy** this.').decode()}\x07" in person.raw


def test_a_theme_is_chosen_for_a_conversation(person: Person) -> None:
    person.talk(turn("See `code` 0."), turn("See `code` 1."), say="First")
    person.see("See code 0.")
    assert "\x1b[36m" in person.raw
    person.say("/theme")
    person.see("Which theme for this conversation?", "for a light background")
    person.press("none", "enter")
    person.see("The theme is now none.")
    person.say("/theme blue")
    person.see("/theme takes dark, light, none; got 'blue'.")
    before = len(person.raw)
    person.say("Second")
    person.see("See code 1.")
    assert "\x1b[36m" not in person.raw[before:]


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_what_the_model_thinks_is_shown_if_a_person_wants_it(person: Person, term: str) -> None:
    turns = [Turn(thinking=f"Thought {n}.", text=f"Answer {n}.") for n in range(3)]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, TERM=term, say="Go")
        assert "Thought 0." not in person.see("Answer 0.")
        person.say("/thinking")
        person.see("is shown from the next message on")
        person.say("Go on")
        person.see("| Thought 1.", "Answer 1.")
        person.say("/thinking")
        person.see("is no longer shown")
        person.say("And on")
        assert "Thought 2." not in person.see("Answer 2.")


def test_subagents_are_listed(person: Person) -> None:
    (person.folder / "clerk.md").write_text("---\ndescription: Files papers.\n---\nFile them.\n")
    person.talk(turn("Never."), flags=["--tools", "clerk.md"], say="/agents")
    person.see("Subagents that the model can call:", "clerk Files papers.")


def test_the_mode_and_the_model_are_changed(chatting: Person) -> None:
    chatting.say("/permissions plan")
    chatting.see(" plan ─")
    chatting.say("/model demo")
    chatting.see("The model is now demo.", "demo · context", " plan ─")
    chatting.say("/model nothing:at-all")
    chatting.see("treadle: ")
    chatting.see("demo · context", " plan ─")


def test_a_command_that_must_wait_says_so_while_a_run_is_under_way(person: Person) -> None:
    person.talk(turn(wait={}), turn("Done."), flags=person.tools(), say="Go")
    person.see(" wait\n")
    person.say("/clear")
    person.see("/clear cannot run during a run")
    person.say("/cost")
    person.see("Used by the last task:")
    person.release()
    person.see("Done.")


def test_a_line_of_shell_runs_and_goes_along_with_the_next_message(person: Person) -> None:
    with MockProvider([Turn(text="I saw it.")]).in_thread() as provider:
        person.talk_to(provider, say="!cat b.txt; exit 3")
        person.see("| fine", "exit code 3")
        person.say("What was that?")
        person.see("I saw it.")
    told = provider.requests[-1].body["messages"][-1]["content"]
    assert told.startswith("What was that?")
    assert "$ cat b.txt; exit 3\nfine\n" in told


def test_a_line_of_shell_is_interrupted(person: Person) -> None:
    person.tools()
    person.talk(turn("Never."), say="!touch begun; cat gate")
    person.wait_for_file("begun")  # before that, there is no program to interrupt
    person.see("running touch begun; cat gate")
    person.press("ctrl-c")
    person.see("Stopping the command.", "Interrupted.", without="running touch")
    person.press("typed")
    person.see("› typed")


def test_a_file_is_attached_and_its_path_completed(person: Person) -> None:
    with MockProvider([Turn(text="I read it.")]).in_thread() as provider:
        person.talk_to(provider)
        person.press("@ma")
        person.press("tab")
        person.see("› @main.py")
        person.press(" what is this?", "enter")
        person.see("I read it.")
    told = provider.requests[-1].body["messages"][-1]["content"]
    assert '# File "main.py"\n\nretries = 3\n' in told


def test_lines_of_a_file_and_the_names_in_a_folder_are_attached(person: Person) -> None:
    (person.folder / "sub").mkdir()
    (person.folder / "sub" / "my file.txt").write_text("1\n2\n3\n4\n")
    (person.folder / "odd:1").write_text("a name with a colon")
    with MockProvider([Turn(text="I read it.")]).in_thread() as provider:
        person.talk_to(provider, say='See @"sub/my file.txt":2-3, @main.py:1. @sub and @odd:1')
        person.see("Attached: sub/my file.txt:2-3, main.py:1, sub, odd:1", "I read it.")
        person.say("And @main.py:7")
        person.see("has only 2 lines: main.py:7 cannot be attached", "› And @main.py:7")
    told = provider.requests[-1].body["messages"][-1]["content"]
    parts = [
        '# File "sub/my file.txt:2-3"\n\n2\n3\n',
        '# File "main.py:1"\n\nretries = 3\n',
        '# Folder "sub"\n\nmy file.txt',
        '# File "odd:1"\n\na name with a colon',
    ]
    assert told.endswith("\n\n" + "\n\n".join(parts))


def test_a_path_is_found_by_its_letters_and_what_git_ignores_is_not(person: Person) -> None:
    subprocess.run(["git", "-C", str(person.folder), "init", "-q"], check=True)
    (person.folder / ".gitignore").write_text("build/\nhome/\n")
    for name in ("src/deep/parser.py", "build/parser.py", "src/my notes.txt"):
        (person.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (person.folder / name).write_text("x")
    person.talk(turn("Never."))
    person.press("see @pars")
    person.see("src/deep/parser.py", without="build/")
    person.press("tab")
    person.see("› see @src/deep/parser.py")
    person.press(" @sdpy", "tab")
    person.see("› see @src/deep/parser.py @src/deep/parser.py")
    person.press(" @notes", "tab")
    person.see('@"src/my notes.txt"')
    person.press(" @build/", "tab")
    person.see("@build/parser.py")


@pytest.mark.parametrize("keys", [["\x07"], ["\x18", "\x05"]])
def test_a_message_is_written_in_the_editor(person: Person, keys: list[str]) -> None:
    editor = person.folder / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i s/draft/final/ "$1"\nprintf \'\\nsecond line\\n\' >> "$1"\n')
    editor.chmod(0o700)
    with MockProvider([Turn(text="I read it.")]).in_thread() as provider:
        person.talk_to(provider, EDITOR=str(editor))
        person.press("a draft", *keys)
        person.see("› a final", "second line")
        person.press("enter")
        person.see("I read it.")
    assert provider.requests[-1].body["messages"][-1]["content"] == "a final\nsecond line"


def test_the_keys_are_those_of_vi_where_readline_has_them(person: Person) -> None:
    (person.folder / ".inputrc").write_text("set editing-mode vi\n")
    with MockProvider([Turn(text="I read it.")]).in_thread() as provider:
        person.talk_to(provider)
        person.press("say wrong")
        person.see("› say wrong")
        person.press("esc")
        person.rest()  # an escape is a key of its own only once nothing follows it
        person.press("bcw", "right")
        person.see("› say right")
        person.press("enter")
        person.see("I read it.")
    assert provider.requests[-1].body["messages"][-1]["content"] == "say right"


def test_commands_are_completed_and_paths_offered_wherever_they_stand(person: Person) -> None:
    person.talk(turn("Never."), say="/rewind 1")
    person.see("There is no message to go back to yet.")
    person.press("/perm")
    person.see("show the mode and the rules")
    person.press("tab")
    person.see("› /permissions")
    person.press("enter")
    person.see("Permissions:")
    person.press("look at @")
    person.see("a.txt", "b.txt", "main.py")
    person.press("m")
    person.see("› look at @m", "main.py", without="b.txt")
    person.press("esc", " me@m")
    person.see("me@m", without="main.py")


def test_what_is_attached_is_said_and_what_is_not_is_too(person: Person) -> None:
    person.talk(turn("Read."), say="Compare @a.txt, @b.txt with @nothere.txt for @ada ")
    seen = person.see("Attached: a.txt, b.txt", "@nothere.txt is not a file here", "Read.", without="@ada is")
    assert "@a.txt is" not in seen


def test_a_session_in_which_nothing_was_said_is_not_kept(person: Person) -> None:
    person.start("chat", "-m", "demo")
    person.see(person.prompt)
    person.say("/clear")
    person.see("New session")
    person.say("/exit")
    person.ends(0)

    assert json.loads(person.elsewhere("sessions", "--json")) == []


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_the_output_of_a_command_is_counted_as_it_was_written_and_its_end_stands_beside_it(
    person: Person, term: str
) -> None:
    fails = turn(shell={"command": "seq 10; exit 3"})
    waits = turn(shell={"command": "sleep 60", "timeout": 0.2})  # sleep: it is ended
    person.talk(fails, waits, turn("Over."), flags=("--mode", "bypass", "--tools", "shell"), say="Go", TERM=term)
    seen = person.see("Over.")
    assert "exit code 3" in seen
    assert f"... {10 - (4 if term != 'dumb' else 5)} more lines" in seen
    assert "It was ended after 0.2 s" in seen
    assert "None" not in seen
