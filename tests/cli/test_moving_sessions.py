"""A session that is moved from one journal to another by the program: one approval, one effect."""

import re
import shlex
from typing import Any

import pytest


def paid(paying: Any) -> list[str]:
    file = paying.folder / "paid.txt"
    return file.read_text().splitlines() if file.exists() else []


def paused(paying: Any) -> tuple[str, str]:
    report = paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    return report["session_id"], report["approvals"][0]["id"]


@pytest.mark.row("H06", "N14")
def test_a_moved_session_is_answered_and_resumed_where_it_went(paying: Any) -> None:
    session, approval = paused(paying)
    moved = paying("sessions", "move", session[:8], "--to", "other.db", code=0)
    assert "treadle resume" in moved.stderr
    assert "other.db" in moved.stderr

    for words in (["approve", approval], ["resume", session, "--tools", "paying.py"], ["cancel", session]):
        assert "was moved to" in paying(*words, code=2).stderr
    assert paying.json("approvals", "--json") == []
    paying("approve", approval, "--journal", "other.db", code=0)
    paying("resume", "--last", "--journal", "other.db", "--tools", "paying.py", code=0)
    assert len(paid(paying)) == 1


@pytest.mark.row("H06", "N14")
def test_an_export_of_an_open_effect_arrives_suspended(paying: Any) -> None:
    session, approval = paused(paying)
    paying("approve", approval, code=0)
    paying("sessions", "export", session, "s.jsonl", "--exact", code=0)
    told = paying("sessions", "import", "s.jsonl", "--journal", "other.db", code=0)
    assert "treadle sessions activate" in told.stderr

    paying("resume", session, "--tools", "paying.py", code=0)
    refused = paying("resume", session, "--journal", "other.db", "--tools", "paying.py", code=2)
    assert "suspended" in refused.stderr
    assert len(paid(paying)) == 1


@pytest.mark.row("H06")
def test_a_move_by_file_closes_the_source_and_a_move_that_fails_does_not(paying: Any) -> None:
    session, approval = paused(paying)
    (paying.folder / "taken.jsonl").write_text("")
    paying("sessions", "move", session, "--file", "taken.jsonl", code=2)
    paying("sessions", "move", session, code=2)
    assert [one["id"] for one in paying.json("approvals", "--json")] == [approval]

    paying("sessions", "move", session, "--file", "s.jsonl", "--by", "ada", code=0)
    assert paying.json("approvals", "--json") == []
    told = paying("sessions", "import", "s.jsonl", "--journal", "other.db", code=0)
    assert f"treadle sessions activate {session}" in told.stderr
    assert "suspended" in paying("resume", session, "--journal", "other.db", "--tools", "paying.py", code=2).stderr
    paying("sessions", "activate", session, "--journal", "other.db", code=0)
    paying("approve", approval, "--journal", "other.db", code=0)
    paying("resume", session, "--journal", "other.db", "--tools", "paying.py", code=0)
    assert len(paid(paying)) == 1


@pytest.mark.row("H18")
def test_a_session_is_suspended_and_taken_up_again(paying: Any) -> None:
    session, approval = paused(paying)
    paying("sessions", "suspend", "--last", "--reason", "Holidays", code=0)
    paying("approve", approval, code=0)
    assert "suspended" in paying("resume", session, "--tools", "paying.py", code=2).stderr
    paying("sessions", "activate", session, code=0)
    paying("resume", session, "--tools", "paying.py", code=0)
    assert len(paid(paying)) == 1


@pytest.mark.row("H06", "N14")
def test_a_session_that_has_arrived_elsewhere_is_not_taken_back(paying: Any) -> None:
    session, approval = paused(paying)
    paying("sessions", "move", session, "--to", "other.db", code=0)
    paying("approve", approval, "--journal", "other.db", code=0)
    paying("resume", session, "--journal", "other.db", code=0)

    refused = paying("sessions", "activate", session, code=2).stderr
    assert f"treadle sessions rm {session} --journal {paying.folder}/other.db" in refused
    assert "was moved to" in paying("resume", session, code=2).stderr
    explained = paying.json("sessions", "explain", session, "--json")
    assert explained["rerun"]["is_safe"] is False
    assert "other.db" in explained["rerun"]["why"]
    assert len(paid(paying)) == 1


@pytest.mark.row("H06", "H18")
def test_a_session_that_has_left_no_trace_elsewhere_is_taken_back_with_a_warning(paying: Any) -> None:
    session, _ = paused(paying)
    paying("sessions", "move", session, "--to", "other.db", code=0)
    paying("sessions", "rm", session, "--journal", "other.db", code=0)
    taken = paying("sessions", "activate", session, code=0).stderr

    assert f"{paying.folder}/other.db" in taken
    assert [one["session_id"] for one in paying.json("approvals", "--json")] == [session]


@pytest.mark.row("H18")
def test_a_suspended_session_names_the_command_that_takes_it_up(paying: Any) -> None:
    session, _ = paused(paying)
    paying("sessions", "suspend", session, code=0)

    told = paying("resume", session, code=2).stderr
    command = re.search("`treadle (sessions activate .*?)`", told)
    assert command is not None
    assert f"activate {session} --journal " in command[1]
    paying(*shlex.split(command[1]), code=0)
