"""Step 2: the chat looks orders up with a tool. Start it with: MODEL=openai:gpt-5-mini uvicorn chat_2:app"""

import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from treadle import Agent, ToolContext, open_session, tool
from treadle.events import encode_sse, public_events
from treadle.ports import Model

ORDERS = {"17": {"customer": "ada", "product": "teapot", "status": "lost", "euros": 20}}


@tool(effect="read")
async def find_orders(ctx: ToolContext[str]) -> dict[str, Any]:
    """Find the orders of the customer who writes, by their numbers."""
    return {number: order for number, order in ORDERS.items() if order["customer"] == ctx.deps}


def make_agent(model: str | Model) -> Agent[str]:
    instructions = "You work at the desk of a tea shop. Answer in one sentence."
    return Agent(model, name="desk", instructions=instructions, tools=[find_orders])


agent = make_agent(os.environ["MODEL"])
app = FastAPI()


class Question(BaseModel):
    text: str


@app.post("/chat/{visitor}")
async def chat(visitor: str, question: Question) -> StreamingResponse:
    async def answer() -> AsyncIterator[bytes]:
        async with (
            open_session("chat.db", id=visitor) as session,
            agent.stream(question.text, session=session, deps=visitor) as run,
        ):
            async for event in public_events(run):
                yield encode_sse(event)

    return StreamingResponse(answer(), media_type="text/event-stream")


@app.get("/chat/{visitor}")
async def history(visitor: str) -> list[dict[str, str]]:
    async with open_session("chat.db", id=visitor) as session:
        return [{"role": message.role, "text": message.text} for message in session.messages if message.text]
