"""An agent behind HTTP: tasks, what a browser may see as server-sent events, and approvals. All state is in the journal."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

from aiohttp import ClientSession, web

from treadle import Agent, Agents, Run, SessionHeld, open_session, tool
from treadle.errors import RunHandedOver, UnknownApproval
from treadle.events import encode_event, public_events
from treadle.testing import ScriptedModel, call, text
from treadle.workers import follow


@tool(effect="unsafe")
async def order(product: str, pieces: int) -> str:
    """Order a product."""
    return f"{pieces} {product} ordered"


class Service:
    """One agent and one journal. Any number of processes may serve the same journal."""

    def __init__(self, agent: Agent, journal: Path) -> None:
        self.agent = agent
        self.path = journal
        self.running: set[asyncio.Task[None]] = set()
        self.runs: set[Run[str]] = set()

    def app(self) -> web.Application:
        app = web.Application()
        app.cleanup_ctx.append(self.resumed)
        app.on_shutdown.append(self.hand_over)
        app.add_routes(
            [
                web.post("/sessions/{id}/task", self.task),
                web.get("/sessions/{id}/events", self.events),
                web.get("/sessions/{id}/approvals", self.approvals),
                web.post("/sessions/{id}/approvals/{approval}", self.answer),
            ]
        )
        return app

    async def resumed(self, _: web.Application) -> AsyncIterator[None]:
        """Continue what other processes have left, as long as this one serves. Cancelled, it hands over what it runs."""
        resuming = asyncio.create_task(self._resume_all())
        yield
        resuming.cancel()
        await asyncio.wait({resuming})

    async def _resume_all(self) -> None:
        while True:
            await Agents([self.agent]).resume_all(self.path)
            await asyncio.sleep(1)

    async def hand_over(self, _: web.Application) -> None:
        """Let go of every run at SIGTERM: the next process resumes them."""
        await asyncio.gather(*(run.hand_over() for run in self.runs))

    async def task(self, request: web.Request) -> web.Response:
        """Begin a task and answer at once: the run does not depend on the connection."""
        session_id = request.match_info["id"]
        return await self._begin(session_id, (await request.json())["task"])

    async def _begin(self, session_id: str, task: str | None) -> web.Response:
        started = asyncio.Event()
        running = asyncio.create_task(self._run(session_id, task, started))
        self.running.add(running)  # asyncio forgets a task that nobody holds
        running.add_done_callback(self.running.discard)
        running.add_done_callback(lambda _: started.set())
        await started.wait()
        if running.done() and isinstance(running.exception(), SessionHeld):
            return web.json_response({"error": str(running.exception())}, status=409)  # a run is under way already
        return web.json_response({"session": session_id}, status=202)

    async def _run(self, session_id: str, task: str | None, started: asyncio.Event) -> None:
        async with open_session(self.path, id=session_id) as session:
            run = self.agent.stream_resume(session) if task is None else self.agent.stream(task, session=session)
            run.subscribe(lambda _: started.set())
            self.runs.add(run)
            try:
                await run.finish()
            except RunHandedOver:
                pass  # another process continues it
            finally:
                self.runs.discard(run)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream what a browser may see. One that comes back says by `Last-Event-ID` what it has seen, and misses nothing."""
        seen = int(request.headers.get("Last-Event-ID", request.query.get("after", "0")))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        stored = follow(self.path, request.match_info["id"], after=seen, live=True)
        with suppress(ConnectionResetError):  # the client went away; the run continues
            async with aclosing(public_events(stored)) as events:
                async for event in events:
                    number = b"id: %d\n" % event.seq if event.seq else b""  # a piece of text that is live has none
                    data = b"event: %s\ndata: %s\n\n" % (event.type.encode(), encode_event(event))
                    await response.write(number + data)
        return response

    async def approvals(self, request: web.Request) -> web.Response:
        async with open_session(self.path, id=request.match_info["id"], must_exist=True) as session:
            waiting = [
                {"id": one.id, "tool": one.tool, "arguments": one.arguments} for one in await session.approvals()
            ]
        return web.json_response(waiting)

    async def answer(self, request: web.Request) -> web.Response:
        """Record a person's answer, then continue. The answer counts even where this process dies in between."""
        body = await request.json()
        session_id = request.match_info["id"]
        async with open_session(self.path, id=session_id, must_exist=True) as session:
            try:
                await session.answer(request.match_info["approval"], body["answer"], by=body["by"])
            except UnknownApproval as error:
                return web.json_response({"error": str(error)}, status=409)
        await self._begin(session_id, None)  # where the loop came first, it is under way already
        return web.json_response({"session": session_id}, status=202)


async def read_events(client: ClientSession, after: int, until: str) -> int:
    """Read the stream as a browser does, up to an event; then go away. Return the number of the last one."""
    async with client.get("/sessions/ada/events", headers={"Last-Event-ID": str(after)}) as response:
        async for line in response.content:
            if line.startswith(b"id: "):
                after = int(line[4:])
            if line == f"event: {until}\n".encode():
                break
    return after


async def main(journal: Path) -> None:
    model = ScriptedModel([call("order", product="teapots", pieces=2), text("Two teapots are on their way.")])
    service = Service(Agent(model, name="orders", tools=[order]), journal)
    runner = web.AppRunner(service.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
        await client.post("/sessions/ada/task", json={"task": "Order two teapots"})
        seen = await read_events(client, after=0, until="end")
        waiting = await (await client.get("/sessions/ada/approvals")).json()
        print(json.dumps(waiting[0]["arguments"]))

        answered = await client.post(
            f"/sessions/ada/approvals/{waiting[0]['id']}", json={"answer": "allow", "by": "bo"}
        )
        assert answered.status == 202
        last = await read_events(client, after=seen, until="end")
        print(f"{last} events")

    await asyncio.gather(*service.running)
    async with open_session(journal, id="ada") as session:
        assert session.messages[-1].text == "Two teapots are on their way."
    await runner.cleanup()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "shop.db"))
