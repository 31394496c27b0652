"""One act on many sessions or requests: chosen by tenant, agent, tool and age, shown first, and recorded one by one."""

import asyncio
import csv
import io
import json

import pytest

from treadle import Agent, Worker, allow, open_journal, open_session, submit, tool
from treadle.errors import ModelRejected
from treadle.testing import ScriptedModel
from treadle.workers import result


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
    suspended = json.loads(run(fleet, "sessions", "list", "--status", "suspended", "--json").stdout)
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


def test_failed_tasks_are_submitted_again_and_one_of_them_from_nothing(fleet):
    queued = next(one["id"] for one in data(fleet, "sessions", "list", "--status", "queued"))
    assert "has not ended" in run(fleet, "retry", queued, code=2).stderr
    run(fleet, "cancel", queued)

    said = run(fleet, "retry", queued, "--by", "ada")
    assert said.stdout.strip() == queued
    assert "in the same session: the model reads what was done there" in said.stderr

    run(fleet, "cancel", queued)
    new = data(fleet, "retry", queued, "--key", "again")
    assert new["retry_of"] == queued
    assert new["id"] != queued
    assert data(fleet, "retry", "--tenant", "acme") == []
    assert "one task" in run(fleet, "retry", "--tenant", "acme", "--key", "k", code=2).stderr


def test_doubts_of_a_tenant_are_listed_and_resolved_together(fleet):
    async def lose() -> None:
        @tool(effect="unsafe", permission="allow")
        async def lose(account: str) -> str:
            """Pay, and hear nothing."""
            raise ConnectionResetError("The connection broke.")

        for tenant in ("acme", "acme", "globex"):
            turns = [{"calls": [{"name": "lose", "arguments": {"account": "x"}}]}, {"text": "?"}]
            async with open_journal(fleet.folder / "fleet.db") as journal, open_session(journal) as session:
                await session.change(metadata={"tenant": tenant})
                await Agent(ScriptedModel(turns), tools=[lose], name="clerk").run("Pay", session=session)

    asyncio.run(lose())
    assert len(data(fleet, "doubts", "--tenant", "acme")) == 2
    assert "2 calls would be resolved." in run(fleet, "resolve", "--tenant", "acme", "--unknown", "--dry-run").stderr
    assert len(data(fleet, "resolve", "--tool", "lose", "--tenant", "acme", "--not-done", "--reason", "Down.")) == 2
    assert [one["tool"] for one in data(fleet, "doubts")] == ["lose"]


def test_stopped_runs_of_a_tenant_are_resumed_one_after_the_other(treadle):
    calls = [{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "Done."}]
    script = treadle.script("calls.json", calls)
    for _ in range(2):
        treadle("run", "-m", script, "--max-model-turns", "1", "--on-limit", "report", "Look", code=None)

    words = ("resume", "-m", treadle.script("end.json", [{"text": "Done."}]), "--max-model-turns", "5")
    shown = treadle(*words, "--status", "stopped", "--dry-run")
    assert "2 sessions would be resumed." in shown.stderr
    done = treadle(*words, "--status", "stopped", "--yes", "-q")
    assert [one["run_status"] for one in treadle.json("sessions", "list", "--json")] == ["completed"] * 2, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "--status", "completed"),
        ("resume", "s_1", "--tenant", "acme"),
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


def test_a_session_that_carries_out_a_call_is_left_to_its_caller(treadle):
    async def delegate() -> None:
        turns = [{"calls": [{"name": "pay", "arguments": {"account": "x"}}]}, {"text": "Done."}]
        below = Agent(ScriptedModel(turns), tools=[pay], name="below").as_tool("below", "Pays.", effect="unsafe")
        turns = [{"calls": [{"name": "below", "arguments": {"task": "Pay x"}}]}, {"text": "Done."}]
        async with open_journal(treadle.folder / "fleet.db") as journal, open_session(journal, id="top") as session:
            await session.change(metadata={"tenant": "acme"})
            await Agent(ScriptedModel(turns), tools=[below], policy=allow("below"), name="top").run(
                "Pay", session=session
            )
            await session.fork(id="forked", at=1)

    asyncio.run(delegate())
    assert len(data(treadle, "sessions", "list", "--tenant", "acme")) > 1

    assert [one["id"] for one in data(treadle, "cancel", "--status", "paused", "--dry-run")] == ["top"]
    assert [one["id"] for one in data(treadle, "resume", "--status", "paused", "--dry-run")] == ["top"]
    suspended = data(treadle, "sessions", "suspend", "--older-than", "0m")
    assert {one["id"] for one in suspended} == {"top", "forked"}


def test_a_preview_of_retry_names_only_the_tasks_that_it_submits_again(fleet):
    def breaks() -> Agent:
        return Agent(ScriptedModel([ModelRejected("Broken.")]))

    async def fail() -> None:
        async with open_journal(fleet.folder / "fleet.db") as journal:
            async with open_session(journal, id="never-submitted") as session:
                await breaks().run("Fail", session=session)
            worker = Worker(journal, {"breaks": breaks})
            async with asyncio.TaskGroup() as group:
                group.create_task(worker.run())
                for key in ("a", "b"):
                    ids[key] = await submit(journal, "breaks", "Fail", key=key)
                    await result(journal, ids[key], timeout=60)
                worker.stop()

    ids: dict[str, str] = {}
    asyncio.run(fail())
    run(fleet, "sessions", "suspend", ids["b"])
    assert len(json.loads(run(fleet, "sessions", "list", "--status", "failed", "--json").stdout)) == 2

    shown = data(fleet, "retry", "--older-than", "0m", "--dry-run")
    done = data(fleet, "retry", "--older-than", "0m")

    assert [one["id"] for one in shown] == [ids["a"]]
    assert [(one["id"], one["done"]) for one in done] == [(ids["a"], True)]


def test_what_a_tenant_has_left_is_deleted_after_a_preview_and_what_is_open_stays(fleet):
    keep = {one["id"] for one in data(fleet, "sessions", "list", "--tenant", "globex")}
    assert data(fleet, "sessions", "rm", "--tenant", "acme", "--older-than", "90d", "--dry-run") == []
    assert "No session fulfils" in run(fleet, "sessions", "rm", "--tenant", "acme").stderr

    assert (
        "3 sessions would be deleted."
        in run(fleet, "sessions", "rm", "--tenant", "acme", "--even-open", "--dry-run").stderr
    )
    assert len(data(fleet, "sessions", "rm", "--tenant", "acme", "--even-open", "--purge", "--limit", "2")) == 2
    assert len(data(fleet, "sessions", "rm", "--tenant", "acme", "--even-open", "--purge", "--yes")) == 1

    assert {one["id"] for one in data(fleet, "sessions")} == keep
    assert data(fleet, "sessions", "rm", "--tenant", "acme", "--even-open", "--purge") == []
    assert "not both" in run(fleet, "sessions", "rm", "s_1", "--tenant", "acme", code=2).stderr
