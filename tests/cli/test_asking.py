"""What a task takes beside its words, what a denial says, and what a shell completes."""

import base64
import json
import shutil
import subprocess

import pytest

from treadle.testing import MockProvider, Turn

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


def test_options_of_the_model_and_instructions_reach_the_request(treadle):
    (treadle.folder / "system.md").write_text("Answer in rhymes.\n")
    with MockProvider([Turn(text="Yes."), Turn(text="No.")]).in_thread() as provider:
        flags = ["-o", "temperature=0", "-o", "stop=END", "--session", "s1"]
        treadle("run", *treadle.served(provider), *flags, "--system", "Be brief.", "Hello", code=0)
        treadle("run", *treadle.served(provider), "--system", "@system.md", "Again", code=0)
    first, second = (request.body for request in provider.requests)
    assert (first["temperature"], first["stop"]) == (0, "END")
    assert first["messages"][0]["role"] == "system"
    assert first["messages"][0]["content"].startswith("Be brief.\n\n# Where you work")
    assert second["messages"][0]["content"].startswith("Answer in rhymes.\n")
    assert "temperature" not in second


def test_a_resumed_session_has_its_options_and_instructions_again(paying):
    with MockProvider([Turn(calls=(scripted("pay", amount=1),)), Turn(text="Done.")]).in_thread() as provider:
        flags = ["-o", "temperature=0", "--system", "Be brief.", "--tools", "paying.py", "--session", "s1"]
        paying("run", *paying.served(provider), *flags, "Pay", code=11)
        paying("approve", "--last", code=0)
        paying("resume", "s1", "--base-url", provider.base_url, code=0)
    assert [request.body["temperature"] for request in provider.requests] == [0, 0]
    assert provider.requests[1].body["messages"][0]["content"].startswith("Be brief.\n\n# Where you work")


def scripted(name, **arguments):
    from treadle.testing import call

    return call(name, **arguments)


@pytest.mark.parametrize("flag", ["--schema", "--json-schema"])
def test_an_answer_is_held_to_a_schema(treadle, flag):
    (treadle.folder / "answer.json").write_text(json.dumps(SCHEMA))
    with MockProvider([Turn(text="no json"), Turn(text='{"total": 3}')]).in_thread() as provider:
        report = treadle.json("run", "--json", *treadle.served(provider), flag, "answer.json", "Add up", code=0)
    assert report["output"] == {"total": 3}
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--schema", "none.json"], "none.json cannot be read"),
        (["--schema", "list.json"], "must hold one JSON object"),
        (["--system", "@none.md"], "none.md cannot be read"),
        (["--system", " "], "--system is empty"),
        (["-o", "temperature"], "takes NAME=VALUE"),
        (["-a", "none.txt"], "none.txt cannot be attached"),
        (["-c", "--session", "s1"], "Name one session"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_asked(treadle, flags, words):
    (treadle.folder / "list.json").write_text("[1]")
    ran = treadle("run", "-m", "demo", *flags, "Go", code=2)
    assert words in ran.stderr


def test_files_go_along_with_a_task(treadle):
    (treadle.folder / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\nxx")
    with MockProvider([Turn(text="Seen.")]).in_thread() as provider:
        treadle("run", *treadle.served(provider), "-a", "a.txt", "-a", "dot.png", "What is this?", code=0)
    content = provider.requests[0].body["messages"][-1]["content"]
    assert content[0]["text"] == 'What is this?\n\n# File "a.txt"\n\none error\n'
    assert content[1]["image_url"]["url"].endswith(base64.b64encode(b"\x89PNG\r\n\x1a\nxx").decode())


def test_the_last_session_of_this_folder_is_continued_with_its_own_model(treadle):
    script = treadle.script("s.json", [{"text": "One."}, {"text": "Two."}])
    for name in ("f1", "f2", "f3"):
        (treadle.folder / name).mkdir()
    for name in ("f1", "f2"):
        treadle("run", "-m", script, "-C", name, "--session", name, "First", code=0)
    ran = treadle("run", "-C", "f1", "-c", "Second", code=0)
    assert "session: f1" in ran.stderr
    assert "folder" not in ran.stderr
    assert len(treadle.json("sessions", "show", "f1", "--json")["messages"]) == 4
    none = treadle("run", "-C", "f3", "-c", "Second", code=2).stderr
    assert "works in the folder" in none
    assert "--session f1 continues it here" in none


def test_a_session_by_its_id_continues_with_its_own_model_and_a_configured_one_is_told(treadle):
    script = treadle.script("s.json", [{"text": "One."}, {"text": "Two."}])
    treadle("run", "-m", script, "--session", "s1", "First", code=0)
    treadle("run", "--session", "s1", "Second", code=0)
    told = treadle("run", "--session", "s1", "Third", code=0, TREADLE_MODEL="demo").stderr
    assert "session s1 used the model script:" in told
    assert "now it uses demo, as configured" in told
    assert "No model is named" in treadle("run", "--session", "new", "First", code=2).stderr


def test_a_session_continues_at_the_server_of_its_own_model(treadle):
    with MockProvider([Turn(text="One."), Turn(text="Two.")]).in_thread() as provider:
        treadle("run", *treadle.served(provider), "--session", "s1", "First", code=0)
        assert treadle("run", "-c", "Second", code=0).stdout == "Two.\n"


def test_to_continue_nothing_says_what_to_do(treadle):
    assert "`treadle run`" in treadle("run", "-m", "demo", "--last", "Go", code=2).stderr


@pytest.mark.parametrize("form", [[], ["--json"], ["-q"]])
def test_denials_are_told_in_every_form(paying, form):
    ran = paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--deny", "pay", *form, "Pay", code=0)
    assert "denied: pay (deny pay): A rule of this session denies it." in ran.stderr


def test_without_a_model_three_ways_are_named(treadle):
    ran = treadle("run", "Go", code=2)
    assert all(way in ran.stderr for way in ("-m demo", "ollama:NAME", "OPENAI_API_KEY", "TREADLE_MODEL"))


def test_the_doctor_says_the_one_next_thing_to_do(treadle):
    *_, last = treadle("doctor").stdout.splitlines()
    assert last.startswith("next: ")
    assert treadle.json("doctor", "--json")["next"] == last.removeprefix("next: ")
    assert treadle.json("doctor", "--json", TREADLE_MODEL="demo")["next"] == "treadle, in your project folder"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("treadle res", ["resume", "resolve"]),
        ("treadle run --sch", ["--schema"]),
        ("treadle run --mode p", ["plan"]),
        ("treadle run --tools sh", ["shell"]),
        ("treadle run -m dem", ["demo"]),
        ("treadle resume s", ["s1"]),
        ("treadle sessions sh", ["show"]),
        ("treadle sessions show s", ["s1"]),
        ("treadle run 'open quote", []),
    ],
)
def test_words_of_a_line_are_completed(treadle, line, expected):
    treadle("run", "-m", treadle.script("s.json", [{"text": "One."}]), "--session", "s1", "First", code=0)
    assert treadle("completion", "words", "--", line, code=0).stdout.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_valid(treadle, shell):
    script = treadle("completion", shell, code=0).stdout
    assert "treadle completion words" in script
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script.encode(), capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_bash_completes_a_model_with_a_colon(treadle):
    script = treadle("completion", "bash", code=0).stdout
    (treadle.folder / "treadle").write_text(f'#!/bin/sh\nexec {" ".join(treadle.command())} "$@"\n')
    (treadle.folder / "treadle").chmod(0o755)
    line = "treadle run -m anthropic:claude-opus-4-"
    asked = f"{script}\nCOMP_LINE='{line}' COMP_POINT={len(line)}; _treadle; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    environment = {**treadle.environment, "PATH": f"{treadle.folder}:{treadle.environment['PATH']}"}
    ran = subprocess.run(["bash", "-c", asked], env=environment, cwd=treadle.folder, capture_output=True, text=True)
    assert ran.stdout.split()
    assert all(one.startswith("claude-opus-4-") for one in ran.stdout.split())
