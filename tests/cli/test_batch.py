"""`treadle batch` as a person uses it: tasks in, rows, a table and a report out; and what it says about mistakes."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from treadle.batch import read_rows

AGENT = Path(__file__).with_name("payments.py")
TASKS = '{"id": "a", "task": "invoice 1", "expected": "invoice 1 is done"}\ninvoice 2\n{"id": "c", "task": "invoice 3", "expected": "no"}\n'


@pytest.fixture
def shop(treadle: Any) -> Any:
    """With an agent that pays, and three tasks."""
    shutil.copy(AGENT, treadle.folder / "payments.py")
    (treadle.folder / "tasks.jsonl").write_text(TASKS)
    treadle.environment["LEDGER"] = str(treadle.folder / "ledger.txt")
    return treadle


_BATCH = ("batch", "tasks.jsonl", "--agent", "payments.py")


def test_tasks_become_rows_a_table_of_text_and_a_report(shop: Any) -> None:
    done = shop(*_BATCH, "-o", "out/results.jsonl", code=0)

    assert done.stdout.startswith("tasks          3\ncompleted      3 of 3 (100.0 %)\npassed         1 of 2 (50.0 %)\n")
    assert {row.id for row in read_rows(shop.folder / "out/results.jsonl")} == {"a", "2", "c"}
    assert "<section>" in (shop.folder / "out/results.html").read_text()
    assert "Rows: out/results.jsonl. Report: out/results.html. Journal: out/results.db" in done.stderr
    assert "3 of 3 (100 %) done, 0 failed, 0 running" in done.stderr


def test_json_prints_the_summary_as_one_object(shop: Any) -> None:
    summary = shop.json(*_BATCH, "-o", "results.jsonl", "--json", "-q", code=0)

    assert (summary["tasks"], summary["completed"], summary["passed"], summary["unfinished"]) == (3, 3, 1, 0)


def test_csv_and_parquet_are_made_of_the_rows_beside_them(shop: Any) -> None:
    shop(*_BATCH, "-o", "results.csv", code=0)
    shop(*_BATCH, "-o", "results.parquet", code=0)

    assert (shop.folder / "results.csv").read_text().startswith("id,repeat,task,status")
    assert (shop.folder / "results.parquet").read_bytes().startswith(b"PAR1")
    assert len((shop.folder / "ledger.txt").read_text().splitlines()) == 3


def test_tasks_come_from_standard_input_and_may_be_limited_or_sampled(shop: Any) -> None:
    one = shop("batch", "-", "--agent", "payments.py", "-o", "one.jsonl", "--limit", "1", stdin=TASKS, code=0)
    shop("batch", "-", "--agent", "payments.py", "-o", "two.jsonl", "--sample", "2", stdin=TASKS, code=0)

    assert one.stderr.startswith("treadle: 1 task, journal one.db.")
    assert [row.id for row in read_rows(shop.folder / "one.jsonl")] == ["a"]
    assert len(list(read_rows(shop.folder / "two.jsonl"))) == 2


def test_a_model_of_the_command_line_needs_no_agent(treadle: Any) -> None:
    (treadle.folder / "tasks.jsonl").write_text('{"id": "sum", "task": "2 + 2?", "expected": "four"}\n')
    model = treadle.script("four.json", [{"text": "It is Four."}])

    treadle("batch", "tasks.jsonl", "-m", model, "--bare", "-o", "r.jsonl", "--score", "contains", code=0)

    assert [(row.text, row.passed) for row in read_rows(treadle.folder / "r.jsonl")] == [("It is Four.", True)]


@pytest.mark.parametrize("source", ["mine.py", "mine:helper"])
def test_the_only_agent_of_a_file_needs_no_name(shop: Any, source: str) -> None:
    (shop.folder / "mine.py").write_text(
        "from treadle import Agent\nfrom treadle.testing import ScriptedModel\nhelper = Agent(ScriptedModel(['hi']))\n"
    )

    shop("batch", "tasks.jsonl", "--agent", source, "-o", "r.jsonl", code=0)

    assert {row.text for row in read_rows(shop.folder / "r.jsonl")} == {"hi"}


def test_two_tasks_with_one_id_are_found_before_anything_runs(shop: Any) -> None:
    with (shop.folder / "tasks.jsonl").open("a") as tasks:
        tasks.write('{"id": "a", "task": "invoice 9"}\n')

    done = shop(*_BATCH, "-o", "r.jsonl", code=2)

    assert "tasks.jsonl, line 4: a task before it has the id 'a' too" in done.stderr
    assert not (shop.folder / "ledger.txt").exists()


def test_rows_of_other_tasks_in_the_results_are_counted_apart(shop: Any) -> None:
    shop(*_BATCH, "-o", "r.jsonl", code=0)
    (shop.folder / "tasks.jsonl").write_text('{"id": "z", "task": "invoice 7"}\n{"id": "a", "task": "invoice 1"}\n')

    done = shop(*_BATCH, "-o", "r.jsonl", code=0)

    assert done.stdout.startswith("tasks          4, 2 of them of other tasks that these results hold\n")
    assert "2 of 2 (100 %) done" in done.stderr


def test_a_score_may_be_a_function_of_a_file(shop: Any) -> None:
    (shop.folder / "rubric.py").write_text("def half(task, row):\n    return 0.5 if task.id == 'a' else 0\n")

    shop(*_BATCH, "-o", "r.jsonl", "--score", "rubric.py:half", code=0)

    assert {row.id: row.score for row in read_rows(shop.folder / "r.jsonl")} == {"a": 0.5, "2": 0.0, "c": 0.0}


def test_a_total_cost_stops_cleanly_and_a_larger_one_continues(shop: Any) -> None:
    stopped = shop(*_BATCH, "-o", "r.jsonl", "--total-cost", "0.0001", code=1)
    assert (
        "--total-cost is used up; a larger one continues. Left: 3 tasks. The same command continues." in stopped.stderr
    )

    shop(*_BATCH, "-o", "r.jsonl", "--total-cost", "5", code=0)


def test_a_signal_lets_the_runs_under_way_end_and_the_same_command_continues(shop: Any) -> None:
    gate = shop.folder / "gate"
    os.mkfifo(gate)
    shop.environment["GATE"] = str(gate)
    process = shop.start(*_BATCH, "-o", "r.jsonl", "--concurrency", "1")
    while b"paid" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    while b"SIGINT received: no further task begins" not in process.stderr.readline():
        pass
    gate.write_text("")
    process.communicate(60)

    assert process.returncode == 1
    del shop.environment["GATE"]
    assert [row.id for row in read_rows(shop.folder / "r.jsonl")] == ["a"]
    shop(*_BATCH, "-o", "r.jsonl", "--concurrency", "1", code=0)
    assert len((shop.folder / "ledger.txt").read_text().splitlines()) == 3


def test_workers_run_the_tasks_and_the_command_collects_their_answers(shop: Any) -> None:
    worker = shop.start("worker", "--agents", "payments.py", "--journal", "fleet.db")
    while b"worker" not in worker.stderr.readline():
        pass
    batch = ("batch", "tasks.jsonl", "--workers", "--agent", "accountant", "--journal", "fleet.db", "-o", "r.jsonl")

    done = shop(*batch, code=0, is_apart=True)
    again = shop(*batch, code=0, is_apart=True)

    assert done.stdout == again.stdout
    assert sorted(row.text for row in read_rows(shop.folder / "r.jsonl")) == [f"invoice {n} is done" for n in (1, 2, 3)]
    worker.send_signal(signal.SIGTERM)
    worker.communicate(60)


def test_what_waits_for_a_person_is_reported_with_the_command_that_lists_it(paying: Any) -> None:
    (paying.folder / "tasks.jsonl").write_text("Pay.\n")

    done = paying("batch", "tasks.jsonl", "-m", "script:pay.json", "--tools", "paying.py", "-o", "r.jsonl", code=0)

    assert "1 waits for a person: treadle approvals --journal r.db; then the same command continues." in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("batch", "tasks.jsonl"), "Name a file for the results: -o results.jsonl"),
        (("batch", "-o", "r.jsonl"), "Name one file of tasks"),
        (
            ("batch", "none.jsonl", "-o", "r.jsonl", "-m", "demo"),
            "The tasks in 'none.jsonl' cannot be read: No such file",
        ),
        (("batch", "empty.jsonl", "-o", "r.jsonl", "-m", "demo"), "There is no task in empty.jsonl"),
        (("batch", "tasks.jsonl", "-o", "r.xlsx"), "results end with .jsonl, .csv or .parquet"),
        (("batch", "tasks.jsonl", "-o", "r.jsonl"), "No model is named"),
        ((*_BATCH, "-o", "r.jsonl", "--score", "nothing"), "--score nothing: name FILE.py:function"),
        ((*_BATCH, "-o", "r.jsonl", "--score", "payments.py:nothing"), "payments.py has no function 'nothing'"),
        ((*_BATCH, "-o", "r.jsonl", "--concurrency", "0"), "a number from 1 to 99999"),
        (("batch", "tasks.jsonl", "-o", "r.jsonl", "--agent", "two.py"), "has several agents (one, two). Name one"),
        (("batch", "tasks.jsonl", "-o", "r.jsonl", "--agent", "none.py"), "--agent none.py holds no agent"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_to_write(shop: Any, words: tuple[str, ...], says: str) -> None:
    (shop.folder / "empty.jsonl").write_text("\n")
    (shop.folder / "none.py").write_text("")
    (shop.folder / "two.py").write_text(
        "from treadle import Agent\none = Agent('demo', name='one')\ntwo = Agent('demo', name='two')\n"
    )

    done = shop(*words, code=2)

    assert says in done.stderr


def test_results_hold_no_secrets(treadle: Any) -> None:
    script = treadle.script("s.json", [{"text": f"The key is sk-{'a' * 48}."}])
    (treadle.folder / "tasks.jsonl").write_text("Key?\n")

    treadle("batch", "tasks.jsonl", "-m", script, "-o", "r.jsonl", code=0)

    (row,) = (json.loads(line) for line in (treadle.folder / "r.jsonl").read_text().splitlines())
    assert "aaaaaaaaaa" not in row["text"]


def test_two_results_are_compared_task_by_task(shop: Any) -> None:
    shop(*_BATCH, "-o", "before.jsonl", code=0)
    shop(*_BATCH, "-o", "after.jsonl", "--score", "contains", code=0)

    found = shop("batch", "--compare", "before.jsonl", "after.jsonl", code=0)

    assert "difference     +0.0 points" in found.stdout
    assert shop.json("batch", "--compare", "before.jsonl", "after.jsonl", "--json", code=0)["pairs"] == 3
    assert "Name two results" in shop("batch", "--compare", "before.jsonl", code=2).stderr
    assert "cannot be read: No such file" in shop("batch", "--compare", "before.jsonl", "none.jsonl", code=2).stderr
