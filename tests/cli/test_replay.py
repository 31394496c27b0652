"""`treadle replay` and `treadle config schema`: what was recorded is shown, what a file may hold is published."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

PROJECT = Path(__file__).parents[2]


def test_a_recorded_session_is_shown_without_running_anything(paying: Any):
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--allow", "pay", "Pay the invoice.", code=0)
    (paying.folder / "pay.json").unlink()
    (paying.folder / "paying.py").unlink()

    played = paying("replay", "--last", code=0)

    assert played.stdout == "It is done.\n"
    assert "> Pay the invoice." in played.stderr
    assert "[runs] pay  amount: 40" in played.stderr
    assert (paying.folder / "paid.txt").read_text() == "40\n"
    events = [json.loads(line) for line in paying("replay", "--last", "--json", code=0).stdout.splitlines()]
    assert events[-1]["type"] == "run.finished"


def test_an_exported_file_is_shown_and_what_is_not_one_is_refused(paying: Any):
    report = paying.json(
        "run", "-m", "script:pay.json", "--tools", "paying.py", "--allow", "pay", "--json", "Pay.", code=0
    )
    paying("sessions", "export", report["session_id"], "s.jsonl", code=0)
    paying("sessions", "rm", report["session_id"], "--purge", code=0)

    assert paying("replay", "s.jsonl", "--speed", "1000", code=0).stdout == "It is done.\n"
    (paying.folder / "s.jsonl").write_text("nothing\n")
    assert "is not an exported session" in paying("replay", "s.jsonl", code=2).stderr
    assert "cannot be read" in paying("replay", "none.jsonl", code=2).stderr
    assert "Name one" in paying("replay", code=2).stderr


@pytest.fixture
def validator(treadle: Any) -> Any:
    return jsonschema_rs.Draft202012Validator(treadle.json("config", "schema", code=0))


def test_the_schema_takes_what_the_page_of_configuration_shows(validator: Any):
    page = (PROJECT / "docs" / "use" / "configuration.md").read_text(encoding="utf-8")
    samples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)

    assert len(samples) >= 2
    for sample in samples:
        assert list(validator.iter_errors(tomllib.loads(sample))) == []


@pytest.mark.parametrize(
    "text",
    [
        "modle = 'x'",
        "on_limit = 'stop'",
        "approval_seconds = 0",
        "[budget]\nmax_tool_cals = 3",
        "[budget]\nmax_tool_calls = 'many'",
        "[budget]\nmax_tool_calls = -1",
        "[guards]\nrepeats = 'often'",
        "[price]\ninput = 1",
        "[facts]\ninputs = ['smell']",
        "tools = 'grep'",
        "[profiles.qa.budget]\nmax_turns = 3",
        "[redaction]\nenabled = 'no'",
    ],
)
def test_the_schema_refuses_what_the_program_refuses(treadle: Any, validator: Any, text: str):
    (treadle.folder / "c.toml").write_text(text)

    assert list(validator.iter_errors(tomllib.loads(text)))
    refused = treadle("config", "show", "--config", "c.toml", code=2).stderr
    assert re.search(r"c\.toml, line \d+: ", refused)


def test_the_lines_of_an_answer_stay_lines_where_a_session_is_shown_again(treadle):
    treadle("run", "-m", treadle.script("s.json", [{"text": "One.\n\tTwo."}]), "--session", "s", "x", code=0)

    for words in (["replay", "s"], ["sessions", "watch", "s"]):
        assert treadle(*words, code=0).stdout == "One.\n\tTwo.\n"


def test_the_answer_of_a_task_that_was_waited_for_has_its_lines(treadle):
    worker = treadle.start("worker", "-m", treadle.script("s.json", [{"text": "One.\n\tTwo."}]))
    try:
        assert treadle("submit", "x", "--wait", code=0).stdout == "One.\n\tTwo.\n"
    finally:
        worker.terminate()
        worker.communicate(timeout=60)
