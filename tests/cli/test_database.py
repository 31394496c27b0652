"""A journal in a database: the same commands, and a password that nobody sees."""

import re
import shlex

import pytest

from postgres_server import PASSWORD
from treadle.cli.input.places import shown_journal

SECRET = "s3cret"
"""In every password here, however it is encoded."""


def kept_secret(ran):
    """Return what a command has said, once it is known not to hold the password."""
    said = ran.stdout + ran.stderr
    assert SECRET not in said
    return said


def test_a_run_is_paused_approved_resumed_and_shown_in_a_database(paying, postgres_url):
    flags = ["--journal", postgres_url]
    running = [*flags, "--tools", "paying.py", "--json"]

    paused = paying.json("run", "-m", "script:pay.json", "--session", "s1", *running, "Pay", code=11)
    (waiting,) = paying.json("approvals", "--json", *flags, code=0)
    said = kept_secret(paying("approve", waiting["id"], *flags, code=0))
    (resume,) = re.findall("Resume with: treadle (resume s1 .*)", said)
    assert said.count("leave out the password of the journal's address: set PGPASSWORD") == 1
    report = paying.json(*shlex.split(resume), *running[2:], code=0, PGPASSWORD=PASSWORD)

    assert paused["approvals"][0]["id"] == waiting["id"]
    assert report["text"] == "It is done."
    assert (paying.folder / "paid.txt").read_text() == "40\n"
    assert [one["id"] for one in paying.json("sessions", "--json", *flags, code=0)] == ["s1"]
    assert [call["name"] for call in paying.json("sessions", "show", "s1", "--json", *flags, code=0)["calls"]] == [
        "pay"
    ]
    assert [row["used"] for row in paying.json("budgets", "s1", "--json", *flags, code=0)["budgets"]][:2] == [2, 1]
    assert not (paying.home / "journal.db").exists()


def test_the_address_may_come_from_the_variable_and_its_password_is_shown_nowhere(treadle, postgres_url):
    ran = kept_secret(treadle("run", "-v", "-m", "demo", "Search for error", code=0, TREADLE_JOURNAL=postgres_url))
    unknown = kept_secret(treadle("sessions", "show", "s9", code=2, TREADLE_JOURNAL=postgres_url))
    shown = kept_secret(treadle("config", "show", code=0, TREADLE_JOURNAL=postgres_url))
    checked = kept_secret(treadle("doctor", code=0, TREADLE_JOURNAL=postgres_url))

    assert "session: " in ran
    assert "postgresql://treadle@/postgres" in unknown
    assert "TREADLE_JOURNAL" in shown
    assert "ok    journal     postgresql://treadle@/postgres" in checked
    assert not [path for path in treadle.folder.rglob("*") if path.suffix == ".db"]


@pytest.mark.parametrize("command", [["run", "-m", "demo", "x"], ["sessions"], ["resume", "--last"], ["approvals"]])
def test_a_database_that_refuses_is_one_sentence_and_code_2(treadle, postgres, command):
    said = kept_secret(treadle(*command, "--journal", postgres.url("public", password="s3cret-wrong"), code=2))

    assert len(said.splitlines()) == 1
    assert "password" in said


def test_the_doctor_tells_of_a_database_that_refuses(treadle, postgres):
    ran = treadle("doctor", "--journal", postgres.url("public", password="s3cret-wrong"), code=1)

    assert "fail  journal" in kept_secret(ran)


@pytest.mark.parametrize(
    ("journal", "words"),
    [
        ("postgresql://ada:s3cret/x@db.example/agents", "percent-encoded"),
        ("postgresql://ada:s3cret@db.example:port/agents", "is not a PostgreSQL URL"),
        ("mysql://ada:s3cret@db.example/agents", "There is no kind of journal for mysql://"),
        ("postgresq://ada:s3cret@db.example/agents", "There is no kind of journal for postgresq://"),
    ],
)
@pytest.mark.parametrize("command", [["sessions"], ["run", "-m", "demo", "x"]])
def test_an_address_that_is_none_is_told_without_quoting_it(treadle, command, journal, words):
    ran = treadle(*command, "--journal", journal, code=2)

    assert words in kept_secret(ran)
    assert list(treadle.folder.rglob("*.db")) == []
    assert not (treadle.folder / journal.partition("//")[0]).exists()


@pytest.mark.parametrize(
    ("journal", "shown"),
    [
        ("postgresql://ada:pw@db.example:5432/agents", "postgresql://ada:***@db.example:5432/agents"),
        ("postgres://ada:p@w:/?#@db.example/agents", "postgres://ada:***@db.example/agents"),
        ("postgresql://:pw@/agents?host=/run&password=pw", "postgresql://:***@/agents?***"),
        ("postgresql://ada@db.example/agents", "postgresql://ada@db.example/agents"),
        ("postgresql://db.example:5432/agents", "postgresql://db.example:5432/agents"),
        ("postgresql://ada:p\nw@db.example/agents", "postgresql://ada:***@db.example/agents"),
        ("a:b@c?d.db", "a:b@c?d.db"),
        ("memory:", "memory:"),
    ],
)
def test_of_an_address_everything_but_the_password_is_shown(journal, shown):
    assert shown_journal(journal) == shown
