"""Evals by Inspect's own program, and their logs by its own reader."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = Path(__file__).with_name("inspect_tasks.py")


class Evaluated:
    def __init__(self, folder, logs):
        self.folder = folder
        self.logs = logs

    def sample(self, task):
        (sample,) = self.logs[task].samples
        return sample


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    shutil.copy(TASKS, folder)  # Inspect takes relative paths
    known = {name: value for name, value in os.environ.items() if not name.startswith("INSPECT_")}
    ran = subprocess.run(
        [sys.executable, "-m", "inspect_ai", "eval", TASKS.name, "--display", "plain", "--log-dir", "logs"],
        cwd=folder,
        env={
            **known,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert "Warning" not in ran.stdout, ran.stdout
    from inspect_ai.log import list_eval_logs, read_eval_log

    logs = [read_eval_log(one) for one in list_eval_logs(str(folder / "logs"))]
    return Evaluated(folder, {log.eval.task: log for log in logs})


def infos(sample):
    return [event.data["type"] for event in sample.events if event.event == "info" and event.source == "treadle"]


def test_an_agent_is_evaluated_with_inspects_model_and_scored(evaluated):
    log = evaluated.logs["shop"]

    assert log.status == "success"
    assert {one.name: one.metrics["accuracy"].value for one in log.results.scores if one.name == "includes"} == {
        "includes": 1.0
    }
    sample = evaluated.sample("shop")
    assert sample.output.completion == "It is paid."
    assert [message.role for message in sample.messages][-5:] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert (evaluated.folder / "paid.txt").read_text().splitlines().count("7") == 1


def test_exact_checks_are_scores_with_their_reasons(evaluated):
    score = evaluated.sample("shop").scores["exact"]

    assert score.value == {"called pay(invoice=7)": 1, "effects done: pay": 1, "never called refund": 1, "no doubt": 1}
    assert "One such call was carried out." in score.explanation


def test_the_transcript_has_model_events_tool_events_and_treadles_own(evaluated):
    sample = evaluated.sample("shop")

    assert sum(event.event == "model" for event in sample.events) == 3
    found = [event for event in sample.events if event.event == "tool"]
    assert [(event.function, event.arguments, event.error is None) for event in found] == [
        ("pay", {"invoice": 700}, False),
        ("pay", {"invoice": 7}, True),
    ]
    assert found[1].result == "Invoice 7 is paid."
    assert infos(sample) == ["run.started", "call.decided", "tool.attempt_failed", "call.decided", "run.finished"]


def test_the_model_reads_instructions_the_samples_history_and_results(evaluated):
    seen = (evaluated.folder / "seen.txt").read_text().splitlines()

    assert "system: You pay." in seen
    assert "system: Today is Monday." in seen
    assert "assistant: I am." in seen
    assert any("There is no such invoice." in line for line in seen)
    assert "tool: pay ['invoice']" in seen


def test_a_limit_of_inspect_ends_the_sample_as_limit(evaluated):
    sample = evaluated.sample("limited")

    assert evaluated.logs["limited"].status == "success"
    assert sample.limit.type == "token"
    assert sample.error is None


def test_what_was_done_before_a_limit_is_in_the_log_and_scored(evaluated):
    late = evaluated.sample("late")

    assert (late.limit.type, late.error) == ("time", None)
    assert late.scores["exact"].value == {"effects done: pay": 1}
    assert [message.role for message in late.messages][:4] == ["user", "assistant", "tool", "assistant"]
    assert late.messages[2].text == "Invoice 6 is paid."


def test_a_tool_whose_parameters_have_no_description_works_in_inspects_own_loop(evaluated):
    sample = evaluated.sample("undescribed")

    assert [message.text for message in sample.messages if message.role == "tool"] == ["5"]


def test_tools_work_in_inspects_own_loop(evaluated):
    sample = evaluated.sample("tools")

    results = [message for message in sample.messages if message.role == "tool"]
    assert "There is no such invoice." in results[0].error.message
    assert results[1].text == "Invoice 9 is paid."
    assert sample.scores["includes"].value == "C"
    assert (evaluated.folder / "paid.txt").read_text().splitlines().count("9") == 1
