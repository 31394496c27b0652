"""A page of a journal, served for real on loopback, and ways to ask it: as a browser does, and as a program does."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn

from treadle import Agent, open_session, tool
from treadle.ports import Journal
from treadle.testing import ScriptedModel
from treadle.toolsets import ask_user_tool
from treadle.web import Access, web

HOSTILE = '<img src=x onerror="window.harm=1"><script>window.harm=1</script>\u202e[a](javascript:window.harm=1)'


@tool(effect="read")
async def look_up(customer: str) -> str:
    """Look a customer up."""
    return f"{customer} has three orders. {HOSTILE}"


@tool(effect="unsafe")
async def pay(account: str, amount: float) -> str:
    """Pay an account."""
    return f"receipt for {amount} to {account}"


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


PAYS: Sequence[Any] = ({"text": "I pay.", "calls": [calls("pay", account="DE02", amount=120.5)]}, {"text": "Paid."})


class Site:
    """A page that is served, and its journal."""

    def __init__(self, url: str, journal: Journal, access: Access) -> None:
        self.url = url
        self.journal = journal
        self.access = access

    def link(self, name: str = "ada", **options: Any) -> str:
        return f"{self.url}/enter?key={self.access.new_link(name, **options)}"

    async def run(self, turns: Sequence[Any], task: str, *, tenant: str = "", agent: str = "clerk") -> str:
        """Run an agent once, and return its session."""
        made = Agent(ScriptedModel(list(turns)), tools=[look_up, pay, ask_user_tool()], name=agent)
        async with open_session(self.journal) as session:
            if tenant:
                await session.change(metadata={"tenant": tenant})
            await made.run(task, session=session)
        return session.id

    @asynccontextmanager
    async def browser(self, **options: Any) -> AsyncIterator["Client"]:
        """Log in as a browser does."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.get(self.link(**options)) as answer:
                text = await answer.text()
            found = re.search(r'name="csrf" content="([^"]*)"', text)
            assert found is not None
            yield Client(http, self.url, {"X-CSRF-Token": found[1]})

    @asynccontextmanager
    async def program(self, secret: str) -> AsyncIterator["Client"]:
        """Ask as a program with a token does."""
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as http:
            yield Client(http, self.url, {})


class Client:
    """Somebody who has logged in."""

    def __init__(self, http: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> None:
        self.http = http
        self.url = url
        self.headers = headers

    async def get(self, path: str, **query: str) -> tuple[int, Any]:
        async with self.http.get(self.url + path, params=query, allow_redirects=False) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async with self.http.post(
            self.url + path, json=body, headers={**self.headers, **headers}, allow_redirects=False
        ) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def inbox(self, **query: str) -> list[dict[str, Any]]:
        status, found = await self.get("/api/v1/inbox", **query)
        assert status == 200, found
        items: list[dict[str, Any]] = found["items"]
        return items


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine until the end of the context."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1))
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]  # pytest has its own
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def site_of(journal: Journal, **options: Any) -> AsyncIterator[Site]:
    access = options.pop("access", None) or Access()
    async with served(web(journal, access=access, **options)) as url:
        yield Site(url, journal, access)


async def until(condition: Any, **options: Any) -> Any:
    """Wait until a coroutine function returns something true."""
    async with asyncio.timeout(30):
        while not (found := await condition(**options)):
            await asyncio.sleep(0.02)  # sleep: the page has nothing to wait on from outside
        return found
