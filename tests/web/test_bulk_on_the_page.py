"""One act on many: over the API by conditions, with a preview and a limit, and each recorded by itself."""

import asyncio

import pytest
from web_site import PAYS, Site, site_of

from treadle import Agent, Budget, open_session, submit, tool
from treadle.events import ApprovalAnswered, ToolResolved
from treadle.testing import ScriptedModel, call, text
from treadle.web import Access, new_token
from treadle.workers import Worker, result


@tool(effect="unsafe", permission="allow")
async def lose(account: str) -> str:
    """Pay, and hear nothing."""
    raise ConnectionResetError("The connection broke.")


async def doubts(site: Site, count: int, tenant: str) -> list[str]:
    ids = []
    for _ in range(count):
        async with open_session(site.journal) as session:
            await session.change(metadata={"tenant": tenant})
            agent = Agent(ScriptedModel([call("lose", account="DE02"), text("?")]), tools=[lose], name="clerk")
            await agent.run("Pay", session=session)
        ids.append(session.id)
    return ids


async def test_requests_of_a_tenant_are_shown_first_and_then_denied_as_many_as_the_limit_says(site):
    ids = [await site.run(PAYS, f"Pay invoice {n}", tenant="acme", agent="elsewhere") for n in range(3)]
    other = await site.run(PAYS, "Pay invoice 9", tenant="globex", agent="elsewhere")
    where = {"tenant": "acme", "tool": "pay"}
    async with site.browser() as ada:
        given = {"where": where, "answer": "deny", "reason": "Audit."}
        _, shown = await ada.post("/api/v1/approvals", {**given, "dry_run": True})
        assert [one["session"] for one in shown["requests"]] == ids
        assert len(await ada.inbox()) == 4
        _, said = await ada.post("/api/v1/approvals", {**given, "limit": 2})
        assert [one["session"] for one in said["results"]] == ids[:2]
        _, said = await ada.post("/api/v1/approvals", given)
        assert [one["session"] for one in await ada.inbox()] == [other]
    for session_id in ids:
        (left,) = await site.journal.inbox(session_id)
        assert (left.answer, left.reason, left.approved_by) == ("deny", "Audit.", "ada (link)")
    assert ApprovalAnswered not in {type(one) for one in await site.journal.read(other)}


async def test_doubts_are_resolved_together(site):
    ids = await doubts(site, 3, "acme")
    kept = await doubts(site, 1, "globex")
    async with site.browser() as ada:
        given = {"where": {"tenant": "acme", "tool": "lose"}, "outcome": "not_done", "reason": "The bank was down."}
        _, said = await ada.post("/api/v1/doubts", given)
        assert sorted(one["session"] for one in said["results"]) == sorted(ids)
        assert [one["session"] for one in await ada.inbox(kind="doubt")] == kept
    for session_id in ids:
        (resolved,) = [one for one in await site.journal.read(session_id) if isinstance(one, ToolResolved)]
        assert (resolved.outcome, resolved.by, resolved.reason) == ("not_done", "ada (link)", "The bank was down.")


async def test_an_act_on_many_never_reaches_another_tenant(site):
    own, foreign = [await site.run(PAYS, "Pay", tenant=one, agent="elsewhere") for one in ("acme", "globex")]
    token, secret = new_token("ada", role="operate", tenants=["acme"])
    async with site_of(site.journal, access=Access(tokens=[token])) as other, other.program(secret) as ada:
        for where in ({"tool": "pay"}, {"tenant": "globex"}, {"agent": "elsewhere"}):
            _, said = await ada.post("/api/v1/approvals", {"where": where, "answer": "allow", "dry_run": True})
            assert foreign not in [one["session"] for one in said["requests"]]
        _, said = await ada.post("/api/v1/approvals", {"where": {"tool": "pay"}, "answer": "deny"})
    assert [one["session"] for one in said["results"]] == [own]
    assert await site.journal.inbox(foreign) == ()


@pytest.mark.parametrize("path", ["approvals", "doubts", "sessions"])
@pytest.mark.parametrize(
    "given",
    [
        {"where": {}},
        {"where": {"color": "red"}},
        {"where": {"tenant": "acme"}, "limit": 0},
        {"where": {"tenant": "acme"}, "limit": "all"},
        {"where": {"age": "old"}},
        {"where": 7},
    ],
)
async def test_conditions_that_mean_nothing_get_a_sentence(site, path, given):
    act = {"approvals": {"answer": "deny"}, "doubts": {"outcome": "unknown"}, "sessions": {"act": "cancel"}}[path]
    async with site.browser() as ada:
        status, said = await ada.post(f"/api/v1/{path}", {**act, **given})
    assert status == 422
    assert said["error"].endswith(".")


async def test_a_task_that_stopped_is_run_again_from_the_page(site):
    agent = Agent(ScriptedModel([call("lose", account="x"), text("?")]), tools=[lose], budget=Budget(max_model_turns=1))
    worker = Worker(site.journal, {"elsewhere": lambda: agent})
    session_id = await submit(site.journal, "elsewhere", "Pay 7", key="7")
    running = asyncio.create_task(worker.run())
    await result(site.journal, session_id, timeout=60)
    worker.stop()
    await running
    async with site.browser() as ada:
        assert ">Run again</button>" in (await ada.get("/session", id=session_id))[1]
        again = {"act": "retry", "ids": [session_id]}
        status, said = await ada.post("/api/v1/sessions", {**again, "key": "8"})
        assert (status, "may repeat what was done" in said["error"]) == (422, True)
        _, said = await ada.post("/api/v1/sessions", {"act": "retry", "where": {"state": "stopped"}})
        assert said["results"] == [{"id": session_id, "session": session_id}]
        _, found = await ada.get("/api/v1/sessions")
    assert [(one["id"], one["run_status"]) for one in found["rows"]] == [(session_id, "queued")]
