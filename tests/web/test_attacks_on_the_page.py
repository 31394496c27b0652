"""What an attacker tries on the page, as one table: every row says what would be theirs if it worked, and none does."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import pytest
from playwright.async_api import async_playwright
from web_site import PAYS, Client, Site, calls, look_up, pay, site_of

from treadle import Agent, Agents, open_journal, open_session, submit, tool
from treadle.events import ApprovalAnswered, SessionChanged, ToolInput, ToolResolved, ToolStarted
from treadle.testing import ScriptedModel
from treadle.toolsets import ask_user_tool
from treadle.web import Access, new_token

from test_web_in_a_browser import CHROMIUM, QUIET  # isort: skip


@tool(effect="unsafe", permission="allow")
async def lose(account: str) -> str:
    """Pay, and hear nothing."""
    raise ConnectionResetError("The connection broke.")


# --- A page with two tenants, and people of every kind.


class World(NamedTuple):
    """What is attacked, and who attacks."""

    site: Site
    foreign: str
    """A session of the tenant globex with a request."""
    foreign_id: str
    foreign_doubt: str
    foreign_question: str
    own: str
    """A session of the tenant acme with a request."""
    own_id: str
    failed: str
    """A task of acme that stopped."""
    looks: Client
    """May see everything."""
    answers: Client
    """May answer everything."""
    acme: Client
    """May do everything, at acme."""
    ada: Client
    """A browser of somebody who may do everything."""
    bo: Client
    """Another one."""

    def allow(self, session: str = "", item: str = "", **more: Any) -> dict[str, Any]:
        return {"requests": [{"session": session or self.own, "id": item or self.own_id}], "answer": "allow", **more}


ALL = {"see": None, "answer": None, "operate": ["acme"]}


@asynccontextmanager
async def world_of(journal: Any) -> AsyncIterator[World]:
    tokens, secrets = zip(*[new_token(f"eve-{role}", role=role, tenants=of) for role, of in ALL.items()], strict=True)
    echo = Agents([Agent(ScriptedModel([{"text": "Yes."}] * 9), name="echo")])
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(site_of(journal, access=Access(tokens=tokens), agents=echo))
        own, foreign = [await site.run(PAYS, f"Pay for {one}", tenant=one, agent="x") for one in ("acme", "globex")]
        async with open_session(journal, id=foreign) as tried:
            await tried.change(metadata={"tried_by": "mallory (link)"})
        asks = [{"calls": [calls("ask_user", question="Which secret branch?")]}, {"text": "Fixed."}]
        question = await site.run(asks, "Ask for globex", tenant="globex", agent="x")
        async with open_session(journal) as session:
            await session.change(metadata={"tenant": "globex"})
            turns = [{"calls": [calls("lose", account="DE02")]}, {"text": "?"}]
            await Agent(ScriptedModel(turns), tools=[lose], name="x").run("Lose for globex", session=session)
        failed = await submit(journal, "gone", "Fail for acme", tenant="acme", key="1")
        await submit(journal, "gone", "Secret of globex", tenant="globex", key="theirs")
        async with open_session(journal, id=failed) as task:
            await task.cancel(by="ada")
        asked = {one.session_id: one.id for one in await journal.approvals()}
        clients = [await stack.enter_async_context(site.program(secret)) for secret in secrets]
        browsers = [await stack.enter_async_context(site.browser(name=name)) for name in ("ada", "bo")]
        yield World(site, foreign, asked[foreign], session.id, question, own, asked[own], failed, *clients, *browsers)


Attack = Callable[[World], Awaitable[bool]]
ATTACKS: dict[str, dict[str, Attack]] = {"origin": {}, "authorisation": {}, "answers": {}, "limits": {}}


def attack(kind: str, name: str) -> Callable[[Attack], Attack]:
    """Add an attack to the table: a function that says whether it has succeeded."""

    def added(made: Attack) -> Attack:
        assert name not in ATTACKS[kind]
        ATTACKS[kind][name] = made
        return made

    return added


def posts(kind: str, name: str, who: str, path: str, body: Callable[[World], Any], **headers: str) -> None:
    """Add an attack that posts something: it succeeds if it is taken."""

    async def made(world: World) -> bool:
        status, said = await getattr(world, who).post(f"/api/v1/{path}", body(world), **headers)
        is_done = status == 200 and any("error" not in one for one in said.get("results", [{}]))
        return bool(is_done)

    attack(kind, name)(made)


def gets(kind: str, name: str, who: str, path: Callable[[World], str], secret: str) -> None:
    """Add an attack that reads something: it succeeds if it reads the secret."""

    async def made(world: World) -> bool:
        return secret in json.dumps((await getattr(world, who).get(path(world)))[1])

    attack(kind, name)(made)


# --- Other sites, and other names of this one.

posts("origin", "a form of another site", "ada", "approvals", World.allow, Origin="https://evil.example")
posts("origin", "a site with a name that begins alike", "ada", "approvals", World.allow, Origin="http://127.0.0.1.evil")
posts("origin", "a page in a sandbox", "ada", "approvals", World.allow, Origin="null")
posts("origin", "a script of another site", "ada", "approvals", World.allow, **{"Sec-Fetch-Site": "cross-site"})
posts("origin", "a neighbour's site", "ada", "approvals", World.allow, **{"Sec-Fetch-Site": "same-site"})
posts("origin", "no token of the page", "ada", "approvals", World.allow, **{"X-CSRF-Token": ""})
posts("origin", "another host in the Host header", "ada", "approvals", World.allow, Host="rebound.example")
posts("origin", "a method hidden in a header", "looks", "me", World.allow, **{"X-HTTP-Method-Override": "POST"})


@attack("origin", "the token of somebody else's page")
async def _(world: World) -> bool:
    headers = {"X-CSRF-Token": world.bo.headers["X-CSRF-Token"]}
    return (await world.ada.post("/api/v1/approvals", world.allow(), **headers))[0] == 200


@attack("origin", "JSON in a form of plain text")
async def _(world: World) -> bool:
    headers = {**world.ada.headers, "Content-Type": "text/plain"}
    url = f"{world.site.url}/api/v1/approvals"
    async with world.ada.http.post(url, data=json.dumps(world.allow()), headers=headers) as answer:
        return answer.status == 200


@attack("origin", "fields of a form")
async def _(world: World) -> bool:
    fields = {"session": world.own, "id": world.own_id, "answer": "allow"}
    async with world.ada.http.post(f"{world.site.url}/api/v1/approvals", data=fields, headers=world.ada.headers) as one:
        return one.status == 200


@attack("origin", "an answer in an address")
async def _(world: World) -> bool:
    await world.ada.get("/api/v1/approvals", session=world.own, id=world.own_id, answer="allow")
    return world.own_id not in json.dumps(await world.ada.inbox())


@attack("origin", "reading from another site's script")
async def _(world: World) -> bool:
    headers = {"Origin": "https://evil.example"}
    async with world.ada.http.get(f"{world.site.url}/api/v1/inbox", headers=headers) as answer:
        reads = "Access-Control-Allow-Origin" in answer.headers
    async with world.ada.http.options(f"{world.site.url}/api/v1/approvals", headers=headers) as answer:
        return reads or "Access-Control-Allow-Origin" in answer.headers


@attack("origin", "logging somebody in from another site")
async def _(world: World) -> bool:
    headers, fields = {"Origin": "https://evil.example"}, {"token": "tw_x"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{world.site.url}/login", data=fields, headers=headers) as one,
    ):
        return one.status != 403


@attack("origin", "leading to another site after the login")
async def _(world: World) -> bool:
    token, secret = new_token("mallory", role="see")
    async with site_of(world.site.journal, access=Access(tokens=[token])) as site, aiohttp.ClientSession() as http:
        led = []
        for place in (
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "\\\\evil",
            "/\n//e",
        ):
            url = f"{site.url}/login"
            async with http.post(url, params={"next": place}, data={"token": secret}, allow_redirects=False) as answer:
                led.append(answer.headers["Location"])
    return any(not place.startswith(("/inbox", "/%09/", "/%0A")) for place in led)


# --- What a role must not do.

posts("authorisation", "see: allow a call", "looks", "approvals", World.allow)
posts(
    "authorisation",
    "see: answer a question",
    "looks",
    "questions",
    lambda w: {"session": w.foreign_question, "id": "c"},
)
posts("authorisation", "see: resolve", "looks", "doubts", lambda w: {"session": w.foreign_doubt, "outcome": "unknown"})
posts("authorisation", "see: try an agent", "looks", "agents", lambda _: {"agent": "echo", "text": "Hi"})
for _act in ("cancel", "purge", "suspend", "steer", "fork", "retry"):
    posts(
        "authorisation",
        f"answer: {_act}",
        "answers",
        "sessions",
        lambda w, act=_act: {"act": act, "ids": [w.own], "text": "x"},
    )
posts("authorisation", "answer: try an agent", "answers", "agents", lambda _: {"agent": "echo", "text": "Hi"})
gets("authorisation", "see: export with secrets", "looks", lambda w: f"/api/v1/export?session={w.own}&exact=1", "DE02")

# --- What a person of one tenant must not see or do.

for _name, _path in {
    "a session": "/api/v1/sessions/{0}",
    "a session by another path": "/api/v1/sessions//{0}",
    "a page": "/session?id={0}",
    "the timeline": "/session?id={0}&tab=timeline",
    "events": "/api/v1/events?session={0}",
    "live": "/api/v1/live?session={0}",
    "lines": "/api/v1/export?session={0}&exact=1",
    "a request": "/request?session={0}&id={1}",
    "a chat": "/try?session={0}",
    "the list by tenant": "/api/v1/sessions?tenant=globex",
    "the list by text": "/api/v1/sessions?text=globex&below=1",
    "the list of children": "/api/v1/sessions?parent={0}&below=1",
    "the inbox by tenant": "/api/v1/inbox?tenant=globex",
    "doubts": "/api/v1/doubts",
    "questions": "/api/v1/questions",
    "costs": "/api/v1/costs?by=tenant",
    "costs as a table": "/api/v1/costs?by=tenant&format=csv",
    "the fleet": "/api/v1/fleet",
}.items():
    gets(
        "authorisation", f"another tenant: {_name}", "acme",
        lambda w, path=_path: path.format(w.foreign, w.foreign_id), "for globex",
    )  # fmt: skip
for _page in ("/inbox", "/sessions", "/costs", "/try"):
    gets("authorisation", f"another tenant: its name on {_page}", "acme", lambda _, page=_page: page, "globex")
for _act in ("cancel", "steer", "fork", "purge", "suspend", "retry", "resume"):
    posts(
        "authorisation",
        f"another tenant: {_act}",
        "acme",
        "sessions",
        lambda w, act=_act: {"act": act, "ids": [w.foreign], "text": "x"},
    )
posts("authorisation", "another tenant: allow", "acme", "approvals", lambda w: w.allow(w.foreign, w.foreign_id))
posts(
    "authorisation",
    "another tenant: its request as one of the own session",
    "acme",
    "approvals",
    lambda w: w.allow(w.own, w.foreign_id),
)
posts(
    "authorisation",
    "another tenant: a question",
    "acme",
    "questions",
    lambda w: {"session": w.foreign_question, "id": "c", "value": 1},
)
posts(
    "authorisation",
    "another tenant: a doubt",
    "acme",
    "doubts",
    lambda w: {"session": w.foreign_doubt, "id": "c", "outcome": "done"},
)
posts(
    "authorisation",
    "another tenant: continue its chat",
    "acme",
    "agents",
    lambda w: {"agent": "echo", "text": "x", "session": w.foreign},
)


@attack("authorisation", "another tenant: all of it by a filter")
async def _(world: World) -> bool:
    given = {"act": "cancel", "where": {"tenant": "globex"}}
    return bool((await world.acme.post("/api/v1/sessions", given))[1]["results"])


@attack("authorisation", "another tenant: an agent that runs for nobody, outside of the tenant's budget")
async def _(world: World) -> bool:
    _, said = await world.acme.post("/api/v1/agents", {"agent": "echo", "text": "Hi"})
    async with open_session(world.site.journal, id=said["session"], must_exist=True) as session:
        return session.state.metadata.get("tenant") != "acme"


@attack("authorisation", "another tenant: its task by the same key")
async def _(world: World) -> bool:
    given = {"act": "retry", "ids": [world.failed], "key": "theirs", "may_repeat": True}
    _, said = await world.acme.post("/api/v1/sessions", given)
    theirs = [one.id for one in await world.site.journal.sessions() if one.tenant == "globex"]
    return any(one.get("session") in theirs for one in said.get("results", []))


@attack("authorisation", "another tenant: how much waits there, from the live updates")
async def _(world: World) -> bool:
    async with world.acme.http.get(f"{world.site.url}/api/v1/changes") as answer:
        async for line in answer.content:
            if line.startswith(b"data:"):
                return json.loads(line[5:])["waiting"] != 1
    return False


# --- Answers that are forged or given again.


async def takes(world: World, headers: dict[str, str]) -> bool:
    """Whether an answer of somebody with these headers is taken."""
    url = f"{world.site.url}/api/v1/approvals"
    async with aiohttp.ClientSession(headers=headers) as http, http.post(url, json=world.allow()) as answer:
        return answer.status == 200


@attack("answers", "under another name")
async def _(world: World) -> bool:
    session_id = await world.site.run(PAYS, "Pay forged", agent="x")
    (asked,) = [one.id for one in await world.site.journal.approvals() if one.session_id == session_id]
    names = dict.fromkeys(("by", "approved_by", "name", "proof"), "boss (token)")
    await world.ada.post("/api/v1/approvals", world.allow(session_id, asked, **names))
    left = [*await world.site.journal.inbox(session_id), *await world.site.journal.read(session_id)]
    return {one.approved_by for one in left if hasattr(one, "approved_by")} != {"ada (link)"}


@attack("answers", "twenty at once")
async def _(world: World) -> bool:
    session_id = await world.site.run(PAYS, "Pay once", agent="x")
    (asked,) = [one.id for one in await world.site.journal.approvals() if one.session_id == session_id]
    answers = [
        who.post("/api/v1/approvals", {**world.allow(session_id, asked), "answer": answer})
        for who in (world.ada, world.bo) for answer in ("allow", "deny") for _ in range(5)
    ]  # fmt: skip
    taken = [status for status, _ in await asyncio.gather(*answers) if status == 200]
    return len(taken) != 1


@attack("answers", "the same request twice in one body")
async def _(world: World) -> bool:
    session_id = await world.site.run(PAYS, "Pay twice", agent="x")
    (asked,) = [one.id for one in await world.site.journal.approvals() if one.session_id == session_id]
    body = {"requests": [{"session": session_id, "id": asked}] * 2, "answer": "allow"}
    _, said = await world.ada.post("/api/v1/approvals", body)
    return sum("error" not in one for one in said["results"]) != 1


@attack("answers", "with arguments that do not fit")
async def _(world: World) -> bool:
    session_id = await world.site.run(PAYS, "Pay it all", agent="x")
    (asked,) = [one.id for one in await world.site.journal.approvals() if one.session_id == session_id]
    await world.ada.post("/api/v1/approvals", world.allow(session_id, asked, arguments={"amount": "all of it"}))
    model = ScriptedModel([{"text": "No."}])
    await Agents([Agent(model, tools=[look_up, pay, ask_user_tool()], name="x")]).resume(world.site.journal, session_id)
    return any(isinstance(one, ToolStarted) for one in await world.site.journal.read(session_id))


@attack("answers", "to a session that was cancelled")
async def _(world: World) -> bool:
    session_id = await world.site.run(PAYS, "Pay late", agent="x")
    (asked,) = [one.id for one in await world.site.journal.approvals() if one.session_id == session_id]
    await world.ada.post("/api/v1/sessions", {"act": "cancel", "ids": [session_id]})
    return (await world.ada.post("/api/v1/approvals", world.allow(session_id, asked)))[0] == 200


@attack("answers", "with a login that has ended")
async def _(world: World) -> bool:
    async with world.site.browser(name="cleo") as cleo:
        cookie = {"Cookie": "; ".join(f"{one.key}={one.value}" for one in cleo.http.cookie_jar)}
        async with cleo.http.post(f"{world.site.url}/logout", headers=cleo.headers) as answer:
            assert answer.status == 200
        return await takes(world, {**cookie, **cleo.headers})


@attack("answers", "with a link that was used")
async def _(world: World) -> bool:
    link = world.site.link("dan")
    statuses = []
    for _ in range(2):
        async with aiohttp.ClientSession() as http, http.get(link, allow_redirects=False) as answer:
            statuses.append(answer.status)
    return statuses != [303, 401]


@attack("answers", "as whom a proxy would name")
async def _(world: World) -> bool:
    names = ("X-Forwarded-User", "X-Remote-User", "Remote-User", "X-Auth-Request-User")
    return await takes(world, dict.fromkeys(names, "ada"))


@attack("answers", "as somebody with a token, by parts of it and by its hash")
async def _(world: World) -> bool:
    held = world.site.access.tokens[1]
    for secret in ("", "tw_", held.sha256, held.name, "*", "tw_" + "\u00e9"):
        if await takes(world, {"Authorization": f"Bearer {secret}"}):
            return True
    return False


for _name, _more in {
    "neither yes nor no": {"answer": "Allow"},
    "a list of answers": {"answer": ["allow"]},
    "for more than was asked": {"scope": "all"},
    "with arguments that are no object": {"arguments": "rm"},
    "with a reason that is no text": {"reason": {"x": 1}},
}.items():
    posts("answers", _name, "ada", "approvals", lambda w, more=_more: {**w.allow(), **more})
for _name, _more in {
    "an outcome that there is not": {"outcome": "paid"},
    "an outcome for a call that is not in doubt": {"id": "call_none", "outcome": "done"},
}.items():
    posts("answers", _name, "ada", "doubts", lambda w, more=_more: {"session": w.foreign_doubt, "id": "c", **more})
posts(
    "answers",
    "to a question that was not asked",
    "ada",
    "questions",
    lambda w: {"session": w.own, "id": "call_1", "value": 1},
)


# --- What is too much, or makes no sense: it is refused in a sentence, and others are still served.


def refuses(name: str, path: str, body: Any = None) -> None:
    """Add an attack with something that makes no sense: it succeeds if the server stumbles."""

    async def made(world: World) -> bool:
        said = world.ada.get(path) if body is None else world.ada.post(path, body)
        return (await said)[0] >= 500

    attack("limits", name)(made)


for _path in (
    "/api/v1/inbox?page=99999999999999999999&size=99999999999",
    "/api/v1/inbox?page=-1&size=-5",
    f"/api/v1/sessions?page={'9' * 5000}",
    "/sessions?age=nan",
    "/sessions?age=1e999&text=%00%FF%ED%A0%80",
    f"/sessions?text={'a' * 20_000}",
    "/costs?days=abc",
    "/costs?days=nan",
    "/costs?days=-1e300",
    "/costs?days=inf&by=__class__",
    "/api/v1/events?session=%2e%2e%2f%2e%2e%2fetc%2fpasswd&after=-1&limit=-9",
    "/api/v1/sessions/..%2f..%2f..%2fetc%2fpasswd",
    "/static/..%2f..%2faccess.py",
    "/session?id=%00",
):
    refuses(_path[:60], _path)
refuses("a body of 300 KB", "/api/v1/approvals", {"requests": [], "reason": "x" * 300_000})
refuses("501 requests", "/api/v1/approvals", {"requests": [{"session": "s", "id": "i"}] * 501, "answer": "allow"})
refuses("a limit below zero", "/api/v1/sessions", {"act": "cancel", "where": {"tenant": "t"}, "limit": -1})
refuses(
    "numbers beyond all bounds", "/api/v1/sessions", {"act": "fork", "ids": ["s", 10**400, None, {}], "at": 10**400}
)


@attack("limits", "JSON that is 100,000 lists deep")
async def _(world: World) -> bool:
    headers = {**world.ada.headers, "Content-Type": "application/json"}
    body = "[" * 100_000 + "]" * 100_000
    async with world.ada.http.post(f"{world.site.url}/api/v1/approvals", data=body, headers=headers) as answer:
        return answer.status not in (400, 422)


@attack("limits", "a body without a length that does not end")
async def _(world: World) -> bool:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 10_000

    headers = {**world.ada.headers, "Content-Type": "application/json"}
    try:
        async with world.ada.http.post(f"{world.site.url}/api/v1/approvals", data=body(), headers=headers) as answer:
            return answer.status != 413
    except aiohttp.ClientError:
        return False  # it was cut off


@attack("limits", "wrong tokens, so that nobody can log in")
async def _(world: World) -> bool:
    token, secret = new_token("frank", role="see")
    async with site_of(world.site.journal, access=Access(tokens=[token])) as site, aiohttp.ClientSession() as http:
        for _ in range(40):
            async with http.post(f"{site.url}/login", data={"token": "tw_wrong"}) as answer:
                refused = answer.status
        async with http.post(f"{site.url}/login", data={"token": secret}, allow_redirects=False) as answer:
            return (refused, answer.status) != (429, 303)


@attack("limits", "open pages, so that nobody else is told of anything")
async def _(world: World) -> bool:
    async with AsyncExitStack() as stack:
        url = f"{world.site.url}/api/v1/changes"
        http = await stack.enter_async_context(
            aiohttp.ClientSession(headers=world.looks.http.headers, connector=aiohttp.TCPConnector(limit=0))
        )
        refused = [(await stack.enter_async_context(http.get(url))).status for _ in range(120)].count(503)
        async with world.bo.http.get(url) as answer:
            return answer.status != 200 or not refused


@attack("limits", "a thousand changes in a minute")
async def _(world: World) -> bool:
    body = {"session": "s_none", "id": "x", "value": 1}
    return 429 not in [(await world.answers.post("/api/v1/questions", body))[0] for _ in range(125)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_journal("memory:") as journal, world_of(journal) as made:
        yield made


# --- What models, tools, servers and people write: it stays text, on every page that shows it.

SCRIPTS = (
    "<script>harm({n})</script>",
    "</script><script>harm({n})</script>",
    "</textarea><script>harm({n})</script>",
    "</title><script>harm({n})</script>",
    "</style><script>harm({n})</script>",
    "--><script>harm({n})</script>",
    "]]><script>harm({n})</script>",
    "<img src=x onerror=harm({n})>",
    "<img src='/api/v1/agents' onload=harm({n})>",
    "<svg onload=harm({n})><a xlink:href='javascript:harm({n})'><text>x</text></a></svg>",
    "<svg><script href='data:text/javascript,harm({n})'/></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=harm({n})>",
    "<iframe srcdoc='<script>parent.harm({n})</script>'></iframe>",
    "<object data='data:text/html,<script>harm({n})</script>'></object>",
    "<details open ontoggle=harm({n})>x</details>",
    "<input autofocus onfocus=harm({n})>",
    "<form action='https://evil.example'><button>Allow</button></form>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=javascript:harm({n})'>",
    "<link rel=stylesheet href='https://evil.example/x.css'><style>*{{display:none}}</style>",
    '" onmouseover="harm({n})" autofocus onfocus="harm({n})" x="',
    "' onfocus='harm({n})' autofocus tabindex='1",
    "` onerror=`harm({n})",
    "[a](javascript:harm({n})) [b](JaVaScRiPt&colon;harm({n})) [c](java\tscript:harm({n}))",
    "[d](data:text/html;base64,PHNjcmlwdD5oYXJtKDEpPC9zY3JpcHQ+) [e](vbscript:harm({n})) <javascript:harm({n})>",
    "[f]: javascript:harm({n})\n\n[f] ![g](https://evil.example/x.png) ![h](x 'onerror=harm({n})')",
    '```"><img src=x onerror=harm({n})>\ncode\n```',
    "{{{{ 7*7 }}}} {{% import os %}} ${{harm({n})}} #{{harm({n})}}",
    "&lt;script&gt;harm({n})&lt;/script&gt; &#60;img src=x onerror=harm({n})&#62; +ADw-script+AD4-harm({n})",
    "\x1b]8;;javascript:harm({n})\x07x\x1b]8;;\x07 \u202e)({n}mrah\u2028<\x00script>harm({n})</script>",
)
TEXTS = [text.format(n=number) for number, text in enumerate(SCRIPTS)]
OWN = """() => {
  const found = [];
  const kinds = "script:not([src$='/static/treadle.js']), iframe, object, embed, base, style, img, math, meta[http-equiv], link[href*=evil]";
  for (const one of document.querySelectorAll(kinds)) found.push(one.outerHTML);
  for (const one of document.querySelectorAll("*")) for (const { name, value } of one.attributes) {
    if (name.startsWith("on") || name === "srcdoc") found.push(one.outerHTML);
    if (["href", "src", "action", "formaction", "xlink:href"].includes(name)) {
      const url = new URL(value, document.baseURI);
      if (url.origin !== location.origin && !(one.rel || "").includes("noopener") || !url.protocol.startsWith("http")) found.push(one.outerHTML);
    }
  }
  return found.map((one) => one.slice(0, 200));
}"""


async def hostile_sessions(site: Site) -> list[str]:
    """Write every text wherever somebody else than the page's author writes: return the sessions."""
    ids = []
    for text in TEXTS:
        named = "".join(char for char in text if char.isprintable())[:60]
        turns = [
            {"text": text, "thinking": text, "calls": [calls("look_up", customer=text)]},
            {"text": text, "calls": [calls("pay", account=text, amount=1)]},
        ]
        ids.append(await site.run(turns, text, tenant=text[:60], agent=named))
    asks = [{"calls": [calls("ask_user", question=text, choices=[text, "no"])]} for text in TEXTS]
    ids += [await site.run([turn, {"text": "?"}], "Ask", agent="x") for turn in asks]
    async with open_session(site.journal, id=ids[0]) as session:
        await session.change(
            status="suspended", reason=" ".join(TEXTS), by=TEXTS[0], metadata={text: text for text in TEXTS}
        )
    return ids


def places(site: Site, ids: list[str]) -> list[str]:
    """Return where the texts are shown: on lists, in sessions, and where an address is shown again."""
    lists = [
        "/inbox",
        "/inbox?page=2",
        "/sessions",
        "/sessions?page=2",
        "/fleet",
        "/costs?by=agent",
        "/costs?by=tenant",
    ]
    kept = [f"/session?{urlencode({'id': one, 'tab': tab})}" for one in ids[:30] for tab in ("conversation",)]
    kept += [f"/session?{urlencode({'id': ids[0], 'tab': tab})}" for tab in ("timeline", "context", "events")]
    shown = "".join(TEXTS)
    again = [{"text": shown, "status": shown, "tenant": shown}, {"agent": '"><script>harm(99)</script>'}]
    kept += [f"/sessions?{urlencode(one)}" for one in again]
    kept += [f"/{page}?{urlencode({'id': shown, 'session': shown})}" for page in ("session", "request", "nothing")]
    return [*lists, *kept]


@pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser needs one: apt-get install chromium")
async def test_thirty_hostile_texts_stay_text_on_every_page() -> None:
    assert len(TEXTS) >= 30
    async with (
        open_journal("memory:") as journal,
        site_of(journal, access=Access(tokens=[new_token("eve")[0]])) as site,
        async_playwright() as playwright,
    ):
        ids = await hostile_sessions(site)
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        page = await browser.new_page()
        harms: list[str] = []
        await page.expose_function("harm", lambda number: harms.append(f"script {number}"))
        page.on("dialog", lambda dialog: harms.append(dialog.message))
        page.on("console", lambda said: harms.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: None if asked.url.startswith(site.url) else harms.append(asked.url))
        await page.goto(site.link())
        for place in places(site, ids):
            await page.goto(site.url + place)
            await page.evaluate("() => { for (const one of document.querySelectorAll('details')) one.open = true; }")
            harms += [f"{place[:80]}: {one}" for one in await page.evaluate(OWN)]
        await page.goto(f"{site.url}/login?{urlencode({'next': ''.join(TEXTS)})}")
        harms += await page.evaluate(OWN)
        await browser.close()
    assert not harms, "\n".join(harms)


LEAST = {"origin": 10, "authorisation": 20, "answers": 10, "limits": 10}
DONE = (ApprovalAnswered, ToolInput, ToolResolved)


@pytest.mark.parametrize("kind", ATTACKS)
async def test_no_attack_succeeds(world: World, kind: str) -> None:
    succeeded = [name for name, tried in ATTACKS[kind].items() if await tried(world)]

    assert not succeeded, "\n".join(succeeded)
    assert len(ATTACKS[kind]) >= LEAST[kind]
    for session_id in (world.own, world.foreign, world.foreign_question, world.foreign_doubt):
        changes = [
            one for one in await world.site.journal.read(session_id)
            if isinstance(one, DONE) or (isinstance(one, SessionChanged) and one.status)
        ]  # fmt: skip
        assert (changes, await world.site.journal.inbox(session_id)) == ([], ())
