"""The desk behind HTTP. Start it with: python service.py JOURNAL MODEL. It prints its address."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from aiohttp import web
from desk import Answer, Shop, make_agent

from treadle import Agent, Agents, SessionHeld, open_journal, open_session
from treadle.errors import NothingToResume
from treadle.events import encode_event, public_events


class Service:
    """One agent, one journal, and a session for each customer."""

    def __init__(self, agent: Agent[Shop, Answer], journal: str) -> None:
        self.agent = agent
        self.journal = journal
        self.running: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/{customer}/task", self.task), web.get("/{customer}/events", self.events)])
        app.cleanup_ctx.append(self.resume_forever)
        return app

    async def task(self, request: web.Request) -> web.Response:
        """Begin a run and answer at once."""
        task: str = (await request.json())["task"]
        self.start(self.run(request.match_info["customer"], task))
        return web.json_response({"events": f"/{request.match_info['customer']}/events"}, status=202)

    async def run(self, customer: str, task: str) -> None:
        async with open_session(self.journal, id=customer) as session:
            await self.agent.run(task, session=session, deps=Shop(customer))

    def start(self, run: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(run)
        self.running.add(task)  # asyncio forgets a task that nobody holds
        task.add_done_callback(self.running.discard)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream what the customer may see of a run, what is after `Last-Event-ID` only."""
        seen = int(request.headers.get("Last-Event-ID", "0"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        async with open_journal(self.journal) as journal:
            async for event in public_events(journal.follow(request.match_info["customer"], after=seen)):
                number = f"id: {event.seq}\n" if event.seq else ""
                head = f"{number}event: {event.type}\ndata: "
                try:
                    await response.write(head.encode() + encode_event(event) + b"\n\n")
                except ConnectionResetError:
                    break  # the client went away; the run continues
        return response

    async def resume_forever(self, app: web.Application) -> AsyncIterator[None]:
        """Resume runs while the service is up: those of a process that died, and those that somebody has answered."""
        ended = asyncio.Event()
        loop = asyncio.create_task(self.resume_until(ended))
        yield
        ended.set()
        await loop

    async def resume_until(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            async with open_journal(self.journal) as journal:
                for customer in await journal.resumable():
                    self.start(self.resume(customer))
            try:
                await asyncio.wait_for(ended.wait(), timeout=1)
            except TimeoutError:
                continue

    async def resume(self, customer: str) -> None:
        with suppress(SessionHeld, NothingToResume):  # another task runs it, or has just ended it
            await Agents([self.agent]).resume(self.journal, customer, deps=Shop(customer))


async def main(journal: str, model: str) -> None:
    runner = web.AppRunner(Service(make_agent(model), journal).app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
