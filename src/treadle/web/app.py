"""App: the pages and the JSON API, as one application that runs by itself or inside another. `acts.py` does what people ask for."""

import asyncio
import csv
import io
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import jinja2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle import Agents, ConfigurationError, TreadleError, open_journal
from treadle.errors import UnknownSession
from treadle.events import ChildStarted, event_object
from treadle.ports import Journal
from treadle.sessions import budgets_left
from treadle.web import views
from treadle.web.access import Access, Person
from treadle.web.acts import CONSEQUENCES, Acts, told
from treadle.web.api import OPENAPI
from treadle.web.shared import Shared
from treadle.web.snapshot import Snapshot
from treadle.web.watching import Watching, server_event

__all__ = ["web"]

_COOKIE = "treadle_login"
_MOST_BYTES = 256 * 1024
_MOST_FIELDS = 64
_ACTS_A_MINUTE = 120
_MOST_STREAMS = 200
_MOST_STREAMS_EACH = 100
"""Of one person: others are still told of what changes."""
_MOST_AT_ONCE = 500
_REQUESTS = 25
"""Of a page of the inbox: each has all that is needed for an answer."""
_HERE = Path(__file__).parent
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "testserver"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, browsers send the origin `null` with a form, such as that of the login
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not carried out.

    Args:
        status: Of HTTP.
        message: What to do, in one sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def web(
    journal: str | Path | Journal,
    *,
    access: Access | None = None,
    agents: Agents | None = None,
    read_only: bool = False,
) -> Starlette:
    """Return an application that shows a journal and takes answers, for a server of ASGI or for `app.mount("/treadle", ...)`.

    Example:
        token, secret = new_token("ada", role="answer")
        app.mount("/treadle", web("agent.db", access=Access(tokens=[token])))

    Args:
        journal: A file's path, `postgresql://...`, or an open journal (it stays open).
        access: Who may use it. None: nobody, until `app.state.access.new_link(name)` has made a link for somebody.
        agents: Agents that can be tried on the page, and whose sessions this process continues once they are answered. None in
            production: the workers continue them.
        read_only: Whether nothing can be answered or changed.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if not isinstance(journal, str | Path) and not callable(getattr(journal, "sessions", None)):
        raise ConfigurationError("web() needs a journal: a path, an address or an open journal.")
    if access is not None and not isinstance(access, Access):
        raise ConfigurationError(f"access is an Access, or None; got {access!r:.80}.")
    if agents is not None and not isinstance(agents, Agents):
        raise ConfigurationError(f"agents are an Agents, or None; got {agents!r:.80}.")
    if not isinstance(read_only, bool):
        raise ConfigurationError(f"read_only is True or False; got {read_only!r:.80}.")
    site = _Site(journal, access or Access(), agents, read_only=read_only)
    app = Starlette(routes=site.routes(), lifespan=site.lifespan)
    app.add_middleware(_Guard, site=site)
    app.state.access = site.access
    return app


# --- Who may ask, and how: in front of every page.


class _Guard:
    """Checks where each request comes from and who sends it, before anything else sees it."""

    def __init__(self, app: ASGIApp, site: "_Site") -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *((name, value) for name, value in added if name not in own)]
            await send(message)

        request = Request(scope, receive)
        request.state.root = scope.get("root_path", "").rstrip("/")
        try:
            self._check(request)
            await self._app(scope, _bounded(receive), send_with_headers)
        except Refused as error:
            await self._site.refusal(request, error)(scope, receive, send_with_headers)

    def _check(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        access = self._site.access
        if name.lower() not in _LOOPBACK | access.hosts:
            raise Refused(
                421, f"This page is not reached as {name[:100]!r}. Name the host with --host, or Access(hosts=[...])."
            )
        person, csrf = self._person(request)
        request.state.person, request.state.csrf = person, csrf
        if request.method in ("GET", "HEAD"):
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and origin.partition("://")[2] != host) or site not in ("same-origin", "none"):
            raise Refused(403, "This request came from another site.")
        if csrf and request.headers.get("x-csrf-token") != csrf and not _path(request).startswith("/log"):
            raise Refused(403, "The page is too old, or this request came from another site. Load the page again.")

    def _person(self, request: Request) -> tuple[Person | None, str]:
        """Return who asks, and what a browser of theirs sends with each change."""
        access = self._site.access
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            if (person := access.of_secret(secret.strip())) is None:
                raise Refused(401, "This token is not known.")
            return person, ""
        if (login := access.of_cookie(request.cookies.get(_COOKIE, ""))) is not None:
            return login.person, login.csrf
        person = access.of_proxy(request.headers)
        return person, "" if person is None else self._site.proxy_csrf


def _bounded(receive: Receive) -> Receive:
    """Refuse a body that is too long, however it is sent."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > _MOST_BYTES:
            raise Refused(413, f"A request has at most {_MOST_BYTES // 1024} KB.")
        return message

    return bounded


def _path(request: Request) -> str:
    """Return the path below the place where the application is mounted."""
    path: str = request.scope["path"]
    return path.removeprefix(request.state.root) or "/"


# --- The pages and the API.


Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_ActOnOne: TypeAlias = Callable[[str, str, Mapping[str, Any], str], Awaitable[dict[str, Any]]]


class _Site:
    """What the pages share."""

    def __init__(
        self, journal: str | Path | Journal, access: Access, agents: Agents | None, *, read_only: bool
    ) -> None:
        self.access = access
        self.is_read_only = read_only
        self.proxy_csrf = access.new_csrf()
        self._given = journal
        self._agents = agents
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._watching: Watching | None = None
        self._shared = Shared()
        self._acts: Acts | None = None
        self._recent: dict[str, deque[float]] = {}
        self._streams: Counter[str] = Counter()
        self._templates = _templates()

    # --- the journal: opened by the first request, since the lifespan of a mounted application is never run

    async def snapshot(self) -> Snapshot:
        async with self._opening:
            if self._snapshot is None:
                given = self._given
                journal = (
                    await self._stack.enter_async_context(open_journal(given))
                    if isinstance(given, str | Path)
                    else given
                )
                self._acts = Acts(journal, self._agents)
                self._snapshot = Snapshot(journal)
                self._watching = Watching(self._snapshot)
        return await self._snapshot.ready()

    @property
    def watching(self) -> Watching:
        assert self._watching is not None
        return self._watching

    @property
    def acts(self) -> Acts:
        assert self._acts is not None
        return self._acts

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._snapshot is not None:
                await self.watching.close()
                await self._snapshot.close()
                await self.acts.close()
            await self._stack.aclose()

    # --- routes

    def routes(self) -> list[Any]:
        see, answer, operate = (self._for(role) for role in ("see", "answer", "operate"))
        api = [
            Route("/openapi.json", self.openapi),
            Route("/me", see(self.me)),
            Route("/inbox", see(self.api_inbox)),
            Route("/approvals", see(self.api_inbox), methods=["GET"]),
            Route("/approvals", answer(self.post_approvals), methods=["POST"]),
            Route("/questions", see(self.api_inbox), methods=["GET"]),
            Route("/questions", answer(self.post_question), methods=["POST"]),
            Route("/doubts", see(self.api_inbox), methods=["GET"]),
            Route("/doubts", answer(self.post_doubt), methods=["POST"]),
            Route("/sessions", see(self.api_sessions), methods=["GET"]),
            Route("/sessions", operate(self.post_sessions), methods=["POST"]),
            Route("/sessions/{id:path}", see(self.api_session)),
            Route("/events", see(self.api_events)),
            Route("/export", see(self.export)),
            Route("/fleet", see(self.api_fleet)),
            Route("/costs", see(self.api_costs)),
            Route("/agents", see(self.api_agents), methods=["GET"]),
            Route("/agents", operate(self.post_message), methods=["POST"]),
            Route("/changes", see(self.changes)),
            Route("/live", see(self.live)),
        ]
        return [
            Route("/", self.home),
            Route("/enter", self.enter),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/inbox", see(self._once(self.page_inbox))),
            Route("/request", see(self._once(self.page_request))),
            Route("/sessions", see(self._once(self.page_sessions))),
            Route("/session", see(self._once(self.page_session))),
            Route("/fleet", see(self._once(self.page_fleet))),
            Route("/costs", see(self._once(self.page_costs))),
            Route("/try", operate(self._once(self.page_try))),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
            Mount("/api/v1", routes=api),
        ]

    def _for(self, role: Any) -> Callable[[Handler], Handler]:  # Any: a role
        """Let only those in who have a role; turn what goes wrong into an answer."""

        def wrap(handler: Handler) -> Handler:
            async def handled(request: Request) -> Response:
                try:
                    self._check_role(request, role)
                    return await handler(request)
                except (TreadleError, msgspec.MsgspecError) as error:
                    return self.refusal(request, Refused(*_told(request, error)))
                except Refused as error:
                    return self.refusal(request, error)

            return handled

        return wrap

    def _once(self, handler: Handler) -> Handler:
        """Make the inner part of a page once for all who are shown the same: it changes for all at once."""

        async def once(request: Request) -> Response:
            if not _is_part(request):
                return await handler(request)
            snapshot, person = await self.snapshot(), request.state.person
            key = (_root(request), _place(request), person.role, person.tenants)
            made_of = snapshot.version, self.watching.head(request.query_params.get("id", ""))
            return await self._shared.get(key, made_of, lambda: handler(request))

        return once

    def _check_role(self, request: Request, role: Any) -> None:
        person: Person | None = request.state.person
        if person is None:
            raise Refused(401, "Log in first.")
        if not person.may(role):
            raise Refused(403, f"This needs the role {role}; yours is {person.role}.")
        if request.method == "POST":
            self._check_change(person)

    def _check_change(self, person: Person) -> None:
        if self.is_read_only:
            raise Refused(403, "This page is read-only.")
        recent, now = self._recent.setdefault(person.signature, deque()), time.monotonic()
        while recent and now - recent[0] > 60:
            recent.popleft()
        if len(recent) >= _ACTS_A_MINUTE:
            raise Refused(429, f"More than {_ACTS_A_MINUTE} changes in a minute. Wait a moment.")
        recent.append(now)

    def refusal(self, request: Request, error: Refused) -> Response:
        """Return the answer to a request that is not carried out: JSON for programs, a page for people."""
        path = _path(request)
        if path.startswith("/api/"):
            return _json({"error": error.message}, status=error.status)
        if error.status == 401 and path != "/enter":
            return RedirectResponse(f"{_root(request)}/login?{urlencode({'next': _place(request)})}", status_code=303)
        body = self._templates.get_template("error.html").render(
            root=_root(request), status=error.status, message=error.message
        )
        return HTMLResponse(body, status_code=error.status)

    def page(self, request: Request, name: str, **shown: Any) -> Response:  # Any: what a template shows
        """Return a page; only its inner part where its own script asks for it."""
        person: Person = request.state.person
        snapshot = self._snapshot
        fault = "" if snapshot is None else snapshot.fault
        values = {
            "root": _root(request),
            "path": _path(request),
            "query": dict(request.query_params),
            "person": person,
            "csrf": request.state.csrf,
            "may_answer": person.may("answer") and not self.is_read_only,
            "may_operate": person.may("operate") and not self.is_read_only,
            "is_read_only": self.is_read_only,
            "waiting": 0 if snapshot is None else views.waiting(snapshot, person),
            "journal": snapshot.journal.location if snapshot is not None and _sees_address(person) else "",
            "fault": fault if _sees_address(person) or not fault else _AWAY,
            "version": 0 if snapshot is None else snapshot.version,
            "has_agents": self._agents is not None,
            "now": time.time(),
            "is_part": _is_part(request),
            **shown,
        }
        return HTMLResponse(self._templates.get_template(name).render(values))

    # --- ways in and out

    async def home(self, request: Request) -> Response:
        return RedirectResponse(f"{_root(request)}/inbox", status_code=303)

    async def enter(self, request: Request) -> Response:
        cookie = self.access.take_link(request.query_params.get("key", ""))
        if cookie is None:
            return self.refusal(request, Refused(401, "This link was used already, or is too old. Ask for a new one."))
        return self._let_in(request, cookie, "/inbox")

    def _let_in(self, request: Request, cookie: str, place: str) -> Response:
        answer = RedirectResponse(f"{_root(request)}{place}", status_code=303)
        is_secure = request.url.scheme == "https"
        path = _root(request) or "/"
        # Lax: a link in a message leads to its request. What changes anything needs the own origin and the token of the page.
        answer.set_cookie(_COOKIE, cookie, httponly=True, samesite="lax", secure=is_secure, path=path)
        return answer

    async def login(self, request: Request) -> Response:
        place = request.query_params.get("next", "/inbox")
        message = ""
        if request.method == "POST":
            form = await request.form(max_files=0, max_fields=4)
            person = self.access.of_secret(str(form.get("token", "")).strip())
            if person is not None:
                is_own = place.startswith("/") and not place.startswith(("//", "/\\"))
                return self._let_in(request, self.access.log_in(person), place if is_own else "/inbox")
            self._check_attempts()  # after the right ones: nobody is locked out by a stranger's guesses
            message = "This token is not known."
        body = self._templates.get_template("login.html").render(
            root=_root(request), message=message, has_tokens=bool(self.access.tokens), action=str(request.url.query)
        )
        return HTMLResponse(body, status_code=401 if message else 200)

    def _check_attempts(self) -> None:
        recent, now = self._recent.setdefault("", deque()), time.monotonic()
        while recent and now - recent[0] > 60:
            recent.popleft()
        if len(recent) >= 30:
            raise Refused(429, "Too many attempts. Wait a minute.")
        recent.append(now)

    async def logout(self, request: Request) -> Response:
        self.access.log_out(request.cookies.get(_COOKIE, ""))
        answer = RedirectResponse(f"{_root(request)}/login", status_code=303)
        answer.delete_cookie(_COOKIE, path=_root(request) or "/")
        return answer

    # --- what a person sees

    async def _check_sees(self, request: Request, session_id: str) -> None:
        """Refuse a session that this person must not see, as if there were none."""
        person: Person = request.state.person
        snapshot = await self.snapshot()
        if session_id not in snapshot.infos:  # it may be a moment old
            await snapshot.refresh()
        if session_id not in snapshot.infos or not person.sees(snapshot.tenant_of(session_id)):
            raise UnknownSession(f"There is no session {session_id[:80]!r} here.")

    async def page_inbox(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        wanted = _wanted(request, "kind", "tenant", "agent", "tool", "age")
        found = views.inbox(snapshot, request.state.person, wanted, page=_page(request), size=_REQUESTS)
        return self.page(request, "inbox.html", found=found, wanted=wanted, choices=self._choices(request))

    async def page_request(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        session_id, item_id = request.query_params.get("session", ""), request.query_params.get("id", "")
        await self._check_sees(request, session_id)
        found = views.of_session(snapshot, request.state.person, session_id)
        item = next((one for one in found if one["id"] == item_id and one["session"] == session_id), None)
        call = None if item is not None else await self._answered(snapshot, session_id, item_id)
        return self.page(request, "request.html", item=item, call=call, session_id=session_id)

    async def _answered(self, snapshot: Snapshot, session_id: str, item_id: str) -> dict[str, Any] | None:
        """Return the call that a request was about, once it has been answered."""
        events = await snapshot.journal.read(session_id)
        asked = next(
            (one.call_id for one in events if getattr(one, "approval_id", None) == item_id and one.call_id), item_id
        )
        left = next(
            (one for one in await snapshot.journal.inbox(session_id) if getattr(one, "approval_id", "") == item_id),
            None,
        )
        entries = views.conversation(events)
        found = next((one["call"] for one in entries if one["kind"] == "call" and one["call"]["id"] == asked), None)
        if found is not None and left is not None and not found["answer"]:
            found.update(
                answer=getattr(left, "answer", ""),
                answered_by=getattr(left, "approved_by", ""),
                answered_at=getattr(left, "at", None),
            )
        return found

    async def page_sessions(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        wanted = _wanted(request, "status", "state", "tenant", "agent", "model", "text", "age", "below", "parent")
        found = views.listing(snapshot, request.state.person, wanted, page=_page(request))
        return self.page(
            request,
            "sessions.html",
            found=found,
            wanted=wanted,
            choices=self._choices(request),
            consequences=CONSEQUENCES,
        )

    def _choices(self, request: Request) -> dict[str, list[str]]:
        """Return what the filters offer."""
        person: Person = request.state.person
        snapshot = self._snapshot
        cards = (
            []
            if snapshot is None
            else [card for card in snapshot.cards.values() if person.sees(snapshot.tenant_of(card.id))]
        )
        approvals = () if snapshot is None else snapshot.approvals
        return {
            "tenant": sorted({card.tenant for card in cards} - {""}),
            "agent": sorted({card.agent for card in cards} - {""}),
            "model": sorted({card.model for card in cards} - {""}),
            "tool": sorted(
                {
                    one.tool
                    for one in approvals
                    if snapshot is not None and person.sees(snapshot.tenant_of(one.session_id))
                }
            ),
        }

    async def page_session(self, request: Request) -> Response:
        shown = await self._session(request, request.query_params.get("id", ""))
        tab = request.query_params.get("tab", "conversation")
        return self.page(
            request, "session.html", tab=tab, consequences=CONSEQUENCES, acts=views.acts_on(shown["session"]), **shown
        )

    async def _session(self, request: Request, session_id: str) -> dict[str, Any]:
        snapshot = await self.snapshot()
        await self._check_sees(request, session_id)
        events = await snapshot.journal.read(session_id)
        below = {session_id: events}
        await self._read_below(snapshot.journal, events, below)
        return {
            "session": views.row(snapshot, session_id),
            "metadata": views.metadata(snapshot, session_id),
            "entries": views.conversation(events),
            "timeline": views.hidden(views.chart(views.waterfall(below, session_id))),
            "steps": views.steps(events),
            "points": views.points(events),
            "items": views.of_session(snapshot, request.state.person, session_id),
            "children": [key for key in below if key != session_id],
            "head": events[-1].seq if events else 0,
        }

    async def _read_below(
        self, journal: Journal, events: Any, found: dict[str, Any]
    ) -> None:  # Any: sequences of events
        for child in [event.child_id for event in events if isinstance(event, ChildStarted)]:
            if child not in found and len(found) < 50:
                found[child] = await journal.read(child)
                await self._read_below(journal, found[child], found)

    async def page_fleet(self, request: Request) -> Response:
        return self.page(request, "fleet.html", fleet=await self._fleet(request))

    async def _fleet(self, request: Request) -> dict[str, Any]:
        if request.state.person.tenants is not None:
            raise Refused(403, "The fleet is shown to people of all tenants only.")
        return views.fleet(await self.snapshot())

    async def page_costs(self, request: Request) -> Response:
        await self.snapshot()
        wanted = _wanted(request, "by", "days")
        return self.page(request, "costs.html", costs=await self._costs(request), wanted=wanted)

    async def _costs(self, request: Request) -> dict[str, Any]:
        snapshot = await self.snapshot()
        days = max(1, min(_number(request, "days", 30), 3660))
        person: Person = request.state.person
        now = time.time()
        left = await budgets_left(snapshot.journal, now=now, since=now - days * 86400.0)
        found = views.costs(snapshot, person, by=request.query_params.get("by") or "model", days=days)
        return {**found, "budgets": views.budgets(left, person)}

    async def page_try(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        session_id = request.query_params.get("session")
        shown = {} if session_id is None else await self._session(request, session_id)
        names = [agent.name for agent in self._agents or ()]
        seen = [card for card in snapshot.cards.values() if request.state.person.sees(snapshot.tenant_of(card.id))]
        recent = [card for card in seen if "tried_by" in card.metadata]
        recent.sort(key=lambda card: -card.updated_at)
        agent = (
            request.query_params.get("agent")
            or (shown["session"]["agent"] if shown else "")
            or (names[0] if names else "")
        )
        return self.page(request, "try.html", agents=names, agent=agent, recent=recent[:20], chat=shown or None)

    # --- the API

    async def openapi(self, request: Request) -> Response:
        return _json(OPENAPI)

    async def me(self, request: Request) -> Response:
        person: Person = request.state.person
        return _json({**msgspec.to_builtins(person), "read_only": self.is_read_only})

    async def api_inbox(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        kind = {"/approvals": "approval", "/questions": "question", "/doubts": "doubt"}.get(
            _path(request).removeprefix("/api/v1"), ""
        )
        wanted = _wanted(request, "kind", "tenant", "agent", "tool", "age")
        if kind:
            wanted["kind"] = kind
        return _json(views.inbox(snapshot, request.state.person, wanted, page=_page(request), size=_size(request)))

    async def post_approvals(self, request: Request) -> Response:
        await self.snapshot()
        return await self._post_items(request, "approval", self.acts.approve)

    async def post_doubt(self, request: Request) -> Response:
        await self.snapshot()
        return await self._post_items(request, "doubt", self.acts.resolve)

    async def _post_items(self, request: Request, kind: str, act: _ActOnOne) -> Response:
        """Give one answer to the requests or doubts that are named, or to those that a filter finds; or only say which they are."""
        given = await _body(request)
        snapshot = await self.snapshot()
        if isinstance(given.get("session"), str):
            asked: Any = [{"session": given["session"], "id": given.get("id")}]
        elif "where" in given:
            wanted = _where(given, views.WAITING)
            asked = views.chosen(snapshot, request.state.person, kind, wanted)[: _limit(given)]
        else:
            asked = given.get("requests")
        if not isinstance(asked, list) or len(asked) > _MOST_AT_ONCE or not (asked or "where" in given):
            raise Refused(422, f"`requests` is a list of 1 to {_MOST_AT_ONCE} objects with `session` and `id`.")
        if len(asked) > 1 and given.get("arguments") is not None:
            raise Refused(422, "Edited arguments are for one request.")
        if given.get("dry_run"):
            return _json({"requests": asked})
        return await self._acted([await self._on_one(request, one, given, act) for one in asked])

    async def _on_one(self, request: Request, one: Any, given: Mapping[str, Any], act: _ActOnOne) -> dict[str, Any]:
        named = one if isinstance(one, dict) else {}
        session_id, item_id = str(named.get("session", "")), str(named.get("id", ""))
        try:
            await self._check_sees(request, session_id)
            done = await act(session_id, item_id, given, request.state.person.signature)
        except (TreadleError, msgspec.MsgspecError) as error:
            status, message = _told(request, error)
            return {"session": session_id, "id": item_id, "error": message, "status": status}
        return {"session": session_id, "id": item_id, **done}

    async def _acted(self, results: list[dict[str, Any]]) -> Response:
        """Answer with what came of each; with its own status where there was only one and it failed."""
        await (await self.snapshot()).refresh()
        if len(results) == 1 and "error" in results[0]:
            return _json({"error": results[0]["error"]}, status=results[0]["status"])
        return _json({"results": results})

    async def post_question(self, request: Request) -> Response:
        given = await _body(request)
        snapshot = await self.snapshot()
        session_id = str(given.get("session", ""))
        await self._check_sees(request, session_id)
        done = await self.acts.answer(session_id, str(given.get("id", "")), given, request.state.person.signature)
        await snapshot.refresh()
        return _json(done)

    async def api_sessions(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        wanted = _wanted(request, "status", "state", "tenant", "agent", "model", "text", "age", "below", "parent")
        return _json(views.listing(snapshot, request.state.person, wanted, page=_page(request), size=_size(request)))

    async def api_session(self, request: Request) -> Response:
        return _json(await self._session(request, request.path_params["id"]))

    async def post_sessions(self, request: Request) -> Response:
        """Do one act on the sessions that are named, or on those that a filter finds."""
        given = await _body(request)
        act, ids = str(given.get("act", "")), given.get("ids")
        snapshot = await self.snapshot()
        if act not in CONSEQUENCES:
            raise Refused(422, f"`act` is one of {', '.join(CONSEQUENCES)}.")
        if ids is None:
            rows = views.listing(snapshot, request.state.person, _where(given, views.CONDITIONS), size=1_000_000).rows
            ids = [row["id"] for row in rows if act in views.acts_on(row)][: _limit(given)]
        if not isinstance(ids, list) or len(ids) > _MOST_AT_ONCE:
            raise Refused(422, f"`ids` is a list of at most {_MOST_AT_ONCE} ids.")
        if given.get("dry_run"):
            return _json({"would": act, "sessions": ids, "consequence": CONSEQUENCES[act]})
        return await self._acted([await self._act(request, act, str(one), given) for one in ids])

    async def _act(self, request: Request, act: str, session_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await self._check_sees(request, session_id)
            done = await self.acts.act(act, session_id, given, request.state.person.signature)
        except (TreadleError, msgspec.MsgspecError) as error:
            status, message = _told(request, error)
            return {"id": session_id, "error": message, "status": status}
        return {"id": session_id, **done}

    async def api_events(self, request: Request) -> Response:
        snapshot = await self.snapshot()
        session_id = request.query_params.get("session", "")
        await self._check_sees(request, session_id)
        events = await snapshot.journal.read(session_id, after=_number(request, "after", 0))
        return _json(
            {"events": views.hidden([event_object(event) for event in events[: _number(request, "limit", 1000)]])}
        )

    async def export(self, request: Request) -> Response:
        await self.snapshot()
        session_id = request.query_params.get("session", "")
        await self._check_sees(request, session_id)
        is_exact = request.query_params.get("exact") == "1"
        if is_exact and not request.state.person.may("operate"):
            raise Refused(403, "Exact lines hold what agents read and write, with secrets: they need the role operate.")
        lines = await self.acts.export(session_id, exact=is_exact)
        return Response(
            lines,
            media_type="application/x-ndjson",
            headers={"Content-Disposition": 'attachment; filename="session.jsonl"'},
        )

    async def api_fleet(self, request: Request) -> Response:
        return _json(await self._fleet(request))

    async def api_costs(self, request: Request) -> Response:
        found = await self._costs(request)
        if request.query_params.get("format") != "csv":
            return _json(found)
        out = io.StringIO()
        table = csv.DictWriter(out, fieldnames=list(found["lines"][0]) if found["lines"] else ["day"])
        table.writeheader()
        table.writerows({name: _cell(value) for name, value in line.items()} for line in found["lines"])
        return Response(
            out.getvalue(),
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="costs.csv"'},
        )

    async def api_agents(self, request: Request) -> Response:
        return _json({"agents": [agent.name for agent in self._agents or ()]})

    async def post_message(self, request: Request) -> Response:
        given = await _body(request)
        snapshot = await self.snapshot()
        session_id = given.get("session")
        if session_id is not None:
            await self._check_sees(request, str(session_id))
        person: Person = request.state.person
        if session_id is None and person.tenants == ():
            raise Refused(403, "Your token has no tenant for whom an agent could run.")
        tenant = "" if person.tenants is None else person.tenants[0]  # what they run is theirs, and seen by them
        done = await self.acts.try_out(
            str(given.get("agent", "")), str(given.get("text", "")), session_id, tenant=tenant, by=person.signature
        )
        await snapshot.refresh()
        return _json(done)

    # --- what changes, as it changes

    async def changes(self, request: Request) -> Response:
        """Tell a page whenever something has changed: it loads itself again. Nothing of the journal is sent here."""
        snapshot = await self.snapshot()
        person: Person = request.state.person

        async def told_versions() -> AsyncIterator[bytes]:
            async for version in snapshot.versions():
                yield server_event("changed", {"version": version, "waiting": views.waiting(snapshot, person)})

        return self._stream(request, told_versions())

    async def live(self, request: Request) -> Response:
        """Tell a page of each event of a session, and of its texts while they come."""
        await self.snapshot()
        session_id = request.query_params.get("session", "")
        await self._check_sees(request, session_id)
        return self._stream(request, self.watching.pieces(session_id))

    def _stream(self, request: Request, source: AsyncIterator[bytes]) -> Response:
        person: Person = request.state.person
        if self._streams.total() >= _MOST_STREAMS or self._streams[person.signature] >= _MOST_STREAMS_EACH:
            raise Refused(503, "Too many pages are open. Close some.")

        async def counted() -> AsyncIterator[bytes]:
            self._streams[person.signature] += 1
            try:
                yield b": hello\n\n"
                async for piece in source:
                    yield piece
            finally:
                self._streams[person.signature] -= 1
                with suppress(RuntimeError):
                    await source.aclose()  # type: ignore[attr-defined]  # a generator

        return StreamingResponse(counted(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


# --- Who reads what went wrong.

_AWAY = "The journal cannot be reached. Try again in a moment, and look whether what you did was recorded."


def _sees_address(person: Person) -> bool:
    return person.may("operate") and person.tenants is None


def _told(request: Request, error: Exception) -> tuple[int, str]:
    """Return the HTTP status and the sentence for what went wrong. The address of the journal is for those who operate all of it."""
    status, message = told(error)
    return status, message if status != 503 or _sees_address(request.state.person) else _AWAY


# --- Reading requests.


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "Send JSON, as Content-Type: application/json.")
    try:
        found = msgspec.json.decode(await request.body())
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Refused(400, f"The body is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(422, "The body is one JSON object.")
    return found


def _wanted(request: Request, *names: str) -> dict[str, str]:
    found = {name: request.query_params[name][:200] for name in names if request.query_params.get(name)}
    _check_age(found)
    return found


def _where(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return the conditions of an act on many. Raises Refused: there is none, or one that is not known."""
    where = given.get("where")
    if not isinstance(where, dict) or not where:
        raise Refused(422, "Name what it is about, or give `where` with at least one condition.")
    if unknown := [name for name in where if name not in names]:
        raise Refused(422, f"There is no condition {unknown[0]!r:.40}. There are {', '.join(names)}.")
    wanted = {name: str(value) for name, value in where.items()}
    _check_age(wanted)
    return wanted


def _limit(given: Mapping[str, Any]) -> int:
    limit = given.get("limit", _MOST_AT_ONCE)
    if type(limit) is not int or limit < 1:
        raise Refused(422, "`limit` is a whole number above 0.")
    return min(limit, _MOST_AT_ONCE)


def _check_age(wanted: Mapping[str, str]) -> None:
    try:
        float(wanted.get("age") or 0)
    except ValueError:
        raise Refused(422, "`age` is a number of seconds.") from None


def _number(request: Request, name: str, default: int) -> int:
    try:
        return int(request.query_params.get(name) or default)
    except ValueError:
        raise Refused(422, f"`{name}` is a whole number.") from None


def _page(request: Request) -> int:
    return _number(request, "page", 1)


def _size(request: Request) -> int:
    return max(1, min(_number(request, "size", views.PAGE), 1000))


def _root(request: Request) -> str:
    root: str = request.state.root
    return root


def _is_part(request: Request) -> bool:
    """Whether the script of a page asks for its inner part, which names nobody."""
    return request.headers.get("x-part") == "1"


def _place(request: Request) -> str:
    query = request.url.query
    return _path(request) + (f"?{query}" if query else "")


def _json(value: Any, *, status: int = 200) -> Response:  # Any: JSON
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def _cell(value: Any) -> Any:  # Any: of a table
    """Return a value for a table that spreadsheets open: none begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


# --- Templates.


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(views.FILTERS)
    return made
