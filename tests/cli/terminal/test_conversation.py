"""A conversation at a real terminal: what streams, what runs, what is whole, and what each key does to it."""

import json
import shutil
from typing import Any

import pytest

from person import Person, turn
from treadle.testing import MockProvider, Turn, call


def test_a_cost_that_nobody_can_know_is_never_shown_as_zero(person: Person) -> None:
    with MockProvider(["Once."]).in_thread() as provider:
        person.talk_to(provider, say="Go")
        person.see("Once.", "cost unknown", "step 1 of 50")
        person.say("/clear")
        person.see("New session", "step 0 of 50")
    assert "$0" not in person.raw


@pytest.mark.row("X01")
def test_a_response_streams_to_the_screen_before_it_ends(person: Person) -> None:
    turns = [Turn(text="First words of it. And the rest of it.", pieces=4, gate="g", hold_after_pieces=2)]
    with MockProvider(turns).in_thread() as provider:
        person.start("chat", "-m", "openai-chat:mock", "--base-url", provider.base_url)
        person.see(person.prompt, "/help lists commands")
        person.say("Continue")
        seen = person.see("First", "Esc interrupts")
        assert "the rest of it" not in seen
        provider.gate("g").open()
        seen = person.see("And the rest of it.", "step 1 of 50")
    assert seen.count("First words of it.") == 1
    person.leave()


def test_an_answer_that_esc_interrupts_stays_on_the_screen_and_is_in_the_next_request(person: Person) -> None:
    turns = [
        Turn(text="First words of it. And the rest of it.", pieces=4, gate="g", hold_after_pieces=2),
        Turn(text="Fine."),
    ]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, say="Tell me")
        person.see("First", "Esc interrupts")
        person.press("esc")
        seen = person.see("The answer was interrupted here.", "Interrupted.", without="Esc interrupts")
        assert seen.count("First word") == 1
        person.say("Go on")
        person.see("Fine.")
        asked = str(provider.requests[1].body)
    assert "First word" in asked
    assert "the answer above was interrupted before it was complete" in asked
    assert "the rest of it" not in asked
    person.leave()


@pytest.mark.row("X02")
def test_each_call_is_shown_with_its_arguments_its_outcome_and_its_result(person: Person) -> None:
    script = person.script(
        turn("I look.", grep={"pattern": "error"}, read={"path": "missing.txt"}), turn("One **error** found.")
    )
    person.start("chat", *script)
    person.see(person.prompt)
    person.say("Find errors")
    seen = person.see("One error found.")
    lines = [line.strip() for line in seen.splitlines()]
    assert any(line == '● Search "error"' for line in lines)
    assert any(line.startswith("└ ") and " matches in " in line for line in lines)
    assert any(line == "● Read missing.txt  rejected" for line in lines)
    assert "› Find errors" in lines
    person.press("ctrl-o")
    person.see("a.txt:1: one error")


@pytest.mark.row("X03")
def test_a_call_under_way_turns_its_spinner_and_gives_way_to_its_result(person: Person) -> None:
    person.talk(turn("Wait.", wait={}), turn("Waited."), flags=person.tools(), say="Wait for it")
    person.see("⠙ wait")
    person.see("⠸ wait")
    person.release("it came")
    seen = person.see("● wait", "it came", "Waited.", without="⠋")
    assert seen.count("● wait") == 1


def test_a_message_that_is_typed_while_a_call_runs_goes_to_the_model_with_its_result(person: Person) -> None:
    turns = [Turn(calls=(call("wait"),)), Turn(text="As you say.")]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, *person.tools(), say="Wait for it")
        person.see(" wait\n")
        person.say("Be brief")
        person.see("Queued: Be brief")
        person.release()
        person.see("As you say.")
    roles = [message["role"] for message in provider.requests[-1].body["messages"]]
    assert roles[-3:] == ["assistant", "tool", "user"]
    assert provider.requests[-1].body["messages"][-1]["content"] == "Be brief"


def test_a_message_that_no_step_takes_in_is_the_next_task(person: Person) -> None:
    turns = [Turn(text="The first answer.", pieces=3, gate="g", hold_after_pieces=2), Turn(text="The second answer.")]
    with MockProvider(turns).in_thread() as provider:
        person.talk_to(provider, say="First")
        person.see("The")
        person.say("Second")
        person.see("Queued: Second")
        provider.gate("g").open()
        person.see("The first answer.", "› Second", "The second answer.")
    assert [message["role"] for message in provider.requests[-1].body["messages"]][-3:] == ["user", "assistant", "user"]


@pytest.mark.row("X05")
@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
def test_an_interrupt_ends_the_run_and_the_session_goes_on(person: Person, key: str) -> None:
    person.talk(turn(wait={}), turn("Next answer."), flags=person.tools(), say="Wait for it")
    person.see(" wait\n")
    person.press(key)
    stopping = ["Stopping the run. Press Ctrl+C again"] if key == "ctrl-c" else []
    person.see(*stopping, "Interrupted.", "● wait cancelled", without="Esc interrupts")
    person.say("Now this")
    person.see("Next answer.")
    person.leave()


@pytest.mark.row("X05")
def test_ctrl_c_twice_ends_the_program_in_the_middle_of_a_run(person: Person) -> None:
    person.talk(turn(wait={}), turn("Never."), flags=person.tools(), say="Wait for it")
    person.see(" wait\n")
    person.press("ctrl-c", "ctrl-c")
    seen = person.ends(130)
    assert "Continue with: treadle chat --session" in seen


def test_ctrl_c_clears_the_line_and_ends_the_program_twice_at_an_empty_one_alone(person: Person) -> None:
    person.talk(turn("Still here."))
    person.press("one", "ctrl-c", "two", "ctrl-c", "three", "ctrl-j", "four", "shift-enter", "five", "enter")
    seen = person.see("› three\n  four\n  five", "Still here.")
    assert "› one\n" not in seen
    person.leave()
    person.talk(turn("Never."))
    person.press("ctrl-c", "ctrl-c")
    assert "Press Ctrl+C again within two seconds to quit" in person.ends(0)


@pytest.mark.row("X05")
def test_ctrl_c_twice_leaves_though_a_paste_stands_in_the_line_and_the_window_was_changed(person: Person) -> None:
    person.talk(turn("Never."))
    person.press("\x1b[200~one\ntwo\nthree\n\x1b[201~")
    person.see("› one", "three")
    person.resize(20, 5)
    person.press("!")  # drawn anew
    person.see("!")
    person.resize(100, 40)
    person.press("ctrl-c", "ctrl-c")
    person.ends(0)


def test_a_paste_that_the_terminal_does_not_mark_is_one_message(person: Person) -> None:
    lines = [f"line {number}" for number in range(300)]
    with MockProvider([Turn(text="I read it all.")]).in_thread() as provider:
        person.talk_to(provider)
        person.press("".join(f"{line}\r" for line in lines))
        person.see("line 299")
        while not provider.requests:  # an Enter that follows too soon belongs to the paste
            person.press("enter")
            person.rest()
        person.see("I read it all.")
    assert provider.requests[0].body["messages"][-1]["content"].split("\n")[:300] == lines
    assert len(provider.requests) == 1


@pytest.mark.row("E-READ")
@pytest.mark.parametrize("whole", ["x" * 1_000_000, "a line\n" * 200], ids=["one line", "many lines"])
def test_a_long_paste_is_shown_and_recalled_as_a_note_and_sent_whole(person: Person, whole: str) -> None:
    pasted, note = f"\x1b[200~{whole}\x1b[201~", f"[pasted {len(whole):,} characters]"
    with MockProvider([Turn(text="Once."), Turn(text="Twice.")]).in_thread() as provider:
        person.talk_to(provider)
        person.press(pasted)
        person.see(f"› {note}")
        person.press("backspace")
        person.see(person.prompt, without="pasted")
        person.press("Read ", pasted, " and say.", "enter")
        seen = person.see(f"› Read {note} and say.", "Once.")
        assert seen.count(note) == 1
        person.press("up")
        person.see(f"› Read {note} and say.")
        person.press("enter")
        person.see("Twice.")
        person.leave()
    sent = [request.body["messages"][-1]["content"] for request in provider.requests]
    assert sent == [f"Read {whole} and say."] * 2
    assert whole[:200] not in person.raw.replace("\r\n", "\n")
    assert (person.home / "history").stat().st_size < 2000


@pytest.mark.parametrize("ends", ["by itself", "interrupted"])
def test_a_message_that_is_typed_while_a_line_of_shell_runs_is_the_next_task(person: Person, ends: str) -> None:
    with MockProvider([Turn(text="Heard.")]).in_thread() as provider:
        person.talk_to(provider, *person.tools(), say="!touch started; cat gate")
        person.wait_for_file("started")
        person.say("And now?")
        person.see("Queued: And now?")
        if ends == "by itself":
            person.release("the output")
        else:
            person.press("ctrl-c")
        person.see("Heard.")
        person.leave()
    assert "And now?" in provider.requests[-1].body["messages"][-1]["content"]


def test_what_was_entered_in_earlier_conversations_is_recalled_from_a_file_that_stays_small(person: Person) -> None:
    history = person.home / "history"
    person.home.mkdir()
    entries = [f"\n# 2026-11-24\n+question {n}\n" for n in range(60_000)]
    history.write_text("".join([*entries, "\n# 2026-11-24\n", *["+a line\n"] * 200]))
    with MockProvider([Turn(text="Once.")]).in_thread() as provider:
        person.talk_to(provider)
        person.press("up")
        person.see("› [pasted 1,399 characters]")
        person.press("up")
        person.see("› question 59999")
        person.press("\x1b[B", "enter")
        person.see("Once.")
        person.leave()
    assert provider.requests[-1].body["messages"][-1]["content"] == "\n".join(["a line"] * 200)
    assert history.stat().st_size < 510_000
    assert history.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_vanishes_costs_no_message(person: Person) -> None:
    person.talk(turn("Heard."), turn("Heard again."), flags=("--journal", "sessions.db"))
    shutil.rmtree(person.home)
    person.say("Hello")
    person.see("› Hello", "Heard.")


def test_shift_tab_goes_through_the_modes(person: Person) -> None:
    person.start("chat", *person.script(turn("Never.")))
    person.see(" ask ─")
    for mode in ("accept-edits", "auto", "plan", "ask"):
        person.press("shift-tab")
        person.see(f" {mode} ─")


def test_ctrl_r_finds_what_was_entered_in_an_earlier_conversation(person: Person) -> None:
    script = person.script(turn("Heard."), turn("Heard again."))
    person.start("chat", *script)
    person.see(person.prompt)
    person.say("a remarkable question")
    person.see("Heard.")
    person.leave()
    assert (person.home / "history").stat().st_mode & 0o777 == 0o600
    person.start("chat", *script)
    person.see(person.prompt)
    person.press("ctrl-r", "remark")
    person.see("a remarkable question")
    person.press("enter", "enter")
    person.see("› a remarkable question", "Heard")


def test_a_long_result_is_folded_until_ctrl_o_and_the_line_stays_usable(person: Person) -> None:
    lines = [turn(count={"lines": number}) for number in (100_000, 60)]
    person.talk(*lines, turn("Counted."), flags=person.tools(), say="Count")
    seen = person.see("Counted.", "more lines of what was kept (Ctrl+O shows them)", "56 more lines (")
    assert len(seen.splitlines()) < 60
    person.press("still here")
    person.see("› still here")
    person.press("ctrl-o")
    person.see("line 5\n", "line 60")


def test_an_edit_is_asked_about_with_its_change_and_made(person: Person) -> None:
    script = person.script(
        turn(read={"path": "main.py"}),
        turn(edit={"path": "main.py", "old_text": "retries = 3", "new_text": "retries = 5"}),
        turn("Changed."),
    )
    person.start("chat", *script)
    person.see(person.prompt)
    person.say("Five retries")
    person.see("Edit a file: main.py", "1 - retries = 3", "1 + retries = 5", "❯ 1 y yes, once")
    person.press("y")
    person.see("● Edit main.py +1 -1", "Changed.")
    assert (person.folder / "main.py").read_text().startswith("retries = 5")


def test_a_picture_of_the_whole(person: Person) -> None:
    """A snapshot of what a person sees at 80 columns, from the question to the answer."""
    person = Person(person.folder, columns=80, rows=30)
    script = person.script(
        turn("I look.", list_={"path": "."}, read={"path": "b.txt"}), turn("It is *fine*:\n\n- yes\n")
    )
    person.start("chat", *script)
    try:
        person.see(person.prompt)
        person.say("Is b fine?")
        person.see("- yes", "step 2 of 50")
        shown = [line for line in person.shown() if line]
        body = shown[shown.index("› Is b fine?") :]
        assert body[1] == "I look."
        assert body[2] == "● List ."
        took, top, line, bottom, status = body[-5:]
        assert body[-6] == "- yes"
        assert took.startswith("2 steps · ")
        assert (line, set(bottom), top.strip("─")) == ("›", {"─"}, " ask ")
        assert status.lstrip().startswith("script:script.json · context")
        assert all(len(line) <= 80 for line in shown)
    finally:
        person.process.close(0)


def test_the_next_message_answers_a_question_of_the_model(person: Person) -> None:
    script = person.script(turn("I ask.", ask_user={"question": "Which branch?"}), turn("It is main."))
    person.start("chat", *script, "--tools", "ask_user")
    person.see(person.prompt)
    person.say("Go")
    person.see("ask_user waits for Which branch? Type the answer.")
    person.say("main")
    person.see("└ main", "It is main.")


@pytest.mark.parametrize("then", ["answered", "continued"])
def test_an_answer_from_elsewhere_counts_and_the_late_one_returns_to_the_line(person: Person, then: str) -> None:
    start_asking(person)
    person.elsewhere("answer", "s", "main")
    if then == "continued":
        person.elsewhere("resume", "s")
    person.say("next")
    person.see("Not sent: the question was answered from elsewhere.", "› next")
    if then == "answered":
        person.see("└ main", "It is main.", "› next")
    person.press("enter")
    person.see("One more.") if then == "answered" else person.see("It is main.")
    (result,) = sessions_show(person)["calls"]
    assert "main" in str(result)


def test_a_message_after_a_cancellation_from_elsewhere_is_a_task(person: Person) -> None:
    start_asking(person)
    person.elsewhere("cancel", "s")
    person.say("Another task")
    person.see("It is main.", without="Not sent")


def test_an_answer_is_not_lost_where_its_tool_was_left_out(person: Person) -> None:
    start_asking(person)
    person.leave()
    person.start("chat", "-c", "--tools", "read")
    person.see(person.prompt, "Session s")
    person.say("main")
    person.see("An unfinished call needs the tool ask_user", "Pass the same --tools as before.")
    person.leave()
    person.start("chat", "-c", "--tools", "ask_user")
    person.see(person.prompt, "Session s")
    person.say("main")
    person.see("└ main", "It is main.")


def start_asking(person: Person) -> None:
    script = person.script(turn(ask_user={"question": "Which branch?"}), turn("It is main."), turn("One more."))
    person.start("chat", *script, "--tools", "ask_user", "--session", "s")
    person.see(person.prompt)
    person.say("Go")
    person.see("ask_user waits for Which branch? Type the answer.")


def sessions_show(person: Person) -> Any:
    return json.loads(person.elsewhere("sessions", "show", "s", "--json"))


def test_the_command_that_is_printed_at_the_end_continues_and_says_where(person: Person) -> None:
    (person.folder / "other").mkdir()
    person.start("chat", *person.script(turn("One."), turn("Two.")), "First")
    person.see("One.")
    person.leave()
    for arguments in ((), ("-c",), ("--session", person.look().split("treadle chat --session ")[1].split()[0])):
        in_folder = ("-C", "other") if "--session" in arguments else ()
        person.start("chat" if arguments else "-c", *arguments, *in_folder)
        person.see("· script:", "2 messages", *(["now it uses"] if in_folder else []))
        person.leave()


@pytest.mark.row("X05")
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_what_was_entered_during_a_run_that_is_interrupted_is_not_sent(person: Person, term: str) -> None:
    script = person.script(turn(wait={}), turn("Never said."))
    person.start("chat", *script, *person.tools(), TERM=term)
    person.see(person.prompt)
    person.say("Wait for it")
    person.wait_for_file("started")
    person.say("Then this")
    person.see("Queued: Then this") if term == "dumb" else person.see("Queued: Then this", "Esc interrupts")
    person.press("ctrl-c")
    back = "To send it, enter it again: Then this" if term == "dumb" else "› Then this"
    seen = person.see("Interrupted.", "it is in the input line", back)
    assert "Never said." not in seen


@pytest.mark.row("X05")
def test_ctrl_c_clears_the_line_first_while_a_run_is_under_way(person: Person) -> None:
    person.talk(turn(wait={}), turn("Done."), flags=person.tools(), say="Wait for it")
    person.wait_for_file("started")
    person.press("half a sentence")
    person.see("› half a sentence")
    person.press("ctrl-c")
    person.see("Esc interrupts", without="half a sentence")
    person.release()
    assert "Interrupted" not in person.see("● wait", "Done.")
