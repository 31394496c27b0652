"""A call that needs a person: the program ends, another process answers, a third continues."""

import json
import os
import pty

import pytest


@pytest.mark.row("P05")
def test_the_run_ends_with_11_an_answer_is_recorded_elsewhere_and_resume_goes_on(paying):
    paused = paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    (approval,) = paused["approvals"]
    listed = paying.json("approvals", "--json", code=0)

    approved = paying("approve", approval["id"], code=0)
    after = paying.json("approvals", "--json", code=0)
    report = paying.json("resume", paused["session_id"], "--json", "--tools", "paying.py", code=0)

    assert (paused["status"], paused["reason"], paused["completed"]) == ("paused", "approval_required", False)
    assert [(one["id"], one["tool"], one["arguments"]) for one in listed] == [(approval["id"], "pay", {"amount": 40})]
    assert f"treadle resume {paused['session_id']}" in approved.stderr
    assert after == []
    assert (report["text"], report["reason"]) == ("It is done.", "completed")
    assert (paying.folder / "paid.txt").read_text() == "40\n"


@pytest.mark.row("P05")
def test_a_denial_reaches_the_model_with_its_reason(paying):
    paused = paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    paying("approve", paused["approvals"][0]["id"], "--deny", "--reason", "Too much.", code=0)

    report = paying.json("resume", "--last", "--json", "--tools", "paying.py", code=0)
    shown = paying.json("sessions", "show", paused["session_id"], "--json", code=0)

    assert [(one["tool"], one["reason"]) for one in report["denials"]] == [("pay", "Too much.")]
    assert "Too much." in shown["messages"][2]["parts"][0]["content"]
    assert not (paying.folder / "paid.txt").exists()


@pytest.mark.parametrize("named", [(), ("--journal", "own.db")], ids=["default", "named"])
def test_the_way_to_allow_a_call_and_to_go_on_names_the_journal_that_was_named(paying, named):
    paused = paying("run", "-m", "script:pay.json", "--tools", "paying.py", *named, "Pay", code=11)
    approval = paying.json("approvals", "--json", *named)[0]
    listed = paying("approvals", *named, code=0).stdout
    shown = paying("sessions", "show", "--last", *named, code=0).stdout

    approved = paying("approve", approval["id"], *named, code=0)

    there = f" --journal {paying.folder}/own.db" if named else ""
    assert paused.stdout == ""
    assert paused.stderr.splitlines()[-2] == f"  pay(amount=40): treadle approve {approval['id']}{there}"
    assert f"treadle resume {approval['session_id']}{there}" in paused.stderr
    assert "pay(amount=40)" in listed
    assert f"[waits] pay(amount=40): treadle approve {approval['id']}{there}\n" in shown
    assert approved.stderr.endswith(f"Resume with: treadle resume {approval['session_id']}{there}\n")


def test_what_the_model_says_before_a_call_that_waits_is_no_answer(paying):
    calls = [{"name": "pay", "arguments": {"amount": 40}}]
    model = paying.script("s.json", [{"text": "I pay now.", "calls": calls}, {"text": "Paid."}])

    ran = paying("run", "-m", model, "--tools", "paying.py", "Pay", code=11)

    assert ran.stdout == ""
    assert "I pay now." in ran.stderr.splitlines()


def test_the_first_answer_wins_is_listed_at_once_and_an_unknown_id_is_an_error(paying):
    paused = paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    approval = paused["approvals"][0]["id"]
    paying("approve", approval, "--by", "ada", code=0)

    (answered,) = paying.json("approvals", "--answered", "--json")
    assert (answered["id"], answered["by"], answered["answer"]) == (approval, "ada", "allow")
    assert "answered already (allow)" in paying("approve", approval, "--deny", code=2).stderr
    assert "No approval 'ap_none' waits" in paying("approve", "ap_none", code=2).stderr
    paying("resume", "--last", "--tools", "paying.py", code=0)
    assert "answered already" in paying("approve", approval, code=2).stderr


def test_an_id_that_names_no_request_or_several_answers_none(paying):
    for _ in range(2):
        paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)
    waiting = paying.json("approvals", "--json", code=0)
    first, second = (one["id"] for one in waiting)

    for wrong in ("", " ", "ap_", f"{first}x", first.upper(), second[:3]):
        paying("approve", wrong, code=2)
        paying("approve", wrong, "--deny", code=2)
    assert "2 ids begin with 'ap_'" in paying("approve", "ap_", code=2).stderr
    assert paying.json("approvals", "--json", code=0) == waiting

    paying("approve", first[:-1], "--arguments", '{"amount": "much"}', code=0)
    again = paying.json("resume", waiting[0]["session_id"], "--tools", "paying.py", "--json", code=11)["approvals"][0][
        "id"
    ]
    assert f"{again!r} has replaced it" in paying("approve", first, code=2).stderr
    assert {one["id"] for one in paying.json("approvals", "--json", code=0)} == {again, second}


def test_resume_without_an_answer_waits_on_and_without_the_tool_loses_nothing(paying):
    paused = paying.json("run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)

    without = paying("resume", "--last", "--tools", "grep", code=2)
    again = paying.json("resume", "--last", "--json", "--tools", "paying.py", code=11)

    assert "Pass the same --tools" in without.stderr
    assert again["approvals"] == paused["approvals"]


def test_resume_runs_the_allowed_call_of_a_toolset_and_without_the_toolset_loses_nothing(treadle):
    write = {"calls": [{"name": "write_note", "arguments": {"name": "plan", "text": "Pay on Friday."}}]}
    script = treadle.script("note.json", [write, {"text": "Noted."}])
    paused = treadle.json("run", "--json", "-m", script, "--tools", "notes", "Note it", code=11)
    treadle("approve", paused["approvals"][0]["id"], code=0)

    without = treadle("resume", "--last", "--tools", "grep", code=2)
    done = treadle("resume", "--last", code=0)

    assert "needs the tool write_note" in without.stderr
    assert "[done] write_note" in done.stderr
    assert (treadle.folder / "agent-notes" / "plan.md").read_text(encoding="utf-8").strip() == "Pay on Friday."


def test_on_approval_deny_goes_on_without_asking(paying):
    report = paying.json(
        "run", "--json", "-m", "script:pay.json", "--tools", "paying.py", "--on-approval", "deny", "Pay", code=0
    )

    assert [one["rule"] for one in report["denials"]] == ["--on-approval deny"]
    assert "nobody can be asked" in report["denials"][0]["reason"]
    assert not (paying.folder / "paid.txt").exists()


def test_on_approval_fail_ends_the_run_as_denied_and_resume_tells_the_model(paying):
    flags = ["-m", "script:pay.json", "--tools", "paying.py", "--on-approval", "fail"]
    failed = paying.json("run", "--json", *flags, "Pay", code=12)
    ran = paying("run", *flags, "Pay", code=12)
    report = paying.json("resume", "--last", "--json", "--tools", "paying.py", code=0)

    assert (failed["status"], failed["reason"], failed["approvals"]) == ("stopped", "task_denied", [])
    assert [(one["tool"], one["rule"]) for one in failed["denials"]] == [("pay", "--on-approval fail")]
    assert "treadle: stopped (task_denied)" in ran.stderr
    assert "--allow pay" in ran.stderr
    assert [one["status"] for one in report["tool_calls"]] == ["denied"]
    assert not (paying.folder / "paid.txt").exists()


@pytest.mark.parametrize("answer", ["deny", "fail"])
@pytest.mark.parametrize(
    ("mode", "path", "flags", "runs"),
    [("ask", "new.txt", [], False), ("accept-edits", "new.txt", [], True), ("bypass", "new.txt", [], True),
     ("accept-edits", "new.txt", ["--ask", "write"], False), ("bypass", "new.txt", ["--ask", "write"], True),
     ("accept-edits", ".vscode/tasks.json", [], False), ("bypass", ".vscode/tasks.json", [], False),
     ("ask", ".vscode/tasks.json", ["--allow", "write"], False), ("bypass", "new.txt", ["--deny", "write"], False),
     ("plan", "new.txt", [], False), ("deny-unlisted", "new.txt", [], False)],
)  # fmt: skip
def test_with_nobody_to_ask_a_mode_still_lets_run_what_it_allows(treadle, answer, mode, path, flags, runs):
    write = {"calls": [{"name": "write", "arguments": {"path": path, "content": "x"}}]}
    words, model = ["--tools", "write", "--mode", mode, *flags], treadle.script("w.json", [write, {"text": "Done."}])
    ruled = treadle.json("permissions", "--json", *words, "write", json.dumps({"path": path, "content": "x"}))
    ran = treadle("run", "-m", model, *words, "--on-approval", answer, "Write it")

    is_denied_by_us = f"--on-approval {answer}" in ran.stderr
    assert (treadle.folder / path).exists() is runs
    assert ran.returncode == (12 if is_denied_by_us and answer == "fail" else 0)
    assert (ruled["decision"] == "allow") is runs


def test_on_approval_fail_lets_the_calls_beside_it_finish_and_asks_the_model_no_more(paying):
    pay, read = ({"name": "pay", "arguments": {"amount": 40}}, {"name": "read", "arguments": {"path": "a.txt"}})
    model = paying.script("both.json", [{"calls": [read, pay, {"name": "list", "arguments": {}}]}, {"text": "Never."}])
    tools = ["--tools", "paying.py", "--tools", "read,list"]

    ran = paying("run", "--stream-json", "-m", model, *tools, "--on-approval", "fail", "Pay", code=12)

    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    report = lines[-1]
    assert {one["name"]: one["status"] for one in report["tool_calls"]} == {"read": "ok", "pay": "denied", "list": "ok"}
    assert [line["type"] for line in lines].count("model.started") == 1
    assert [(line["reason"], line["status"]) for line in lines if line["type"] == "run.finished"] == [
        ("task_denied", "stopped")
    ]
    assert paying.json("sessions", "--json")[0]["state"] == "stopped"
    assert paying.json("approvals", "--json") == []


def test_on_approval_fail_denies_what_a_paused_run_waits_for_unless_a_person_has_allowed_it(paying):
    flags = ["--json", "--tools", "paying.py"]
    first, second = (
        paying.json("run", *flags, "-m", "script:pay.json", "--session", name, "Pay", code=11) for name in ("a", "b")
    )
    paying("approve", second["approvals"][0]["id"], code=0)

    denied = paying.json("resume", "a", *flags, "--on-approval", "fail", code=12)
    allowed = paying.json("resume", "b", *flags, "--on-approval", "fail", code=0)

    assert first["reason"] == "approval_required"
    assert (denied["reason"], denied["approvals"]) == ("task_denied", [])
    assert [one["status"] for one in allowed["tool_calls"]] == ["ok"]
    assert (paying.folder / "paid.txt").read_text() == "40\n"


@pytest.mark.row("AT-APPROVAL-NOBODY")
def test_it_never_prompts_even_at_a_terminal(paying):
    ours, theirs = pty.openpty()

    process = paying.start("run", "-q", "-m", "script:pay.json", "--tools", "paying.py", "Pay", stdin=theirs)
    _, error = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert process.returncode == 11, error


@pytest.mark.row("H12")
def test_what_ran_beside_a_call_that_waits_is_shown_and_explained_with_its_decision(paying):
    calls = [{"name": "read", "arguments": {"path": "a.txt"}}, {"name": "pay", "arguments": {"amount": 40}}]
    paying.script("s.json", [{"calls": calls}])
    paying("run", "-m", "script:s.json", "--tools", "paying.py", "--tools", "read", "--session", "s", "x", code=11)

    shown = paying("sessions", "show", "s", code=0).stdout
    explained = paying("sessions", "explain", "s", code=0).stdout

    assert 'read(path="a.txt")\n  read, allow (default for read)' in shown
    assert '{"output":"one error","count":1}' in shown
    assert "pay(amount=40)\n  unsafe, ask (default for unsafe)" in shown
    assert 'read(path="a.txt") -> ok [read, allow by default for read]' in explained
    assert "pay(amount=40) -> no result yet [unsafe, ask by default for unsafe]" in explained


# --- edited arguments ------------------------------------------------------------------------------------------------


@pytest.mark.row("H12", "H18")
def test_what_people_are_shown_of_an_edited_call_is_what_was_carried_out(paying):
    paused = paying.json("run", "-m", "script:pay.json", "--tools", "paying.py", "--json", "Pay", code=11)
    paying("approve", "--last", "--arguments", '{"amount": 30}', "--by", "ada", code=0)
    resumed = paying("resume", paused["session_id"], code=0)

    assert (paying.folder / "paid.txt").read_text() == "30\n"
    assert resumed.stderr.splitlines()[-2:] == [
        "[runs] pay  amount: 30",
        '[done] pay  amount: 30: {"output":"paid","arguments_changed":true,"arguments":{"amount":30}}',
    ]
    shown = paying("sessions", "show", "--last").stdout
    assert "[call call_1] pay(amount=40)\n  unsafe, allow" in shown
    assert "\n  edited to: pay(amount=30)\n" in shown
    (call,) = paying.json("sessions", "show", "--last", "--json")["calls"]
    assert (call["arguments"], call["decided_arguments"]) == ('{"amount": 40}', {"amount": 30})
    explained = paying("sessions", "explain", "--last").stdout
    assert "call_1: pay(amount=40), edited to pay(amount=30) -> ok" in explained
    assert "call_1: pay(amount=30) (unsafe) -> ok" in explained
    about = paying.json("sessions", "explain", "--last", "--json")
    assert (about["tried"][0]["decided"], about["changed"][0]["arguments"]) == ('{"amount":30}', '{"amount":30}')


@pytest.mark.row("H12")
def test_the_person_whose_edit_did_not_fit_is_told_why_when_the_call_asks_again(paying):
    paused = paying.json("run", "-m", "script:pay.json", "--tools", "paying.py", "--json", "Pay", code=11)
    paying("approve", "--last", "--arguments", '{"amount": "much"}', code=0)
    again = paying("resume", paused["session_id"], code=11)

    assert "The edited arguments are invalid" in again.stderr
    assert not (paying.folder / "paid.txt").exists()


def test_edited_arguments_that_a_built_in_tool_does_not_take_are_refused_at_once(treadle):
    write = {"calls": [{"name": "write", "arguments": {"path": "a.md", "content": "x"}}]}
    treadle("run", "-m", treadle.script("s.json", [write, {"text": "Done."}]), "--tools", "write", "x", code=11)

    refused = treadle("approve", "--last", "--arguments", '{"path": "other.md"}', code=2)
    assert "--arguments is invalid for write" in refused.stderr
    assert "content" in refused.stderr
    treadle("approve", "--last", "--arguments", '{"path": "other.md", "content": "y"}', code=0)
    treadle("resume", "--last", code=0)
    assert (treadle.folder / "other.md").read_text() == "y"


def test_edited_arguments_of_a_tool_of_a_file_are_said_to_be_checked_later(paying):
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "Pay", code=11)

    allowed = paying("approve", "--last", "--arguments", '{"amount": 1}', code=0)
    assert "the arguments are checked when the run resumes" in allowed.stderr
