"""Questions of a model to a person, such as those of `ask_user`: every face of the command line shows them and takes the answer."""

from typing import Any

import pytest

QUESTION = {"calls": [{"name": "ask_user", "arguments": {"question": "Which branch?"}}]}


def asking(treadle: Any) -> list[str]:
    return ["-m", treadle.script("ask.json", [QUESTION, {"text": "It is main."}]), "--tools", "ask_user"]


def test_a_question_is_answered_by_a_command_and_the_run_continues(treadle: Any) -> None:
    paused = treadle("run", *asking(treadle), "--session", "s", "Go", code=11)
    assert "ask_user waits for Which branch?" in paused.stderr
    assert 'to answer: treadle answer s "ANSWER"' in paused.stderr
    assert 'treadle answer ID "ANSWER"' in treadle("answer", "s", code=2).stderr
    assert 'treadle answer --last "ANSWER"' in treadle("answer", code=2).stderr
    assert "such as an answer or resume: treadle sessions --status paused" in treadle("approvals", code=0).stderr

    answered = treadle("answer", "s", "main", "--by", "ada", code=0)
    assert "Answered by ada: Which branch? - main. Resume with: treadle resume s" in answered.stderr
    assert "already has its input" in treadle("answer", "s", "next", code=2).stderr
    assert treadle("resume", "s", code=0).stdout == "It is main.\n"
    assert "waits for no answer" in treadle("answer", "s", "next", code=2).stderr
    (result,) = treadle.json("sessions", "show", "s", "--json")["calls"]
    assert "main" in str(result)


def test_a_question_of_an_agent_that_is_called_by_name_is_answered_in_its_callers_session(treadle: Any) -> None:
    (treadle.folder / "scout.md").write_text(
        f"---\ndescription: Asks.\nmodel: {treadle.script('scout.json', [QUESTION, {'text': 'main'}])}\n---\nAsk.\n",
        encoding="utf-8",
    )
    spawn = {"calls": [{"name": "spawn_agent", "id": "a", "arguments": {"agent": "scout", "task": "Ask"}}]}
    model = treadle.script("lead.json", [spawn, {"text": "Done."}])
    treadle("run", "-m", model, "--tools", "ask_user", "--tools", "scout.md", "--session", "s", "Go", code=11)

    treadle("answer", "s", "main", code=0)

    assert treadle("resume", "s", code=0).stdout == "Done.\n"


@pytest.mark.parametrize("value", ['{"branch": "main"}', "12"])
def test_an_answer_is_recorded_as_it_was_typed(treadle: Any, value: str) -> None:
    treadle("run", *asking(treadle), "--session", "s", "Go", code=11)
    assert treadle.json("answer", "s", value, "--json")["answer"] == value


def test_two_questions_are_answered_one_after_the_other(treadle: Any) -> None:
    both = {"calls": [*QUESTION["calls"], {"name": "ask_user", "arguments": {"question": "Which folder?"}}]}
    model = treadle.script("both.json", [both, {"text": "Fine."}])
    treadle("run", "-m", model, "--tools", "ask_user", "--session", "s", "Go", code=11)

    assert "Which branch? - main" in treadle("answer", "s", "main", code=0).stderr
    assert "Which folder? - src" in treadle("answer", "s", "src", code=0).stderr
    assert "already has its input" in treadle("answer", "s", "docs", code=2).stderr
    assert treadle("resume", "s", code=0).stdout == "Fine.\n"
