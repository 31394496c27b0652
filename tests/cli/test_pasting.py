"""A session remembers how it was run: what the program prints can be pasted anywhere, and a changed world is told first."""

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def elsewhere(paying: Any, tmp_path: Path) -> Any:
    """The same program, called from another folder."""
    other = copy.copy(paying)
    other.folder = tmp_path / "elsewhere"
    other.folder.mkdir()
    return other


def pasted(stderr: str) -> list[str]:
    """The words of the last `treadle resume` that was printed."""
    return shlex.split(re.findall(r"treadle (resume .*)", stderr)[-1])


def paid(paying: Any) -> int:
    file = paying.folder / "paid.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def work(paying: Any, *words: str) -> str:
    (paying.folder / "work").mkdir(exist_ok=True)
    flags = ["-m", "script:pay.json", "--tools", "paying.py", "-C", "work", *words]
    return str(paying("run", *flags, "Pay", code=11).stderr)


@pytest.mark.row("N13", "H18")
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_printed_resume_works_when_it_is_pasted_in_another_folder(paying: Any, elsewhere: Any, how: str) -> None:
    if how == "flag":
        said = work(paying, "--journal", "own.db")
    else:
        paying.environment["TREADLE_JOURNAL"] = "own.db"
        said = work(paying)
    words = pasted(said)
    approve = shlex.split(re.findall(r"treadle (approve .*)", said)[-1])
    elsewhere(*approve, code=0)
    elsewhere(*words, code=0)
    assert paid(paying) == 1


@pytest.mark.row("N13", "H18")
def test_a_session_needs_no_flags_to_go_on_from_anywhere(paying: Any, elsewhere: Any) -> None:
    work(paying)
    elsewhere("approve", "--last", "--by", "ada", code=0)
    done = elsewhere("resume", "--last", code=0)
    assert paid(paying) == 1
    assert "now it uses" not in done.stderr


@pytest.mark.row("N13", "H18")
def test_modules_are_found_from_another_folder(paying: Any, elsewhere: Any) -> None:
    paying("run", "-m", "script:pay.json", "--tools", "paying:pay", "Pay", code=11)
    elsewhere("approve", "--last", code=0)
    elsewhere("resume", "--last", code=0)
    assert paid(paying) == 1


@pytest.mark.row("N13", "H18")
def test_another_folder_and_a_missing_tool_are_told_before_anything_runs(paying: Any, elsewhere: Any) -> None:
    work(paying)
    paying("approve", "--last", code=0)
    refused = elsewhere("resume", "--last", "--tools", "grep", code=2)
    assert "needs the tool pay" in refused.stderr
    gone = paying.folder / "work"
    gone.rename(paying.folder / "renamed")
    assert "does not exist here. Name its folder with -C" in elsewhere("resume", "--last", code=2).stderr
    assert paid(paying) == 0
    told = elsewhere("resume", "--last", "-C", str(paying.folder / "renamed"), code=0).stderr
    assert "ran in the folder" in told
    assert told.index("ran in the folder") < told.index("[done]")
    assert paid(paying) == 1


@pytest.mark.row("N13")
def test_an_address_with_a_secret_is_not_stored_and_is_asked_for(treadle: Any, greps: Any) -> None:
    flags = treadle.served(greps)
    address = flags[-1].replace("http://", "http://ada:hunter2@")
    treadle("run", "--max-tool-calls", "1", *flags[:-1], address, "Search", code=10)
    resumed = treadle("resume", "--last", "--max-tool-calls", "2")
    assert "Pass it with --base-url" in resumed.stderr
    assert b"hunter2" not in Path(treadle.home, "journal.db").read_bytes()


@pytest.mark.row("H18")
def test_what_the_demonstration_suggests_finds_its_files(treadle: Any) -> None:
    said = treadle("demo", code=0).stderr
    words = [word.replace("N", "20") if word == "N" else word for word in pasted(said)]
    folder = words[words.index("-C") + 1]
    assert Path(folder, "README.md").is_file()
    treadle(*words)
    again = shlex.split(re.findall(r"\$ treadle (run .*)", said)[-1])
    assert "README.md" in treadle(*again, "--json", "--max-tool-calls", "20").stdout


@pytest.mark.row("H18")
def test_an_approval_records_who_gave_it_and_takes_edited_arguments(paying: Any) -> None:
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    [waiting] = paying.json("approvals", "--json")
    paying("approve", waiting["id"][:6], "--arguments", "[]", code=2)
    for twice in ('{"amount": 3, "amount": 4}', '{"amount": NaN}', '{"amount": "\\ud800"}'):
        assert "--arguments must be JSON" in paying("approve", waiting["id"][:6], "--arguments", twice, code=2).stderr
    paying("approve", waiting["id"][:6], "--deny", "--arguments", "{}", code=2)
    said = paying("approve", waiting["id"][:6], "--arguments", '{"amount": 3}', "--by", "ada", code=0).stderr
    assert "Allowed by ada" in said
    paying("resume", "--last", code=0)
    assert (paying.folder / "paid.txt").read_text() == "3\n"
    [approved] = [
        one for one in paying.json("sessions", "explain", "--last", "--json")["approved"] if one["by"] == "ada"
    ]
    assert approved["decision"] == "allow"


@pytest.mark.row("H18")
def test_sessions_are_listed_with_filters_limits_and_sums(paying: Any) -> None:
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--session", "pay-1", "Pay", code=11)
    script = paying.folder / "hello.json"
    script.write_text(json.dumps([{"text": "Hello.", "usage": {"input_tokens": 10, "output_tokens": 5}}]))
    for name in ("hello-1", "hello-2"):
        paying("run", "-m", "script:hello.json", "--session", name, "Greet", code=0)

    def listed(*words: str) -> list[str]:
        return [one["id"] for one in paying.json("sessions", "--json", *words)]

    assert sorted(listed()) == ["hello-1", "hello-2", "pay-1"]
    assert listed("--status", "paused") == ["pay-1"]
    assert listed("--match", "greet", "--limit", "1") == ["hello-2"]
    [row] = paying.json("sessions", "--json", "--match", "pay-1")
    assert (row["approvals"], row["in_doubt"], row["calls"]) == (1, 0, 1)
    shown = paying("sessions", "--limit", "2", code=0)
    assert "2 sessions" in shown.stderr
    assert "1 more is not shown" in shown.stderr
    assert "2 ids begin with 'hello'" in paying("sessions", "show", "hello", code=2).stderr
    assert paying.json("sessions", "show", "pay", "--json")["id"] == "pay-1"


@pytest.mark.row("ST11")
def test_an_approval_that_is_short_lived_expires(paying: Any) -> None:
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--approval-seconds", "0.001", "Pay", code=11)
    assert "expired at" in paying("approve", "--last", code=2).stderr
    assert paid(paying) == 0


@pytest.mark.row("N13", "H18")
def test_the_profile_and_the_configuration_are_remembered_but_no_rule_that_allows(paying: Any, elsewhere: Any) -> None:
    config = paying.folder / "mine.toml"
    config.write_text('[profiles.slow]\non_limit = "report"\n[profiles.slow.budget]\nmax_model_turns = 9\n')
    words = ["--config", "mine.toml", "--profile", "slow", "--max-tool-calls", "7"]
    said = paying("run", "-m", "script:pay.json", "--tools", "paying.py", *words, "Pay", code=11).stderr
    config.write_text(config.read_text().replace("9", "2") + "[budget]\nmax_tool_calls = 1\n")
    config.write_text('allow = ["pay"]\n' + config.read_text())
    elsewhere(*pasted(said), "--json", code=11)  # the file allows it by now: what is remembered allows nothing
    assert paid(paying) == 0
    elsewhere("approve", "--last", code=0)
    report = elsewhere.json(*pasted(said), "--json", code=0)
    assert report["profile"] == "slow"
    assert paid(paying) == 1


@pytest.mark.row("N13")
def test_a_remembered_configuration_that_is_gone_is_told(paying: Any) -> None:
    config = paying.folder / "mine.toml"
    config.write_text("")
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--config", "mine.toml", "Pay", code=11)
    config.unlink()
    assert "Name one with --config" in paying("resume", "--last", code=2).stderr


@pytest.mark.row("H18")
def test_the_command_after_a_fork_finds_the_fork_in_the_journal_that_was_named(treadle):
    named = ["--journal", "my own.db"]
    model = treadle.script("s.json", [{"text": "One."}, {"text": "Two."}])
    treadle("run", "-m", model, *named, "--session", "s", "x", code=0)

    forked = treadle("sessions", "fork", "s", *named, code=0)
    command = shlex.split(forked.stderr.strip().splitlines()[-1].partition(": treadle ")[2])
    treadle(*command, "-m", model, code=0)

    listed = treadle.json("sessions", "--json", *named, code=0)
    assert {one["id"] for one in listed} == {"s", forked.stdout.strip()}
