"""`treadle sessions ...` and what it says, as a person uses it: real processes on a journal of their own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import program

PAY = """
from pathlib import Path
from treadle import Tool

async def _pay(arguments, ctx):
    with Path(__file__).with_name("paid.txt").open("a") as file:
        file.write(f"{arguments['amount']}\\n")
    return "paid"

pay = Tool(name="pay", description="Pay.", effect="unsafe", run=_pay,
           parameters={"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]})
"""


class Program:
    """Runs the program in one folder with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("COVERAGE_")}
        self.environment = {**kept, "HOME": str(folder), "TREADLE_HOME": str(folder / "home")}

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        given = None if stdin is None else stdin.encode()
        done = program.run(arguments, folder=self.folder, environment=self.environment, given=given)
        ran = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert ran.returncode == code, (ran.returncode, ran.stdout, ran.stderr)
        assert "Traceback" not in ran.stderr
        return ran

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def script(self, *turns: dict[str, Any]) -> list[str]:
        (self.folder / "s.json").write_text(json.dumps(turns))
        return ["-m", "script:s.json", "--tools", "pay.py"]


@pytest.fixture
def treadle(tmp_path: Path) -> Program:
    (tmp_path / "pay.py").write_text(PAY)
    return Program(tmp_path)


@pytest.fixture
def paid(treadle: Program) -> Program:
    """With session s1, that has paid 40 and thanked."""
    model = treadle.script({"calls": [{"name": "pay", "arguments": {"amount": 40}, "id": "c1"}]}, {"text": "Paid."})
    treadle("run", "--session", "s1", *model, "--allow", "pay", "Pay 40")
    return treadle


@pytest.mark.row("E08")
def test_explain_gives_seven_answers_as_text_and_as_one_object(paid: Program) -> None:
    said = paid("sessions", "explain", "s1").stdout
    told = paid.json("sessions", "explain", "s1")

    titles = [line for line in said.splitlines() if line[:2] in {f"{number}." for number in range(1, 8)}]
    assert [title[:2] for title in titles] == ["1.", "2.", "3.", "4.", "5.", "6.", "7."]
    for words in (
        "pay(amount=40) -> ok",
        "(unsafe) -> ok",
        "pay allow by rule",
        "completed (completed)",
        "may repeat",
    ):
        assert words in said
    assert told["changed"][0]["tool"] == "pay"
    assert told["rerun"] == {
        "can_resume": False,
        "is_safe": False,
        "why": "Running the task again may repeat what was done: pay (ok). Check first.",
    }


@pytest.mark.row("Q09")
def test_a_fork_is_a_session_of_its_own_and_its_parent_stays(paid: Program) -> None:
    child = paid("sessions", "fork", "s1", "--id", "s2").stdout.strip()
    ran = paid("run", "--session", child, *paid.script({"text": "Hello."}), "Hi")

    shown = {name: paid.json("sessions", "show", name) for name in ("s1", "s2")}
    assert (child, ran.stdout) == ("s2", "Hello.\n")
    assert (shown["s2"]["parent_id"], len(shown["s2"]["messages"])) == ("s1", 6)
    assert len(shown["s1"]["messages"]) == 4


@pytest.mark.row("Q10")
def test_a_rewind_says_what_it_does_not_undo(paid: Program) -> None:
    paid("sessions", "mark", "s1", "paid")
    paid("run", "--session", "s1", *paid.script({"text": "Bye."}), "Thanks")

    back = paid("sessions", "rewind", "s1", "paid")
    further = paid.json("sessions", "rewind", "s1", "2")

    assert "2 messages are hidden from the model" in back.stderr
    assert [one["tool"] for one in further["effects"]] == ["pay"]
    assert [message["role"] for message in paid.json("sessions", "show", "s1")["messages"]] == ["user", "user"]
    assert "no mark 'gone'" in paid("sessions", "rewind", "s1", "gone", code=2).stderr


@pytest.mark.row("Q11")
def test_an_exported_session_is_imported_whole_into_another_journal(paid: Program) -> None:
    paid("sessions", "export", "s1", "s1.jsonl")
    imported = paid("sessions", "import", "s1.jsonl", "--journal", "other.db")

    assert imported.stdout == "s1\n"
    assert (paid.folder / "s1.jsonl").stat().st_mode & 0o777 == 0o600
    ours, theirs = (paid("sessions", "show", "s1", "--journal", name) for name in ("home/journal.db", "other.db"))
    assert ours.stdout == theirs.stdout
    assert paid("sessions", "export", "s1").stdout == (paid.folder / "s1.jsonl").read_text()
    assert "already" in paid("sessions", "import", "s1.jsonl", code=2).stderr
    assert "cannot be created" in paid("sessions", "export", "s1", "s1.jsonl", code=2).stderr


@pytest.mark.parametrize("content", ["", "hello\n", '{"type": "run.started"}\n', "[1]\n", "\x00\n", '{"type": 7}\n'])
def test_a_file_that_is_no_export_is_refused_and_nothing_is_imported(treadle: Program, content: str) -> None:
    (treadle.folder / "x.jsonl").write_text(content)

    refused = treadle("sessions", "import", "x.jsonl", code=2)

    assert "x.jsonl" in refused.stderr
    assert "Nothing was imported" in refused.stderr
    assert treadle.json("sessions") == []
    assert "cannot be read" in treadle("sessions", "import", "missing.jsonl", code=2).stderr
    assert "cannot be read" in treadle("sessions", "import", ".", code=2).stderr


def test_a_deleted_session_is_gone_from_the_list_and_takes_no_task(paid: Program) -> None:
    paid("sessions", "fork", "s1", "--id", "s2")
    assert "'nope'" in paid("sessions", "rm", "s1", "nope", code=2).stderr
    assert {one["id"] for one in paid.json("sessions")} == {"s1", "s2"}

    paid("sessions", "rm", "s1")
    paid("sessions", "rm", "s2", "--purge")

    assert paid.json("sessions") == []
    assert {one["id"]: one["status"] for one in paid.json("sessions", "--all")} == {"s1": "deleted", "s2": "deleted"}
    assert len(paid.json("sessions", "show", "s1")["messages"]) == 4
    assert paid.json("sessions", "show", "s2")["messages"] == []
    for name in ("s1", "s2"):
        assert "deleted" in paid("run", "--session", name, *paid.script({"text": "x"}), "Hi", code=2).stderr
    assert "no session yet" in paid("resume", "--last", code=2).stderr
    assert "Name sessions" in paid("sessions", "rm", code=2).stderr


def test_sessions_that_nobody_touched_for_long_are_let_go(paid: Program) -> None:
    assert paid.json("sessions", "rm", "--older-than", "1")["deleted"] == []
    assert paid.json("sessions", "rm", "--older-than", "0", "--purge")["deleted"] == ["s1"]
    assert paid.json("sessions", "rm", "--older-than", "0", "--purge")["deleted"] == []


@pytest.mark.row("B14")
def test_a_deadline_that_has_passed_asks_nothing(treadle: Program) -> None:
    model = treadle.script({"text": "never"})

    report = treadle.json("run", *model, "--deadline", "2020-01-01T00:00:00Z", "Hi", code=10)

    assert (report["reason"], report["budget"], report["steps"]) == ("budget_exceeded", "max_wall_time_seconds", 0)
    assert "write a time such as" in treadle("run", *model, "--deadline", "soon", "Hi", code=2).stderr


@pytest.mark.row("B15")
def test_a_stopped_run_goes_on_with_a_larger_budget_and_does_nothing_again(treadle: Program) -> None:
    pays = [{"calls": [{"name": "pay", "arguments": {"amount": amount}}]} for amount in range(1, 6)]
    model = treadle.script(*pays, {"text": "All paid."})
    flags = [*model, "--allow", "pay", "--on-limit", "report"]

    treadle("run", "--session", "s1", *flags, "--max-tool-calls", "3", "Pay five", code=10)
    ran = treadle("resume", "s1", *flags, "--max-tool-calls", "10")

    assert ran.stdout == "All paid.\n"
    assert (treadle.folder / "paid.txt").read_text().split() == ["1", "2", "3", "4", "5"]
