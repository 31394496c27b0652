"""What is kept of a run, and how a session continues."""

import json
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import pytest

from treadle.testing import MockProvider, call, text


@pytest.mark.row("Q03")
def test_a_resumed_session_says_how_many_messages_it_has_and_sends_them_all(treadle):
    with MockProvider(
        [call("read", path="a.txt", id="call_xyz"), text("One error."), text("In a.txt.")]
    ).in_thread() as provider:
        served = treadle.served(provider)
        treadle("run", "--session", "s1", *served, "Look", code=0)
        ran = treadle("run", "--session", "s1", *served, "Where?", code=0)

    assert "[Session restored: 4 messages]" in ran.stderr
    told, *sent = provider.requests[-1].body["messages"]
    assert told["role"] == "system"  # where it works
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "call_xyz"


@pytest.mark.row("Q03", "L11")
def test_a_stopped_run_is_resumed_with_the_model_that_it_had(treadle):
    calls = [{"calls": [{"name": "read", "arguments": {"path": f"{name}.txt"}}]} for name in "abc"]
    model = treadle.script("s.json", [*calls, {"text": "All read."}])
    treadle("run", "-m", model, "--on-limit", "report", "--max-model-turns", "2", "Read", code=10)

    still = treadle("resume", "--last", "--on-limit", "report", code=10)
    ran = treadle("resume", "--last", "--max-model-turns", "9", code=0)

    assert "[Session restored: 5 messages]" in ran.stderr
    assert ran.stdout == "All read.\n"
    assert still.stdout == ""


def test_sessions_are_listed_and_shown_with_everything_that_was_received_and_executed(treadle):
    (treadle.folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(2000)))
    model = treadle.script(
        "s.json", [{"calls": [{"name": "read", "arguments": {"path": "long.txt"}}]}, {"text": "Long."}]
    )
    treadle("run", "-m", model, "--session", "s1", "--max-tool-result-chars", "500", "Read it", code=0)

    listed = treadle.json("sessions", "--json", code=0)
    shown = treadle.json("sessions", "show", "s1", "--json", code=0)
    plain = treadle("sessions", "show", "s1", code=0).stdout

    assert [(one["id"], one["state"], one["task"]) for one in listed] == [("s1", "completed", "Read it")]
    assert (shown["id"], shown["state"]) == ("s1", "completed")
    assert [shown["run_status"], *(one["run_status"] for one in listed)] == ["completed", "completed"]
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "assistant"]
    (made,) = shown["calls"]
    assert (made["name"], json.loads(made["arguments"])) == ("read", {"path": "long.txt"})
    assert made["decision"]["kind"] == "allow"
    assert made["result"]["status"] == "ok"
    assert len(made["result"]["content"]) <= 1000
    assert "line 1999" in made["result"]["full"]
    for words in ("[user] Read it", 'read(path="long.txt")', "line 1999", "[assistant] Long."):
        assert words in plain


def test_on_a_fresh_machine_there_are_no_sessions_and_nothing_is_made(treadle):
    assert treadle.json("sessions", "list", "--json", code=0) == []
    assert treadle.json("approvals", "--json", code=0) == []
    assert not treadle.home.exists()


def test_unknown_and_finished_sessions_are_told(treadle):
    model = treadle.script("s.json", [{"text": "Done."}])
    treadle("run", "-m", model, "--session", "s1", "x", code=0)

    assert "no session 'nope'" in treadle("resume", "nope", code=2).stderr
    assert "no session 'nope'" in treadle("sessions", "show", "nope", code=2).stderr
    assert "no session 'nope'" in treadle("budgets", "nope", code=2).stderr
    assert "completed" in treadle("resume", "s1", code=2).stderr
    assert len(treadle.json("sessions", "--json")) == 1


def test_the_state_is_private_to_its_owner(treadle):
    model = treadle.script("s.json", [{"text": "Done."}])
    treadle("run", "-m", model, "x", code=0)

    assert stat.S_IMODE(treadle.home.stat().st_mode) == 0o700
    assert stat.S_IMODE((treadle.home / "journal.db").stat().st_mode) == 0o600


def test_the_journal_is_where_the_flag_or_the_variable_says(treadle):
    model = treadle.script("s.json", [{"text": "Done."}])
    treadle("run", "-m", model, "--journal", "one.db", "x", code=0)
    treadle("run", "-m", model, "x", code=0, TREADLE_JOURNAL="two.db")

    assert (treadle.folder / "one.db").exists()
    assert (treadle.folder / "two.db").exists()
    assert not treadle.home.exists()


def test_sessions_are_listed_for_people(treadle):
    none = treadle("sessions", code=0)
    model = treadle.script("s.json", [{"text": "Done."}])
    treadle("run", "-m", model, "--session", "s1", "Look\nhere", code=0)
    listed = treadle("sessions", code=0)

    assert (none.stdout, none.stderr) == ("", "No sessions yet.\n")
    (line,) = listed.stdout.splitlines()
    assert line.startswith("s1  completed ")
    assert line.endswith("  Look here")


def test_a_session_of_another_folder_is_listed_with_it(treadle):
    (treadle.folder / "other").mkdir()
    treadle("run", "-m", "demo", "-C", "other", "Go there", code=0)
    treadle("run", "-m", "demo", "Go here", code=0)
    here, there = treadle("sessions").stdout.splitlines()
    assert here.endswith("Go here")
    assert there.endswith(f"Go there  in {treadle.folder / 'other'}")


@pytest.fixture
def finished(treadle):
    """With one finished session, s1."""
    treadle("run", "-m", treadle.script("s.json", [{"text": "Done."}]), "--session", "s1", "x", code=0)
    return treadle


def test_what_is_done_to_a_session_can_be_read_by_programs(finished):
    marked = finished.json("sessions", "mark", "s1", "before", "--json", code=0)
    forked = finished.json("sessions", "fork", "s1", "--json", code=0)

    assert (marked["id"], marked["mark"]) == ("s1", "before")
    assert forked["parent_id"] == "s1"
    assert finished.json("sessions", "show", forked["id"], "--json")["parent_seq"] == forked["parent_seq"]


def test_a_session_moves_to_another_journal_through_a_pipe(finished):
    lines = finished("sessions", "export", "s1", code=0).stdout
    taken = finished.json("sessions", "import", "-", "--journal", "two.db", "--json", stdin=lines, code=0)

    shown = finished.json("sessions", "show", taken["id"], "--journal", "two.db", "--json", code=0)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]


def test_an_import_from_a_closed_standard_input_is_told(treadle):
    line = " ".join([*treadle.command("sessions", "import", "-"), "<&-"])

    ran = subprocess.run(
        line, shell=True, cwd=treadle.folder, env=treadle.environment, timeout=60, stderr=subprocess.PIPE, text=True
    )

    assert (ran.returncode, ran.stderr) == (2, "treadle: Standard input is closed. Name a file.\n")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file of Linux that opens and cannot be read")
def test_an_import_of_a_file_that_breaks_while_it_is_read_is_told(treadle):
    ran = treadle("sessions", "import", "/proc/self/mem", code=2)

    assert ran.stderr.startswith("treadle: The file cannot be read: ")


def test_an_export_that_the_disk_cannot_hold_leaves_no_file(treadle):
    model = treadle.script("s.json", [{"text": "Done."}])
    treadle("run", "-m", model, "--session", "s1", "-", stdin="x" * 300_000, code=0)
    command = " ".join(treadle.command("sessions", "export", "s1", "out.jsonl"))

    ran = subprocess.run(
        f"ulimit -f 256; {command}",
        shell=True,
        cwd=treadle.folder,
        env=treadle.environment,
        timeout=60,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("treadle: 'out.jsonl' cannot be written: ")
    assert not (treadle.folder / "out.jsonl").exists()


def test_the_sums_count_once_what_a_fork_has_copied_and_what_an_agent_has_used_for_its_caller(treadle):
    usage = {"input_tokens": 10, "output_tokens": 5}
    scout = treadle.script("scout.json", [{"text": "Found.", "usage": usage}])
    (treadle.folder / "scout.md").write_text(
        f"---\ndescription: Looks.\nmodel: {scout}\n---\nLook.\n", encoding="utf-8"
    )
    spawn = {"name": "spawn_agent", "arguments": {"agent": "scout", "task": "Look"}}
    lead = treadle.script("lead.json", [{"calls": [spawn], "usage": usage}, {"text": "Done.", "usage": usage}])
    treadle("run", "-m", lead, "--tools", "scout.md", "--session", "s", "Go", code=0)
    treadle("sessions", "fork", "s", "--id", "f", code=0)

    assert treadle("sessions", code=0).stderr == "3 sessions, 1 call, 30 + 15 tokens, cost 0.\n"
    assert treadle("sessions", "--parent", "s", "--status", "completed", code=0).stderr.startswith("2 sessions")


@pytest.mark.row("H18")
def test_the_sums_are_plain_english(treadle):
    treadle.script("one.json", [{"text": "Hello."}])
    treadle("run", "-m", "script:one.json", "Greet", code=0)

    assert re.fullmatch(r"1 session, 0 calls, \d+ \+ \d+ tokens, cost 0\.\n", treadle("sessions", code=0).stderr)
    for flags in (["--status", "failed"], ["--match", "nothing"]):
        assert treadle("sessions", *flags, code=0).stderr == "No sessions match.\n"
    assert treadle("sessions", "--limit", "0", code=0).stderr == (
        "No sessions match.\n1 more is not shown: --limit N shows more.\n"
    )
    assert "(completed), 2 messages, 0 calls" in treadle("sessions", "show", "--last", code=0).stdout


@pytest.mark.row("H18")
def test_the_session_that_changed_last_can_be_deleted_as_the_last(treadle):
    model = treadle.script("s.json", [{"text": "Fine."}])
    for name in ("first", "second"):
        treadle("run", "-m", model, "--session", name, "x", code=0)

    assert "Name sessions" in treadle("sessions", "rm", "first", "--last", code=2).stderr
    gone = treadle.json("sessions", "rm", "--last", "--json", code=0)

    assert gone["deleted"] == ["second"]
    assert [one["id"] for one in treadle.json("sessions", "--json", code=0)] == ["first"]


@pytest.mark.row("H18")
def test_a_session_that_is_held_can_be_cancelled_with_the_command_that_the_error_names(treadle):
    from treadle.testing import Turn

    with MockProvider([Turn(text="Slow.", gate="g")]).in_thread() as provider:
        running = treadle.start("run", "--stream-json", "--session", "s 1", *treadle.served(provider), "x")
        running.stdout.readline()  # it has the session now
        held = treadle("run", "--session", "s 1", *treadle.served(provider), "y", code=16)
        command = re.search(r"`(treadle cancel .*)`", held.stderr)[1]
        assert "--journal" in command
        treadle(*shlex.split(command)[1:], code=0)
        running.communicate(timeout=60)

    assert running.returncode == 1
    assert treadle.json("sessions", "--json", code=0)[0]["state"] == "stopped"


@pytest.mark.row("H18")
def test_a_session_that_cannot_be_read_is_reported_once(paying):
    for name in ("good", "bad"):
        paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--session", name, "Pay", code=11)
    with closing(sqlite3.connect(paying.home / "journal.db")) as database, database:
        database.execute("DROP TRIGGER event_is_never_changed")
        database.execute("UPDATE event SET body = '{' WHERE seq = 2 AND session_id = 'bad'")

    listed = paying("approvals", code=0)

    assert listed.stderr.count("is left out") == 1
    assert "pay(amount=40)" in listed.stdout


def test_the_columns_of_the_list_are_aligned_and_facts_of_the_tools_are_not_shown(treadle):
    model = treadle.script("s.json", [{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "Read."}])
    for name in ("one", "the-second"):
        treadle("run", "-m", model, "--session", name, "Look", code=0)

    assert len({line.index("completed") for line in treadle("sessions", code=0).stdout.splitlines()}) == 1
    assert "fact " not in treadle("sessions", "show", "one", code=0).stdout
    assert "files" in treadle.json("sessions", "show", "one", "--json")["facts"]
