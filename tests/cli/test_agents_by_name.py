"""Agents that are called by name, on the command line: from files, seen at work, asked about and answered at the top."""

import json

import pytest

PAYING = """
from pathlib import Path
from treadle import tool

@tool(effect="unsafe")
def pay(amount: int) -> str:
    \"\"\"Pay an invoice.\"\"\"
    with Path(__file__).with_name("paid.txt").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"
"""

CLERK = """---
name: clerk
description: Pays invoices.
tools: pay
model: script:clerk.json
---
You pay invoices.
"""


@pytest.fixture
def office(treadle):
    """A folder with a payment tool, one agent that may use it, and what the models say."""
    (treadle.folder / "agents").mkdir()
    (treadle.folder / "agents" / "clerk.md").write_text(CLERK, encoding="utf-8")
    (treadle.folder / "paying.py").write_text(PAYING, encoding="utf-8")
    treadle.script(
        "clerk.json", [{"calls": [{"name": "pay", "arguments": {"amount": 40}, "id": "p"}]}, {"text": "I paid 40."}]
    )
    asks = {"name": "spawn_agent", "arguments": {"agent": "clerk", "task": "Pay invoice 7"}, "id": "s"}
    treadle.lead = treadle.script("lead.json", [{"calls": [asks]}, {"text": "The clerk has paid."}])
    return treadle


@pytest.mark.row("U06")
def test_a_question_of_an_agent_is_listed_with_its_path_answered_and_continued(office):
    ran = office("run", "Pay", "-m", office.lead, "--tools", "paying.py", "--tools", "agents/", "--json", code=11)
    report = json.loads(ran.stdout)
    assert [(one["tool"], one["path"]) for one in report["approvals"]] == [("pay", ["clerk"])]
    assert [(one["agent"], one["status"]) for one in report["children"]] == [("clerk", "paused")]
    assert "[clerk] [ask] pay" in ran.stderr

    assert "asked by clerk" in office("approvals", code=0).stdout
    office("approve", report["approvals"][0]["id"], code=0)
    ran = office("resume", report["session_id"], code=0)
    assert "The clerk has paid." in ran.stdout
    assert "[clerk] [done] pay" in ran.stderr
    assert (office.folder / "paid.txt").read_text() == "40\n"


@pytest.mark.row("U01")
def test_what_an_agent_does_is_shown_under_its_name(office):
    ran = office(
        "run", "Pay", "-m", office.lead, "--tools", "paying.py", "--tools", "agents/clerk.md", "--allow", "pay", code=0
    )
    assert "[clerk] [runs] pay  amount: 40" in ran.stderr
    assert ran.stdout == "The clerk has paid.\n"
    listed = office("tools", "--tools", "agents/", code=0).stdout
    assert "spawn_agent" in listed
    assert "read" in listed  # definitions stand beside the default tools


@pytest.mark.row("U01")
def test_the_events_of_an_agent_are_lines_under_the_call_that_it_carries_out(office):
    flags = ("-m", office.lead, "--tools", "paying.py", "--tools", "agents/", "--stream-json")
    ran = office("run", "Pay", *flags, "--allow", "pay", code=0)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]

    own = lines[0]["session_id"]
    below = [line for line in lines if line.get("session_id") not in (own, None)]
    assert {line["parent_call"] for line in below} == {"s"}
    assert {line["parent"] for line in below} == {lines[0]["run_id"]}
    types = [line["type"] for line in below]
    assert [one for one in types if one.startswith(("run.", "tool."))] == [
        "run.started", "tool.started", "tool.finished", "run.finished",
    ]  # fmt: skip
    assert "model.delta" in types
    called = [(line["type"], line["session_id"] == own) for line in lines if line["type"].startswith("tool.")]
    assert called == [
        ("tool.started", True),
        ("tool.started", False),
        ("tool.finished", False),
        ("tool.finished", True),
    ]
    assert (lines[0]["type"], lines[-2]["type"], lines[-1]["type"]) == ("run.started", "run.finished", "report")


def test_a_definition_that_is_wrong_is_told_before_anything_begins(office):
    (office.folder / "agents" / "broken.md").write_text("---\ndescription: x\n---\n", encoding="utf-8")
    ran = office("run", "Pay", "-m", office.lead, "--tools", "agents/", code=2)
    assert "broken.md" in ran.stderr
    assert "has no instructions" in ran.stderr


def test_built_in_tools_and_files_are_named_in_one_list(treadle):
    (treadle.folder / "agents").mkdir()
    (treadle.folder / "agents" / "scout.md").write_text("---\ndescription: Looks.\n---\nLook.\n", encoding="utf-8")

    tools = treadle.json("tools", "--json", "--tools", "read,agents/,grep", code=0)

    assert {one["name"] for one in tools} == {"read", "grep", "spawn_agent"}


@pytest.mark.parametrize(("answer", "code"), [("fail", 12), ("deny", 0)])
def test_a_denied_call_of_an_agent_is_reported_and_fails_the_run_where_it_should(treadle, answer, code):
    write = {"calls": [{"name": "write", "arguments": {"path": "b.txt", "content": "x"}}]}
    scout = treadle.script("scout.json", [write, {"text": "I may not."}])
    (treadle.folder / "scout.md").write_text(
        f"---\ndescription: Writes.\nmodel: {scout}\n---\nWrite.\n", encoding="utf-8"
    )
    spawn = {"calls": [{"name": "spawn_agent", "arguments": {"agent": "scout", "task": "Write"}}]}
    model = treadle.script("lead.json", [spawn, {"text": "Done."}])

    ran = treadle("run", "-q", "-m", model, "--tools", "write,scout.md", "--on-approval", answer, "Go", code=code)

    assert f"denied: write (--on-approval {answer}): It needs a person's approval" in ran.stderr
    assert ran.stdout == ("Done.\n" if answer == "deny" else "")
