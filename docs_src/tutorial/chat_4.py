"""Step 4: the chat survives its own process. Start it with:
MODEL=openai:gpt-5-mini uvicorn chat_4:app --timeout-graceful-shutdown 5"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from chat_3 import make_agent
from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from treadle import Run, SessionHeld, open_journal, open_session
from treadle.errors import RunHandedOver, UnknownApproval
from treadle.events import encode_sse, public_events
from treadle.workers import Worker, follow

JOURNAL = "chat.db"
agent = make_agent(os.environ["MODEL"])
runs: set[Run[str]] = set()
tasks: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def serving(_: FastAPI) -> AsyncGenerator[None]:
    """Continue what another process has left, and what a person has answered. At the end, hand over what is under way."""
    working = asyncio.create_task(Worker(JOURNAL, [agent], deps=lambda session: session.id).run())
    yield
    working.cancel()
    await asyncio.gather(working, *(run.hand_over() for run in runs), return_exceptions=True)


app = FastAPI(lifespan=serving)


class Question(BaseModel):
    text: str


class Decision(BaseModel):
    answer: Literal["allow", "deny"]
    by: str


async def carry_out(visitor: str, text: str, started: asyncio.Event) -> None:
    async with open_session(JOURNAL, id=visitor) as session:
        run = agent.stream(text, session=session, deps=visitor)
        run.subscribe(lambda _: started.set())
        runs.add(run)
        try:
            await run.finish()
        except RunHandedOver:
            pass  # the next process continues it
        finally:
            runs.discard(run)


@app.post("/chat/{visitor}", status_code=202)
async def chat(visitor: str, question: Question) -> dict[str, str]:
    """Begin a run that does not belong to this request, or pass the text on to the one that runs or waits."""
    async with open_session(JOURNAL, id=visitor) as session:
        if session.state.status in ("running", "paused"):
            await session.steer(question.text)
            return {"events": f"/chat/{visitor}/events"}
    started = asyncio.Event()
    task = asyncio.create_task(carry_out(visitor, question.text, started))
    tasks.add(task)  # asyncio forgets a task that nobody holds
    task.add_done_callback(tasks.discard)
    task.add_done_callback(lambda _: started.set())
    await started.wait()
    if task.done() and isinstance(task.exception(), SessionHeld):
        raise HTTPException(409, "Another message is being answered: send this one again.")
    return {"events": f"/chat/{visitor}/events"}


@app.get("/chat/{visitor}/events")
async def events(visitor: str, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
    """Follow a run. A browser that connects again misses nothing."""

    async def stream() -> AsyncIterator[bytes]:
        async for event in public_events(follow(JOURNAL, visitor, after=last_event_id, live=True)):
            yield encode_sse(event)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/approvals")
async def waiting() -> list[dict[str, Any]]:
    async with open_journal(JOURNAL) as journal:
        found = await journal.approvals()
    return [{"id": one.id, "visitor": one.session_id, "tool": one.tool, "arguments": one.arguments} for one in found]


@app.post("/chat/{visitor}/approvals/{approval}")
async def decide(visitor: str, approval: str, decision: Decision) -> None:
    """Record a person's answer. The worker continues the run."""
    async with open_session(JOURNAL, id=visitor, must_exist=True) as session:
        try:
            await session.answer(approval, decision.answer, by=decision.by)
        except UnknownApproval as error:
            raise HTTPException(409, str(error)) from error
