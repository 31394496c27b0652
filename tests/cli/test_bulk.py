"""One act on many sessions or requests: chosen by tenant, agent, tool and age, shown first, and recorded one by one."""

import asyncio
import csv
import io
import json

import pytest

from treadle import Agent, open_journal, open_session, submit, tool
from treadle.testing import ScriptedModel


@tool(effect="unsafe")
async def pay(account: str) -> str:
    """Pay an account."""
    return "paid"


@pytest.fixture
def fleet(treadle):
    """Two tenants with two payments each that wait for approval, and a task that waits for a worker."""

    async def fill() -> None:
        async with open_journal(treadle.folder / "fleet.db") as journal:
            for tenant in ("acme", "acme", "globex", "globex"):
                turns = [{"calls": [{"name": "pay", "arguments": {"account": "=1+1"}}]}, {"text": "Done."}]
                async with open_session(journal) as session:
                    await session.change(metadata={"tenant": tenant})
                    await Agent(ScriptedModel(turns), tools=[pay], name="clerk").run(
                        f"Pay for {tenant}", session=session
                    )
            await submit(journal, "reviewer", "Review it", tenant="acme")

    asyncio.run(fill())
    return treadle


def run(treadle, *words, code=0):
    return treadle(*words, "--journal", "fleet.db", code=code)


def data(treadle, *words, code=0):
    return json.loads(run(treadle, *words, "--json", code=code).stdout)


def test_all_runs_of_a_tenant_are_shown_first_and_then_cancelled(fleet):
    shown = run(fleet, "cancel", "--tenant", "acme", "--dry-run")
    assert "3 sessions would be cancelled." in shown.stderr
    assert len(data(fleet, "approvals")) == 4

    done = data(fleet, "cancel", "--tenant", "acme")

    assert [one["done"] for one in done] == [True, True, True]
    assert len(data(fleet, "approvals", "--tenant", "acme")) == 0
    assert len(data(fleet, "approvals", "--tenant", "globex")) == 2
    assert "No session fulfils" in run(fleet, "cancel", "--tenant", "nobody").stderr


def test_sessions_of_an_agent_are_suspended_and_activated_together(fleet):
    assert len(data(fleet, "sessions", "suspend", "--agent", "clerk", "--reason", "Audit.")) == 4
    assert len(data(fleet, "sessions", "suspend", "--agent", "clerk")) == 0
    assert len(data(fleet, "sessions", "activate", "--agent", "clerk", "--limit", "3")) == 3
    suspended = json.loads(run(fleet, "sessions", "list", "--state", "suspended", "--json").stdout)
    assert len(suspended) == 1


def test_requests_that_are_equal_are_answered_together_and_who_answered_is_listed(fleet):
    assert data(fleet, "approve", "--tool", "pay", "--older-than", "1h", "--deny") == []
    done = data(fleet, "approve", "--tool", "pay", "--tenant", "acme", "--deny", "--reason", "Not now.", "--by", "ada")
    assert len(done) == 2
    assert len(data(fleet, "approvals")) == 2

    for session_id in {one["session_id"] for one in done}:
        asyncio.run(_take_in(fleet.folder / "fleet.db", session_id))
    listed = data(fleet, "approvals", "--answered", "--since", "1d")
    table = list(csv.DictReader(io.StringIO(run(fleet, "approvals", "--answered", "--csv").stdout)))

    assert [(one["by"], one["answer"], one["reason"], one["tool"]) for one in listed] == [
        ("ada", "deny", "Not now.", "pay")
    ] * 2
    assert [row["tenant"] for row in table] == ["acme", "acme"]
    assert all(not cell.startswith("=") for row in table for cell in row.values())
    assert "deny  by ada: Not now." in run(fleet, "approvals", "--answered").stdout


async def _take_in(file, session_id: str) -> None:
    """Resume a session: a run takes the answer in."""
    async with open_journal(file) as journal, open_session(journal, id=session_id) as session:
        await Agent(ScriptedModel([{"text": "Then not."}]), tools=[pay], name="clerk").resume(session)


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "s_1", "--tenant", "acme"),
        ("approve", "--tool", "pay", "--scope", "session"),
        ("cancel", "--older-than", "soon"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(fleet, words):
    assert run(fleet, *words, code=2).stderr


def test_a_name_that_only_the_page_can_prove_is_refused(fleet):
    assert "web page" in run(fleet, "cancel", "--tenant", "acme", "--by", "ada (link)", code=2).stderr


def test_a_submitted_task_has_the_budget_deadline_and_metadata_that_the_command_gives(fleet):
    words = ("--max-model-turns", "3", "--deadline", "2099-01-01", "--metadata", "order=7", "--metadata", "who=ada")
    said = data(fleet, "submit", "Answer", "--agent", "clerk", *words)

    async def read():
        async with open_journal(fleet.folder / "fleet.db") as journal, open_session(journal, id=said["id"]) as session:
            return session.state.submitted, session.state.metadata

    task, metadata = asyncio.run(read())
    assert task.budget["max_model_turns"] == 3
    assert task.deadline > 4e9
    assert (metadata["order"], metadata["who"]) == (7, "ada")
