"""What waits for a person, and what their answers do, over the page's API."""

import asyncio
import json
import time
from urllib.parse import quote

from tests.workers.test_workers import working
from web_site import PAYS, Site, calls, pay, site_of, until

from treadle import Agent, Budget, Price, TenantBudget, open_journal, open_session, submit, tool
from treadle.errors import ModelRejected
from treadle.events import ApprovalAnswered, ToolInput, ToolResolved
from treadle.messages import Usage
from treadle.testing import ScriptedModel, Turn
from treadle.web import Access, new_token


async def phase_of(site: Site, session_id: str) -> str:
    async with open_session(site.journal, id=session_id) as session:
        return session.state.run_status


async def has_ended(site: Site, session_id: str) -> bool:
    return await phase_of(site, session_id) == "completed"


async def test_an_allowed_call_runs_and_its_answer_names_who_gave_it_and_how_that_was_proven(site):
    session_id = await site.run(PAYS, "Pay invoice 7")
    async with site.browser(name="ada") as ada:
        (item,) = await ada.inbox()
        body = {"requests": [{"session": session_id, "id": item["id"]}], "answer": "allow", "reason": "Checked."}

        status, said = await ada.post("/api/v1/approvals", body)

        assert (status, said["results"][0]["by"]) == (200, "ada (link)")
        assert await ada.inbox() == []
    await until(has_ended, site=site, session_id=session_id)
    (answer,) = [one for one in await site.journal.read(session_id) if isinstance(one, ApprovalAnswered)]
    assert (answer.answer, answer.approved_by, answer.reason) == ("allow", "ada (link)", "Checked.")


async def test_the_first_answer_wins_and_the_second_person_is_told_whose_it_was(site):
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    async with site.browser(name="ada") as ada, site.browser(name="bo") as bo:
        (item,) = await bo.inbox()
        body = {"requests": [{"session": session_id, "id": item["id"]}]}

        await ada.post("/api/v1/approvals", {**body, "answer": "deny", "reason": "Twice?"})
        status, said = await bo.post("/api/v1/approvals", {**body, "answer": "allow"})

        assert status == 409
        assert "ada (link)" in said["error"]
        page = (await bo.get("/request", session=session_id, id=item["id"]))[1]
        assert "Denied" in page
        assert "ada (link)" in page


async def test_edited_arguments_are_what_is_called(site):
    session_id = await site.run(PAYS, "Pay invoice 7")
    async with site.browser() as ada:
        (item,) = await ada.inbox()
        edited = {**item["arguments"], "amount": 12.05}

        await ada.post(
            "/api/v1/approvals",
            {"requests": [{"session": session_id, "id": item["id"]}], "answer": "allow", "arguments": edited},
        )
        await until(has_ended, site=site, session_id=session_id)
        shown = (await ada.get(f"/api/v1/sessions/{session_id}"))[1]

    (call,) = [one["call"] for one in shown["entries"] if one["kind"] == "call"]
    assert "12.05 to DE02" in call["result"]


async def test_several_equal_requests_are_answered_at_once_and_each_says_what_came_of_it(site):
    ids = [await site.run(PAYS, f"Pay {number}", agent="elsewhere") for number in range(3)]
    async with site.browser() as ada:
        asked = [{"session": one["session"], "id": one["id"]} for one in await ada.inbox(tool="pay")]

        body = {"requests": [*asked, {"session": ids[0], "id": "a_unknown"}], "answer": "deny"}
        status, said = await ada.post("/api/v1/approvals", body)

        assert status == 200
        assert ["error" in one for one in said["results"]] == [False, False, False, True]
        assert await ada.inbox() == []


async def test_a_question_is_shown_with_its_choices_and_its_answer_reaches_the_call(site):
    turns = [{"calls": [calls("ask_user", question="Which branch?", choices=["main", "next"])]}, {"text": "Fixed."}]
    session_id = await site.run(turns, "Fix the build")
    async with site.browser() as ada:
        (item,) = await ada.inbox(kind="question")
        assert item["form"]["examples"] == ["main", "next"]

        status, _ = await ada.post("/api/v1/questions", {"session": session_id, "id": item["id"], "value": "next"})
        again, _ = await ada.post("/api/v1/questions", {"session": session_id, "id": item["id"], "value": "main"})

        assert (status, again) == (200, 409)
        assert await ada.inbox() == []
    await until(has_ended, site=site, session_id=session_id)
    (given,) = [one for one in await site.journal.read(session_id) if isinstance(one, ToolInput)]
    assert (given.value, given.by) == ("next", "ada (link)")


async def test_a_call_in_doubt_is_resolved_with_its_result(site, in_doubt):
    async with site.browser() as ada:
        (item,) = await ada.inbox(kind="doubt")
        assert item["key"]

        body = {
            "session": in_doubt,
            "id": item["id"],
            "outcome": "done",
            "value": {"receipt": 7},
            "reason": "In the books.",
        }
        status, said = await ada.post("/api/v1/doubts", body)

        assert (status, said["results"][0]["outcome"]) == (200, "done")
        assert await ada.inbox() == []
    (resolved,) = [one for one in await site.journal.read(in_doubt) if isinstance(one, ToolResolved)]
    assert (resolved.outcome, resolved.value, resolved.by) == ("done", {"receipt": 7}, "ada (link)")


async def test_what_waits_is_filtered_by_tenant_agent_tool_and_kind_and_comes_in_pages(site):
    for number in range(4):
        await site.run(PAYS, f"Pay {number}", tenant=f"t{number % 2}", agent="elsewhere")
    async with site.browser() as ada:
        assert len(await ada.inbox(tenant="t1")) == 2
        assert len(await ada.inbox(agent="elsewhere", tool="pay")) == 4
        assert await ada.inbox(kind="doubt") == []
        assert await ada.inbox(age="100000") == []
        pages = [(await ada.get("/api/v1/inbox", size="3", page=page))[1] for page in ("1", "2")]

    assert [len(page["items"]) for page in pages] == [3, 1]
    assert pages[0]["items"][0]["since"] <= pages[0]["items"][1]["since"]


async def test_sessions_are_changed_one_by_one_and_by_filter_with_a_preview(site):
    ids = [await site.run(PAYS, f"Pay {number}", tenant="acme", agent="elsewhere") for number in range(3)]
    other = await site.run(PAYS, "Pay another", tenant="globex", agent="elsewhere")
    async with site.browser() as ada:
        where = {"tenant": "acme", "status": "paused"}
        _, preview = await ada.post("/api/v1/sessions", {"act": "cancel", "where": where, "dry_run": True})
        assert set(preview["sessions"]) == set(ids)
        assert preview["consequence"].startswith("The run ends as cancelled")
        assert len(await ada.inbox()) == 4
        for act, count in (("retry", 0), ("activate", 0), ("suspend", 3)):
            _, would = await ada.post("/api/v1/sessions", {"act": act, "where": {"tenant": "acme"}, "dry_run": True})
            assert len(would["sessions"]) == count, act

        _, said = await ada.post("/api/v1/sessions", {"act": "cancel", "where": where, "limit": 2})
        assert len(said["results"]) == 2
        assert len(await ada.inbox()) == 2

        for act, more in (
            ("suspend", {"reason": "Look."}),
            ("activate", {}),
            ("steer", {"text": "Wait."}),
            ("delete", {}),
        ):
            status, said = await ada.post("/api/v1/sessions", {"act": act, "ids": [other], **more})
            assert status == 200, (act, said)
        assert await phase_of(site, other) == "deleted"


async def test_a_session_is_forked_and_exported_without_its_secrets(site):
    secret = "sk-" + "a1B2" * 12
    session_id = await site.run([{"text": f"The key is {secret}."}], "Say it")
    async with site.browser() as ada:
        _, said = await ada.post("/api/v1/sessions", {"act": "fork", "ids": [session_id]})
        fork = said["results"][0]["session"]
        hidden, exact = [(await ada.get("/api/v1/export", session=session_id, exact=one))[1] for one in ("0", "1")]
        shown = json.dumps((await ada.get(f"/api/v1/sessions/{session_id}"))[1])
        events = json.dumps((await ada.get("/api/v1/events", session=session_id))[1])

    assert await phase_of(site, fork) == "completed"
    assert secret in exact
    assert all(secret not in one for one in (hidden, shown, events))


async def test_costs_are_summed_by_model_agent_and_tenant_with_a_table_for_spreadsheets(site):
    for tenant in ("acme", "acme", "=1+1"):
        await site.run([{"text": "Done."}], "Do it", tenant=tenant)
    async with site.browser() as ada:
        _, found = await ada.get("/api/v1/costs", by="tenant")
        _, table = await ada.get("/api/v1/costs", by="tenant", format="csv")
        assert (await ada.get("/api/v1/costs", by="nothing"))[0] == 422
        assert (await ada.get("/costs", by="agent"))[0] == 200

    assert {group["name"]: group["requests"] for group in found["groups"]} == {"acme": 2, "=1+1": 1}
    assert found["total"]["requests"] == 3
    assert "'=1+1" in table


async def test_what_is_left_of_a_tenants_budgets_is_shown_to_those_who_see_the_tenant(site):
    turn = Turn(text="Done.", usage=Usage(input_tokens=1, output_tokens=250))
    budgets = [TenantBudget(max_total_cost=10), TenantBudget(max_total_cost=4, per="day", each="user")]
    agent = Agent(ScriptedModel([turn], price=Price(input=0, output=4000)), tenant_budgets=budgets)
    for tenant in ("acme", "acme", "globex"):
        async with open_session(site.journal) as session:
            await agent.run("Go", session=session, metadata={"tenant": tenant, "user": "<b>bo"})
    token, secret = new_token("eve", tenants=["acme"])
    async with site_of(site.journal, access=Access(tokens=[token])) as other, other.program(secret) as eve:
        _, found = await eve.get("/api/v1/costs")
        _, page = await eve.get("/costs")
    shown = [
        tuple(one[name] for name in ("tenant", "each", "per", "spent", "left", "used")) for one in found["budgets"]
    ]
    assert shown == [("acme", "user <b>bo", "day", "2", "2", 500), ("acme", "", "month", "2", "8", 200)]
    assert "user &lt;b&gt;bo" in page
    assert "globex" not in page


async def test_a_session_that_was_cancelled_or_answered_says_so_until_it_is_continued(site):
    ids = [await site.run(PAYS, f"Pay {number}", agent="elsewhere") for number in range(2)]
    async with site_of(site.journal) as other, other.browser() as ada:
        await ada.post("/api/v1/sessions", {"act": "cancel", "ids": ids[:1]})
        (item,) = await ada.inbox()
        answer = {"requests": [{"session": ids[1], "id": item["id"]}], "answer": "allow"}
        await ada.post("/api/v1/approvals", answer)
        rows = {one["id"]: one["why"] for one in (await ada.get("/api/v1/sessions"))[1]["rows"]}
    assert rows[ids[0]].startswith("was cancelled by ada (link), and ends")
    assert rows[ids[1]].startswith("was answered, and waits for a worker")


async def test_each_session_says_why_it_waits_or_ended(site):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    async def run(turns, **options):
        agent = Agent(ScriptedModel(turns), tools=[look, pay], name="elsewhere", on_limit="report", **options)
        async with open_session(site.journal) as session:
            await agent.run("Go", session=session)
        return session.id

    looks, failure = (
        [{"calls": [calls("look")]}],
        ModelRejected("No money. Bearer abcdefghijklmnopqrstuvwxyz0123456789"),
    )
    expects = {
        await run(looks, budget=Budget(max_model_turns=2)): "The budget max_model_turns is used up: 2 of 2.",
        await run(looks, budget=Budget(max_tool_calls=1)): "The budget max_tool_calls is used up: 1 of 1.",
        await run([failure]): "No money.",
        await run(PAYS, approval_seconds=0.001): "its request has expired",
        await submit(
            site.journal, "clerk", "Later", at=time.time() + 1e6
        ): "waits for a worker that has the agent clerk, not before 20",
    }
    async with site_of(site.journal) as other, other.browser() as ada:
        rows = {one["id"]: one["why"] for one in (await ada.get("/api/v1/sessions"))[1]["rows"]}
    assert {one: why for one, why in rows.items() if expects[one] not in why} == {}
    assert "abcdefghijklmnopqrstuvwxyz" not in str(rows)


async def test_what_has_expired_comes_after_what_can_be_answered(site):
    expires = Agent(ScriptedModel(list(PAYS)), tools=[pay], approval_seconds=0.001)
    async with open_session(site.journal) as session:
        await expires.run("Expires", session=session)
    await site.run(PAYS, "Pay", agent="elsewhere")
    async with site_of(site.journal) as other, other.browser() as ada:
        found = [(one["task"], one["is_expired"]) for one in await ada.inbox()]
    assert found == [("Pay", False), ("Expires", True)]


async def test_an_answered_session_whose_agent_has_changed_is_shown_as_stranded(site):
    def payer(choice):
        return Agent(ScriptedModel(list(PAYS)), tools=[pay], name="payer", tool_choice=choice)

    session_id = await submit(site.journal, "payer", "Pay")
    async with working(site.journal, {"payer": lambda: payer("auto")}):
        (asked,) = await until(site.journal.approvals)
    async with open_session(site.journal, id=session_id) as session:
        await session.answer(asked.id, "allow")

    async def is_stranded(ada):
        (row,) = (await ada.get("/api/v1/sessions"))[1]["rows"]
        return row["status"] == "stranded" and row["why"].startswith("The agent 'payer' has changed")

    async with (
        working(site.journal, {"payer": lambda: payer("required")}),
        site_of(site.journal) as other,
        other.browser() as ada,
    ):
        await until(is_stranded, ada=ada)


async def test_an_answer_while_the_journal_is_away_gets_503_and_its_address_is_for_those_who_operate_all_of_it(
    postgres,
):
    tenant_token, tenant_secret = new_token("eve", role="operate", tenants=["acme"])
    token, secret = new_token("ada", role="operate")
    access = Access(tokens=[tenant_token, token])
    async with open_journal(postgres.new_url()) as journal, site_of(journal, access=access) as site:
        session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere", tenant="acme")
        async with site.program(secret) as ada, site.program(tenant_secret) as eve:
            (item,) = await eve.inbox()
            body = {"requests": [{"session": session_id, "id": item["id"]}], "answer": "allow"}
            place = journal.location.removeprefix("postgresql://").partition("/")[0]
            await asyncio.to_thread(postgres.crash)
            try:
                (of_ada, of_eve) = [await one.post("/api/v1/approvals", body) for one in (ada, eve)]
                pages = [(await one.get("/inbox"))[1] for one in (ada, eve)]
            finally:
                await asyncio.to_thread(postgres.restart)
    assert (of_ada[0], of_eve[0]) == (503, 503)
    assert of_eve[1]["error"].startswith("The journal cannot be reached. Try again")
    assert [place in text for text in (of_ada[1]["error"], of_eve[1]["error"], *pages)] == [True, False, True, False]


async def test_what_has_expired_is_not_counted_as_waiting_as_soon_as_it_has_expired(site):
    await site.run(PAYS, "Pay", agent="elsewhere")
    expires = Agent(ScriptedModel(list(PAYS)), tools=[pay], approval_seconds=2.0)
    async with open_session(site.journal) as session:
        await expires.run("Expires", session=session)

    async def waits(ada, count):
        _, page = await ada.get("/inbox")
        return f'data-waiting="{count}"' in page and page

    async def says_so(ada):
        _, found = await ada.get("/api/v1/sessions", text=session.id)
        return "its request has expired" in found["rows"][0]["why"] and found["rows"][0]

    async with site_of(site.journal) as other, other.browser() as ada:
        await until(waits, ada=ada, count=2)
        page = await until(waits, ada=ada, count=1)
        row = await until(says_so, ada=ada)
    assert "1 waits for a person · 1 expired" in page
    assert row["waits"] == 0


async def test_a_session_with_a_call_in_doubt_says_so_first(site, in_doubt):
    async with site.browser() as ada:
        (row,) = (await ada.get("/api/v1/sessions"))[1]["rows"]
        _, fleet = await ada.get("/api/v1/fleet")
        _, page = await ada.get("/session", id=in_doubt)
    assert (row["status"], row["run_status"]) == ("in-doubt", "completed")
    assert row["why"] == "nobody knows whether pay was done"
    assert [one["id"] for one in fleet["stuck"]] == [in_doubt]
    assert fleet["statuses"] == {"in-doubt": 1}
    assert "in doubt</span> <span>nobody knows whether pay was done</span>" in page


async def test_a_session_whose_subagent_waits_says_so_with_a_link(site):
    payer = Agent(ScriptedModel(list(PAYS)), tools=[pay], name="payer")
    turns = [{"calls": [calls("payer", task="Pay invoice 7")]}, {"text": "Paid."}]
    clerk = Agent(ScriptedModel(turns), tools=[payer.as_tool("payer", "Pays.", effect="read")], name="elsewhere")
    async with open_session(site.journal) as session:
        await clerk.run("Go", session=session)
    async with site_of(site.journal) as other, other.browser() as ada:
        (row,) = (await ada.get("/api/v1/sessions"))[1]["rows"]
        _, page = await ada.get("/sessions")
        _, own = await ada.get("/session", id=session.id)
    assert (row["why"], row["waits"]) == ("its subagent waits for approval of pay", 1)
    link = f'<a href="/session?id={quote(row["waits_below"])}">subagent ›</a>'
    assert link in page
    assert link in own


async def test_the_end_of_a_run_is_said_once(site):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    looks = Agent(
        ScriptedModel([{"calls": [calls("look")]}]), tools=[look], budget=Budget(max_tool_calls=1), on_limit="report"
    )
    async with open_session(site.journal) as session:
        await looks.run("Look", session=session)
    done = await site.run([{"text": "Done."}], "Go")
    async with site_of(site.journal) as other, other.browser() as ada:
        ends = [(await ada.get(f"/api/v1/sessions/{one}"))[1]["entries"][-1] for one in (done, session.id)]
    assert [(one["text"], one["detail"]) for one in ends] == [
        ("Completed", "The model answered."),
        ("Stopped", "The budget max_tool_calls is used up: 1 of 1."),
    ]


async def test_a_stranded_session_says_what_it_needs_without_the_address_of_the_journal(site):
    await submit(site.journal, "nobody", "Go")
    async with site_of(site.journal) as other, other.browser(role="see") as eve:
        (row,) = (await eve.get("/api/v1/sessions"))[1]["rows"]
        _, page = await eve.get("/sessions")
    assert (row["status"], row["why"].endswith("treadle worker --agents FILE.py")) == ("stranded", True)
    assert site.journal.location not in page
