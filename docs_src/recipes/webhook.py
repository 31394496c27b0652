"""A bot behind a webhook, as messengers have it: long conversations, one message at a time, each answered once. Start it with:
uvicorn webhook:app"""

import asyncio
import os
from collections import defaultdict

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from treadle import Agent, SessionHeld, open_session
from treadle.context import Summarize
from treadle.errors import RunCompleted

agent = Agent(os.environ.get("MODEL", "openai:gpt-5-mini"), instructions="You answer in a chat.", compactor=Summarize())
app = FastAPI()
OUTBOX: list[dict[str, str]] = []
"""What was sent. A real bot calls the messenger's API here."""


TURNS: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


class Update(BaseModel):
    number: int
    chat: str
    text: str


@app.post("/webhook")
async def receive(update: Update) -> None:
    """Answer a message. The messenger delivers it again until this returns: also if this process dies."""
    async with TURNS[update.chat], open_session("bot.db", id=f"chat-{update.chat}") as session:
        known = session.state.metadata
        if update.number <= known.get("sent", 0):
            return  # it was delivered again
        try:
            if update.number == known.get("update"):  # its run broke off, or ended and was not sent
                text = (await agent.resume(session)).text
            else:
                metadata = {"update": update.number}
                text = (await agent.run(update.text, session=session, metadata=metadata)).text
        except RunCompleted:
            text = session.messages[-1].text
        except SessionHeld as error:  # another process is at the message before
            raise HTTPException(503) from error
        OUTBOX.append({"chat": update.chat, "text": text})
        await session.change(metadata={"sent": update.number})


@app.get("/outbox")
async def outbox() -> list[dict[str, str]]:
    return OUTBOX
