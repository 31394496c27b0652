"""`treadle goal FILE`: one goal on the command line, held to its validation, and gone on with by the same command."""

import pytest

from treadle.testing import MockProvider, Turn

GOAL = """
objective = "The folder holds a file named ready.txt"
done_condition = "test finds a file named ready.txt"
validation = "test -e ready.txt"
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
