"""Step 1: a chat with memory, one conversation for each visitor. Start it with: MODEL=openai:gpt-5-mini uvicorn chat_1:app"""

import os
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from treadle import Agent, open_session
from treadle.events import encode_sse, public_events

agent = Agent(os.environ["MODEL"], instructions="You work at the desk of a tea shop. Answer in one sentence.")
app = FastAPI()


class Question(BaseModel):
    text: str


@app.post("/chat/{visitor}")
async def chat(visitor: str, question: Question) -> StreamingResponse:
    async def answer() -> AsyncIterator[bytes]:
        async with open_session("chat.db", id=visitor) as session, agent.stream(question.text, session=session) as run:
            async for event in public_events(run):
                yield encode_sse(event)

    return StreamingResponse(answer(), media_type="text/event-stream")


@app.get("/chat/{visitor}")
async def history(visitor: str) -> list[dict[str, str]]:
    async with open_session("chat.db", id=visitor) as session:
        return [{"role": message.role, "text": message.text} for message in session.messages if message.text]
