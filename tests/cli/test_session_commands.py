"""`treadle sessions ...` and what it says, as a person uses it, on a journal of its own."""

from typing import Any

import pytest


def model(treadle: Any, *turns: dict[str, Any]) -> list[str]:
    return ["-m", treadle.script("s.json", list(turns)), "--tools", "paying.py"]


@pytest.fixture
def paid(paying: Any) -> Any:
    """With session s1, that has paid 40 and thanked."""
    turns = {"calls": [{"name": "pay", "arguments": {"amount": 40}, "id": "c1"}]}, {"text": "Paid."}
    paying("run", "--session", "s1", *model(paying, *turns), "--allow", "pay", "Pay 40", code=0)
    return paying


@pytest.mark.row("E08")
def test_explain_gives_seven_answers_as_text_and_as_one_object(paid: Any) -> None:
    said = paid("sessions", "explain", "s1").stdout
    told = paid.json("sessions", "explain", "s1", "--json")

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
def test_a_fork_is_a_session_of_its_own_and_its_parent_stays(paid: Any) -> None:
    child = paid("sessions", "fork", "s1", "--id", "s2").stdout.strip()
    ran = paid("run", "--session", child, *model(paid, {"text": "Hello."}), "Hi")

    shown = {name: paid.json("sessions", "show", name, "--json") for name in ("s1", "s2")}
    assert (child, ran.stdout) == ("s2", "Hello.\n")
    assert (shown["s2"]["parent_id"], len(shown["s2"]["messages"])) == ("s1", 6)
    assert len(shown["s1"]["messages"]) == 4


@pytest.mark.row("Q10")
def test_a_rewind_says_what_it_does_not_undo(paid: Any) -> None:
    paid("sessions", "mark", "s1", "paid")
    paid("run", "--session", "s1", *model(paid, {"text": "Bye."}), "Thanks")

    back = paid("sessions", "rewind", "s1", "paid")
    further = paid.json("sessions", "rewind", "s1", "2", "--json")

    assert "2 messages are hidden from the model" in back.stderr
    assert [one["tool"] for one in further["effects"]] == ["pay"]
    assert [message["role"] for message in paid.json("sessions", "show", "s1", "--json")["messages"]] == [
        "user",
        "user",
    ]
    assert "no mark 'gone'" in paid("sessions", "rewind", "s1", "gone", code=2).stderr


@pytest.mark.row("Q11")
def test_an_exported_session_is_imported_whole_into_another_journal(paid: Any) -> None:
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
def test_a_file_that_is_no_export_is_refused_and_nothing_is_imported(treadle: Any, content: str) -> None:
    (treadle.folder / "x.jsonl").write_text(content)

    refused = treadle("sessions", "import", "x.jsonl", code=2)

    assert "x.jsonl" in refused.stderr
    assert "Nothing was imported" in refused.stderr
    assert treadle.json("sessions", "--json") == []
    assert "cannot be read" in treadle("sessions", "import", "missing.jsonl", code=2).stderr
    assert "cannot be read" in treadle("sessions", "import", ".", code=2).stderr


def test_a_deleted_session_is_gone_from_the_list_and_takes_no_task(paid: Any) -> None:
    paid("sessions", "fork", "s1", "--id", "s2")
    assert "'nope'" in paid("sessions", "rm", "s1", "nope", code=2).stderr
    assert {one["id"] for one in paid.json("sessions", "--json")} == {"s1", "s2"}

    paid("sessions", "rm", "s1")
    paid("sessions", "rm", "s2", "--purge")

    assert paid.json("sessions", "--json") == []
    assert {one["id"]: one["status"] for one in paid.json("sessions", "--all", "--json")} == {
        "s1": "deleted",
        "s2": "deleted",
    }
    assert len(paid.json("sessions", "show", "s1", "--json")["messages"]) == 4
    assert paid.json("sessions", "show", "s2", "--json")["messages"] == []
    for name in ("s1", "s2"):
        assert "deleted" in paid("run", "--session", name, *model(paid, {"text": "x"}), "Hi", code=2).stderr
    assert "no session yet" in paid("resume", "--last", code=2).stderr
    assert "Name sessions" in paid("sessions", "rm", code=2).stderr


def test_sessions_that_nobody_touched_for_long_are_let_go(paid: Any) -> None:
    assert paid.json("sessions", "rm", "--older-than", "1", "--json") == []
    assert [one["id"] for one in paid.json("sessions", "rm", "--older-than", "0", "--purge", "--json")] == ["s1"]
    assert paid.json("sessions", "rm", "--older-than", "0", "--purge", "--json") == []


@pytest.mark.row("B14")
def test_a_deadline_that_has_passed_asks_nothing(paying: Any) -> None:
    never = model(paying, {"text": "never"})

    report = paying.json("run", *never, "--deadline", "2020-01-01T00:00:00Z", "Hi", "--json", code=10)

    assert (report["reason"], report["budget"], report["steps"]) == ("budget_exceeded", "max_wall_time_seconds", 0)
    assert "write a time such as" in paying("run", *never, "--deadline", "soon", "Hi", code=2).stderr


@pytest.mark.row("B15")
def test_a_stopped_run_goes_on_with_a_larger_budget_and_does_nothing_again(paying: Any) -> None:
    pays = [{"calls": [{"name": "pay", "arguments": {"amount": amount}}]} for amount in range(1, 6)]
    flags = [*model(paying, *pays, {"text": "All paid."}), "--allow", "pay", "--on-limit", "report"]

    paying("run", "--session", "s1", *flags, "--max-tool-calls", "3", "Pay five", code=10)
    ran = paying("resume", "s1", *flags, "--max-tool-calls", "10")

    assert ran.stdout == "All paid.\n"
    assert (paying.folder / "paid.txt").read_text().split() == ["1", "2", "3", "4", "5"]
