"""Who is let in, what they may see and do, and what is refused."""

import aiohttp
import pytest
from starlette.applications import Starlette
from web_site import HOSTILE, PAYS, served, site_of

from treadle import Agent, Agents, ConfigurationError, open_session
from treadle.testing import ScriptedModel
from treadle.web import Access, new_token, web
from treadle.web.api import OPENAPI

PAGES = ("/inbox", "/sessions", "/fleet", "/costs")


async def test_a_page_is_shown_to_nobody_who_has_not_logged_in(site):
    session_id = await site.run(PAYS, "Pay invoice 7")
    async with aiohttp.ClientSession() as http:
        for path in (*PAGES, f"/session?id={session_id}", "/try"):
            async with http.get(site.url + path, allow_redirects=False) as answer:
                assert (answer.status, "/login" in answer.headers.get("Location", "")) == (303, True), path
        for path in (
            "inbox",
            "sessions",
            "fleet",
            f"sessions/{session_id}",
            "changes",
            "me",
            f"live?session={session_id}",
        ):
            async with http.get(f"{site.url}/api/v1/{path}") as answer:
                assert answer.status == 401, path
                assert "Pay" not in await answer.text()


async def test_a_link_lets_one_browser_in_and_no_secret_stays_in_the_address(site):
    link = site.link()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http, http.get(link) as answer:
        assert (answer.status, answer.url.query_string) == (200, "")
        cookie = answer.history[0].headers["Set-Cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=lax"))
    async with aiohttp.ClientSession() as other, other.get(link) as answer:
        assert answer.status == 401


async def test_a_role_is_what_a_person_may_do(tmp_path, site):
    tokens, secrets = zip(*[new_token(role, role=role) for role in ("see", "answer", "operate")], strict=True)
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    approvals = {"requests": [{"session": session_id, "id": "a_none"}], "answer": "allow"}
    acts = {"act": "steer", "ids": [session_id], "text": "Wait."}
    async with site_of(site.journal, access=Access(tokens=tokens)) as other:
        found = []
        for secret in secrets:
            async with other.program(secret) as client:
                statuses = [
                    (await client.post(f"/api/v1/{path}", body))[0]
                    for path, body in (("approvals", approvals), ("sessions", acts))
                ]
                found.append([(await client.get("/api/v1/sessions"))[0], *statuses])
    # 409: the request is not known, so the answer was tried.
    assert found == [[200, 403, 403], [200, 409, 403], [200, 409, 200]]


async def test_a_person_of_one_tenant_sees_and_answers_nothing_of_another(site):
    own, foreign = [await site.run(PAYS, f"Pay for {one}", tenant=one, agent="elsewhere") for one in ("acme", "globex")]
    token, secret = new_token("ada", role="operate", tenants=["acme"])
    async with site.browser() as all_of_it:
        foreign_item = next(one for one in await all_of_it.inbox() if one["session"] == foreign)
    async with site_of(site.journal, access=Access(tokens=[token])) as other, other.program(secret) as ada:
        assert [one["session"] for one in await ada.inbox()] == [own]
        assert [one["id"] for one in (await ada.get("/api/v1/sessions"))[1]["rows"]] == [own]
        hidden = [f"/api/v1/sessions/{foreign}", f"/session?id={foreign}", f"/api/v1/events?session={foreign}"]
        hidden += [
            f"/api/v1/live?session={foreign}",
            f"/api/v1/export?session={foreign}",
            f"/request?session={foreign}&id={foreign_item['id']}",
        ]
        for path in hidden:
            status, said = await ada.get(path)
            assert (status, "Pay for globex" in str(said)) == (404, False), path
        assert (await ada.get("/api/v1/fleet"))[0] == 403
        for path, body in (
            ("approvals", {"requests": [{"session": foreign, "id": foreign_item["id"]}], "answer": "allow"}),
            ("questions", {"session": foreign, "id": "call_1", "value": 1}),
            ("doubts", {"session": foreign, "id": "call_1", "outcome": "unknown"}),
            ("sessions", {"act": "cancel", "ids": [foreign]}),
        ):
            assert (await ada.post(f"/api/v1/{path}", body))[0] == 404, path
        _, said = await ada.post("/api/v1/sessions", {"act": "suspend", "where": {"status": "paused"}})
        assert [one["id"] for one in said["results"]] == [own]
        for page in PAGES[:2]:
            assert "globex" not in (await ada.get(page))[1]


async def test_another_site_can_change_nothing(site):
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    async with site.browser() as ada:
        (item,) = await ada.inbox()
        body = {"requests": [{"session": session_id, "id": item["id"]}], "answer": "allow"}
        refused = [
            await ada.post("/api/v1/approvals", body, Origin="https://evil.example"),
            await ada.post("/api/v1/approvals", body, **{"Sec-Fetch-Site": "cross-site"}),
            await ada.post("/api/v1/approvals", body, **{"X-CSRF-Token": "guess"}),
        ]
        assert [status for status, _ in refused] == [403, 403, 403]
        async with ada.http.post(
            f"{site.url}/api/v1/approvals",
            data='{"answer": "allow"}',
            headers={**ada.headers, "Content-Type": "text/plain"},
        ) as answer:
            assert answer.status == 415
        async with ada.http.get(f"{site.url}/inbox", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
        assert len(await ada.inbox()) == 1


async def test_every_answer_carries_the_rules_that_keep_strange_scripts_out(site):
    session_id = await site.run(
        [{"text": HOSTILE, "calls": [{"name": "look_up", "arguments": {"customer": HOSTILE}}]}, {"text": HOSTILE}],
        HOSTILE,
    )
    async with site.browser() as ada:
        for path in (
            *PAGES,
            f"/session?id={session_id}",
            f"/session?id={session_id}&tab=timeline",
            "/nothing",
            "/api/v1/sessions",
        ):
            async with ada.http.get(site.url + path) as answer:
                policy, text = answer.headers["Content-Security-Policy"], await answer.text()
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            if answer.content_type == "text/html":
                assert "<img" not in text.replace("&lt;img", "")
                assert text.count("<script") == ("treadle.js" in text)
                assert "\u202e" not in text
                assert 'href="javascript' not in text


async def test_what_is_too_large_or_too_often_is_refused(site):
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    async with site.browser() as ada:
        assert (await ada.post("/api/v1/approvals", {"requests": [], "reason": "x" * 300_000}))[0] == 413
        many = {"requests": [{"session": session_id, "id": str(number)} for number in range(501)], "answer": "allow"}
        assert (await ada.post("/api/v1/approvals", many))[0] == 422
        statuses = [
            (await ada.post("/api/v1/questions", {"session": session_id, "id": "x", "value": 1}))[0] for _ in range(125)
        ]
        assert statuses[-1] == 429


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "{",
        '{"answer": "allow"}',
        '{"requests": [7], "answer": "allow"}',
        '{"requests": [{"session": 1}], "answer": {}}',
    ],
)
async def test_a_body_that_is_none_gets_a_sentence(site, body):
    async with site.browser() as ada:
        headers = {**ada.headers, "Content-Type": "application/json"}
        async with ada.http.post(f"{site.url}/api/v1/approvals", data=body, headers=headers) as answer:
            assert answer.status in (400, 404, 422)
            assert (await answer.json())["error"]


async def test_a_read_only_page_shows_everything_and_takes_nothing(site):
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    async with site_of(site.journal, read_only=True) as other, other.browser() as ada:
        assert len(await ada.inbox()) == 1
        status, said = await ada.post("/api/v1/sessions", {"act": "cancel", "ids": [session_id]})
        assert (status, "read-only" in said["error"]) == (403, True)
        assert "Allow once" not in (await ada.get("/inbox"))[1]


async def test_a_proxys_header_counts_only_where_it_was_named(site):
    headers = {"X-Forwarded-User": "ada"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{site.url}/api/v1/me") as answer:
        assert answer.status == 401
    async with site_of(site.journal, access=Access(proxy_header="X-Forwarded-User", proxy_role="see")) as other:
        async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{other.url}/api/v1/me") as answer:
            said = await answer.json()
        assert (said["name"], said["role"], said["proof"]) == ("ada", "see", "proxy")


async def test_it_runs_inside_another_application(site):
    await site.run(PAYS, "Pay invoice 7")
    token, secret = new_token("ada", role="answer")
    app = Starlette()
    app.mount("/ops", web(site.journal, access=Access(tokens=[token])))
    async with served(app) as url, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        async with http.get(f"{url}/ops/sessions") as answer:
            assert answer.url.path == "/ops/login"
            place = str(answer.url)
        async with http.post(place, data={"token": secret}) as answer:
            assert answer.url.path == "/ops/sessions"
            assert 'href="/ops/static/treadle.css"' in await answer.text()
        async with http.get(f"{url}/ops/api/v1/inbox", headers={"Authorization": f"Bearer {secret}"}) as answer:
            assert (await answer.json())["total"] == 1


async def test_the_description_of_the_api_names_every_path(site):
    site_app = web(site.journal)
    (api,) = [one for one in site_app.routes if getattr(one, "path", "") == "/api/v1"]
    served_paths = {
        (one.path.replace(":path", ""), method.lower()) for one in api.routes for method in one.methods - {"HEAD"}
    }
    described = {(path, method) for path, methods in OPENAPI["paths"].items() for method in methods}
    assert described == served_paths - {("/openapi.json", "get")}


async def test_an_agent_is_tried_with_its_approvals_on_the_page(site):
    agent = Agent(ScriptedModel([{"text": "Hello, Ada."}]), name="echo")
    async with site_of(site.journal, agents=Agents([agent])) as other, other.browser() as ada:
        status, said = await ada.post("/api/v1/agents", {"agent": "echo", "text": "Hi"})
        assert status == 200
        async with open_session(site.journal, id=said["session"]) as session:
            assert session.state.metadata["tried_by"] == "ada (link)"
    async with site_of(site.journal) as production, production.browser() as ada:
        assert (await ada.post("/api/v1/agents", {"agent": "echo", "text": "Hi"}))[0] == 422


@pytest.mark.parametrize(
    "make",
    [
        lambda: web(7),
        lambda: Access(proxy_role="king"),
        lambda: new_token(""),
        lambda: new_token("ada (link)"),
        lambda: new_token("ada", role="king"),
    ],
)
def test_what_makes_no_page_is_refused(make):
    with pytest.raises(ConfigurationError):
        make()
