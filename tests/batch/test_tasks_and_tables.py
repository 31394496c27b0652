"""Files around a batch: tasks as lines and as tables, a sample of them, rows as tables, and the report."""

import csv
import re
from decimal import Decimal
from pathlib import Path

import pytest
from pyarrow import parquet

from treadle import ConfigurationError
from treadle.batch import BatchRow, BatchTask, read_rows, read_tasks, report_page, sample_tasks, summarize, write_table


def _written(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def test_a_line_is_a_text_a_json_text_or_an_object_and_the_rest_of_it_is_metadata(tmp_path: Path) -> None:
    path = _written(
        tmp_path, "t.jsonl", 'Say hi.\n\n"Say \\"ho\\"."\n{"id": "x", "task": "Add.", "expected": 3, "level": [1]}\n'
    )

    assert list(read_tasks(path)) == [
        BatchTask(id="1", task="Say hi."),
        BatchTask(id="3", task='Say "ho".'),
        BatchTask(id="x", task="Add.", expected=3, metadata={"level": [1]}),
    ]


def test_a_row_of_a_table_is_a_task_and_its_other_columns_are_metadata(tmp_path: Path) -> None:
    path = _written(tmp_path, "t.csv", 'task,expected,level\n"Add 1,\nand 2.",3,easy\nSay hi.,,\n')

    assert list(read_tasks(path)) == [
        BatchTask(id="1", task="Add 1,\nand 2.", expected="3", metadata={"level": "easy"}),
        BatchTask(id="2", task="Say hi."),
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.jsonl", '{"task": "x"\n', r"t.jsonl, line 1 begins like JSON and is not valid JSON"),
        ("t.jsonl", 'ok\n{"id": 3}\n', r"t.jsonl, line 2: A task needs the field `task`"),
        ("t.jsonl", '{"id": "a\\u0007", "task": "x"}\n', r"line 1: BatchTask\(id=...\) has 1 to 200 printable"),
        (
            "t.jsonl",
            '{"id": "a", "task": "x"}\n\n{"id": "a", "task": "y"}\n',
            "line 3: a task before it has the id 'a' too",
        ),
        ("t.jsonl", '{"id": 2, "task": "x"}\nSay hi.\n', "line 2: a task before it has the id '2' too"),
        ("t.csv", "id,task,level,level\n1,x,a,b\n", "t.csv has two columns 'level'. Rename one"),
        (
            "t.csv",
            "id,task,task\n1,x,y\n",
            "needs one column `task` in its first line; its columns are: id, task, task",
        ),
        ("t.csv", "question\nx\n", "needs one column `task` in its first line; its columns are: question"),
        ("t.csv", "task,id\nx\n", "t.csv, row 1 has another number of fields"),
        ("t.csv", 'task\n"x\n', "t.csv, line 1 is not valid CSV"),
        ("t.csv", "", "its columns are: none"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, name: str, content: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        list(read_tasks(_written(tmp_path, name, content)))


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\xff")

    with pytest.raises(ConfigurationError, match="it is not UTF-8"):
        list(read_tasks(tmp_path / "t.jsonl"))
    with pytest.raises(ConfigurationError, match="No such file"):
        list(read_tasks(tmp_path / "missing.jsonl"))


def test_a_sample_is_the_same_each_time_and_in_the_order_of_the_tasks() -> None:
    tasks = [BatchTask(id=f"q{n}", task="x") for n in range(100)]

    chosen = sample_tasks(tasks, 10)

    assert len(chosen) == 10
    assert chosen == [task for task in tasks if task in chosen]
    assert {task.id for task in chosen} == {task.id for task in sample_tasks(reversed(tasks), 10)}
    assert sample_tasks(tasks, 1000) == tasks


ROWS = [
    BatchRow(id="a", task="x", status="completed", reason="completed", text="é", cost="0.25", steps=2, seconds=1.5, score=1.0, passed=True,
             tool_failures={"search: timeout": 2}, metadata={"level": "easy"}),
    BatchRow(id="b", task="y", status="stopped", reason="step_limit_reached", output={"n": 1}, steps=9, seconds=4.0, metadata={"n": 7}),
]  # fmt: skip


def _results(folder: Path) -> Path:
    import msgspec

    (folder / "r.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in ROWS))
    return folder / "r.jsonl"


def test_rows_become_a_table_with_a_column_a_field_and_one_a_key_of_the_metadata(tmp_path: Path) -> None:
    results = _results(tmp_path)
    write_table(results, tmp_path / "r.csv")
    write_table(results, tmp_path / "r.parquet")

    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["text"], first["cost"], first["metadata.level"], first["metadata.n"]) == ("é", "0.25", "easy", "")
    assert (second["output"], second["passed"], second["metadata.n"]) == ('{"n": 1}', "", "7")
    table = parquet.read_table(tmp_path / "r.parquet").to_pydict()
    assert table["id"] == ["a", "b"]
    assert table["metadata.n"] == [None, 7]
    assert table["tool_failures"] == ['{"search: timeout": 2}', "{}"]


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"A table ends with .csv or .parquet; got 'r.xlsx'"):
        write_table(_results(tmp_path), tmp_path / "r.xlsx")


def test_a_summary_adds_rows_up_and_reads_as_a_table() -> None:
    found = summarize(ROWS)

    assert (found.tasks, found.completed, found.failed, found.scored, found.passed) == (2, 1, 1, 1, 1)
    assert (found.cost, found.unpriced, found.steps.median, found.steps.most) == (Decimal("0.25"), 1, 2, 9)
    assert str(found).splitlines() == [
        "tasks          2",
        "completed      1 of 2 (50.0 %)",
        "passed         1 of 1 (100.0 %)",
        "cost           $0.2500, and 1 without a known price",
        "tokens         0 in, 0 out",
        "steps          median 2, 95 % 9, most 9",
        "seconds        median 1.5, 95 % 4.0, most 4.0",
        "ended          1 completed, 1 step_limit_reached",
        "tool failures  2 search: timeout",
    ]
    assert str(summarize([])).startswith("tasks          0\n")


def test_the_report_needs_no_network_and_shows_names_as_text() -> None:
    page = report_page([*ROWS, BatchRow(id="c", task="z", status="failed", reason="<b>&")], title="<My batch>")

    assert "&lt;My batch&gt;" in page
    assert "&lt;b&gt;&amp;" in page
    assert "search: timeout" in page
    assert page.count("<section>") == 6
    assert not re.search(r"https?:|<script|src=|@import|url\(", page)
    assert "Nothing to show" in report_page([])


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    assert list(read_rows(_results(tmp_path))) == ROWS
