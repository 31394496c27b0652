"""A support desk: five tools, approvals over HTTP, live events. Start it with:
uvicorn support_desk:app --timeout-graceful-shutdown 5"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from treadle import Agent, Rejected, ToolContext, open_journal, open_session, tool
from treadle.errors import UnknownApproval
from treadle.events import encode_sse, public_events
from treadle.workers import Worker, follow, submit

JOURNAL = os.environ.get("JOURNAL", "desk.db")
ORDERS = {"order-17": {"customer": "ada", "status": "lost", "euros": 20}}


class Outcome(BaseModel):
    solved: bool
    refunded_euros: int
    summary: str


@tool(effect="read")
async def find_orders(customer: str) -> list[str]:
    """Find the orders of a customer."""
    return [name for name, order in ORDERS.items() if order["customer"] == customer]


@tool(effect="read")
async def order_status(order: str) -> dict[str, Any]:
    """Return what is known about an order."""
    if order not in ORDERS:
        raise Rejected({"error": "NO_SUCH_ORDER", "known": list(ORDERS)})
    return ORDERS[order]


@tool(effect="read")
async def search_policy(question: str) -> str:
    """Search the rules of the shop."""
    return "A lost parcel is refunded in full."


@tool(effect="keyed")
async def refund(order: str, euros: int, ctx: ToolContext) -> str:
    """Refund an order. A person allows each refund."""
    return f"refund {ctx.idempotency_key[:8]}: {euros} euros for {order}"


@tool(effect="unsafe", permission="allow")
async def send_email(customer: str, text: str) -> str:
    """Write to a customer."""
    return f"sent to {customer}: {text}"


desk = Agent(
    os.environ.get("MODEL", "openai:gpt-5-mini"),
    name="desk",
    instructions="You work at a support desk.",
    tools=[find_orders, order_status, search_policy, refund, send_email],
    output=Outcome,
)


@asynccontextmanager
async def working(_: FastAPI) -> AsyncGenerator[None]:
    """Run tickets, also those of a process that died. At the end of this one, hand over what is under way."""
    work = asyncio.create_task(Worker(JOURNAL, [desk]).run())
    yield
    work.cancel()
    await asyncio.wait({work})


app = FastAPI(lifespan=working)


class Decision(BaseModel):
    answer: Literal["allow", "deny"]
    by: str


@app.post("/tickets")
async def begin(text: Annotated[str, Body(embed=True)]) -> dict[str, str]:
    return {"id": await submit(JOURNAL, "desk", text)}


@app.get("/tickets/{ticket}/events")
async def events(ticket: str, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
    async def stream() -> AsyncIterator[bytes]:
        async for event in public_events(follow(JOURNAL, ticket, after=last_event_id, live=True)):
            yield encode_sse(event)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/approvals")
async def waiting() -> list[dict[str, Any]]:
    async with open_journal(JOURNAL) as journal:
        found = await journal.approvals()
    return [{"id": one.id, "ticket": one.session_id, "tool": one.tool, "arguments": one.arguments} for one in found]


@app.post("/tickets/{ticket}/approvals/{approval}")
async def decide(ticket: str, approval: str, decision: Decision) -> None:
    async with open_session(JOURNAL, id=ticket, must_exist=True) as session:
        try:
            await session.answer(approval, decision.answer, by=decision.by)
        except UnknownApproval as error:
            raise HTTPException(409, str(error)) from error
