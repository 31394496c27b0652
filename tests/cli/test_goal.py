"""`treadle goal FILE`: one goal on the command line, held to its validation, and gone on with by the same command."""

import pytest

from treadle.testing import MockProvider, Turn

GOAL = """
objective = "The folder holds a file named ready.txt"
done_condition = "test finds a file named ready.txt"
validation = "test -e ready.txt || { printf 'not there\\\\nyet'; exit 1; }"
checkpoint_every = 5
plan = ["Make the file"]

[budget]
max_model_turns = 10

[stop_rules]
false_claims = 2
"""


@pytest.mark.row("G06")
def test_a_claim_is_not_believed_and_the_same_command_goes_on(treadle):
    (treadle.folder / "goal.toml").write_text(GOAL, encoding="utf-8")
    lies = treadle.script("lies.json", [{"text": "Done."}] * 5)

    ran = treadle("goal", "goal.toml", "-m", lies)
    assert ran.returncode == 13
    assert "The goal is blocked" in ran.stderr
    assert ran.stderr.count("[goal] The validation failed with exit code 1.\n  | not there\n  | yet\n") == 2

    (treadle.folder / "ready.txt").write_text("", encoding="utf-8")
    true = treadle.script("true.json", [{"text": "Now it is."}])
    ran = treadle("goal", "goal.toml", "-m", true, code=0)
    assert "The goal is reached" in ran.stderr
    assert "The goal is reached" in treadle("goal", "goal.toml", "-m", true, code=0).stderr


def test_the_options_of_the_model_hold_for_a_goal_too(treadle):
    (treadle.folder / "goal.toml").write_text(GOAL, encoding="utf-8")
    (treadle.folder / "ready.txt").write_text("", encoding="utf-8")
    with MockProvider([Turn(text="It is.")]).in_thread() as provider:
        treadle("goal", "goal.toml", *treadle.served(provider), "-o", "temperature=0", code=0)
    assert provider.requests[0].body["temperature"] == 0


@pytest.mark.row("G03")
def test_a_goal_without_a_part_is_a_wrong_configuration(treadle):
    (treadle.folder / "goal.toml").write_text(GOAL.replace("[stop_rules]\nfalse_claims = 2\n", ""), encoding="utf-8")

    ran = treadle("goal", "goal.toml", "-m", "demo", code=2)

    assert "stop_rules" in ran.stderr


def test_what_a_goal_forbids_stays_forbidden_when_its_run_is_resumed(treadle):
    (treadle.folder / "goal.toml").write_text(f'forbidden_actions = ["shell(rm:*)"]\n{GOAL}', encoding="utf-8")
    (treadle.folder / "kept.txt").write_text("", encoding="utf-8")
    rm = {"calls": [{"name": "shell", "arguments": {"command": "rm kept.txt"}}]}
    write = {"calls": [{"name": "write", "arguments": {"path": "notes.txt", "content": "x"}}]}
    script = treadle.script("script.json", [write, rm, {"text": "Done."}])
    tools = ("--tools", "read,write,shell", "--allow", "shell")

    paused = treadle("goal", "goal.toml", "-m", script, *tools, code=11)
    approval = treadle.json("approvals", "--json")[0]["id"]
    allowed = treadle("approve", approval, code=0)
    assert f"Resume with: treadle goal {treadle.folder / 'goal.toml'}" in allowed.stderr
    assert f"then: treadle goal {treadle.folder / 'goal.toml'} --tools" in paused.stderr

    refused = treadle("resume", "--last", *tools, code=2)
    assert f"To continue: treadle goal {treadle.folder / 'goal.toml'}" in refused.stderr

    lost = treadle("goal", "goal.toml", "--tools", "read", code=2)
    assert "An unfinished call needs the tool write" in lost.stderr
    with_rules = treadle("goal", "goal.toml", *tools[2:])  # the rest is remembered
    assert "unknown_tool" not in with_rules.stderr
    assert (treadle.folder / "notes.txt").exists()
    assert (treadle.folder / "kept.txt").exists()


def test_the_mode_and_the_limits_of_the_command_line_hold_for_a_goal(treadle):
    (treadle.folder / "goal.toml").write_text(GOAL, encoding="utf-8")
    write = {"calls": [{"name": "write", "arguments": {"path": "ready.txt", "content": "x"}}]}
    script = treadle.script("script.json", [write] * 5)

    ran = treadle("goal", "goal.toml", "-m", script, "--tools", "write", "--mode", "plan", "--max-model-turns", "1")

    assert ran.returncode == 10
    assert "1 of 1" in ran.stderr
    assert not (treadle.folder / "ready.txt").exists()


def test_a_goal_continues_from_any_folder_with_what_its_session_remembers(treadle):
    (treadle.folder / "goal.toml").write_text(GOAL, encoding="utf-8")
    (treadle.folder / "sub").mkdir()
    write = {"calls": [{"name": "write", "arguments": {"path": "ready.txt", "content": "x"}}]}
    script = treadle.script("script.json", [write, {"text": "Done."}])
    treadle("goal", "sub/../goal.toml", "-m", script, "--tools", "write", code=11)
    approved = treadle("approve", "--last", code=0).stderr

    words = approved.strip().rpartition("Resume with: treadle ")[2].split()
    assert words == ["goal", str(treadle.folder / "goal.toml")]
    treadle.folder = treadle.folder / "sub"
    assert "The goal is reached" in treadle(*words, code=0).stderr


def test_a_goal_file_that_cannot_be_read_is_named_in_a_sentence(treadle):
    told = treadle("goal", "../nope.toml", "-m", "demo", code=2).stderr
    assert told == "treadle: The goal file '../nope.toml' cannot be read: No such file or directory.\n"
