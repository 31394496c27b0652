"""Step 3: a refund waits for a person of the shop. Start it with: MODEL=openai:gpt-5-mini uvicorn chat_3:app"""

import os
from collections.abc import AsyncIterator
from typing import Any, Literal

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from treadle import Agent, Rejected, Run, ToolContext, open_journal, open_session, tool
from treadle.errors import UnknownApproval
from treadle.events import encode_sse, public_events
from treadle.ports import Model

ORDERS = {"17": {"customer": "ada", "product": "teapot", "status": "lost", "euros": 20}}
REFUNDS: dict[str, str] = {}
"""What was refunded, by the key of the call. A real shop calls its bank, which knows keys too."""


@tool(effect="read")
async def find_orders(ctx: ToolContext[str]) -> dict[str, Any]:
    """Find the orders of the customer who writes, by their numbers."""
    return {number: order for number, order in ORDERS.items() if order["customer"] == ctx.deps}


@tool(effect="keyed")
async def refund(order: str, ctx: ToolContext[str]) -> str:
    """Refund an order. A person of the shop allows each refund."""
    if ORDERS.get(order, {}).get("customer") != ctx.deps:
        raise Rejected("This customer has no such order.")
    return REFUNDS.setdefault(ctx.idempotency_key, f"order {order} is refunded")


def make_agent(model: str | Model) -> Agent[str]:
    instructions = "You work at the desk of a tea shop. Answer in one sentence."
    return Agent(model, name="desk", instructions=instructions, tools=[find_orders, refund])


agent = make_agent(os.environ["MODEL"])
app = FastAPI()


class Question(BaseModel):
    text: str


class Decision(BaseModel):
    answer: Literal["allow", "deny"]
    by: str


async def sent(run: Run[str]) -> AsyncIterator[bytes]:
    async for event in public_events(run):
        yield encode_sse(event)


@app.post("/chat/{visitor}")
async def chat(visitor: str, question: Question) -> StreamingResponse:
    async def answer() -> AsyncIterator[bytes]:
        async with (
            open_session("chat.db", id=visitor) as session,
            agent.stream(question.text, session=session, deps=visitor) as run,
        ):
            async for data in sent(run):
                yield data

    return StreamingResponse(answer(), media_type="text/event-stream")


@app.get("/approvals")
async def waiting() -> list[dict[str, Any]]:
    async with open_journal("chat.db") as journal:
        found = await journal.approvals()
    return [{"id": one.id, "visitor": one.session_id, "tool": one.tool, "arguments": one.arguments} for one in found]


@app.post("/chat/{visitor}/approvals/{approval}")
async def decide(visitor: str, approval: str, decision: Decision) -> StreamingResponse:
    """Record a person's answer, and stream the rest of the run."""
    async with open_session("chat.db", id=visitor, must_exist=True) as session:
        try:
            await session.answer(approval, decision.answer, by=decision.by)
        except UnknownApproval as error:
            raise HTTPException(409, str(error)) from error

    async def rest() -> AsyncIterator[bytes]:
        async with (
            open_session("chat.db", id=visitor) as session,
            agent.stream_resume(session, deps=visitor) as run,
        ):
            async for data in sent(run):
                yield data

    return StreamingResponse(rest(), media_type="text/event-stream")
